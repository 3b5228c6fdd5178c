//! Blocks of metadata of a volume that is changed and has no journal: they are read once, changed in memory,
//! and written by a sync.
//!
//! A block is written alone and never with the page around it, in which other blocks may be a file's data.
//! Memory for clean blocks is bounded. A changed block stays until it is written; a change that begins when
//! there are many writes them first.

use crate::format::units::BlockAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use tidegate_block::{
    Bio, BioFlags, Errno, PAGE_SIZE, PageBuf, Plug, RequestQueue, SECTOR_SIZE, Sector, Segment,
};
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::{At, Error, Result};

static BUFFERS: LockClass = LockClass::new("ext4->buffers", 586);
static FLUSH: LockClass = LockClass::new("ext4->flush", 118);

/// Most blocks in memory before clean ones are dropped.
const KEEP: usize = 16_384;
/// Number of changed blocks that counts as many.
const MANY: usize = 8_192;
/// Most bytes of one bio: a large bio that is not aligned to pages cannot bypass the host's cache.
const BIO_BYTES: usize = 64 << 10;

/// Bytes of a block at one moment: the first bytes of the page.
pub(super) type Bytes = Arc<PageBuf>;

struct Buffer {
    bytes: Bytes,
    dirty: bool,
}

#[derive(Default)]
struct State {
    map: BTreeMap<u64, Buffer>,
    /// Number of changed blocks in `map`.
    dirty: usize,
    /// The number of blocks at which clean ones are dropped. It is more than `KEEP` where many are changed,
    /// so that a walk over all of them comes only after as many new ones.
    full: usize,
    /// Blocks on their way to the device.
    writing: BTreeSet<u64>,
    /// Counts drops of blocks: a read that began before a drop may be older than the last write.
    drops: u64,
}

impl State {
    /// Puts a block in memory, or replaces the one there.
    fn put(&mut self, addr: u64, bytes: Bytes, dirty: bool) {
        self.dirty += usize::from(dirty);
        let before = self.map.insert(addr, Buffer { bytes, dirty });
        self.dirty -= usize::from(before.is_some_and(|b| b.dirty));
        if self.map.len() > self.full.max(KEEP) {
            // A block on its way stays: otherwise a read could return its old content.
            self.map.retain(|addr, b| b.dirty || self.writing.contains(addr));
            self.full = 2 * self.map.len();
            self.drops += 1;
        }
    }
}

/// The blocks in memory.
pub(super) struct Buffers {
    state: Mutex<State>,
    /// Lets one thread write blocks at a time.
    flush: Mutex<()>,
    written: WaitQueue,
    /// Bios sent, and blocks in them.
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

    /// The block at `addr`; `read` reads it if it is not in memory.
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
                if let Some(b) = s.map.get(&addr.0) {
                    return Ok(b.bytes.clone());
                }
                s.put(addr.0, bytes.clone(), false);
                return Ok(bytes);
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
                    let was = std::mem::replace(&mut b.dirty, true);
                    s.dirty += usize::from(!was);
                    return Ok(());
                }
            }
            self.get(addr, read)?;
        }
    }

    /// Puts a new block of zeros at `addr`, changed by `f`.
    pub(super) fn create(&self, addr: BlockAddr, f: &mut dyn FnMut(&mut [u8])) {
        let mut bytes = PageBuf::zeroed(1);
        f(&mut bytes);
        self.state.lock().put(addr.0, Arc::new(bytes), true);
    }

    /// Drops a block that is free now. It may hold a file's data next, so this waits until it is not on its
    /// way to the device.
    pub(super) fn forget(&self, addr: BlockAddr) {
        self.written.wait_until(|| {
            let mut s = self.state.lock();
            if s.writing.contains(&addr.0) {
                return false;
            }
            let gone = s.map.remove(&addr.0);
            s.dirty -= usize::from(gone.is_some_and(|b| b.dirty));
            s.drops += 1;
            true
        });
    }

    /// Every changed block.
    pub(super) fn changed(&self) -> BTreeMap<u64, Bytes> {
        let state = self.state.lock();
        state.map.iter().filter(|(_, b)| b.dirty).map(|(addr, b)| (*addr, b.bytes.clone())).collect()
    }

    /// Whether changed blocks should be written before more are changed.
    pub(super) fn are_many(&self) -> bool {
        self.state.lock().dirty > MANY
    }

    /// Writes every changed block, neighbours together and all at once, and waits for the last. Takes
    /// `ext4->flush`.
    pub(super) fn write_out(&self, queue: &RequestQueue, block_size: usize) -> Result<()> {
        let _one = self.flush.lock();
        let taken = self.take_dirty();
        let runs: Vec<_> = runs(&taken, BIO_BYTES / block_size).collect();
        let sent = Arc::new(Sent::new(runs.len()));
        {
            let mut plug = Plug::new(queue);
            for (n, run) in runs.iter().enumerate() {
                let segments = run.iter().map(|(_, b)| segment(b.clone(), block_size)).collect();
                let sector = Sector(run[0].0 * block_size as u64 / SECTOR_SIZE);
                let (bio, sent) =
                    (Bio::write(sector, segments, BioFlags::META | BioFlags::SYNC), sent.clone());
                self.counts.0.fetch_add(1, Relaxed);
                self.counts.1.fetch_add(run.len() as u64, Relaxed);
                plug.add(bio.on_end(move |r, _| sent.end(n, r)));
            }
        }
        sent.ended.wait_until(|| sent.left.load(Acquire) == 0);
        let mut result = Ok(());
        for (run, failed) in runs.into_iter().zip(&sent.failed) {
            let errno = failed.load(Relaxed);
            self.written(run, errno == 0);
            if errno != 0 {
                let e = Errno::from_raw_os_error(errno);
                result = result.and(Err(Error::device_at(e, "writing", At::Block(run[0].0))));
            }
        }
        self.written.wake_all();
        result
    }

    /// Number of bios sent so far, and of blocks in them.
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
        (s.dirty, s.full) = (0, 0);
        s.writing.extend(taken.iter().map(|t| t.0));
        taken
    }

    fn written(&self, blocks: &[(u64, Bytes)], ok: bool) {
        let mut s = self.state.lock();
        for (addr, _) in blocks {
            s.writing.remove(addr);
            if let Some(b) = s.map.get_mut(addr).filter(|b| !ok && !b.dirty) {
                b.dirty = true;
                s.dirty += 1;
            }
        }
    }
}

