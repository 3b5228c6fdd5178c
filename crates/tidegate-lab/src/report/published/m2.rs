//! M2 as commit dddbd6ac8f25 shows it: the mean time of a commit, its standard deviation, and the five longest.

use super::{Block, Case, NONE};
use crate::commit_log::JBD2_COMMIT;
use crate::experiment::outcome::Position;
use crate::result::RunResult;
use std::fmt::Write;
use tidegate::observe::why::{Part, Slow};

/// Mean, standard deviation, and the longest, in seconds: before and after.
const COMMITS: [(&str, f64, f64, [f64; 5]); 2] = [
    ("before", 18.0, 41.0, [274.466_639, 126.467_347, 86.992_429, 34.351_563, 31.517_653]),
    ("after", 0.1, 0.15, [0.563_792, 0.519_980, 0.509_841, 0.471_700, 0.469_899]),
];
/// Number of parts that a run is cut into.
const ROWS: usize = 12;
/// Number of commits reported for each position.
const TOLD: usize = 3;
/// Number of parts reported for each commit.
const PARTS: usize = 3;

pub(super) fn blocks(case: &Case) -> Vec<Block> {
    vec![commits(case), congestion(case), causes(case)]
}

fn commits(case: &Case) -> Block {
    let mut b = Block::new(format!("{}: transaction commits", case.name))
        .note("A commit lasts from when its transaction is locked until its record is durable. Ours are those of the median run.");
    for (when, mean, sd, longest) in COMMITS {
        b.pane(format!("published, {when}"), text(mean, sd, &longest));
    }
    for p in &case.positions {
        let latency = p.drawn_run().and_then(|r| Some(&r.ops.get(JBD2_COMMIT)?.latency));
        let text = latency.map(|l| {
            let longest: Vec<f64> = l.longest.iter().map(|ns| *ns as f64 / 1e9).collect();
            format!("{}of {} commits\n", text(l.mean / 1e9, l.stddev / 1e9, &longest), l.count)
        });
        b.pane(&p.name, text.unwrap_or(NONE.into()));
    }
    b
}

fn text(mean: f64, sd: f64, longest: &[f64]) -> String {
    let rows: String = longest.iter().map(|s| format!("{s:>12.6}s\n")).collect();
    format!("average {mean:>10.3}s\nstddev  {sd:>10.3}s\ntop 5:\n{rows}")
}

/// The causes of waiting commits: the load of the device, and the time that submitters waited for room in the
/// queue.
fn congestion(case: &Case) -> Block {
    let mut b = Block::new(format!("{}: congestion", case.name)).note(
        "By twelfths of the run: KiB in the queue and at the device on average, counted when a request ends; seconds that \
         threads waited in get_request, counted when they got a request; commits that ended.",
    );
    for p in &case.positions {
        b.pane(&p.name, p.drawn_run().map_or(NONE.into(), table));
    }
    b
}

fn table(run: &RunResult) -> String {
    let (interval, empty) = (run.series.interval_ns.max(1), Vec::new());
    let counter = |name: &str| run.series.counters.get(name).unwrap_or(&empty);
    let ended = run.series.ops.get(JBD2_COMMIT).map_or(&[][..], |v| v);
    let intervals = run.elapsed_ns.div_ceil(interval) as usize;
    let step = intervals.div_ceil(ROWS).max(1);
    let mut out = format!("{:>9}{:>12}{:>16}{:>10}\n", "until, s", "KiB", "get_request, s", "commits");
    for from in (0..intervals).step_by(step) {
        let to = (from + step).min(intervals);
        let sum = |v: &[u64]| v.iter().skip(from).take(to - from).sum::<u64>() as f64;
        let seconds = (to - from) as f64 * interval as f64 / 1e9;
        let commits: u64 = ended.iter().skip(from).take(to - from).map(|i| i.0).sum();
        let _ = writeln!(
            out,
            "{:>9.0}{:>12.0}{:>16.1}{commits:>10}",
            (to as f64 * interval as f64 / 1e9).min(run.elapsed_ns as f64 / 1e9),
            sum(counter("queue.kib_us")) / 1e6 / seconds,
            sum(counter("queue.congested_ns")) / 1e9,
        );
    }
    out
}

/// The reported commits, slowest first, and their waits.
fn causes(case: &Case) -> Block {
    let mut b = Block::new(format!("{}: the slowest commits", case.name)).note(
        "Each phase of the slowest commits, by share of its time: what it waited for, and where that was meanwhile.",
    );
    b.wide = true;
    for p in &case.positions {
        b.pane(&p.name, told(p));
    }
    b
}

fn told(p: &Position) -> String {
    let one = |s: &Slow| {
        let (s_, named) = (s.ns as f64 / 1e9, s.named * 100.0);
        let number = s.transaction.unwrap_or_default();
        let head = format!("transaction {number}: {s_:.3} s, {named:.1} % named\n");
        let mut out = head;
        s.parts.iter().take(PARTS).for_each(|part| down(part, s.ns, 1, &mut out));
        out
    };
    let text: String = p.slow_commits.iter().take(TOLD).map(one).collect();
    match (text.is_empty(), p.lost_events) {
        (true, _) => NONE.into(),
        (false, 0) => text,
        (false, n) => format!("{n} events were lost: what has no name here may have one\n{text}"),
    }
}

/// A part, and below it the parts that fill most of it.
fn down(p: &Part, of: u64, depth: usize, out: &mut String) {
    let share = p.ns as f64 * 100.0 / of.max(1) as f64;
    if share < 5.0 {
        return;
    }
    let _ = writeln!(out, "{:indent$}{share:>5.1} %  {}", "", p.what, indent = depth * 2);
    p.parts.iter().take(PARTS).for_each(|q| down(q, of, depth + 1, out));
}
