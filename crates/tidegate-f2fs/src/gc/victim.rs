//! The choice of the next section to clean.

use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::tables::sit::Sit;
use std::collections::BTreeSet;
use std::ops::Range;
use tidegate_vfs::Result;

/// Segments that one hold of the lock looks at.
const SCAN: u32 = 4096;
/// Sections that a search looks at in any case, even after it found one with stale blocks.
const FEWEST: u32 = 256;
/// A section with a larger share of valid blocks, in percent, is cleaned only when room is short.
const TOO_FULL: u64 = 90;

/// After this many refusals to clean because it is futile, skipped sections are tried again.
const RETRY_FUTILE: u32 = 64;

/// The policy for the choice of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// The section with the fewest valid blocks: a thread waits.
    Greedy,
    /// A section with few valid blocks that have not changed for long: cold blocks stay where they are moved.
    CostBenefit,
}

/// The figures of a volume that decide whether cleaning can gain anything.
#[derive(Debug)]
pub(super) struct Prospects {
    /// Free segments, those that the next checkpoint frees included.
    pub free: u32,
    pub after: u32,
    /// Stale blocks in other segments.
    pub stale: u64,
    /// Blocks of nodes and directories that the next checkpoint writes.
    pub dirty: u64,
    /// A checkpoint would take nearly all free segments.
    pub tight: bool,
}

impl Prospects {
    /// Whether there is little more to gain than `then`, and no less to gain it with. A checkpoint that moves
    /// nodes, or an fsync, changes all figures by a few blocks.
    fn is_hardly_better_than(&self, then: &Prospects) -> bool {
        let little = BLOCKS_PER_SEG as u64 / if self.tight { 8 } else { 1 };
        self.free >= then.free
            && self.after <= then.after
            && self.stale < then.stale + little
            && self.dirty < then.dirty + little
    }
}

/// A section to clean, and its cost.
type Best = Option<(u64, Range<u32>)>;

/// A cleaner's notes from one search to the next.
pub(super) struct Victims {
    hint: u32,
    /// Segments that one hold of the lock looks at, and sections that a search looks at in any case.
    pub(super) scan: (u32, u32),
    /// A search of all sections found none that promises to stay clean, when this many blocks had been freed.
    none_after: Option<u64>,
    /// Oldest and newest modification time seen, in seconds of the volume's life.
    mtimes: Option<(u64, u64)>,
    /// Sections that could not be emptied.
    skipped: BTreeSet<u32>,
    calls: u32,
    /// Times that cleaning was refused because it is futile.
    refusals: u32,
    /// The figures when nothing could be gained.
    pub(super) futile: Option<Prospects>,
}

impl Default for Victims {
    fn default() -> Self {
        Victims {
            hint: 0,
            scan: (SCAN, FEWEST),
            none_after: None,
            mtimes: None,
            skipped: BTreeSet::new(),
            calls: 0,
            refusals: 0,
            futile: None,
        }
    }
}

impl Victims {
    /// Begins the search for a new caller. After `retry_after` calls, sections that could not be emptied are
    /// tried again.
    pub(super) fn begin(&mut self, retry_after: u32) {
        self.calls += 1;
        if self.calls >= retry_after {
            self.calls = 0;
            self.retry();
        }
    }

    /// Whether cleaning gained nothing and would gain nothing again. After enough such answers, sections that
    /// could not be emptied are tried again.
    pub(super) fn is_futile(&mut self, now: &Prospects) -> bool {
        if !self.futile.as_ref().is_some_and(|then| now.is_hardly_better_than(then)) {
            return false;
        }
        self.refusals += 1;
        let again = self.refusals.is_multiple_of(RETRY_FUTILE) && !self.skipped.is_empty();
        if again {
            self.retry();
        }
        !again
    }

    /// Makes sections that could not be emptied eligible again.
    fn retry(&mut self) {
        self.skipped.clear();
        self.none_after = None;
    }

    /// Called after the checkpoint behind cleaning: a section that is not empty now is left alone for a
    /// while.
    pub(super) fn judge(&mut self, sit: &Sit, cleaned: &[Range<u32>]) -> Result<()> {
        for section in cleaned {
            if sit.valid_blocks(section.clone())? > 0 {
                self.skipped.insert(section.start);
            }
        }
        Ok(())
    }

