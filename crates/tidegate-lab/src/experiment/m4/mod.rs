//! M4: the number of data logs that are open at once.

mod columns;
mod more;

use super::comparison::{Because, Comparison, Rule};
use super::outcome::{Position, Published};
use super::setting::{Metric, Setting, counter, counter_ratio, ratio};
use super::{Experiment, Where};
use crate::workload::{Periodic, Spec, Streams};
use columns::{COUNTERS, FSYNC, LOCKED_COUNTERS, P9999, READ, REFUSED, WAITED, ZONED_COUNTERS};
use tidegate::Elevator;
use tidegate::detect::Format;
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::MemoryLimits;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "m4",
    title: "F2FS on several data logs: files that are written at once go to zones of their own",
    mechanism: "A zone takes writes at half of what the device does. With one log for all warm data, all files are \
        written to one zone, and the data of one keeps those of others waiting. With a stream for each file (spf) \
        as many zones are written at once as there are files. With round robin (srr) a file's runs go to each in turn; \
        with auto a file has a stream of its own from when others' blocks come behind its last.",
    settings,
    notes: &[
        "Each file is written 4 KiB at a time, with fsync after 128 of them, as published; the files are smaller here.",
        "The device has the rates of a ZN540's zones, but takes writes anywhere, and F2FS's sections are as long as a \
         zone. Nine files on zones are the same job on a device that refuses what is not at a write pointer: 14 of its \
         zones may be partly written, of which six logs and one zone that was left have seven, so that eight streams of \
         warm data are open for nine files.",
        "One log was published with 668 MiB/s of nine files, and has 887 here, on zones 975: the model's zone does 988. With \
         a stream for each, 1,550, the device is not full either, since an fsync ends with nodes, which go to one log for all, and with a flush, which waits for every zone.",
        "With auto nine files have a stream each, as with spf, and so gain as much. Nothing that shares out streams can gain \
        much more: nine times 512 KiB take 2.2 ms of a device that writes 2,048 MiB/s, and a round of nine fsyncs takes 2.9. \
        1.2 times spf is 2.4 ms, with 0.4 for the writers' copying, and a flush and nodes after it.",
        "Streams behind one lock (stream_flush=all) are how they were first tried. Each fsync waits for the others' turns, \
        and sends the bios that these have begun: more bios, and as much waiting as with one log. With a lock for each stream \
        nobody waits for one.",
        "What one writer has on its way at once, 512 KiB, is less than a zone's buffer takes: the device is not what it \
         waits for.",
        "Beside cleaning (gc-concurrent, published with 383 and 885 MiB/s): seven files that were written at once fill the \
         volume, four are removed, and four are written. With one log every zone holds a part of all seven. Zones are 64 \
         times shorter than the device's, 128 in a first look, and so are the times of their resets and finishes.",
        "One file with 32 writes and fsyncs under way is the author's job of io_uring, depth 32 and fsync=32. Nine files \
         without fsync are shown beside his second data set, which has no fsyncs, was made with sectors of 4 KiB, and gained \
         5 %: 847 to 887 MiB/s.",
        "A write is a copy into memory here, and nobody writes so much that it has to wait: its p99.99 is that of the \
         interruptions of a simulated world, up to 3 ms, in every position.",
    ],
    across: |_| {},
    kernel: None,
};

const ONE: &str = "warm_streams=1";
const SPF: &str = "spf";
const SRR: &str = "srr";
const AUTO: &str = "auto";
/// A position for more files must be at least as fast as one log, with this tolerance.
const AS_MUCH: f64 = 0.98;
const POSITIONS: &[&str] = &[
    ONE,
    "stream_policy=spf,warm_streams=9",
    "stream_policy=srr,warm_streams=9",
    "stream_policy=auto,warm_streams=9",
];

