//! The position of a log in its segment, and the summary that it leaves behind.

use super::*;

impl F2fs {
    /// The number of blocks that can be written in one piece from `next_blkoff` on.
    pub(super) fn room(&self, c: &Curseg) -> Result<u32> {
        let end = self.sit.usable(c.segno);
        if c.next_blkoff >= end as usize {
            return Ok(0);
        }
        if !c.ssr {
            return Ok(end - c.next_blkoff as u32);
        }
        let run = self.sit.writable_run(c.segno, c.next_blkoff)?;
        Ok(run.filter(|r| r.0 == c.next_blkoff).map_or(0, |r| r.1 as u32))
    }

    /// Moves an SSR log to its next hole; returns the hole's length.
    pub(super) fn advance(&self, c: &mut Curseg) -> Result<u32> {
        if c.ssr && c.next_blkoff < BLOCKS_PER_SEG as usize {
            c.next_blkoff = match self.sit.writable_run(c.segno, c.next_blkoff)? {
                Some((at, _)) => at,
                None => BLOCKS_PER_SEG as usize,
            };
        }
        self.room(c)
    }

    /// Takes the log to the holes of a segment in use; false when no segment has holes. A segment whose
    /// owners cannot be read is passed over. After an error the log is where it was, also in the SIT.
    ///
    /// # Errors
    /// The error of the first segment that was passed over, if no other segment has holes. Those of reading
    /// the SIT.
    pub(super) fn fill_holes(&self, c: &mut Curseg, log: LogId) -> Result<bool> {
        let mut passed_over = None;
        while let Some(seg) = self.sit.hold_victim(log)? {
            // The summary is read first, as the read may fail.
            let sum = match self.stored_summary(seg) {
                Ok(sum) => sum,
                Err(e) => {
                    self.sit.pass_over_victim(seg);
                    passed_over.get_or_insert(e);
                    continue;
                }
            };
            if let Some(first) = self.sit.take_victim(log, seg)? {
                self.enter(c, log, seg, first, true, sum);
                self.stats.ssr_segments.fetch_add(1, Relaxed);
                return Ok(true);
            }
        }
        passed_over.map_or(Ok(false), Err)
    }

    /// The owners of the blocks of a segment that no log is in.
    pub(super) fn stored_summary(&self, seg: SegNo) -> Result<Box<RawSummaryBlock>> {
        let block = self.meta.read(self.sb.ssa_blkaddr + seg.0)?;
        RawSummaryBlock::read_from_bytes(block.bytes())
            .map(Box::new)
            .map_err(|_| Error::corrupt("is no summary").at(At::Part("SSA block", seg.0.into())))
    }

    pub(super) fn enter(
        &self,
        c: &mut Curseg,
        log: LogId,
        seg: SegNo,
        at: usize,
        ssr: bool,
        sum: Box<RawSummaryBlock>,
    ) {
        self.store_summary(c);
        self.note_turn(c, log, seg, at);
        *c = Curseg { segno: seg, next_blkoff: at, ssr, sum, stored: 0 };
        c.sum.entry_type = if log.kind.is_node() { SUM_TYPE_NODE } else { SUM_TYPE_DATA };
        self.note_left(c, log);
    }

    /// Puts the owners of blocks into the SSA. Journals go only into the checkpoint pack.
    pub(super) fn store_summary(&self, c: &Curseg) {
        if c.segno != SegNo::NONE {
            self.meta.write(self.sb.ssa_blkaddr + c.segno.0, PageBuf::from_slice(c.sum.as_bytes()));
        }
    }
}
