//! Sections as zones: which may be written anew, and which are to be reset or finished first.

use super::{FreeSegments, Sit, SitState};
use crate::format::units::SegNo;
use crate::segment::log::LogId;
use crate::segment::zones::ZoneMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_vfs::Result;

/// The state of a section.
#[derive(Clone, Copy)]
struct Section {
    /// Its segments that are free, and those that the next checkpoint makes free.
    segments: FreeSegments,
    /// Something was written to its zone since that was reset.
    written: bool,
    /// Its zone is being reset.
    resetting: bool,
}

/// The sections of a volume on zones.
pub(crate) struct Sections {
    map: Arc<ZoneMap>,
    list: Vec<Section>,
    /// Segments of sections that a log may go to, and of those that it may once a checkpoint is made and
    /// zones are reset.
    ready: FreeSegments,
    /// Sections that logs have left before their end; something may be on its way to them.
    left: BTreeSet<u32>,
    /// Sections that logs have left and nothing is on its way to: their zones are to be finished.
    to_finish: BTreeSet<u32>,
}

impl Sections {
    /// Those of a volume whose segments' state is not known yet; logs are in the segments `current`.
    pub(crate) fn new(map: Arc<ZoneMap>, current: &[u32]) -> Sections {
        let none = FreeSegments { free: 0, prefree: 0 };
        let of = |w: &u32| Section { segments: none, written: *w > 0, resetting: false };
        let mut list: Vec<Section> = map.written.iter().map(of).collect();
        // Nothing tells later when a log begins to write where it is now.
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

    /// The share of a section in [`Sections::ready`].
    fn share(&self, n: u32) -> FreeSegments {
        let (s, all) = (&self.list[n as usize], self.map.segments_in(n));
        let (free, coming) = (s.segments.free == all && !s.written, s.segments.after() == all);
        FreeSegments { free: if free { all } else { 0 }, prefree: if coming && !free { all } else { 0 } }
    }

    fn change(&mut self, n: u32, f: impl FnOnce(&mut Section)) {
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

    /// Whether any zone is being reset.
    pub(super) fn is_resetting(&self) -> bool {
        self.list.iter().any(|s| s.resetting)
    }

    /// A log goes to a segment.
    pub(super) fn entered(&mut self, segno: u32) {
        let n = self.map.section_of(segno);
        self.change(n, |s| s.written = true);
    }

    /// A checkpoint is made, which waited for all that was on its way.
    pub(super) fn checkpointed(&mut self) {
        self.to_finish.append(&mut self.left);
        for n in 0..self.list.len() as u32 {
            if self.list[n as usize].segments.prefree > 0 {
                self.change(n, |s| s.segments.free += std::mem::take(&mut s.segments.prefree));
            }
        }
    }
}

impl Sit {
    /// Counts the free segments of each section, which takes reading all of the SIT.
    pub(crate) fn count_sections(&self) -> Result<()> {
        let mut s = self.state.lock();
        if s.sections.is_none() {
            return Ok(());
        }
        let mut all = 0;
        for segno in 0..self.main_segments {
            if self.is_free(&mut s, segno)?
                && let Some(sections) = &mut s.sections
            {
                sections.count(segno, |n| n.free += 1);
                all += 1;
            }
        }
        // mkfs.f2fs leaves out one that can be written in part, which the kernel takes for a free one.
        s.free.free = all;
        s.publish();
        Ok(())
    }

    /// The next section behind a log's that it may go to: its first segment.
    pub(super) fn find_free_section(&self, s: &SitState, log: LogId) -> Option<u32> {
        let sections = s.sections.as_ref()?;
        let n = sections.list.len() as u64;
        let last = s.last[log.slot()];
        let from = if last == SegNo::NONE.0 { 0 } else { u64::from(sections.map.section_of(last)) };
        let per = sections.map.per();
        let mut order = (1..=n).map(|i| ((from + i) % n) as u32);
        order.find(|n| sections.share(*n).free > 0 && !s.excludes_section(*n, per)).map(|n| n * per)
    }

    /// Takes the sections to be reset: wholly free in a durable checkpoint, written to since they were reset
    /// last, and none that logs are kept away from. No log goes there before [`Sit::reset_done`].
    pub(crate) fn sections_to_reset(&self) -> Vec<u32> {
        let mut s = self.state.lock();
        let Some(sections) = &s.sections else { return Vec::new() };
        let is_idle = |n: u32| {
            let section = &sections.list[n as usize];
            section.written && !section.resetting && section.segments.free == sections.map.segments_in(n)
        };
        let is_wanted = |n: &u32| is_idle(*n) && !s.excludes_section(*n, sections.map.per());
        let found: Vec<u32> = (0..sections.map.sections()).filter(is_wanted).collect();
        let Some(sections) = &mut s.sections else { return found };
        for n in &found {
            sections.list[*n as usize].resetting = true;
        }
        found
    }

    /// A zone was reset, or could not be: then it is as partly written as it was.
    pub(crate) fn reset_done(&self, section: u32, ok: bool) {
        let mut s = self.state.lock();
        if let Some(sections) = &mut s.sections {
            sections.change(section, |s| (s.resetting, s.written) = (false, s.written && !ok));
            if ok {
                sections.to_finish.remove(&section);
                sections.left.remove(&section);
            }
        }
        s.publish();
        self.released.notify_all();
    }

    /// A log leaves a section before its end.
    pub(crate) fn left_early(&self, segno: SegNo) {
        let mut s = self.state.lock();
        if let Some(sections) = s.sections.as_mut().filter(|_| segno != SegNo::NONE) {
            let n = sections.map.section_of(segno.0);
            if sections.map.is_sequential(n) && sections.list[n as usize].written {
                sections.left.insert(n);
            }
        }
    }

    /// Takes the sections whose zones are to be finished; `idle` when nothing is on its way to any.
    pub(crate) fn sections_to_finish(&self, idle: bool) -> BTreeSet<u32> {
        let mut s = self.state.lock();
        let Some(z) = &mut s.sections else { return BTreeSet::new() };
        if idle {
            z.to_finish.append(&mut z.left);
        }
        std::mem::take(&mut z.to_finish)
    }

    /// A zone could not be finished.
    pub(crate) fn not_finished(&self, section: u32) {
        if let Some(z) = &mut self.state.lock().sections {
            z.to_finish.insert(section);
        }
    }

    /// How many zones are to be finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().sections.as_ref().map_or(0, |z| z.left.len() + z.to_finish.len())
    }

    /// Whether a log is in a section.
    pub(crate) fn has_log(&self, section: u32) -> bool {
        let s = self.state.lock();
        s.sections
            .as_ref()
            .is_some_and(|z| s.current.iter().any(|n| *n != SegNo::NONE.0 && z.map.section_of(*n) == section))
    }

    /// Segments that come free together: those of a section on zones, or one.
    pub(crate) fn segments_of_section(&self) -> u32 {
        self.zones.as_ref().map_or(1, |z| z.segments_in(z.sections()))
    }

    /// Blocks of a segment that can be written.
    pub(crate) fn usable(&self, seg: SegNo) -> u32 {
        self.zones.as_ref().map_or(crate::format::raw::BLOCKS_PER_SEG, |z| z.usable(seg.0))
    }
}
