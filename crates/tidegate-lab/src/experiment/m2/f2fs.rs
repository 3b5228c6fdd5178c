//! The experiment on F2FS: a checkpoint's waits beside a congested device, for which nothing is published.

use super::{MEMORY, latency, mean, p99};
use crate::experiment::Where;
use crate::experiment::comparison::{Comparison, Rule};
use crate::experiment::outcome::Position;
use crate::experiment::setting::{
    Counter, Metric, Setting, count, counter, counter_ratio, lock_wait_ms, ratio,
};
use crate::result::RunResult;
use crate::workload::{CkptStorm, Spec, StormGroup};
use tidegate::detect::Format;
use tidegate::{Elevator, Queues, WfqOptions};
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::{MemoryLimits, StepStats};

pub(super) const NOTES: [&str; 5] = [
    "F2FS: a stream fills the queue, four threads read at random, one makes files and takes them away, and one touches a file and \
        fsyncs its directory, 200 ms after the last, which takes a checkpoint each time. Nothing was published of this.",
    "F2FS: writepages=submit_locked is Linux's way: a page that gets a new place is sent with cp_rwsem held shared, \
        sbi->writepages and io_rwsem, and so waits in get_request with them (f2fs_do_write_data_page). What is written in \
        place is sent without cp_rwsem there, and so in ours. With extent pages are placed under cp_rwsem and sent without.",
    "F2FS: nodes are sent with no lock held in every position, where Linux holds node_write shared: the difference that is \
        shown is that of file data alone, and smaller than Linux's would be.",
    "F2FS: checkpoint_data=linux. With the default a checkpoint waits for the stream's data in both positions, for the last of it \
        while operations stand still. \
        Memory has room for all of the stream's file dirty, so that nobody waits for memory, and the flusher works from 16 MiB on.",
    "F2FS: what a checkpoint writes is synchronous, as Linux's, and so of the checkpoint thread's own queue. The elevator shares \
        out bytes, and of those a reader who seeks gets few: after more than 100 KiB of nodes and NAT and SIT blocks the pack \
        waits, with operations frozen, for the four readers to catch up; without readers, for nothing. BFQ charges a queue that \
        seeks for its time instead (bfq_bfqq_charge_time). The wait is the same in both positions, and their ratios are nearer \
        to 1 for it.",
];

const POSITIONS: &[&str] = &["writepages=submit_locked", "writepages=extent"];

const HELD: &str = "% of it with locks held that others want";
const BYSTANDER: &str = "create or unlink, ms";

const COUNTERS: &[Counter] = &[
    ("checkpoints", |r| count(r, "fs.commits")),
    ("touch and fsync, ms", |r| mean(r, "touch+fsync")),
    ("mean of the five longest, ms", |r| {
        let five = &latency(r, "touch+fsync")?.longest;
        Some(five.iter().sum::<u64>() as f64 / five.len().max(1) as f64 / 1e6)
    }),
    ("wait for cp_rwsem, ms", |r| ms(r, "wait for cp_rwsem", |s| s.mean_ns)),
    ("longest of them, ms", |r| ms(r, "wait for cp_rwsem", |s| s.max_ns)),
    ("frozen, ms", |r| ms(r, "frozen in all", |s| s.mean_ns)),
    ("nodes in it, ms", |r| ms(r, "nodes", |s| s.mean_ns)),
    ("NAT and SIT blocks in it, ms", |r| ms(r, "metadata area", |s| s.mean_ns)),
    ("the pack in it, ms", |r| ms(r, "writing the pack", |s| s.mean_ns)),
    ("flush and tail in it, ms", |r| ms(r, "flush and tail block", |s| s.mean_ns)),
    (BYSTANDER, bystander),
    ("p99 of a create, ms", |r| p99(r, "create")),
    ("waited in get_request, s", |r| Some(count(r, "queue.congested_ns").unwrap_or(0.0) / 1e9)),
    (HELD, |r| {
        let held = count(r, "queue.congested_holding_ns").unwrap_or(0.0);
        Some(held * 100.0 / count(r, "queue.congested_ns").filter(|n| *n > 0.0)?)
    }),
    ("all waits for cp_rwsem, ms", |r| Some(lock_wait_ms(r, "sbi->cp_rwsem").unwrap_or(0.0))),
    ("for node_write, ms", |r| Some(lock_wait_ms(r, "sbi->node_write").unwrap_or(0.0))),
    ("for sbi->writepages, ms", |r| Some(lock_wait_ms(r, "sbi->writepages").unwrap_or(0.0))),
    ("stream, MB/s", |r| Some(r.ops.get("stream")?.bytes as f64 * 1e3 / r.elapsed_ns as f64)),
    ("random reads/s", |r| Some(r.per_second("read"))),
];

