//! M3 as commit 7747bd4bceb3 shows it: files a second by fs_mark beside a sync, and the time of the sync.

use super::{Block, Case, NONE, time};
use crate::cpu::CpuTime;
use crate::result::{Event, RunResult};
use crate::workload::{SYS_NS, Spec, USER_NS};
use std::fmt::Write;

/// Before the change: files so far, files a second, fs_mark's own time in microseconds.
const FILES: [(u64, f64, u64); 8] = [
    (640_000, 35_154.6, 1_026_984),
    (720_000, 36_740.3, 1_023_844),
    (800_000, 36_184.6, 916_599),
    (880_000, 1282.7, 1_054_367),
    (960_000, 3951.3, 918_773),
    (1_040_000, 40_646.2, 996_448),
    (1_120_000, 43_610.1, 895_647),
    (1_200_000, 40_333.1, 921_048),
];
/// Bytes of each file.
const SIZE: u64 = 4096;

/// One sync before and after, in milliseconds: real, user, sys.
const SYNCS: [(&str, [u64; 3]); 2] = [("before", [52_407, 0, 90]), ("after", [6930, 0, 39])];

/// Most rows that a run is cut into.
const ROWS: u64 = 40;
/// Number of rows shown before and after the slowest row with a sync.
const AROUND: (usize, usize) = (3, 4);

/// The table of files is that of `as_many`, the setting without a rate, if there is one; the syncs are those
/// of the published setting.
pub(super) fn blocks(case: &Case, as_many: Option<&Case>) -> Vec<Block> {
    vec![files(as_many.unwrap_or(case)), syncs(case)]
}

/// A row of fs_mark's table: a number of further files.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    /// Files so far.
    count: u64,
    per_second: f64,
    /// Microseconds outside of calls, as published.
    overhead: Option<u64>,
    /// A sync was under way.
    sync: bool,
}

fn files(case: &Case) -> Block {
    let mut b = Block::new("fs_mark beside a sync").note(
        "Rows of as many files each, around the slowest that a sync was in. FSUse% and App Overhead are dashes in \
         ours: the first would need statfs at each row, for the second the lab would have to time itself.",
    );
    let published = FILES.map(|(count, per_second, overhead)| {
        // These are the two rows far below the others.
        let sync = per_second < 10_000.0;
        Row { count, per_second, overhead: Some(overhead), sync }
    });
    b.pane("published, before", table(&published, SIZE, Some(0), (true, true)));
    let size = match serde_json::from_str(&case.workload) {
        Ok(Spec::FsMark(mark)) => mark.size,
        _ => SIZE,
    };
    for p in &case.positions {
        let rows = p.drawn_run().map(rows).unwrap_or_default();
        let (from, to) = around(&rows);
        let text = match rows.is_empty() {
            true => NONE.into(),
            false => table(&rows[from..to], size, None, (from > 0, to < rows.len())),
        };
        b.pane(&p.name, text);
    }
    b
}

fn table(rows: &[Row], size: u64, used: Option<u64>, (before, after): (bool, bool)) -> String {
    let mut out =
        format!("{:>6}{:>13}{:>13}{:>13}{:>17}\n", "FSUse%", "Count", "Size", "Files/sec", "App Overhead");
    let dots = |out: &mut String, cut: bool| {
        if cut {
            out.push_str(".....\n")
        }
    };
    dots(&mut out, before);
    for r in rows {
        let or_dash = |n: Option<u64>| n.map_or(NONE.into(), |n| n.to_string());
        let (used, overhead) = (or_dash(used), or_dash(r.overhead));
        let mark = if r.sync { "  < sync" } else { "" };
        let _ = writeln!(out, "{used:>6}{:>13}{size:>13}{:>13.1}{overhead:>17}{mark}", r.count, r.per_second);
    }
    dots(&mut out, after);
    out
}

/// The rows to show.
fn around(rows: &[Row]) -> (usize, usize) {
    let slowest = (0..rows.len()).filter(|i| rows[*i].sync);
    let at = slowest.min_by(|a, b| rows[*a].per_second.total_cmp(&rows[*b].per_second)).unwrap_or(0);
    let from = at.saturating_sub(AROUND.0);
    (from, (from + AROUND.0 + AROUND.1 + 1).min(rows.len()))
}

