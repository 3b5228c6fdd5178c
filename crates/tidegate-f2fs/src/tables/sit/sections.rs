//! Counts of sections that are zones.

use super::FreeSegments;
use crate::format::units::SegNo;
use crate::segment::zones::ZoneMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The state of a section.
#[derive(Clone, Copy)]
pub(super) struct Section {
    /// The section's free segments, and those that the next checkpoint frees.
    pub(super) segments: FreeSegments,
    /// The zone was written since its last reset.
    pub(super) written: bool,
    /// The zone is to be reset by the thread whose checkpoint freed it, or is being reset.
    pub(super) resetting: bool,
}

/// The sections of a volume on zones.
pub(crate) struct Sections {
    pub(super) map: Arc<ZoneMap>,
    pub(super) list: Vec<Section>,
    /// Segments of sections that a log may go to now, and of sections that a log may go to after a checkpoint
    /// and resets of zones.
    ready: FreeSegments,
    /// Sections that logs have left before their end; bios may be on their way to them.
    pub(super) left: BTreeSet<u32>,
    /// Sections that logs have left and that no bio is on its way to: their zones are to be finished.
    pub(super) to_finish: BTreeSet<u32>,
}

impl Sections {
    /// The sections of a volume whose segments' state is not known yet; logs are in the segments `current`.
    pub(crate) fn new(map: Arc<ZoneMap>, current: &[u32]) -> Sections {
        let none = FreeSegments { free: 0, prefree: 0 };
        let of = |w: &u32| Section { segments: none, written: *w > 0, resetting: false };
        let mut list: Vec<Section> = map.written.iter().map(of).collect();
        // No call reports later that a log begins to write in its present section.
        for segno in current.iter().filter(|n| **n != SegNo::NONE.0) {
            if let Some(section) = list.get_mut(map.section_of(*segno) as usize) {
                section.written = true;
            }
        }
        Sections { map, list, ready: none, left: BTreeSet::new(), to_finish: BTreeSet::new() }
    }

    /// The figures that policies use in place of free segments.
    pub(super) fn ready(&self) -> FreeSegments {
        self.ready
    }

    /// The share of a section in [`Sections::ready`]. Each section counts as much as one that is written in
    /// order, as in [`Sit::segments_of_section`]: to a log it is one section, even if more of it can be
    /// written.
    /// [`Sit::segments_of_section`]: to a log it is a section, even if more of it can be written.
    ///
    /// [`Sit::segments_of_section`]: crate::tables::sit::Sit::segments_of_section
    pub(super) fn share(&self, n: u32) -> FreeSegments {
        let (s, all) = (&self.list[n as usize], self.map.segments_in(n));
        if self.map.is_dead(n) {
            return FreeSegments { free: 0, prefree: 0 };
        }
        let one = self.map.segments_in(self.map.sections());
        let (free, coming) = (s.segments.free == all && !s.written, s.segments.after() == all);
        FreeSegments { free: if free { one } else { 0 }, prefree: if coming && !free { one } else { 0 } }
    }

    pub(super) fn change(&mut self, n: u32, f: impl FnOnce(&mut Section)) {
        let before = self.share(n);
        f(&mut self.list[n as usize]);
        let after = self.share(n);
        let add = |sum: u32, after: u32, before: u32| (sum + after).saturating_sub(before);
        self.ready.free = add(self.ready.free, after.free, before.free);
        self.ready.prefree = add(self.ready.prefree, after.prefree, before.prefree);
    }

    /// Changes the counts of the section that a segment is in.
    pub(super) fn count(&mut self, segno: u32, f: impl FnOnce(&mut FreeSegments)) {
        self.change(self.map.section_of(segno), |s| f(&mut s.segments));
    }

    /// Whether any zone is to be reset.
    pub(super) fn is_resetting(&self) -> bool {
        self.list.iter().any(|s| s.resetting)
    }

    /// Notes that a log goes to a segment.
    pub(super) fn entered(&mut self, segno: u32) {
        let n = self.map.section_of(segno);
        self.change(n, |s| s.written = true);
    }

    /// Whether a section is free but its zone must be reset before a log goes there.
    pub(super) fn wants_reset(&self, n: u32) -> bool {
        let section = &self.list[n as usize];
        section.written && section.segments.free == self.map.segments_in(n) && !self.map.is_dead(n)
    }

    /// Called after a checkpoint, which waited for all bios on their way. The checkpoint's thread resets
    /// zones as soon as it holds no lock: a log that finds no other section waits for these.
    pub(super) fn checkpointed(&mut self) {
        self.to_finish.append(&mut self.left);
        for n in 0..self.list.len() as u32 {
            if self.list[n as usize].segments.prefree > 0 {
                self.change(n, |s| s.segments.free += std::mem::take(&mut s.segments.prefree));
            }
            if self.wants_reset(n) {
                self.list[n as usize].resetting = true;
            }
        }
    }
}
