//! Extra streams of data: logs that no checkpoint names.
//!
//! A stream is opened by the first block that goes to it and only ever appends. Each checkpoint puts its summary
//! into the SSA, so that its segment is one like others to whoever finds it after a power cut. While free segments
//! are short there are no extra streams: what is left of their segments is for logs that fill holes, and for cleaning.

use super::Curseg;
use crate::segment::log::{Log, LogId, MAX_LOGS};
use crate::segment::policy::Reserve;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::MutexGuard;
use tidegate_vfs::Result;

/// Segments to spare that an extra stream leaves when it is opened, so that it is not closed at once.
const SPARE_TO_OPEN: u32 = 2;

impl F2fs {
    /// Streams of a kind of log that may be open. While several switches are turned one by one, those that are too
    /// many are not opened: the volume has [`MAX_LOGS`] at most, hot data first.
    pub(crate) fn streams(&self, kind: Log) -> u8 {
        let s = &self.switches;
        let mut left = MAX_LOGS - Log::ALL.len();
        for (k, asked) in Log::DATA.into_iter().zip([s.hot_streams(), s.warm_streams(), s.cold_streams()]) {
            let extra = usize::from(asked.get() - 1).min(left);
            if k == kind {
                return extra as u8 + 1;
            }
            left -= extra;
        }
        1
    }

    /// Extra streams that could be opened with the free segments there are.
    pub(crate) fn streams_to_spare(&self) -> u32 {
        let most = (MAX_LOGS - Log::ALL.len()) as u32;
        self.segments_to_spare().saturating_sub(SPARE_TO_OPEN).min(most)
    }

    /// Free segments beyond those that anything is kept for, or at which logs begin to fill holes.
    fn segments_to_spare(&self) -> u32 {
        let kept = self.ssr_threshold().max(self.gc_threshold()).max(self.kept_free(Reserve::Data));
        self.sit.free_segments().free.saturating_sub(kept)
    }

    /// Closes the extra streams while free segments are short. For who holds no `curseg_mutex`.
    pub(super) fn close_streams_if_short(&self) -> Result<()> {
        if self.cursegs.open_streams().next().is_some() && self.segments_to_spare() == 0 {
            self.close_streams()?;
        }
        Ok(())
    }

    /// Closes every extra stream. For who holds no `curseg_mutex`.
    pub(crate) fn close_streams(&self) -> Result<()> {
        for log in self.cursegs.open_streams() {
            self.close_stream(&mut self.cursegs.lock(log), log)?;
        }
        Ok(())
    }

    /// Locks a log that has a segment: of an extra stream that cannot be opened, the log of its kind.
    pub(super) fn lock_with_room(&self, log: LogId) -> Result<(LogId, MutexGuard<'_, Curseg>)> {
        if log.is_extra() {
            let mut c = self.cursegs.lock(log);
            if self.room(&c)? == 0 {
                self.next_of_stream(&mut c, log)?;
            }
            if self.room(&c)? > 0 {
                return Ok((log, c));
            }
            self.stats.streams_refused.fetch_add(1, Relaxed);
        }
        let log = LogId::from(log.kind);
        Ok((log, self.cursegs.lock(log)))
    }

    /// Takes an extra stream on from a full segment, or closes it.
    pub(super) fn next_of_stream(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        self.close_stream(c, log)?;
        if self.segments_to_spare() > SPARE_TO_OPEN {
            self.open_stream(c, log)?;
        }
        Ok(())
    }

    /// For the checkpoint: puts the summaries of extra streams into the SSA and closes those that it would take for
    /// empty or that nobody may write to any more; at unmount, all.
    pub(super) fn settle_streams(&self, umount: bool) -> Result<()> {
        for log in self.cursegs.open_streams() {
            let mut c = self.cursegs.lock(log);
            let over = umount || log.stream >= self.streams(log.kind) || self.room(&c)? == 0;
            if over || self.sit.get(c.segno)?.valid == 0 {
                self.close_stream(&mut c, log)?;
            } else {
                self.store_summary(&c);
            }
        }
        Ok(())
    }
}
