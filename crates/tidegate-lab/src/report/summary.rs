//! What stands at the top: a row for each case.

use super::text::{cut, esc, num, times};
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

/// The widest that the ends of both intervals allow.
fn interval(a: Estimate, b: Estimate) -> Option<(f64, f64)> {
    let i = (a.low / b.high, a.high / b.low);
    (i.0.is_finite() && i.1.is_finite() && i.0 > 0.0).then_some(i)
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
        o.cases.iter().enumerate().for_each(|(i, case)| row(&mut out, o, case, i == 0, places.len()));
        out.push_str("</tbody>");
    }
    out.push_str("</table></div>");
    out
}

fn row(out: &mut String, o: &Outcome, case: &Case, first: bool, places: usize) {
    out.push_str("<tr>");
    if first {
        let (rows, id, name) = (o.cases.len(), esc(&o.experiment), esc(&o.experiment));
        let _ = write!(out, "<th scope=\"rowgroup\" rowspan=\"{rows}\"><a href=\"#x-{id}\">{name}</a></th>");
    }
    let better = if case.less_is_better { "less is better" } else { "more is better" };
    let (name, metric) = (esc(&case.name), esc(&case.metric));
    let _ = write!(out, "<th scope=\"row\">{name}<small>{metric}; {better}</small></th>");
    for i in 0..places {
        match case.positions.get(i) {
            Some(p) => {
                let (k, name, e) = (colour(o, &p.name), esc(short(&p.name)), p.metric);
                let _ = write!(out, "<td><i class=\"key k{k}\"></i>{name}<b>{}</b>", num(e.median));
                if e.low != e.high {
                    let _ = write!(out, "<small>{}–{}</small>", num(e.low), num(e.high));
                }
                out.push_str("</td>");
            }
            None => out.push_str("<td></td>"),
        }
    }
    let ratios = ratios(case);
    let value = |v: Option<f64>| v.map_or("–".into(), times);
    let cell = |out: &mut String, of: &dyn Fn(&Ratio) -> String| {
        let lines: Vec<String> = ratios.iter().map(|r| format!("<div>{}</div>", of(r))).collect();
        let _ = write!(out, "<td>{}</td>", lines.concat());
    };
    cell(out, &|r| format!("<b>{}</b><small>{}</small>", value(r.value), esc(&r.name)));
    cell(out, &|r| format!("<b class=\"quiet\">{}</b><small>\u{a0}</small>", value(r.published)));
    cell(out, &bar_html);
    out.push_str("</tr>");
}

/// Whether a bar is met, in words and colour.
pub fn bar_html(r: &Ratio) -> String {
    if r.demand.is_empty() {
        return "<span class=\"quiet\">no bar</span><small>\u{a0}</small>".into();
    }
    let (class, sign) = match r.met {
        Some(true) => ("met", "✓"),
        Some(false) => ("unmet", "✗"),
        None => ("quiet", "–"),
    };
    format!(
        "<span class=\"{class}\">{sign} {}</span><small>{}</small>",
        verdict(r.met),
        esc(&pretty(&r.demand))
    )
}

/// A demand with the signs of a book.
pub fn pretty(demand: &str) -> String {
    demand.replace(">=", "≥").replace("<=", "≤")
}

/// The same for a terminal: a line for each ratio; with `colour`, by ANSI escapes.
pub fn table(outcomes: &[Outcome], colour: bool) -> String {
    let places = places(outcomes);
    let mut lines: Vec<(Vec<String>, Option<bool>)> = Vec::new();
    let ends = ["our ratio", "published", "bar"];
    let head = ["experiment", "case"].iter().chain(places).chain(&ends).map(|s| s.to_string());
    lines.push((head.collect(), None));
    for (o, case) in outcomes.iter().flat_map(|o| o.cases.iter().map(move |c| (o, c))) {
        let ratios = ratios(case);
        for i in 0..ratios.len().max(1) {
            let mut cells: Vec<String> = vec![String::new(); 2 + places.len()];
            if i == 0 {
                cells[0] = plain(&o.experiment);
                cells[1] = cut(&plain(&format!("{}: {}", case.name, case.metric)), 44);
                for (cell, p) in cells[2..].iter_mut().zip(&case.positions) {
                    *cell = format!("{} {}", plain(short(&p.name)), estimate(p.metric));
                }
            }
            let r = ratios.get(i);
            let value = |v: Option<f64>| v.map_or("–".to_string(), times);
            cells.push(r.map_or("–".into(), |r| format!("{} {}", value(r.value), plain(&r.name))));
            cells.push(value(r.and_then(|r| r.published)));
            cells.push(
                r.filter(|r| !r.demand.is_empty())
                    .map_or("–".into(), |r| format!("{} {}", plain(&pretty(&r.demand)), verdict(r.met))),
            );
            lines.push((cells, r.and_then(|r| r.met)));
        }
    }
    aligned(&lines, colour)
}

/// Without what could move a cursor.
fn plain(s: &str) -> String {
    s.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn aligned(lines: &[(Vec<String>, Option<bool>)], colour: bool) -> String {
    let columns = lines[0].0.len();
    let wide = |i: usize| lines.iter().map(|(l, _)| l[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut out = String::new();
    for (n, (cells, met)) in lines.iter().enumerate() {
        let mut line = String::new();
        for (i, (cell, w)) in cells.iter().zip(&widths).enumerate() {
            let (on, off) = match (colour, n, i + 1 == columns, met) {
                (false, ..) => ("", ""),
                (_, 0, ..) => ("\x1b[1m", "\x1b[0m"),
                (_, _, true, Some(true)) => ("\x1b[32m", "\x1b[0m"),
                (_, _, true, Some(false)) => ("\x1b[31m", "\x1b[0m"),
                _ => ("", ""),
            };
            let pad = if i + 1 == columns { 0 } else { w - cell.chars().count() + 2 };
            let _ = write!(line, "{on}{cell}{off}{:pad$}", "");
        }
        out.push_str(line.trim_end());
        out.push('\n');
        if n == 0 {
            let rule: usize = widths.iter().sum::<usize>() + 2 * (columns - 1);
            let _ = writeln!(out, "{}", "─".repeat(rule));
        }
    }
    out
}
