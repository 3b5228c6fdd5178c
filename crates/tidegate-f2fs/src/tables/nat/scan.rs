//! The progress of the search for free node ids, and its blocks read ahead.

use super::*;
use crate::tables::meta::BlocksAhead;

static BUILD_LOCK: LockClass = LockClass::new("nm_i->build_lock", 395);

/// NAT blocks of the first batch; each batch is twice as large as the one before, up to a limit. A program
/// that makes one file wants an answer soon; a program that makes many needs enough ids until a busy disk has
/// answered the next read.
const BATCH: usize = 8;
pub(super) const MOST: usize = 128;
/// Held by the thread that searches for free ids, one thread at a time.
pub(super) struct Scan(pub(super) Mutex<Ahead>);

impl Default for Scan {
    fn default() -> Self {
        Scan(Mutex::new(&BUILD_LOCK, Ahead { batch: None, size: BATCH }))
    }
}

pub(super) struct Ahead {
    /// Blocks read ahead.
    pub(super) batch: Option<Batch>,
    /// Number of blocks of the next batch.
    pub(super) size: usize,
}

/// Blocks that are being read.
pub(super) struct Batch {
    /// The value of [`NatState::flushes`] when the read began: after the second flush from then, another copy
    /// of a block may be current.
    pub(super) flushes: u64,
    /// Numbers of the blocks in the NAT, and their addresses.
    pub(super) blocks: Vec<(u32, u32)>,
    pub(super) bytes: BlocksAhead,
}
