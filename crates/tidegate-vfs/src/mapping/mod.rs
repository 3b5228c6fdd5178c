//! The page cache of one inode.
//!
//! Pages live in chunks of 64; the tags of a chunk are bitmaps. Chunks are in one or more shards, each under
//! an `i_pages` lock that is held only for memory operations, never for I/O. Buffers are shared by reference
//! count: a bio or a reader keeps its reference, and a thread that changes a shared page gets a copy
//! ([`Chunk::modify`]). So pages need no lock of their own and stay stable under I/O.
//!
//! Locks owned: `mapping->invalidate_lock` 25, `mapping->i_pages` 700, `mapping->busy_pages` 702. Callers:
//!
//! | caller | holds | so that |
//! |---|---|---|
//! | a writer | `i_rwsem` exclusive, its pages marked as being changed (`busy`) | one thread changes pages at a time |
//! | a reader of cached pages | nothing | it waits for no other thread |
//! | a reader of missing pages | `invalidate_lock` shared, its pages marked (`busy`) | the bytes it read are current |
//! | truncation, punching | `i_rwsem` and `invalidate_lock` exclusive | no page-in reads blocks that are being freed |
//! | write-back | nothing | it owns the dirty → writeback → clean transitions |

mod busy;
pub mod chunk;
mod reclaim;
mod writeback;

pub(crate) use busy::Change;
pub use busy::PageIn;
pub use writeback::{DirtyRun, Tag, Taken};

use crate::bdi::Bdi;
use crate::error::{Error, ErrorKind, Result};
use chunk::{CHUNK_PAGES, Chunk, PageRun, mask};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_rt::{LockClass, Mutex, RwLock, WaitQueue, sim};

static INVALIDATE_LOCK: LockClass = LockClass::new("mapping->invalidate_lock", 25);
/// The rank is below the device's locks and above every file system lock.
static I_PAGES: LockClass = LockClass::new("mapping->i_pages", 700);

#[derive(Default)]
struct Shard {
    chunks: BTreeMap<u64, Box<Chunk>>,
    /// Chunks with a dirty page.
    dirty: BTreeSet<u64>,
    /// Chunks with a page under write-back.
    writeback: BTreeSet<u64>,
}

impl Shard {
    /// The first page of `start..end` with one of the tags that `tags` returns, out of the chunks of an index.
    fn first_of(
        &self,
        index: &BTreeSet<u64>,
        (start, end): (u64, u64),
        tags: impl Fn(&Chunk) -> u64,
    ) -> Option<u64> {
        let chunks = start / CHUNK_PAGES..=end.checked_sub(1)? / CHUNK_PAGES;
        let first = |id: &u64| {
            let pages = tags(self.chunks.get(id)?) & range_mask(*id, start, end);
            (pages != 0).then(|| id * CHUNK_PAGES + u64::from(pages.trailing_zeros()))
        };
        if start < end { index.range(chunks).find_map(first) } else { None }
    }
}

/// Keeps a chunk in an index as long as it has a page of the index's kind.
fn keep_index(index: &mut BTreeSet<u64>, chunk: u64, (was, is): (u64, u64)) {
    if (was == 0) != (is == 0) {
        if is == 0 {
            index.remove(&chunk);
        } else {
            index.insert(chunk);
        }
    }
}

/// Pages of a file in memory.
pub struct AddressSpace {
    shards: Box<[Mutex<Shard>]>,
    bdi: Arc<Bdi>,
    pages: AtomicU64,
    dirty: AtomicU64,
    writeback: AtomicU64,
    idle: WaitQueue,
    busy: busy::BusyPages,
    /// Held shared by page-ins, and exclusive by operations that remove pages and their blocks.
    pub(crate) invalidate_lock: RwLock<()>,
    /// Counts failed writes; a file remembers the value it has seen (errseq).
    errseq: AtomicU32,
    /// The device's last error; 0 when it had none.
    errno: AtomicI32,
    no_space: AtomicBool,
    /// How often pages that were taken for writing became dirty again without an error.
    redirtied: AtomicU64,
    /// The number of [`AddressSpace::gathered`].
    gathered: AtomicU64,
    /// How often pages under write-back joined bios that were not submitted.
    pub(crate) joins: AtomicU64,
    /// Whether the pages count in the epochs that a sync waits for. A file system's own pages do not.
    pub(crate) in_epochs: bool,
    hand: reclaim::Hand,
}

