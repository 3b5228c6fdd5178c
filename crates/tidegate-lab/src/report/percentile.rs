//! Latency by percentile: rarer values lie further right, up to p99.99.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::text::nanos;
use super::{Outcome, Position, colour};
use std::collections::BTreeMap;

const W: f64 = 520.0;
const H: f64 = 290.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = W - 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = H - 44.0;

/// Percentages on the axis.
const TICKS: [(f64, &str); 6] =
    [(0.0, "0 %"), (50.0, "50"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99")];

/// One curve: values in order, with the number of operations that took no longer.
struct Curve<'a> {
    name: &'a str,
    colour: usize,
    steps: Vec<(u64, u64)>,
    count: u64,
}

impl Curve<'_> {
    fn value_at(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        self.steps.iter().find(|(_, upto)| *upto >= rank).map_or(0, |(v, _)| *v)
    }
}

/// The kinds of operation that were measured, those with the most time first, and the number of them that
/// took at least a ten-thousandth of the first's time.
pub fn ops(positions: &[Position]) -> (Vec<String>, usize) {
    let mut total: BTreeMap<&str, f64> = BTreeMap::new();
    for run in positions.iter().flat_map(|p| &p.runs) {
        for (name, op) in &run.ops {
            *total.entry(name).or_default() += op.latency.mean * op.latency.count as f64;
        }
    }
    let mut names: Vec<(&str, f64)> = total.into_iter().filter(|(_, t)| *t > 0.0).collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let worth = names.iter().filter(|(_, t)| *t >= names[0].1 / 1e4).count();
    (names.into_iter().map(|(n, _)| n.to_string()).collect(), worth)
}

fn curve<'a>(outcome: &Outcome, p: &'a Position, op: &str) -> Option<Curve<'a>> {
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, n) in p.runs.iter().filter_map(|r| r.ops.get(op)).flat_map(|o| &o.histogram) {
        *all.entry(*value).or_default() += n;
    }
    let mut upto = 0;
    let steps: Vec<(u64, u64)> = all
        .into_iter()
        .map(|(v, n)| {
            upto += n;
            (v, upto)
        })
        .collect();
    (upto > 0).then(|| Curve { name: &p.name, colour: colour(outcome, &p.name), steps, count: upto })
}

/// Latencies of `op`, all runs of each position together. `None` without operations.
pub fn chart(outcome: &Outcome, positions: &[Position], op: &str) -> Option<String> {
    let curves: Vec<Curve<'_>> = positions.iter().filter_map(|p| curve(outcome, p, op)).collect();
    let values = || curves.iter().flat_map(|c| &c.steps).map(|(v, _)| (*v).max(1) as f64);
    let (min, max) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let (x, y) = (Scale::exact(0.0, 4.0, (LEFT, RIGHT)), Scale::log(min, max, 10.0, (BOTTOM, TOP)));
    let said: Vec<String> = curves.iter().map(said).collect();
    let mut svg = Svg::new(W, H, &format!("{op}: latency by percentile"), &said.join("; "));
    axes(&mut svg, &x, &y);
    for c in &curves {
        let points: Vec<_> = points(c, &x, &y).into_iter().map(Some).collect();
        svg.lines(&points, &format!("line s{}", c.colour));
    }
    Some(svg.done())
}

fn said(c: &Curve<'_>) -> String {
    let at = |p| nanos(c.value_at(p) as f64);
    format!("{}: p50 {}, p99 {}, p99.9 {}, p99.99 {}", c.name, at(50.0), at(99.0), at(99.9), at(99.99))
}

/// The horizontal position of a share of all operations.
fn rarity(part: f64) -> f64 {
    -(1.0 - part).max(1e-4).log10()
}

/// Steps, without those that end less than a stroke after the one before.
fn points(c: &Curve<'_>, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    let mut from = LEFT;
    for (i, (value, upto)) in c.steps.iter().enumerate() {
        // The last value was seen once in `count`; nothing is known beyond that.
        let part = (*upto as f64).min(c.count as f64 - 0.5) / c.count as f64;
        let (to, at) = (x.at(rarity(part)), y.at((*value).max(1) as f64));
        let last = i + 1 == c.steps.len();
        if to - from >= 1.5 || last {
            out.push((from, at));
            out.push((to, at));
            from = to;
        }
        if to >= RIGHT - 0.05 {
            break;
        }
    }
    out
}

fn axes(svg: &mut Svg, x: &Scale, y: &Scale) {
    for v in y.log_ticks(10.0, 8) {
        svg.line((LEFT, y.at(v)), (RIGHT, y.at(v)), "grid");
        svg.text(LEFT - 6.0, y.at(v) + 4.0, Anchor::End, "tick", &nanos(v));
    }
    let places = TICKS.map(|(p, label)| (x.at(rarity(p / 100.0)), label.to_string()));
    for (at, _) in &places {
        svg.line((*at, TOP), (*at, BOTTOM), "grid");
    }
    svg.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    svg.labels(places, BOTTOM + 17.0, (LEFT - 20.0, W));
    svg.text(
        (LEFT + RIGHT) / 2.0,
        H - 6.0,
        Anchor::Middle,
        "unit",
        "percent of operations that took no longer",
    );
}
