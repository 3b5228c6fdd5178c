//! `bench trace`: what looking into the engine costs fs_mark.

use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::{Image, touch_memory};
use super::series::{Case, Series, named, ratio, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};

const THREADS: u64 = 16;
const VOLUME: u64 = 1 << 30;
/// What may be lost, in percent.
const BAR: f64 = 5.0;
/// Files of each thread, their bytes, and what to call that.
const SIZES: [(u64, u64, &str); 2] = [(400, 4 << 10, "4 KiB"), (64, 512 << 10, "512 KiB")];
const OFF: &str = "off";
/// What is looked at.
const WAYS: [&str; 5] = [OFF, "lockstat", "trace", "profile", "lockstat,trace,profile"];

const COLUMNS: &[Column] = &[
    Column { head: "write s", digits: 3, of: seconds },
    Column { head: "cpu s", digits: 3, of: |r| r.cpu_seconds },
    Column { head: "files/s", digits: 0, of: |r| (r.seconds > 0.0).then(|| r.files as f64 / r.seconds) },
    Column { head: "events", digits: 0, of: |r| r.count("events") },
    Column { head: "spans", digits: 0, of: |r| r.count("spans") },
    Column { head: "locks taken", digits: 0, of: |r| r.count("acquisitions") },
];

fn seconds(r: &Report) -> Option<f64> {
    Some(r.seconds)
}

/// Measures and reports. On and off take turns; each run begins with a fresh volume.
pub fn run(plan: &Plan) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(60))?;
    let image = Image::new(&plan.dir, VOLUME)?;
    let mut cases = Vec::new();
    for (files, bytes, size) in SIZES {
        for way in WAYS {
            let observe = if way == OFF { String::new() } else { format!("--observe {way} ") };
            let mark = format!("mark --threads {THREADS} --files {} --size {bytes}", plan.scaled(files));
            let args = words(&format!("{observe}{mark}"));
            let (workload, image) = (&workload, &image);
            let run = move || {
                image.mkfs_f2fs()?;
                touch_memory(&plan.dir)?;
                workload.on_image(image.path(), "", &args)
            };
            cases.push(Case::new(format!("{size} {way}"), run));
        }
    }
    let series = rounds(plan.runs, &cases);
    let sizes = SIZES.map(|(files, _, size)| format!("{THREADS} x {} x {size}", plan.scaled(files)));
    let title = format!("create, write and fsync, {}; {} rounds", sizes.join(" and "), plan.runs);
    let notes = vec![
        "cost: how much longer it takes, by medians, in percent of the time with everything off".into(),
        "CPU: the same of the seconds of all CPUs, which other programs disturb less".into(),
        "traces are kept in memory; writing them out comes after, and is not measured".into(),
    ];
    let bars = bars(&series);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

fn bars(all: &[Series]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (_, _, size) in SIZES {
        let of = |way: &str| named(all, &format!("{size} {way}"));
        for way in WAYS.into_iter().filter(|w| *w != OFF) {
            let of_cpu = |r: &Report| r.cpu_seconds;
            let cost = |r: Option<f64>| r.map(|r| (r - 1.0) * 100.0);
            let wall = cost(ratio(of(way), of(OFF), seconds));
            bars.push(Bar::most(format!("{size}: cost of {way}, %"), BAR, wall));
            let cpu = cost(ratio(of(way), of(OFF), of_cpu));
            bars.push(Bar::most(format!("{size}: CPU cost of {way}, %"), BAR, cpu));
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_is_added() {
        let series = |name: &str, seconds| Series {
            name: name.into(),
            reports: vec![Report { seconds, cpu_seconds: Some(seconds * 2.0), ..Report::default() }],
            failed: None,
        };
        let all = [series("4 KiB off", 2.0), series("4 KiB trace", 2.08), series("4 KiB profile", 2.2)];
        let found = bars(&all);
        let of = |way: &str| found.iter().find(|b| b.what == format!("4 KiB: cost of {way}, %")).unwrap();
        assert!((of("trace").value.unwrap() - 4.0).abs() < 1e-6);
        let cpu = found.iter().find(|b| b.what == "4 KiB: CPU cost of profile, %").unwrap();
        assert!((cpu.value.unwrap() - 10.0).abs() < 1e-6);
        assert_eq!((of("trace").met, of("profile").met, of("lockstat").met), (Some(true), Some(false), None));
    }
}
