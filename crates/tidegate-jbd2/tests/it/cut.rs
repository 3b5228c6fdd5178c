//! The states of a recorded run after a power cut.

use crate::image::Chance;
use tidegate_block::{BioFlags, Op, Record};

/// A device's content before a run, and the run's requests.
pub struct Tape {
    pub base: Vec<u8>,
    pub records: Vec<Record>,
    /// Bytes that are written as a whole or not at all.
    pub unit: usize,
}

fn end(r: &Record) -> u64 {
    r.completed.unwrap_or(u64::MAX)
}

fn flushes(r: &Record) -> bool {
    r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH)
}

impl Tape {
    /// The event behind the last one.
    pub fn end(&self) -> u64 {
        self.records.iter().map(|r| r.completed.unwrap_or(r.submitted)).max().map_or(0, |e| e + 1)
    }

    /// One of the states that a cut before event `cut` may leave. Requests that were complete when a
    /// completed flush began are there, and so are completed ones with FUA; of the others any unit may be
    /// there.
    pub fn image(&self, cut: u64, chance: &mut Chance) -> Vec<u8> {
        let all: Vec<&Record> = self.records.iter().filter(|r| r.submitted < cut).collect();
        let mut flushed = all.iter().filter(|r| flushes(r) && end(r) < cut).map(|r| r.submitted).max();
        // A write with a preceding flush is there only if that flush is done.
        let behind = all.iter().copied().filter(|r| flushes(r) && end(r) >= cut);
        let behind: Vec<&Record> = behind.collect();
        if !behind.is_empty() && chance.one_in(2) {
            flushed = flushed.max(Some(chance.0.pick(&behind).submitted));
        }
        let flushed = flushed.unwrap_or(0);
        let durable = |r: &Record| end(r) < flushed || (r.flags.contains(BioFlags::FUA) && end(r) < cut);
        let mut image = self.base.clone();
        let keep = chance.below(4);
        let writes: Vec<&Record> = all.iter().copied().filter(|r| r.op == Op::Write).collect();
        for unit in 0..image.len() / self.unit {
            let at = unit * self.unit;
            let covers = |r: &Record| {
                let from = r.sector.bytes() as usize;
                (from..from + r.data.len()).contains(&at)
            };
            let here: Vec<&Record> = writes.iter().copied().filter(|r| covers(r)).collect();
            let settled = here.iter().copied().filter(|r| durable(r)).max_by_key(|r| end(r));
            let mut newest = settled;
            for r in here.iter().copied().filter(|r| !durable(r)) {
                let over = settled.is_some_and(|s| end(r) < s.submitted);
                let waits = flushes(r) && end(r) >= cut && r.submitted > flushed;
                if !over && !waits && (keep == 0 || chance.one_in(keep + 1)) {
                    newest = Some(r);
                }
            }
            if let Some(r) = newest {
                let from = at - r.sector.bytes() as usize;
                image[at..at + self.unit].copy_from_slice(&r.data[from..from + self.unit]);
            }
        }
        image
    }
}