/// The bios of one write-out on their way.
struct Sent {
    left: AtomicUsize,
    ended: WaitQueue,
    /// The errno of each bio, or 0.
    failed: Vec<AtomicI32>,
}

impl Sent {
    fn new(bios: usize) -> Self {
        let failed = (0..bios).map(|_| AtomicI32::new(0)).collect();
        Sent { left: AtomicUsize::new(bios), ended: WaitQueue::new(), failed }
    }

    fn end(&self, n: usize, r: std::result::Result<(), Errno>) {
        if let Err(e) = r {
            self.failed[n].store(e.raw_os_error(), Relaxed);
        }
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.ended.wake_all();
        }
    }
}

/// Neighbouring blocks of a sorted list, at most `most` in each run.
fn runs(blocks: &[(u64, Bytes)], most: usize) -> impl Iterator<Item = &[(u64, Bytes)]> {
    let neighbours = blocks.chunk_by(|a, b| a.0 + 1 == b.0);
    neighbours.flat_map(move |run| run.chunks(most))
}

fn segment(buf: Bytes, block_size: usize) -> Segment {
    debug_assert!(block_size <= PAGE_SIZE);
    Segment { buf, offset: 0, len: block_size as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_block::{Fault, Faulty, MemoryDevice, Op, QueueLimits, Recorder, Rule};

    /// Blocks that are read do not fill memory, changed blocks are counted, and no read returns old content.
    #[test]
    fn memory_has_a_bound() {
        let queue = RequestQueue::new(Arc::new(MemoryDevice::new(1 << 30)), QueueLimits::default());
        let buffers = Buffers::new();
        let zeros = || Ok(PageBuf::zeroed(1));
        for n in 0..5 * KEEP as u64 {
            buffers.get(BlockAddr(n), &zeros).unwrap();
            assert!(buffers.state.lock().map.len() <= KEEP);
        }
        for n in 0..=MANY as u64 {
            assert!(!buffers.are_many());
            buffers.modify(BlockAddr(n), &zeros, &mut |b| b[0] = 7).unwrap();
            buffers.modify(BlockAddr(n), &zeros, &mut |b| b[1] = 7).unwrap();
        }
        assert!(buffers.are_many());
        buffers.forget(BlockAddr(0));
        assert!(!buffers.are_many());
        // All blocks are changed: none can be dropped, and walks over all of them are rare.
        for n in 0..2 * KEEP as u64 {
            buffers.create(BlockAddr(n), &mut |b| b[0] = 8);
        }
        assert_eq!(buffers.state.lock().map.values().filter(|b| b.dirty).count(), 2 * KEEP);
        assert_eq!(buffers.state.lock().dirty, 2 * KEEP);
        buffers.write_out(&queue, PAGE_SIZE).unwrap();
        assert!(!buffers.are_many());
        let sector = Sector(5 * PAGE_SIZE as u64 / SECTOR_SIZE);
        assert_eq!(queue.read_wait(sector, 1, BioFlags::empty()).unwrap()[0], 8);
    }

    /// Neighbours are written together. The error of a failed request names its block, which stays changed.
    #[test]
    fn neighbours_go_together_and_failures_are_told() {
        let faulty = Faulty::new(Arc::new(MemoryDevice::new(1 << 30)), []);
        let recorder = Arc::new(Recorder::new(faulty.clone()));
        let queue = RequestQueue::new(recorder.clone(), QueueLimits::default());
        let buffers = Buffers::new();
        let change = |n: u64| buffers.create(BlockAddr(n), &mut |b| b[0] = n as u8);
        (100..356).chain([1000, 1002]).for_each(change);
        buffers.write_out(&queue, PAGE_SIZE).unwrap();
        let sizes: Vec<usize> = recorder.take().iter().map(|r| r.data.len() / PAGE_SIZE).collect();
        assert_eq!(sizes, [256, 1, 1]);
        (100..110).chain([1000]).for_each(change);
        faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).which(1..2)]);
        let e = buffers.write_out(&queue, PAGE_SIZE).unwrap_err();
        assert_eq!((e.what(), e.places().next()), ("writing", Some(&At::Block(1000))), "{e}");
        assert_eq!(buffers.state.lock().dirty, 1);
        faulty.set([]);
        recorder.take();
        buffers.write_out(&queue, PAGE_SIZE).unwrap();
        assert_eq!((buffers.state.lock().dirty, recorder.take().len()), (0, 1));
    }

    /// A block on its way to the device stays in memory, however many others are read.
    #[test]
    fn what_is_on_its_way_stays() {
        let buffers = Buffers::new();
        let zeros = || Ok(PageBuf::zeroed(1));
        buffers.create(BlockAddr(1), &mut |b| b[0] = 9);
        let taken = buffers.take_dirty();
        (2..3 * KEEP as u64).for_each(|n| drop(buffers.get(BlockAddr(n), &zeros).unwrap()));
        assert_eq!(buffers.get(BlockAddr(1), &zeros).unwrap()[0], 9);
        buffers.written(&taken, true);
    }
}