fn split(index: u64) -> (u64, usize) {
    (index / CHUNK_PAGES, (index % CHUNK_PAGES) as usize)
}

impl AddressSpace {
    /// An empty mapping. `shards` is 1 for files, more where many threads work on unrelated pages.
    pub fn new(bdi: Arc<Bdi>, shards: usize) -> Self {
        AddressSpace {
            shards: (0..shards.max(1)).map(|_| Mutex::new(&I_PAGES, Shard::default())).collect(),
            bdi,
            pages: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            idle: WaitQueue::new(),
            busy: busy::BusyPages::default(),
            invalidate_lock: RwLock::new(&INVALIDATE_LOCK, ()),
            errseq: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            no_space: AtomicBool::new(false),
            redirtied: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
            joins: AtomicU64::new(0),
            in_epochs: true,
            hand: reclaim::Hand::default(),
        }
    }

    /// Where pages under write-back wait to be submitted, if they do: a number that a file system that
    /// gathers bios defines.
    pub fn gathered(&self) -> &AtomicU64 {
        &self.gathered
    }

    /// Notes that pages under write-back joined bios that are not submitted, and that
    /// [`AddressSpace::gathered`] says so. A thread that waits for the pages then submits the bios. May be
    /// called with locks of the file system held, but with none of the page cache.
    pub fn joined(&self) {
        self.joins.fetch_add(1, SeqCst);
        self.idle.wake_all();
        self.bdi.joined();
    }

    /// Cached pages.
    pub fn nr_pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Dirty pages.
    pub fn nr_dirty(&self) -> u64 {
        self.dirty.load(SeqCst)
    }

    /// Pages under write-back.
    pub fn nr_writeback(&self) -> u64 {
        self.writeback.load(SeqCst)
    }

    fn shard(&self, chunk: u64) -> &Mutex<Shard> {
        &self.shards[(chunk % self.shards.len() as u64) as usize]
    }

    /// The shards of chunks `first..=last`.
    fn shards_of(&self, first: u64, last: u64) -> &[Mutex<Shard>] {
        if first == last { std::slice::from_ref(self.shard(first)) } else { &self.shards }
    }

    /// Runs `f` on a chunk, which is made if it is missing, and accounts the change of its tags and pages.
    fn with_chunk<R>(&self, chunk: u64, f: impl FnOnce(&mut Chunk) -> R) -> R {
        self.with_chunk_in(&mut self.shard(chunk).lock(), chunk, f)
    }

    /// Runs `f` on a chunk for a caller that has locked its shard.
    fn with_chunk_in<R>(&self, s: &mut Shard, chunk: u64, f: impl FnOnce(&mut Chunk) -> R) -> R {
        let c = s.chunks.entry(chunk).or_default();
        let (p0, d0, w0) = (c.present(), c.dirty, c.writeback);
        let r = f(c);
        let (p1, d1, w1) = (c.present(), c.dirty, c.writeback);
        if self.in_epochs && (d0, w0) != (d1, w1) {
            c.follow_epochs(d0, w0, &self.bdi.epochs);
        }
        debug_assert_eq!(d1 & !p1, 0, "a dirty page has a buffer");
        keep_index(&mut s.dirty, chunk, (d0, d1));
        keep_index(&mut s.writeback, chunk, (w0, w1));
        let (was, is) = (p0 | w0 != 0, p1 | w1 != 0);
        if !is {
            s.chunks.remove(&chunk);
        }
        if was != is {
            self.hand.chunks.fetch_add(if is { 1 } else { 1u64.wrapping_neg() }, SeqCst);
        }
        self.account(&self.pages, &self.bdi.nr_pages, p0, p1);
        let dirty = || self.account(&self.dirty, &self.bdi.nr_dirty, d0, d1);
        let writeback = || self.account(&self.writeback, &self.bdi.nr_writeback, w0, w1);
        // A page that goes from one state to the other is counted twice for a moment, but never not at all.
        if w1.count_ones() > w0.count_ones() {
            writeback();
            dirty();
        } else {
            dirty();
            writeback();
        }
        r
    }

