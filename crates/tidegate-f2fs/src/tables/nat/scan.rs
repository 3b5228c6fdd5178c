//! How far the search for free node ids is, and what it has read ahead.

use super::*;
use crate::tables::meta::BlocksAhead;

static BUILD_LOCK: LockClass = LockClass::new("nm_i->build_lock", 395);

/// NAT blocks of the first batch; each is twice the one before, up to the most. A program that makes a file
/// wants an answer soon; those who make many need ids for as long as a busy disk takes to tell of more.
const BATCH: usize = 8;
pub(super) const MOST: usize = 128;
/// Held by the thread that looks for free ids, one at a time.
pub(super) struct Scan(pub(super) Mutex<Ahead>);

impl Default for Scan {
    fn default() -> Self {
        Scan(Mutex::new(&BUILD_LOCK, Ahead { batch: None, size: BATCH }))
    }
}

pub(super) struct Ahead {
    /// Blocks read before they are wanted.
    pub(super) batch: Option<Batch>,
    /// Blocks of the next one.
    pub(super) size: usize,
}

/// Blocks that are being read.
pub(super) struct Batch {
    /// The value of [`NatState::flushes`] then: another copy of a block may count after the next.
    pub(super) flushes: u64,
    /// Numbers of the blocks in the NAT, and where they are.
    pub(super) blocks: Vec<(u32, u32)>,
    pub(super) bytes: BlocksAhead,
}
