//! Write-back of pages: dirty → writeback → clean, and its errors.

use super::chunk::{CHUNK_PAGES, Chunk, PageRun, mask};
use super::{AddressSpace, Shard, range_mask, split};
use crate::error::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use tidegate_block::{Errno, Segment};
use tidegate_rt::trace::SpanPoint;

static WAIT_WRITEBACK: SpanPoint<1> = SpanPoint::timed("folio_wait_writeback", ["index"]);
/// The span includes finding dirty pages: they are found and marked under one lock.
static SET_WRITEBACK: SpanPoint<2> = SpanPoint::new("set_page_writeback", ["index", "most"]);

/// Which pages a write-back pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Every dirty page.
    Dirty,
    /// Pages that [`AddressSpace::tag_towrite`] marked.
    ToWrite,
}

/// Adjacent pages that were taken for writing. They are under write-back.
pub struct DirtyRun {
    /// First page of the file.
    pub index: u64,
    /// Pages.
    pub pages: usize,
    /// Their bytes.
    pub segments: Vec<Segment>,
}

/// The result of [`AddressSpace::take_dirty`].
pub enum Taken {
    /// Pages to write.
    Run(DirtyRun),
    /// This page is to be written, but is still under write-back from before.
    Busy(u64),
    /// No tagged page is in the range.
    None,
}

impl AddressSpace {
    /// Marks every dirty page of the range as to be written by the sync that begins now, so that pages
    /// dirtied later do not hold it up.
    pub fn tag_towrite(&self, start: u64, end: u64) {
        let (first, last) = (start / CHUNK_PAGES, end.saturating_sub(1) / CHUNK_PAGES);
        for shard in self.shards_of(first, last) {
            let Shard { chunks, dirty, .. } = &mut *shard.lock();
            for id in dirty.range(first..=last) {
                if let Some(c) = chunks.get_mut(id) {
                    c.towrite |= c.dirty & range_mask(*id, start, end);
                }
            }
        }
    }

    /// Takes the first run of tagged pages in `start..end`, at most `max`: clears dirty and to-write, and sets
    /// write-back. A run may cross chunks but not a missing page. For mappings with one shard, such as those of files:
    /// the shard is locked once.
    pub fn take_dirty(&self, start: u64, end: u64, tag: Tag, max: usize) -> Taken {
        self.take_dirty_up_to(start, || (end, None), tag, max)
    }

    /// Takes pages as [`AddressSpace::take_dirty`] does. `limit` tells the end of the range while no page changes, and a
    /// page that stays dirty if it is taken as the last.
    pub(crate) fn take_dirty_up_to(
        &self,
        start: u64,
        limit: impl FnOnce() -> (u64, Option<u64>),
        tag: Tag,
        max: usize,
    ) -> Taken {
        debug_assert_eq!(self.shards.len(), 1, "a run is taken in one piece");
        let _span = SET_WRITEBACK.enter([start, max as u64]);
        let mut shard = self.shards[0].lock();
        let (end, stays_dirty) = limit();
        let mut cursor = start;
        let mut out: Option<DirtyRun> = None;
        while let Some(id) = shard.next_dirty_chunk(cursor, end) {
            let first = id * CHUNK_PAGES;
            if let Some(run) = &out
                && (run.index + run.pages as u64 != first.max(cursor) || cursor > first)
            {
                break;
            }
            let room = max - out.as_ref().map_or(0, |r| r.pages);
            let got = self.with_chunk_in(&mut shard, id, |c| {
                take_from(c, range_mask(id, cursor.max(first), end), tag, room, out.is_some())
            });
            match got {
                Ok(None) if out.is_some() => break,
                Ok(None) => cursor = first + CHUNK_PAGES,
                Err(slot) if out.is_none() => return Taken::Busy(first + slot as u64),
                Err(_) => break,
                Ok(Some((slot, pages, segments))) => {
                    let run = out.get_or_insert(DirtyRun {
                        index: first + slot as u64,
                        pages: 0,
                        segments: Vec::new(),
                    });
                    run.pages += pages;
                    run.segments.extend(segments);
                    cursor = first + CHUNK_PAGES;
                    if slot + pages < CHUNK_PAGES as usize || run.pages >= max {
                        break;
                    }
                }
            }
            if cursor >= end {
                break;
            }
        }
        if let (Some(run), Some(page)) = (&out, stays_dirty)
            && run.index + run.pages as u64 == page + 1
        {
            let (chunk, slot) = split(page);
            self.with_chunk_in(&mut shard, chunk, |c| c.dirty |= 1 << slot);
        }
        out.map_or(Taken::None, Taken::Run)
    }

