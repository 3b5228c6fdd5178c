//! Discards: the device is told which blocks hold nothing.
//!
//! A discard in flight must never meet a write to the same blocks. Blocks are written only by logs, and a log
//! gets blocks only in the segment it is in. So a segment is held (`SitState::busy`, under `sentry_lock`,
//! while no log is in it) before its blocks are looked at, and released when the device has answered; no log
//! enters it meanwhile. Earlier writes to the blocks are over: the checkpoint that freed the blocks waited
//! for all of them.

use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::tables::sit::Sit;
use crate::volume::sbi::F2fs;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tidegate_block::{Bio, Errno};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Segments discarded in one round.
const BATCH: usize = 16;

impl Sit {
    /// Holds up to `max` segments of `among`, in ascending order, that are wholly free and that no log is in.
    /// Takes them off the list, and also takes off the segments that are not free any more, or whose state cannot be read.
    fn hold_free(&self, among: &mut BTreeSet<u32>, max: usize) -> Vec<u32> {
        let mut s = self.state.lock();
        let mut held = Vec::new();
        while held.len() < max {
            let Some(segno) = among.pop_first() else { break };
            match self.is_free(&mut s, segno) {
                Ok(true) => {
                    s.busy.insert(segno);
                    held.push(segno);
                }
                Ok(false) => {}
                // Those that are held must be released again, so that they are returned all the same.
                Err(_) => break,
            }
        }
        held
    }

    /// Holds a segment that no log is in; returns its runs of blocks that are free now and in the checkpoint.
    fn hold_holes(&self, segno: u32) -> Result<Option<Vec<Range<usize>>>> {
        let mut s = self.state.lock();
        if s.is_taken(segno) {
            return Ok(None);
        }
        let e = self.entry(&mut s, segno)?;
        let free = |i: usize| !test_bit_msb(&e.map, i) && !test_bit_msb(&e.ckpt_map, i);
        let mut runs: Vec<Range<usize>> = Vec::new();
        for i in (0..BLOCKS_PER_SEG as usize).filter(|i| free(*i)) {
            match runs.last_mut() {
                Some(r) if r.end == i => r.end += 1,
                _ => runs.push(i..i + 1),
            }
        }
        s.busy.insert(segno);
        Ok(Some(runs))
    }
}

impl Sit {
    /// Releases discarded segments to the logs.
    fn discarded(&self, segments: &[u32]) {
        let mut s = self.state.lock();
        s.busy.retain(|n| !segments.contains(n));
        s.stale.opened();
        self.released.notify_all();
    }
}

impl F2fs {
    /// Called after a checkpoint: the thread discards the freed segments, or resets the freed zones, so that
    /// no thread waits for that after its checkpoint. Without the thread, a volume whose bytes must not
    /// depend on the clock does this at once.
    pub(crate) fn discard_freed(&self) {
        if self.is_zoned() {
            self.gc.to_discard.lock().clear();
            if !self.gc.wake_for_zones() {
                self.reset_zones();
            }
            return;
        }
        if !self.gc.wake_for_discards() && self.gc.deterministic {
            while self.discard_some() {}
        }
    }

    /// Discards freed segments now, even if other bios want the device: a user of the device below is short
    /// of space.
    pub fn discard_now(&self) {
        if self.is_zoned() {
            return;
        }
        while self.discard_some() {}
    }

    /// At unmount: discards all segments on the list, or resets the zones that are free.
    pub(crate) fn discard_all_freed(&self) {
        if self.is_zoned() {
            self.reset_zones();
        }
        while !self.is_zoned() && !self.gc.to_discard.lock().is_empty() && self.discard_batch(BATCH) {}
    }

    /// Discards some of the freed segments, as many as logs can spare for a moment; true if there may be
    /// more.
    pub(crate) fn discard_some(&self) -> bool {
        let spare = self.sit.free_segments().free.saturating_sub(self.ssr_threshold()) / 2;
        spare > 0 && self.discard_batch(BATCH.min(spare as usize))
    }

    fn discard_batch(&self, max: usize) -> bool {
        if !self.switches.discard() || self.gc.discard_refused.load(SeqCst) {
            self.gc.to_discard.lock().clear();
            return false;
        }
        let held = {
            let mut list = std::mem::take(&mut *self.gc.to_discard.lock());
            let held = self.sit.hold_free(&mut list, max);
            self.gc.to_discard.lock().append(&mut list);
            held
        };
        let mut at = 0;
        while at < held.len() {
            let n = (1..held.len() - at).take_while(|i| held[at + i] == held[at] + *i as u32).count() + 1;
            // A device that fails here has lost nothing of value.
            let _ = self.send_discard(self.sit.segment_start(SegNo(held[at])), n as u32 * BLOCKS_PER_SEG);
            at += n;
        }
        self.sit.discarded(&held);
        !held.is_empty()
    }

    /// Discards `blocks` blocks from `start` and waits.
    fn send_discard(&self, start: BlockAddr, blocks: u32) -> Result<()> {
        let bytes = blocks as u64 * BLOCK_SIZE as u64;
        match self.queue.submit_wait(Bio::discard(start.sector(), bytes)) {
            Ok(_) => {
                self.stats.discarded.fetch_add(bytes, Relaxed);
                Ok(())
            }
            Err(Errno::OPNOTSUPP) => {
                self.gc.discard_refused.store(true, SeqCst);
                Err(Error::new(ErrorKind::Unsupported, "the device takes no discards"))
            }
            Err(e) => Err(Error::device(e, format!("discarding {blocks} blocks from {start}"))),
        }
    }

    /// FITRIM: discards every run of at least `minlen` free bytes within the byte range `range` of the
    /// volume, and returns the number of bytes discarded. It leaves alone blocks that only the last
    /// checkpoint still uses, and segments that logs are in. No lock held; takes `sentry_lock`.
    ///
    /// # Errors
    /// `ReadOnly`, `Unsupported` when the device takes no discards, those of the device.
    pub fn trim(&self, range: Range<u64>, minlen: u64) -> Result<u64> {
        self.check_writable()?;
        if self.is_zoned() {
            return Ok(self.reset_zones());
        }
        if self.gc.discard_refused.load(SeqCst) {
            return Err(Error::new(ErrorKind::Unsupported, "the device takes no discards"));
        }
        let blocks = BLOCK_SIZE as u64;
        let (first, end) = (range.start.div_ceil(blocks), range.end / blocks);
        let minimum = minlen.div_ceil(blocks).max(1);
        let mut trimmed = 0;
        for segno in 0..self.sb.main_segments {
            let start = self.sit.segment_start(SegNo(segno)).0 as u64;
            if start >= end || start + BLOCKS_PER_SEG as u64 <= first {
                continue;
            }
            let Some(runs) = self.sit.hold_holes(segno)? else { continue };
            let sent = runs.into_iter().try_for_each(|r| {
                let (a, b) = ((start + r.start as u64).max(first), (start + r.end as u64).min(end));
                if b < a + minimum {
                    return Ok(());
                }
                trimmed += (b - a) * blocks;
                self.send_discard(BlockAddr(a as u32), (b - a) as u32)
            });
            self.sit.discarded(&[segno]);
            sent?;
        }
        Ok(trimmed)
    }
}
