//! The result of an experiment: every run of every position, and the verdicts on them. Kept as JSON, drawn by
//! the report.

use super::comparison::Comparison;
use super::excerpt::Excerpt;
use super::rounds::median_run;
use crate::result::RunResult;
use serde::{Deserialize, Serialize};
use tidegate::observe::why::{Operation, Slow, explain};
use tidegate::observe::{Observed, graph};

/// When and by what something was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When it had ended, as RFC 3339 writes it, in UTC; empty where that is left out.
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
    /// In a line.
    pub fn line(&self) -> String {
        let extent = if self.quick { "quick" } else { "full" };
        let Head { date, version, commit, machine, .. } = self;
        format!("{date}, tidegate {version}, commit {commit}, {machine}, {extent}")
    }
}

/// One experiment, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// When and by what it was measured.
    #[serde(default)]
    pub head: Head,
    /// Its name, such as `m3`.
    pub experiment: String,
    /// Its subject, in a line.
    pub title: String,
    /// Why the positions differ, in a few sentences.
    pub mechanism: String,
    /// Whether our time was virtual: then the same seeds give the same outcome but for its head, byte for byte, and
    /// but for the case of the kernel, if that was shown beside.
    pub simulated: bool,
    /// Simulated CPUs; 0 in real time.
    pub cpus: usize,
    /// Settings that were measured; the first is the published one.
    pub cases: Vec<Case>,
    /// Notes beside the figures.
    pub notes: Vec<String>,
}

/// All positions of the switch in one setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The name of this setting, such as `16 syncs at once`.
    pub name: String,
    /// The device or directory.
    pub target: String,
    /// The workload as it can be run again, as JSON.
    pub workload: String,
    /// The figure that is compared, such as `seconds of a sync`.
    pub metric: String,
    /// Whether less of it is better.
    pub less_is_better: bool,
    /// The published figures for it, if this is the published setting.
    pub published: Option<Published>,
    /// The seed of each round.
    pub seeds: Vec<u64>,
    /// For each round, positions by their numbers from 0, in the order in which they ran.
    pub order: Vec<Vec<usize>>,
    /// Each position, the old one first.
    pub positions: Vec<Position>,
    /// Figures that are held against what was published, or against a bound.
    pub comparisons: Vec<Comparison>,
}

/// The published figures of a mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Where, such as `commit 7747bd4bceb3`.
    pub source: String,
    /// The figure that was measured, and its unit.
    pub what: String,
    /// Before the change.
    pub before: f64,
    /// After it.
    pub after: f64,
}

impl Published {
    /// How many times what came before is what came after.
    pub fn ratio(&self) -> f64 {
        self.before / self.after
    }
}

/// One position of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// As it is spelled, such as `sync_wait=caller`.
    pub name: String,
    /// The metric over the runs.
    pub metric: Estimate,
    /// The metric of each run, where it has one.
    pub values: Vec<Option<f64>>,
    /// The mechanism's counters.
    pub counters: Vec<Counted>,
    /// Every run, in the order of rounds.
    pub runs: Vec<RunResult>,
    /// The number of the run that is drawn in detail, from 0: the median one.
    pub drawn: usize,
    /// The call tree of that run, or in real time of one more that was recorded, as folded stacks: `a;b;c 123` in
    /// nanoseconds, a line each. Empty if none was recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call_tree: String,
    /// A few bios of the same run, where the experiment is about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<Excerpt>,
    /// The slowest commits of the same run, and why, where the experiment is about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_commits: Vec<Slow>,
    /// Events that the recording of that run lost: then nobody knows how much of those commits has a name.
    #[serde(default, skip_serializing_if = "is_none")]
    pub lost_events: u64,
}

fn is_none(n: &u64) -> bool {
    *n == 0
}

/// A median and where it lies with 95 % confidence; of fewer than six values, between which it is.
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
    /// Of each run, where it has one.
    pub values: Vec<Option<f64>>,
}

impl Counted {
    /// A counter by its runs; `None` where none has it.
    pub fn of(name: &str, values: Vec<Option<f64>>) -> Option<Counted> {
        let median = Estimate::of(values.iter().flatten().copied())?.median;
        Some(Counted { name: name.into(), median, values })
    }
}

/// The flusher's time of waiting, in the run whose call tree is kept.
const BLOCKED: &str = "flusher blocked, ms (drawn run)";

impl Position {
    /// A position by its runs and their metric.
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

    /// The share of the time of each of the slowest commits that has a name, in percent; none where events were lost.
    pub(super) fn named(&self) -> Vec<f64> {
        let told = self.slow_commits.iter().filter(|_| self.lost_events == 0);
        told.map(|s| s.named * 100.0).collect()
    }
}

/// Commits that are explained.
const SLOWEST: usize = 10;

/// The slowest commits of a run, and why they took so long; how many events the recording lost.
pub(super) fn slowest_commits(observed: &Observed) -> (Vec<Slow>, u64) {
    let report = explain(observed, 0, SLOWEST);
    let commits = report.kinds.into_iter().find(|k| k.operation == Operation::Commit);
    (commits.map(|k| k.slowest).unwrap_or_default(), report.dropped)
}

/// The flusher's time of waiting, by a call tree as folded stacks.
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
    /// The median of `values` and its 95 % interval by order statistics: no assumption on how they are
    /// distributed. Fewer than six values have no such interval: then it is the least and the greatest, which
    /// hold the median of what five come from with 94 % confidence, of three with 75 %. `None` of none.
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
