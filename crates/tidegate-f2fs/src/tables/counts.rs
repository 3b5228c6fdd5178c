//! Bookings of blocks and node ids: the volume's store of both, and the need of roll-forward.
//!
//! A booking reserves a block, and only a booking finds the volume full. Recovery books blocks, too, on top
//! of the last checkpoint: blocks that were freed since are still in use there. So an fsync relies on
//! roll-forward only while the checkpoint's blocks and all blocks booked since fit side by side.

use crate::format::gate::Checkpoint;
use crate::format::raw::*;
use crate::volume::sbi::F2fs;
use tidegate_vfs::{ErrorKind, Result};

/// Blocks that the recovery of a name may take even if the name took none when it was made, since removed
/// names are back in the directory then: the blocks that an inline directory becomes, one block for the name,
/// and the nodes on the way to it.
const NAME_BLOCKS: u64 = 2 + 1 + NAME_NODES as u64;
const NAME_NODES: u32 = 3;

/// The part of all node ids that may change between checkpoints, and the number that may change in any case.
const DIRTY_NATS_RATIO: u32 = 10;
const MAX_DIRTY_NATS: u32 = 1 << 18;

/// The counters that the checkpoint keeps, and their limits. In blocks, except for the inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub valid_blocks: u64,
    pub valid_nodes: u32,
    pub valid_inodes: u32,
    pub user_blocks: u64,
    /// Most nodes that the volume can have.
    max_nodes: u32,
    /// The count in the last checkpoint.
    last_valid_blocks: u64,
    last_valid_nodes: u32,
    /// Blocks booked since the last checkpoint, also those whose booking was taken back.
    alloc_valid_blocks: u64,
    alloc_valid_nodes: u32,
    alloc_valid_inodes: u32,
}

impl Counts {
    pub(crate) fn new(cp: &Checkpoint, max_nid: u32) -> Counts {
        let r = &cp.raw;
        let mut c = Counts {
            valid_blocks: r.valid_block_count.get(),
            valid_nodes: r.valid_node_count.get(),
            valid_inodes: r.valid_inode_count.get(),
            user_blocks: r.user_block_count.get(),
            max_nodes: max_nid - 4,
            ..Counts::default()
        };
        c.checkpointed();
        c
    }

    /// Starts the counts anew after a checkpoint. Called with operations frozen.
    pub(crate) fn checkpointed(&mut self) {
        (self.last_valid_blocks, self.last_valid_nodes) = (self.valid_blocks, self.valid_nodes);
        (self.alloc_valid_blocks, self.alloc_valid_nodes, self.alloc_valid_inodes) = (0, 0, 0);
    }

    /// Node ids that no node has now.
    fn free_nodes(&self) -> u32 {
        self.max_nodes.saturating_sub(self.valid_nodes)
    }

    fn book(&mut self, blocks: u64, nodes: u32, inodes: u32) -> Result<()> {
        if self.valid_blocks + blocks > self.user_blocks || self.valid_nodes + nodes > self.max_nodes {
            return Err(ErrorKind::NoSpace.into());
        }
        self.valid_blocks += blocks;
        self.valid_nodes += nodes;
        self.valid_inodes += inodes;
        self.alloc_valid_blocks += blocks;
        self.alloc_valid_nodes = self.alloc_valid_nodes.saturating_add(nodes);
        self.alloc_valid_inodes = self.alloc_valid_inodes.saturating_add(inodes);
        Ok(())
    }

    /// Whether recovery, on top of the last checkpoint, could repeat all bookings since, and whether the
    /// `placed` blocks that were written since fit beside the checkpoint's blocks.
    fn has_room_for_roll_forward(&self, placed: u64) -> bool {
        let inodes = u64::from(self.alloc_valid_inodes);
        let blocks = self.alloc_valid_blocks + NAME_BLOCKS * inodes;
        let nodes = u64::from(self.alloc_valid_nodes) + u64::from(NAME_NODES) * inodes;
        self.last_valid_blocks + blocks.max(placed) <= self.user_blocks
            && u64::from(self.last_valid_nodes) + nodes <= u64::from(self.max_nodes)
    }
}

