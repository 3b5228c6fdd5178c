//! The result of an experiment: every run of every position, and the verdicts on them. It is stored as JSON
//! and drawn by the report.

use super::comparison::Comparison;
use super::excerpt::Excerpt;
use super::rounds::median_run;
use crate::error::Error;
use crate::result::RunResult;
use serde::{Deserialize, Serialize};
use tidegate::observe::why::{Operation, Slow, explain};
use tidegate::observe::{Observed, graph};

/// The date of a measurement, and the program and machine that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The end of the measurement in UTC, in RFC 3339's form; empty if it is left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub date: String,
    /// Version of the program.
    pub version: String,
    /// Commit that it was built from.
    pub commit: String,
    /// Processors and kernel.
    pub machine: String,
    /// Whether it was a first look.
    pub quick: bool,
}

impl Head {
    /// The head in one line.
    pub fn line(&self) -> String {
        let extent = if self.quick { "quick" } else { "full" };
        let Head { date, version, commit, machine, .. } = self;
        format!("{date}, tidegate {version}, commit {commit}, {machine}, {extent}")
    }
}

/// One experiment, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The date of the measurement, the program and the machine.
    #[serde(default)]
    pub head: Head,
    /// Its name, such as `m3`.
    pub experiment: String,
    /// Its subject, in a line.
    pub title: String,
    /// The reason why the positions differ, in a few sentences.
    pub mechanism: String,
    /// Whether our time was virtual. Then equal seeds give equal outcomes, byte for byte, except for the head
    /// and for the kernel's case, if that was shown beside.
    pub simulated: bool,
    /// Simulated CPUs; 0 in real time.
    pub cpus: usize,
    /// Settings that were measured; the first is the published one.
    pub cases: Vec<Case>,
    /// Notes beside the figures.
    pub notes: Vec<String>,
}

/// The figures of an experiment or a race, and the parts of it without any.
#[derive(Debug, Default)]
pub struct Measured {
    /// The measurements.
    pub outcome: Outcome,
    /// The settings or targets that failed, with their errors. Of a target, runs before the failure count.
    pub failed: Vec<(String, Error)>,
}

/// All positions of the switch in one setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The name of this setting, such as `16 syncs at once`.
    pub name: String,
    /// The device or directory.
    pub target: String,
    /// The workload as JSON, so that it can be run again.
    pub workload: String,
    /// The figure that is compared, such as `seconds of a sync`.
    pub metric: String,
    /// Whether less of it is better.
    pub less_is_better: bool,
    /// The published figures for it, if this is the published setting.
    pub published: Option<Published>,
    /// The seed of each round.
    pub seeds: Vec<u64>,
    /// For each round, the positions by their numbers from 0, in the order of their runs.
    pub order: Vec<Vec<usize>>,
    /// Each position, the old one first.
    pub positions: Vec<Position>,
    /// Figures that are compared with published ones, or with a bound.
    pub comparisons: Vec<Comparison>,
}

/// The published figures of a mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The source, such as `commit 7747bd4bceb3`.
    pub source: String,
    /// The figure that was measured, and its unit.
    pub what: String,
    /// Before the change.
    pub before: f64,
    /// After it.
    pub after: f64,
}

impl Published {
    /// The value before the change divided by the value after it.
    pub fn ratio(&self) -> f64 {
        self.before / self.after
    }
}

/// One position of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Its spelling, such as `sync_wait=caller`.
    pub name: String,
    /// The metric over the runs.
    pub metric: Estimate,
    /// The metric of each run, if it has one.
    pub values: Vec<Option<f64>>,
    /// The mechanism's counters.
    pub counters: Vec<Counted>,
    /// Every run, in the order of rounds.
    pub runs: Vec<RunResult>,
    /// The number, from 0, of the run that is drawn in detail: the median one.
    pub drawn: usize,
    /// The call tree of that run, or in real time of one more, recorded run, as folded stacks: `a;b;c 123` in
    /// nanoseconds, a line each. Empty if none was recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call_tree: String,
    /// A few bios of that run, if the experiment is about bios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<Excerpt>,
    /// The slowest commits of that run, and their causes, if the experiment is about commits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_commits: Vec<Slow>,
    /// Events that the recording of that run lost: then the named share of those commits is unknown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub lost_events: u64,
}

fn is_none(n: &u64) -> bool {
    *n == 0
}

/// A median and its 95 % confidence interval; with fewer than six values, the range of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A counter of the mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// Median over the runs.
    pub median: f64,
    /// The value of each run, if it has one.
    pub values: Vec<Option<f64>>,
}

