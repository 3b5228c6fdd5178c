//! Tables for people and JSON for programs; bars for values.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::measure::Spread;
use super::series::Series;
use super::workload::Report;

/// A value of a report that is shown.
pub(super) struct Column {
    /// The column's name, with the unit.
    pub head: &'static str,
    /// Digits behind the point.
    pub digits: usize,
    pub of: fn(&Report) -> Option<f64>,
}

/// A bar: a measured value and its bound.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub what: String,
    pub demand: String,
    pub value: Option<f64>,
    pub met: Option<bool>,
}

impl Bar {
    /// At most `bound`.
    pub fn most(what: impl Into<String>, bound: f64, value: Option<f64>) -> Self {
        Bar { what: what.into(), demand: format!("<= {bound}"), value, met: value.map(|v| v <= bound) }
    }

    /// At least `bound`.
    pub fn least(what: impl Into<String>, bound: f64, value: Option<f64>) -> Self {
        Bar { what: what.into(), demand: format!(">= {bound}"), value, met: value.map(|v| v >= bound) }
    }

    /// Less than `bound`.
    pub fn below(what: impl Into<String>, bound: f64, value: Option<f64>) -> Self {
        Bar { what: what.into(), demand: format!("< {bound}"), value, met: value.map(|v| v < bound) }
    }

    /// More than `bound`.
    pub fn above(what: impl Into<String>, bound: f64, value: Option<f64>) -> Self {
        Bar { what: what.into(), demand: format!("> {bound}"), value, met: value.map(|v| v > bound) }
    }
}

/// Prints bars as a table.
pub(super) fn bars(bars: &[Bar]) {
    let wide = bars.iter().map(|b| b.what.chars().count()).max().unwrap_or(0).max(32);
    println!("\n{:<wide$} {:>8} {:>10}", "bar", "demand", "measured");
    for bar in bars {
        let value = bar.value.map_or_else(|| "-".into(), |v| format!("{v:.3}"));
        let met = match bar.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        println!("{:<wide$} {:>8} {value:>10} {met}", bar.what, bar.demand);
    }
}

/// The findings of a bench.
pub(super) struct Outcome<'a> {
    /// The subject of the run, in a line.
    pub title: String,
    /// The columns; the first is shown with its extremes.
    pub columns: &'a [Column],
    pub series: &'a [Series],
    /// Lines below the table.
    pub notes: Vec<String>,
    pub bars: Vec<Bar>,
}

impl Outcome<'_> {
    /// Prints the outcome.
    pub fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            println!("{}", serde_json::to_string_pretty(&self.json())?);
        } else {
            self.table();
        }
        Ok(())
    }

    fn table(&self) {
        println!("{}; medians [least to most]\n", self.title);
        let wide = self.series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
        let width = |i: usize, c: &Column| if i == 0 { 32 } else { c.head.chars().count().max(9) };
        print!("{:<wide$}", "case");
        for (i, c) in self.columns.iter().enumerate() {
            print!(" {:>1$}", c.head, width(i, c));
        }
        println!();
        for s in self.series {
            print!("{:<wide$}", s.name);
            if let Some(why) = &s.failed {
                println!(" {}", why.lines().next().unwrap_or_default());
                continue;
            }
            for (i, c) in self.columns.iter().enumerate() {
                print!(" {:>1$}", cell(s.spread(c.of), c.digits, i == 0), width(i, c));
            }
            println!();
        }
        if !self.notes.is_empty() {
            println!("\n{}", self.notes.join("\n"));
        }
        bars(&self.bars);
    }

    fn json(&self) -> Value {
        let case = |s: &Series| {
            let values: Map<String, Value> =
                self.columns.iter().map(|c| (c.head.to_owned(), json!(s.spread(c.of)))).collect();
            json!({ "case": s.name, "failed": s.failed, "runs": s.reports.len(), "values": values })
        };
        let cases: Vec<Value> = self.series.iter().map(case).collect();
        json!({ "title": self.title, "cases": cases, "notes": self.notes, "bars": self.bars })
    }
}

fn cell(spread: Option<Spread>, digits: usize, extremes: bool) -> String {
    match spread {
        None => "-".into(),
        Some(s) if extremes => {
            format!("{:.digits$} [{:.digits$} to {:.digits$}]", s.median, s.min, s.max)
        }
        Some(s) => format!("{:.digits$}", s.median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_at_their_bounds() {
        let met = |b: Bar| b.met;
        assert_eq!(met(Bar::most("", 1.0, Some(1.0))), Some(true));
        assert_eq!(met(Bar::below("", 1.0, Some(1.0))), Some(false));
        assert_eq!(met(Bar::least("", 0.97, Some(0.969))), Some(false));
        assert_eq!(met(Bar::above("", 1.0, Some(1.0))), Some(false));
        assert_eq!(met(Bar::above("", 1.0, None)), None);
        assert_eq!(Bar::least("", 0.97, None).demand, ">= 0.97");
    }
}
