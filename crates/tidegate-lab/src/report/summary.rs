//! What stands at the top: a row for each case.

use super::text::{esc, num, times};
use super::{Bar, Case, Estimate, Outcome, colour};
use std::fmt::Write;

/// One ratio of a case.
pub struct Ratio {
    /// What it is a ratio of.
    pub name: String,
    /// Ours.
    pub value: Option<f64>,
    /// Between which it lies, if both positions' intervals are known.
    pub interval: Option<(f64, f64)>,
    /// The published one.
    pub published: Option<f64>,
    /// The demand; empty for none.
    pub demand: String,
    /// Whether it is met.
    pub met: Option<bool>,
}

/// The ratios of a case: its bars, or else the old position against the next.
pub fn ratios(case: &Case) -> Vec<Ratio> {
    if !case.bars.is_empty() {
        return case.bars.iter().map(|b| of_bar(case, b)).collect();
    }
    let [old, new, ..] = &case.positions[..] else {
        return Vec::new();
    };
    let (over, under) = if case.less_is_better { (old, new) } else { (new, old) };
    let (a, b) = (over.metric, under.metric);
    let value = (b.median != 0.0).then(|| a.median / b.median);
    vec![Ratio {
        name: format!("{} / {}", short(&over.name), short(&under.name)),
        value,
        interval: value.and_then(|_| interval(a, b)),
        published: published(case),
        demand: String::new(),
        met: None,
    }]
}

/// How many times better the published change made it.
fn published(case: &Case) -> Option<f64> {
    let p = case.published.as_ref()?;
    let (a, b) = if case.less_is_better { (p.before, p.after) } else { (p.after, p.before) };
    (b != 0.0).then(|| a / b)
}

fn of_bar(case: &Case, bar: &Bar) -> Ratio {
    Ratio {
        name: bar.name.clone(),
        value: bar.value,
        interval: bar_interval(case, bar),
        published: bar.published,
        demand: bar.demand.clone(),
        met: bar.met,
    }
}

/// Of a bar named `a / b` that is the ratio of the metrics of these positions.
fn bar_interval(case: &Case, bar: &Bar) -> Option<(f64, f64)> {
    let (over, under) = bar.name.split_once(" / ")?;
    let find = |n: &str| case.positions.iter().find(|p| p.name == n || short(&p.name) == n);
    let (a, b) = (find(over)?.metric, find(under)?.metric);
    let value = bar.value?;
    let same = (a.median / b.median / value - 1.0).abs() < 0.02;
    if same { interval(a, b) } else { None }
}

/// The widest that the ends of both intervals allow; `None` of single runs.
fn interval(a: Estimate, b: Estimate) -> Option<(f64, f64)> {
    let i = (a.low / b.high, a.high / b.low);
    (i.0 < i.1 && i.1.is_finite() && i.0 > 0.0).then_some(i)
}

/// A position without the name of its switch.
pub fn short(name: &str) -> &str {
    match name.rsplit_once('=') {
        Some((_, value)) if !name.contains(',') => value,
        _ => name,
    }
}

/// A median with its interval.
pub fn estimate(e: Estimate) -> String {
    match e.low == e.high {
        true => num(e.median),
        false => format!("{} [{}–{}]", num(e.median), num(e.low), num(e.high)),
    }
}

/// In words.
pub fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "not met",
        None => "not measured",
    }
}

const PLACES: [&str; 7] = ["before", "after", "third", "fourth", "fifth", "sixth", "seventh"];

/// Columns for positions: as many as the case with the most has.
fn places(outcomes: &[Outcome]) -> &'static [&'static str] {
    let most = outcomes.iter().flat_map(|o| &o.cases).map(|c| c.positions.len()).max().unwrap_or(0);
    &PLACES[..most.clamp(2, PLACES.len())]
}

