//! Series and events of a run, prepared for drawing.

use super::panels::{Panel, Panels, STRIPS};
use super::{Outcome, Position, colour};
use crate::result::{Event, RunResult};
use std::collections::BTreeMap;

/// Most points of a line; more intervals than that are merged.
const POINTS: usize = 220;

/// Throughput of `op` over time in the median run of each position, with its events.
pub fn throughput(outcome: &Outcome, positions: &[Position], op: &str) -> Panels {
    let series = |p: &Position| p.drawn_run().and_then(|r| r.series.ops.get(op)).cloned().unwrap_or_default();
    // Files are counted, as in fs_mark, though they have bytes.
    let moves = op != "file" && positions.iter().any(|p| series(p).iter().any(|(_, b)| *b > 0));
    let panel = |p: &Position| {
        let run = p.drawn_run()?;
        let of = |(n, b): &(u64, u64)| if moves { *b as f64 / 1048576.0 } else { *n as f64 };
        let mut values: Vec<f64> = series(p).iter().map(of).collect();
        // An operation that ended before the run did is at 0 from there on.
        let whole = run.elapsed_ns.div_ceil(run.series.interval_ns.max(1)) as usize;
        values.resize(values.len().max(whole.min(1 << 20)), 0.0);
        let points = sampled(run, values.len(), |part| Some(values[part].iter().sum()), true);
        Some(panel(outcome, p, points, marks(run)))
    };
    let unit = match moves {
        true => "MiB/s".to_string(),
        false if op == "file" => "files/s".to_string(),
        false => "operations/s".to_string(),
    };
    Panels {
        title: format!("{op}: throughput over time"),
        unit,
        bytes: false,
        panels: positions.iter().filter_map(panel).collect(),
    }
}

/// Mean size of the bios that were written in each interval of the median run.
pub fn bio_size(outcome: &Outcome, positions: &[Position]) -> Panels {
    let panel = |p: &Position| {
        let run = p.drawn_run()?;
        let get = |name| run.series.counters.get(name);
        let (bytes, bios) = (get("queue.write_bytes")?, get("queue.write_bios")?);
        let size = |part: std::ops::Range<usize>| {
            let sum = |v: &Vec<u64>| v.iter().skip(part.start).take(part.len()).sum::<u64>();
            let (b, n) = (sum(bytes), sum(bios));
            (n > 0 && b > 0).then(|| b as f64 / n as f64)
        };
        Some(panel(outcome, p, sampled(run, bytes.len(), size, false), marks(run)))
    };
    Panels {
        title: "Size of written bios over time".into(),
        unit: "mean size of a bio".into(),
        bytes: true,
        panels: positions.iter().filter_map(panel).collect(),
    }
}

fn panel(
    outcome: &Outcome,
    p: &Position,
    points: Vec<Option<(f64, f64)>>,
    marks: Vec<(String, Vec<(f64, f64)>)>,
) -> Panel {
    Panel { name: p.name.clone(), colour: colour(outcome, &p.name), points, marks }
}

/// The values of intervals at their middles, at most [`POINTS`]; a rate is per second.
fn sampled(
    run: &RunResult,
    len: usize,
    value: impl Fn(std::ops::Range<usize>) -> Option<f64>,
    rate: bool,
) -> Vec<Option<(f64, f64)>> {
    let step = len.div_ceil(POINTS).max(1);
    let interval = run.series.interval_ns.max(1) as f64 / 1e9;
    let whole = run.elapsed_ns as f64 / 1e9;
    let point = |from: usize| {
        let to = (from + step).min(len);
        let (begin, mut end) = (from as f64 * interval, to as f64 * interval);
        // The last interval ends with the run.
        if to == len && whole > begin {
            end = end.min(whole);
        }
        let v = value(from..to)?;
        Some(((begin + end) / 2.0, if rate { v / (end - begin) } else { v }))
    };
    (0..len).step_by(step).map(point).collect()
}

/// The marks beside series: events by kind; spans that touch are joined.
fn marks(run: &RunResult) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut kinds: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let counted = counted(run);
    let end = run.elapsed_ns.max(1);
    for e in run.events.iter().chain(&counted).filter(|e| e.at_ns <= end) {
        let name = if e.name == "fs_commits" { "commits" } else { &e.name };
        let span = (e.at_ns as f64 / 1e9, e.at_ns.saturating_add(e.took_ns).min(end) as f64 / 1e9);
        let spans = kinds.entry(name).or_default();
        match spans.last_mut() {
            Some(last) if name == "commits" && span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => spans.push(span),
        }
    }
    let order = |k: &str| ["sync", "commits", "checkpoint"].iter().position(|o| *o == k).unwrap_or(9);
    let mut kinds: Vec<_> = kinds.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    kinds.sort_by_key(|(k, _)| order(k));
    kinds.truncate(STRIPS);
    kinds
}

/// Commits by their counter, for a run without events of commits.
fn counted(run: &RunResult) -> Vec<Event> {
    let samples = match run.events.iter().any(|e| e.name == "fs_commits") {
        true => None,
        false => run.series.counters.get("fs.commits"),
    };
    let took_ns = run.series.interval_ns;
    let event = |(i, n): (usize, &u64)| {
        let name = "fs_commits".to_string();
        (*n > 0).then(|| Event { at_ns: i as u64 * took_ns, took_ns, name, values: BTreeMap::new() })
    };
    samples.into_iter().flatten().enumerate().filter_map(event).collect()
}

/// Operations worth a chart over time; operations that moved bytes or ended in most intervals come first.
pub fn ops(positions: &[Position]) -> Vec<String> {
    let mut seen: BTreeMap<&str, (bool, usize)> = BTreeMap::new();
    for (name, values) in positions.iter().filter_map(|p| p.drawn_run()).flat_map(|r| &r.series.ops) {
        let e = seen.entry(name).or_default();
        e.0 |= values.iter().any(|v| v.1 > 0);
        e.1 += values.iter().filter(|v| v.0 > 0).count();
    }
    let mut names: Vec<_> = seen.into_iter().filter(|(_, (_, n))| *n > 0).collect();
    // A whole file says more than its writes.
    names.sort_by_key(|(name, (moves, n))| (*name != "file", !moves, std::cmp::Reverse(*n)));
    names.into_iter().map(|(n, _)| n.to_string()).collect()
}