    /// The best section to clean among some of the volume's: no log fills its holes until it is released.
    /// `None` when no section of the volume has stale blocks that are worth cleaning. Takes `sentry_lock`,
    /// for some segments at a time.
    pub(super) fn pick(&mut self, sit: &Sit, policy: Policy) -> Result<Option<Range<u32>>> {
        let freed = sit.blocks_freed();
        let known = |then: u64| freed < then + u64::from(BLOCKS_PER_SEG);
        if policy == Policy::CostBenefit && self.none_after.is_some_and(known) {
            return Ok(None);
        }
        let sections = sit.main_segments / sit.segs_per_sec;
        let (stretch, fewest) = (self.scan.0.div_ceil(sit.segs_per_sec), self.scan.1);
        let (mut best, mut seen) = (None, 0);
        while seen < sections && (best.is_none() || seen < fewest) {
            let looked = self.look(sit, policy, stretch.min(sections - seen), &mut best);
            self.hint = (self.hint + stretch) % sections;
            seen += stretch;
            if let Err(e) = looked {
                best.iter().for_each(|b| sit.release(&b.1));
                return Err(e);
            }
        }
        if policy == Policy::CostBenefit {
            self.none_after = best.is_none().then_some(freed);
        }
        Ok(best.map(|b| b.1))
    }

    /// Looks for a better section among the next `n`. The best section is kept from the logs.
    fn look(&mut self, sit: &Sit, policy: Policy, n: u32, best: &mut Best) -> Result<()> {
        let mut s = sit.state.lock();
        let (per, sections) = (sit.segs_per_sec, sit.main_segments / sit.segs_per_sec);
        let (mut i, mut better) = (0, None);
        while i < n {
            let number = (self.hint + i) % sections;
            let settled = s.stale.settled_from(number);
            i += settled.max(1);
            let section = number * per..(number + 1) * per;
            let is_out = self.skipped.contains(&section.start) || section.clone().any(|x| s.is_taken(x));
            if settled > 0 || is_out {
                continue;
            }
            let all: u32 = section.clone().map(|n| sit.usable(SegNo(n))).sum();
            let (mut valid, mut mtime) = (0, 0);
            for segno in section.clone() {
                let e = sit.entry(&mut s, segno)?;
                valid += e.valid as u64;
                mtime += e.mtime;
            }
            if valid == 0 || valid == u64::from(all) {
                s.stale.settle(number);
                continue;
            }
            let utilisation = valid * 100 / u64::from(all.max(1));
            let Some(cost) = self.cost(policy, utilisation, valid, mtime / per as u64) else { continue };
            if better.as_ref().or(best.as_ref()).is_none_or(|b: &(u64, _)| cost < b.0) {
                better = Some((cost, section));
            }
        }
        if let Some(better) = better {
            s.cleaning.extend(better.1.clone());
            if let Some((_, old)) = best.replace(better) {
                s.cleaning.retain(|x| !old.contains(x));
            }
        }
        Ok(())
    }

    /// The cost of cleaning a section; less is better.
    fn cost(&mut self, policy: Policy, utilisation: u64, valid: u64, mtime: u64) -> Option<u64> {
        let (oldest, newest) = self.mtimes.unwrap_or((mtime, mtime));
        let (oldest, newest) = (oldest.min(mtime), newest.max(mtime));
        self.mtimes = Some((oldest, newest));
        match policy {
            Policy::Greedy => Some(valid),
            Policy::CostBenefit if utilisation > TOO_FULL => None,
            Policy::CostBenefit => {
                let age = match newest - oldest {
                    0 => 0,
                    span => 100 - 100 * (mtime - oldest) / span,
                };
                Some(u32::MAX as u64 - 100 * (100 - utilisation) * (age + 1) / (100 + utilisation))
            }
        }
    }
}

impl Sit {
    /// Lets logs use a cleaned section again.
    pub(super) fn release(&self, section: &Range<u32>) {
        let mut s = self.state.lock();
        s.cleaning.retain(|x| !section.contains(x));
        s.stale.opened();
    }

    /// Valid blocks in a range of segments.
    pub(crate) fn valid_blocks(&self, range: Range<u32>) -> Result<u32> {
        let mut s = self.state.lock();
        range.map(|n| Ok(self.entry(&mut s, n)?.valid as u32)).sum()
    }
}
