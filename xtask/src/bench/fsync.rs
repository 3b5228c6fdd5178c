//! `bench fsync`: sixteen threads make small files, each file durable before the next; and they make files
//! without fsync.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::{Image, touch_memory};
use super::measure::Spread;
use super::series::{Case, Series, named, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};
use tidegate_testing::oracle;

const THREADS: u64 = 16;
/// Repetitions on one volume. Caches, logs and buffers are empty in the first.
const LOOPS: u64 = 6;
const VOLUME: u64 = 1 << 30;

/// The number of files per thread, their size in bytes, and a name for the size.
const SIZES: [(u64, u64, &str); 2] = [(100, 4 << 10, "4 KiB"), (8, 512 << 10, "512 KiB")];
/// The devices, and the factor by which ours is to beat the kernel's file system of the same format there.
const DEVICES: [(&str, f64); 2] = [("memory", 2.0), ("disk", 1.2)];
/// The number of files per thread without fsync, their size in bytes, and the factor by which making them is
/// to be faster than with the kernel.
const UNSYNCED: [(u64, u64, &str); 2] =
    [(1000, 4 << 10, "4 KiB, no fsync"), (16, 512 << 10, "512 KiB, no fsync")];
const UNSYNCED_BAR: f64 = 1.5;
/// The bytes of our page cache without fsync: large enough that no write-back begins before the files are
/// made, as with the kernel's cache, which has the machine's memory.
const UNSYNCED_CACHE: u64 = 2 << 30;

const OURS: &str = "tidegate";
const OURS_EXT4: &str = "tidegate ext4";
const EXT4: [&str; 2] = ["ext4", "ext4 direct"];
const KERNEL: &str = "kernel f2fs";

const COLUMNS: &[Column] = &[
    Column { head: "steady files/s", digits: 0, of: steady },
    Column { head: "first files/s", digits: 0, of: first },
    Column { head: "flushes/fsync", digits: 3, of: |r| Some(r.count("flushes")? / r.fsyncs as f64) },
    Column { head: "checkpoints", digits: 0, of: |r| r.count("commits") },
    Column { head: "KiB/bio", digits: 1, of: |r| Some(r.per("written_bytes", "writes")? / 1024.0) },
];

/// A part of a run, with its name.
type Phase = (&'static str, fn(&Report) -> Option<f64>);

const PHASES: [Phase; 2] = [("steady", steady), ("first", first)];

/// Files per second in the first repetition.
fn first(r: &Report) -> Option<f64> {
    speed(r, *r.loops.first()?)
}

/// The median of the files per second in the later repetitions.
fn steady(r: &Report) -> Option<f64> {
    speed(r, Spread::of(r.loops.iter().skip(1).copied())?.median)
}

fn speed(r: &Report, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| r.files as f64 / r.loops.len() as f64 / seconds)
}

/// Measures and reports the cases whose devices and sizes contain `only`.
pub fn run(plan: &Plan, disk: &Path, only: Option<&str>) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(60))?;
    let images = [Image::new(&plan.dir, VOLUME)?, Image::new(disk, VOLUME)?];
    let mut cases = Vec::new();
    for (image, (device, _)) in images.iter().zip(DEVICES) {
        // Without fsync, no thread waits for the device, so one device is enough.
        let unsynced = UNSYNCED.iter().filter(|_| device == DEVICES[0].0);
        for (sync, (files, bytes, size)) in
            SIZES.iter().map(|s| ("each", s)).chain(unsynced.map(|s| ("never", s)))
        {
            let cache = (sync == "never").then(|| format!("--cache {UNSYNCED_CACHE} "));
            let label = format!("{device} {size}");
            if only.is_some_and(|word| !label.contains(word)) {
                continue;
            }
            let files = plan.scaled(*files);
            let mark = format!(
                "mark --threads {THREADS} --files {files} --size {bytes} --loops {LOOPS} --sync {sync}"
            );
            let ours = words(&(cache.unwrap_or_default() + &mark));
            add_cases(&mut cases, &workload, image, &plan.dir, &label, (ours, words(&mark)));
        }
    }
    let series = rounds(plan.runs, &cases);
    let sizes =
        SIZES.iter().chain(&UNSYNCED).map(|(n, _, size)| format!("{THREADS} x {} x {size}", plan.scaled(*n)));
    let notes = [
        format!("memory: {}; disk: {}", plan.dir.display(), disk.display()),
        format!("{LOOPS} times on one volume: the first, and the median of the others (steady). In between,"),
        "for all alike and not measured, the files are removed and all is synced".into(),
        "memory is touched before each run, in pages and in large pages: the first repetition is not about"
            .into(),
        "how long a virtual machine's host takes to give memory".into(),
        format!(
            "without fsync our page cache is of {} GiB: no write-back begins before the files are made, as in the kernel's",
            UNSYNCED_CACHE >> 30
        ),
        "tidegate ext4: by the library, on what mke2fs made, as the kernel's".into(),
        "ext4: loop mount; direct: its loop device goes around the host's page cache, as we do".into(),
        "kernel f2fs: user-mode-linux, one CPU, by its own clock; its disk writes through (O_SYNC)".into(),
        "KiB/bio: of kernels, requests as their block layer merged them, empty flushes included".into(),
    ];
    let bars = bars(&series);
    let sizes: Vec<String> = sizes.collect();
    let title = format!("create, write and fsync, {}; {} rounds", sizes.join(" and "), plan.runs);
    Outcome { title, columns: COLUMNS, series: &series, notes: notes.into(), bars }.print(plan.json)
}

