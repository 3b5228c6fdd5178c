//! How much of the log a handle may take.

use crate::format::raw::{RawHeader, RawRevoke, TAIL_SIZE, UUID_SIZE};
use crate::format::{Incompat, Superblock, TagLayout};

/// The bound of a handle's work, and its purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Blocks that it changes.
    pub blocks: u32,
    /// Blocks that it frees.
    pub revokes: u32,
    /// Blocks that a handle changes which is started from it later ([`super::Handle::reserve`]).
    pub reserve: u32,
    /// The handle's purpose, a number of the format's own that events name (`type` in `jbd2_handle_stats`).
    pub kind: u8,
}

impl Credits {
    /// Of a handle that changes so many blocks and frees none.
    pub fn blocks(blocks: u32) -> Credits {
        Credits { blocks, ..Credits::default() }
    }
}

/// How many blocks of the log things take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Tags in a descriptor.
    pub tags: u32,
    /// Block numbers in a revoke block.
    pub revokes: u32,
    /// Credits that a transaction has.
    pub max: u32,
    /// Blocks of the ring that may be in use.
    pub ring: u32,
    /// The blocks among those that are kept for reserved handles, each of which may come to have a
    /// transaction of its own.
    pub margin: u32,
}

impl Costs {
    pub fn new(sb: &Superblock, layout: TagLayout) -> Costs {
        let size = sb.block_size as usize;
        let tags = (size - size_of::<RawHeader>() - layout.tail - UUID_SIZE) / layout.bytes;
        let each = if sb.incompat.contains(Incompat::BIT64) { 8 } else { 4 };
        let revokes = (size - size_of::<RawRevoke>() - TAIL_SIZE) / each;
        let ring = sb.ring.end - sb.ring.start - 1;
        // As jbd2: a quarter of the log, so that checkpoints have room to work with.
        Costs {
            tags: tags as u32,
            revokes: revokes as u32,
            max: (ring + 1) / 4,
            ring,
            margin: (ring / 16).min(32),
        }
    }

    /// Blocks of the log that a transaction of so many blocks and revokes takes at most.
    pub fn log_blocks(&self, blocks: u32, revokes: u32) -> u32 {
        blocks + blocks.div_ceil(self.tags) + revokes.div_ceil(self.revokes) + 1
    }

    /// Blocks of the log that so many blocks and revokes take at most in a transaction that takes all it may.
    pub fn weight(&self, blocks: u32, revokes: u32) -> u32 {
        blocks.saturating_add(revokes.div_ceil(self.revokes))
    }
}
