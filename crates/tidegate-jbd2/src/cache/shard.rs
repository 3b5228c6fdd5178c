//! A part of the cache under a lock of its own.

use super::{Block, Verified};
use crate::units::{FsBlock, Tid};
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{Condvar, LockClass, Mutex, MutexGuard};

static BUFFERS: LockClass = LockClass::new("jbd2->buffers", 596);

/// The owner of a block's newest bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferState {
    /// The volume has them.
    Clean,
    /// They belong to this transaction: handles change them, or did until it was switched.
    Running(Tid),
    /// They belong to this transaction, which is on its way to the log.
    Committing(Tid),
    /// They belong to this transaction, which is in the log; the volume has older bytes.
    Checkpoint(Tid),
}

/// Statistics of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks in memory.
    pub blocks: usize,
    /// Blocks in memory that may not be dropped.
    pub pinned: usize,
    /// Blocks read from the device.
    pub reads: u64,
    /// Copies made because an older transaction held the bytes.
    pub copies: u64,
}

/// The knowledge of the bytes that will be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// The bytes are the block's.
    Read,
    /// Nothing is known: the bytes are zeros.
    Fresh,
    /// All bytes are replaced. If the block is in memory, the checks that it passed stay.
    Whole,
    /// Nothing is known, and the block holds a file's data: the page cache keeps the data, and no thread
    /// reads the block here when it is clean.
    Data,
}

/// The result of a change.
pub(crate) struct Changed<T> {
    pub value: T,
    /// The block joined the transaction with this change.
    pub joined: bool,
}

enum Live {
    /// A thread reads the block.
    Reading,
    Bytes(Block, BufferState),
    /// The block was freed; committing transactions have bytes of it.
    Gone,
}

struct Buffer {
    live: Live,
    /// The block's bytes of transactions that are switched and whose commit has not reached this block.
    frozen: Vec<(Tid, Block)>,
    /// The block holds a file's data; it is dropped when it is clean.
    data: bool,
    used: bool,
    queued: bool,
}

#[derive(Default)]
struct Map {
    buffers: HashMap<FsBlock, Buffer>,
    /// Clean blocks, in the order in which they may be dropped.
    clean: VecDeque<FsBlock>,
    copies: u64,
}

pub(super) struct Shard {
    map: Mutex<Map>,
    read: Condvar,
    /// Most blocks before clean ones are dropped.
    budget: usize,
}

/// The outcome of a change.
pub(super) enum Looked<T> {
    Changed(Changed<T>),
    /// The bytes are needed and not in memory.
    Missing,
    /// The block may not join the transaction.
    Refused,
}

pub(super) enum Found {
    Block(Block),
    /// The caller must read the block and call [`Shard::fill`]; other threads wait.
    Missing,
}

impl Shard {
    pub fn new(budget: usize) -> Shard {
        Shard { map: Mutex::new(&BUFFERS, Map::default()), read: Condvar::new(), budget }
    }