    fn next_dirty_chunk(&self, start: u64, end: u64) -> Option<u64> {
        if start >= end {
            return None;
        }
        let (first, last) = (start / CHUNK_PAGES, (end - 1) / CHUNK_PAGES);
        self.shards_of(first, last).iter().filter_map(|s| s.lock().next_dirty_chunk(start, end)).min()
    }

    /// The first run of tagged pages in `start..end`. The pages stay as they are: for a format that needs a lock or a
    /// transaction before it takes pages. The run includes pages that are also under write-back, and other threads may
    /// take pages meanwhile. Takes `i_pages`.
    pub fn next_dirty(&self, start: u64, end: u64, tag: Tag) -> Option<Range<u64>> {
        let (first, mut bits) = self.first_tagged(start, end, tag)?;
        let mut last = first + u64::from(bits.trailing_ones());
        while last.is_multiple_of(CHUNK_PAGES) && last < end {
            bits = self.tagged(last / CHUNK_PAGES, last..end, tag);
            let more = u64::from(bits.trailing_ones());
            last += more;
            if more < CHUNK_PAGES {
                break;
            }
        }
        Some(first..last)
    }

    /// The first tagged page in `start..end`, whether under write-back or not. Takes `i_pages`.
    pub fn first_dirty(&self, start: u64, end: u64, tag: Tag) -> Option<u64> {
        self.first_tagged(start, end, tag).map(|(first, _)| first)
    }

    /// The first tagged page in `start..end`, and the tags of its chunk from that page on.
    fn first_tagged(&self, start: u64, end: u64, tag: Tag) -> Option<(u64, u64)> {
        let mut at = start;
        while at < end {
            // Runs often follow each other in one chunk, so all shards are searched only when this chunk has no run
            // left.
            let id = at / CHUNK_PAGES;
            let bits = self.tagged(id, at..end, tag);
            if bits != 0 {
                let skipped = bits.trailing_zeros();
                return Some((id * CHUNK_PAGES + u64::from(skipped), bits >> skipped));
            }
            at = self.next_dirty_chunk((id + 1).saturating_mul(CHUNK_PAGES), end)? * CHUNK_PAGES;
        }
        None
    }

    /// The tags of the pages in `pages` that chunk `id` holds, by their places in the chunk.
    fn tagged(&self, id: u64, pages: Range<u64>, tag: Tag) -> u64 {
        let bits = self.peek(id, |c| if tag == Tag::Dirty { c.dirty } else { c.towrite });
        bits.unwrap_or(0) & range_mask(id, pages.start, pages.end)
    }

    /// The dirty pages of `start..end`, in order. They stay dirty. Each run is looked up when the iterator reaches it.
    pub fn dirty_indices(&self, start: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        let next = move |at| self.next_dirty(at, end, Tag::Dirty);
        std::iter::successors(next(start), move |run| next(run.end)).flatten()
    }

    /// Takes one page for writing if it is dirty and not under write-back. `f` first sets the bytes that
    /// depend on the page's new place.
    pub fn take_page_with(&self, index: u64, f: impl FnOnce(&mut [u8])) -> Option<PageRun> {
        let (chunk, slot) = split(index);
        let bit = 1u64 << slot;
        self.with_chunk(chunk, |c| {
            if c.dirty & bit == 0 || c.writeback & bit != 0 {
                return None;
            }
            c.modify(slot, 1, f)?;
            c.dirty &= !bit;
            c.towrite &= !bit;
            c.writeback |= bit;
            c.get(slot, 1)
        })
    }