    fn account(&self, mine: &AtomicU64, all: &AtomicU64, before: u64, after: u64) {
        let by = (after.count_ones() as u64).wrapping_sub(before.count_ones() as u64);
        if by != 0 {
            mine.fetch_add(by, SeqCst);
            all.fetch_add(by, SeqCst);
        }
    }

    /// Like [`Self::with_chunk`], but read-only, and for a chunk that may be missing.
    fn peek<R>(&self, chunk: u64, f: impl FnOnce(&mut Chunk) -> R) -> Option<R> {
        self.shard(chunk).lock().chunks.get_mut(&chunk).map(|c| f(c))
    }

    /// The cached pages from `index` on that share a buffer, at most `max`.
    pub fn get(&self, index: u64, max: usize) -> Option<PageRun> {
        let (chunk, slot) = split(index);
        self.peek(chunk, |c| {
            if !c.referenced {
                c.referenced = true;
            }
            c.get(slot, max)
        })?
    }

    /// How many pages from `index` on, at most `max`, are all cached (`true`) or all missing (`false`).
    pub fn residency(&self, index: u64, max: u64) -> (bool, u64) {
        let first = self.has(index);
        let mut n = 1;
        while n < max {
            let (chunk, slot) = split(index + n);
            let present = self.peek(chunk, |c| c.present()).unwrap_or(0);
            let same = (if first { present } else { !present }) >> slot;
            let run = (same.trailing_ones() as u64).min(CHUNK_PAGES - slot as u64).min(max - n);
            n += run;
            if run < CHUNK_PAGES - slot as u64 {
                break;
            }
        }
        (first, n)
    }

    /// Whether no page is dirty or under write-back. Each shard is looked at under its lock, one after the
    /// other.
    pub(crate) fn is_idle(&self) -> bool {
        // The counts alone do not suffice: a page that becomes dirty again could be missed in both, as it
        // moves from one to the other.
        let idle = |s: &Mutex<Shard>| {
            let s = s.lock();
            s.dirty.is_empty() && s.writeback.is_empty()
        };
        self.nr_dirty() == 0 && self.nr_writeback() == 0 && self.shards.iter().all(idle)
    }

    /// Whether page `index` is dirty.
    pub fn is_dirty(&self, index: u64) -> bool {
        let (chunk, slot) = split(index);
        self.peek(chunk, |c| c.dirty >> slot & 1 == 1).unwrap_or(false)
    }

    /// Whether page `index` is under write-back.
    pub fn is_writeback(&self, index: u64) -> bool {
        let (chunk, slot) = split(index);
        self.peek(chunk, |c| c.writeback >> slot & 1 == 1).unwrap_or(false)
    }

    /// Whether page `index` is cached.
    pub fn has(&self, index: u64) -> bool {
        let (chunk, slot) = split(index);
        self.peek(chunk, |c| c.present() >> slot & 1 == 1).unwrap_or(false)
    }

