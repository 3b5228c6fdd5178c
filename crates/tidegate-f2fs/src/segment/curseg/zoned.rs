//! The behaviour of logs on zones.

use super::Curseg;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::LogId;
use crate::volume::options::AllocMode;
use crate::volume::sbi::F2fs;

impl F2fs {
    /// On zones: makes the blocks of a log go out in the order in which the log moves from segment to
    /// segment.
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

    /// Notes how many blocks are left in a log's section.
    pub(super) fn note_left(&self, c: &Curseg, log: LogId) {
        if let Some(zones) = &self.sit.zones {
            self.cursegs.left.note(log, zones.left(c.segno, c.next_blkoff));
        }
    }

    /// Whether a block is the first of a section that must be written in order.
    pub(super) fn begins_zone(&self, blk: BlockAddr) -> bool {
        let (seg, off) = self.sit.place(blk);
        self.sit.zones.as_ref().is_some_and(|z| z.offset(seg, off) == 0)
    }

    /// Whether a log is at the start of a free segment that it took.
    pub(super) fn is_fresh(&self, c: &Curseg) -> bool {
        c.next_blkoff == 0 && !c.ssr
    }

    /// Whether logs may fill holes: never on zones.
    pub(crate) fn alloc_mode(&self) -> AllocMode {
        if self.is_zoned() { AllocMode::Lfs } else { self.switches.mode() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::raw::RawSummary;
    use crate::segment::log::Log;
    use crate::segment::policy::Reserve;
    use crate::testing::{fill_segments, new_volume_on_zones};
    use tidegate_vfs::ErrorKind;
    use zerocopy::FromZeros;

    /// Allocates everything that is left in a log's section; returns the number of blocks.
    fn use_up(fs: &F2fs, log: Log, whom: Reserve) -> u32 {
        let section = fs.cursegs.lock(log).segno.0 / fs.sb.segs_per_sec;
        fill_segments(fs, |n| n / fs.sb.segs_per_sec != section);
        assert_eq!(fs.sit.free_segments().free, 0);
        let _op = fs.cp_rwsem.read();
        let want = fs.cursegs.left.of(log);
        let got = fs.allocate_extents(log.into(), whom, want, |_| RawSummary::new_zeroed()).unwrap();
        got.iter().map(|a| a.blocks).sum()
    }

    #[test]
    fn data_leaves_the_last_block_of_a_section_where_no_other_is_free() {
        let (open, _) = new_volume_on_zones(12);
        let fs = &open.fs;
        let left = fs.cursegs.left.of(Log::WarmData);
        assert_eq!(use_up(fs, Log::WarmData, Reserve::Data), left - 1);
        let _op = fs.cp_rwsem.read();
        let more = fs.allocate_extents(Log::WarmData.into(), Reserve::Data, 1, |_| RawSummary::new_zeroed());
        assert_eq!(more.err().map(|e| e.kind()), Some(ErrorKind::NoSpace));
        assert!(!fs.checkpoint_has_no_room());
    }

    #[test]
    fn a_checkpoint_that_finds_no_section_is_none_and_stops_nothing() {
        let (open, _) = new_volume_on_zones(12);
        let fs = &open.fs;
        use_up(fs, Log::ColdNode, Reserve::Checkpoint);
        let failed = fs.checkpoint(false).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::NoSpace);
        assert!(fs.why_read_only().is_none());
    }
}