    /// Takes cached pages from `index` on for writing, at most `max` within one chunk, whether dirty or not,
    /// and puts them under write-back. `None` when the first is not cached or is under write-back.
    pub fn take_cached(&self, index: u64, max: usize) -> Option<DirtyRun> {
        let (chunk, slot) = split(index);
        self.with_chunk(chunk, |c| {
            let free = c.present() & !c.writeback;
            let n = ((free >> slot).trailing_ones() as usize).min(max);
            if n == 0 {
                return None;
            }
            let segments = c.begin_writeback(slot, n);
            Some(DirtyRun { index, pages: n, segments })
        })
    }

    /// Ends the write-back of pages that were not written after all: they become dirty. No failure is
    /// reported.
    pub fn redirty(&self, index: u64, pages: usize) {
        // The count comes first: a thread that finds the pages no longer under write-back must see that they
        // were not written.
        self.redirtied.fetch_add(1, SeqCst);
        self.each_range(index, pages as u64, |c, m| {
            c.given_back = true;
            c.writeback &= !m;
            c.dirty |= m & c.present();
        });
        self.idle.wake_all();
        self.bdi.writeback_ended();
    }

    /// How often [`Self::redirty`] was called.
    pub(crate) fn redirtied(&self) -> u64 {
        self.redirtied.load(SeqCst)
    }

    /// Ends the write-back of `pages` pages from `index` and wakes the waiters. A failed write leaves the
    /// pages dirty and is remembered for fsync. Pages of files end by
    /// [`Inode::end_writeback`](crate::Inode::end_writeback), so that the flusher finds them.
    pub fn end_writeback(&self, index: u64, pages: usize, failed: Option<ErrorKind>) {
        if let Some(kind) = failed {
            self.record_error(kind);
            self.bdi.write_failed(pages as u64);
        }
        self.each_range(index, pages as u64, |c, m| {
            c.writeback &= !m;
            if failed.is_some() {
                c.given_back = true;
                c.dirty |= m & c.present();
            }
        });
        self.idle.wake_all();
        self.bdi.writeback_ended();
    }

    /// Remembers a failed write, to be reported once by each open file.
    pub fn record_error(&self, kind: ErrorKind) {
        self.no_space.store(kind == ErrorKind::NoSpace, SeqCst);
        self.errseq.fetch_add(1, SeqCst);
    }

    /// The present error sequence, for a file that is being opened.
    pub fn errseq(&self) -> u32 {
        self.errseq.load(SeqCst)
    }

    /// Reports a write that failed since `seen`, once.
    ///
    /// # Errors
    /// `Io`, or `NoSpace` if that is what failed.
    pub fn check_error(&self, seen: &AtomicU32) -> Result<()> {
        let now = self.errseq();
        // Another thread that looks at the same time may have seen a later one.
        if seen.fetch_max(now, SeqCst) >= now {
            return Ok(());
        }
        Err(self.last_error("an earlier write to this file failed"))
    }

    /// Remembers the error of the device behind a failed write. To be called before [`Self::end_writeback`].
    pub fn record_errno(&self, e: Errno) {
        self.errno.store(e.raw_os_error(), SeqCst);
    }

    /// The error of the last failed write, with the step `what`: `Io`, or `NoSpace` if that is what failed.
    pub fn last_error(&self, what: impl Into<Cow<'static, str>>) -> Error {
        let kind = if self.no_space.load(SeqCst) { ErrorKind::NoSpace } else { ErrorKind::Io };
        match self.errno.load(SeqCst) {
            0 => Error::new(kind, what),
            e => Error::new(kind, what).because(Errno::from_raw_os_error(e)),
        }
    }

    fn each_range(&self, index: u64, pages: u64, mut f: impl FnMut(&mut Chunk, u64)) {
        let mut at = index;
        while at < index + pages {
            let (chunk, slot) = split(at);
            let n = (CHUNK_PAGES - slot as u64).min(index + pages - at);
            self.with_chunk(chunk, |c| f(c, mask(slot, n as usize)));
            at += n;
        }
    }

    fn chunks_under_writeback(&self, start: u64, end: u64) -> Vec<u64> {
        if start >= end {
            return Vec::new();
        }
        let (first, last) = (start / CHUNK_PAGES, (end - 1) / CHUNK_PAGES);
        let mut ids = Vec::new();
        for shard in self.shards_of(first, last) {
            let s = shard.lock();
            let is_sent = |id: &&u64| {
                s.chunks.get(*id).is_some_and(|c| c.writeback & range_mask(**id, start, end) != 0)
            };
            ids.extend(s.writeback.range(first..=last).filter(is_sent));
        }
        ids.sort_unstable();
        ids
    }

