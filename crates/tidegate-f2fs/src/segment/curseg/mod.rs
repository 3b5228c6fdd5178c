//! The logs: where blocks are allocated, a run at a time.
//!
//! A log appends to a free segment (LFS) or, when those run short, fills the holes of one in use (SSR). Its
//! summary names the owner of each block; it goes to the SSA when the log leaves the segment and into the
//! pack at each checkpoint, or, of an extra stream, to the SSA then, too.

mod stream;
mod zoned;

use crate::format::gate::Checkpoint;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use crate::segment::policy::Reserve;
use crate::segment::zones::LeftInSections;
use crate::volume::options::AllocMode;
use crate::volume::sbi::F2fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_block::PageBuf;
use tidegate_rt::{LockClass, Mutex, MutexGuard};
use tidegate_vfs::{At, Error, ErrorKind, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

static CURSEG: LockClass = LockClass::new("curseg->curseg_mutex", 500);

/// A log's segment.
pub(crate) struct Curseg {
    pub segno: SegNo,
    /// Next block to be written; below 512 always.
    pub next_blkoff: usize,
    /// Fills holes.
    pub ssr: bool,
    pub sum: Box<RawSummaryBlock>,
    /// Of an extra stream: `next_blkoff` when its summary went to the SSA.
    stored: usize,
}

impl Curseg {
    /// The log as the checkpoint left it.
    pub(crate) fn from_checkpoint(cp: &Checkpoint, log: Log, sum: Box<RawSummaryBlock>) -> Curseg {
        let i = log as usize;
        let (segno, off) = if log.is_node() {
            (cp.raw.cur_node_segno[i - 3], cp.raw.cur_node_blkoff[i - 3])
        } else {
            (cp.raw.cur_data_segno[i], cp.raw.cur_data_blkoff[i])
        };
        let ssr = cp.raw.alloc_type[i] != 0;
        Curseg { segno: SegNo(segno.get()), next_blkoff: off.get() as usize, ssr, sum, stored: 0 }
    }

    /// A copy, for the checkpoint pack.
    pub(crate) fn snapshot(&self) -> Curseg {
        Curseg { sum: self.sum.clone(), ..*self }
    }

    /// A stream without a segment.
    fn closed() -> Curseg {
        let sum = Box::new(RawSummaryBlock::new_zeroed());
        Curseg { segno: SegNo::NONE, next_blkoff: BLOCKS_PER_SEG as usize, ssr: false, sum, stored: 0 }
    }

    /// Summaries that a checkpoint must keep: all of an SSR segment, those written of another.
    pub(crate) fn summaries(&self) -> usize {
        if self.ssr { ENTRIES_IN_SUM } else { self.next_blkoff }
    }
}

/// All logs. Each has a lock of its own.
pub(crate) struct Cursegs {
    logs: Vec<Mutex<Curseg>>,
    /// The extra streams that have a segment, a bit each; changed with the log locked.
    open: AtomicU64,
    /// Those that found no segment to go to since the last checkpoint, a bit each.
    refused: AtomicU64,
    /// Blocks allocated since the last checkpoint.
    allocated: AtomicU64,
    /// Of a volume on zones, blocks that are left in each log's section.
    pub left: LeftInSections,
    /// The last warm node does not name the block of the next. Nor is a chain that the volume was opened on
    /// to be continued: nodes that a power cut left behind it would be taken for its next ones.
    chain_broken: AtomicBool,
}

impl Cursegs {
    pub(crate) fn new(logs: [Curseg; NR_CURSEG_TYPE]) -> Self {
        let closed = std::iter::repeat_with(Curseg::closed).take(LOG_SLOTS - NR_CURSEG_TYPE);
        let logs = logs.into_iter().chain(closed).map(|c| Mutex::new(&CURSEG, c)).collect();
        Cursegs {
            logs,
            open: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            left: LeftInSections::default(),
            chain_broken: AtomicBool::new(true),
        }
    }

    /// Blocks allocated since the last checkpoint.
    pub(crate) fn allocated_since_cp(&self) -> u64 {
        self.allocated.load(Relaxed)
    }

    /// Whether roll-forward would miss the next warm nodes.
    pub(crate) fn chain_is_broken(&self) -> bool {
        self.chain_broken.load(Relaxed)
    }

    /// A checkpoint is made: the next chain begins where the warm-node log stands.
    pub(crate) fn checkpointed(&self) {
        self.allocated.store(0, Relaxed);
        self.chain_broken.store(false, Relaxed);
        self.refused.store(0, Relaxed);
    }

    /// Whether a stream found no segment since the last checkpoint.
    pub(crate) fn is_refused(&self, log: LogId) -> bool {
        self.refused.load(Relaxed) & log.bit() != 0
    }

    pub(crate) fn lock(&self, log: impl Into<LogId>) -> MutexGuard<'_, Curseg> {
        self.logs[log.into().slot()].lock()
    }

    /// The extra streams that have a segment.
    pub(crate) fn open_streams(&self) -> impl Iterator<Item = LogId> + use<> {
        LogId::of_bits(self.open.load(SeqCst))
    }

    /// All logs that have a segment.
    pub(crate) fn all(&self) -> impl Iterator<Item = LogId> + use<> {
        Log::ALL.into_iter().map(LogId::from).chain(self.open_streams())
    }
}

