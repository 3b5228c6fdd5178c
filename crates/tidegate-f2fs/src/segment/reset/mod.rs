//! Resets and finishes of zones.

use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{Bio, BioFlags, Errno, Op};

impl F2fs {
    /// Whether the volume is on zones and so only appends.
    pub(crate) fn is_zoned(&self) -> bool {
        self.sit.zones.is_some()
    }

    /// Resets the zones of free sections, and finishes the zones that logs have left before their end;
    /// returns the number of bytes reset. The sections are free in a durable checkpoint. Takes
    /// [`F2fs::zone_mgmt`]; for callers that hold no lock but `cp_global_sem`.
    pub(crate) fn reset_zones(&self) -> u64 {
        let Some(zones) = &self.sit.zones else { return 0 };
        let _alone = self.zone_mgmt.lock();
        let mut bytes = 0;
        for section in self.sit.sections_to_reset() {
            let r = match zones.is_sequential(section) {
                true => self.zone_operation(Op::ZoneReset, section),
                false => self.discard_section(section),
            };
            bytes += if r.is_ok() {
                u64::from(zones.per()) * u64::from(BLOCKS_PER_SEG) * BLOCK_SIZE as u64
            } else {
                0
            };
            if r.is_ok() {
                self.write_io.is_good_again(section);
            }
            self.sit.reset_done(section, r.is_ok());
        }
        self.stats.discarded.fetch_add(bytes, Relaxed);
        self.finish_left(false);
        bytes
    }

    /// Finishes the zones that logs have left before their end, since few zones may be open. With `idle`, no
    /// bio is on its way to any zone; otherwise only those zones are finished that logs had left before a
    /// checkpoint. Takes [`F2fs::zone_mgmt`].
    pub(crate) fn finish_zones(&self, idle: bool) {
        let _alone = self.zone_mgmt.lock();
        self.finish_left(idle);
    }

    /// No zone is reset meanwhile, so no log goes to one of these zones.
    fn finish_left(&self, idle: bool) {
        let mut sections = self.sit.sections_to_finish(idle);
        sections.extend(self.write_io.bad_and_active());
        for section in sections {
            match self.zone_operation(Op::ZoneFinish, section) {
                // An empty zone need not be finished, and the device may not be able to finish it for want of
                // an active zone.
                Ok(()) | Err(Errno::OVERFLOW) => self.write_io.finished(section),
                // The zone counts as active until the finish is tried again.
                Err(_) => self.sit.not_finished(section),
            }
        }
    }

    fn zone_operation(&self, op: Op, section: u32) -> std::result::Result<(), Errno> {
        let start = self.sit.segment_start(SegNo(section * self.sb.segs_per_sec));
        let bytes = u64::from(self.sb.segs_per_sec) * u64::from(BLOCKS_PER_SEG) * BLOCK_SIZE as u64;
        self.queue.submit_wait(Bio::range(op, start.sector(), bytes, BioFlags::SYNC)).map(drop)
    }

    /// Discards a section that can be written anywhere and holds nothing of use.
    fn discard_section(&self, section: u32) -> std::result::Result<(), Errno> {
        match self.zone_operation(Op::Discard, section) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            r => r,
        }
    }
}

#[cfg(test)]
mod tests;
