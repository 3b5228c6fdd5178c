//! The differences of logs on zones.

use super::Curseg;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::LogId;
use crate::segment::zones::ZoneMap;
use crate::volume::options::AllocMode;
use crate::volume::sbi::F2fs;

impl F2fs {
    /// On zones: has the blocks of a log go out in the order in which it goes from one segment to the next.
    pub(super) fn note_turn(&self, c: &Curseg, log: LogId, seg: SegNo, at: usize) {
        let Some(zones) = &self.sit.zones else { return };
        let left = match c.segno {
            SegNo::NONE => self.write_io.left_of(log),
            segno => self.sit.segment_start(segno).plus(c.next_blkoff as u32),
        };
        self.write_io.turn(log, left, self.sit.segment_start(seg).plus(at as u32));
        if c.segno != SegNo::NONE
            && zones.left(c.segno, c.next_blkoff) > 0
            && zones.section_of(c.segno.0) != zones.section_of(seg.0)
        {
            self.sit.left_early(c.segno);
        }
    }

    /// Notes how much is left in a log's section.
    pub(super) fn note_left(&self, c: &Curseg, log: LogId) {
        if let Some(zones) = &self.sit.zones {
            self.cursegs.left.note(log, zones.left(c.segno, c.next_blkoff));
        }
    }

    /// Whether a block is the first of a section that is a zone.
    pub(super) fn begins_zone(&self, blk: BlockAddr) -> bool {
        let (seg, off) = self.sit.place(blk);
        self.sit.zones.as_ref().is_some_and(|z| z.offset(seg, off) == 0)
    }

    /// Whether a log is at the start of what it took from the free: a segment, on zones a section.
    pub(super) fn is_fresh(&self, c: &Curseg) -> bool {
        let begins = |z: &ZoneMap| z.offset(c.segno, 0) == 0;
        c.next_blkoff == 0 && !c.ssr && self.sit.zones.as_deref().is_none_or(begins)
    }

    /// Whether logs may fill holes: never on zones.
    pub(crate) fn alloc_mode(&self) -> AllocMode {
        if self.is_zoned() { AllocMode::Lfs } else { self.switches.mode() }
    }
}
