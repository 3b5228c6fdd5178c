//! M5: one checkpoint for all who wait, by a thread of its own.

use super::comparison::{Because, Comparison};
use super::outcome::{Position, Published};
use super::setting::{Metric, Setting, count, lock_wait_ms, ratio};
use super::{Experiment, Where};
use crate::workload::{CkptStorm, Spec, StormGroup};
use tidegate::{Elevator, WfqOptions};
use tidegate_block::Preset;
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
        "A checkpoint here waits for all data in flight, so that no file ever shows what a block held before; \
         Linux waits for metadata alone. The stream beside it makes each checkpoint longer, in both positions.",
        "What the switch saves for each fsync is as published, some 17 ms here and 20 there: the elevator waits for \
         the next request of the group in service (slice_idle, 8 ms), twice for each turn. The rest of a checkpoint \
         is short on a volume that was just made, 0.7 ms where it took 48, so the ratio is much larger.",
        "As published, writes of the flusher count for the root group: blkio of cgroup v1 knows no better.",
    ],
    across: |_| {},
};

const POSITIONS: &[&str] = &["nocheckpoint_merge", "checkpoint_merge"];

fn settings(quick: bool) -> Vec<Setting> {
    // As published, also when it has to be quick: a few hundred end before the stream has filled what it may.
    let times = 1000;
    let group = |group, weight, threads, times| StormGroup { group, weight, threads, times };
    let interval_ms = if quick { 1 } else { 100 };
    let storm =
        |groups, stream_group| CkptStorm { groups, stream_group, interval_ms, ..CkptStorm::default() };
    let setting = |name: &str, workload, published, bars| Setting {
        name: name.into(),
        place: Where::Preset(Preset::Ufs),
        size: 1 << 30,
        cpus: 8,
        elevator: Elevator::Wfq(WfqOptions { strict_guarantees: true, ..WfqOptions::default() }),
        memory: MemoryLimits::default(),
        options: "",
        workload: Spec::CkptStorm(workload),
        metric: Metric::Elapsed,
        positions: POSITIONS,
        published,
        counters: &[
            ("checkpoints", |r| count(r, "fs.checkpoints")),
            ("fsyncs", |r| r.ops.get("touch+fsync").map(|o| o.latency.count as f64)),
            ("checkpoints for each fsync", |r| {
                Some(count(r, "fs.checkpoints")? / r.ops.get("touch+fsync")?.latency.count as f64)
            }),
            ("waited for sbi->cp_global_sem, ms", |r| lock_wait_ms(r, "sbi->cp_global_sem")),
        ],
        bars,
    };
    let published = Published {
        source: "commit 261eeb9c".into(),
        what: "1000 x (touch; fsync of the directory) in a group of weight 100 beside one of 20, s".into(),
        before: 68.0,
        after: 48.0,
    };
    vec![
        setting(
            "groups of weight 100 and 20",
            storm(vec![group(1, 100, 1, times), group(2, 20, 1, 0)], 1),
            Some(published),
            bars,
        ),
        // What it costs: a caller alone hands over to a thread and back.
        setting("one caller alone", storm(vec![group(1, 100, 1, times)], 0), None, |_| Vec::new()),
    ]
}

fn bars(p: &[Position]) -> Vec<Comparison> {
    let because = Because {
        larger: "a checkpoint of a volume that was just made takes a millisecond where it took 48, so what the \
            switch saves is nearly all of the time",
        ..Because::default()
    };
    let name = "without / with checkpoint_merge";
    let rounds = ratio(p, "nocheckpoint_merge", "checkpoint_merge");
    vec![Comparison::reproduces(name, 68.0 / 48.0, &rounds, because)]
}
