//! One workload on several targets, in rounds.

use super::contestant::Contestant;
use super::observer::{Looked, Observer, folded, watch};
use super::outcome::{Case, Counted, Measured, Outcome, Position};
use super::rounds::Rounds;
use super::{Opening, conditions};
use crate::error::{Error, Result};
use crate::result::RunResult;
use crate::workload::Spec;
use tidegate::observe::{Observed, Wanted};

/// The name of a race among outcomes.
const EXPERIMENT: &str = "compare";

/// A participant of a race.
#[derive(Clone, Debug)]
pub(super) struct Entrant<'a> {
    pub name: String,
    pub target: &'a Contestant,
    pub opening: Opening,
}

/// The figure of a run that is compared with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Measure {
    /// Seconds of the measured part.
    #[default]
    Elapsed,
    /// Mean seconds of an operation of this name.
    Op(String),
}

impl Measure {
    fn name(&self) -> String {
        match self {
            Measure::Elapsed => "elapsed, s".into(),
            Measure::Op(op) => format!("mean time of {op}, s"),
        }
    }

    fn of(&self, r: &RunResult) -> Option<f64> {
        match self {
            Measure::Elapsed => Some(r.elapsed_ns as f64 / 1e9),
            Measure::Op(op) => r.ops.get(op).map(|o| o.latency.mean / 1e9),
        }
    }
}

/// A race of all entrants by one workload.
pub(super) struct Heat {
    pub case: Case,
    pub failed: Vec<(String, Error)>,
    pub notes: Vec<String>,
}

/// One entrant's part of a race.
struct Lane<'a> {
    entrant: &'a Entrant<'a>,
    spec: &'a Spec,
    /// Files in the workload's place were there before, and belong to the user.
    not_ours: bool,
    runs: Vec<RunResult>,
    failed: Option<Error>,
}

/// Runs `spec` on each target in every round; `observer` hears of each run. A target that fails takes no part
/// in further rounds. Files that a workload makes on a directory or an image are removed after each run,
/// unless something was in their place before.
///
/// # Errors
/// Those of the observer.
pub fn compare(
    targets: &[Contestant],
    spec: &Spec,
    runs: u32,
    opening: &Opening,
    observer: &dyn Observer,
) -> Result<Measured> {
    let entrant = |target| Entrant { name: Contestant::to_string(target), target, opening: opening.clone() };
    let entrants: Vec<Entrant<'_>> = targets.iter().map(entrant).collect();
    let rounds = Rounds::new(1, u64::from(runs), targets.len());
    let heat = heat(&entrants, (spec, &Measure::Elapsed), &rounds, (EXPERIMENT, 1), observer)?;
    let simulated = targets.iter().all(Contestant::is_simulated);
    let n = targets.len();
    let outcome = Outcome {
        experiment: EXPERIMENT.into(),
        title: format!("{} on {n} target{}", spec.name(), if n == 1 { "" } else { "s" }),
        simulated,
        cpus: if simulated { opening.hardware.cpus } else { 0 },
        cases: vec![Case { target: "each of the targets".into(), ..heat.case }],
        notes: conditions(opening).into_iter().chain(heat.notes).collect(),
        ..Outcome::default()
    };
    Ok(Measured { outcome, failed: heat.failed })
}

/// The number of runs of a race, uncounted runs included.
pub fn runs<'a>(targets: impl IntoIterator<Item = &'a Contestant>, rounds: u64, wanted: Wanted) -> u64 {
    let extra = |t: &Contestant| u64::from(!t.is_simulated()) + u64::from(wanted.anything());
    targets.into_iter().map(|t| rounds + extra(t)).sum()
}

