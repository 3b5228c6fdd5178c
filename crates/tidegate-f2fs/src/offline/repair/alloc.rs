//! New places for blocks, which neither the last checkpoint, nor the walk, nor the chain behind the
//! checkpoint uses.

use super::Repair;
use super::claim::{HAS_DATA, HAS_NODES, Owner};
use super::map;
use super::pack::{Log, empty};
use crate::format::raw::*;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// The log that new directory blocks go to.
pub(super) const HOT_DATA: usize = 0;
/// The log that directories' inodes go to.
pub(super) const HOT_NODE: usize = 3;
/// The log that other nodes go to.
pub(super) const WARM_NODE: usize = 4;

impl Repair<'_, '_> {
    /// A block for `owner` from log `kind`.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn alloc(&mut self, kind: usize, owner: Owner) -> Result<u32> {
        if !self.can_write(self.logs[kind]) {
            self.next_segment(kind)?;
        }
        let log = self.logs[kind];
        let addr = self.segment_start(log.segno) + log.next;
        self.own(addr, owner);
        self.took(log.segno, log.next);
        let sum = self.summary_for(owner);
        self.put_summary(addr, sum, owner.slot.is_none(), false)?;
        let from = log.next + 1;
        let next = if log.appends { from } else { self.gap(log.segno, from).unwrap_or(BLOCKS_PER_SEG) };
        self.logs[kind].next = next;
        Ok(addr)
    }

    /// Makes sure that each log can go on where the new checkpoint will say.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn mend_logs(&mut self, told: bool) -> Result<()> {
        for kind in 0..NR_CURSEG_TYPE {
            let was = self.logs[kind];
            if self.fits(kind, was) {
                continue;
            }
            self.next_segment(kind)?;
            if told {
                let show = |l: Log| format!("segment {} block {}", l.segno, l.next);
                self.change("checkpoint", format!("log {kind}"), show(was), show(self.logs[kind]));
            }
        }
        Ok(())
    }

    pub(super) fn segment_start(&self, segno: u32) -> u32 {
        self.sb.main_blkaddr + segno * BLOCKS_PER_SEG
    }

    fn is_used(&self, segno: u32, n: u32) -> bool {
        self.usage.used.get(segno * BLOCKS_PER_SEG + n)
    }

    /// Whether the log's next block may be written now.
    fn can_write(&self, log: Log) -> bool {
        log.next < BLOCKS_PER_SEG && self.is_gap(log.segno, log.next) && self.takes(log.segno, log.next)
    }

    fn is_gap(&self, segno: u32, n: u32) -> bool {
        let addr = self.segment_start(segno) + n;
        !self.is_used(segno, n) && !self.was_valid(addr) && !self.referred.get(addr - self.sb.main_blkaddr)
    }

    /// The first block from `from` on that is free in the old and the new checkpoint.
    fn gap(&self, segno: u32, from: u32) -> Option<u32> {
        (from..BLOCKS_PER_SEG).find(|n| self.is_gap(segno, *n))
    }

    /// Whether a log can stay where it is.
    fn fits(&self, kind: usize, log: Log) -> bool {
        let end = if log.appends { BLOCKS_PER_SEG } else { log.next + 1 };
        log.next < BLOCKS_PER_SEG
            && self.usage.kinds[log.segno as usize] & !holds(kind) == 0
            && (log.next..end).all(|n| !self.is_used(log.segno, n))
            && self.fits_zone(log)
    }

    /// Moves log `kind` on to a free segment, or to a segment with gaps.
    fn next_segment(&mut self, kind: usize) -> Result<()> {
        let old = self.logs[kind].segno;
        let found = match self.zones {
            Some(_) => self.next_in_zones(self.logs[kind]),
            None => self.free_segment(old).or_else(|| self.gappy_segment(kind)),
        };
        let log = found.ok_or_else(|| Error::new(ErrorKind::NoSpace, "no free block for the repair"))?;
        if let Some((sums, _)) = self.summaries.remove(&old) {
            let node = self.usage.kinds[old as usize] & HAS_NODES != 0;
            self.put_ssa(old, &sums, node)?;
        }
        let mut sums = empty();
        if !log.appends {
            let block = self.disk_summaries(log.segno)?;
            for (sum, raw) in sums.iter_mut().zip(block.chunks_exact(SUMMARY_SIZE)) {
                *sum = RawSummary::read_from_bytes(raw).unwrap_or_default();
            }
        }
        self.summaries.insert(log.segno, (sums, false));
        self.logs[kind] = log;
        Ok(())
    }

    fn free_segment(&self, hint: u32) -> Option<Log> {
        let n = self.sb.main_segments;
        let mut all = (1..=n).map(|i| ((hint as u64 + i as u64) % n as u64) as u32);
        all.find(|s| self.is_free_segment(*s)).map(|segno| Log { segno, next: 0, appends: true })
    }

    fn gappy_segment(&self, kind: usize) -> Option<Log> {
        let node = |kind: usize| kind >= NR_CURSEG_DATA_TYPE;
        let good = |s: &u32| {
            !self.is_log(*s)
                && self.usage.kinds[*s as usize] == holds(kind)
                && node(map::kind(&self.sit[*s as usize])) == node(kind)
        };
        let mut all = (0..self.sb.main_segments).filter(good);
        all.find_map(|segno| Some(Log { segno, next: self.gap(segno, 0)?, appends: false }))
    }
}

/// The kind of blocks in segments of log `kind`.
pub(super) fn holds(kind: usize) -> u8 {
    if kind < NR_CURSEG_DATA_TYPE { HAS_DATA } else { HAS_NODES }
}
