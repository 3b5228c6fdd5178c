//! M2: waits of a journal's commit beside a congested device.

mod f2fs;

use super::comparison::{Because, Comparison, Rule};
use super::outcome::{Position, Published};
use super::setting::{Counter, Metric, Setting, count, counter, counter_ratio, ratio};
use super::{Experiment, Where};
use crate::commit_log::JBD2_COMMIT;
use crate::result::{Latency, RunResult};
use crate::workload::{PgIoPerf, Spec};
use tidegate::detect::Format;
use tidegate::{Elevator, Queues, WfqOptions};
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::MemoryLimits;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "m2",
    title: "ext4 and F2FS writepages: no transaction and no checkpoint waits for a congested device",
    mechanism: "A commit waits until the handles of its transaction have ended. A pass over dirty pages that sends all \
        of them under one handle (off) keeps it while it waits for room in the queue, and every commit waits with it. \
        Pages that need no place are sent first, without a handle (on). With pipelined nothing is sent under a handle: \
        pages get their places under a short one and are sent when it has ended.",
    settings,
    notes: &[
        "Scaled to a 96th: data (48 GiB to 512 MiB), memory (24 GiB to 256 MiB) and with it what may be dirty, the log \
         (1 GiB), the writes before an fsync (100,000 to 1,041). Not scaled: threads, blocks, pauses, the queue, and the \
         five seconds after which a transaction is committed.",
        "The queue has 128 requests, as published, for what nobody waits for, whoever sends it. Linux had 128 more for all \
         that somebody waits for; in the model each thread has 128 of these.",
        "The elevator stands for CFQ: a thread that waits has a queue of its own, what nobody waits for has one for all, and \
         these take turns. Four requests are at the device at a time, as the elevator has it unless told.",
        "journal=jbd2, as Linux has it, in three positions, which so differ in nomap_first alone. The fourth is how volumes \
         are opened unless told, and the one that is held against the bounds.",
        "What pipelined gains over on is the journal's here. All pages have a place, so that neither holds a handle while it \
         sends. With jbd2 one thread writes a commit's blocks and then its record, and before the second the elevator \
         serves all others. With journal=pipelined another thread writes the record.",
        "A pass of the flusher takes what is 30 s old, and an fsync follows each 1,041 writes: between these nothing is \
         congested, and commits are short in every position.",
        "On the controller off / on stays below the published 180. A handle is kept as long as it takes to send what is \
         dirty, and that is scaled to a 96th: an fsync of 1,041 writes sends some 3,100 blocks, some 70 a second, which \
         are 44 s, and two such commits among twenty are a mean of 4 s. On the published machine an fsync was 100,000 \
         writes, and the mean 18 s. With on, which keeps no handle that long, the mean falls by less.",
        "No worse is within 5 %. On the controller, runs of one position differ by nearly as much from seed to seed (the p99 \
         of a write), and of two that are equally good one would pass a bound of 0 % in every other experiment.",
        f2fs::NOTES[0],
        f2fs::NOTES[1],
        f2fs::NOTES[2],
        f2fs::NOTES[3],
    ],
    across: |_| {},
    kernel: None,
};

const POSITIONS: &[&str] = &["nomap_first=off", "nomap_first=on", "nomap_first=pipelined", PIPELINED];
/// The position for which the bounds of the third way are set.
const PIPELINED: &str = "nomap_first=pipelined,journal=pipelined";

/// Bytes of the published machine's memory, scaled like the workload's defaults.
const MEMORY: u64 = 256 << 20;

const P99: &str = "p99 of a jbd2 commit, ms";
const WORST: &str = "worst jbd2 commit, ms";
const FDATASYNC: &str = "fdatasync of the log, ms";
const FDATASYNC_P99: &str = "p99 of it, ms";
const WRITE: &str = "write, ms";
const WRITE_P99: &str = "p99 of a write, ms";
const READS: &str = "reads/s";
const READ_P99: &str = "p99 of a read, ms";
const WRITES: &str = "writes/s";
const FSYNC: &str = "fsync of the data, ms";

/// Figures that must be no worse in the third way: the comparison, the counter, and whether more of it is
/// better.
const NO_WORSE: [(&str, &str, bool); 8] = [
    ("fdatasync, pipelined / on", FDATASYNC, false),
    ("p99 fdatasync, pipelined / on", FDATASYNC_P99, false),
    ("write, pipelined / on", WRITE, false),
    ("p99 write, pipelined / on", WRITE_P99, false),
    ("fsync of data, pipelined / on", FSYNC, false),
    ("p99 read, pipelined / on", READ_P99, false),
    ("writes/s, on / pipelined", WRITES, true),
    ("reads/s, on / pipelined", READS, true),
];
/// The notes explain it.
const TOLERANCE: f64 = 1.05;

/// The published mean times, in seconds.
const MEANS: (f64, f64) = (18.0, 0.1);
/// The longest time published with the change.
const LONGEST: f64 = 0.563_792;