/// All take Linux's lock: one log, the first try in the notes, and a lock for each stream.
const LOCKED: &[&str] = &[
    ONE,
    "stream_flush=all,stream_policy=spf,warm_streams=9",
    "stream_flush=inode,stream_policy=spf,warm_streams=9",
];
/// Files, and MiB/s as published: with one log, with spf, with srr.
const PUBLISHED: [(u64, [f64; 3]); 4] = [
    (1, [497.0, 518.0, 508.0]),
    (2, [496.0, 722.0, 418.0]),
    (4, [607.0, 945.0, 629.0]),
    (9, [668.0, 1167.0, 905.0]),
];

/// Published for nine files, in ms, with one log and with spf: p99.99 of a write, the mean of an fsync.
const PUBLISHED_P9999: [f64; 2] = [3.13, 1.04];
const PUBLISHED_FSYNC: [f64; 2] = [5.06, 2.78];

type Bars = fn(&[Position]) -> Vec<Comparison>;

fn settings(quick: bool) -> Vec<Setting> {
    let bars: [Bars; 4] = [one_file, |p| two(p, 1), |p| two(p, 2), nine];
    let setting = |((writers, published), bars): ((u64, [f64; 3]), Bars)| Setting {
        name: format!("{writers} file{}", if writers == 1 { "" } else { "s" }),
        job: None,
        place: Where::Preset(Preset::Zns),
        // 64 zones.
        size: 128 << 30,
        shorter: 1,
        format: Format::F2fs,
        cpus: 16,
        costs: Costs::default(),
        elevator: Elevator::None,
        memory: MemoryLimits::of_machine(4 << 30),
        options: "",
        workload: Spec::Streams(Streams {
            writers,
            size: if quick { 16 << 20 } else { 64 << 20 },
            block: 4096,
            periodic: Periodic::FsyncEvery(128 * 4096),
            read_back: READ,
            interval_ms: 10,
            ..Streams::default()
        }),
        metric: Metric::Elapsed,
        positions: POSITIONS,
        // Seconds for a GiB.
        published: Some(Published {
            source: "msF2FS on a WD Ultrastar DC ZN540".into(),
            what: format!("GiB of {writers} files, one log and spf, s"),
            before: 1024.0 / published[0],
            after: 1024.0 / published[1],
        }),
        counters: COUNTERS,
        bars,
        bios: false,
        causes: false,
    };
    let behind_locks = Setting {
        name: "9 files, a lock for write-pages".into(),
        options: "writepages=submit_locked,min_seq_blocks=0",
        positions: LOCKED,
        published: None,
        counters: LOCKED_COUNTERS,
        ..setting((PUBLISHED[3], locked))
    };
    let on_zones = Setting {
        name: "9 files on zones".into(),
        job: Some("9 files"),
        place: Where::Zoned(Preset::Zns),
        counters: ZONED_COUNTERS,
        ..setting((PUBLISHED[3], zoned))
    };
    let more = more::settings(quick, || setting((PUBLISHED[0], one_file)));
    PUBLISHED.into_iter().zip(bars).map(setting).chain([behind_locks, on_zones]).chain(more).collect()
}

/// The gain of spf over one log.
fn gain(p: &[Position]) -> Vec<f64> {
    ratio(p, ONE, SPF)
}

/// The gain of auto over one log: for no number of files a loss, except for the cost of opening a stream.
fn auto(p: &[Position], of: usize) -> Comparison {
    let files = PUBLISHED[of].0;
    auto_of(p, &format!("{files} file{}", if files == 1 { "" } else { "s" }))
}

/// As [`auto`], for another job.
fn auto_of(p: &[Position], job: &str) -> Comparison {
    let name = format!("auto / one log, MiB/s, {job}");
    Comparison::ratio(&name, Rule::AtLeast(AS_MUCH), &ratio(p, ONE, AUTO))
}

fn one_file(p: &[Position]) -> Vec<Comparison> {
    let published = PUBLISHED[0].1;
    vec![
        Comparison::ratio("spf / one log, MiB/s, 1 file", Rule::AtLeast(AS_MUCH), &gain(p))
            .beside(published[1] / published[0]),
        auto(p, 0),
    ]
}

