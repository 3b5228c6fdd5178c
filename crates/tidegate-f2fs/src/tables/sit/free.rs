//! Segments for logs: free segments, segments with holes, and segments that logs must not enter for a while.

use super::{Sit, SitState, set_in_log};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::{Log, LogId};
use std::collections::BTreeSet;
use std::ops::Range;
use tidegate_vfs::Result;

impl Sit {
    /// Keeps logs away from segments (a bit each, least significant first) until the next checkpoint.
    pub(crate) fn exclude(&self, segments: Option<Vec<u8>>) {
        let mut s = self.state.lock();
        s.excluded = segments;
        // A search that found nothing looked elsewhere.
        s.stale.opened();
    }

    /// Keeps logs from writing to a block until the next checkpoint, whether it is in use or not.
    pub(crate) fn protect(&self, blk: BlockAddr) -> Result<()> {
        let (seg, i) = self.place(blk);
        let mut s = self.state.lock();
        if self.entry(&mut s, seg.0)?.valid == 0 && !s.dirty.contains(&seg.0) && !s.is_current(seg.0) {
            // The segment is not free for now; the next checkpoint frees it unless a block in it is taken by
            // then.
            s.count(seg.0, |n| (n.free, n.prefree) = (n.free.saturating_sub(1), n.prefree + 1));
        }
        set_bit_msb(&mut self.entry(&mut s, seg.0)?.ckpt_map, i, true);
        s.dirty.insert(seg.0);
        Ok(())
    }

    /// Marks a block as in use because recovery needs it. `log` becomes the type of an otherwise empty
    /// segment. A segment with other blocks keeps its type, which must fit a log that may be in it.
    ///
    /// # Errors
    /// `Corrupt` when the block is in use already.
    pub(crate) fn claim(&self, blk: BlockAddr, log: Log) -> Result<()> {
        let (seg, _) = self.place(blk);
        let log = {
            let mut s = self.state.lock();
            let is_current = s.is_current(seg.0);
            let e = self.entry(&mut s, seg.0)?;
            let (is_empty, own) = (e.valid == 0, e.log);
            if is_empty && !is_current {
                // An empty segment is free, or the next checkpoint would free it; now it is neither.
                let is_prefree = s.dirty.contains(&seg.0);
                s.count(seg.0, |n| {
                    let counted = if is_prefree { &mut n.prefree } else { &mut n.free };
                    *counted = counted.saturating_sub(1);
                });
            }
            if is_empty && !is_current { log } else { own }
        };
        self.allocated(blk, 1, log)
    }

    /// Takes a wholly free segment for `log`. The first choice is the next segment in the section that the
    /// log is in, or was in before it was closed; the second, if `may_begin`, a segment of a wholly free
    /// section; the last, any free segment. Waits for discards when only discards are in the way. `None` when
    /// no segment is free for good.
    pub(crate) fn take_free_segment(&self, log: LogId, may_begin: bool) -> Result<Option<SegNo>> {
        self.take_free(log, may_begin, true)
    }

    /// Takes a wholly free segment for `log`. On zones, a log goes to another section unless it `goes_on`
    /// from the end of its segment.
    pub(crate) fn take_free(&self, log: LogId, may_begin: bool, goes_on: bool) -> Result<Option<SegNo>> {
        let mut s = self.state.lock();
        let find = |s: &mut SitState| match self.find_in_own_section(s, log, goes_on)? {
            None if may_begin && s.sections.is_some() => Ok(self.find_free_section(s, log)),
            None if may_begin => self.find_free(s, log),
            found => Ok(found),
        };
        let mut found = find(&mut s)?;
        while found.is_none() && may_begin && s.room_is_coming() {
            self.released.wait(&mut s);
            found = find(&mut s)?;
        }
        if let Some(segno) = found {
            self.enter(&mut s, log, segno)?;
            s.count(segno, |n| n.free = n.free.saturating_sub(1));
        }
        Ok(found.map(SegNo))
    }

    /// A free segment behind a log's last one, in the same section, unless another log is in that section.
    fn find_in_own_section(&self, s: &mut SitState, log: LogId, goes_on: bool) -> Result<Option<u32>> {
        let last = s.last[log.slot()];
        if s.sections.is_some() {
            // A log on zones must leave no segment out, and the rest of a stream's section is at the
            // section's end.
            let next = last.wrapping_add(1);
            let goes_on = goes_on && s.current[log.slot()] == last && last != SegNo::NONE.0;
            let is_own = goes_on && self.section_of(last).contains(&next);
            return Ok((is_own && self.is_free(s, next)?).then_some(next));
        }
        let section = self.section_of(last);
        // A volume whose count is wrong must not count below 0: its next checkpoint could not be read.
        if s.free.free == 0 || last == SegNo::NONE.0 || section.clone().any(|n| n != last && s.is_current(n))
        {
            return Ok(None);
        }
        for segno in last + 1..section.end {
            if self.is_free(s, segno)? {
                return Ok(Some(segno));
            }
        }
        Ok(None)
    }

