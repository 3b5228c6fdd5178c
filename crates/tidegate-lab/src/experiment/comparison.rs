//! A comparison of one of our figures with the published one, or with a bound that we set.

use super::interval::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Our ratio may differ from the published one by this factor in either direction.
pub const FACTOR: f64 = 2.0;

/// The reason when there is no figure.
const NOT_MEASURED: &str = "not measured";

/// The meaning of the verdicts, as reports print it.
pub const RULES: &str = "A published ratio reproduces: yes, when it lies within a factor of 2 of ours, to either \
    side, and all of our 95 % interval is on its side of 1; partly, when all of our interval is on its side of 1, \
    but ours is larger or smaller by more than that factor; no, when our interval reaches 1 or lies on its other \
    side, or when there is none, as of a single run. A bound of ours holds: yes, when all of our interval keeps it; \
    partly, when ours does and an end of the interval does not; else no. Ours is the mean over the rounds \
    (of ratios the geometric one, each of two runs of one round), with Student's 95 % interval. A bound of each of \
    several figures of one run holds when the worst of them keeps it: ours is that one, between the least and the \
    greatest. The kernel's own ratio is shown beside ours, and nothing is demanded of it, nor of a device that was \
    chosen instead of an experiment's own.";

/// The rule that a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A published ratio, with the factor in both directions.
    Published(f64),
    /// A published ratio that another system is shown beside, or a bound or ratio for another device: there
    /// is no demand.
    Shown(f64),
    /// A lower bound that we set.
    AtLeast(f64),
    /// An upper bound that we set.
    AtMost(f64),
}

/// Whether a figure reproduces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // `RULES` explains them
pub enum Verdict {
    Yes,
    Partly,
    #[default]
    No,
    /// There is no demand.
    Shown,
}

/// One figure, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Its name, such as `flusher / caller`.
    pub name: String,
    /// The rule for it.
    pub rule: Rule,
    /// Whether it is a ratio of two values of one kind.
    pub is_ratio: bool,
    /// The published figure for it, if there is one.
    pub published: Option<f64>,
    /// Ours, if it was measured.
    pub ours: Option<f64>,
    /// Lower end of its interval, if there is one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The verdict.
    pub reproduces: Verdict,
    /// The reason if the verdict is not yes; empty if it is.
    pub why: String,
    /// Whether the reason was known before the runs.
    #[serde(default)]
    pub known: bool,
}

/// The known reasons why our ratio may differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Because {
    /// The reason why ours may be larger.
    pub larger: &'static str,
    /// The reason why ours may be smaller.
    pub smaller: &'static str,
}

impl Comparison {
    /// Compares a ratio by rounds with the published one.
    pub(crate) fn reproduces(name: &str, published: f64, rounds: &[f64], because: Because) -> Self {
        Self::judged(name, Rule::Published(published), true, rounds, because)
    }

    /// Shows a ratio by rounds that is not one of our figures.
    pub(crate) fn shown(name: &str, published: f64, rounds: &[f64]) -> Self {
        Self::judged(name, Rule::Shown(published), true, rounds, Because::default())
    }

    /// Compares a ratio by rounds with a bound.
    pub(crate) fn ratio(name: &str, rule: Rule, rounds: &[f64]) -> Self {
        Self::judged(name, rule, true, rounds, Because::default())
    }

    /// Compares another figure by rounds with a bound.
    pub(crate) fn figure(name: &str, rule: Rule, rounds: &[f64]) -> Self {
        Self::judged(name, rule, false, rounds, Because::default())
    }

    /// Compares several figures of one run with a bound: ours is the worst of them, and the interval is from
    /// the least to the greatest.
    pub(crate) fn each(name: &str, rule: Rule, of_one_run: &[f64]) -> Self {
        let (least, most) =
            of_one_run.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let (low, high) = (!of_one_run.is_empty()).then_some((least, most)).unzip();
        let ours = if matches!(rule, Rule::AtMost(_)) { high } else { low };
        let missing = of_one_run.iter().filter(|v| !rule.holds(**v)).count();
        let (reproduces, why) = match (ours, missing) {
            (None, _) => (Verdict::No, NOT_MEASURED.into()),
            (Some(_), 0) => (Verdict::Yes, String::new()),
            (Some(_), n) => (Verdict::No, format!("of {} figures {n} are not {rule}", of_one_run.len())),
        };
        Comparison {
            name: name.into(),
            rule,
            is_ratio: false,
            published: None,
            ours,
            low,
            high,
            reproduces,
            why,
            known: false,
        }
    }

    /// Adds the published value of the figure beside the bound.
    pub(crate) fn beside(self, published: f64) -> Self {
        Comparison { published: Some(published), ..self }
    }

    /// Adds the known reason why the verdict is not yes, if the reason does not say it.
    pub(crate) fn since(self, known: &str) -> Self {
        let missed = self.ours.is_some() && self.reproduces != Verdict::Yes && !self.why.contains(known);
        let why = if missed { format!("{}: {known}", self.why) } else { self.why };
        Comparison { why, known: missed || self.known, ..self }
    }

