//! M5: one checkpoint for all waiting threads, written by a thread of its own.

use super::calibration::Calibration;
use super::comparison::{Because, Comparison, FACTOR, Rule};
use super::outcome::{Position, Published};
use super::setting::{Counter, Metric, Setting, count, counter, lock_wait_ms, ratio};
use super::{Experiment, Where};
use crate::workload::{CkptStorm, Spec, StormGroup};
use tidegate::detect::Format;
use tidegate::{Elevator, WfqOptions};
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::MemoryLimits;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "m5",
    title: "F2FS checkpoint_merge: one checkpoint thread serves all who wait",
    mechanism: "fsync of a directory takes a checkpoint. Without the thread each caller writes its own, one after \
        the other, and one in a group of little weight holds everybody up while the elevator makes its blocks wait. \
        With the thread a checkpoint is written at the thread's priority in the root group, and serves all who \
        asked before it began.",
    settings,
    notes: &[
        "Scaled: memory and the stream's file, to a seventh (1 GiB and 512 MiB); a machine of 7 GiB dirties as much \
         more before it writes, and runs as long. The number of fsyncs: the report shows it.",
        "checkpoint_data=linux: a checkpoint leaves file data in flight, as on Linux.",
        "As published, writes of the flusher count for the root group: blkio of cgroup v1 knows no better.",
    ],
    across: |_| {},
    kernel: Some(Calibration {
        positions: POSITIONS,
        workload: in_the_kernel,
        dirty: 3 << 20,
        counters: COUNTERS,
        name: "without / with, in the kernel",
        published: || published().ratio(),
        note: "Its two groups are I/O priorities, of which its BFQ, which knows no cgroups, makes weights of 50 and 10; \
            the thread has be/3, the weight 50. Fewer fsyncs and a smaller stream than ours, since each write waits \
            for a real disk.",
    }),
};

const MS: &str = "ms of an fsync, weight 100";
const UNMERGED: [&str; 2] =
    ["ms of an fsync, each its own checkpoint, least", "ms of an fsync, each its own checkpoint, most"];
const MERGED: [&str; 2] = ["ms of an fsync, merged, least", "ms of an fsync, merged, most"];
const LESS_TO_WRITE: &str = "memory and the stream are a seventh of the published ones";
/// The name of the published ratio.
const RATIO: &str = "without / with checkpoint_merge";

/// As much of the published workload as takes some seconds.
fn in_the_kernel() -> Spec {
    let group = |group, weight, times| StormGroup { group, weight, threads: 1, times };
    Spec::CkptStorm(CkptStorm {
        groups: vec![group(1, 100, 6), group(2, 20, 0)],
        stream_group: 1,
        stream_size: 4 << 20,
        ..CkptStorm::default()
    })
}

fn published() -> Published {
    Published {
        source: "commit 261eeb9c".into(),
        what: "1000 x (touch; fsync of the directory) in a group of weight 100 beside one of 20, s".into(),
        before: 68.0,
        after: 48.0,
    }
}

const COUNTERS: &[Counter] = &[
    ("checkpoints", |r| count(r, "fs.commits")),
    ("fsyncs", |r| r.ops.get("touch+fsync").map(|o| o.latency.count as f64)),
    (MS, |r| Some(r.ops.get("touch+fsync g1")?.latency.mean / 1e6)),
    ("stream, MB/s", |r| {
        let bytes = r.ops.get("stream")?.bytes as f64;
        Some(bytes * 1e3 / r.elapsed_ns as f64)
    }),
    ("checkpoints for each fsync", |r| {
        Some(count(r, "fs.commits")? / r.ops.get("touch+fsync")?.latency.count as f64)
    }),
    ("waited for sbi->cp_global_sem, ms", |r| lock_wait_ms(r, "sbi->cp_global_sem")),
];

const POSITIONS: &[&str] = &["nocheckpoint_merge", "checkpoint_merge"];

fn settings(quick: bool) -> Vec<Setting> {
    let times = if quick { 50 } else { 1000 };
    let group = |group, weight, threads, times| StormGroup { group, weight, threads, times };
    let interval_ms = if quick { 10 } else { 100 };
    // The size is more than may be dirty: the writer goes on at the device's speed, like one that runs for an
    // hour.
    let stream_size = 512 << 20;
    let storm = |groups, stream_group| CkptStorm {
        groups,
        stream_group,
        stream_size,
        interval_ms,
        ..CkptStorm::default()
    };
    let setting = |name: &str, workload, published, bars| Setting {
        name: name.into(),
        job: None,
        place: Where::Preset(Preset::Ufs),
        size: 2 << 30,
        shorter: 1,
        format: Format::F2fs,
        cpus: 8,
        costs: Costs::default(),
        elevator: Elevator::Wfq(WfqOptions { strict_guarantees: true, ..WfqOptions::default() }),
        memory: MemoryLimits::of_machine(1 << 30),
        options: "checkpoint_data=linux",
        workload: Spec::CkptStorm(workload),
        metric: Metric::Elapsed,
        positions: POSITIONS,
        published,
        counters: COUNTERS,
        bars,
        bios: false,
        causes: false,
    };
    vec![
        setting(
            "groups of weight 100 and 20",
            storm(vec![group(1, 100, 1, times), group(2, 20, 1, 0)], 1),
            Some(published()),
            bars,
        ),
        // The cost: a single caller hands over to a thread and back.
        setting("one caller alone", storm(vec![group(1, 100, 1, times)], 0), None, |_| Vec::new()),
    ]
}

fn bars(p: &[Position]) -> Vec<Comparison> {
    let rounds = ratio(p, "nocheckpoint_merge", "checkpoint_merge");
    let because = Because { larger: LESS_TO_WRITE, smaller: LESS_TO_WRITE };
    // The allowed distance from the published value is that of a ratio.
    let cost = |who, what: [&str; 2], published: f64| {
        let took = counter(p, who, MS);
        let bounds = [Rule::AtLeast(published / FACTOR), Rule::AtMost(published * FACTOR)];
        let held = |(name, bound)| Comparison::figure(name, bound, &took);
        what.into_iter()
            .zip(bounds)
            .map(held)
            .map(|c| c.beside(published).since(LESS_TO_WRITE))
            .collect::<Vec<_>>()
    };
    let mut all = vec![Comparison::reproduces(RATIO, published().ratio(), &rounds, because)];
    // 1000 fsyncs took 68 and 48 s.
    all.extend(cost("nocheckpoint_merge", UNMERGED, 68.0));
    all.extend(cost("checkpoint_merge", MERGED, 48.0));
    all
}
