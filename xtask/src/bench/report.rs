//! Medians in a table, and the bars that they are compared with.

use anyhow::Result;
use serde::Serialize;

use super::measure::{Cost, Spread};
use super::populate::{Results, Sizes};
use super::show::{self, Bar};

#[derive(Serialize)]
struct Row {
    case: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    wall_s: Option<Spread>,
    cpu_s: Option<Spread>,
    rss_mib: Option<Spread>,
}

fn rows(results: &Results) -> Vec<Row> {
    let row = |(case, outcome): (&&'static str, &Result<Vec<Cost>, String>)| {
        let costs = outcome.as_deref().unwrap_or_default();
        Row {
            case,
            failed: outcome.as_ref().err().cloned(),
            wall_s: Spread::of(costs.iter().map(|c| c.wall)),
            cpu_s: Spread::of(costs.iter().map(|c| c.cpu)),
            rss_mib: Spread::of(costs.iter().map(|c| c.rss)),
        }
    };
    results.iter().map(row).collect()
}

fn bars(rows: &[Row], sizes: Sizes) -> Vec<Bar> {
    let row = |case: &str| rows.iter().find(|r| r.case == case);
    let wall = |case: &str| Some(row(case)?.wall_s?.median);
    let rss = |case: &str| Some(row(case)?.rss_mib?.max);
    let ratio = |a: &str, b: &str| Some(wall(a)? / wall(b)?);
    let speed = ratio("large-in fio", "large-in tidegate");
    let to_tools = ratio("populate tidegate", "populate f2fs-tools");
    let to_archive = ratio("copy-out tidegate", "copy-out tar archive");
    let to_copy = ratio("copy-out tidegate", "copy-out tar copy");
    vec![
        Bar::most("populate, wall to f2fs-tools", 0.5, to_tools),
        Bar::most("populate, wall to mke2fs -d", 0.7, ratio("populate tidegate", "populate ext4")),
        Bar::below("populate, peak MiB", 128.0, rss("populate tidegate")),
        Bar::most("populate ext4, wall to mke2fs -d", 1.0, ratio("populate tidegate ext4", "populate ext4")),
        Bar::below("populate ext4, peak MiB", 256.0, rss("populate tidegate ext4")),
        Bar::most("populate ext4 twice, bytes that differ", 0.0, sizes.differing.map(|n| n as f64)),
        Bar::most("copy out, wall to tar archive", 1.5, to_archive),
        Bar::most("copy out, wall to tar copy", 1.5, to_copy),
        Bar::least("large file in, speed to fio", 0.85, speed),
        Bar::below("open 1 TiB, wall s", 0.2, wall("open 1T tidegate")),
        Bar::below("open 1 TiB, peak MiB", 64.0, rss("open 1T tidegate")),
        Bar::below("open 16 TiB of ext4, wall s", 0.2, wall("open 16T tidegate ext4")),
    ]
}

/// Prints the results for people.
pub fn table(results: &Results, sizes: Sizes) {
    let rows = rows(results);
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{} files, {} MiB; large file {} MiB; medians of {} [least to most]\n",
        sizes.files,
        mib(sizes.tree_bytes),
        mib(sizes.large_bytes),
        sizes.runs
    );
    println!("{:<22} {:>26} {:>9} {:>10} {:>9}", "case", "wall s", "cpu s", "peak MiB", "MiB/s");
    for row in &rows {
        let (Some(wall), Some(cpu), Some(rss)) = (row.wall_s, row.cpu_s, row.rss_mib) else {
            println!("{:<22} {}", row.case, row.failed.as_deref().unwrap_or("not run"));
            continue;
        };
        let bytes = match row.case {
            c if c.starts_with("large") => sizes.large_bytes,
            c if c.starts_with("open") => 0,
            _ => sizes.tree_bytes,
        };
        let speed = if bytes == 0 { "-".into() } else { format!("{:.0}", mib(bytes) as f64 / wall.median) };
        let wall = format!("{:.3} [{:.3} to {:.3}]", wall.median, wall.min, wall.max);
        println!("{:<22} {wall:>26} {:>9.3} {:>10.1} {speed:>9}", row.case, cpu.median, rss.max);
    }
    show::bars(&bars(&rows, sizes));
}

/// Prints the results for programs.
pub fn json(results: &Results, sizes: Sizes) -> Result<()> {
    let rows = rows(results);
    let bars = bars(&rows, sizes);
    let all = serde_json::json!({ "sizes": sizes, "cases": rows, "bars": bars });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}
