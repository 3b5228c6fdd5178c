//! `bench streams`: eight writers with files of their own, with one log for their data and with a stream for
//! each writer.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::Image;
use super::series::{Case, Series, named, ratio, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};

const WRITERS: u64 = 8;
const VOLUME: u64 = 2 << 30;
const MIB: u64 = 1 << 20;
const ONE: &str = "one log";
const AUTO: &str = "auto";
/// Name and options of each position.
const POSITIONS: [(&str, &str); 3] = [
    (ONE, "warm_streams=1"),
    ("spf", "stream_policy=spf,warm_streams=8"),
    (AUTO, "stream_policy=auto,warm_streams=8"),
];
/// The wanted gain, and below it the gain that is enough where the host is the limit.
const WANTED: f64 = 1.3;
const ENOUGH: f64 = 0.98;

const COLUMNS: &[Column] = &[
    Column { head: "MiB/s", digits: 0, of: speed },
    Column { head: "CPUs", digits: 2, of: |r| Some(r.cpu_seconds? / r.seconds) },
    Column { head: "data bios", digits: 0, of: |r| r.count("data_bios") },
    Column { head: "pieces/file", digits: 1, of: pieces },
    Column { head: "read MiB/s", digits: 0, of: |r| Some(mib(r) / r.read_seconds.filter(|s| *s > 0.0)?) },
];

fn mib(r: &Report) -> f64 {
    r.bytes as f64 / MIB as f64
}

fn speed(r: &Report) -> Option<f64> {
    Some(mib(r) / r.seconds)
}

fn pieces(r: &Report) -> Option<f64> {
    Some(r.fragments? as f64 / r.files as f64)
}

/// Measures and reports, on an image in the plan's directory and on one in `disk`.
pub fn run(plan: &Plan, disk: &Path) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(120))?;
    let images = [("memory", Image::new(&plan.dir, VOLUME)?), ("disk", Image::new(disk, VOLUME)?)];
    let size = plan.scaled(128) * MIB;
    let jobs = [("4 KiB, fsync=128", "--chunk 4096 --fsync-every 128"), ("1 MiB", "--chunk 1048576")];
    let (mut cases, mut groups) = (Vec::new(), Vec::new());
    for (place, image) in &images {
        for (job, how) in jobs {
            let group = format!("{place}, {job}");
            for (position, options) in POSITIONS {
                let args = words(&format!(
                    "mark --threads {WRITERS} --files 1 --size {size} --sync end {how} --read-back"
                ));
                let workload = &workload;
                let run = move || {
                    image.mkfs_f2fs()?;
                    let report = workload.on_image(image.path(), options, &args)?;
                    image.fsck()?;
                    Ok(report)
                };
                cases.push(Case::new(format!("{group} {position}"), run));
            }
            groups.push(group);
        }
    }
    let series = rounds(plan.runs, &cases);
    let title = format!("{WRITERS} writers of {} MiB each; {} rounds", size / MIB, plan.runs);
    let through = |(place, image): &(&str, Image)| {
        let how = if image.takes_direct() { "with O_DIRECT" } else { "through the host's page cache" };
        format!("{place}: written {how}; read back in a newly opened volume")
    };
    let notes = images.iter().map(through).collect();
    let bars = bars(&series, &groups);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

fn bars(all: &[Series], groups: &[String]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for group in groups {
        let of = |position: &str| named(all, &format!("{group} {position}"));
        let to = |value: fn(&Report) -> Option<f64>| ratio(of(AUTO), of(ONE), value);
        let what = |what: &str| format!("{group}: {what}, {AUTO} to {ONE}");
        bars.push(Bar::least(what("MiB/s, wanted"), WANTED, to(speed)));
        bars.push(Bar::least(what("MiB/s, where the host is the limit"), ENOUGH, to(speed)));
        bars.push(Bar::most(what("pieces/file"), 1.0, to(pieces)));
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_compare_auto_with_one_log() {
        let series = |position: &str, seconds, fragments| Series {
            name: format!("g {position}"),
            reports: vec![Report {
                seconds,
                files: 8,
                bytes: MIB,
                fragments: Some(fragments),
                ..Report::default()
            }],
            failed: None,
        };
        let all = [series(ONE, 2.0, 40), series(AUTO, 1.6, 48)];
        let found: Vec<_> = bars(&all, &["g".into()]).into_iter().map(|b| (b.value, b.met)).collect();
        assert_eq!(found, [(Some(1.25), Some(false)), (Some(1.25), Some(true)), (Some(1.2), Some(false))]);
    }
}
