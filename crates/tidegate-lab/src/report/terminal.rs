//! The summary for a terminal of 80 columns: for each case its positions, then its ratios.

use super::Outcome;
use super::summary::{Ratio, pretty, ratios, short, verdict};
use super::text::{cut, num, times};
use std::fmt::Write;

const WIDTH: usize = 80;
/// Widest name; longer ones are cut.
const NAME: usize = 39;
/// Width of our figure, and of the published one.
const FIGURE: usize = 7;

/// A block of lines for each case; with `colour`, by ANSI escapes.
pub fn table(outcomes: &[Outcome], colour: bool) -> String {
    let mut t = Table { out: String::new(), colour };
    t.line(&row("", "ours", &format!("{:>FIGURE$}  bar", "published")), "1");
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
            t.line(&row(short(&p.name), &num(e.median), &between), "");
        }
        ratios(case).iter().for_each(|r| t.ratio(r));
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
        let value = |v: Option<f64>| v.map_or("–".into(), times);
        // What may hold instead stands below.
        let (demand, other) = r.demand.split_once(" or ").unwrap_or((&r.demand, ""));
        let bar = match demand {
            "" => "–".into(),
            d => format!("{} {}", plain(&pretty(d)), verdict(r.met)),
        };
        let style = match r.met {
            Some(true) => "32",
            Some(false) => "31",
            None => "",
        };
        let rest = format!("{:>width$}  {bar}", value(r.published), width = FIGURE + 1);
        self.line(&row(&r.name, &value(r.value), &rest), style);
        if !other.is_empty() {
            self.line(&format!("{:>WIDTH$}", format!("or {}", plain(other))), "");
        }
    }
}

fn row(name: &str, ours: &str, rest: &str) -> String {
    format!("  {:<NAME$} {ours:>FIGURE$}  {rest}", cut(&plain(name), NAME))
}

/// Without what could move a cursor.
fn plain(s: &str) -> String {
    s.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
