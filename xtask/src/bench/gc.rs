//! `bench gc`: random overwrites of a volume with hardly any free space.

use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::Image;
use super::series::{Case, Series, named, ratio, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};
use tidegate_testing::oracle;

const VOLUME: u64 = 512 << 20;
const SHARE: f64 = 0.95;
const SECONDS: f64 = 60.0;
const FSYNC_EVERY: u64 = 1000;

/// Our variants: name and mount options.
const OURS: [(&str, &str); 2] = [("tidegate", ""), ("tidegate lfs", "mode=lfs")];
/// The kernel's variants: name, mount options and a value for `ipu_policy`.
const KERNEL: [(&str, &str, Option<u32>); 3] = [
    ("kernel f2fs", "", None),
    // The kernel's default on volumes above 16 GiB.
    ("kernel f2fs, ipu_policy=16", "", Some(16)),
    ("kernel f2fs lfs", "mode=lfs", None),
];
/// The pairs that are compared: both of a pair allocate in the same way.
const PAIRS: [(&str, &str); 2] =
    [("tidegate", "kernel f2fs, ipu_policy=16"), ("tidegate lfs", "kernel f2fs lfs")];

const COLUMNS: &[Column] = &[
    Column { head: "MB/s", digits: 1, of: speed },
    Column { head: "WA", digits: 3, of: amplification },
    Column { head: "WA, blocks", digits: 3, of: block_amplification },
    Column { head: "cleaned", digits: 0, of: |r| r.count("gc_segments") },
    Column { head: "checkpoints", digits: 0, of: |r| r.count("commits") },
    Column {
        head: "in place %",
        digits: 0,
        of: |r| Some(100.0 * r.per("in_place_blocks", "user_data_blocks")?),
    },
    Column { head: "KiB/bio", digits: 1, of: |r| Some(r.per("written_bytes", "writes")? / 1024.0) },
];

fn speed(r: &Report) -> Option<f64> {
    (r.seconds > 0.0).then(|| r.bytes as f64 / 1e6 / r.seconds)
}

fn amplification(r: &Report) -> Option<f64> {
    Some(r.count("written_bytes")? / r.bytes as f64)
}

/// Corresponds to `VolumeStats::write_amplification` of the measured part.
fn block_amplification(r: &Report) -> Option<f64> {
    let all = r.count("data_blocks")? + r.count("metadata_blocks")? + r.count("log_blocks")?;
    Some(all / r.count("user_data_blocks").filter(|n| *n > 0.0)?)
}

/// Measures and reports.
pub fn run(plan: &Plan) -> Result<()> {
    let seconds = (SECONDS * plan.scale).clamp(0.5, SECONDS);
    let workload = &Workload::build(Duration::from_secs_f64(seconds))?;
    let image = &Image::new(&plan.dir, VOLUME)?;
    let fill = &words(&format!("fill --share {SHARE}"));
    let overwrite = &words(&format!("overwrite --seconds {seconds} --fsync-every {FSYNC_EVERY}"));
    let mut cases = Vec::new();
    for (name, options) in OURS {
        let run = move || {
            image.mkfs_f2fs()?;
            workload.on_image(image.path(), options, fill)?;
            let report = workload.on_image(image.path(), options, overwrite)?;
            image.fsck()?;
            Ok(report)
        };
        cases.push(Case::new(name, run));
    }
    let no_guest = oracle::available("linux.uml").is_none().then_some("linux.uml is not installed");
    for (name, options, ipu) in KERNEL {
        let run = move || {
            image.mkfs_f2fs()?;
            let script = guest_script(workload, options, ipu, [fill, overwrite]);
            workload.in_guest(image.path(), &script)
        };
        cases.push(Case::new(name, run).unless(no_guest));
    }
    let series = rounds(plan.runs, &cases);
    let title = format!(
        "{} MiB, {:.0} % full, {seconds} s of random 4 KiB overwrites, fsync every {FSYNC_EVERY}; {} rounds",
        VOLUME >> 20,
        SHARE * 100.0,
        plan.runs
    );
    let notes = [
        "WA: bytes written to the device by bytes overwritten; ours as our queue counts them, the kernel's as \
         its block layer does",
        "WA, blocks: VolumeStats::write_amplification, of the measured part",
        "cleaned: segments; the kernel's from gc_reclaimed_segments",
        "kernel f2fs: user-mode-linux, one CPU, by its own clock; on a volume this small it overwrites in place \
         unless ipu_policy or mode=lfs forbids it",
    ];
    let notes = notes.map(str::to_owned).into();
    let bars = bars(&series);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

/// Fills the volume, mounts it again so that both peers begin with empty caches, and overwrites.
fn guest_script(workload: &Workload, options: &str, ipu: Option<u32>, steps: [&Vec<String>; 2]) -> String {
    let [fill, overwrite] = steps.map(|s| workload.guest_line(s));
    let options = if options.is_empty() { String::new() } else { format!("-o {options} ") };
    let mount = format!("mount -t f2fs {options}\"$DEV\" \"$MNT\"\n");
    let policy = ipu.map_or_else(String::new, |n| format!("echo {n} > /sys/fs/f2fs/ubda/ipu_policy\n"));
    format!("{mount}{policy}{fill}umount \"$MNT\"\n{mount}{policy}{overwrite}umount \"$MNT\"\n")
}

fn bars(all: &[Series]) -> Vec<Bar> {
    let pair = |(ours, peer): (&str, &str)| {
        let to = |value: fn(&Report) -> Option<f64>| ratio(named(all, ours), named(all, peer), value);
        [
            Bar::above(format!("MB/s, {ours} to {peer}"), 1.0, to(speed)),
            Bar::most(format!("WA, {ours} to {peer}"), 1.0, to(amplification)),
        ]
    };
    PAIRS.into_iter().flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_compare_like_with_like() {
        let series = |name: &str, seconds, written: u64| Series {
            name: name.into(),
            reports: vec![Report {
                seconds,
                bytes: 1_000_000,
                counts: [("written_bytes".to_owned(), written)].into(),
                ..Report::default()
            }],
            failed: None,
        };
        let all = [
            series("tidegate", 1.0, 3_000_000),
            series("kernel f2fs", 0.1, 1_000_000),
            series("kernel f2fs, ipu_policy=16", 2.0, 2_000_000),
        ];
        let found: Vec<_> = bars(&all).into_iter().map(|b| (b.value, b.met)).collect();
        let want = [(Some(2.0), Some(true)), (Some(1.5), Some(false)), (None, None), (None, None)];
        assert_eq!(found, want);
    }
}
