//! M3: the thread that waits in a sync.

use super::comparison::{Because, Comparison, Rule};
use super::outcome::{Case, Position, Published};
use super::setting::{Metric, Setting, by_rounds, count, counter, ratio};
use super::{Experiment, Where};
use crate::result::RunResult;
use crate::workload::{FsMark, Spec, SyncMode};
use tidegate::Elevator;
use tidegate::detect::Format;
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::MemoryLimits;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "m3",
    title: "sync(2): the flusher submits, the caller waits",
    mechanism: "When the flusher waits for each inode's pages before it submits the next inode's, a sync of many \
        small files costs a device round trip for each, and meanwhile nothing else is written back, so writers come \
        to a halt. When it submits everything and the caller waits afterwards, small files share large bios. With \
        epochs the caller waits for one counter instead of walking all inodes, and callers share a pass.",
    settings,
    notes: &[
        "The load is offered at 40,000 files a second, the middle of what was published; who cannot keep up falls \
         behind.",
        "What it costs: who fsyncs beside a sync stands behind all that the sync submitted at once; the flusher that \
         waits lets others in between.",
        "Published on XFS; here a sync of F2FS ends with a checkpoint, in every position.",
        "The published dip is 28 times: a flusher that waits took 0.78 ms for each inode, where the files came at 28 \
         microseconds each. Here a wait takes some 0.2 ms, the latency of a published controller, and files come at 5 \
         microseconds where nothing holds them up.",
    ],
    across,
    kernel: None,
};

const POSITIONS: &[&str] = &["sync_wait=flusher", "sync_wait=caller", "sync_wait=epoch"];
const DIP: &str = "least files/s by its median";
const ROWS: &str = "least row of files/s by its median";
const SYNC: Metric = Metric::Event("sync");
/// The setting without a rate: its table of files a second has the published dip.
pub(crate) const AS_MANY: &str = "as many files as go";
/// Memory of the machine that makes as many files as it can: its dirty limit is a little more than a row of
/// 20,000 files.
const MACHINE: u64 = 1 << 30;
/// Files offered per second.
const RATE: u64 = 40_000;

fn settings(quick: bool) -> Vec<Setting> {
    let (threads, seconds) = (16, if quick { 1 } else { 6 });
    let mark = |syncers, files, every| FsMark {
        threads,
        files,
        size: 4 << 10,
        write_size: 4 << 10,
        sync: SyncMode::None,
        sync_every_ms: every,
        syncers,
        rate: RATE,
        interval_ms: 20,
        ..FsMark::default()
    };
    let setting = |name: &str, workload, metric, published: Option<Published>, bars| Setting {
        name: name.into(),
        job: None,
        place: Where::Preset(Preset::RaidBbwc),
        size: 8 << 30,
        shorter: 1,
        format: Format::F2fs,
        cpus: 16,
        costs: Costs::default(),
        elevator: Elevator::None,
        // The machine has memory for everything that is dirty between two syncs.
        memory: MemoryLimits { cache: 4 << 30, dirty: 2 << 30, background: 1 << 30, inodes: 1 << 20 },
        options: "",
        workload: Spec::FsMark(workload),
        metric,
        positions: POSITIONS,
        published,
        counters: &[
            ("files/s", |r| Some(r.per_second("file"))),
            (DIP, dip),
            (ROWS, dip_of_rows),
            ("data bios", |r| count(r, "fs.data_bios")),
            ("checkpoints", |r| count(r, "fs.commits")),
            ("p99 of a commit, ms", |r| {
                Some(*r.ops.get("commit")?.latency.percentiles.get("99.000000")? as f64 / 1e6)
            }),
        ],
        bars,
        bios: false,
        causes: false,
    };
    let published = Published {
        source: "commit 7747bd4bceb3".into(),
        what: "one sync beside fs_mark, s".into(),
        before: 52.4,
        after: 6.9,
    };
    let files = RATE * seconds / threads;
    let every = seconds * 250;
    // A first look has a smaller workload: one sync is enough to be in the way.
    let commits = FsMark { logs: 1, ..mark(1, 1250, 250) };
    vec![
        setting("one sync beside fs_mark", mark(1, files, every), SYNC, Some(published), bars),
        setting("4 syncs at once", mark(4, files / 2, every), SYNC, None, |_| Vec::new()),
        setting("16 syncs at once", mark(16, files / 2, every), SYNC, None, |_| Vec::new()),
        // The cost: a thread that fsyncs waits behind everything that a sync submits at once.
        setting("commits of a log beside them", commits, Metric::Op("commit"), None, |_| Vec::new()),
        Setting {
            memory: MemoryLimits::of_machine(MACHINE),
            // Linux's checkpoint waits for no data of files.
            options: "checkpoint_data=linux",
            ..setting(AS_MANY, closed_loop(quick), SYNC, None, rows)
        },
    ]
}

