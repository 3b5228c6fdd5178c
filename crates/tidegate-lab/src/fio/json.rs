//! The output of fio with `--output-format=json`: its field names, units and nesting, of the figures that
//! exist here.

use super::run::{JobOutcome, Outcome};
use crate::result::{Latency, OpStats};
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Output {
    #[serde(rename = "fio version")]
    version: String,
    #[serde(rename = "global options")]
    global: BTreeMap<String, String>,
    jobs: Vec<JobOutput>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct JobOutput {
    jobname: String,
    groupid: usize,
    error: i32,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: BTreeMap<String, String>,
    read: Direction,
    write: Direction,
    sync: Sync,
    job_runtime: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    /// KiB per second.
    bw: u64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    total_ios: u64,
    clat_ns: Times,
    lat_ns: Times,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Sync {
    total_ios: u64,
    lat_ns: Times,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    n: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    percentile: BTreeMap<Percent, u64>,
}

/// A percentage that is written in fio's form and sorted by its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Percent(u64);

impl Serialize for Percent {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000))
    }
}

impl Output {
    /// The `outcome` in fio's terms.
    pub fn new(outcome: &Outcome) -> Self {
        let version = format!("tidegate-lab-{}", env!("CARGO_PKG_VERSION"));
        let jobs = outcome.jobs.iter().map(job).collect();
        Output { version, global: outcome.global.clone(), jobs }
    }

    /// As JSON, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }
}

fn job(j: &JobOutcome) -> JobOutput {
    let ms = j.runtime_ns.div_ceil(1_000_000);
    JobOutput {
        jobname: j.name.clone(),
        groupid: j.group,
        error: 0,
        elapsed: ms.div_ceil(1000),
        options: j.options.clone(),
        read: direction(&j.read, j.runtime_ns),
        write: direction(&j.write, j.runtime_ns),
        sync: Sync { total_ios: j.sync.latency.count, lat_ns: times(&j.sync.latency, true) },
        job_runtime: ms,
    }
}

fn direction(o: &OpStats, runtime_ns: u64) -> Direction {
    let per_second = |n: u64| match runtime_ns {
        0 => 0.0,
        t => n as f64 * 1e9 / t as f64,
    };
    let bw_bytes = per_second(o.bytes) as u64;
    Direction {
        io_bytes: o.bytes,
        io_kbytes: o.bytes >> 10,
        bw_bytes,
        bw: bw_bytes >> 10,
        iops: per_second(o.latency.count),
        runtime: if o.latency.count > 0 { runtime_ns.div_ceil(1_000_000) } else { 0 },
        total_ios: o.latency.count,
        clat_ns: times(&o.latency, true),
        lat_ns: times(&o.latency, false),
    }
}

fn times(l: &Latency, percentiles: bool) -> Times {
    let mut percentile = BTreeMap::new();
    for (p, v) in l.percentiles.iter().filter(|_| percentiles) {
        if let Ok(p) = p.parse::<f64>() {
            percentile.insert(Percent((p * 1e6).round() as u64), *v);
        }
    }
    Times { min: l.min, max: l.max, mean: l.mean, stddev: l.stddev, n: l.count, percentile }
}
