//! The possible states after a power cut: the moments, and the unflushed blocks at each.

use crate::tape::{Tape, Unit};
use crate::zones::OnZones;
use std::collections::BTreeSet;
use tidegate_block::Overlay;
use tidegate_rt::rng::Rng;

/// The content of the medium after a power cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The event before which power failed.
    pub cut: u64,
    /// The event at which the last completed flush began.
    pub flushed: u64,
    /// The later blocks that are on the medium; later ones lie over earlier ones.
    pub present: Vec<Unit>,
}

/// The most states of each kind that are made of one tape.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Cuts right behind a flush.
    pub boundaries: usize,
    /// Cuts behind a request; all requests before the cut are on the medium.
    pub prefixes: usize,
    /// Random choices.
    pub subsets: usize,
}

impl State {
    /// The content of the device.
    pub fn table(&self, tape: &Tape) -> Vec<u32> {
        tape.table(self.cut, self.flushed, &self.present)
    }

    /// The content of the device, and the write pointers of its zones.
    pub fn medium(&self, tape: &Tape) -> (Vec<u32>, OnZones) {
        tape.medium(self.cut, self.flushed, &self.present)
    }

    /// A device with that content.
    pub fn image(&self, tape: &Tape) -> Overlay {
        Overlay::new(tape.blocks.clone(), self.table(tape))
    }

    /// Everything submitted before `cut` is on the medium.
    fn all(tape: &Tape, cut: u64) -> State {
        let flushed = tape.flushed(cut);
        State { cut, flushed, present: tape.volatile(cut, flushed) }
    }

    /// Nothing is on the medium but the durable blocks.
    fn none(tape: &Tape, cut: u64) -> State {
        State { cut, flushed: tape.flushed(cut), present: Vec::new() }
    }

    /// The blocks that could be on the medium and are not.
    pub fn missing(&self, tape: &Tape) -> Vec<Unit> {
        let mut v = tape.volatile(self.cut, self.flushed);
        v.retain(|u| !self.present.contains(u));
        v
    }

    /// Describes the cut and the missing blocks.
    pub fn describe(&self, tape: &Tape) -> String {
        let missing = self.missing(tape);
        let mut text = format!("power cut at event {}", self.cut);
        let mut at = 0;
        while at < missing.len() {
            let first = missing[at];
            let run = missing[at..].iter().enumerate();
            let n = run
                .take_while(|(i, u)| u.change == first.change && u.block == first.block + *i as u32)
                .count();
            let c = &tape.changes[first.change as usize];
            let kind = match (c.content, c.meta) {
                (None, _) => "discard",
                (_, true) => "metadata",
                (_, false) => "main area",
            };
            text += &format!(
                "\n  missing: request {} ({kind}, blocks {}+{}): block {} and {} behind it",
                first.change,
                c.block,
                c.count,
                first.block,
                n - 1
            );
            at += n;
        }
        if missing.is_empty() { text + ", nothing missing" } else { text }
    }
}

/// The states of a tape for cuts from event `from` to event `to`, each once.
pub fn states(tape: &Tape, rng: &mut Rng, amount: Amount, from: u64, to: u64) -> Vec<State> {
    let to = to.min(tape.end());
    let mut out = Vec::new();
    let inside = |c: &u64| (from..=to).contains(c);
    let flushes = tape.changes.iter().filter(|c| c.flushes || c.fua);
    let ends: Vec<u64> = flushes.map(|c| c.completed).filter(|e| *e < u64::MAX).collect();
    for end in sample(rng, &ends, amount.boundaries).into_iter().filter(inside) {
        out.extend([State::none(tape, end), State::all(tape, end + 1), State::none(tape, end + 1)]);
    }
    let mut begins: Vec<u64> = tape.changes.iter().map(|c| c.submitted + 1).filter(inside).collect();
    begins.push(to);
    out.extend(sample(rng, &begins, amount.prefixes).into_iter().map(|cut| State::all(tape, cut)));
    let cuts = Cuts { begins, ends, end: to };
    out.extend((0..amount.subsets).map(|_| subset(tape, rng, &cuts)));
    let mut seen = BTreeSet::new();
    out.retain(|s| inside(&s.cut) && seen.insert((s.cut, s.table(tape))));
    out
}

/// All elements of `of` if they are at most `n`; else `n` of them, in order.
fn sample(rng: &mut Rng, of: &[u64], n: usize) -> Vec<u64> {
    if of.len() <= n {
        return of.to_vec();
    }
    let mut v: Vec<u64> = (0..n).map(|_| *rng.pick(of)).collect();
    v.sort_unstable();
    v
}

/// Moments worth cutting at.
struct Cuts {
    begins: Vec<u64>,
    ends: Vec<u64>,
    end: u64,
}

impl Cuts {
    fn pick(&self, rng: &mut Rng) -> u64 {
        match rng.below(4) {
            // Just before a flush, when most blocks are volatile.
            0 if !self.ends.is_empty() => rng.pick(&self.ends).saturating_sub(rng.below(3)),
            1 => self.end,
            _ => *rng.pick(&self.begins) + rng.below(2),
        }
    }
}

fn subset(tape: &Tape, rng: &mut Rng, cuts: &Cuts) -> State {
    let cut = cuts.pick(rng);
    let mut flushed = tape.flushed(cut);
    if let Some(&f) = tape.flushing(cut).last()
        && rng.one_in(2)
    {
        flushed = flushed.max(tape.changes[f as usize].submitted);
    }
    let mut present = tape.volatile(cut, flushed);
    choose(tape, rng, &mut present);
    if rng.one_in(4) {
        present.reverse(); // where two overlap, the earlier one lies on top
    }
    State { cut, flushed, present }
}

/// Leaves some units out, in one of the ways that find bugs.
fn choose(tape: &Tape, rng: &mut Rng, units: &mut Vec<Unit>) {
    if units.is_empty() {
        return;
    }
    let one = *rng.pick(units);
    let last = units[units.len() - 1];
    let meta = |u: &Unit| tape.changes[u.change as usize].meta;
    match rng.below(11) {
        0 => units.retain(|u| *u != one),
        1 => units.retain(|u| u.change != one.change),
        2 => units.retain(|u| *u == one),
        3 => units.retain(|u| u.change == one.change),
        4 => units.retain(meta),
        5 => units.retain(|u| !meta(u)),
        6 => units.retain(|u| u.change != last.change),
        // Torn: one change reached the medium in part, all others completely.
        7 => units.retain(|u| u.change != one.change || u.block <= one.block),
        8 => units.retain(|u| u.change != one.change || rng.one_in(2)),
        9 => {
            let salt = rng.clone();
            units.retain(|u| salt.fork(u.change as u64).one_in(2));
        }
        _ => {
            let n = *rng.pick(&[2, 2, 2, 8, 20]);
            let rare = rng.one_in(2);
            units.retain(|_| rng.one_in(n) == rare);
        }
    }
}
