//! Cases run in interleaved rounds, and the results of each.

use anyhow::Result;

use super::measure::Spread;
use super::workload::Report;

type Run<'a> = Box<dyn Fn() -> Result<Report> + 'a>;

/// Something to measure.
pub(super) struct Case<'a> {
    name: String,
    /// The measurement, or why it cannot be run here.
    run: Result<Run<'a>, String>,
}

impl<'a> Case<'a> {
    pub fn new(name: impl Into<String>, run: impl Fn() -> Result<Report> + 'a) -> Self {
        Case { name: name.into(), run: Ok(Box::new(run)) }
    }

    /// Skips the case if there is a reason.
    pub fn unless(self, reason: Option<&str>) -> Self {
        match reason {
            Some(why) => Case { run: Err(format!("skipped: {why}")), ..self },
            None => self,
        }
    }
}

/// The reports of a case.
#[derive(Debug)]
pub(super) struct Series {
    pub name: String,
    pub reports: Vec<Report>,
    /// The reason why there are no more reports.
    pub failed: Option<String>,
}

impl Series {
    /// The spread of a value over all reports; `None` unless every run succeeded.
    pub fn spread(&self, of: impl Fn(&Report) -> Option<f64>) -> Option<Spread> {
        if self.failed.is_some() {
            return None;
        }
        Spread::of(self.reports.iter().filter_map(of))
    }
}

/// Runs each case once in every round, in turn. A failed case is not run again.
pub(super) fn rounds(runs: u32, cases: &[Case<'_>]) -> Vec<Series> {
    let start = |c: &Case<'_>| Series {
        name: c.name.clone(),
        reports: Vec::new(),
        failed: c.run.as_ref().err().cloned(),
    };
    let mut all: Vec<Series> = cases.iter().map(start).collect();
    for s in all.iter() {
        if let Some(why) = &s.failed {
            eprintln!("{}: {why}", s.name);
        }
    }
    let runs = runs.max(1);
    for round in 1..=runs {
        // Each round begins with another case, so that no case always follows the same one.
        let first = (round as usize - 1) % cases.len().max(1);
        let order = (first..cases.len()).chain(0..first);
        for at in order {
            let (Some(series), Some(case)) = (all.get_mut(at), cases.get(at)) else { continue };
            let (None, Ok(run)) = (&series.failed, &case.run) else { continue };
            match run() {
                Ok(report) => {
                    eprintln!("{round}/{runs} {}: {:.3} s", series.name, report.seconds);
                    series.reports.push(report);
                }
                Err(e) => {
                    eprintln!("{round}/{runs} {}: failed: {e:#}", series.name);
                    series.failed = Some(format!("failed: {e:#}"));
                }
            }
        }
    }
    all
}

/// The series of that name.
pub(super) fn named<'a>(all: &'a [Series], name: &str) -> Option<&'a Series> {
    all.iter().find(|s| s.name == name)
}

/// The median of one series divided by that of another.
pub(super) fn ratio(
    a: Option<&Series>,
    b: Option<&Series>,
    of: impl Fn(&Report) -> Option<f64>,
) -> Option<f64> {
    let (a, b) = (a?.spread(&of)?.median, b?.spread(&of)?.median);
    (b > 0.0).then(|| a / b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn rounds_interleave_and_failures_stay() {
        let n = Cell::new(0);
        let run = || {
            n.set(n.get() + 1);
            Ok(Report { seconds: f64::from(n.get()), ..Report::default() })
        };
        let cases = [
            Case::new("a", run),
            Case::new("b", || anyhow::bail!("broken")),
            Case::new("c", run).unless(Some("not root")),
            Case::new("d", run),
        ];
        let all = rounds(3, &cases);
        let seconds = |r: &Report| Some(r.seconds);
        let median = |s: &str| named(&all, s).and_then(|s| s.spread(seconds)).map(|s| s.median);
        assert_eq!((median("a"), median("d")), (Some(4.0), Some(3.0)));
        assert_eq!((median("b"), median("c")), (None, None));
        assert_eq!(named(&all, "b").unwrap().failed.as_deref(), Some("failed: broken"));
        assert_eq!(named(&all, "c").unwrap().failed.as_deref(), Some("skipped: not root"));
        assert_eq!(ratio(named(&all, "a"), named(&all, "d"), seconds), Some(4.0 / 3.0));
        assert_eq!(ratio(named(&all, "a"), named(&all, "b"), seconds), None);
    }
}
