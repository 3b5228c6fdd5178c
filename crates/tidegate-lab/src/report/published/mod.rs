//! Each published table in its own form, with ours beside it: the median run of each position.
//!
//! This module lays out text of fixed width, for both the page and a terminal. It does not judge. A figure
//! that is not measured is a dash, and a note gives the reason.
//!
//! | module | holds |
//! |---|---|
//! | `m1`, `m2`, `m3`, `m5` | each published table, and ours in its form |
//! | `locks` | `/proc/lock_stat` |
//! | `graph` | the calls below `f2fs_writepages`, as `perf report` shows them |
//! | `time` | the lines that time(1) prints |

mod graph;
mod locks;
mod m1;
mod m2;
mod m3;
mod m5;
mod time;

use super::terminal::{WIDTH, wrapped};
use super::text::esc;
use super::{Case, Outcome};
use std::fmt::Write;
use tidegate::observe::graph::Graph;

/// The default function whose callees are shown.
pub const SYMBOL: &str = "f2fs_writepages";

/// The sign for a missing figure.
const NONE: &str = "–";

/// Text of fixed width, and its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pane {
    whose: String,
    text: String,
}

/// One table: the published one, and one for each position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    title: String,
    /// Notes on how to read it.
    notes: Vec<String>,
    panes: Vec<Pane>,
    /// Its lines are long: on the page it is behind a click.
    wide: bool,
}

impl Block {
    fn new(title: impl Into<String>) -> Block {
        Block { title: title.into(), ..Block::default() }
    }

    fn note(mut self, note: impl Into<String>) -> Block {
        self.notes.push(note.into());
        self
    }

    fn pane(&mut self, whose: impl Into<String>, text: impl Into<String>) {
        self.panes.push(Pane { whose: whose.into(), text: text.into() });
    }
}

/// The published setting of an outcome.
fn published(o: &Outcome) -> Option<&Case> {
    o.cases.iter().find(|c| c.published.is_some())
}

/// All tables of an outcome; for an outcome that repeats no published setting, the calls below `symbol`, if
/// asked for.
fn blocks(o: &Outcome, symbol: Option<&str>) -> Vec<Block> {
    let below = symbol.unwrap_or(SYMBOL);
    let Some(case) = published(o) else {
        let asked = o.cases.iter().filter(|_| symbol.is_some());
        return asked.flat_map(|c| graph::blocks(c, below)).collect();
    };
    let own = match o.experiment.as_str() {
        "m1" => m1::blocks(case),
        "m2" => o.cases.iter().filter(|c| c.published.is_some()).flat_map(m2::blocks).collect(),
        "m3" => m3::blocks(case, o.cases.iter().find(|c| c.name == crate::experiment::M3_AS_MANY)),
        "m5" => m5::blocks(case),
        _ => Vec::new(),
    };
    own.into_iter().chain(locks::block(case)).chain(graph::blocks(case, below)).collect()
}

/// Whether a call tree of these contains the function.
pub fn is_called(outcomes: &[Outcome], symbol: &str) -> bool {
    let positions = outcomes.iter().flat_map(|o| &o.cases).flat_map(|c| &c.positions);
    positions.into_iter().any(|p| Graph::of(&p.call_tree).below(symbol).is_some())
}

/// The section of an outcome on the page; nothing if the outcome has no tables.
pub(super) fn html(out: &mut String, o: &Outcome, symbol: Option<&str>) {
    let blocks = blocks(o, symbol);
    if blocks.is_empty() {
        return;
    }
    out.push_str("<section class=\"case\"><h3>As published</h3>");
    for b in &blocks {
        let (open, close) = match b.wide {
            true => (format!("<details><summary>{}</summary>", esc(&b.title)), "</details>"),
            false => (format!("<h4>{}</h4>", esc(&b.title)), ""),
        };
        out.push_str(&open);
        for note in &b.notes {
            let _ = write!(out, "<p class=\"quiet small\">{}</p>", esc(note));
        }
        let longest = b.panes.iter().flat_map(|p| p.text.lines()).map(|l| l.chars().count()).max();
        let class = match longest.unwrap_or(0) {
            0..32 => "panes narrow",
            32..96 => "panes",
            _ => "panes whole",
        };
        let _ = write!(out, "<div class=\"{class}\">");
        for Pane { whose, text } in &b.panes {
            let (whose, text) = (esc(whose), esc(text.trim_end()));
            let _ = write!(out, "<figure><figcaption>{whose}</figcaption><pre>{text}</pre></figure>");
        }
        let _ = write!(out, "</div>{close}");
    }
    out.push_str("</section>");
}

/// Each published table in its own form with ours below it, for a terminal. Call trees begin below `symbol`,
/// by default `f2fs_writepages`; for outcomes that repeat no published setting there are only call trees.
pub fn as_published(outcomes: &[Outcome], symbol: Option<&str>) -> String {
    let mut out = String::new();
    for o in outcomes {
        for b in blocks(o, symbol) {
            let _ = writeln!(out, "{}  {}", o.experiment, b.title);
            let notes = b.notes.iter().flat_map(|n| wrapped(n, WIDTH - 2));
            notes.for_each(|line| _ = writeln!(out, "  {line}"));
            for Pane { whose, text } in b.panes {
                let _ = writeln!(out, "\n  {whose}:\n{}", text.trim_end());
            }
            out.push('\n');
        }
    }
    out.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