    /// Locks the map when no thread is reading the block.
    fn settled(&self, at: FsBlock) -> MutexGuard<'_, Map> {
        let mut map = self.map.lock();
        while matches!(map.buffers.get(&at), Some(Buffer { live: Live::Reading, .. })) {
            self.read.wait(&mut map);
        }
        map
    }

    pub fn find(&self, at: FsBlock) -> Found {
        let mut map = self.map.lock();
        loop {
            match map.buffers.get_mut(&at) {
                Some(Buffer { live: Live::Bytes(b, _), used, .. }) => {
                    *used = true;
                    return Found::Block(b.clone());
                }
                Some(Buffer { live: Live::Reading, .. }) => self.read.wait(&mut map),
                _ => {
                    map.entry(at).live = Live::Reading;
                    return Found::Missing;
                }
            }
        }
    }

    /// The newest bytes if they are in memory.
    pub fn peek(&self, at: FsBlock) -> Option<Block> {
        match &self.settled(at).buffers.get(&at)?.live {
            Live::Bytes(b, _) => Some(b.clone()),
            _ => None,
        }
    }

    /// Stores a block that was read, or notes that the read failed.
    pub fn fill(&self, at: FsBlock, block: Option<Block>) -> Option<Block> {
        let mut map = self.map.lock();
        let kept = block.clone();
        match block {
            Some(b) => {
                map.entry(at).live = Live::Bytes(b, BufferState::Clean);
                // If all other blocks are pinned, the reader would not find this one, and would read it for
                // ever.
                map.shrink(self.budget);
                map.enqueue(at);
            }
            None => {
                map.entry(at).live = Live::Gone;
                map.drop_empty(at);
            }
        }
        drop(map);
        self.read.notify_all();
        kept
    }

    pub fn set_verified(&self, at: FsBlock, block: &Block, check: Verified) {
        match self.map.lock().buffers.get_mut(&at) {
            Some(Buffer { live: Live::Bytes(b, _), .. }) if Arc::ptr_eq(&b.buf, &block.buf) => {
                b.passed |= check as u8
            }
            _ => {}
        }
    }

    /// Lets `f` change a block, which joins the transaction if that is allowed.
    pub fn change<T, F: FnOnce(&mut [u8]) -> T>(
        &self,
        at: FsBlock,
        tid: Tid,
        (touch, may_join): (Touch, bool),
        size: usize,
        f: &mut Option<F>,
    ) -> Looked<T> {
        let mut guard = self.settled(at);
        let map = &mut *guard;
        let (missing, joins) = match map.buffers.get(&at) {
            Some(Buffer { live: Live::Bytes(_, state), .. }) => (false, *state != BufferState::Running(tid)),
            _ => (true, true),
        };
        if joins && !may_join {
            return Looked::Refused;
        }
        if missing && touch == Touch::Read {
            return Looked::Missing;
        }
        let buffer = map.entry(at);
        buffer.used = true;
        buffer.data = touch == Touch::Data;
        if missing {
            buffer.live = Live::Bytes(Block::zeroed(size), BufferState::Clean);
        }
        let Live::Bytes(block, state) = &mut buffer.live else { return Looked::Missing };
        match *state {
            BufferState::Running(before) if joins => buffer.frozen.push((before, block.clone())),
            _ => {}
        }
        *state = BufferState::Running(tid);
        if matches!(touch, Touch::Fresh | Touch::Data) && !missing {
            *block = Block::zeroed(size);
        }
        let Some(f) = f.take() else { return Looked::Missing };
        let (bytes, copied) = block.change();
        let value = f(bytes);
        map.copies += u64::from(copied);
        Looked::Changed(Changed { value, joined: joins })
    }

    pub fn forget(&self, at: FsBlock, tid: Tid) {
        let mut map = self.settled(at);
        let Some(buffer) = map.buffers.get_mut(&at) else { return };
        if let Live::Bytes(block, BufferState::Running(before)) = &buffer.live
            && *before != tid
        {
            buffer.frozen.push((*before, block.clone()));
        }
        buffer.live = Live::Gone;
        map.drop_empty(at);
    }

    pub fn freeze(&self, at: FsBlock, tid: Tid) -> Option<Block> {
        let mut map = self.map.lock();
        let buffer = map.buffers.get_mut(&at)?;
        if let Live::Bytes(block, state) = &mut buffer.live
            && *state == BufferState::Running(tid)
        {
            *state = BufferState::Committing(tid);
            return Some(block.clone());
        }
        let n = buffer.frozen.iter().position(|(t, _)| *t == tid)?;
        let (_, block) = buffer.frozen.remove(n);
        map.drop_empty(at);
        Some(block)
    }

    pub fn turn(&self, at: FsBlock, from: BufferState, to: BufferState) {
        let mut map = self.map.lock();
        let data = match map.buffers.get_mut(&at) {
            Some(Buffer { live: Live::Bytes(_, state), data, .. }) if *state == from => {
                *state = to;
                *data
            }
            _ => return,
        };
        if to == BufferState::Clean && data {
            map.entry(at).live = Live::Gone;
            map.drop_empty(at);
        } else if to == BufferState::Clean {
            map.enqueue(at);
            map.shrink(self.budget);
        }
    }

    pub fn state(&self, at: FsBlock) -> Option<BufferState> {
        match self.map.lock().buffers.get(&at)?.live {
            Live::Bytes(_, state) => Some(state),
            _ => None,
        }
    }

    pub fn count(&self, sum: &mut super::CacheStats) {
        let map = self.map.lock();
        sum.blocks += map.buffers.len();
        sum.copies += map.copies;
        sum.pinned += map.buffers.values().filter(|b| !b.is_clean()).count();
    }
}