    /// Copies cached bytes from `pos` on into `to`, up to the first missing page. Returns how many.
    pub fn copy_out(&self, pos: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let at = pos + done as u64;
            let Some(run) = self.get(at / PAGE_SIZE as u64, CHUNK_PAGES as usize) else { break };
            let from = &run.bytes()[at as usize % PAGE_SIZE..];
            let n = from.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&from[..n]);
            done += n;
        }
        sim::copy(done);
        done
    }

    /// Caches pages that were read. Pages that are cached already stay, as they may be newer.
    pub fn insert_clean(&self, index: u64, run: &PageRun) {
        self.each_part(index, run, |c, slot, part| {
            let mut at = 0;
            while at < part.pages {
                let gap = (!c.present() >> (slot + at)).trailing_ones() as usize;
                let n = gap.min(part.pages - at);
                if n > 0 {
                    let piece = PageRun { buf: part.buf.clone(), first: part.first + at, pages: n };
                    c.replace(slot + at, piece);
                }
                at += n.max(1);
            }
            c.referenced = false;
        });
    }

    /// Caches pages in place of those that are cached, and marks them dirty.
    pub fn insert_dirty(&self, index: u64, run: &PageRun) {
        self.each_part(index, run, |c, slot, part| {
            let m = mask(slot, part.pages);
            c.replace(slot, part);
            c.dirty |= m;
            c.referenced = true;
        });
    }

    fn each_part(&self, index: u64, run: &PageRun, mut f: impl FnMut(&mut Chunk, usize, PageRun)) {
        let mut done = 0;
        while done < run.pages {
            let (chunk, slot) = split(index + done as u64);
            let n = (CHUNK_PAGES as usize - slot).min(run.pages - done);
            let part = PageRun { buf: run.buf.clone(), first: run.first + done, pages: n };
            self.with_chunk(chunk, |c| f(c, slot, part));
            done += n;
        }
    }

    /// Changes page `index` in place and marks it dirty. `None` when it is not cached.
    pub fn modify<R>(&self, index: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let (chunk, slot) = split(index);
        self.with_chunk(chunk, |c| {
            let (_, r) = c.modify(slot, 1, f)?;
            c.dirty |= 1 << slot;
            c.referenced = true;
            Some(r)
        })
    }

    /// Writes `from` at `pos` into the cache and marks the pages dirty.
    ///
    /// # Errors
    /// `InvalidArgument` when a page that is written only in part is not cached: the caller reads such
    /// pages in first.
    pub fn write(&self, pos: u64, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            let at = pos + done as u64;
            let (chunk, slot) = split(at / PAGE_SIZE as u64);
            let offset = at as usize % PAGE_SIZE;
            let room = (CHUNK_PAGES as usize - slot) * PAGE_SIZE - offset;
            let part = &from[done..done + room.min(from.len() - done)];
            self.with_chunk(chunk, |c| write_chunk(c, slot, offset, part))?;
            done += part.len();
        }
        Ok(())
    }

    fn chunk_ids(&self, start: u64, end: u64) -> Vec<u64> {
        if start >= end {
            return Vec::new();
        }
        let (first, last) = (start / CHUNK_PAGES, (end - 1) / CHUNK_PAGES);
        let mut v: Vec<u64> = self
            .shards_of(first, last)
            .iter()
            .flat_map(|s| s.lock().chunks.range(first..=last).map(|c| *c.0).collect::<Vec<_>>())
            .collect();
        v.sort_unstable();
        v
    }

    /// Drops the pages `start..end`, including dirty ones, after waiting for pages that are under write-back or being
    /// read in. The caller excludes new page-ins of them: it holds `invalidate_lock` exclusive, or has marked the pages
    /// as being changed.
    pub fn remove(&self, start: u64, end: u64) {
        self.wait_page_ins(start..end);
        if self.nr_pages() == 0 && self.nr_writeback() == 0 {
            return;
        }
        for id in self.chunk_ids(start, end) {
            let m = range_mask(id, start, end);
            loop {
                self.wait_writeback(start, end);
                // The check and the removal are under one lock: else a thread could take a page for writing after the
                // wait, and give it a block.
                let all = self.with_chunk(id, |c| {
                    let idle = c.writeback & m == 0;
                    if idle {
                        c.dirty &= !m;
                        c.towrite &= !m;
                        c.remove(m.trailing_zeros() as usize, m.count_ones() as usize);
                    }
                    idle
                });
                if all {
                    break;
                }
            }
        }
    }

    /// Drops page `index`, dirty or not, unless it is under write-back. Returns whether it was not under
    /// write-back. Waits for nothing. For a mapping whose pages are not read ahead.
    pub fn remove_idle(&self, index: u64) -> bool {
        let (chunk, slot) = split(index);
        self.with_chunk(chunk, |c| {
            let idle = c.writeback >> slot & 1 == 0;
            if idle {
                c.dirty &= !(1 << slot);
                c.towrite &= !(1 << slot);
                c.remove(slot, 1);
            }
            idle
        })
    }

    /// The first cached page in `start..end` whose bytes are not on the volume yet, for SEEK_DATA.
    pub fn next_unwritten(&self, start: u64, end: u64) -> Option<u64> {
        let last = end.saturating_sub(1) / CHUNK_PAGES;
        let in_shard = |shard: &Mutex<Shard>| {
            let s = shard.lock();
            let (dirty, sent) = (
                s.first_of(&s.dirty, (start, end), |c| c.dirty),
                s.first_of(&s.writeback, (start, end), |c| c.writeback),
            );
            dirty.into_iter().chain(sent).min()
        };
        self.shards_of(start / CHUNK_PAGES, last).iter().filter_map(in_shard).min()
    }

    /// The bdi that the pages are accounted to.
    pub fn bdi(&self) -> &Arc<Bdi> {
        &self.bdi
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        for chunk in
            self.shards.iter_mut().filter(|_| self.in_epochs).flat_map(|s| s.get_mut().chunks.values_mut())
        {
            let (dirty, writeback) = (std::mem::take(&mut chunk.dirty), std::mem::take(&mut chunk.writeback));
            chunk.follow_epochs(dirty, writeback, &self.bdi.epochs);
        }
        self.bdi.nr_pages.fetch_sub(self.pages.load(SeqCst), SeqCst);
        self.bdi.nr_dirty.fetch_sub(self.dirty.load(SeqCst), SeqCst);
        self.bdi.nr_writeback.fetch_sub(self.writeback.load(SeqCst), SeqCst);
    }
}