    /// Waits until every page of the range that is under write-back now has been written.
    pub fn wait_writeback(&self, start: u64, end: u64) {
        if self.nr_writeback() == 0 {
            return;
        }
        for (n, id) in self.chunks_under_writeback(start, end).into_iter().enumerate() {
            let m = range_mask(id, start, end);
            let done = || self.peek(id, |c| c.writeback & m == 0).unwrap_or(true);
            if n > 0 && done() {
                continue;
            }
            let _span = WAIT_WRITEBACK.enter([id * CHUNK_PAGES]);
            self.bdi.wait_sending(Some(self), &self.idle, done);
        }
    }
}

impl Shard {
    /// The first chunk with a dirty page that has pages in `start..end`.
    fn next_dirty_chunk(&self, start: u64, end: u64) -> Option<u64> {
        let chunks = start / CHUNK_PAGES..=end.checked_sub(1)? / CHUNK_PAGES;
        if start < end { self.dirty.range(chunks).next().copied() } else { None }
    }
}

type TakenPart = (usize, usize, Vec<Segment>);

/// Takes the first run of tagged pages within `allowed`. `Err` names a page that is under write-back. A run
/// that continues one of the previous chunk must begin at page 0.
fn take_from(
    c: &mut Chunk,
    allowed: u64,
    tag: Tag,
    max: usize,
    goes_on: bool,
) -> std::result::Result<Option<TakenPart>, usize> {
    let wanted = allowed & if tag == Tag::Dirty { c.dirty } else { c.towrite };
    if wanted == 0 || max == 0 {
        return Ok(None);
    }
    let slot = wanted.trailing_zeros() as usize;
    if goes_on && slot != 0 {
        return Ok(None);
    }
    let free = wanted & !c.writeback;
    let n = ((free >> slot).trailing_ones() as usize).min(max);
    if n == 0 {
        return Err(slot);
    }
    Ok(Some((slot, n, c.begin_writeback(slot, n))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow_fs::{TAKES, mount, open};
    use crate::{File, SyncWait};
    use std::collections::BTreeSet;
    use tidegate_block::PAGE_SIZE;
    use tidegate_rt::rng::Rng;
    use tidegate_rt::sim;

    /// Compares the dirty pages, one by one, with the runs that a search from every position finds.
    #[test]
    fn the_next_dirty_run_is_found_and_left() {
        let body = || {
            let (vfs, _) = mount(SyncWait::Caller, TAKES);
            let f: File = open(&vfs, 2);
            let mut rng = Rng::new(7);
            let mut dirty = BTreeSet::new();
            for _ in 0..40 {
                let most = if rng.one_in(4) { 150 } else { 3 };
                let (at, n) = (rng.below(400), 1 + rng.below(most));
                f.write_at(at * PAGE_SIZE as u64, &vec![1; n as usize * PAGE_SIZE]).unwrap();
                dirty.extend(at..at + n);
                let m = &f.inode().mapping;
                for _ in 0..20 {
                    let (start, end) = (rng.below(560), rng.below(600));
                    let inside = dirty.range(start..end.max(start));
                    let first = inside.clone().next().copied();
                    let run = first.map(|a| a..(a..end).find(|p| !dirty.contains(p)).unwrap_or(end));
                    assert_eq!(m.next_dirty(start, end, Tag::Dirty), run, "{start}..{end} of {dirty:?}");
                    assert_eq!(m.first_dirty(start, end, Tag::Dirty), run.map(|r| r.start));
                    assert_eq!(m.next_dirty(start, end, Tag::ToWrite), None);
                    assert!(m.dirty_indices(start, end).eq(inside.copied()), "{start}..{end} of {dirty:?}");
                }
            }
            let m = &f.inode().mapping;
            let first = *dirty.first().unwrap();
            m.tag_towrite(first + 1, 600);
            let second = *dirty.iter().nth(1).unwrap();
            assert_eq!(m.next_dirty(0, 600, Tag::ToWrite).unwrap().start, second);
            vfs.unmount().unwrap();
        };
        sim::run(1, 1, body);
    }
}
