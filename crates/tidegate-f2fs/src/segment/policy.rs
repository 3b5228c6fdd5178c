//! The number of free segments that are kept, and their purpose.
//!
//! Free segments are kept in steps, so that each step can finish the work of the one before: ordinary data
//! stops first, then cleaning; a checkpoint's writes (nodes, directories) may take the last.

use crate::format::raw::*;
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;

/// Free segments that cleaning leaves beyond a checkpoint's need: the last victim of cleaning makes that many
/// nodes dirty.
const KEPT_BY_CLEANING: u32 = 2;

/// Free segments that ordinary data leaves, so that one victim can still be cleaned.
pub(crate) const KEPT_BY_DATA: u32 = 4;

/// Nodes that running operations make dirty before a checkpoint comes, in blocks.
const UNDER_WAY: u64 = 64;

/// The purpose of an allocation, which decides how many free segments must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// Blocks that the next checkpoint must write: these may take the last free segment.
    Checkpoint,
    /// Blocks that cleaning moves.
    Cleaning,
    /// File data.
    Data,
}

impl F2fs {
    /// Segments that a checkpoint now would take for nodes and directories.
    pub(crate) fn checkpoint_need(&self) -> u32 {
        self.dirty_for_checkpoint().div_ceil(BLOCKS_PER_SEG as u64) as u32 + 1
    }

    /// The most blocks that a checkpoint now would write.
    pub(crate) fn dirty_for_checkpoint(&self) -> u64 {
        self.node_inode.mapping.nr_dirty() + self.dirty_inodes.len() + 2 * self.gc.dir_pages.load(Relaxed)
    }

    /// Free segments that must be left when `whom` takes a fresh one.
    pub(crate) fn kept_free(&self, whom: Reserve) -> u32 {
        if let Some(zones) = &self.sit.zones {
            return self.sections_kept(whom) * zones.segments_in(zones.sections());
        }
        let spare = self.spare_segments();
        match whom {
            Reserve::Checkpoint => 0,
            Reserve::Cleaning => self.checkpoint_need() + KEPT_BY_CLEANING.min(spare / 4),
            Reserve::Data => self.checkpoint_need() + KEPT_BY_DATA.min(spare / 2),
        }
    }

    /// Whether so many nodes are dirty that a checkpoint must write them before `whom` goes on: an allocation
    /// in holes takes no free segment, but each block placed may change a node.
    pub(crate) fn nodes_come_first(&self, whom: Reserve) -> bool {
        whom != Reserve::Checkpoint
            && !self.is_zoned()
            && self.node_inode.mapping.nr_dirty() >= BLOCKS_PER_SEG as u64
            && self.sit.free_segments().free < self.kept_free(whom)
    }

    /// Whether a checkpoint must come before `nodes` more nodes become dirty: on zones, a checkpoint that had
    /// to write them as well might not find enough sections. False for a volume without zones.
    pub(crate) fn checkpoint_comes_first(&self, nodes: u64) -> bool {
        self.is_zoned()
            && self.sit.free_segments().free
                < self.checkpoint_sections_with(nodes) * self.sit.segments_of_section()
    }

    /// Whether a checkpoint now cannot succeed: on zones, when fewer sections are free than logs are at the
    /// end of their section.
    pub(crate) fn checkpoint_has_no_room(&self) -> bool {
        if !self.is_zoned() {
            return false;
        }
        let ended = Log::ALL.iter().filter(|l| self.cursegs.left.of(**l) == 0).count() as u32;
        self.sit.free_segments().free < ended * self.sit.segments_of_section()
    }

    /// Segments that are left when the volume is full and each log has a segment to itself. The smallest
    /// volumes have few of them, and live on holes.
    pub(crate) fn spare_segments(&self) -> u32 {
        let user = self.counts.lock().user_blocks.div_ceil(BLOCKS_PER_SEG as u64) as u32;
        if let Some(zones) = &self.sit.zones {
            return self.spare_sections() * zones.segments_in(zones.sections());
        }
        self.sb.main_segments.saturating_sub(user + NR_CURSEG_TYPE as u32)
    }

    /// Sections that are left when the volume is full and each log has a section to itself.
    fn spare_sections(&self) -> u32 {
        let Some(zones) = &self.sit.zones else { return 0 };
        let spare = zones.all_usable().saturating_sub(self.counts.lock().user_blocks);
        let spare = spare / u64::from(zones.capacity().max(1));
        (spare as u32).saturating_sub(NR_CURSEG_TYPE as u32)
    }

    /// Sections that a checkpoint would take with `nodes` more dirty nodes than now. Each log that may have
    /// to write more than is left in its section takes another section, and so does a log at the end of its
    /// section. Running operations dirty a few more nodes.
    fn checkpoint_sections_with(&self, nodes: u64) -> u32 {
        let capacity = u64::from(self.sit.zones.as_ref().map_or(BLOCKS_PER_SEG, |z| z.capacity())).max(1);
        let dirty = self.dirty_for_checkpoint() + nodes + UNDER_WAY.min(capacity / 8);
        let dirs = 2 * self.gc.dir_pages.load(Relaxed);
        let needs = |log: &Log| {
            let left = u64::from(self.cursegs.left.of(*log));
            left == 0 || log.is_node() && left <= dirty || *log == Log::HotData && dirs > 0 && left <= dirs
        };
        Log::ALL.iter().filter(|l| needs(l)).count() as u32 + (dirty / capacity) as u32
    }

    /// [`F2fs::kept_free`] in sections: cleaning leaves the sections of the next checkpoint, and data some
    /// sections to clean with.
    fn sections_kept(&self, whom: Reserve) -> u32 {
        match whom {
            Reserve::Checkpoint => 0,
            Reserve::Cleaning => self.checkpoint_sections_with(0),
            Reserve::Data => self.checkpoint_sections_with(0) + (self.spare_sections() / 3).clamp(1, 4),
        }
    }

    /// Logs begin to fill holes at this many free segments.
    pub(crate) fn ssr_threshold(&self) -> u32 {
        let reserved = self.ckpt.lock().cp.raw.rsvd_segment_count.get();
        self.checkpoint_need() + reserved.min(self.sb.main_segments / 10) + NR_CURSEG_TYPE as u32
    }

    /// A thread that is about to need segments cleans first at this many free segments.
    pub(crate) fn gc_threshold(&self) -> u32 {
        let reserved = self.ckpt.lock().cp.raw.rsvd_segment_count.get();
        if let Some(zones) = &self.sit.zones {
            let per = zones.segments_in(zones.sections());
            return self.kept_free(Reserve::Data)
                + 2.min(self.spare_segments() / per.max(1) / 4).max(1) * per;
        }
        self.kept_free(Reserve::Data) + reserved.min(self.sb.main_segments / 20).max(2)
    }
}