    /// The first segment of the next free section, or else the next free segment, preferably not beside
    /// another log. A stream that never had a segment searches behind the log of its kind.
    fn find_free(&self, s: &mut SitState, log: LogId) -> Result<Option<u32>> {
        let n = self.main_segments;
        let behind = match s.last[log.slot()] {
            none if none == SegNo::NONE.0 => s.current[LogId::from(log.kind).slot()],
            last => last,
        };
        let (mut alone, mut any) = (None, None);
        if s.free.free > 0 {
            for i in 1..=n {
                let segno = ((behind as u64 + i as u64) % n as u64) as u32;
                if !self.is_free(s, segno)? {
                    continue;
                }
                if self.section_is_free(s, segno)? {
                    return Ok(Some(segno));
                }
                if alone.is_none() && !self.section_of(segno).any(|n| s.is_current(n)) {
                    alone = Some(segno);
                }
                any = any.or(Some(segno));
            }
        }
        Ok(alone.or(any))
    }

    /// Free segments in sections that logs are in: of no use to a log that wants a whole section.
    pub(crate) fn free_beside_logs(&self) -> Result<u32> {
        let mut s = self.state.lock();
        if s.sections.is_some() {
            return Ok(0); // the count is not used
        }
        let sections: BTreeSet<u32> =
            s.current.iter().filter(|n| **n != SegNo::NONE.0).map(|n| self.section_of(*n).start).collect();
        let mut free = 0;
        for segno in sections.into_iter().flat_map(|first| self.section_of(first)) {
            free += u32::from(self.is_free(&mut s, segno)?);
        }
        Ok(free)
    }

    /// The section that a segment is in.
    pub(super) fn section_of(&self, segno: u32) -> Range<u32> {
        let first = segno / self.segs_per_sec * self.segs_per_sec;
        first..first.saturating_add(self.segs_per_sec).min(self.main_segments)
    }

    fn section_is_free(&self, s: &mut SitState, segno: u32) -> Result<bool> {
        for n in self.section_of(segno) {
            if !self.is_free(s, n)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves a log to `segno`, which counts as in use from now on, even if its blocks are freed. After an
    /// error the log is where it was.
    fn enter(&self, s: &mut SitState, log: LogId, segno: u32) -> Result<()> {
        let left_empty = self.is_empty_under(s, log)?;
        self.entry(s, segno)?.log = log.kind;
        s.dirty.insert(segno);
        self.leave(s, log, left_empty)?;
        (s.current[log.slot()], s.last[log.slot()]) = (segno, segno);
        set_in_log(&mut s.in_log, segno, true);
        if let Some(sections) = &mut s.sections {
            sections.entered(segno);
        }
        Ok(())
    }

    /// Closes an extra stream: its segment becomes an ordinary one, or, if empty, the next checkpoint frees
    /// it.
    ///
    /// # Errors
    /// Those of reading the SIT; the stream still has its segment then.
    pub(crate) fn close(&self, log: LogId) -> Result<()> {
        let mut s = self.state.lock();
        let left_empty = self.is_empty_under(&mut s, log)?;
        self.leave(&mut s, log, left_empty)
    }

    /// Whether all blocks of a log's segment were freed meanwhile.
    fn is_empty_under(&self, s: &mut SitState, log: LogId) -> Result<bool> {
        let segno = s.current[log.slot()];
        Ok(segno != SegNo::NONE.0 && self.entry(s, segno)?.valid == 0)
    }

    /// Takes a log out of its segment; if the segment is empty, the next checkpoint frees it.
    fn leave(&self, s: &mut SitState, log: LogId, is_empty: bool) -> Result<()> {
        let old = std::mem::replace(&mut s.current[log.slot()], SegNo::NONE.0);
        if old != SegNo::NONE.0 {
            set_in_log(&mut s.in_log, old, false);
            s.stale.opened();
        }
        if is_empty {
            s.dirty.insert(old);
            self.emptied(s, old)?;
        }
        Ok(())
    }

    /// Releases a segment that was held.
    pub(crate) fn release_victim(&self, seg: SegNo) {
        let mut s = self.state.lock();
        s.busy.remove(&seg.0);
        s.stale.opened();
        self.released.notify_all();
    }

    /// Releases a segment that was held, and keeps searches from finding it before the next checkpoint.
    pub(crate) fn pass_over_victim(&self, seg: SegNo) {
        self.state.lock().unreadable.insert(seg.0);
        self.release_victim(seg);
    }

    /// Moves a log to the holes of a segment that it holds; returns the first hole. `None` when all blocks of
    /// the segment were freed meanwhile. After an error the log is where it was.
    pub(crate) fn take_victim(&self, log: LogId, seg: SegNo) -> Result<Option<usize>> {
        let mut s = self.state.lock();
        s.busy.remove(&seg.0);
        self.released.notify_all();
        let e = self.entry(&mut s, seg.0)?;
        let Some((first, _)) = e.writable_run(0).filter(|_| e.valid > 0) else { return Ok(None) };
        self.enter(&mut s, log, seg.0)?;
        Ok(Some(first))
    }

    /// The first run of blocks of a segment, from `from` on, that may be written: its first block and its
    /// length.
    pub(crate) fn writable_run(&self, seg: SegNo, from: usize) -> Result<Option<(usize, usize)>> {
        Ok(self.entry(&mut self.state.lock(), seg.0)?.writable_run(from))
    }
}
