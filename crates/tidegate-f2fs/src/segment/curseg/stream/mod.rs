//! Extra streams of data: logs that no checkpoint names.
//!
//! The first block that goes to a stream opens it. A stream only ever appends. It has a section to itself
//! where one is free, so that its blocks stay together; a stream that is closed and opened again goes on in
//! that section. Each checkpoint puts the stream's summary into the SSA, so that its segment looks like any
//! other after a power cut. While free segments are short there are no extra streams: the rest of their
//! segments is left to logs that fill holes, and to cleaning.

use super::Curseg;
use crate::format::raw::RawSummaryBlock;
use crate::format::units::SegNo;
use crate::segment::log::{Log, LogId, MAX_LOGS};
use crate::segment::policy::Reserve;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_rt::MutexGuard;
use tidegate_vfs::Result;
use zerocopy::FromZeros;

/// Segments that must remain to spare when an extra stream is opened, so that it is not closed at once.
const SPARE_TO_OPEN: u32 = 2;

impl F2fs {
    /// Streams of a kind of log that may be open. While several switches are changed one by one, surplus
    /// streams are not opened: the volume has at most [`MAX_LOGS`] logs, hot data first.
    pub(crate) fn streams(&self, kind: Log) -> u8 {
        let s = &self.switches;
        let mut left = self.most_streams();
        for (k, asked) in Log::DATA.into_iter().zip([s.hot_streams(), s.warm_streams(), s.cold_streams()]) {
            let extra = usize::from(asked.get() - 1).min(left);
            if k == kind {
                return extra as u8 + 1;
            }
            left -= extra;
        }
        1
    }

    /// Most extra streams: on zones, all logs and one section that a log has left must be able to be open at
    /// once.
    fn most_streams(&self) -> usize {
        let active = self.sit.zones.as_ref().map_or(usize::MAX, |z| z.max_active);
        (MAX_LOGS - Log::ALL.len()).min(active.saturating_sub(Log::ALL.len() + 1))
    }

    /// The number of extra streams that could be opened with the present free segments, each in a section of
    /// its own.
    ///
    /// # Errors
    /// Those of reading the SIT.
    pub(crate) fn streams_to_spare(&self) -> Result<u32> {
        let most = self.most_streams() as u32;
        let spare = self.segments_to_spare().saturating_sub(SPARE_TO_OPEN);
        let beside = if self.sit.segs_per_sec > 1 { self.sit.free_beside_logs()? } else { 0 };
        Ok((spare.saturating_sub(beside) / self.sit.segs_per_sec).min(most))
    }

    /// Free segments beyond those that are kept for a purpose, and beyond the number at which logs begin to
    /// fill holes.
    fn segments_to_spare(&self) -> u32 {
        let kept = self.ssr_threshold().max(self.gc_threshold()).max(self.kept_free(Reserve::Data));
        self.sit.free_segments().free.saturating_sub(kept)
    }

    /// Closes the extra streams while free segments are short; true if there were any. For callers that hold
    /// no `curseg_mutex`, and keep checkpoints away.
    pub(crate) fn close_streams_if_short(&self) -> Result<bool> {
        let close = self.cursegs.open_streams().next().is_some() && self.segments_to_spare() == 0;
        if close {
            self.close_streams()?;
        }
        Ok(close)
    }

    /// Closes every extra stream. For callers that hold no `curseg_mutex`, and keep checkpoints away.
    pub(crate) fn close_streams(&self) -> Result<()> {
        for log in self.cursegs.open_streams() {
            self.close_stream(&mut self.cursegs.lock(log), log)?;
        }
        Ok(())
    }

