//! Segments that may be written from their start.

use super::{Sit, SitState};
use crate::format::units::SegNo;
use tidegate_vfs::Result;
use tidegate_vfs::planted::PlantedBug;

impl Sit {
    /// Whether a segment is free for good: no block is valid now or in the last checkpoint, and no log is in
    /// it.
    pub(crate) fn is_free(&self, s: &mut SitState, segno: u32) -> Result<bool> {
        if self.usable(SegNo(segno)) == 0 {
            return Ok(false);
        }
        if self.planted.is(PlantedBug::EarlyReuse) {
            return Ok(!s.is_out_of_bounds(segno) && self.entry(s, segno)?.valid == 0);
        }
        if s.dirty.contains(&segno) || s.is_out_of_bounds(segno) {
            return Ok(false);
        }
        Ok(self.entry(s, segno)?.valid == 0)
    }

    /// Writable blocks of a segment.
    pub(crate) fn usable(&self, seg: SegNo) -> u32 {
        self.zones.as_ref().map_or(crate::format::raw::BLOCKS_PER_SEG, |z| z.usable(seg.0))
    }
}