    /// Marks a figure as measured on another device than its rule is for: there is no demand.
    pub(crate) fn elsewhere(self) -> Self {
        let (rule, reproduces) = (Rule::Shown(self.rule.number()), Verdict::Shown);
        Comparison { rule, reproduces, published: None, why: String::new(), known: false, ..self }
    }

    fn judged(name: &str, rule: Rule, is_ratio: bool, rounds: &[f64], because: Because) -> Self {
        let ours = if is_ratio { Interval::of_ratios(rounds) } else { Interval::of(rounds) };
        let (reproduces, why) = rule.judge(ours, because);
        let published = match rule {
            Rule::Published(p) | Rule::Shown(p) => Some(p),
            _ => None,
        };
        let (low, high) = ours.and_then(|o| o.ends).unzip();
        let (name, ours) = (name.into(), ours.map(|o| o.mean));
        Comparison { name, rule, is_ratio, published, ours, low, high, reproduces, why, known: false }
    }
}

impl Rule {
    /// Finds the verdict. No other code does so; [`RULES`] says the rules in words.
    fn judge(self, ours: Option<Interval>, because: Because) -> (Verdict, String) {
        if matches!(self, Rule::Shown(_)) {
            return (Verdict::Shown, String::new());
        }
        let Some(ours) = ours else { return (Verdict::No, NOT_MEASURED.into()) };
        let Some((low, high)) = ours.ends else {
            return (Verdict::No, "one run of each position has no interval".into());
        };
        let reaches = |what: &str, bound: f64| {
            format!("our interval, {} to {}, {what} {bound}", plain(low), plain(high))
        };
        let bounded =
            |keeps: &dyn Fn(f64) -> bool, bound: f64| match (keeps(low) && keeps(high), keeps(ours.mean)) {
                (true, _) => (Verdict::Yes, String::new()),
                (false, true) => (Verdict::Partly, reaches("reaches past", bound)),
                (false, false) => (Verdict::No, format!("ours, {}, is not {self}", plain(ours.mean))),
            };
        match self {
            Rule::AtLeast(bound) | Rule::AtMost(bound) => bounded(&|v| self.holds(v), bound),
            Rule::Published(published) | Rule::Shown(published) => {
                let larger = ours.mean > published;
                let (side, known) =
                    if larger { ("larger", because.larger) } else { ("smaller", because.smaller) };
                let known = if known.is_empty() { "of something that is not known yet" } else { known };
                let differs = |why: &str| format!("{side} than published, because {why}");
                if !ours.excludes(1.0) {
                    return (Verdict::No, differs(&reaches("does not exclude", 1.0)));
                }
                if (ours.mean > 1.0) != (published > 1.0) {
                    return (Verdict::No, differs("here the other position is the better one"));
                }
                let apart = (ours.mean / published).max(published / ours.mean);
                match apart <= FACTOR {
                    true => (Verdict::Yes, String::new()),
                    false => (Verdict::Partly, differs(known)),
                }
            }
        }
    }

    /// Whether a figure keeps a bound; true for a rule without a bound.
    fn holds(self, v: f64) -> bool {
        match self {
            Rule::AtLeast(bound) => v >= bound,
            Rule::AtMost(bound) => v <= bound,
            Rule::Published(_) | Rule::Shown(_) => true,
        }
    }

    /// The bound or the published ratio.
    pub fn number(self) -> f64 {
        match self {
            Rule::Published(v) | Rule::Shown(v) | Rule::AtLeast(v) | Rule::AtMost(v) => v,
        }
    }
}

