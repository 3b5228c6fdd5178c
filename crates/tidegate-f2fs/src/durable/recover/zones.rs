//! Brings logs, the write pointers of zones, and fsynced nodes together after a power cut.

use super::chain;
use crate::format::units::SegNo;
use crate::segment::log::Log;
use crate::segment::zones::ZoneMap;
use crate::volume::sbi::F2fs;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;

impl F2fs {
    /// Takes logs away from sections whose blocks behind the checkpoint's log position were written: after a
    /// power cut these blocks hold anything. Runs when the volume is opened, before anything is written. With
    /// `fsynced`, logs also leave sections where no write pointer tells, and no log goes to a section that
    /// the chain of fsynced nodes is in or leads to. False where no free section is left: nothing may be
    /// written then.
    ///
    /// # Errors
    /// Those of reading the chain.
    pub(crate) fn bring_logs_and_zones_together(&self, fsynced: bool) -> Result<bool> {
        let Some(zones) = &self.sit.zones else { return Ok(true) };
        let ends = if fsynced { self.keep_off_the_chain(zones)? } else { HashMap::default() };
        let is_behind = |log: &Log| {
            let (section, at) = {
                let c = self.cursegs.lock(*log);
                (zones.section_of(c.segno.0), zones.offset(c.segno, c.next_blkoff))
            };
            match zones.is_sequential(section) {
                true => zones.written[section as usize] != at || zones.is_torn(section),
                false => ends.get(&section).is_some_and(|end| *end > at),
            }
        };
        let mut stuck = self.leave_segments(Log::ALL.into_iter().filter(is_behind).collect())?;
        if !stuck.is_empty() {
            // Sections that are free in the checkpoint and that the chain is not in hold nothing of use,
            // whatever was written to them.
            self.reset_zones();
            stuck = self.leave_segments(stuck)?;
        }
        if !stuck.is_empty() {
            return Ok(false);
        }
        // Zones that no log goes on in are handled before logs open other zones.
        for section in zones.active_at_open().sections.iter().copied().filter(|n| !self.sit.has_log(*n)) {
            self.sit.left_early(SegNo(section * zones.per()));
        }
        self.finish_zones(true);
        Ok(true)
    }

    /// Keeps logs away from the chain of fsynced nodes, and its blocks from being reset. Returns for each
    /// section the number of blocks before the end of the chain.
    fn keep_off_the_chain(&self, zones: &ZoneMap) -> Result<HashMap<u32, u32>> {
        let mut ends = HashMap::default();
        let found = chain::find(self)?;
        if found.entries.is_empty() {
            return Ok(ends);
        }
        self.sit.exclude(Some(found.segments));
        chain::each_block(self, |blk| {
            let (segno, off) = self.sit.place(blk);
            let end = ends.entry(zones.section_of(segno.0)).or_default();
            *end = zones.offset(segno, off + 1).max(*end);
            Ok(())
        })?;
        Ok(ends)
    }
}
