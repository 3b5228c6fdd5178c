//! Each comparison that an experiment declares: figures that pass it, and figures that do not.

use super::comparison::Verdict::{self, No, Partly, Yes};
use super::outcome::{Case, Counted, Position};
use super::{ALL, Experiment, Plan};
use std::collections::BTreeSet;

/// One way that an experiment may go: of a comparison, figures by position, and the verdict.
struct Way {
    comparison: &'static str,
    /// Position, the counter or (empty) the metric, the figure.
    figures: &'static [(&'static str, &'static str, f64)],
    verdict: Verdict,
}

const fn way(
    comparison: &'static str,
    figures: &'static [(&'static str, &'static str, f64)],
    verdict: Verdict,
) -> Way {
    Way { comparison, figures, verdict }
}

const SPLIT: &str = "bios split by others";
const KIB: &str = "KiB of a data bio";
const PIECES: &str = "pieces of a file";
const DIP: &str = "least row of files/s by its median";

const M1: &[Way] = &[
    way("locked / submit_locked", &[("locked", "", 4.244), ("submit_locked", "", 3.822)], Yes),
    way("locked / submit_locked", &[("locked", "", 3.80), ("submit_locked", "", 3.822)], No),
    way("locked / submit_locked", &[("locked", "", 9.0), ("submit_locked", "", 3.822)], Partly),
    way("bios split with locked", &[("locked", SPLIT, 20.0)], Yes),
    way("bios split with locked", &[("locked", SPLIT, 0.0)], No),
    way("bios split with submit_locked", &[("submit_locked", SPLIT, 0.0)], Yes),
    way("bios split with submit_locked", &[("submit_locked", SPLIT, 1.0)], No),
    way("KiB of a bio, submit_locked", &[("submit_locked", KIB, 524.0)], Yes),
    way("KiB of a bio, submit_locked", &[("submit_locked", KIB, 300.0)], No),
    way("extent / submit_locked", &[("extent", "", 3.0), ("submit_locked", "", 3.8)], Yes),
    way("extent / submit_locked", &[("extent", "", 4.0), ("submit_locked", "", 3.8)], No),
    way("extent / locked", &[("extent", "", 3.0), ("locked", "", 4.2)], Yes),
    way("extent / locked", &[("extent", "", 4.3), ("locked", "", 4.2)], No),
    way("pieces, extent / submit_locked", &[("extent", PIECES, 1.0), ("submit_locked", PIECES, 1.0)], Yes),
    way("pieces, extent / submit_locked", &[("extent", PIECES, 2.0), ("submit_locked", PIECES, 1.0)], No),
];

const M3: &[Way] = &[
    way("flusher / caller", &[("flusher", "", 52.4), ("caller", "", 6.9)], Yes),
    way("flusher / caller", &[("flusher", "", 10.0), ("caller", "", 6.9)], Partly),
    way("flusher / caller", &[("flusher", "", 52.4), ("caller", "", 2.0)], Partly),
    way("flusher / caller", &[("flusher", "", 6.8), ("caller", "", 6.9)], No),
    way("least/median files/s, flusher", &[("flusher", DIP, 0.035)], Yes),
    way("least/median files/s, flusher", &[("flusher", DIP, 0.5)], No),
    way("least/median files/s, caller", &[("caller", DIP, 0.9)], Yes),
    way("least/median files/s, caller", &[("caller", DIP, 0.3)], No),
    way("16 syncs / one, epoch", &[("epoch", "", 1.0)], Yes),
];

const M5: &[Way] = &[
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 68.0), ("checkpoint_merge", "", 48.0)],
        Yes,
    ),
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 68.0), ("checkpoint_merge", "", 6.0)],
        Partly,
    ),
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 48.0), ("checkpoint_merge", "", 68.0)],
        No,
    ),
];

/// Three rounds around a value, which differ.
fn rounds(value: f64) -> Vec<Option<f64>> {
    [0.999, 1.0, 1.001].map(|noise| Some(value * noise)).to_vec()
}

/// Positions with these figures alone.
fn positions(of: &[&str], figures: &[(&str, &str, f64)]) -> Vec<Position> {
    let position = |name: &&str| {
        let mut p = Position { name: (*name).into(), ..Position::default() };
        for (_, what, value) in
            figures.iter().filter(|f| p.name == f.0 || p.name.ends_with(&format!("={}", f.0)))
        {
            match *what {
                "" => p.values = rounds(*value),
                counter => p.counters.extend(Counted::of(counter, rounds(*value))),
            }
        }
        p
    };
    of.iter().map(position).collect()
}

/// Everything that an experiment compares, when its settings have these figures; `times` those of the third.
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
    let of = [M1, M3, M5];
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

/// Runs the settings of these names as a first look does, `runs` times each, and wants each of the comparisons to be good.
fn shows(experiment: &str, runs: u32, settings: &[&str], comparisons: &[&str]) {
    println!("{experiment}: seed 1");
    let e = Experiment::named(experiment).unwrap();
    let plan = Plan { quick: true, seed: 1, runs, ..Plan::default() };
    let nobody = |_: &str| {};
    let chosen = (e.settings)(true).into_iter().filter(|s| settings.contains(&&*s.name));
    let cases: Vec<Case> = chosen.map(|s| s.measure(&plan, (e.name, 1), &nobody).unwrap()).collect();
    assert_eq!(cases.len(), settings.len());
    for name in comparisons {
        let found = cases.iter().flat_map(|c| &c.comparisons).find(|c| c.name == *name).unwrap();
        assert_eq!(found.reproduces, Yes, "{name}: {}", found.why);
    }
}

#[test]
fn a_flusher_that_waits_costs_what_was_published() {
    // The dip is a ratio of two rows of one run: of two runs its interval says nothing.
    shows(
        "m3",
        5,
        &["one sync beside fs_mark", "as many files as go"],
        &["flusher / caller", "least/median files/s, flusher", "least/median files/s, caller"],
    );
}

#[test]
fn checkpoints_that_are_merged_save_what_was_published() {
    shows("m5", 2, &["groups of weight 100 and 20"], &["without / with checkpoint_merge"]);
}