/// The pages of chunk `id` that lie in `start..end`.
fn range_mask(id: u64, start: u64, end: u64) -> u64 {
    let first = id * CHUNK_PAGES;
    let (a, b) = (start.max(first), end.min(first + CHUNK_PAGES));
    if a >= b { 0 } else { mask((a - first) as usize, (b - a) as usize) }
}

/// Writes `from` into a chunk, `offset` bytes past the beginning of page `slot`.
fn write_chunk(c: &mut Chunk, slot: usize, offset: usize, from: &[u8]) -> Result<()> {
    sim::copy(from.len());
    sim::cache_pages((offset + from.len()).div_ceil(PAGE_SIZE));
    let (mut slot, mut offset, mut from, mut again) = (slot, offset, from, false);
    while !from.is_empty() {
        let absent = c.present() >> slot & 1 == 0;
        again |= !absent;
        let whole = if offset == 0 { from.len() / PAGE_SIZE } else { 0 };
        let n = if absent {
            let gap = (!c.present() >> slot).trailing_ones() as usize;
            let pages = whole.min(gap);
            if pages == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "partial write to a page not in memory"));
            }
            let buf = PageBuf::from_slice(&from[..pages * PAGE_SIZE]);
            c.replace(slot, PageRun { buf: Arc::new(buf), first: 0, pages });
            pages * PAGE_SIZE
        } else {
            let max = (offset + from.len()).div_ceil(PAGE_SIZE);
            let done = c.modify(slot, max, |b| {
                let n = from.len().min(b.len() - offset);
                b[offset..offset + n].copy_from_slice(&from[..n]);
                n
            });
            done.map_or(0, |d| d.1)
        };
        let pages = (offset + n).div_ceil(PAGE_SIZE);
        c.dirty |= mask(slot, pages);
        from = &from[n..];
        slot += (offset + n) / PAGE_SIZE;
        offset = (offset + n) % PAGE_SIZE;
    }
    // A first write to a page does not count as reuse: so a program that creates many files does not push out their
    // directories.
    c.referenced |= again;
    Ok(())
}