/// fs_mark without a rate, as published, and a row of its table for each loop. Eight rows are enough for two
/// syncs; 30 s would be six million files.
fn closed_loop(quick: bool) -> FsMark {
    FsMark {
        threads: 8,
        files: 2500,
        loops: if quick { 5 } else { 8 },
        size: 4 << 10,
        write_size: 4 << 10,
        sync: SyncMode::None,
        sync_every_ms: 250,
        ..FsMark::default()
    }
}

/// The row with the fewest files per second, divided by the median row; the first row fills memory and does
/// not wait.
fn dip_of_rows(r: &RunResult) -> Option<f64> {
    let rate = |e: &crate::result::Event| e.values.get("files_per_second").copied();
    let mut rows: Vec<u64> = r.events.iter().filter_map(rate).skip(1).collect();
    rows.sort_unstable();
    let median = *rows.get(rows.len() / 2)?;
    (median > 0).then(|| rows[0] as f64 / median as f64)
}

/// The fewest files in an interval, divided by the median; the first and last intervals are incomplete.
fn dip(r: &RunResult) -> Option<f64> {
    let all = r.series.ops.get("file")?;
    // Each interval is summed with its neighbours: 60 ms, so that a single interval does not count.
    let whole = all.get(1..all.len().checked_sub(1)?)?;
    let mut sums: Vec<u64> = whole.windows(3).map(|w| w.iter().map(|i| i.0).sum()).collect();
    sums.sort_unstable();
    let median = *sums.get(sums.len() / 2)?;
    (median > 0).then(|| sums[0] as f64 / median as f64)
}

fn bars(p: &[Position]) -> Vec<Comparison> {
    let because = Because {
        smaller: "the first pass of sync(2), which waits for nothing, leaves only what is dirtied meanwhile; to wait \
            for one such inode takes the flusher some 0.2 ms on this device, as published (45 s more for what 40,000 \
            files a second make in the 7 s of the first pass, are 0.16 ms for each)",
        ..Because::default()
    };
    vec![Comparison::reproduces("flusher / caller", 52.4 / 6.9, &ratio(p, "flusher", "caller"), because)]
}

fn rows(p: &[Position]) -> Vec<Comparison> {
    let dip = |who| counter(p, who, ROWS);
    vec![
        // Published: 1,283 files a second in the sync, 36,185 before it.
        Comparison::figure("least/median files/s, flusher", Rule::AtMost(0.2), &dip("flusher"))
            .beside(1282.7 / 36184.6),
        Comparison::figure("least/median files/s, caller", Rule::AtLeast(0.6), &dip("caller")),
    ]
}

/// Sixteen syncs by one, of those with epochs.
fn across(cases: &mut [Case]) {
    let epoch = |c: &Case| c.positions.iter().find(|p| p.name.ends_with("epoch")).map(|p| p.values.clone());
    let [one, _, sixteen, ..] = cases else { return };
    let rounds = epoch(sixteen).zip(epoch(one)).map_or(Vec::new(), |(a, b)| by_rounds(&a, &b));
    sixteen.comparisons.push(Comparison::ratio("16 syncs / one, epoch", Rule::AtMost(1.2), &rounds));
}
