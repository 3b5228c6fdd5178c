//! The summary for a terminal of 80 columns: for each case its positions, then its ratios.

use super::summary::{Ratio, ratios, short};
use super::text::{cut, num};
use super::{Case, Outcome, heads};
use crate::experiment::comparison::{Rule, Verdict};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Columns of text.
pub(super) const WIDTH: usize = 80;
/// Widest name; longer ones are cut.
const NAME: usize = 33;
/// Widths of our figure, of its interval, and of the published one or the bound.
const FIGURES: [usize; 3] = [7, 13, 9];
/// With fewer runs, a median has no 95 % interval.
const SIX: usize = 6;
/// The note about intervals of few runs.
const FEW: &str = "between: of a position with fewer than six runs the least and the greatest, else 95 %; of what is compared \
    Student's 95 % interval";
/// Indentation of a reason.
const REASON: usize = 6;

/// A block of lines for each case; with `colour`, coloured by ANSI escapes.
pub fn table(outcomes: &[Outcome], colour: bool) -> String {
    let mut t = Table { out: String::new(), colour };
    for line in heads(outcomes) {
        wrapped(&plain(&line), WIDTH).iter().for_each(|l| t.line(l, ""));
    }
    let few = |c: &Case| (1..SIX).contains(&c.seeds.len());
    let few = outcomes.iter().flat_map(|o| &o.cases).any(few);
    t.line(&row("", ["ours", if few { "between" } else { "95 %" }, "published"], "reproduces"), "1");
    if few {
        wrapped(FEW, WIDTH - 2).iter().for_each(|l| t.line(&format!("  {l}"), ""));
    }
    for (o, case) in outcomes.iter().flat_map(|o| o.cases.iter().map(move |c| (o, c))) {
        t.line("", "");
        t.line(&plain(&format!("{}  {}: {}", o.experiment, case.name, case.metric)), "1");
        for p in &case.positions {
            let e = p.metric;
            let between = if num(e.low) == num(e.high) {
                String::new()
            } else {
                format!("{}–{}", num(e.low), num(e.high))
            };
            t.line(&row(short(&p.name), [&num(e.median), &between, ""], ""), "");
        }
        ratios(case).iter().for_each(|r| t.ratio(r));
        let notes: BTreeSet<&String> =
            case.positions.iter().flat_map(|p| &p.runs).flat_map(|r| &r.notes).collect();
        for line in notes.iter().flat_map(|n| wrapped(&plain(n), WIDTH - 2)) {
            t.line(&format!("  {line}"), "");
        }
        if let Some(p) = &case.published {
            let (what, source) = (plain(&p.what), plain(&p.source));
            t.line(&format!("  {source}: {what}, {} → {}", num(p.before), num(p.after)), "");
        }
    }
    t.out
}

struct Table {
    out: String,
    colour: bool,
}

impl Table {
    fn line(&mut self, text: &str, style: &str) {
        let _ = match self.colour && !style.is_empty() {
            true => writeln!(self.out, "\x1b[{style}m{}\x1b[0m", text.trim_end()),
            false => writeln!(self.out, "{}", text.trim_end()),
        };
    }

    fn ratio(&mut self, r: &Ratio) {
        let (against, verdict, style, why) = match &r.judged {
            None => (r.tell(r.published), String::new(), "", ""),
            Some(j) => {
                let against = match j.rule {
                    Rule::Published(_) | Rule::Shown(_) => r.tell(r.published),
                    bound => bound.to_string(),
                };
                (against, j.verdict.to_string(), style(j.verdict), &*j.why)
            }
        };
        self.line(&row(&r.name, [&r.tell(r.value), &r.between(), &against], &verdict), style);
        wrapped(&plain(why), WIDTH - REASON)
            .iter()
            .for_each(|l| self.line(&format!("{:REASON$}{l}", ""), style));
    }
}

fn style(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Yes => "32",
        Verdict::Partly => "33",
        Verdict::No => "31",
        Verdict::Shown => "",
    }
}

fn row(name: &str, [ours, between, against]: [&str; 3], verdict: &str) -> String {
    let [a, b, c] = FIGURES;
    format!("  {:<NAME$} {ours:>a$}  {between:<b$} {against:>c$}  {verdict}", cut(&plain(name), NAME))
}

/// Lines of at most `width` characters, broken between words.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(l) if l.chars().count() + 1 + word.chars().count() <= width => {
                l.push(' ');
                l.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// A text without characters that could move the cursor.
fn plain(s: &str) -> String {
    s.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
