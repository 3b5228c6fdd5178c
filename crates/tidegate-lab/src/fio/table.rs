//! The results of jobs as a table: a line for each job and direction.

use super::run::{JobOutcome, Outcome};
use crate::report::latency;
use crate::report::text::{cut, num};
use crate::result::OpStats;
use std::fmt::Write;

/// A line for each job and direction, with latencies, below a heading.
pub fn table(outcome: &Outcome) -> String {
    let first = ["job", "", "IOPS", "MiB/s"].map(String::from).to_vec();
    let mut rows = vec![[first, latency::columns()].concat()];
    for j in &outcome.jobs {
        let ways = [("read", &j.read), ("write", &j.write), ("sync", &j.sync)];
        rows.extend(ways.iter().filter(|(_, o)| o.latency.count > 0).map(|(way, o)| row(j, way, o)));
    }
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut out = String::new();
    for r in &rows {
        let mut line = String::new();
        for (i, (cell, w)) in r.iter().zip(&widths).enumerate() {
            let _ = if i < 2 { write!(line, "{cell:<w$}  ") } else { write!(line, "{cell:>w$}  ") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn row(j: &JobOutcome, way: &str, o: &OpStats) -> Vec<String> {
    let per_second = |n: f64| if j.runtime_ns == 0 { 0.0 } else { n * 1e9 / j.runtime_ns as f64 };
    let name: String = j.name.chars().filter(|c| !c.is_control()).collect();
    let mebibytes = if way == "sync" { String::new() } else { num(per_second(o.bytes as f64) / 1_048_576.0) };
    let first = vec![cut(&name, 24), way.into(), num(per_second(o.latency.count as f64)), mebibytes];
    [first, latency::cells(&o.latency)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Latency;

    #[test]
    fn a_way_that_was_not_gone_has_no_line() {
        let percentiles = [("50.000000".into(), 2_000), ("99.000000".into(), 3_000)].into();
        let latency = Latency {
            count: 512,
            mean: 2.5e3,
            stddev: 500.0,
            longest: vec![4_000, 3_000],
            percentiles,
            ..Latency::default()
        };
        let write = OpStats { bytes: 2 << 20, latency, ..OpStats::default() };
        let job =
            JobOutcome { name: "a\x1bb".into(), write, runtime_ns: 500_000_000, ..JobOutcome::default() };
        let text = table(&Outcome { jobs: vec![job], ..Outcome::default() });
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split("  ").map(str::trim).collect()).collect();
        let cells = |l: &Vec<&str>| l.iter().filter(|c| !c.is_empty()).map(ToString::to_string).collect();
        let row: Vec<String> = cells(&lines[1]);
        assert_eq!(lines.len(), 2);
        let times =
            ["2.5\u{a0}µs", "500\u{a0}ns", "2\u{a0}µs", "3\u{a0}µs", "–", "–", "4\u{a0}µs, 3\u{a0}µs"];
        let want = [&["ab", "write", "1024", "4"][..], &times].concat();
        assert_eq!(row, want, "{text}");
    }
}