/// At most three decimals.
fn plain(v: f64) -> String {
    format!("{v:.3}").trim_end_matches('0').trim_end_matches('.').into()
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Published(_) => write!(f, "published ×/÷ {FACTOR}"),
            Rule::Shown(_) => f.write_str("nothing is demanded"),
            Rule::AtLeast(v) => write!(f, "≥ {}", plain(*v)),
            Rule::AtMost(v) => write!(f, "≤ {}", plain(*v)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Yes => "yes",
            Verdict::Partly => "partly",
            Verdict::No => "no",
            Verdict::Shown => "shown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BECAUSE: Because = Because { larger: "of A", smaller: "of B" };

    fn published(published: f64, rounds: &[f64]) -> (Verdict, String) {
        let c = Comparison::reproduces("a / b", published, rounds, BECAUSE);
        (c.reproduces, c.why)
    }

    #[test]
    fn a_published_ratio_has_two_sides() {
        for inside in [&[1.05, 1.06, 1.05], &[2.0, 2.01, 2.0], &[3.9, 3.95, 3.9]] {
            assert_eq!(published(2.0, inside), (Verdict::Yes, String::new()), "{inside:?}");
        }
        let (verdict, why) = published(2.0, &[4.1, 4.2, 4.15]);
        assert_eq!((verdict, &*why), (Verdict::Partly, "larger than published, because of A"));
        let (verdict, why) = published(4.0, &[1.9, 1.91, 1.9]);
        assert_eq!((verdict, &*why), (Verdict::Partly, "smaller than published, because of B"));
        let unknown = Comparison::reproduces("a / b", 9.0, &[1.9, 1.91], Because::default());
        assert!(unknown.why.contains("not known yet"), "{}", unknown.why);
    }

    #[test]
    fn what_is_not_shown_is_not_reproduced() {
        // The ratio is within the factor, but the runs could as well be equal.
        let (verdict, why) = published(1.4, &[0.9, 1.6, 1.3]);
        assert_eq!(verdict, Verdict::No);
        assert!(
            why.starts_with("smaller than published, because our interval") && why.contains("exclude 1"),
            "{why}"
        );
        // The ratio is within the factor, but the other position is better.
        let (verdict, why) = published(1.11, &[0.9, 0.91, 0.9]);
        assert_eq!((verdict, why.contains("other position")), (Verdict::No, true), "{why}");
        assert_eq!(published(1.4, &[1.4]).0, Verdict::No, "one run");
        assert_eq!(published(1.4, &[]), (Verdict::No, "not measured".into()));
        // Published ratios below 1 are judged alike.
        assert_eq!(published(0.5, &[0.6, 0.61, 0.6]).0, Verdict::Yes);
        assert_eq!(published(0.5, &[1.0, 1.0, 1.0]).0, Verdict::No);
    }

    #[test]
    fn a_bound_holds_for_all_of_the_interval() {
        let judge = |rule, rounds: &[f64]| Comparison::figure("a", rule, rounds).reproduces;
        assert_eq!(judge(Rule::AtMost(0.2), &[0.1, 0.11, 0.1]), Verdict::Yes);
        assert_eq!(judge(Rule::AtMost(0.2), &[0.1, 0.19, 0.1]), Verdict::Partly);
        assert_eq!(judge(Rule::AtMost(0.2), &[0.3, 0.31, 0.3]), Verdict::No);
        assert_eq!(judge(Rule::AtLeast(0.6), &[0.9, 0.91, 0.9]), Verdict::Yes);
        assert_eq!(judge(Rule::AtLeast(0.6), &[0.9, 0.61, 0.7]), Verdict::Partly);
        assert_eq!(judge(Rule::AtLeast(0.6), &[0.5, 0.51, 0.5]), Verdict::No);
        assert_eq!(judge(Rule::AtMost(0.0), &[0.0, 0.0, 0.0]), Verdict::Yes, "none is none");
        assert_eq!(judge(Rule::AtMost(0.0), &[0.0]), Verdict::No, "one run");
    }

    /// The worst figure counts, not the mean, however narrow its interval.
    #[test]
    fn a_bound_of_each_holds_for_the_worst() {
        let each = |rule, figures: &[f64]| {
            let c = Comparison::each("a", rule, figures);
            (c.reproduces, c.ours, c.why)
        };
        let ten = [99.9, 99.8, 100.0, 99.7, 99.9, 99.9, 100.0, 99.6, 99.9, 94.0];
        let mean = Comparison::figure("a", Rule::AtLeast(95.0), &ten);
        assert_eq!(mean.reproduces, Verdict::Yes);
        let why = "of 10 figures 1 are not ≥ 95".to_string();
        assert_eq!(each(Rule::AtLeast(95.0), &ten), (Verdict::No, Some(94.0), why));
        assert_eq!(each(Rule::AtLeast(95.0), &ten[..9]), (Verdict::Yes, Some(99.6), String::new()));
        assert_eq!(each(Rule::AtMost(99.0), &ten).1, Some(100.0));
        assert_eq!(each(Rule::AtLeast(95.0), &[f64::NAN]).0, Verdict::No);
        assert_eq!(each(Rule::AtLeast(95.0), &[]), (Verdict::No, None, "not measured".into()));
    }

    #[test]
    fn nothing_is_demanded_of_another_device() {
        let missed = Comparison::ratio("a / b", Rule::AtLeast(3.0), &[2.0, 2.1]).beside(5.0).since("of A");
        assert_eq!((missed.reproduces, missed.known), (Verdict::No, true));
        assert!(
            !Comparison::ratio("a / b", Rule::AtLeast(3.0), &[4.0, 4.1]).since("of A").known,
            "it is kept"
        );
        let shown = missed.clone().elsewhere();
        assert_eq!(
            (shown.reproduces, &*shown.why, shown.known, shown.published),
            (Verdict::Shown, "", false, None)
        );
        assert_eq!((shown.ours, shown.low), (missed.ours, missed.low));
    }

    #[test]
    fn programs_read_it() {
        let c = Comparison::reproduces("flusher / caller", 7.5, &[2.0, 2.1, 2.0], BECAUSE);
        let json = serde_json::to_value(&c).unwrap();
        assert_eq!((&json["published"], &json["reproduces"]), (&7.5.into(), &"partly".into()));
        let ours = json["ours"].as_f64().unwrap();
        assert!(json["low"].as_f64().unwrap() < ours && ours < json["high"].as_f64().unwrap());
        assert_eq!(serde_json::from_value::<Comparison>(json).unwrap(), c);
    }
}
