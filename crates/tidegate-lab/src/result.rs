//! The result of a run of a workload, in one form for every target, to be stored and compared.
//!
//! Everything is in order of name or of time, and nothing comes from a wall clock, so a run in simulated time
//! gives equal bytes each time.

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
    /// Processor time of the whole process in it, including other work.
    #[serde(default)]
    pub cpu: Option<CpuTime>,
    /// Operations by kind, such as `read`, `fsync`, `commit`.
    pub ops: BTreeMap<String, OpStats>,
    /// Operations and counters over time.
    pub series: Series,
    /// The events, in order of time: syncs, ends of loops, and, as `fs_commits`, each interval in which the
    /// file system made commits.
    pub events: Vec<Event>,
    /// The growth of the target's counters.
    pub counters: Counts,
    /// Statistics of commits since the volume was opened.
    #[serde(default)]
    pub commits: Option<CommitStats>,
    /// Statistics of locks, those with the longest waits first, if they were collected.
    pub locks: Vec<LockStat>,
    /// Deviations from the request, with reasons.
    pub notes: Vec<String>,
}

impl RunResult {
    /// Operations of a kind per second.
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
    /// Their latencies.
    pub latency: Latency,
    /// Their latencies as a histogram: the highest value of each bucket and its count; three significant
    /// digits.
    pub histogram: Vec<(u64, u64)>,
}

/// Latencies in nanoseconds; all 0 without operations.
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
    /// The longest, in descending order; at most [`crate::record::LONGEST`].
    #[serde(default)]
    pub longest: Vec<u64>,
    /// By percentage, such as `99.000000`: the latency that this share does not exceed.
    pub percentiles: BTreeMap<String, u64>,
}

/// Progress over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// By kind of operation, for each interval: the number of operations that ended, and their bytes.
    pub ops: BTreeMap<String, Vec<(u64, u64)>>,
    /// By name, the growth of each counter that grew, in each interval.
    pub counters: BTreeMap<String, Vec<u64>>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Event {
    /// Its start, in nanoseconds since the start of the measured part.
    pub at_ns: u64,
    /// Its duration.
    pub took_ns: u64,
    /// The event's name.
    pub name: String,
    /// Its figures, by name.
    pub values: BTreeMap<String, u64>,
}

/// One class of locks, shared and exclusive holders together; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in `/proc/lock_stat`
pub struct LockStat {
    /// Its name, with the rows and call points of `/proc/lock_stat`.
    #[serde(flatten)]
    pub table: Class,
    pub contentions: u64,
    pub wait_total_ns: u64,
    pub wait_max_ns: u64,
    pub acquisitions: u64,
    pub hold_total_ns: u64,
    pub hold_max_ns: u64,
}
