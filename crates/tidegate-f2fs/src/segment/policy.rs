//! How many free segments are kept, and for whom.
//!
//! Free segments are kept in steps, so that each step can finish what the one before began: ordinary
//! data stops first, then cleaning; what a checkpoint must write (nodes, directories) may take the last.

use crate::format::raw::*;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;

/// Free segments that cleaning leaves alone beyond what a checkpoint needs: its own last victim makes
/// that many nodes dirty.
const KEPT_BY_CLEANING: u32 = 2;

/// The same for ordinary data: one victim can still be cleaned.
pub(crate) const KEPT_BY_DATA: u32 = 4;

/// For whom blocks are allocated: how many free segments must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// What the next checkpoint must write: may take the last.
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
            && self.node_inode.mapping.nr_dirty() >= BLOCKS_PER_SEG as u64
            && self.sit.free_segments().free < self.kept_free(whom)
    }

    /// Segments that are left when the volume is full and each log has one to itself: few on the smallest
    /// volumes, which live on holes.
    pub(crate) fn spare_segments(&self) -> u32 {
        let user = self.counts.lock().user_blocks.div_ceil(BLOCKS_PER_SEG as u64) as u32;
        self.sb.main_segments.saturating_sub(user + NR_CURSEG_TYPE as u32)
    }

    /// At this many free segments, logs begin to fill holes.
    pub(crate) fn ssr_threshold(&self) -> u32 {
        let reserved = self.ckpt.lock().cp.raw.rsvd_segment_count.get();
        self.checkpoint_need() + reserved.min(self.sb.main_segments / 10) + NR_CURSEG_TYPE as u32
    }

    /// At this many free segments, who is about to need some cleans first.
    pub(crate) fn gc_threshold(&self) -> u32 {
        let reserved = self.ckpt.lock().cp.raw.rsvd_segment_count.get();
        self.kept_free(Reserve::Data) + reserved.min(self.sb.main_segments / 20).max(2)
    }
}
