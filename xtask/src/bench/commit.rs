//! `bench commit`: the cost of an fsync beside a stream of writes, and of a read beside random reads, for our
//! ext4 and the kernel's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cli::Plan;
use super::image::{Image, touch_memory};
use super::mount::peer::Peer;
use super::series::{Case, Series, named, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};
use tidegate_testing::workspace;

const VOLUME: u64 = 2 << 30;
/// Seconds of each run.
const SECONDS: f64 = 15.0;

/// The work, and the arguments of the example for it.
const APPEND: (&str, &str) = ("append 4 KiB + fsync", "append --threads 4");
const READ: (&str, &str) = ("read 4 KiB", "read --threads 16");
/// The bytes of our page cache: twice those of the large file.
const CACHE: u64 = 512 << 20;
/// The bytes that may be dirty in our page cache: a fifth, as `vm.dirty_ratio` is a fifth of the machine's
/// memory. The kernel gets this bound, too; otherwise it would write nothing of the stream during the
/// measurement.
const DIRTY: u64 = CACHE / 5;

const OURS: &str = "tidegate";
const MOUNT: &str = "tidegate mount";
const EXT4: [&str; 2] = ["ext4", "ext4 direct"];

const COLUMNS: &[Column] = &[
    Column { head: "p99 ms", digits: 2, of: p99 },
    Column { head: "p50 ms", digits: 2, of: |r| Some(r.count("p50_us")? / 1e3) },
    Column { head: "max ms", digits: 1, of: |r| Some(r.count("max_us")? / 1e3) },
    Column { head: "a second", digits: 0, of: rate },
    Column { head: "writer MB/s", digits: 0, of: |r| Some(r.count("beside_bytes")? / r.seconds / 1e6) },
];

fn p99(r: &Report) -> Option<f64> {
    Some(r.count("p99_us")? / 1e3)
}

/// Pages appended or read per second.
fn rate(r: &Report) -> Option<f64> {
    (r.seconds > 0.0).then(|| r.bytes as f64 / 4096.0 / r.seconds)
}

/// Measures and reports; the image is made in `disk`.
pub fn run(plan: &Plan, disk: &Path) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(60))?;
    let tidegate = workspace::build_tidegate()?;
    let image = Image::new(disk, VOLUME)?;
    // The benchmark touches memory through files in this directory.
    std::fs::create_dir_all(&plan.dir).with_context(|| plan.dir.display().to_string())?;
    let seconds = (SECONDS * plan.scale.clamp(0.05, 1.0)).max(1.0);
    let mut cases = Vec::new();
    for (label, what) in [APPEND, READ] {
        let args = words(&format!("beside {what} --seconds {seconds}"));
        add_cases(&mut cases, (&workload, &tidegate), &image, &plan.dir, label, args);
    }
    let series = rounds(plan.runs, &cases);
    let notes = vec![
        format!("on ext4 below {}, made by mke2fs; medians of rounds", disk.display()),
        "append: 4 threads, each to its file, beside 1 MiB writes that go through 256 MiB again and again"
            .into(),
        "read: 16 threads, one file of 256 MiB in memory, beside random 4 KiB writes of it, 200 us apart"
            .into(),
        format!(
            "at most {} MiB dirty in ext4's page cache, and in tidegate's of {} MiB",
            DIRTY >> 20,
            CACHE >> 20
        ),
        "tidegate mount: up to 32 MiB more dirty in the kernel".into(),
        "ext4: loop mount; direct: its loop device goes around the host's page cache, as we do".into(),
    ];
    let title = format!("fsyncs and reads beside a writer, {seconds} s each; {} rounds", plan.runs);
    let bars = bars(&series);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

fn add_cases<'a>(
    cases: &mut Vec<Case<'a>>,
    (workload, tidegate): (&'a Workload, &'a Path),
    image: &'a Image,
    memory: &'a Path,
    label: &str,
    args: Vec<String>,
) {
    let not_root = (!rustix::process::geteuid().is_root()).then_some("a loop mount needs root");
    let fresh = move || image.mkfs_ext4().and_then(|()| touch_memory(memory));
    let mut words = args.clone();
    words.extend(["--cache".into(), CACHE.to_string()]);
    let ours = move || fresh().and_then(|()| workload.on_image(image.path(), "", &words));
    cases.push(Case::new(format!("{label} {OURS}"), ours));
    let words = args.clone();
    let mount = move || {
        fresh()?;
        let mounted = Peer::TidegateExt4.mount(image, tidegate, &format!("cache={CACHE}"), &[])?;
        let report = workload.on_dir(mounted.dir(), &words);
        mounted.end()?;
        report
    };
    cases.push(Case::new(format!("{label} {MOUNT}"), mount).unless(not_root));
    for (name, direct) in EXT4.into_iter().zip([false, true]) {
        let words = args.clone();
        let ext4 = move || {
            fresh()?;
            let mounted = image.mount_ext4(direct)?;
            mounted.bound_dirty(DIRTY)?;
            workload.on_dir(mounted.dir(), &words)
        };
        cases.push(Case::new(format!("{label} {name}"), ext4).unless(not_root));
    }
}

/// Bars for the longest waits of 4 threads that fsync, against each of the two ext4 peers, and for the lowest
/// speed of 16 threads that read, against the better peer.
fn bars(all: &[Series]) -> Vec<Bar> {
    let value = |label: &str, who: &str, of: fn(&Report) -> Option<f64>| {
        Some(named(all, &format!("{label} {who}"))?.spread(of)?.median)
    };
    let mut bars = Vec::new();
    for who in [OURS, MOUNT] {
        let ours = value(APPEND.0, who, p99);
        bars.push(Bar::most(format!("{}, {who}, p99 ms", APPEND.0), 10.0, ours));
        for ext4 in EXT4 {
            let ratio = ours.zip(value(APPEND.0, ext4, p99)).map(|(a, b)| a / b);
            bars.push(Bar::most(format!("{}, {who}, p99 to {ext4}'s", APPEND.0), 0.25, ratio));
        }
    }
    let most = EXT4.iter().filter_map(|who| value(READ.0, who, rate)).reduce(f64::max);
    let ratio = value(READ.0, OURS, rate).zip(most).map(|(a, b)| a / b);
    bars.push(Bar::least(format!("{}, {OURS}, rate to ext4's", READ.0), 0.9, ratio));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_ext4_has_a_bar_and_the_faster_reader_is_the_one_to_beat() {
        let series = |name: &str, p99: u64, bytes: u64| Series {
            name: name.into(),
            reports: vec![Report {
                seconds: 1.0,
                bytes,
                counts: BTreeMap::from([("p99_us".into(), p99)]),
                ..Report::default()
            }],
            failed: None,
        };
        let all = [
            series("append 4 KiB + fsync tidegate", 12_000, 0),
            series("append 4 KiB + fsync ext4", 60_000, 0),
            series("append 4 KiB + fsync ext4 direct", 40_000, 0),
            series("read 4 KiB tidegate", 1, 4096 * 80),
            series("read 4 KiB ext4", 1, 4096 * 90),
            series("read 4 KiB ext4 direct", 1, 4096 * 100),
        ];
        let bars = bars(&all);
        let found: Vec<_> = bars.iter().map(|b| (b.value, b.met)).collect();
        assert_eq!(
            found,
            [
                (Some(12.0), Some(false)),
                (Some(0.2), Some(true)),
                (Some(0.3), Some(false)),
                (None, None),
                (None, None),
                (None, None),
                (Some(0.8), Some(false))
            ]
        );
    }
}