fn add_cases<'a>(
    cases: &mut Vec<Case<'a>>,
    workload: &'a Workload,
    image: &'a Image,
    memory: &'a Path,
    label: &str,
    (ours, args): (Vec<String>, Vec<String>),
) {
    let not_root = (!rustix::process::geteuid().is_root()).then_some("a loop mount needs root");
    let no_guest = oracle::available("linux.uml").is_none().then_some("linux.uml is not installed");
    let mark = ours.clone();
    let run = move || {
        image.mkfs_f2fs()?;
        touch_memory(memory)?;
        let report = workload.on_image(image.path(), "", &mark)?;
        image.fsck()?;
        Ok(report)
    };
    cases.push(Case::new(format!("{label} {OURS}"), run));
    let run = move || {
        image.mkfs_ext4()?;
        touch_memory(memory)?;
        let report = workload.on_image(image.path(), "", &ours)?;
        image.e2fsck()?;
        Ok(report)
    };
    cases.push(Case::new(format!("{label} {OURS_EXT4}"), run));
    for (name, direct) in EXT4.into_iter().zip([false, true]) {
        let mark = args.clone();
        let ext4 = move || {
            image.mkfs_ext4()?;
            touch_memory(memory)?;
            let mounted = image.mount_ext4(direct)?;
            workload.on_dir(mounted.dir(), &mark)
        };
        cases.push(Case::new(format!("{label} {name}"), ext4).unless(not_root));
    }
    let kernel = move || {
        image.mkfs_f2fs()?;
        let line = workload.guest_line(&args);
        let script = format!("mount -t f2fs \"$DEV\" \"$MNT\"\n{line}umount \"$MNT\"\n");
        workload.in_guest(image.path(), &script)
    };
    cases.push(Case::new(format!("{label} {KERNEL}"), kernel).unless(no_guest));
}

/// Bars for each device and size: our F2FS faster than both peers, and our ext4 faster by a factor than the
/// better of the two ext4 peers.
fn bars(all: &[Series]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (device, times) in DEVICES {
        for (_, _, size) in SIZES {
            for phase in PHASES {
                bars.extend(bars_of(all, &format!("{device} {size}"), phase, times));
            }
        }
    }
    for (_, _, size) in UNSYNCED {
        let case = format!("{} {size}", DEVICES[0].0);
        bars.extend(PHASES.into_iter().map(|phase| bar(all, &case, phase, (OURS_EXT4, &EXT4), UNSYNCED_BAR)));
    }
    bars
}

fn bars_of(all: &[Series], case: &str, phase: Phase, times: f64) -> [Bar; 3] {
    let above = |peers: &[&str]| bar(all, case, phase, (OURS, peers), 1.0);
    [above(&EXT4), above(&[KERNEL]), bar(all, case, phase, (OURS_EXT4, &EXT4), times)]
}

/// Ours beside the best of its peers: at least `times` as fast, and faster where that is 1.
fn bar(all: &[Series], case: &str, (phase, speed): Phase, (ours, peers): (&str, &[&str]), times: f64) -> Bar {
    let rate = |who: &str| Some(named(all, &format!("{case} {who}"))?.spread(speed)?.median);
    let best = peers.iter().filter_map(|p| rate(p)).reduce(f64::max);
    let value = rate(ours).zip(best).map(|(a, b)| a / b);
    let what = format!("{case}, {phase}, {ours}, files/s to {}", peers.first().unwrap_or(&""));
    if times > 1.0 { Bar::least(what, times, value) } else { Bar::above(what, times, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_ext4_is_the_one_to_beat() {
        let series = |name: &str, later: f64| Series {
            name: name.into(),
            reports: vec![Report { loops: vec![3.0, later, later], files: 300, ..Report::default() }],
            failed: None,
        };
        let all = [
            series("memory 4 KiB tidegate", 1.0),
            series("memory 4 KiB tidegate ext4", 0.25),
            series("memory 4 KiB ext4", 2.0),
            series("memory 4 KiB ext4 direct", 0.5),
        ];
        let bars = bars(&all);
        assert_eq!(bars.len(), 8 * 3 + 4);
        let found = |i: usize| (bars[i].value, bars[i].met);
        assert_eq!((found(0), found(1)), ((Some(0.5), Some(false)), (None, None)));
        assert_eq!((found(2), found(3)), ((Some(2.0), Some(true)), (Some(1.0), Some(false))));
    }
}