/// Runs a race; `of` is the outcome's name and the number of this case.
pub(super) fn heat(
    entrants: &[Entrant<'_>],
    (spec, measure): (&Spec, &Measure),
    rounds: &Rounds,
    of: (&str, usize),
    observer: &dyn Observer,
) -> Result<Heat> {
    let mut lanes: Vec<Lane<'_>> = entrants.iter().map(|e| Lane::new(e, spec)).collect();
    for lane in lanes.iter_mut().filter(|l| !l.entrant.target.is_simulated()) {
        lane.run(0, Wanted::default(), observer);
    }
    for (seed, order) in rounds.each() {
        for i in order {
            if let Some((result, _)) = lanes[*i].run(seed, Wanted::default(), observer) {
                lanes[*i].runs.push(result);
            }
        }
    }
    let (mut positions, mut kept) = (Vec::new(), Vec::new());
    for (number, lane) in lanes.iter_mut().enumerate().filter(|(_, l)| !l.runs.is_empty()) {
        let mut position = lane.position(measure);
        if position.values.iter().all(Option::is_none) {
            lane.failed = Some(Error::NoValue { metric: measure.name().to_owned() });
            continue;
        }
        let wanted = observer.wants();
        let seed = rounds.seeds.get(position.drawn).copied().unwrap_or_default();
        let again = if wanted.anything() { lane.run(seed, wanted, observer) } else { None };
        if let Some((_, Some(observed))) = again {
            position.seen(&folded(&observed));
            let (setting, name) = (spec.name(), &*position.name);
            observer.saw(&Looked { experiment: of.0, number: of.1, setting, position: name }, &observed)?;
        }
        positions.push(position);
        kept.push(number);
    }
    // The order in which positions ran, by their numbers: those that did not run have none.
    let place = |entrant: &usize| kept.iter().position(|k| k == entrant);
    let order = rounds.order.iter().map(|round| round.iter().filter_map(place).collect()).collect();
    let case = Case {
        name: spec.name().into(),
        target: String::new(),
        workload: serde_json::to_string(spec).unwrap_or_default(),
        metric: measure.name(),
        less_is_better: true,
        published: None,
        seeds: rounds.seeds.clone(),
        order,
        positions,
        comparisons: Vec::new(),
    };
    let notes = lanes.iter().flat_map(Lane::notes).collect();
    let failed = |l: Lane<'_>| Some((l.entrant.name.clone(), l.failed?));
    Ok(Heat { case, notes, failed: lanes.into_iter().filter_map(failed).collect() })
}

impl<'a> Lane<'a> {
    fn new(entrant: &'a Entrant<'a>, spec: &'a Spec) -> Self {
        let root = spec.root();
        let there = match entrant.target.stays() {
            true => entrant.target.with(&entrant.opening, 0, move |t| t.exists(root)).map(|(there, _)| there),
            false => Ok(false),
        };
        let (not_ours, failed) = there.map_or_else(|e| (false, Some(e)), |there| (there, None));
        Lane { entrant, spec, not_ours, runs: Vec::new(), failed }
    }

    /// Makes one run and cleans up; `None` if the run fails, or an earlier one failed.
    fn run(
        &mut self,
        seed: u64,
        wanted: Wanted,
        observer: &dyn Observer,
    ) -> Option<(RunResult, Option<Observed>)> {
        if self.failed.is_some() {
            return None;
        }
        let e = self.entrant;
        let done = watch(wanted, || e.target.run(&e.opening, seed, self.spec));
        self.clean();
        match done {
            Ok((ran, observed)) => {
                self.not_ours |= ran.was_there;
                observer.ran(&e.name);
                Some((ran.result, observed))
            }
            Err(e) => {
                self.failed = Some(e);
                None
            }
        }
    }

    /// Removes the files of a run.
    fn clean(&mut self) {
        let (target, root) = (self.entrant.target, self.spec.root());
        if self.not_ours || !target.stays() {
            return;
        }
        let cleaned = target.with(&self.entrant.opening, 0, move |t| match t.exists(root)? {
            true => t.remove_tree(root),
            false => Ok(()),
        });
        if let (None, Err(e)) = (&self.failed, cleaned) {
            self.failed = Some(e);
        }
    }

    fn position(&mut self, measure: &Measure) -> Position {
        let runs = std::mem::take(&mut self.runs);
        let values = runs.iter().map(|r| measure.of(r)).collect();
        Position { counters: counters(&runs), ..Position::of(&self.entrant.name, values, runs) }
    }

    fn notes(&self) -> Vec<String> {
        let name = &self.entrant.name;
        let failed = self.failed.as_ref().map(|e| format!("{name} failed: {e}"));
        let there = format!("{name}: {} was there before and was written over", self.spec.root());
        failed.into_iter().chain(self.not_ours.then_some(there)).collect()
    }
}

/// Operations per second by kind, and the p99 of each in milliseconds.
fn counters(runs: &[RunResult]) -> Vec<Counted> {
    let of_runs = |f: &dyn Fn(&RunResult) -> f64| runs.iter().map(|r| Some(f(r))).collect();
    let kinds = runs.first().into_iter().flat_map(|r| r.ops.keys().cloned());
    let both = |kind: String| {
        let p99 = |r: &RunResult| {
            let of = r.ops.get(&kind).and_then(|o| o.latency.percentiles.get("99.000000"));
            of.map_or(0.0, |ns| *ns as f64 / 1e6)
        };
        let rate = Counted::of(&format!("{kind}/s"), of_runs(&|r| r.per_second(&kind)));
        [rate, Counted::of(&format!("{kind}, p99 ms"), of_runs(&p99))]
    };
    kinds.flat_map(both).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FsMark;

    fn race(targets: &[&str]) -> Measured {
        let _alone = crate::experiment::ALONE.lock();
        let targets: Vec<Contestant> = targets.iter().map(|t| t.parse().unwrap()).collect();
        let spec = Spec::FsMark(FsMark { files: 5, ..FsMark::default() });
        compare(&targets, &spec, 2, &Opening::default(), &|_: &str| {}).unwrap()
    }

    #[test]
    fn who_fails_does_not_take_the_others_along() {
        let dir = tempfile::tempdir().unwrap();
        let here = format!("dir:{}", dir.path().display());
        let r = race(&["dir:/nowhere/at/all", &here, "sim:ufs"]);
        let names = |p: &Position| (p.name.clone(), p.runs.len());
        let ran: Vec<_> = r.outcome.cases[0].positions.iter().map(names).collect();
        assert_eq!(ran, [(here, 2), ("sim:ufs".to_owned(), 2)]);
        let mut order = r.outcome.cases[0].order.clone();
        order.iter_mut().for_each(|round| round.sort());
        assert_eq!(order, [[0, 1], [0, 1]], "the numbers are those of the positions");
        assert_eq!(r.failed.len(), 1);
        let missing =
            |e: &Error| matches!(e, Error::Host { path, .. } if path.starts_with("/nowhere/at/all"));
        assert!(missing(&r.failed[0].1), "{:?}", r.failed);
        assert!(r.outcome.notes[0].contains("failed: "), "{:?}", r.outcome.notes);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "what was made is removed");
    }

    #[test]
    fn what_was_there_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("fs_mark/mine");
        std::fs::create_dir(dir.path().join("fs_mark")).unwrap();
        std::fs::write(&mine, "mine").unwrap();
        let r = race(&[&format!("dir:{}", dir.path().display())]);
        assert!(r.failed.is_empty() && mine.exists(), "{:?}", r.failed);
        assert!(r.outcome.notes[0].contains("was there before"), "{:?}", r.outcome.notes);
    }

    #[test]
    fn in_simulated_time_a_race_is_the_same_each_time() {
        // Locks are counted for the whole process while any test counts them, so other tests' runs are
        // included.
        let race = || {
            let mut outcome = race(&["sim:hdd", "sim:ufs"]).outcome;
            let runs = outcome.cases.iter_mut().flat_map(|c| &mut c.positions).flat_map(|p| &mut p.runs);
            runs.for_each(|r| r.locks.clear());
            outcome
        };
        let (a, b) = (race(), race());
        assert!(a.simulated);
        assert!(a == b, "two races differ:\n{a:?}\n{b:?}");
    }
}
