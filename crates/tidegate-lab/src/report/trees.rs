//! Call trees on the page: of each position, and those given beside the results.

use super::page::figure;
use super::text::esc;
use super::{Case, Extras, Outcome, flame};
use crate::experiment::Experiment;
use std::fmt::Write;

const EXPLAINED: &str = "A frame is as wide as its share of the time that all threads spent in spans, waits \
    included; who calls stands below whom it calls. [lock …] is waiting for it.";

/// The call tree of the drawn run of each position; behind a click unless `open`.
pub fn of_positions(out: &mut String, case: &Case, open: bool) {
    let drawn: Vec<(String, String)> = (case.positions.iter())
        .map(|p| (format!("{}: call tree of the median run", p.name), p))
        .filter_map(|(title, p)| flame::chart(&title, &p.call_tree).map(|svg| (title, svg)))
        .collect();
    if drawn.is_empty() {
        return;
    }
    let attribute = if open { " open=\"\"" } else { "" };
    let _ = write!(out, "<details{attribute}><summary>Call trees</summary>");
    let _ = write!(out, "<p class=\"quiet small\">{EXPLAINED}</p><div class=\"charts\">");
    drawn.iter().for_each(|(title, svg)| figure(out, "whole", title, svg));
    out.push_str("</div></details>");
}

/// Explains how to get call trees, if an experiment has none.
pub fn missing(out: &mut String, o: &Outcome) {
    let mut positions = o.cases.iter().flat_map(|c| &c.positions);
    if positions.clone().next().is_none() || positions.any(|p| !p.call_tree.is_empty()) {
        return;
    }
    let command = match o.experiment.as_str() {
        "compare" => "tidegate lab compare --profile FILE …".to_owned(),
        name if Experiment::named(name).is_ok() => format!("tidegate lab run {name} --profile FILE"),
        _ => "tidegate lab run FILE.toml --profile FILE".to_owned(),
    };
    let _ = write!(
        out,
        "<p class=\"quiet small\">No call tree was recorded: <code>{}</code> records one of the median run of \
         each position.</p>",
        esc(&command)
    );
}

/// The call trees given beside the results.
pub fn extra(out: &mut String, extras: &Extras) {
    let drawn: Vec<(&String, String)> =
        extras.folded.iter().filter_map(|(title, f)| Some((title, flame::chart(title, f)?))).collect();
    if drawn.is_empty() {
        return;
    }
    out.push_str("<section class=\"experiment\" id=\"call-trees\"><h2>Call trees</h2>");
    let _ = write!(out, "<p class=\"quiet\">{EXPLAINED}</p>");
    drawn.iter().for_each(|(title, svg)| figure(out, "whole", title, svg));
    out.push_str("</section>");
}