/// Blocks allocated in one piece.
pub(crate) struct Allocated {
    /// The log that gave them.
    pub log: LogId,
    pub start: BlockAddr,
    pub blocks: u32,
    /// The block the log will write next.
    pub next: BlockAddr,
}

impl F2fs {
    /// Allocates up to `want` neighbouring blocks from `log`; `summary` names the owner of the i-th. Takes
    /// the log's `curseg_mutex`, then `sentry_lock`, once for the run.
    ///
    /// # Errors
    /// `NoSpace` when there is no segment to go to; nothing is allocated then.
    pub(crate) fn allocate(
        &self,
        log: Log,
        want: u32,
        summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Allocated> {
        self.close_streams_if_short()?;
        let log = LogId::from(log);
        self.allocate_locked(&mut self.cursegs.lock(log), log, Reserve::Checkpoint, want, summary)
    }

    /// Allocates up to `want` blocks from `log` in as few pieces as it has, with nobody's in between; leaves
    /// as many free segments alone as `whom` must. `summary` names the owner of the i-th.
    ///
    /// # Errors
    /// `NoSpace` when not even one block could be had.
    pub(crate) fn allocate_extents(
        &self,
        log: LogId,
        whom: Reserve,
        want: u32,
        mut summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Vec<Allocated>> {
        self.close_streams_if_short()?;
        let (mut log, mut c) = self.lock_with_room(log)?;
        let mut out: Vec<Allocated> = Vec::new();
        let mut done = 0;
        while done < want {
            if log.is_extra() && self.room(&c)? == 0 {
                // Segments became short on the way.
                break;
            }
            match self.allocate_locked(&mut c, log, whom, want - done, |i| summary(done + i)) {
                Ok(a) => {
                    done += a.blocks;
                    match out.last_mut() {
                        // No bio is of two zones.
                        Some(last)
                            if last.log == log
                                && last.start.plus(last.blocks) == a.start
                                && !self.begins_zone(a.start) =>
                        {
                            last.blocks += a.blocks
                        }
                        _ => out.push(a),
                    }
                }
                // Blocks that there are, are to be written; the next to allocate meets the error again.
                Err(_) if done > 0 => break,
                Err(e) if e.kind() == ErrorKind::NoSpace && log.is_extra() => {
                    // Free segments became short since it was opened; the log of its kind may fill holes.
                    self.close_stream(&mut c, log)?;
                    drop(c);
                    log = log.kind.into();
                    c = self.cursegs.lock(log);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }

    fn allocate_locked(
        &self,
        c: &mut Curseg,
        log: LogId,
        whom: Reserve,
        want: u32,
        mut summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Allocated> {
        let mut room = self.room(c)?;
        if room == 0 || self.write_io.is_bad(self.sit.segment_start(c.segno)) {
            // The segment could not be left when it became full, or its zone takes no more.
            self.next_segment(c, log)?;
            room = self.room(c)?;
        }
        // A log always has a segment to be in, as the checkpoint needs it; a fresh one may be out of bounds.
        if self.is_fresh(c) && self.sit.free_segments().free < self.kept_free(whom) {
            let may_fill = !log.is_extra() && self.alloc_mode() == AllocMode::Adaptive;
            if !may_fill || !self.fill_holes(c, log)? {
                return Err(Error::new(ErrorKind::NoSpace, "free segments are short"));
            }
            room = self.room(c)?;
        }
        if c.ssr && self.nodes_come_first(whom) {
            return Err(Error::new(ErrorKind::NoSpace, "a checkpoint must write nodes first"));
        }
        let n = want.min(room);
        if n == 0 {
            return Err(Error::new(ErrorKind::NoSpace, "no segment has room"));
        }
        let start = self.sit.segment_start(c.segno).plus(c.next_blkoff as u32);
        self.sit.allocated(start, n, log.kind)?;
        for i in 0..n {
            let at = c.next_blkoff + i as usize;
            c.sum.entries[at] = summary(i);
        }
        c.next_blkoff += n as usize;
        self.note_left(c, log);
        if self.is_zoned() && self.cursegs.left.of(log) == 0 {
            self.write_io.filled(start);
        }
        // Without a segment to go to, the log stays at its last block. Blocks that were allocated are the
        // caller's all the same: lost, they would be a gap in a zone. The next to allocate meets the error
        // again, with nothing allocated.
        if self.move_on(c, log).is_err() && log.kind == Log::WarmNode {
            self.cursegs.chain_broken.store(true, Relaxed);
        }
        self.cursegs.allocated.fetch_add(n as u64, Relaxed);
        let next = match c.next_blkoff {
            at if at < self.sit.usable(c.segno) as usize => self.sit.segment_start(c.segno).plus(at as u32),
            _ => BlockAddr::NULL,
        };
        Ok(Allocated { log, start, blocks: n, next })
    }

    /// Has a log that something was allocated from stand where it goes on.
    fn move_on(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        let room = self.advance(c)?;
        match room == 0 {
            true if log.is_extra() => self.next_of_stream(c, log),
            true => self.next_segment(c, log),
            false => Ok(()),
        }
    }

    /// Takes a log to another segment, whatever room is left in its own.
    ///
    /// # Errors
    /// `NoSpace` when there is none to go to.
    pub(crate) fn leave_segment(&self, log: Log) -> Result<()> {
        self.next_segment(&mut self.cursegs.lock(log), log.into())
    }

    /// Has a log go on in its own segment, in the holes that are left.
    pub(crate) fn stay_in_holes(&self, log: Log) -> Result<()> {
        let mut c = self.cursegs.lock(log);
        c.ssr = true;
        // A log that fills holes is taken to have found the rest in the SSA.
        self.meta.write(self.sb.ssa_blkaddr + c.segno.0, PageBuf::from_slice(c.sum.as_bytes()));
        self.advance(&mut c).map(drop)
    }

    /// How many blocks follow `next_blkoff` in one piece.
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

    /// Moves an SSR log on to its next hole; how much room there is.
    fn advance(&self, c: &mut Curseg) -> Result<u32> {
        if c.ssr && c.next_blkoff < BLOCKS_PER_SEG as usize {
            c.next_blkoff = match self.sit.writable_run(c.segno, c.next_blkoff)? {
                Some((at, _)) => at,
                None => BLOCKS_PER_SEG as usize,
            };
        }
        self.room(c)
    }

    /// Takes the log to another segment: a free one, or while those are short, one with holes.
    fn next_segment(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        let free = self.sit.free_segments().free;
        let fills_holes = self.alloc_mode() == AllocMode::Adaptive && free <= self.ssr_threshold();
        // Rather a hole than no checkpoint, whatever the mode. A zone has no holes.
        let holes = match (fills_holes || free == 0) && !self.is_zoned() {
            true => self.fill_holes(c, log),
            false => Ok(false),
        };
        if let Ok(true) = holes {
            return Ok(());
        }
        let goes_on = self.room(c)? == 0 && !self.write_io.is_bad(self.sit.segment_start(c.segno));
        let Some(seg) = self.sit.take_free(log, true, goes_on)? else {
            return Err(holes.err().unwrap_or_else(|| Error::new(ErrorKind::NoSpace, "no free segment")));
        };
        self.enter(c, log, seg, 0, false, Box::new(RawSummaryBlock::new_zeroed()));
        Ok(())
    }

    /// Takes the log to the holes of a segment in use; false when none has any. A segment whose owners cannot be
    /// read is passed over. On an error the log is where it was, in the SIT as here.
    ///
    /// # Errors
    /// Where nothing else has holes: that of the first that was passed over. Those of reading the SIT.
    fn fill_holes(&self, c: &mut Curseg, log: LogId) -> Result<bool> {
        let mut passed_over = None;
        while let Some(seg) = self.sit.hold_victim(log)? {
            // First, as it may fail.
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
    fn stored_summary(&self, seg: SegNo) -> Result<Box<RawSummaryBlock>> {
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

    /// Moves logs on whose segment is full. For the checkpoint, which must name a next block for each.
    pub(crate) fn settle_logs(&self, umount: bool) -> Result<()> {
        for log in Log::ALL {
            let mut c = self.cursegs.lock(log);
            if self.room(&c)? == 0 {
                self.next_segment(&mut c, log.into())?;
            }
        }
        self.settle_streams(umount)
    }

    /// Puts the owners of blocks into the SSA. Journals travel in the checkpoint pack only.
    pub(super) fn store_summary(&self, c: &Curseg) {
        if c.segno != SegNo::NONE {
            self.meta.write(self.sb.ssa_blkaddr + c.segno.0, PageBuf::from_slice(c.sum.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests;
