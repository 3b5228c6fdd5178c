//! Blocks of metadata of a volume that is changed and has no journal: read once, changed in memory, written by a sync.
//!
//! A block is written as a block and never as the page around it, in which other blocks may be a file's data. Memory for
//! clean blocks is bounded; a changed block stays until it is written.

use crate::format::units::BlockAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{Bio, BioFlags, PAGE_SIZE, PageBuf, RequestQueue, SECTOR_SIZE, Sector, Segment};
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::{Error, Result};

static BUFFERS: LockClass = LockClass::new("ext4->buffers", 586);
static FLUSH: LockClass = LockClass::new("ext4->flush", 118);

/// Clean blocks that are kept, at most.
const KEEP: usize = 16_384;
/// Bytes of one bio: a large one that is not aligned to pages cannot go around the host's cache.
const BIO_BYTES: usize = 64 << 10;

/// Bytes of a block as they were at one moment; the first of the page are the block.
pub(super) type Bytes = Arc<PageBuf>;

struct Buffer {
    bytes: Bytes,
    dirty: bool,
}

#[derive(Default)]
struct State {
    map: BTreeMap<u64, Buffer>,
    /// On the way to the device.
    writing: BTreeSet<u64>,
    /// Counts blocks that were dropped: what was read before that may be older than what was written.
    drops: u64,
}

/// The blocks in memory.
pub(super) struct Buffers {
    state: Mutex<State>,
    /// One writer of blocks at a time.
    flush: Mutex<()>,
    written: WaitQueue,
    /// Bios that were sent, and blocks in them.
    counts: (AtomicU64, AtomicU64),
}

impl Buffers {
    pub(super) fn new() -> Self {
        Buffers {
            state: Mutex::new(&BUFFERS, State::default()),
            flush: Mutex::new(&FLUSH, ()),
            written: WaitQueue::new(),
            counts: Default::default(),
        }
    }

    /// The block at `addr`, which `read` reads if it is not in memory.
    pub(super) fn get(&self, addr: BlockAddr, read: &dyn Fn() -> Result<PageBuf>) -> Result<Bytes> {
        loop {
            let drops = {
                let s = self.state.lock();
                if let Some(b) = s.map.get(&addr.0) {
                    return Ok(b.bytes.clone());
                }
                s.drops
            };
            let bytes = Arc::new(read()?);
            let mut s = self.state.lock();
            if s.drops == drops {
                let b = s.map.entry(addr.0).or_insert(Buffer { bytes, dirty: false });
                return Ok(b.bytes.clone());
            }
        }
    }

    /// Lets `f` change the block at `addr`.
    pub(super) fn modify(
        &self,
        addr: BlockAddr,
        read: &dyn Fn() -> Result<PageBuf>,
        f: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        loop {
            {
                let mut s = self.state.lock();
                if let Some(b) = s.map.get_mut(&addr.0) {
                    let bytes: &mut PageBuf = Arc::make_mut(&mut b.bytes);
                    f(bytes);
                    b.dirty = true;
                    return Ok(());
                }
            }
            self.get(addr, read)?;
        }
    }

    /// Puts a new block of zeros at `addr`, as `f` changes it.
    pub(super) fn create(&self, addr: BlockAddr, f: &mut dyn FnMut(&mut [u8])) {
        let mut bytes = PageBuf::zeroed(1);
        f(&mut bytes);
        self.state.lock().map.insert(addr.0, Buffer { bytes: Arc::new(bytes), dirty: true });
    }

    /// Drops a block that is free now: it may hold a file's data next, so it is not on the way to the device afterwards.
    pub(super) fn forget(&self, addr: BlockAddr) {
        self.written.wait_until(|| {
            let mut s = self.state.lock();
            if s.writing.contains(&addr.0) {
                return false;
            }
            s.map.remove(&addr.0);
            s.drops += 1;
            true
        });
    }

    /// Writes every changed block and waits for it. Takes `ext4->flush`.
    pub(super) fn write_out(&self, queue: &RequestQueue, block_size: usize) -> Result<()> {
        let _one = self.flush.lock();
        let taken = self.take_dirty();
        let mut result = Ok(());
        let mut at = 0;
        while at < taken.len() {
            let most = taken.len().min(at + BIO_BYTES / block_size);
            let follows = |n: &usize| taken[*n].0 == taken[at].0 + (*n - at) as u64;
            let end = at + 1 + (at + 1..most).take_while(follows).count();
            let segments = taken[at..end].iter().map(|(_, b)| segment(b.clone(), block_size)).collect();
            let sector = Sector(taken[at].0 * block_size as u64 / SECTOR_SIZE);
            let bio = Bio::write(sector, segments, BioFlags::META | BioFlags::SYNC);
            self.counts.0.fetch_add(1, Relaxed);
            self.counts.1.fetch_add((end - at) as u64, Relaxed);
            let wrote = queue.submit_wait(bio).map(drop);
            self.written(&taken[at..end], wrote.is_ok());
            if let Err(e) = wrote {
                result = Err(Error::device(e, format!("writing block {}", taken[at].0)));
            }
            at = end;
        }
        self.trim();
        result
    }

    /// What was sent so far: bios, and blocks in them.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.counts.0.load(Relaxed), self.counts.1.load(Relaxed))
    }

    fn take_dirty(&self) -> Vec<(u64, Bytes)> {
        let mut s = self.state.lock();
        let mut taken = Vec::new();
        for (addr, b) in s.map.iter_mut().filter(|(_, b)| b.dirty) {
            b.dirty = false;
            taken.push((*addr, b.bytes.clone()));
        }
        s.writing.extend(taken.iter().map(|t| t.0));
        taken
    }

    fn written(&self, blocks: &[(u64, Bytes)], ok: bool) {
        let mut s = self.state.lock();
        for (addr, _) in blocks {
            s.writing.remove(addr);
            if let Some(b) = s.map.get_mut(addr).filter(|_| !ok) {
                b.dirty = true;
            }
        }
        drop(s);
        self.written.wake_all();
    }

    /// Drops clean blocks when there are many.
    fn trim(&self) {
        let mut s = self.state.lock();
        if s.map.len() > KEEP {
            s.map.retain(|_, b| b.dirty);
            s.drops += 1;
        }
    }
}

fn segment(buf: Bytes, block_size: usize) -> Segment {
    debug_assert!(block_size <= PAGE_SIZE);
    Segment { buf, offset: 0, len: block_size as u32 }
}
