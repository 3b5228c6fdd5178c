//! The result of a run of a workload: the same for every target, made to be kept and compared.
//!
//! Everything is in order of name or of time, and nothing comes from a wall clock, so a run in simulated
//! time is the same bytes each time.

use crate::cpu::CpuTime;
use crate::target::Counts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidegate::observe::lockstat::Class;
use tidegate_vfs::CommitStats;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The workload's name.
    pub workload: String,
    /// The target that it ran on.
    pub target: String,
    /// Length of the measured part, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time in it, of the whole process, with its other work.
    #[serde(default)]
    pub cpu: Option<CpuTime>,
    /// Operations by kind, such as `read`, `fsync`, `commit`.
    pub ops: BTreeMap<String, OpStats>,
    /// Operations and counters over time.
    pub series: Series,
    /// The events, in order of time: syncs, ends of loops, and as `fs_commits` each interval in which the
    /// file system wrote some.
    pub events: Vec<Event>,
    /// The growth of the target's counters.
    pub counters: Counts,
    /// How commits went, since the volume was opened.
    #[serde(default)]
    pub commits: Option<CommitStats>,
    /// Statistics of locks, most waited for first, if they were being collected.
    pub locks: Vec<LockStat>,
    /// Deviations from the request, with reasons.
    pub notes: Vec<String>,
}

impl RunResult {
    /// Operations of a kind a second.
    pub fn per_second(&self, op: &str) -> f64 {
        let n = self.ops.get(op).map_or(0, |o| o.latency.count);
        if self.elapsed_ns == 0 { 0.0 } else { n as f64 * 1e9 / self.elapsed_ns as f64 }
    }
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpStats {
    /// Bytes they moved.
    pub bytes: u64,
    /// How long they took.
    pub latency: Latency,
    /// Their latencies: highest value of each bucket, how many; three significant digits.
    pub histogram: Vec<(u64, u64)>,
}

/// Latencies in nanoseconds; all 0 when there was none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations that were timed.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// The longest, the longest first; no more than [`crate::record::LONGEST`].
    #[serde(default)]
    pub longest: Vec<u64>,
    /// By percentage, as `99.000000`: no more than this.
    pub percentiles: BTreeMap<String, u64>,
}

/// Progress over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// By kind of operation, for each interval: how many ended, and their bytes.
    pub ops: BTreeMap<String, Vec<(u64, u64)>>,
    /// By name, the growth of counters in each interval; those that grew at all.
    pub counters: BTreeMap<String, Vec<u64>>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Event {
    /// When it began, in nanoseconds since the measured part did.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// The event's name.
    pub name: String,
    /// Its figures, by name.
    pub values: BTreeMap<String, u64>,
}

/// One class of locks, those who share and those who do not together; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in `/proc/lock_stat`
pub struct LockStat {
    /// Its name, and as `/proc/lock_stat` has it: rows and call points.
    #[serde(flatten)]
    pub table: Class,
    pub contentions: u64,
    pub wait_total_ns: u64,
    pub wait_max_ns: u64,
    pub acquisitions: u64,
    pub hold_total_ns: u64,
    pub hold_max_ns: u64,
}
