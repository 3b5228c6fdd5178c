//! How many free segments are kept, and for whom.
//!
//! Free segments are kept in steps, so that each step can finish the work of the one before: ordinary data
//! stops first, then cleaning; a checkpoint's writes (nodes, directories) may take the last.

use crate::format::raw::*;
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;

/// Free segments that cleaning leaves alone beyond what a checkpoint needs: its own last victim makes
/// that many nodes dirty.
const KEPT_BY_CLEANING: u32 = 2;

/// Free segments that ordinary data leaves alone: one victim can still be cleaned.
pub(crate) const KEPT_BY_DATA: u32 = 4;

/// The purpose for which blocks are allocated: how many free segments must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// Blocks that the next checkpoint must write: these may take the last.
    Checkpoint,
    /// Blocks that cleaning moves.
    Cleaning,
    /// File data.
    Data,
}

impl F2fs {
    /// Segments that a checkpoint made now would take for nodes and directories.
    pub(crate) fn checkpoint_need(&self) -> u32 {
        self.dirty_for_checkpoint().div_ceil(BLOCKS_PER_SEG as u64) as u32 + 1
    }

    /// Blocks that a checkpoint made now would write, at most.
    pub(crate) fn dirty_for_checkpoint(&self) -> u64 {
        self.node_inode.mapping.nr_dirty() + self.dirty_inodes.len() + 2 * self.gc.dir_pages.load(Relaxed)
    }

    /// Free segments that must be left when `whom` goes to a fresh one.
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

    /// Whether so many nodes became dirty that a checkpoint must write them before `whom` goes on: filling
    /// holes takes no free segment, but each block placed may change a node.
    pub(crate) fn nodes_come_first(&self, whom: Reserve) -> bool {
        whom != Reserve::Checkpoint
            && !self.is_zoned()
            && self.node_inode.mapping.nr_dirty() >= BLOCKS_PER_SEG as u64
            && self.sit.free_segments().free < self.kept_free(whom)
    }

    /// Segments that are left when the volume is full and each log has one to itself: few on the smallest
    /// volumes, which live on holes.
    pub(crate) fn spare_segments(&self) -> u32 {
        let user = self.counts.lock().user_blocks.div_ceil(BLOCKS_PER_SEG as u64) as u32;
        if let Some(zones) = &self.sit.zones {
            let logs = NR_CURSEG_TYPE as u32 * zones.segments_in(zones.sections());
            return zones.all_usable_segments().saturating_sub(user + logs);
        }
        self.sb.main_segments.saturating_sub(user + NR_CURSEG_TYPE as u32)
    }

    /// Sections that a checkpoint made now would take: each log that it writes to, and has more for than is
    /// left in its section, goes to another, and so does one that is at the end of its own.
    fn checkpoint_sections(&self) -> u32 {
        let dirty = self.dirty_for_checkpoint();
        let writes = |log: Log| log.is_node() || log == Log::HotData;
        let needs = |log: &Log| {
            let left = u64::from(self.cursegs.left.of(*log));
            left == 0 || writes(*log) && left <= dirty
        };
        let crossing = Log::ALL.iter().filter(|l| needs(l)).count() as u32;
        let capacity = u64::from(self.sit.zones.as_ref().map_or(BLOCKS_PER_SEG, |z| z.capacity()));
        crossing + (dirty / capacity.max(1)) as u32
    }

    /// The sections of [`F2fs::kept_free`]. A log goes on to a free section as soon as its own is full,
    /// whatever is kept; so many of these are kept beyond what a checkpoint needs.
    fn sections_kept(&self, whom: Reserve) -> u32 {
        let per = self.sit.zones.as_ref().map_or(1, |z| z.segments_in(z.sections())).max(1);
        let spare = self.spare_segments() / per;
        match whom {
            Reserve::Checkpoint => 0,
            Reserve::Cleaning => self.checkpoint_sections() + 1.min(spare / 3),
            Reserve::Data => self.checkpoint_sections() + 4.min(spare / 2),
        }
    }

    /// At this many free segments, logs begin to fill holes.
    pub(crate) fn ssr_threshold(&self) -> u32 {
        let reserved = self.ckpt.lock().cp.raw.rsvd_segment_count.get();
        self.checkpoint_need() + reserved.min(self.sb.main_segments / 10) + NR_CURSEG_TYPE as u32
    }

    /// At this many free segments, a thread that is about to need some cleans first.
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
