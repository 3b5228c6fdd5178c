//! Reports of outcomes: a self-contained page, and a table for the terminal.
//!
//! This module lays out [`Outcome`]s as HTML with inline drawings, in light, dark and print. It does not
//! measure, judge (verdicts come with the outcome), or read or write files. Equal outcomes give equal bytes.
//!
//! | module | holds |
//! |---|---|
//! | `page` | the page and its sections |
//! | `summary` | the top of the page |
//! | `terminal` | the summary for a terminal |
//! | `published` | each published table in its own form, ours beside it |
//! | `csv` | every run, for other programs |
//! | `tables` | latencies, counters, locks, steps of checkpoints |
//! | `latency` | the columns of every table of latencies |
//! | `devices` | the sources of the figures of device models |
//! | `bars`, `percentile`, `panels`, `flame` | the charts |
//! | `picture` | the ratios as a picture of its own |
//! | `trees` | the places of flame graphs, and the way to get them |
//! | `timeline` | series and events of a run, made ready for `panels` |
//! | `svg`, `scale`, `text` | drawing, axes, numbers and escaping |
//!
//! A position has one colour and one dash throughout an experiment, by its place in the outcome.

mod bars;
mod csv;
mod devices;
mod flame;
pub(crate) mod latency;
mod page;
mod panels;
mod percentile;
mod picture;
mod published;
mod scale;
mod summary;
mod svg;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod timeline;
mod trees;

pub use csv::csv;
pub use page::html;
pub use picture::picture;
pub use published::{SYMBOL, as_published, is_called};
pub use terminal::table;

use crate::experiment::outcome::{Case, Estimate, Outcome, Position};

/// The parts of a report beside outcomes.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Further call trees: a title, and folded stacks (`a;b;c 123`, a line each).
    pub folded: Vec<(String, String)>,
    /// The function whose callees are shown as published; [`SYMBOL`] by default.
    pub symbol: Option<String>,
}

/// Number of colours; a further position has the first again.
const COLOURS: usize = 7;

/// A position's class of colour and dash: its name's place among all of the experiment's.
fn colour(outcome: &Outcome, name: &str) -> usize {
    let mut names: Vec<&str> = Vec::new();
    for p in outcome.cases.iter().flat_map(|c| &c.positions) {
        if !names.contains(&p.name.as_str()) {
            names.push(&p.name);
        }
    }
    names.iter().position(|n| *n == name).unwrap_or(0) % COLOURS
}

/// The heads of all measurements: a line for each distinct head, with its experiments.
fn heads(outcomes: &[Outcome]) -> Vec<String> {
    let mut heads: Vec<(String, Vec<&str>)> = Vec::new();
    for o in outcomes.iter().filter(|o| !o.head.date.is_empty()) {
        let line = o.head.line();
        match heads.iter_mut().find(|(l, _)| *l == line) {
            Some((_, of)) => of.push(&o.experiment),
            None => heads.push((line, vec![&o.experiment])),
        }
    }
    heads.into_iter().map(|(line, of)| format!("{}: {line}", of.join(", "))).collect()
}
