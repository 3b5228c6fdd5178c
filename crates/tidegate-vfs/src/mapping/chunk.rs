//! 64 pages of a mapping: their buffers and, one bit for each page, their tags.

use crate::sync::Epochs;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf, Segment};
use tidegate_rt::sim;

/// Pages in a chunk: as many as a tag has bits.
pub const CHUNK_PAGES: u64 = 64;

/// A bit for each of `len` pages from `start`.
pub fn mask(start: usize, len: usize) -> u64 {
    debug_assert!(start + len <= 64);
    if len == 0 { 0 } else { (u64::MAX >> (64 - len)) << start }
}

/// Adjacent pages in one buffer.
struct Run {
    /// First page in the chunk.
    start: u8,
    /// Pages.
    len: u8,
    /// First page in the buffer.
    first: u8,
    buf: Arc<PageBuf>,
}

impl Run {
    fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }
    fn mask(&self) -> u64 {
        mask(self.start as usize, self.len as usize)
    }
    /// The page of the buffer for page `slot` of the chunk.
    fn page(&self, slot: usize) -> usize {
        self.first as usize + slot - self.start as usize
    }
    /// The part of this run from `from` up to `to` (pages of the chunk).
    fn part(&self, from: usize, to: usize) -> Option<Run> {
        let (a, b) = (from.max(self.start as usize), to.min(self.end()));
        (a < b).then(|| Run {
            start: a as u8,
            len: (b - a) as u8,
            first: self.page(a) as u8,
            buf: self.buf.clone(),
        })
    }
}

/// Part of a buffer that holds cached pages.
#[derive(Clone)]
pub struct PageRun {
    /// The buffer.
    pub buf: Arc<PageBuf>,
    /// First page in it.
    pub first: usize,
    /// Pages.
    pub pages: usize,
}

impl PageRun {
    /// The pages' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.first * PAGE_SIZE..(self.first + self.pages) * PAGE_SIZE]
    }
}

/// 64 pages of a mapping.
#[derive(Default)]
pub struct Chunk {
    /// Sorted by `start`, never overlapping.
    runs: Vec<Run>,
    /// A bit for the first page of each run. The number of bits before a page is the number of runs that
    /// begin before that page.
    starts: u64,
    /// Pages that are cached.
    present: u64,
    /// Dirty pages: changed since they were last written.
    pub dirty: u64,
    /// Pages that were dirty when a sync began, which is to write them.
    pub towrite: u64,
    /// Pages under write-back.
    pub writeback: u64,
    /// The chunk was used since the reclaim clock last passed it.
    pub referenced: bool,
    /// For dirty pages: the parity of the epoch in which they were dirtied.
    dirty_epoch: u64,
    /// For pages under write-back: the parity of their epoch.
    writeback_epoch: u64,
    /// Pages under write-back become dirty again.
    pub given_back: bool,
}

impl Chunk {
    /// Counts the changes of dirty pages and of pages under write-back in their epochs. `dirty` and
    /// `writeback` are the tags before.
    pub(crate) fn follow_epochs(&mut self, dirty: u64, writeback: u64, epochs: &Epochs) {
        let (dirtied, cleaned) = (self.dirty & !dirty, dirty & !self.dirty);
        let (begun, ended) = (self.writeback & !writeback, writeback & !self.writeback);
        let count = |pages: u64| u64::from(pages.count_ones());
        let sent = cleaned & begun;
        let (was_dirty, was_sent) = (self.dirty_epoch, self.writeback_epoch);
        self.writeback_epoch = self.writeback_epoch & !begun | self.dirty_epoch & sent;
        // Pages enter their new epoch first, so that a page that changes its epoch is always counted.
        let unasked = begun & !sent;
        if dirtied | unasked != 0 {
            let of = if epochs.enter(count(dirtied), count(unasked)) == 0 { 0 } else { u64::MAX };
            self.dirty_epoch = self.dirty_epoch & !dirtied | of & dirtied;
            self.writeback_epoch |= of & unasked;
        }
        if std::mem::take(&mut self.given_back) {
            epochs.give_back();
        }
        for (parity, of) in [0, u64::MAX].into_iter().enumerate() {
            let (dirty, writeback) = (!(was_dirty ^ of), !(was_sent ^ of));
            epochs.send(parity, count(sent & dirty));
            epochs.leave(parity, count(cleaned & !sent & dirty), count(ended & writeback));
        }
    }

    /// Pages that are cached.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The run that holds page `slot`.
    fn at(&self, slot: usize) -> Option<usize> {
        (self.present >> slot & 1 == 1).then(|| self.runs_before(slot + 1) - 1)
    }

    /// Runs that begin before page `slot`.
    fn runs_before(&self, slot: usize) -> usize {
        (self.starts & mask(0, slot)).count_ones() as usize
    }

    /// The cached pages from `slot` on that share a buffer, at most `max`.
    pub fn get(&self, slot: usize, max: usize) -> Option<PageRun> {
        let r = &self.runs[self.at(slot)?];
        Some(PageRun { buf: r.buf.clone(), first: r.page(slot), pages: (r.end() - slot).min(max) })
    }