const COUNTERS: &[Counter] = &[
    ("jbd2 commits", |r| latency(r, JBD2_COMMIT).map(|l| l.count as f64)),
    (P99, |r| p99(r, JBD2_COMMIT)),
    (WORST, |r| Some(*latency(r, JBD2_COMMIT)?.longest.first()? as f64 / 1e6)),
    (FDATASYNC, |r| mean(r, "fdatasync")),
    (FDATASYNC_P99, |r| p99(r, "fdatasync")),
    (WRITES, |r| Some(r.per_second("write"))),
    (WRITE, |r| mean(r, "write")),
    (WRITE_P99, |r| p99(r, "write")),
    (READS, |r| Some(r.per_second("read"))),
    (READ_P99, |r| p99(r, "read")),
    (FSYNC, |r| mean(r, "checkpoint")),
    ("waited in get_request, s", |r| Some(count(r, "queue.congested_ns").unwrap_or(0.0) / 1e9)),
    ("KiB in flight", |r| Some(count(r, "queue.kib_us")? * 1e3 / r.elapsed_ns as f64)),
];

fn latency<'a>(r: &'a RunResult, op: &str) -> Option<&'a Latency> {
    r.ops.get(op).map(|o| &o.latency)
}

/// The mean time of an operation in milliseconds.
fn mean(r: &RunResult, op: &str) -> Option<f64> {
    Some(latency(r, op)?.mean / 1e6)
}

/// The p99 of an operation in milliseconds.
fn p99(r: &RunResult, op: &str) -> Option<f64> {
    Some(*latency(r, op)?.percentiles.get("99.000000")? as f64 / 1e6)
}

fn settings(quick: bool) -> Vec<Setting> {
    let workload = PgIoPerf {
        duration_ms: if quick { 180_000 } else { 600_000 },
        operations: Some(0),
        interval_ms: 1000,
        ..PgIoPerf::default()
    };
    let setting = |preset, bars| Setting {
        name: format!("pgioperf on {preset}"),
        job: Some("pgioperf"),
        place: Where::Preset(preset),
        size: 2 << 30,
        shorter: 1,
        format: Format::Ext4,
        cpus: 8,
        costs: Costs::default(),
        elevator: Elevator::Wfq(WfqOptions { queues: Queues::Processes, ..WfqOptions::default() }),
        memory: MemoryLimits::of_machine(MEMORY),
        options: "journal=jbd2",
        workload: Spec::Pgioperf(workload.clone()),
        metric: Metric::Op(JBD2_COMMIT),
        positions: POSITIONS,
        published: Some(Published {
            source: "commit dddbd6ac8f25".into(),
            what: "mean time of a transaction's commit, s".into(),
            before: MEANS.0,
            after: MEANS.1,
        }),
        counters: COUNTERS,
        bars,
        bios: false,
        causes: true,
    };
    vec![
        setting(Preset::RaidBbwc, |p| bars(p, TURNS)),
        setting(Preset::Hdd, |p| bars(p, FLUSH)),
        f2fs::setting(quick),
    ]
}

/// The reason why the ratio is less on the controller.
const TURNS: &str = "a handle is kept as long as it takes to send what is dirty, and that is scaled to a 96th: an fsync of 1,041 \
    writes of 8 KiB at any byte sends some 3,100 blocks, one at each turn of the queues of 18 threads, some 70 a second: 44 s. \
    On the published machine it was 100,000 writes, and the longest commit 274 s";

/// The reason why the ratio is less on a disk.
const FLUSH: &str = "a commit's record goes behind a flush, and this disk's cache is volatile: the flush waits until all that was \
    sent before is on the platter, with a handle or without. 1,041 writes of 8 KiB at any byte are some 3,100 blocks, and with \
    8.2 ms for a seek and 4.2 ms for half a turn the disk writes 81 a second: 38 s, if nobody reads meanwhile";

fn bars(p: &[Position], smaller: &'static str) -> Vec<Comparison> {
    let on = p.iter().find(|q| q.name == "nomap_first=on");
    let mean: Vec<f64> = on.iter().flat_map(|q| q.values.iter().flatten()).copied().collect();
    let worst: Vec<f64> = counter(p, "on", WORST).iter().map(|ms| ms / 1e3).collect();
    let off = p.iter().find(|q| q.name == "nomap_first=off");
    let mut explained = Comparison::each(
        "explained of each commit, off, %",
        Rule::AtLeast(95.0),
        &off.map(Position::named).unwrap_or_default(),
    );
    if let Some(lost) = off.map(|q| q.lost_events).filter(|n| *n > 0) {
        explained.why = format!("not measured, as the recording lost {lost} events");
    }
    let because = Because { smaller, ..Because::default() };
    let of = |counter| counter_ratio(p, counter, PIPELINED, "on");
    let mut all = vec![
        Comparison::reproduces("off / on", MEANS.0 / MEANS.1, &ratio(p, "off", "on"), because).since(smaller),
        Comparison::figure("mean commit, on, s", Rule::AtMost(0.1), &mean).beside(MEANS.1).since(smaller),
        Comparison::figure("worst commit, on, s", Rule::AtMost(0.6), &worst).beside(LONGEST).since(smaller),
        Comparison::ratio(
            "on / pipelined, p99 commit",
            Rule::AtLeast(3.0),
            &counter_ratio(p, P99, "on", PIPELINED),
        ),
        explained,
    ];
    all.extend(NO_WORSE.iter().map(|(name, counter, more)| {
        let rounds = if *more { counter_ratio(p, counter, "on", PIPELINED) } else { of(counter) };
        Comparison::ratio(name, Rule::AtMost(TOLERANCE), &rounds)
    }));
    all
}
