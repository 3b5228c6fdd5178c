//! The top of the report: a row for each case.

use super::text::{esc, num, times};
use super::{Case, Estimate, Outcome, colour};
use crate::experiment::by_rounds;
use crate::experiment::comparison::{Comparison, Rule, Verdict};
use crate::experiment::interval::Interval;
use std::fmt::Write;

/// One figure of a case that is compared.
pub struct Ratio {
    /// Its name.
    pub name: String,
    /// Whether it is a ratio of two values of one kind.
    pub is_ratio: bool,
    /// Ours.
    pub value: Option<f64>,
    /// Its interval, if that is known.
    pub interval: Option<(f64, f64)>,
    /// The published one.
    pub published: Option<f64>,
    /// The verdict, if there is a rule.
    pub judged: Option<Judged>,
}

/// The result of a comparison with a rule.
pub struct Judged {
    /// The rule.
    pub rule: Rule,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for a verdict other than yes.
    pub why: String,
}

/// The figures that are compared in a case, or else the old position compared with the next.
pub fn ratios(case: &Case) -> Vec<Ratio> {
    if !case.comparisons.is_empty() {
        return case.comparisons.iter().map(judged).collect();
    }
    let [old, new, ..] = &case.positions[..] else {
        return Vec::new();
    };
    let (over, under) = if case.less_is_better { (old, new) } else { (new, old) };
    let ours = Interval::of_ratios(&by_rounds(&over.values, &under.values));
    vec![Ratio {
        name: format!("{} / {}", short(&over.name), short(&under.name)),
        is_ratio: true,
        value: ours.map(|o| o.mean),
        interval: ours.and_then(|o| o.ends),
        published: published(case),
        judged: None,
    }]
}

/// The published improvement, as a factor.
fn published(case: &Case) -> Option<f64> {
    let p = case.published.as_ref()?;
    let (a, b) = if case.less_is_better { (p.before, p.after) } else { (p.after, p.before) };
    (b != 0.0).then(|| a / b)
}

fn judged(c: &Comparison) -> Ratio {
    Ratio {
        name: c.name.clone(),
        is_ratio: c.is_ratio,
        value: c.ours,
        interval: c.low.zip(c.high),
        published: c.published,
        judged: Some(Judged { rule: c.rule, verdict: c.reproduces, why: c.why.clone() }),
    }
}

impl Ratio {
    /// A value in the form of its kind.
    pub fn tell(&self, value: Option<f64>) -> String {
        value.map_or("–".into(), if self.is_ratio { times } else { num })
    }

    /// Its interval; empty where there is none.
    pub fn between(&self) -> String {
        self.interval.map_or(String::new(), |(low, high)| format!("{}–{}", num(low), num(high)))
    }
}

/// The class of a verdict's colour.
pub fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Yes => "yes",
        Verdict::Partly => "partly",
        Verdict::No => "no",
        Verdict::Shown => "quiet",
    }
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

const PLACES: [&str; 7] = ["before", "after", "third", "fourth", "fifth", "sixth", "seventh"];

/// Columns for positions: as many as the case with the most positions has.
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
    out.push_str("<th scope=\"col\" class=\"n\">ours</th><th scope=\"col\" class=\"n\">published</th>");
    out.push_str("<th scope=\"col\">reproduces</th></tr></thead>");
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
        let between = match &*r.between() {
            "" => String::new(),
            ends => format!(" <span class=\"quiet at\">{ends}</span>"),
        };
        let (ours, name, published) = (r.tell(r.value), esc(&r.name), r.tell(r.published));
        let _ = write!(out, "<td><b class=\"in\">{ours}</b>{between}<small>{name}</small></td>");
        let _ = write!(out, "<td><b class=\"quiet in\">{published}</b></td>");
        let _ = write!(out, "<td>{}</td></tr>", verdict_html(r.judged.as_ref()));
    }
}

/// The verdict in words and colour, with its reason.
fn verdict_html(judged: Option<&Judged>) -> String {
    let Some(j) = judged else { return "<span class=\"quiet\">nothing is demanded</span>".into() };
    let sign = match j.verdict {
        Verdict::Yes => "✓",
        Verdict::Partly => "~",
        Verdict::No => "✗",
        Verdict::Shown => "·",
    };
    let (class, verdict) = (class(j.verdict), j.verdict);
    let (rule, why) = (esc(&j.rule.to_string()), esc(&j.why));
    let why = if why.is_empty() { String::new() } else { format!("<small class=\"why\">{why}</small>") };
    format!("<span class=\"{class} at\">{sign} {verdict}</span><small>{rule}</small>{why}")
}