impl Counted {
    /// A counter from its runs; `None` if none has it.
    pub fn of(name: &str, values: Vec<Option<f64>>) -> Option<Counted> {
        let median = Estimate::of(values.iter().flatten().copied())?.median;
        Some(Counted { name: name.into(), median, values })
    }
}

/// The time that the flusher waited, in the run whose call tree is kept.
const BLOCKED: &str = "flusher blocked, ms (drawn run)";

impl Position {
    /// A position from its runs and their metric.
    pub(super) fn of(name: &str, values: Vec<Option<f64>>, runs: Vec<RunResult>) -> Position {
        let metric = Estimate::of(values.iter().flatten().copied()).unwrap_or_default();
        let drawn = median_run(&values);
        Position { name: name.into(), metric, values, runs, drawn, ..Position::default() }
    }

    /// The run that is drawn in detail.
    pub fn drawn_run(&self) -> Option<&RunResult> {
        self.runs.get(self.drawn)
    }

    /// Takes the call tree of one run.
    pub(super) fn seen(&mut self, folded: &str) {
        self.call_tree = folded.into();
        self.counters.extend(Counted::of(BLOCKED, vec![Some(flusher_blocked_ms(folded))]));
    }

    /// The share of the time of each of the slowest commits that has a name, in percent; none if events were
    /// lost.
    pub(super) fn named(&self) -> Vec<f64> {
        let told = self.slow_commits.iter().filter(|_| self.lost_events == 0);
        told.map(|s| s.named * 100.0).collect()
    }
}

/// Commits that are explained.
const SLOWEST: usize = 10;

/// The slowest commits of a run, and their causes; also the number of events that the recording lost.
pub(super) fn slowest_commits(observed: &Observed) -> (Vec<Slow>, u64) {
    let report = explain(observed, 0, SLOWEST);
    let commits = report.kinds.into_iter().find(|k| k.operation == Operation::Commit);
    (commits.map(|k| k.slowest).unwrap_or_default(), report.dropped)
}

/// The time that the flusher waited, from a call tree as folded stacks.
fn flusher_blocked_ms(folded: &str) -> f64 {
    let stacks = folded.lines().filter_map(|l| l.rsplit_once(' '));
    let waits = |stack: &str| {
        let last = stack.rsplit(';').next().unwrap_or_default();
        stack.starts_with("tg-flusher;") && graph::is_wait(last)
    };
    let ns = stacks.filter(|(stack, _)| waits(stack)).filter_map(|(_, ns)| ns.parse::<u64>().ok());
    ns.sum::<u64>() as f64 / 1e6
}

impl Estimate {
    /// The median of `values` and its 95 % interval by order statistics, which assume no distribution. Fewer
    /// than six values have no such interval: then it is the least and the greatest value, which contain the
    /// true median with 94 % confidence for five values, and with 75 % for three. `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let n = v.len();
        let (low, high) = (v.get(n.saturating_sub(1) / 2)?, v.get(n / 2)?);
        let median = (low + high) / 2.0;
        // Ranks n/2 -+ 1.96 sqrt(n)/2 of the binomial distribution.
        let reach = 1.96 * (n as f64).sqrt() / 2.0;
        let at = |rank: f64| v[(rank.max(0.0) as usize).min(n - 1)];
        let half = n as f64 / 2.0;
        Some(Estimate { median, low: at((half - reach).floor()), high: at((half + reach).ceil()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_flusher_waited_for_is_told_by_its_call_tree() {
        let tree = "tg-flusher;wb_sync 5\ntg-flusher;wb_sync;folio_wait_writeback 2000000\n\
            tg-flusher;wb_sync;folio_wait_writeback;[lock a b] 500000\ntg-flusher;wb_sync;f2fs_writepages 7\n\
            sync;wait_sb_inodes;folio_wait_writeback 9000000\nsync;[lock a b] 1\n";
        assert_eq!((flusher_blocked_ms(tree), flusher_blocked_ms("")), (2.5, 0.0));
    }

    #[test]
    fn a_median_has_its_interval() {
        assert_eq!(Estimate::of([]), None);
        assert_eq!(Estimate::of([2.0]), Some(Estimate { median: 2.0, low: 2.0, high: 2.0 }));
        assert_eq!(Estimate::of([5.0, 1.0, 3.0]), Some(Estimate { median: 3.0, low: 1.0, high: 5.0 }));
        let e = Estimate::of((0..100).map(f64::from)).unwrap();
        assert_eq!((e.median, e.low, e.high), (49.5, 40.0, 60.0));
    }
}
