//! Logs and the write pointers of zones, brought together after a power cut.

use crate::format::units::SegNo;
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use tidegate_vfs::{Error, ErrorKind, Result};

impl F2fs {
    /// Takes logs away from sections whose zones are not where a checkpoint has the logs: something was written behind it,
    /// and a power cut has left what of it it would. For opening, before anything is written.
    ///
    /// # Errors
    /// `NoSpace` when no section is left to go to.
    pub(crate) fn bring_logs_and_zones_together(&self) -> Result<()> {
        let Some(zones) = &self.sit.zones else { return Ok(()) };
        let is_behind = |log: &Log| {
            let (segno, off) = {
                let c = self.cursegs.lock(*log);
                (c.segno, c.next_blkoff)
            };
            let section = zones.section_of(segno.0);
            zones.is_sequential(section) && zones.written[section as usize] != zones.offset(segno, off)
        };
        if !self.move_logs(Log::ALL.into_iter().filter(is_behind).collect())?.is_empty() {
            let e = Error::new(ErrorKind::NoSpace, "no free segment");
            return Err(e.of("a log's zone was written to behind the last checkpoint, and no other is free"));
        }
        // Those that no log goes on in, before logs open others.
        for section in zones.active.iter().copied().filter(|n| !self.sit.has_log(*n)) {
            self.sit.left_early(SegNo(section * zones.per()));
        }
        self.finish_zones(true);
        Ok(())
    }
}