/// The table of the page.
pub fn html(outcomes: &[Outcome]) -> String {
    let places = places(outcomes);
    let mut out = String::from("<div class=\"wide\"><table class=\"summary\"><thead><tr>");
    out.push_str("<th scope=\"col\">experiment</th><th scope=\"col\">case</th>");
    for p in places {
        let _ = write!(out, "<th scope=\"col\">{p}</th>");
    }
    out.push_str("<th scope=\"col\" class=\"n\">our ratio</th><th scope=\"col\" class=\"n\">published</th>");
    out.push_str("<th scope=\"col\">bar</th></tr></thead>");
    for o in outcomes {
        out.push_str("<tbody>");
        o.cases.iter().enumerate().for_each(|(i, case)| rows(&mut out, o, case, i == 0, places.len()));
        out.push_str("</tbody>");
    }
    out.push_str("</table></div>");
    out
}

/// Rows that a case takes: one for each ratio.
fn lines(case: &Case) -> usize {
    ratios(case).len().max(1)
}

fn rows(out: &mut String, o: &Outcome, case: &Case, first: bool, places: usize) {
    out.push_str("<tr class=\"case-row\">");
    if first {
        let (span, id) = (o.cases.iter().map(lines).sum::<usize>(), esc(&o.experiment));
        let _ = write!(out, "<th scope=\"rowgroup\" rowspan=\"{span}\"><a href=\"#x-{id}\">{id}</a></th>");
    }
    let span = lines(case);
    let better = if case.less_is_better { "less is better" } else { "more is better" };
    let (name, metric) = (esc(&case.name), esc(&case.metric));
    let _ = write!(out, "<th scope=\"row\" rowspan=\"{span}\">{name}<small>{metric}; {better}</small></th>");
    for i in 0..places {
        let _ = write!(out, "<td rowspan=\"{span}\">");
        if let Some(p) = case.positions.get(i) {
            let (k, e) = (colour(o, &p.name), p.metric);
            // Long names may break after an underscore.
            let name = esc(short(&p.name)).replace('_', "_<wbr/>");
            let _ = write!(out, "<span><i class=\"key k{k}\"></i>{name}</span>");
            let _ = write!(out, "<b>{}</b>", num(e.median));
            if e.low != e.high {
                let _ = write!(out, "<small class=\"at\">{}–{}</small>", num(e.low), num(e.high));
            }
        }
        out.push_str("</td>");
    }
    let ratios = ratios(case);
    if ratios.is_empty() {
        out.push_str("<td></td><td></td><td></td></tr>");
    }
    for (i, r) in ratios.iter().enumerate() {
        out.push_str(if i > 0 { "<tr>" } else { "" });
        let value = |v: Option<f64>| v.map_or("–".into(), times);
        let between =
            r.interval.map(|(a, b)| format!(" <span class=\"quiet at\">{}–{}</span>", num(a), num(b)));
        let between = between.unwrap_or_default();
        let _ = write!(
            out,
            "<td><b class=\"in\">{}</b>{between}<small>{}</small></td>",
            value(r.value),
            esc(&r.name)
        );
        let _ = write!(out, "<td><b class=\"quiet in\">{}</b></td>", value(r.published));
        let _ = write!(out, "<td>{}</td></tr>", bar_html(r));
    }
}

/// Whether a bar is met, in words and colour.
pub fn bar_html(r: &Ratio) -> String {
    if r.demand.is_empty() {
        return "<span class=\"quiet\">no bar</span>".into();
    }
    let (class, sign) = match r.met {
        Some(true) => ("met", "✓"),
        Some(false) => ("unmet", "✗"),
        None => ("quiet", "–"),
    };
    format!(
        "<span class=\"{class} at\">{sign} {}</span><small>{}</small>",
        verdict(r.met),
        esc(&pretty(&r.demand))
    )
}

/// A demand with the signs of a book.
pub fn pretty(demand: &str) -> String {
    demand.replace(">=", "≥").replace("<=", "≤")
}
