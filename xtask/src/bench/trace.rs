//! `bench trace`: how much observing the engine costs fs_mark.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::{Image, touch_memory};
use super::measure::Spread;
use super::series::{Series, named};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};

const THREADS: u64 = 16;
const VOLUME: u64 = 1 << 30;
/// The loss that is permitted, in percent.
const BAR: f64 = 5.0;
/// Rounds of a process. They are short, so that compared moments are close together.
const ROUNDS: u64 = 20;
/// The number of files per thread and round, their size in bytes, and a name for the size.
const SIZES: [(u64, u64, &str); 2] = [(100, 4 << 10, "4 KiB"), (8, 512 << 10, "512 KiB")];
const OFF: &str = "off";
/// The ways of observing.
const WAYS: [&str; 4] = ["lockstat", "trace", "profile", "all"];

const COLUMNS: &[Column] = &[
    Column { head: "files/s", digits: 0, of: |r| (r.seconds > 0.0).then(|| r.files as f64 / r.seconds) },
    Column { head: "CPU us/file", digits: 1, of: |r| Some(cpu_seconds(r)? * 1e6 / r.files as f64) },
    Column { head: "events/file", digits: 1, of: |r| Some(r.count("events")? / r.files as f64) },
    Column { head: "spans/file", digits: 1, of: |r| Some(r.count("spans")? / r.files as f64) },
    Column { head: "locks/file", digits: 1, of: |r| Some(r.count("acquisitions")? / r.files as f64) },
];

fn seconds(r: &Report) -> Option<f64> {
    Some(r.seconds)
}

fn cpu_seconds(r: &Report) -> Option<f64> {
    r.cpu_seconds
}

/// Measures and reports. One process switches observation on and off in turn, on one volume.
pub fn run(plan: &Plan) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(120))?;
    let image = Image::new(&plan.dir, VOLUME)?;
    let mut found = BTreeMap::<String, Vec<Report>>::new();
    for run in 1..=plan.runs.max(1) {
        for (files, bytes, size) in SIZES {
            image.mkfs_f2fs()?;
            touch_memory(&plan.dir)?;
            let files = plan.scaled(files);
            let mark = format!("--threads {THREADS} --files {files} --size {bytes}");
            let args = words(&format!("look --rounds {ROUNDS} --seed {run} {mark}"));
            for (way, reports) in workload.in_ways(image.path(), &args)? {
                found.entry(format!("{size} {way}")).or_default().extend(reports);
            }
            eprintln!("{run}/{} {size}: {ROUNDS} rounds", plan.runs);
        }
    }
    let names = SIZES.iter().flat_map(|s| [OFF].into_iter().chain(WAYS).map(|w| format!("{} {w}", s.2)));
    let take = |name: String| Series { reports: found.remove(&name).unwrap_or_default(), name, failed: None };
    let series: Vec<Series> = names.map(take).collect();
    let sizes = SIZES.map(|(files, _, size)| format!("{THREADS} x {} x {size}", plan.scaled(files)));
    let rounds = u64::from(plan.runs.max(1)) * ROUNDS;
    let title = format!("create, write and fsync, {}; {rounds} rounds", sizes.join(" and "));
    let notes = vec![
        "cost: how much longer a round takes than the one of the same turn with everything off, in percent:"
            .into(),
        "the median of all turns, and where it lies with 95 % confidence".into(),
        "CPU: the same of the seconds of all CPUs, which other programs disturb less".into(),
        "all: lockstat, trace and profile; traces are kept in memory, and writing them out is not measured"
            .into(),
    ];
    let bars = bars(&series);
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

/// The cost of one series over the other, in percent, by rounds.
fn cost(on: Option<&Series>, off: Option<&Series>, of: fn(&Report) -> Option<f64>) -> Option<Spread> {
    let pairs = on?.reports.iter().zip(&off?.reports);
    Spread::of_median(pairs.filter_map(|(on, off)| Some((of(on)? / of(off)? - 1.0) * 100.0)))
}

fn bars(all: &[Series]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (_, _, size) in SIZES {
        let series = |way: &str| named(all, &format!("{size} {way}"));
        for way in WAYS {
            for (what, of) in [("cost", seconds as fn(&Report) -> _), ("CPU cost", cpu_seconds)] {
                let cost = cost(series(way), series(OFF), of);
                let range = cost.map(|c| format!(" [{:.1} to {:.1}]", c.min, c.max)).unwrap_or_default();
                let what = format!("{size}: {what} of {way}, %{range}");
                bars.push(Bar::most(what, BAR, cost.map(|c| c.median)));
            }
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_is_added() {
        // The machine gets slower all the time, which makes medians of all rounds useless.
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            reports: (1..=40)
                .map(|n| f64::from(n) * factor)
                .map(|seconds| Report { seconds, cpu_seconds: Some(seconds * seconds), ..Report::default() })
                .collect(),
            failed: None,
        };
        let all = [series("4 KiB off", 1.0), series("4 KiB trace", 1.04), series("4 KiB profile", 1.1)];
        let found = bars(&all);
        let of =
            |what: &str| found.iter().find(|b| b.what.starts_with(&format!("4 KiB: {what}, %"))).unwrap();
        assert!((of("cost of trace").value.unwrap() - 4.0).abs() < 1e-6);
        assert!((of("CPU cost of profile").value.unwrap() - 21.0).abs() < 1e-6);
        assert_eq!((of("cost of trace").met, of("cost of profile").met), (Some(true), Some(false)));
        assert_eq!(of("cost of lockstat").met, None);
    }
}