impl Buffer {
    fn is_clean(&self) -> bool {
        matches!(self.live, Live::Bytes(_, BufferState::Clean)) && self.frozen.is_empty()
    }
}

impl Map {
    fn entry(&mut self, at: FsBlock) -> &mut Buffer {
        let fresh =
            || Buffer { live: Live::Gone, frozen: Vec::new(), data: false, used: false, queued: false };
        self.buffers.entry(at).or_insert_with(fresh)
    }

    fn drop_empty(&mut self, at: FsBlock) {
        if self.buffers.get(&at).is_some_and(|b| matches!(b.live, Live::Gone) && b.frozen.is_empty()) {
            self.buffers.remove(&at);
        }
    }

    fn enqueue(&mut self, at: FsBlock) {
        if let Some(b) = self.buffers.get_mut(&at)
            && !std::mem::replace(&mut b.queued, true)
        {
            self.clean.push_back(at);
        }
    }

    /// Drops clean blocks that were not used lately, until few enough are left.
    fn shrink(&mut self, budget: usize) {
        let mut looks = 2 * self.clean.len();
        while self.buffers.len() > budget && looks > 0 {
            looks -= 1;
            let Some(at) = self.clean.pop_front() else { return };
            let Some(b) = self.buffers.get_mut(&at) else { continue };
            if !b.is_clean() {
                // The block is queued again when it is clean again.
                b.queued = false;
            } else if std::mem::take(&mut b.used) {
                self.clean.push_back(at);
            } else {
                self.buffers.remove(&at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cache;
    use super::*;
    use tidegate_block::{MemoryDevice, PAGE_SIZE, QueueLimits, RequestQueue};

    fn cache(blocks: u64, budget: usize) -> Cache {
        let device = Arc::new(MemoryDevice::new(blocks * PAGE_SIZE as u64));
        for n in 0..blocks {
            device.write_at(n * PAGE_SIZE as u64, &[n as u8]);
        }
        let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
        Cache::new(queue, PAGE_SIZE as u32, blocks, budget)
    }

    fn put(cache: &Cache, at: u64, tid: u32, byte: u8) -> bool {
        cache.change(FsBlock(at), Tid(tid), (Touch::Read, true), |b| b[0] = byte).unwrap().unwrap().joined
    }

    fn frozen(cache: &Cache, at: u64, tid: u32) -> Option<u8> {
        cache.freeze(FsBlock(at), Tid(tid)).map(|b| b[0])
    }

    #[test]
    fn a_checksum_is_verified_once_for_bytes_from_the_device() {
        let cache = cache(64, 0);
        let (at, tid) = (FsBlock(5), Tid(1));
        let is_verified = || cache.get(at).unwrap().is_verified(Verified::Checksum);
        assert!(!is_verified());
        let looked_at = cache.get(at).unwrap();
        cache.set_verified(at, &looked_at, Verified::Checksum);
        assert!(is_verified() && !cache.get(at).unwrap().is_verified(Verified::Content));
        // A change in memory does not affect the bytes on the device.
        cache.change(at, tid, (Touch::Read, true), |b| b[0] = 1).unwrap().unwrap();
        assert!(is_verified());
        cache.change(at, tid, (Touch::Whole, true), |b| b.fill(3)).unwrap().unwrap();
        assert!(is_verified() && cache.get(at).unwrap()[9] == 3);
        // The block that was checked is not the one that replaced it.
        cache.change(at, tid, (Touch::Fresh, true), |b| b[0] = 2).unwrap().unwrap();
        cache.set_verified(at, &looked_at, Verified::Checksum);
        assert!(!is_verified());
    }

    #[test]
    fn each_transaction_has_its_bytes() {
        let c = cache(8, 1 << 20);
        assert_eq!((put(&c, 3, 1, 10), put(&c, 3, 1, 11)), (true, false));
        // The next change comes before the commit has reached this block.
        assert!(put(&c, 3, 2, 20));
        assert_eq!((frozen(&c, 3, 1), frozen(&c, 3, 1)), (Some(11), None));
        let held = c.freeze(FsBlock(3), Tid(2)).unwrap();
        assert_eq!(c.state(FsBlock(3)), Some(BufferState::Committing(Tid(2))));
        let before = c.stats().copies;
        assert!(put(&c, 3, 3, 30));
        assert_eq!((held[0], c.get(FsBlock(3)).unwrap()[0], c.stats().copies), (20, 30, before + 1));
        // The end of a block's use by 2 does not end its use by 3.
        c.committed(FsBlock(3), Tid(2));
        c.checkpointed(FsBlock(3), Tid(2));
        assert_eq!(c.state(FsBlock(3)), Some(BufferState::Running(Tid(3))));
    }

    #[test]
    fn a_file_s_data_is_in_memory_until_the_device_has_it() {
        let (c, at, tid) = (cache(8, 1 << 20), FsBlock(3), Tid(1));
        c.change(at, tid, (Touch::Data, true), |b| b[0] = 10).unwrap().unwrap();
        assert_eq!(c.peek(at).map(|b| b[0]), Some(10));
        c.freeze(at, tid);
        c.committed(at, tid);
        c.change(at, Tid(2), (Touch::Data, true), |b| assert!(b.iter().all(|b| *b == 0))).unwrap().unwrap();
        c.checkpointed(at, tid);
        assert!(c.peek(at).is_some(), "the next transaction has newer bytes");
        c.freeze(at, Tid(2));
        c.committed(at, Tid(2));
        c.checkpointed(at, Tid(2));
        assert_eq!((c.peek(at).is_some(), c.stats().blocks), (false, 0));
        put(&c, 4, 3, 1);
        assert!(c.peek(FsBlock(4)).is_some() && c.peek(FsBlock(5)).is_none());
    }

    #[test]
    fn a_freed_block_stays_those_before() {
        let c = cache(8, 1 << 20);
        put(&c, 3, 1, 10);
        c.forget(FsBlock(3), Tid(1));
        assert_eq!((frozen(&c, 3, 1), c.state(FsBlock(3)), c.stats().blocks), (None, None, 0));
        put(&c, 3, 2, 20);
        c.forget(FsBlock(3), Tid(3));
        c.change(FsBlock(3), Tid(3), (Touch::Fresh, true), |b| assert!(b.iter().all(|b| *b == 0)))
            .unwrap()
            .unwrap();
        assert_eq!((frozen(&c, 3, 2), frozen(&c, 3, 3)), (Some(20), Some(0)));
    }

    /// All blocks of a shard are pinned: a block that is read stays until it can be changed.
    #[test]
    fn a_block_stays_for_who_reads_it() {
        let (c, shard) = (cache(1024, 0), super::super::SHARDS as u64);
        (0..8).for_each(|n| assert!(put(&c, n * shard, 1, 9)));
        for n in 8..30 {
            c.get(FsBlock(n * shard)).unwrap();
            assert_eq!(c.state(FsBlock(n * shard)), Some(BufferState::Clean), "{n}");
        }
        assert!(c.stats().blocks <= 9, "{:?}", c.stats());
    }

    #[test]
    fn clean_blocks_go_and_others_stay() {
        let c = cache(1024, 0);
        put(&c, 5, 1, 99);
        for n in 0..1024 {
            c.get(FsBlock(n)).unwrap();
        }
        let stats = c.stats();
        assert!(stats.blocks <= 5 * super::super::SHARDS && stats.pinned == 1, "{stats:?}");
        assert_eq!(c.get(FsBlock(5)).unwrap()[0], 99);
        c.freeze(FsBlock(5), Tid(1));
        c.committed(FsBlock(5), Tid(1));
        assert_eq!(c.state(FsBlock(5)), Some(BufferState::Checkpoint(Tid(1))));
        c.checkpointed(FsBlock(5), Tid(1));
        assert_eq!(c.stats().pinned, 0);
        assert!(c.get(FsBlock(1024)).is_err());
    }
}
