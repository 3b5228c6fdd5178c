//! The amount of the log that a handle may take.

use crate::format::raw::{RawHeader, RawRevoke, TAIL_SIZE, UUID_SIZE};
use crate::format::{Incompat, Superblock, TagLayout};

/// The bound of a handle's changes, and its purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Blocks that the handle changes.
    pub blocks: u32,
    /// Blocks that the handle frees.
    pub revokes: u32,
    /// Blocks that a later handle changes which is started from this one ([`super::Handle::reserve`]).
    pub reserve: u32,
    /// The handle's purpose, a number of the volume's format that events report (`type` in
    /// `jbd2_handle_stats`).
    pub kind: u8,
}

impl Credits {
    /// The credits of a handle that changes `blocks` blocks and frees none.
    pub fn blocks(blocks: u32) -> Credits {
        Credits { blocks, ..Credits::default() }
    }
}

/// Costs in blocks of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Tags in a descriptor.
    pub tags: u32,
    /// Block numbers in a revoke block.
    pub revokes: u32,
    /// Most credits of a transaction.
    pub max: u32,
    /// Most blocks of the ring that may be in use.
    pub ring: u32,
    /// Blocks of the ring that are kept for reserved handles, each of which may need a transaction of its
    /// own.
    pub margin: u32,
}

impl Costs {
    pub fn new(sb: &Superblock, layout: TagLayout) -> Costs {
        let size = sb.block_size as usize;
        let tags = (size - size_of::<RawHeader>() - layout.tail - UUID_SIZE) / layout.bytes;
        let each = if sb.incompat.contains(Incompat::BIT64) { 8 } else { 4 };
        let revokes = (size - size_of::<RawRevoke>() - TAIL_SIZE) / each;
        let ring = sb.ring.end - sb.ring.start - 1;
        // As in jbd2: a quarter of the log, so that checkpoints have room.
        Costs {
            tags: tags as u32,
            revokes: revokes as u32,
            max: (ring + 1) / 4,
            ring,
            margin: (ring / 16).min(32),
        }
    }

    /// Most blocks of the log that a transaction with `blocks` blocks and `revokes` revokes takes.
    pub fn log_blocks(&self, blocks: u32, revokes: u32) -> u32 {
        blocks + blocks.div_ceil(self.tags) + revokes.div_ceil(self.revokes) + 1
    }

    /// Most blocks of the log that `blocks` blocks and `revokes` revokes take in a transaction of the largest
    /// size.
    pub fn weight(&self, blocks: u32, revokes: u32) -> u32 {
        blocks.saturating_add(revokes.div_ceil(self.revokes))
    }
}
