//! Shrinks a failure: fewer operations, then fewer missing blocks.

use crate::base::Base;
use crate::ops::Step;
use crate::recover::{Depth, inspect};
use crate::run::{Manner, Recording, record};
use crate::state::{Amount, State, states};
use crate::{Fault, Settings};
use tidegate_rt::clock;
use tidegate_rt::rng::Rng;

/// A shrunk run that breaks a promise.
pub struct Short {
    /// The operations.
    pub steps: Vec<Step>,
    /// The promise that is broken.
    pub fault: Fault,
    /// The power cut in words, if the failure needs one.
    pub state: Option<String>,
}

/// The most states that are tried of each shorter run.
const TRIES: Amount = Amount { boundaries: 40, prefixes: 80, subsets: 80 };
/// A shorter run gets at most this fraction of the time.
const PARTS: u64 = 30;

/// Drops what a failure does not need, for at most `seconds`.
pub fn shrink(
    base: &Base,
    steps: &[Step],
    manner: Manner,
    depth: Depth,
    first: Failure,
    settings: &Settings,
    seconds: u64,
) -> Short {
    let nanos = seconds * 1_000_000_000;
    let (until, part) = (clock::now().0 + nanos, nanos / PARTS);
    let mut tries = TRIES;
    let mut steps = steps.to_vec();
    if let Some((run, state)) = &first.1 {
        // An operation that had not begun plays no part in the failure.
        let begun = run.spans.iter().take_while(|s| s.0 <= state.cut).count();
        steps.truncate(begun);
        if state.missing(&run.tape).is_empty() {
            tries.subsets = 0;
        }
    }
    let mut s = Shrinker { base, manner, depth, settings, tries, until, part };
    let mut best = (steps, first.0, first.1);
    let mut size = (best.0.len() / 2).max(1);
    loop {
        let mut at = 0;
        while at < best.0.len() && !s.late() {
            let mut fewer = best.0.clone();
            fewer.drain(at..(at + size).min(best.0.len()));
            match s.fails(&fewer, best.1.promise) {
                Some((fault, cut)) => best = (fewer, fault, cut),
                None => at += size,
            }
        }
        if size == 1 || s.late() {
            break;
        }
        size /= 2;
    }
    let (steps, fault, cut) = best;
    let (fault, state) = match cut {
        Some((run, state)) => {
            let (fault, state) = s.fewer_missing(&run, fault, state);
            let text = state.describe(&run.tape);
            (fault, Some(text))
        }
        None => (fault, None),
    };
    Short { steps, fault, state }
}

struct Shrinker<'a> {
    base: &'a Base,
    manner: Manner,
    depth: Depth,
    settings: &'a Settings,
    tries: Amount,
    until: u64,
    part: u64,
}

/// The broken promise, and the power cut that broke it, if there was one.
pub type Failure = (Fault, Option<(Recording, State)>);

impl Shrinker<'_> {
    fn late(&self) -> bool {
        clock::now().0 > self.until
    }

    /// How a run breaks the promise, if it does.
    fn fails(&mut self, steps: &[Step], promise: &str) -> Option<Failure> {
        let run = match record(self.base, steps, self.manner, self.settings) {
            Ok(run) => run,
            Err(fault) => return (fault.promise == promise).then_some((fault, None)),
        };
        let mut rng = Rng::new(1);
        let mut all = states(&run.tape, &mut rng, self.tries, 0, run.end);
        all.sort_by_cached_key(|_| rng.bits());
        let until = clock::now().0 + self.part;
        for state in all {
            if self.late() || clock::now().0 > until {
                break;
            }
            match inspect(&run, &state, self.depth, self.settings) {
                Err(fault) if fault.promise == promise => return Some((fault, Some((run, state)))),
                _ => {}
            }
        }
        None
    }

    /// Adds missing blocks as long as the promise stays broken.
    fn fewer_missing(&mut self, run: &Recording, mut fault: Fault, mut state: State) -> (Fault, State) {
        let mut size = state.missing(&run.tape).len();
        while size > 0 && !self.late() {
            let missing = state.missing(&run.tape);
            for part in missing.chunks(size) {
                let mut more = state.clone();
                more.present.extend(part);
                more.present.sort_unstable();
                match inspect(run, &more, self.depth, self.settings) {
                    Err(f) if f.promise == fault.promise => (fault, state) = (f, more),
                    _ => {}
                }
            }
            size /= 2;
        }
        (fault, state)
    }
}
