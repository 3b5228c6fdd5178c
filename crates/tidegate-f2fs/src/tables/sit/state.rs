//! Segments in memory: the number of free ones, and the ones that logs must not enter.

use super::{FreeSegments, SitState};
use crate::format::raw::*;
use crate::tables::journal;
use std::sync::atomic::Ordering::SeqCst;

impl SitState {
    /// The journal's bytes for the cold-data summary.
    pub(crate) fn journal_bytes(&self) -> [u8; SUM_JOURNAL_SIZE] {
        let raw =
            |(segno, e): (&u32, &RawSitEntry)| RawSitJournalEntry { segno: (*segno).into(), se: e.clone() };
        journal::bytes_of(self.journal.iter().map(raw))
    }

    /// The segments that can be written.
    pub(crate) fn free(&self) -> FreeSegments {
        self.free
    }

    /// Changes the counts when a segment changes its state.
    pub(super) fn count(&mut self, segno: u32, change: impl Fn(&mut FreeSegments)) {
        change(&mut self.free);
        if let Some(sections) = &mut self.sections {
            sections.count(segno, &change);
        }
        self.publish();
    }

    /// Publishes the counts for readers without the lock.
    pub(super) fn publish(&self) {
        let seen = self.sections.as_ref().map_or(self.free, |s| s.ready());
        self.seen.store(seen.packed(), SeqCst);
    }

    /// Whether a log works on the segment.
    pub(crate) fn is_current(&self, segno: u32) -> bool {
        self.in_log.get(segno as usize / 64).is_some_and(|w| w >> (segno % 64) & 1 == 1)
    }

    /// Whether a log or a cleaner is in the segment, or no log may go there.
    pub(crate) fn is_taken(&self, segno: u32) -> bool {
        self.cleaning.contains(&segno) || self.is_out_of_bounds(segno)
    }

    pub(super) fn is_out_of_bounds(&self, segno: u32) -> bool {
        self.is_current(segno) || self.busy.contains(&segno) || self.is_excluded(segno)
    }

    /// Whether segments are being discarded, or zones reset: [`Sit::released`] is notified when that ends.
    pub(super) fn room_is_coming(&self) -> bool {
        !self.busy.is_empty() || self.sections.as_ref().is_some_and(|z| z.is_resetting())
    }

    /// Whether logs are kept away from a section of `per` segments.
    pub(super) fn excludes_section(&self, section: u32, per: u32) -> bool {
        self.excluded.is_some() && (section * per..(section + 1) * per).any(|n| self.is_excluded(n))
    }

    /// Whether logs are kept away from the segment until the next checkpoint.
    pub(super) fn is_excluded(&self, segno: u32) -> bool {
        self.excluded.as_ref().is_some_and(|e| test_bit_le(e, segno as usize))
    }
}