fn two(p: &[Position], of: usize) -> Vec<Comparison> {
    let (files, published) = PUBLISHED[of];
    let name = format!("spf / one log, MiB/s, {files} files");
    vec![
        Comparison::reproduces(&name, published[1] / published[0], &gain(p), Because::default()),
        auto(p, of),
    ]
}

fn nine(p: &[Position]) -> Vec<Comparison> {
    let published = PUBLISHED[3].1;
    let gained = |name, of: f64, rounds: &[f64]| Comparison::reproduces(name, of, rounds, Because::default());
    let slowest = counter_ratio(p, P9999, SPF, ONE);
    vec![
        gained("spf / one log, MiB/s, 9 files", published[1] / published[0], &gain(p)),
        Comparison::ratio("spf / one log, MiB/s, 9 files: of what we want", Rule::AtLeast(1.75), &gain(p)),
        gained("srr / one log, MiB/s, 9 files", published[2] / published[0], &ratio(p, ONE, SRR)),
        gained(
            "one log / spf, mean time of an fsync, 9 files",
            PUBLISHED_FSYNC[0] / PUBLISHED_FSYNC[1],
            &counter_ratio(p, FSYNC, ONE, SPF),
        ),
        Comparison::ratio("spf / one log, p99.99 of a write, 9 files", Rule::AtMost(1.0 / 3.0), &slowest)
            .beside(PUBLISHED_P9999[1] / PUBLISHED_P9999[0])
            .since(NOBODY_WAITS),
        auto(p, 3),
        Comparison::ratio("auto / spf, MiB/s, 9 files", Rule::AtLeast(1.2), &ratio(p, SPF, AUTO))
            .since(A_STREAM_EACH),
    ]
}

const NOBODY_WAITS: &str = "a write is a copy into memory, and in so short a run none waits for the device";
const A_STREAM_EACH: &str = "nine files have nine streams with either, so that blocks lie in the same zones";
const ALL_OF_A_ZONE: &str = "one log has nearly all that a zone of the model does, more than was published of it; with \
    streams an fsync ends with nodes in one log for all, and with a flush that waits for every zone";

/// The published job on zones; the device must not have to refuse a write.
fn zoned(p: &[Position]) -> Vec<Comparison> {
    let published = PUBLISHED[3].1;
    let gained = |name, of: f64, rounds: &[f64]| Comparison::reproduces(name, of, rounds, Because::default());
    let mut all = vec![
        gained("spf / one log, MiB/s, 9 files on zones", published[1] / published[0], &gain(p)),
        Comparison::ratio(
            "spf / one log, MiB/s, 9 files on zones: of what we want",
            Rule::AtLeast(1.75),
            &gain(p),
        )
        .since(ALL_OF_A_ZONE),
        gained(
            "one log / spf, mean time of an fsync, 9 files on zones",
            PUBLISHED_FSYNC[0] / PUBLISHED_FSYNC[1],
            &counter_ratio(p, FSYNC, ONE, SPF),
        ),
        Comparison::ratio(
            "auto / one log, MiB/s, 9 files on zones",
            Rule::AtLeast(AS_MUCH),
            &ratio(p, ONE, AUTO),
        ),
    ];
    for position in [ONE, SPF, SRR, AUTO] {
        let refused = counter(p, position, REFUSED);
        all.push(Comparison::figure(&format!("{REFUSED}, {position}"), Rule::AtMost(0.0), &refused));
    }
    all
}

/// The first try in the notes gained nothing: everything is sent behind one lock, in more bios than before.
fn locked(p: &[Position]) -> Vec<Comparison> {
    let streams = |name, rule, before, after| Comparison::ratio(name, rule, &ratio(p, before, after));
    vec![
        streams("streams behind one lock / one log, MiB/s", Rule::AtMost(1.0), ONE, "all"),
        streams("sent by file, a lock each / all sent, one lock, MiB/s", Rule::AtLeast(1.0), "all", "inode"),
        Comparison::figure(
            "waited for the lock of each stream, ms",
            Rule::AtMost(0.0),
            &counter(p, "inode", WAITED),
        ),
    ]
}