/// The files of a run in rows of equal numbers of files. Within an interval of the series, files count as
/// made evenly.
fn rows(run: &RunResult) -> Vec<Row> {
    let Some(series) = run.series.ops.get("file").filter(|_| run.series.interval_ns > 0) else {
        return Vec::new();
    };
    let total: u64 = series.iter().map(|i| i.0).sum();
    let mut sorted: Vec<u64> = series.iter().map(|i| i.0).collect();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    // The rows are so coarse that a single interval does not show.
    let step = (total / ROWS).max(3 * median).max(1);
    let (mut rows, mut made, mut began) = (Vec::new(), 0, 0.0);
    for (i, (n, _)) in series.iter().enumerate() {
        let start = i as u64 * run.series.interval_ns;
        let length = run.series.interval_ns.min(run.elapsed_ns.saturating_sub(start)).max(1);
        while made + n >= step * (rows.len() as u64 + 1) && *n > 0 {
            let count = step * (rows.len() as u64 + 1);
            let ended = start as f64 + length as f64 * (count - made) as f64 / *n as f64;
            let sync = run.events.iter().any(|e| {
                e.name == "sync" && (e.at_ns as f64) < ended && (e.at_ns + e.took_ns) as f64 > began
            });
            let per_second = step as f64 * 1e9 / (ended - began).max(1.0);
            rows.push(Row { count, per_second, overhead: None, sync });
            began = ended;
        }
        made += n;
    }
    rows
}

fn syncs(case: &Case) -> Block {
    let of = |run: &RunResult| mean(&run.events);
    let means: Vec<_> = case.positions.iter().map(|p| p.drawn_run().and_then(of)).collect();
    let simulated = means.iter().flatten().filter_map(|m| m.1).all(|c| c.user_ns.is_none());
    let mut b = Block::new("time sync")
        .note(
            "Of ours the mean over the median run's syncs; user and sys are \
        those of the thread that called it.",
        )
        .note(time::notes(simulated));
    let ms = |n: u64| n * 1_000_000;
    for (when, [real, user, sys]) in SYNCS {
        let cpu = CpuTime { user_ns: Some(ms(user)), sys_ns: ms(sys) };
        b.pane(format!("published, {when}"), time::text(ms(real), Some(cpu)));
    }
    for (p, mean) in case.positions.iter().zip(means) {
        b.pane(&p.name, mean.map_or(NONE.into(), |(real, cpu)| time::text(real, cpu)));
    }
    b
}

/// The mean duration of syncs, and the caller's mean processor time if it is known.
fn mean(events: &[Event]) -> Option<(u64, Option<CpuTime>)> {
    let syncs: Vec<&Event> = events.iter().filter(|e| e.name == "sync").collect();
    let n = syncs.len() as u64;
    let real = syncs.iter().map(|e| e.took_ns).sum::<u64>().checked_div(n)?;
    let value = |name: &str| {
        let all: Option<Vec<u64>> = syncs.iter().map(|e| e.values.get(name).copied()).collect();
        all.map(|v| v.iter().sum::<u64>() / n)
    };
    let cpu = value(SYS_NS).map(|sys_ns| CpuTime { user_ns: value(USER_NS), sys_ns });
    Some((real, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Series;
    use std::collections::BTreeMap;

    #[test]
    fn rows_have_as_many_files_each() {
        // There are ten intervals of 10 ms; in two of them, under a sync, next to nothing is made.
        let made = [100, 100, 100, 100, 10, 10, 180, 100, 100, 100];
        let series = made.map(|n| (n, 0)).to_vec();
        let sync =
            Event { at_ns: 41_000_000, took_ns: 18_000_000, name: "sync".into(), values: BTreeMap::new() };
        let run = RunResult {
            elapsed_ns: 100_000_000,
            series: Series {
                interval_ns: 10_000_000,
                ops: BTreeMap::from([("file".to_string(), series)]),
                ..Series::default()
            },
            events: vec![sync],
            ..RunResult::default()
        };
        let rows = rows(&run);
        let counts: Vec<u64> = rows.iter().map(|r| r.count).collect();
        assert_eq!(counts, [300, 600, 900]);
        assert!((rows[0].per_second - 10_000.0).abs() < 0.1, "{rows:?}");
        // The row has 100 files of the fourth interval, 20 of two, then all of the seventh: 40 ms.
        assert!((rows[1].per_second - 7500.0).abs() < 0.1, "{rows:?}");
        assert_eq!(rows.iter().map(|r| r.sync).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(around(&rows), (0, 3));
    }
}
