//! The buffer cache for metadata: blocks of the volume that only the journal may write.
//!
//! The cache reads blocks once, lets handles change them, keeps the bytes of a committing transaction apart
//! from those that the next transaction changes, and drops clean blocks when memory is short. It does not
//! decide when anything is written.
//!
//! A block's bytes are shared. A transaction that is switched holds a reference; a handle that changes the
//! block then gets a copy, so no thread waits for the log's I/O. A block may be dropped only when its bytes
//! are on the volume, that is, when it is `Clean`.
//!
//! Lock owned: `jbd2->buffers` 596, one for each shard; a leaf except for the device's locks, never held over
//! I/O. Callers: handles, commits and checkpoints.

mod block;
mod shard;

pub use block::{Block, Verified};
pub use shard::{BufferState, CacheStats};
pub(crate) use shard::{Changed, Touch};

use crate::io;
use crate::units::{FsBlock, Tid};
use shard::{Found, Looked, Shard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{PAGE_SIZE, RequestQueue};
use tidegate_vfs::{At, Error, Result};

const SHARDS: usize = 32;

/// The metadata blocks of a volume that are in memory.
pub struct Cache {
    queue: Arc<RequestQueue>,
    block_size: usize,
    /// Number of blocks of the volume.
    blocks: u64,
    shards: Vec<Shard>,
    reads: AtomicU64,
}

impl Cache {
    /// A cache of the blocks of a volume, with about `budget` bytes of clean blocks.
    pub(crate) fn new(queue: Arc<RequestQueue>, block_size: u32, blocks: u64, budget: usize) -> Cache {
        let block_size = block_size as usize;
        let each = (budget / SHARDS / block_size.next_multiple_of(PAGE_SIZE)).max(4);
        let shards = (0..SHARDS).map(|_| Shard::new(each)).collect();
        Cache { queue, block_size, blocks, shards, reads: AtomicU64::new(0) }
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    fn shard(&self, at: FsBlock) -> &Shard {
        // Neighbouring blocks are in different shards.
        &self.shards[(at.0 % SHARDS as u64) as usize]
    }

    /// The newest bytes of a block, those of a running transaction included.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the volume's end.
    pub fn get(&self, at: FsBlock) -> Result<Block> {
        if at.0 >= self.blocks {
            return Err(Error::corrupt(format!("the volume has {} blocks", self.blocks)).at_block(at.0));
        }
        match self.shard(at).find(at) {
            Found::Block(b) => Ok(b),
            Found::Missing => {
                let read = self.read(at);
                let kept = self.shard(at).fill(at, read.as_ref().ok().cloned());
                read.map(|b| kept.unwrap_or(b))
            }
        }
    }

    /// The newest bytes of a block that is in memory. A block that holds a file's data
    /// ([`super::Handle::log_data`]) is in memory as long as the device does not have the bytes; a reader
    /// that finds none reads the device afterwards.
    pub fn peek(&self, at: FsBlock) -> Option<Block> {
        self.shard(at).peek(at)
    }

    /// Notes that `block`, which [`Cache::get`] returned, passed a check. Does nothing if memory has other bytes by now.
    pub fn set_verified(&self, at: FsBlock, block: &Block, check: Verified) {
        self.shard(at).set_verified(at, block, check);
    }

    fn read(&self, at: FsBlock) -> Result<Block> {
        self.reads.fetch_add(1, Relaxed);
        let mut b = Block::zeroed(self.block_size);
        let read = io::read(&self.queue, at.0 * self.block_size as u64, b.change().0);
        read.map_err(|e| Error::device_at(e, "reading metadata", At::Block(at.0)))?;
        Ok(b)
    }

    /// Lets `f` change a block in transaction `tid`. `touch` says what is known of its bytes. `f` runs under
    /// the shard's lock and must not use another block. `None` when the block is not part of the transaction
    /// and may not join it.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the volume's end.
    pub(crate) fn change<T>(
        &self,
        at: FsBlock,
        tid: Tid,
        (touch, may_join): (Touch, bool),
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<Option<Changed<T>>> {
        if at.0 >= self.blocks {
            return Err(Error::corrupt(format!("the volume has {} blocks", self.blocks)).at_block(at.0));
        }
        let mut f = Some(f);
        loop {
            match self.shard(at).change(at, tid, (touch, may_join), self.block_size, &mut f) {
                Looked::Changed(done) => return Ok(Some(done)),
                Looked::Refused => return Ok(None),
                Looked::Missing => self.get(at).map(drop)?,
            }
        }
    }

    /// Drops the content of a block that transaction `tid` frees; older transactions keep their bytes.
    pub(crate) fn forget(&self, at: FsBlock, tid: Tid) {
        self.shard(at).forget(at, tid);
    }

    /// The bytes of a block at the end of `tid`; `None` if `tid` freed it. `tid` has no handles any more.
    pub(crate) fn freeze(&self, at: FsBlock, tid: Tid) -> Option<Block> {
        self.shard(at).freeze(at, tid)
    }

    /// Notes that `tid` is committed: its bytes of the block must now be written to the volume.
    pub(crate) fn committed(&self, at: FsBlock, tid: Tid) {
        self.shard(at).turn(at, BufferState::Committing(tid), BufferState::Checkpoint(tid));
    }

    /// Notes that the bytes of the block at the end of `tid` are on the volume.
    pub(crate) fn checkpointed(&self, at: FsBlock, tid: Tid) {
        self.shard(at).turn(at, BufferState::Checkpoint(tid), BufferState::Clean);
    }

    /// The state of a block that is in memory.
    pub fn state(&self, at: FsBlock) -> Option<BufferState> {
        self.shard(at).state(at)
    }

    /// Statistics. The shards are counted one after the other.
    pub fn stats(&self) -> CacheStats {
        let mut sum = CacheStats { reads: self.reads.load(Relaxed), ..CacheStats::default() };
        self.shards.iter().for_each(|s| s.count(&mut sum));
        sum
    }
}
