//! One workload on several targets, in turn.

use super::contestant::{CPUS, Contestant};
use super::observer::{First, Observer, folded, watch};
use super::outcome::{Case, Counted, Estimate, Outcome, Position};
use super::{Opening, conditions};
use crate::error::{Error, Result};
use crate::result::RunResult;
use crate::workload::{Spec, run};
use tidegate::observe::Wanted;

/// What a race is called among outcomes.
const EXPERIMENT: &str = "compare";

/// A race that was run.
#[derive(Debug, Default)]
pub struct Race {
    /// What was measured.
    pub outcome: Outcome,
    /// The targets that failed, and how; what they did before counts.
    pub failed: Vec<(String, Error)>,
}

/// One target in a race.
struct Lane<'a> {
    target: &'a Contestant,
    /// Files of the workload were there before, and are somebody's.
    not_ours: bool,
    runs: Vec<RunResult>,
    tree: String,
    failed: Option<Error>,
}

/// Runs `spec` on each target in every round; `observer` is told of each run. One that fails takes no part in
/// the further rounds. What a workload makes on a directory or an image is removed after each run, unless
/// something was in its place before.
///
/// # Errors
/// Those of the observer.
pub fn compare(
    targets: &[Contestant],
    spec: &Spec,
    runs: u32,
    opening: &Opening,
    observer: &dyn Observer,
) -> Result<Race> {
    let mut lanes: Vec<Lane<'_>> = targets.iter().map(|t| Lane::new(t, spec, opening)).collect();
    for round in 0..runs.max(1) {
        for lane in lanes.iter_mut().filter(|l| l.failed.is_none()) {
            let wanted = if round == 0 { observer.wants() } else { Wanted::default() };
            let of = spec.clone();
            let f = || lane.target.with(opening, 1 + u64::from(round), move |t| run(&of, t));
            match watch(wanted, f) {
                Ok((result, observed)) => {
                    lane.runs.push(result);
                    let name = lane.target.to_string();
                    observer.ran(&name);
                    if let Some(o) = observed {
                        lane.tree = folded(&o);
                        let setting = spec.name();
                        let position = &name;
                        observer.saw(&First { experiment: EXPERIMENT, number: 1, setting, position }, &o)?;
                    }
                }
                Err(e) => lane.failed = Some(e),
            }
            lane.clean(spec, opening);
        }
    }
    Ok(finish(spec, lanes, opening))
}

impl<'a> Lane<'a> {
    fn new(target: &'a Contestant, spec: &Spec, opening: &Opening) -> Self {
        let root = spec.root();
        let there = match target.stays() {
            true => target.with(opening, 0, move |t| t.exists(root)).map(|(there, _)| there),
            false => Ok(false),
        };
        let (not_ours, failed) = there.map_or_else(|e| (false, Some(e)), |there| (there, None));
        Lane { target, not_ours, runs: Vec::new(), tree: String::new(), failed }
    }

    /// Removes what a run left.
    fn clean(&mut self, spec: &Spec, opening: &Opening) {
        if self.not_ours || !self.target.stays() {
            return;
        }
        let root = spec.root();
        let cleaned = self.target.with(opening, 0, move |t| match t.exists(root)? {
            true => t.remove_tree(root),
            false => Ok(()),
        });
        if let (None, Err(e)) = (&self.failed, cleaned) {
            self.failed = Some(e);
        }
    }

    fn position(&mut self) -> Option<Position> {
        let runs = std::mem::take(&mut self.runs);
        let values: Vec<Option<f64>> = runs.iter().map(|r| Some(r.elapsed_ns as f64 / 1e9)).collect();
        Some(Position {
            name: self.target.to_string(),
            metric: Estimate::of(values.iter().flatten().copied())?,
            values,
            counters: counters(&runs),
            runs,
            call_tree: std::mem::take(&mut self.tree),
        })
    }
}

fn finish(spec: &Spec, mut lanes: Vec<Lane<'_>>, opening: &Opening) -> Race {
    let simulated = lanes.iter().all(|l| l.target.is_simulated());
    let n = lanes.len();
    let mut notes = conditions(opening);
    for l in &lanes {
        if let Some(e) = &l.failed {
            notes.push(format!("{} failed after {} runs: {e}", l.target, l.runs.len()));
        }
        if l.not_ours {
            notes.push(format!("{}: {} was there before and was written over", l.target, spec.root()));
        }
    }
    let case = Case {
        name: spec.name().into(),
        target: "each of the targets".into(),
        workload: serde_json::to_string(spec).unwrap_or_default(),
        metric: "elapsed, s".into(),
        less_is_better: true,
        published: None,
        positions: lanes.iter_mut().filter_map(Lane::position).collect(),
        comparisons: Vec::new(),
    };
    let outcome = Outcome {
        experiment: EXPERIMENT.into(),
        title: format!("{} on {n} target{}", spec.name(), if n == 1 { "" } else { "s" }),
        seed: u64::from(simulated),
        simulated,
        cpus: if simulated { CPUS } else { 0 },
        cases: vec![case],
        notes,
        ..Outcome::default()
    };
    let failed = |l: Lane<'_>| Some((l.target.to_string(), l.failed?));
    Race { outcome, failed: lanes.into_iter().filter_map(failed).collect() }
}

/// Operations a second by kind, and the p99 of each in milliseconds.
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

    fn race(targets: &[&str]) -> Race {
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
        assert_eq!(r.failed.len(), 1);
        assert!(r.failed[0].1.to_string().contains("/nowhere/at/all"), "{:?}", r.failed);
        assert!(r.outcome.notes[0].contains("failed after 0 runs"), "{:?}", r.outcome.notes);
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
        let (a, b) = (race(&["sim:hdd", "sim:ufs"]), race(&["sim:hdd", "sim:ufs"]));
        assert!(a.outcome.simulated);
        assert_eq!(a.outcome, b.outcome);
    }
}