/// A figure of a step of checkpoints, in milliseconds.
fn ms(r: &RunResult, step: &str, figure: fn(&StepStats) -> u64) -> Option<f64> {
    r.commits.as_ref()?.steps.iter().find(|s| s.name == step).map(|s| figure(s) as f64 / 1e6)
}

/// The mean time of the work of a thread that wants nothing durable.
fn bystander(r: &RunResult) -> Option<f64> {
    let (made, gone) = (latency(r, "create")?, latency(r, "unlink")?);
    let sum = made.mean * made.count as f64 + gone.mean * gone.count as f64;
    Some(sum / (made.count + gone.count) as f64 / 1e6)
}

pub(super) fn setting(quick: bool) -> Setting {
    let storm = CkptStorm {
        groups: vec![StormGroup { times: if quick { 25 } else { 100 }, ..StormGroup::default() }],
        touch_pause_ms: 200,
        stream_size: 280 << 20,
        stream_pause_us: 500,
        readers: 4,
        creators: 1,
        interval_ms: 1000,
        ..CkptStorm::default()
    };
    Setting {
        name: "checkpoints of F2FS on raid-bbwc".into(),
        job: Some("checkpoints of F2FS"),
        place: Where::Preset(Preset::RaidBbwc),
        size: 2 << 30,
        shorter: 1,
        format: Format::F2fs,
        cpus: 8,
        costs: Costs::default(),
        elevator: Elevator::Wfq(WfqOptions { queues: Queues::Processes, ..WfqOptions::default() }),
        memory: MemoryLimits { background: 16 << 20, ..MemoryLimits::of_machine(10 * MEMORY) },
        options: "checkpoint_data=linux",
        workload: Spec::CkptStorm(storm),
        metric: Metric::Checkpoint,
        positions: POSITIONS,
        published: None,
        counters: COUNTERS,
        bars,
        bios: false,
        causes: false,
    }
}

/// In Linux's way, a writer waits for room in the queue with the locks held; a writer that places first never
/// does. A checkpoint waits for the lock. In Linux's way that is until the page being sent has room, as no
/// further page is sent once the checkpoint waits. In the other way it is until a run is placed, which may
/// read nodes. Neither wait is required to be shorter. The work with operations frozen is equal in both: as a
/// whole it must be no slower, and so must threads that change names.
fn bars(p: &[Position]) -> Vec<Comparison> {
    let held = |position| counter(p, position, HELD);
    let of = |counter| counter_ratio(p, counter, "submit_locked", "extent");
    vec![
        Comparison::figure(
            "get_request with locks, submit_locked, %",
            Rule::AtLeast(50.0),
            &held("submit_locked"),
        ),
        Comparison::figure("get_request with locks, extent, %", Rule::AtMost(0.0), &held("extent")),
        Comparison::ratio(
            "checkpoint, submit_locked / extent",
            Rule::AtLeast(1.0),
            &ratio(p, "submit_locked", "extent"),
        ),
        Comparison::ratio("create or unlink, submit_locked / extent", Rule::AtLeast(1.0), &of(BYSTANDER))
            .since(BACK_TO_BACK),
    ]
}

const BACK_TO_BACK: &str = "a checkpoint follows the last one at once, so the shorter ones of extent leave less time between \
    two: names cannot be changed in 99 % of the time, with submit_locked in 81 %";
