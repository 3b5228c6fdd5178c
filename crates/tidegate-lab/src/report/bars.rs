//! Bars with their intervals: the metric of each position, and ratios beside the published ones.

use super::scale::Scale;
use super::summary::{Judged, Ratio, class, estimate, ratios};
use super::svg::{Anchor, Svg, width};
use super::text::{cut, num, times};
use super::{Case, Outcome, colour};
use crate::experiment::comparison::Rule;

const W: f64 = 520.0;
const ROW: f64 = 42.0;

/// The metric of every position of a case.
pub fn metric(outcome: &Outcome, case: &Case) -> Option<String> {
    let max = case.positions.iter().map(|p| p.metric.high.max(p.metric.median)).reduce(f64::max)?;
    let (left, right) = (14.0, W - 24.0);
    let bottom = 4.0 + ROW * case.positions.len() as f64;
    let x = Scale::linear(0.0, max, (left, right), 5);
    let said: Vec<String> =
        case.positions.iter().map(|p| format!("{}: {}", p.name, estimate(p.metric))).collect();
    let mut svg = Svg::new(W, bottom + 40.0, &format!("{}: {}", case.name, case.metric), &said.join("; "));
    for v in x.ticks(5) {
        svg.line((x.at(v), 4.0), (x.at(v), bottom), "grid");
    }
    for (i, p) in case.positions.iter().enumerate() {
        let top = 4.0 + ROW * i as f64;
        let (name, e) = (cut(&p.name, 34), p.metric);
        svg.text(left + 2.0, top + 13.0, Anchor::Start, "name", &name);
        svg.text(right, top + 13.0, Anchor::End, "value", &estimate(e));
        let (from, to) = (x.at(0.0), x.at(e.median));
        svg.rect((from, top + 19.0), (to - from, 15.0), &format!("f{}", colour(outcome, &p.name)), None);
        if e.low != e.high {
            let (a, b, y) = (x.at(e.low), x.at(e.high), top + 26.5);
            svg.line((a, y), (b, y), "whisker");
            [a, b].iter().for_each(|x| svg.line((*x, y - 5.0), (*x, y + 5.0), "whisker"));
        }
    }
    svg.line((left, 4.0), (left, bottom), "axis");
    svg.labels(x.ticks(5).iter().map(|v| (x.at(*v), num(*v))), bottom + 16.0, (0.0, W));
    let better = if case.less_is_better { "less is better" } else { "more is better" };
    let unit = format!("{} ({better})", cut(&case.metric, 52));
    svg.text((left + right) / 2.0, bottom + 34.0, Anchor::Middle, "unit", &unit);
    Some(svg.done())
}

const WIDE: f64 = 1060.0;
const LEFT: f64 = 14.0;
/// Right edges of the columns of figures.
const ENDS: [f64; 4] = [680.0, 780.0, 915.0, 1046.0];
const RIGHT: f64 = 560.0;

/// Every ratio of an experiment, its interval, the published one and the verdict.
pub fn ratio(outcome: &Outcome) -> Option<String> {
    let rows: Vec<(String, Ratio)> = outcome
        .cases
        .iter()
        .flat_map(|c| ratios(c).into_iter().map(|r| (format!("{}: {}", c.name, r.name), r)))
        // Other figures have no place on the axis.
        .filter(|(_, r)| r.is_ratio)
        .collect();
    let values = || rows.iter().flat_map(|(_, r)| all(r)).filter(|v| v.is_finite() && *v > 0.0);
    let (min, max) = (values().reduce(f64::min)?.min(1.0), values().reduce(f64::max)?.max(1.0));
    let x = Scale::log(min, max, 10.0, (LEFT, RIGHT));
    let bottom = 30.0 + ROW * rows.len() as f64;
    let said: Vec<String> = rows.iter().map(|(name, r)| said(name, r)).collect();
    let mut svg = Svg::new(WIDE, bottom + 40.0, "Ratios", &said.join("; "));
    for (head, end) in ["ours", "published", "against", "reproduces"].iter().zip(ENDS) {
        svg.text(end, 16.0, Anchor::End, "unit", head);
    }
    let ticks = x.log_ticks(10.0, 8);
    for v in &ticks {
        let class = if (v - 1.0).abs() < 1e-9 { "axis" } else { "grid" };
        svg.line((x.at(*v), 26.0), (x.at(*v), bottom), class);
    }
    rows.iter().enumerate().for_each(|(i, (name, r))| row(&mut svg, &x, 28.0 + ROW * i as f64, name, r));
    svg.labels(ticks.iter().map(|v| (x.at(*v), times(*v))), bottom + 16.0, (0.0, RIGHT + 30.0));
    let unit = "ratio: ● ours, ◇ published, ┆ a bound of ours";
    svg.text((LEFT + RIGHT) / 2.0, bottom + 34.0, Anchor::Middle, "unit", unit);
    Some(svg.done())
}

fn all(r: &Ratio) -> impl Iterator<Item = f64> {
    let (low, high) = r.interval.unzip();
    [r.value, r.published, low, high, bound(r)].into_iter().flatten()
}

/// The bound for it, if the rule is not the published value.
fn bound(r: &Ratio) -> Option<f64> {
    let rule = r.judged.as_ref()?.rule;
    (!matches!(rule, Rule::Published(_) | Rule::Shown(_))).then(|| rule.number())
}

/// The rule, and the verdict with the class of its colour.
fn verdict(j: Option<&Judged>) -> (String, String, &'static str) {
    match j {
        None => (String::new(), "–".into(), "tick"),
        Some(Judged { rule: Rule::Shown(_), verdict, .. }) => (String::new(), verdict.to_string(), "tick"),
        Some(j) => (j.rule.to_string(), j.verdict.to_string(), class(j.verdict)),
    }
}

fn said(name: &str, r: &Ratio) -> String {
    let (rule, verdict, _) = verdict(r.judged.as_ref());
    let judged = format!("{rule} {verdict}");
    let (ours, published, judged) = (r.tell(r.value), r.tell(r.published), judged.trim_start());
    format!("{name}: ours {ours}, published {published}, {judged}")
}

fn row(svg: &mut Svg, x: &Scale, top: f64, name: &str, r: &Ratio) {
    svg.text(LEFT + 2.0, top + 13.0, Anchor::Start, "name halo", &cut(name, (RIGHT / width("m")) as usize));
    let y = top + 27.0;
    if let Some(v) = bound(r).filter(|v| *v > 0.0) {
        svg.line((x.at(v), y - 9.0), (x.at(v), y + 9.0), "demand");
    }
    if let Some(p) = r.published.filter(|p| *p > 0.0) {
        let c = x.at(p);
        svg.area(&[(c - 7.0, y), (c, y - 7.0), (c + 7.0, y), (c, y + 7.0)], "published");
    }
    if let Some(v) = r.value.filter(|v| *v > 0.0) {
        svg.line((x.at(1.0), y), (x.at(v), y), "reach");
        if let Some((a, b)) = r.interval {
            svg.line((x.at(a), y), (x.at(b), y), "whisker");
            [a, b].iter().for_each(|v| svg.line((x.at(*v), y - 5.0), (x.at(*v), y + 5.0), "whisker"));
        }
        svg.dot((x.at(v), y), 5.0, "ours");
    }
    let (rule, verdict, class) = verdict(r.judged.as_ref());
    let figures = [r.tell(r.value), r.tell(r.published), rule, verdict];
    for ((s, end), class) in figures.iter().zip(ENDS).zip(["value", "value", "tick", class]) {
        svg.text(end, y + 4.5, Anchor::End, class, s);
    }
}
