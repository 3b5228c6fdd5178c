//! The page: the order of its sections.

use super::summary;
use super::text::{esc, num};
use super::{
    Case, Extras, Outcome, bars, colour, devices, heads, percentile, published, tables, timeline, trees,
};
use crate::experiment::comparison::{RULES, Verdict};
use std::collections::BTreeSet;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Number of operations that are drawn, by percentile and over time, for the first case and for the others.
const DRAWN: [(usize, usize); 2] = [(6, 2), (2, 1)];

/// All outcomes on one page, which loads nothing.
pub fn html(outcomes: &[Outcome], extras: &Extras) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\"><title>Tidegate lab report</title>");
    let _ = write!(out, "<style>{STYLE}</style></head><body>");
    header(&mut out, outcomes, extras);
    outcomes.iter().for_each(|o| experiment(&mut out, o, extras.symbol.as_deref()));
    trees::extra(&mut out, extras);
    out.push_str("</body></html>\n");
    out
}

fn header(out: &mut String, outcomes: &[Outcome], extras: &Extras) {
    out.push_str("<header><h1>Tidegate lab report</h1>");
    if outcomes.is_empty() {
        out.push_str("<p>No experiment was measured.</p></header>");
        return;
    }
    for line in heads(outcomes) {
        let _ = write!(out, "<p class=\"quiet small\">{}</p>", esc(&line));
    }
    let all = || {
        let all = outcomes.iter().flat_map(|o| &o.cases).flat_map(|c| &c.comparisons);
        all.filter(|c| c.reproduces != Verdict::Shown)
    };
    let of = |v| all().filter(|c| c.reproduces == v).count();
    let (yes, partly, no) = (of(Verdict::Yes), of(Verdict::Partly), of(Verdict::No));
    if all().count() > 0 {
        let class = summary::class(if partly + no == 0 { Verdict::Yes } else { Verdict::No });
        let _ = write!(out, "<p class=\"lead\"><span class=\"{class}\">Of {} comparisons", all().count());
        let _ = write!(out, " {yes} reproduce, {partly} partly, {no} not</span>.</p>");
    }
    out.push_str("<nav aria-label=\"Experiments\">");
    for o in outcomes {
        let (id, title) = (esc(&o.experiment), esc(&o.title));
        let _ = write!(out, "<a href=\"#x-{id}\"><b>{id}</b> {title}</a>");
    }
    if !extras.folded.is_empty() {
        out.push_str("<a href=\"#call-trees\"><b>call trees</b></a>");
    }
    out.push_str("</nav></header><main><section class=\"top\"><h2>Summary</h2>");
    out.push_str(&summary::html(outcomes));
    let _ = write!(
        out,
        "<p class=\"quiet small\">Of each position the median over the runs; below it, where it lies with 95 % \
         confidence, or with fewer than six runs the least and the most. {}</p></section></main>",
        esc(RULES)
    );
}

fn experiment(out: &mut String, o: &Outcome, symbol: Option<&str>) {
    let (id, title) = (esc(&o.experiment), esc(&o.title));
    let _ = write!(out, "<section class=\"experiment\" id=\"x-{id}\"><h2><span>{id}</span> {title}</h2>");
    for paragraph in o.mechanism.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let _ = write!(out, "<p class=\"mechanism\">{}</p>", esc(paragraph.trim()));
    }
    let _ = write!(out, "<p class=\"quiet\">{}</p>", esc(&conditions(o)));
    if let Some(svg) = bars::ratio(o) {
        figure(out, "whole", "How many times: ours, and what was published", &svg);
    }
    published::html(out, o, symbol);
    for (i, case) in o.cases.iter().enumerate() {
        self::case(out, o, case, DRAWN[i.min(1)]);
        trees::of_positions(out, case, i == 0);
        out.push_str("</section>");
    }
    trees::missing(out, o);
    notes(out, "Notes", o.notes.iter());
    out.push_str("</section>");
}

