//! Sections as zones: sections that may be written anew, and sections whose zones must be reset or finished
//! first.

use super::{Sit, SitState};
use crate::format::raw::{BLOCKS_PER_SEG, test_bit_msb};
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::LogId;
use std::collections::BTreeSet;
use tidegate_vfs::Result;

impl Sit {
    /// Counts the free segments of each section, which needs a read of the whole SIT. Returns the first block
    /// in use that lies behind its zone's write pointer, if there is one.
    pub(crate) fn count_sections(&self) -> Result<Option<BlockAddr>> {
        let mut s = self.state.lock();
        if s.sections.is_none() {
            return Ok(None);
        }
        let (mut all, mut behind) = (0, None);
        for segno in 0..self.main_segments {
            if behind.is_none() {
                behind = self.behind_pointer(&mut s, segno)?;
            }
            if self.is_free(&mut s, segno)?
                && let Some(sections) = &mut s.sections
            {
                sections.count(segno, |n| n.free += 1);
                all += 1;
            }
        }
        // mkfs.f2fs leaves out a segment that is only partly writable; the kernel counts it as free.
        s.free.free = all;
        s.publish();
        Ok(behind)
    }

    /// The first block of a segment that is in use and lies behind its zone's write pointer.
    fn behind_pointer(&self, s: &mut SitState, segno: u32) -> Result<Option<BlockAddr>> {
        let Some(end) = self.zones.as_ref().and_then(|z| z.written_in(segno)) else { return Ok(None) };
        let e = self.entry(s, segno)?;
        let found = (end..BLOCKS_PER_SEG).find(|n| e.valid > 0 && test_bit_msb(&e.map, *n as usize));
        Ok(found.map(|n| self.segment_start(SegNo(segno)).plus(n)))
    }

    /// The first segment of the next section behind a log's that the log may go to.
    pub(super) fn find_free_section(&self, s: &SitState, log: LogId) -> Option<u32> {
        let sections = s.sections.as_ref()?;
        let n = sections.list.len() as u64;
        let last = s.last[log.slot()];
        let from = if last == SegNo::NONE.0 { 0 } else { u64::from(sections.map.section_of(last)) };
        let per = sections.map.per();
        let mut order = (1..=n).map(|i| ((from + i) % n) as u32);
        order.find(|n| sections.share(*n).free > 0 && !s.excludes_section(*n, per)).map(|n| n * per)
    }

    /// Takes the sections to be reset: wholly free in a durable checkpoint, written to since their last
    /// reset, and not kept from logs. No log goes there before [`Sit::reset_done`]. For a thread that holds
    /// `zone_mgmt`.
    pub(crate) fn sections_to_reset(&self) -> Vec<u32> {
        let mut s = self.state.lock();
        let Some(sections) = &s.sections else { return Vec::new() };
        let is_wanted = |n: &u32| sections.wants_reset(*n) && !s.excludes_section(*n, sections.map.per());
        let found: Vec<u32> = (0..sections.map.sections()).filter(is_wanted).collect();
        let Some(sections) = &mut s.sections else { return found };
        for n in &found {
            sections.list[*n as usize].resetting = true;
        }
        found
    }

    /// Notes that a zone was reset, or that the reset failed: then the zone is still partly written.
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

    /// Notes that a log leaves a section before its end.
    pub(crate) fn left_early(&self, segno: SegNo) {
        let mut s = self.state.lock();
        if let Some(sections) = s.sections.as_mut().filter(|_| segno != SegNo::NONE) {
            let n = sections.map.section_of(segno.0);
            let map = &sections.map;
            if map.is_sequential(n) && !map.is_dead(n) && sections.list[n as usize].written {
                sections.left.insert(n);
            }
        }
    }

    /// Takes the sections whose zones are to be finished; `idle` when no bio is on its way to any zone.
    pub(crate) fn sections_to_finish(&self, idle: bool) -> BTreeSet<u32> {
        let mut s = self.state.lock();
        let Some(z) = &mut s.sections else { return BTreeSet::new() };
        if idle {
            z.to_finish.append(&mut z.left);
        }
        std::mem::take(&mut z.to_finish)
    }

    /// Notes that a zone could not be finished.
    pub(crate) fn not_finished(&self, section: u32) {
        if let Some(z) = &mut self.state.lock().sections {
            z.to_finish.insert(section);
        }
    }

    /// Number of zones to be finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().sections.as_ref().map_or(0, |z| z.left.len() + z.to_finish.len())
    }

    /// Whether a block is in a zone that has lost its content.
    pub(crate) fn is_lost(&self, addr: BlockAddr) -> bool {
        self.zones.as_ref().is_some_and(|z| z.is_lost(self.place(addr).0.0))
    }

    /// Whether a log is in a section.
    pub(crate) fn has_log(&self, section: u32) -> bool {
        let s = self.state.lock();
        s.sections
            .as_ref()
            .is_some_and(|z| s.current.iter().any(|n| *n != SegNo::NONE.0 && z.map.section_of(*n) == section))
    }

    /// Segments that become free together: those of a section on zones, otherwise one.
    pub(crate) fn segments_of_section(&self) -> u32 {
        self.zones.as_ref().map_or(1, |z| z.segments_in(z.sections()))
    }
}