    /// Puts `run` at `slot`, in place of the pages there.
    pub fn replace(&mut self, slot: usize, run: PageRun) {
        self.remove(slot, run.pages);
        let r = Run { start: slot as u8, len: run.pages as u8, first: run.first as u8, buf: run.buf };
        self.present |= r.mask();
        self.runs.insert(self.runs_before(slot), r);
        self.starts |= 1 << slot;
    }

    /// Drops the buffers of `len` pages from `slot`. The caller clears the tags.
    pub fn remove(&mut self, slot: usize, len: usize) {
        let (end, gone) = (slot + len, mask(slot, len));
        if self.present & gone == 0 {
            return;
        }
        // The run that holds the first page may begin before it.
        let i = self.at(slot).unwrap_or_else(|| self.runs_before(slot));
        let j = self.runs_before(end);
        let head = self.runs[i].part(0, slot);
        let tail = self.runs[j - 1].part(end, 64);
        self.starts &= !gone;
        if let Some(tail) = &tail {
            self.starts |= 1 << tail.start;
        }
        self.present &= !gone;
        self.runs.splice(i..j, head.into_iter().chain(tail));
        debug_assert_eq!(self.runs.len(), self.starts.count_ones() as usize);
    }

    /// Calls `f` with the bytes of the cached pages from `slot` on that share a buffer (at most `max`), for
    /// it to change them. Pages that are still being read elsewhere, as by a bio in flight, are copied first.
    /// Returns how many pages `f` got, and its result. `None` when `slot` is not cached.
    pub fn modify<R>(
        &mut self,
        slot: usize,
        max: usize,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<(usize, R)> {
        let i = self.at(slot)?;
        let r = &mut self.runs[i];
        let (page, n) = (r.page(slot), (r.end() - slot).min(max));
        let range = page * PAGE_SIZE..(page + n) * PAGE_SIZE;
        if let Some(buf) = Arc::get_mut(&mut r.buf) {
            return Some((n, f(&mut buf[range])));
        }
        sim::copy(n * PAGE_SIZE);
        let mut copy = PageBuf::stale(n);
        copy.copy_from_slice(&r.buf[range]);
        let out = f(&mut copy);
        self.replace(slot, PageRun { buf: Arc::new(copy), first: 0, pages: n });
        Some((n, out))
    }

    /// Puts `n` cached pages from `slot` under write-back. Returns their bytes.
    pub fn begin_writeback(&mut self, slot: usize, n: usize) -> Vec<Segment> {
        let m = mask(slot, n);
        self.dirty &= !m;
        self.towrite &= !m;
        self.writeback |= m;
        let mut segments = Vec::new();
        let mut at = slot;
        while at < slot + n {
            let Some(run) = self.get(at, slot + n - at) else { break };
            at += run.pages;
            segments.push(Segment::pages(run.buf, run.first, run.pages));
        }
        segments
    }

    /// Whether no page is cached.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(byte: u8, pages: usize) -> PageRun {
        let mut b = PageBuf::stale(pages);
        b.fill(byte);
        PageRun { buf: Arc::new(b), first: 0, pages }
    }

    #[test]
    fn replacing_cuts_what_was_there() {
        let mut c = Chunk::default();
        c.replace(0, run(1, 64));
        c.replace(10, run(2, 3));
        c.replace(12, run(3, 1));
        let bytes: Vec<u8> = (0..64).map(|s| c.get(s, 1).unwrap().bytes()[0]).collect();
        assert_eq!(bytes[8..15], [1, 1, 2, 2, 3, 1, 1]);
        assert_eq!(c.get(13, 64).unwrap().pages, 51);
        c.remove(11, 2);
        assert_eq!(c.present(), !mask(11, 2));
        c.remove(0, 64);
        assert!(c.is_empty());
    }

    /// A chunk is compared with an array of 64 pages.
    #[test]
    fn each_page_is_where_it_was_put() {
        let mut seed = 11u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let (mut c, mut model) = (Chunk::default(), [0u8; 64]);
        for n in 0..4000 {
            let (slot, byte) = (random(64), 1 + (n % 255) as u8);
            let most = [1, 3, 64][random(3)];
            let len = 1 + random((64 - slot).min(most));
            let gone = random(3) == 0;
            match gone {
                true => c.remove(slot, len),
                false => c.replace(slot, run(byte, len)),
            }
            model[slot..slot + len].fill(if gone { 0 } else { byte });
            let bytes: Vec<u8> = (0..64).map(|s| c.get(s, 1).map_or(0, |r| r.bytes()[0])).collect();
            assert_eq!(bytes, model, "step {n}");
            assert_eq!(c.is_empty(), model == [0; 64]);
        }
    }

    #[test]
    fn a_shared_page_is_copied_before_it_changes() {
        let mut c = Chunk::default();
        c.replace(0, run(1, 4));
        let seen = c.get(1, 1).unwrap();
        c.modify(1, 1, |b| b.fill(9)).unwrap();
        assert_eq!((seen.bytes()[0], c.get(1, 1).unwrap().bytes()[0]), (1, 9));
        assert_eq!(c.get(2, 1).unwrap().bytes()[0], 1);
    }
}