/// The conditions of the measurement, in a sentence.
fn conditions(o: &Outcome) -> String {
    let runs = o.cases.iter().flat_map(|c| &c.positions).map(|p| p.runs.len());
    let (few, many) = (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0));
    let runs = match (few, many) {
        (a, b) if a == b => format!("{a} run{} of each position", if a == 1 { "" } else { "s" }),
        (a, b) => format!("{a} to {b} runs of each position"),
    };
    let time = match o.simulated {
        true => format!(
            "in simulated time on {} CPUs, where a run depends on its seed alone and nothing needs to warm up",
            o.cpus
        ),
        false => "in real time, after one of each position that does not count".into(),
    };
    let seeds: BTreeSet<u64> = o.cases.iter().flat_map(|c| &c.seeds).copied().collect();
    let seeds = match (seeds.first(), seeds.last()) {
        (Some(a), Some(b)) if a != b && b - a + 1 == seeds.len() as u64 => format!(", seeds {a} to {b}"),
        (None, _) => String::new(),
        _ => format!(", seeds {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    format!("{runs}{seeds}, in rounds that run all of them in an order of their own, {time}.")
}

/// A case without its call trees; its section is left open.
fn case(out: &mut String, o: &Outcome, case: &Case, (by_percentile, over_time): (usize, usize)) {
    let _ = write!(out, "<section class=\"case\"><h3>{}</h3>", esc(&case.name));
    let _ = write!(out, "<p class=\"quiet small\">On {}.", esc(&case.target));
    if let Some(p) = &case.published {
        let (what, source) = (esc(&p.what), esc(&p.source));
        let _ = write!(out, " Published: {what}, {} → {} ({source}).", num(p.before), num(p.after));
    }
    out.push_str("</p>");
    if !case.workload.is_empty() {
        let _ = write!(out, "<p class=\"workload\"><code>{}</code></p>", esc(&case.workload));
    }
    legend(out, o, case);
    out.push_str("<div class=\"charts\">");
    if let Some(svg) = bars::metric(o, case) {
        figure(out, "half", &upper(&case.metric), &svg);
    }
    let (ops, worth) = percentile::ops(&case.positions);
    let by_percentile = by_percentile.min(worth);
    for op in &ops[..by_percentile] {
        if let Some(svg) = percentile::chart(o, &case.positions, op) {
            figure(out, "half", &format!("{op}: latency by percentile"), &svg);
        }
    }
    for op in timeline::ops(&case.positions).iter().take(over_time) {
        let panels = timeline::throughput(o, &case.positions, op);
        if let Some(svg) = panels.draw() {
            figure(out, "whole", &format!("{}, in the median run of each position", panels.title), &svg);
        }
    }
    let panels = timeline::bio_size(o, &case.positions);
    if let Some(svg) = panels.draw() {
        figure(out, "whole", &format!("{}, in the median run of each position", panels.title), &svg);
    }
    out.push_str("</div>");
    if ops.len() > by_percentile {
        let rest = esc(&ops[by_percentile..].join(", "));
        let _ = write!(out, "<p class=\"quiet small\">Not drawn, but in the table: {rest}.</p>");
    }
    for t in
        [tables::counters(case), tables::latencies(o, case), tables::locks(o, case), tables::steps(o, case)]
    {
        out.push_str(&t.unwrap_or_default());
    }
    if let Some(t) = tables::all_counters(case) {
        let _ = write!(out, "<details><summary>All counters</summary>{t}</details>");
    }
    devices::sources(out, case);
    let runs = || case.positions.iter().flat_map(|p| &p.runs);
    let said: BTreeSet<&String> = runs().flat_map(|r| &r.notes).collect();
    notes(out, "Notes of the runs", said.into_iter());
}

fn legend(out: &mut String, o: &Outcome, case: &Case) {
    out.push_str("<ul class=\"legend\" aria-label=\"Positions\">");
    for p in &case.positions {
        let k = colour(o, &p.name);
        let line = format!("<path d=\"M0 6H30\" class=\"line s{k}\"/>");
        let key = format!(
            "<svg width=\"30\" height=\"12\" viewBox=\"0 0 30 12\" aria-hidden=\"true\">{line}</svg>"
        );
        let _ = write!(out, "<li>{key}{}</li>", esc(&p.name));
    }
    out.push_str("</ul>");
}

pub(super) fn figure(out: &mut String, class: &str, title: &str, svg: &str) {
    let title = esc(title);
    let _ = write!(out, "<figure class=\"{class}\"><figcaption>{title}</figcaption>{svg}</figure>");
}

fn notes<'a>(out: &mut String, title: &str, notes: impl Iterator<Item = &'a String>) {
    let items: String = notes.map(|n| format!("<li>{}</li>", esc(n))).collect();
    if !items.is_empty() {
        let _ = write!(out, "<h4>{title}</h4><ul class=\"notes\">{items}</ul>");
    }
}

fn upper(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