impl F2fs {
    /// Books `blocks` more blocks, of which `nodes` are nodes and `inodes` inodes.
    ///
    /// # Errors
    /// `NoSpace`, with nothing booked.
    pub(crate) fn book(&self, blocks: u64, nodes: u32, inodes: u32) -> Result<()> {
        self.counts.lock().book(blocks, nodes, inodes)
    }

    /// Takes a booking back.
    pub(crate) fn unbook(&self, blocks: u64, nodes: u32, inodes: u32) {
        let mut c = self.counts.lock();
        c.valid_blocks = c.valid_blocks.saturating_sub(blocks);
        c.valid_nodes = c.valid_nodes.saturating_sub(nodes);
        c.valid_inodes = c.valid_inodes.saturating_sub(inodes);
    }

    /// Whether recovery would find enough blocks, node ids and segments to roll forward everything since the
    /// last checkpoint.
    pub(crate) fn has_space_for_roll_forward(&self) -> bool {
        let placed = self.cursegs.allocated_since_cp();
        let fits = self.counts.lock().has_room_for_roll_forward(placed);
        fits && self.has_segments_for_roll_forward(self.nat.nr_dirty().0)
    }

    /// Whether there are free segments for the blocks that recovery writes: none of the `dirty` nodes may go
    /// to the chain's segments. A few nodes find room where the logs go.
    fn has_segments_for_roll_forward(&self, dirty: u32) -> bool {
        let segments = dirty / BLOCKS_PER_SEG;
        segments == 0 || self.sit.free_segments().free >= segments + NR_CURSEG_TYPE as u32
    }

    /// Whether a checkpoint is due because of changed node ids: there are many of them, or more ids wait to
    /// be free than are free, or their recovery would take too many segments.
    pub(crate) fn excess_dirty_nats(&self) -> bool {
        let (dirty, freed) = self.nat.nr_dirty();
        let most = (self.sb.max_nid / DIRTY_NATS_RATIO).min(MAX_DIRTY_NATS);
        dirty > most
            || freed > 0 && freed > self.counts.lock().free_nodes().saturating_sub(freed)
            || !self.has_segments_for_roll_forward(dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        let mut c = Counts {
            valid_blocks: 600,
            valid_nodes: 60,
            user_blocks: 1000,
            max_nodes: 100,
            ..Counts::default()
        };
        c.checkpointed();
        c
    }

    #[test]
    fn what_was_freed_since_the_checkpoint_is_not_room() {
        let mut c = counts();
        c.valid_blocks -= 500;
        c.book(400, 0, 0).unwrap();
        assert!(c.has_room_for_roll_forward(0));
        c.book(1, 0, 0).unwrap();
        assert!(!c.has_room_for_roll_forward(0));
        c.checkpointed();
        assert!(c.has_room_for_roll_forward(0));
    }

    #[test]
    fn what_was_booked_and_taken_back_is_booked_by_recovery() {
        let mut c = counts();
        for _ in 0..4 {
            assert!(c.has_room_for_roll_forward(0));
            c.book(120, 0, 0).unwrap();
            c.valid_blocks -= 120;
        }
        assert!(!c.has_room_for_roll_forward(0));
    }

    #[test]
    fn blocks_written_over_and_over_take_room() {
        let c = counts();
        assert!(c.has_room_for_roll_forward(400));
        assert!(!c.has_room_for_roll_forward(401));
    }

    #[test]
    fn node_ids_of_the_checkpoint_are_in_use() {
        let mut c = counts();
        c.valid_nodes -= 50;
        c.book(40, 40, 0).unwrap();
        assert!(c.has_room_for_roll_forward(0));
        c.book(1, 1, 0).unwrap();
        assert!(!c.has_room_for_roll_forward(0));
    }

    #[test]
    fn a_name_may_take_more_than_it_took() {
        let mut c = counts();
        c.book(400 - NAME_BLOCKS, 1, 1).unwrap();
        assert!(c.has_room_for_roll_forward(0));
        c.book(1, 0, 0).unwrap();
        assert!(!c.has_room_for_roll_forward(0));
    }

    #[test]
    fn a_booking_that_fails_counts_nowhere() {
        let mut c = counts();
        assert!(c.book(401, 0, 0).is_err());
        assert!(c.book(1, 41, 0).is_err());
        assert_eq!((c.valid_blocks, c.valid_nodes, c.alloc_valid_blocks), (600, 60, 0));
    }
}
