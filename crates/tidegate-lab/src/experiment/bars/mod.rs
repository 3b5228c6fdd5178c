//! Each comparison that an experiment declares: figures that pass it, and figures that do not.

use super::comparison::Verdict::{self, No, Yes};
use super::outcome::{Case, Counted, Position};
use super::{ALL, Experiment};
use std::collections::BTreeSet;
use tidegate::observe::why::{Operation, Slow};

mod measured;
mod ways;

use ways::*;

/// Three rounds with different values around `value`.
fn rounds(value: f64) -> Vec<Option<f64>> {
    [0.999, 1.0, 1.001].map(|noise| Some(value * noise)).to_vec()
}

/// A slow commit, `percent` percent of whose time has a name.
fn commit(percent: f64) -> Slow {
    Slow {
        operation: Operation::Commit,
        ino: None,
        transaction: None,
        path: None,
        thread: String::new(),
        at_ns: 0,
        ns: 1,
        ran_ns: None,
        delayed_ns: None,
        asked_by: Vec::new(),
        named: percent / 100.0,
        parts: Vec::new(),
    }
}

/// Positions with only these figures.
fn positions(of: &[&str], figures: &[(&str, &str, f64)]) -> Vec<Position> {
    let position = |name: &&str| {
        let mut p = Position { name: (*name).into(), ..Position::default() };
        for (_, what, value) in
            figures.iter().filter(|f| p.name == f.0 || p.name.ends_with(&format!("={}", f.0)))
        {
            match *what {
                "" => p.values = rounds(*value),
                NAMED => p.slow_commits = rounds(*value).into_iter().flatten().map(commit).collect(),
                counter => p.counters.extend(Counted::of(counter, rounds(*value))),
            }
        }
        p
    };
    of.iter().map(position).collect()
}

/// All comparisons of an experiment whose settings have these figures; the third setting has `times` as much.
fn compared(e: &Experiment, figures: &[(&str, &str, f64)], times: f64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, s) in (e.settings)(true).iter().enumerate() {
        let figures: Vec<_> =
            figures.iter().map(|f| (f.0, f.1, if i == 2 { f.2 * times } else { f.2 })).collect();
        let positions = positions(s.positions, &figures);
        cases.push(Case { comparisons: (s.bars)(&positions), positions, ..Case::default() });
    }
    (e.across)(&mut cases);
    cases
}

#[track_caller]
fn verdict(e: &Experiment, comparison: &str, figures: &[(&str, &str, f64)], times: f64) -> (Verdict, String) {
    let cases = compared(e, figures, times);
    let found = cases.iter().flat_map(|c| &c.comparisons).find(|c| c.name == comparison);
    let found = found.unwrap_or_else(|| panic!("{}: nothing is called {comparison}", e.name));
    (found.reproduces, found.why.clone())
}

#[test]
fn each_comparison_can_pass_and_fail() {
    let of = [M1, M2, M3, M4, M5];
    assert_eq!(ALL.len(), of.len());
    for (e, ways) in ALL.into_iter().zip(of) {
        for w in ways {
            let (is, why) = verdict(e, w.comparison, w.figures, 1.0);
            assert_eq!(is, w.verdict, "{}: {}, {:?}: {why}", e.name, w.comparison, w.figures);
            assert_eq!(is == Yes, why.is_empty(), "a reason where it is not yes: {why}");
        }
        let cases = compared(e, &[], 1.0);
        let declared: BTreeSet<&str> = cases.iter().flat_map(|c| &c.comparisons).map(|c| &*c.name).collect();
        let tested: BTreeSet<&str> = ways.iter().map(|w| w.comparison).collect();
        assert_eq!(declared, tested, "{}: each comparison has its ways here", e.name);
        for c in cases.iter().flat_map(|c| &c.comparisons) {
            assert_eq!((c.reproduces, &*c.why), (No, "not measured"), "{}: {}", e.name, c.name);
        }
    }
}

#[test]
fn sixteen_syncs_are_held_against_one() {
    let e = Experiment::named("m3").unwrap();
    for (times, want) in [(1.1, Yes), (1.5, No)] {
        let (is, why) = verdict(e, "16 syncs / one, epoch", &[("epoch", "", 1.0)], times);
        assert_eq!(is, want, "{times}: {why}");
    }
}

/// If events were lost, the named share of commits is unknown.
#[test]
fn what_a_recording_lost_is_not_measured() {
    let mut p = positions(&["nomap_first=off"], &[("off", NAMED, 99.0)]).remove(0);
    let s = &(Experiment::named("m2").unwrap().settings)(true)[0];
    let explained = |p: &Position| {
        let all = (s.bars)(std::slice::from_ref(p));
        let found = all.into_iter().find(|c| c.name.starts_with("explained")).unwrap();
        (found.reproduces, found.why)
    };
    assert_eq!(explained(&p), (Yes, String::new()));
    p.lost_events = 1;
    assert_eq!(explained(&p), (No, "not measured, as the recording lost 1 events".into()));
    p.lost_events = 0;
    p.slow_commits[1].named = 0.94;
    assert_eq!(explained(&p), (No, "of 3 figures 1 are not ≥ 95".into()));
}