    /// Locks a log that has a segment: the log itself, or the log of its kind for an extra stream that cannot
    /// be opened. A stream that was refused is not tried again before the next checkpoint: only a checkpoint
    /// frees segments, and a search for one reads the whole SIT.
    pub(super) fn lock_with_room(&self, log: LogId) -> Result<(LogId, MutexGuard<'_, Curseg>)> {
        if log.is_extra() {
            if !self.cursegs.is_refused(log) {
                let mut c = self.cursegs.lock(log);
                if self.room(&c)? == 0 {
                    self.next_of_stream(&mut c, log)?;
                }
                if self.room(&c)? > 0 {
                    return Ok((log, c));
                }
            }
            self.stats.streams_refused.fetch_add(1, Relaxed);
        }
        let log = LogId::from(log.kind);
        Ok((log, self.cursegs.lock(log)))
    }

    /// Moves an extra stream on from a full segment, or closes it.
    pub(crate) fn next_of_stream(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        if self.is_zoned()
            && c.segno != SegNo::NONE
            && self.room(c)? == 0
            && !self.write_io.is_bad(self.sit.segment_start(c.segno))
            && let Some(seg) = self.sit.take_free(log, false, true)?
        {
            // The rest of the stream's section is its own, however short free segments are.
            self.enter(c, log, seg, 0, false, Box::new(RawSummaryBlock::new_zeroed()));
            return Ok(());
        }
        self.close_stream(c, log)?;
        if self.segments_to_spare() > SPARE_TO_OPEN {
            self.open_stream(c, log)?;
        }
        if c.segno == SegNo::NONE {
            self.cursegs.refused.fetch_or(log.bit(), Relaxed);
        }
        Ok(())
    }

    /// Takes an extra stream to a fresh segment: in its own section, or in another if there are as many
    /// sections to spare as streams want.
    fn open_stream(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        if let Some(zones) = &self.sit.zones
            && self.cursegs.all().count() + self.sit.unfinished() + 1 >= zones.max_active
        {
            return Ok(());
        }
        let seg = match self.sit.take_free_segment(log, false)? {
            None if self.streams_to_spare()? > 0 => self.sit.take_free_segment(log, true)?,
            found => found,
        };
        if let Some(seg) = seg {
            self.enter(c, log, seg, 0, false, Box::new(RawSummaryBlock::new_zeroed()));
            self.cursegs.open.fetch_or(log.bit(), SeqCst);
            self.stats.streams_opened.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Leaves an extra stream without a segment.
    ///
    /// # Errors
    /// Those of reading the SIT; the stream still has its segment then.
    pub(crate) fn close_stream(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        if c.segno == SegNo::NONE {
            return Ok(());
        }
        // The summary is stored first: a log that fills holes may go to the segment as soon as the stream has
        // left it.
        self.store_stream(c);
        if self.sit.zones.as_ref().is_some_and(|z| z.left(c.segno, c.next_blkoff) > 0) {
            self.sit.left_early(c.segno);
        }
        let at = self.sit.segment_start(c.segno).plus(c.next_blkoff as u32);
        self.sit.close(log)?;
        self.write_io.leaves(log, at);
        self.stats.streams_closed.fetch_add(1, Relaxed);
        *c = Curseg::closed();
        self.cursegs.open.fetch_and(!log.bit(), SeqCst);
        Ok(())
    }

    /// Puts the summary of a stream into the SSA, unless it is there already: a stream only appends.
    fn store_stream(&self, c: &mut Curseg) {
        if c.stored != c.next_blkoff {
            self.store_summary(c);
            c.stored = c.next_blkoff;
        }
    }

    /// For the checkpoint: puts the summaries of extra streams into the SSA. Closes streams whose segments
    /// the checkpoint would take for empty, and streams that may not be written to any more; at unmount, all.
    pub(super) fn settle_streams(&self, umount: bool) -> Result<()> {
        for log in self.cursegs.open_streams() {
            let mut c = self.cursegs.lock(log);
            let over = umount || log.stream >= self.streams(log.kind) || self.room(&c)? == 0;
            if over || self.sit.get(c.segno)?.valid == 0 {
                self.close_stream(&mut c, log)?;
            } else {
                self.store_stream(&mut c);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
