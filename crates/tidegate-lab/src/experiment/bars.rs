//! Each comparison that an experiment declares: figures that pass it, and figures that do not.

use super::comparison::Verdict::{self, No, Partly, Yes};
use super::outcome::{Case, Counted, Position};
use super::setting::Setting;
use super::{ALL, ALONE, Experiment, Plan};
use crate::workload::Spec;
use std::collections::BTreeSet;
use tidegate::observe::why::{Cause, Operation, Slow};

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

const THIRD: &str = "nomap_first=pipelined,journal=pipelined";
const COMMIT_P99: &str = "p99 of a jbd2 commit, ms";
const NAMED: &str = "named";
const HELD: &str = "% of it with locks held that others want";
const WAIT: &str = "wait for cp_rwsem, ms";
const LOCK_ALL: &str = "wait for cp_rwsem, submit_locked / extent";

const M2: &[Way] = &[
    way("off / on", &[("off", "", 3.6), ("on", "", 0.03)], Yes),
    way("off / on", &[("off", "", 24.0), ("on", "", 9.4)], Partly),
    way("off / on", &[("off", "", 30.0), ("on", "", 0.03)], Partly),
    way("off / on", &[("off", "", 0.03), ("on", "", 0.03)], No),
    way("mean commit, on, s", &[("on", "", 0.03)], Yes),
    way("mean commit, on, s", &[("on", "", 0.11)], No),
    way("worst commit, on, s", &[("on", "worst jbd2 commit, ms", 51.0)], Yes),
    way("worst commit, on, s", &[("on", "worst jbd2 commit, ms", 700.0)], No),
    way("on / pipelined, p99 commit", &[("on", COMMIT_P99, 51.0), (THIRD, COMMIT_P99, 8.0)], Yes),
    way("on / pipelined, p99 commit", &[("on", COMMIT_P99, 51.0), (THIRD, COMMIT_P99, 18.0)], No),
    // The position in between is not the one that is held to it.
    way(
        "on / pipelined, p99 commit",
        &[("on", COMMIT_P99, 51.0), ("nomap_first=pipelined", COMMIT_P99, 1.0)],
        No,
    ),
    way("explained of each commit, off, %", &[("off", NAMED, 95.1)], Yes),
    way("explained of each commit, off, %", &[("off", NAMED, 95.05)], No),
    way(
        "fdatasync, pipelined / on",
        &[("on", "fdatasync of the log, ms", 1.0), (THIRD, "fdatasync of the log, ms", 1.04)],
        Yes,
    ),
    way(
        "fdatasync, pipelined / on",
        &[("on", "fdatasync of the log, ms", 1.0), (THIRD, "fdatasync of the log, ms", 1.06)],
        No,
    ),
    way("p99 fdatasync, pipelined / on", &[("on", "p99 of it, ms", 1.0), (THIRD, "p99 of it, ms", 1.0)], Yes),
    way("p99 fdatasync, pipelined / on", &[("on", "p99 of it, ms", 1.0), (THIRD, "p99 of it, ms", 1.2)], No),
    way("write, pipelined / on", &[("on", "write, ms", 1.0), (THIRD, "write, ms", 0.9)], Yes),
    way("write, pipelined / on", &[("on", "write, ms", 1.0), (THIRD, "write, ms", 1.1)], No),
    way(
        "p99 write, pipelined / on",
        &[("on", "p99 of a write, ms", 1.0), (THIRD, "p99 of a write, ms", 1.0)],
        Yes,
    ),
    way(
        "p99 write, pipelined / on",
        &[("on", "p99 of a write, ms", 1.0), (THIRD, "p99 of a write, ms", 1.1)],
        No,
    ),
    way(
        "fsync of data, pipelined / on",
        &[("on", "fsync of the data, ms", 1.0), (THIRD, "fsync of the data, ms", 1.0)],
        Yes,
    ),
    way(
        "fsync of data, pipelined / on",
        &[("on", "fsync of the data, ms", 1.0), (THIRD, "fsync of the data, ms", 1.1)],
        No,
    ),
    way(
        "p99 read, pipelined / on",
        &[("on", "p99 of a read, ms", 1.0), (THIRD, "p99 of a read, ms", 1.0)],
        Yes,
    ),
    way(
        "p99 read, pipelined / on",
        &[("on", "p99 of a read, ms", 1.0), (THIRD, "p99 of a read, ms", 1.1)],
        No,
    ),
    way("writes/s, on / pipelined", &[("on", "writes/s", 1.0), (THIRD, "writes/s", 2.0)], Yes),
    way("writes/s, on / pipelined", &[("on", "writes/s", 1.0), (THIRD, "writes/s", 0.9)], No),
    way("reads/s, on / pipelined", &[("on", "reads/s", 1.0), (THIRD, "reads/s", 0.98)], Yes),
    way("reads/s, on / pipelined", &[("on", "reads/s", 1.0), (THIRD, "reads/s", 0.9)], No),
    way("get_request with locks, submit_locked, %", &[("submit_locked", HELD, 97.0)], Yes),
    way("get_request with locks, submit_locked, %", &[("submit_locked", HELD, 40.0)], No),
    way("get_request with locks, extent, %", &[("extent", HELD, 0.0)], Yes),
    way("get_request with locks, extent, %", &[("extent", HELD, 0.1)], No),
    way(LOCK_ALL, &[("submit_locked", WAIT, 42.0), ("extent", WAIT, 0.01)], Yes),
    way(LOCK_ALL, &[("submit_locked", WAIT, 42.0), ("extent", WAIT, 20.0)], No),
    way("checkpoint, submit_locked / extent", &[("submit_locked", "", 0.37), ("extent", "", 0.3)], Yes),
    way("checkpoint, submit_locked / extent", &[("submit_locked", "", 0.3), ("extent", "", 0.37)], No),
    way(
        "create or unlink, submit_locked / extent",
        &[("submit_locked", "create or unlink, ms", 2.0), ("extent", "create or unlink, ms", 1.5)],
        Yes,
    ),
    way(
        "create or unlink, submit_locked / extent",
        &[("submit_locked", "create or unlink, ms", 1.5), ("extent", "create or unlink, ms", 2.0)],
        No,
    ),
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

const ONE_LOG: &str = "warm_streams=1";
const SPF: &str = "stream_policy=spf,warm_streams=9";
const SRR: &str = "stream_policy=srr,warm_streams=9";
const AUTO: &str = "stream_policy=auto,warm_streams=9";
const ALL_BEHIND_ONE: &str = "stream_flush=all,stream_policy=spf,warm_streams=9";
const LOCK_EACH: &str = "stream_flush=inode,stream_policy=spf,warm_streams=9";
const WAITED: &str = "waited for sbi->writepages, ms";
const P9999: &str = "p99.99 of a write, ms";
const FSYNC: &str = "mean time of an fsync, ms";

const M4: &[Way] = &[
    way("spf / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (SPF, "", 1.01)], Yes),
    way("spf / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (SPF, "", 1.05)], No),
    way("spf / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.5), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (SPF, "", 1.1)], No),
    way("spf / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.5), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 4 files", &[(ONE_LOG, "", 5.0), (SPF, "", 1.0)], Partly),
    way("spf / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.8), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (SPF, "", 1.0)], No),
    way("the same, of what we want", &[(ONE_LOG, "", 1.8), (SPF, "", 1.0)], Yes),
    way("the same, of what we want", &[(ONE_LOG, "", 1.7), (SPF, "", 1.0)], No),
    way("one log / spf, mean time of an fsync, 9 files", &[(ONE_LOG, FSYNC, 5.0), (SPF, FSYNC, 2.8)], Yes),
    way("one log / spf, mean time of an fsync, 9 files", &[(ONE_LOG, FSYNC, 2.0), (SPF, FSYNC, 2.8)], No),
    way("srr / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.4), (SRR, "", 1.0)], Yes),
    way("srr / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (SRR, "", 1.2)], No),
    way("spf / one log, p99.99 of a write, 9 files", &[(ONE_LOG, P9999, 3.1), (SPF, P9999, 1.0)], Yes),
    way("spf / one log, p99.99 of a write, 9 files", &[(ONE_LOG, P9999, 2.0), (SPF, P9999, 1.0)], No),
    way("auto / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / spf, MiB/s, 9 files", &[(SPF, "", 1.21), (AUTO, "", 1.0)], Yes),
    way("auto / spf, MiB/s, 9 files", &[(SPF, "", 1.19), (AUTO, "", 1.0)], No),
    way("streams behind one lock / one log, MiB/s", &[(ONE_LOG, "", 1.0), (ALL_BEHIND_ONE, "", 1.01)], Yes),
    way("streams behind one lock / one log, MiB/s", &[(ONE_LOG, "", 1.01), (ALL_BEHIND_ONE, "", 1.0)], No),
    way(
        "sent by file, a lock each / all sent, one lock, MiB/s",
        &[(ALL_BEHIND_ONE, "", 1.01), (LOCK_EACH, "", 1.0)],
        Yes,
    ),
    way(
        "sent by file, a lock each / all sent, one lock, MiB/s",
        &[(ALL_BEHIND_ONE, "", 1.0), (LOCK_EACH, "", 1.01)],
        No,
    ),
    way("waited for the lock of each stream, ms", &[(LOCK_EACH, WAITED, 0.0)], Yes),
    way("waited for the lock of each stream, ms", &[(LOCK_EACH, WAITED, 0.1)], No),
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

/// A slow commit of which so many percent are named.
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

/// Positions with these figures alone.
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

/// Runs the settings of these names as a first look does, `runs` times each, after `smaller` has changed them.
fn measured(experiment: &str, runs: u32, settings: &[&str], smaller: impl Fn(&mut Setting)) -> Vec<Case> {
    let _alone = ALONE.lock();
    println!("{experiment}: seed 1");
    let e = Experiment::named(experiment).unwrap();
    let plan = Plan { quick: true, seed: 1, runs, ..Plan::default() };
    let nobody = |_: &str| {};
    let mut chosen: Vec<Setting> =
        (e.settings)(true).into_iter().filter(|s| settings.contains(&&*s.name)).collect();
    chosen.iter_mut().for_each(smaller);
    let cases: Vec<Case> = chosen.iter().map(|s| s.measure(&plan, (e.name, 1), &nobody).unwrap()).collect();
    assert_eq!(cases.len(), settings.len());
    cases
}

/// Panics unless each of these comparisons reproduces.
fn good(cases: &[Case], comparisons: &[&str]) {
    for name in comparisons {
        let found = cases.iter().flat_map(|c| &c.comparisons).find(|c| c.name == *name).unwrap();
        assert_eq!(found.reproduces, Yes, "{name}: {}", found.why);
    }
}

/// Runs the settings unchanged, and wants each of the comparisons to reproduce.
fn shows(experiment: &str, runs: u32, settings: &[&str], comparisons: &[&str]) {
    good(&measured(experiment, runs, settings, |_| {}), comparisons);
}

/// Fewer operations than a first look has, for the sake of those who test: one pass of the flusher over what is 30 s old.
#[test]
fn a_handle_over_a_congested_queue_costs_commits_what_was_published() {
    let fewer = |s: &mut Setting| {
        let Spec::Pgioperf(p) = &mut s.workload else { panic!("{:?}", s.workload) };
        p.operations = Some(25_000);
        s.positions = &["nomap_first=off", "nomap_first=on", THIRD];
    };
    let cases = measured("m2", 3, &["pgioperf on raid-bbwc"], fewer);
    good(
        &cases,
        &["off / on", "mean commit, on, s", "worst commit, on, s", "explained of each commit, off, %"],
    );
    // Too few commits for the interval of so high a percentile.
    let p99 = cases[0].comparisons.iter().find(|c| c.name == "on / pipelined, p99 commit").unwrap();
    assert!(p99.ours > Some(3.0) && p99.low > Some(1.0), "{p99:?}");
    let off = &cases[0].positions[0];
    assert!(off.slow_commits.len() > 4 && off.lost_events == 0, "{:?}", off.slow_commits);
    let slowest = &off.slow_commits[0];
    let handle = slowest.parts.iter().flat_map(|p| &p.parts).find(|p| p.cause == Cause::Handle);
    let handle = handle.unwrap_or_else(|| panic!("{slowest:?}"));
    assert!(handle.what.contains("tg-flusher (write-back of inode"), "{handle:?}");
    assert!(handle.ns * 10 > slowest.ns * 9 && handle.parts[0].cause == Cause::Room, "{handle:?}");
}

/// As it is printed, but for the head.
#[test]
fn equal_seeds_give_equal_bytes() {
    let one_position = |s: &mut Setting| {
        let Spec::Pgioperf(p) = &mut s.workload else { panic!("{:?}", s.workload) };
        p.operations = Some(8000);
        s.positions = &s.positions[..1];
    };
    let bytes = || serde_json::to_string(&measured("m2", 1, &["pgioperf on hdd"], one_position)).unwrap();
    let (once, twice) = (bytes(), bytes());
    assert!(once.contains("slow_commits"), "{once}");
    assert!(once == twice, "two runs differ");
}

/// Of commits whose events were lost nobody knows how much has a name.
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
    assert_eq!(explained(&p), (No, "not measured".into()));
    p.lost_events = 0;
    p.slow_commits[1].named = 0.94;
    assert_eq!(explained(&p), (No, "of 3 figures 1 are not ≥ 95".into()));
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
    shows("m5", 3, &["groups of weight 100 and 20"], &["without / with checkpoint_merge"]);
}

/// A checkpoint beside a full queue: fewer of them than a first look has.
#[test]
fn a_checkpoint_waits_for_no_room_in_the_queue() {
    let fewer = |s: &mut Setting| {
        let Spec::CkptStorm(storm) = &mut s.workload else { panic!("{:?}", s.workload) };
        storm.groups[0].times = 8;
    };
    let cases = measured("m2", 3, &["checkpoints of F2FS on raid-bbwc"], fewer);
    let names = ["get_request with locks, submit_locked, %", "get_request with locks, extent, %", LOCK_ALL];
    good(&cases, &names);
}

#[test]
fn files_on_streams_of_their_own_gain_what_was_published() {
    shows(
        "m4",
        5,
        &["1 file", "4 files", "9 files", "9 files, a lock for write-pages"],
        &[
            "spf / one log, MiB/s, 1 file",
            "spf / one log, MiB/s, 4 files",
            "spf / one log, MiB/s, 9 files",
            "srr / one log, MiB/s, 9 files",
            "one log / spf, mean time of an fsync, 9 files",
            "auto / one log, MiB/s, 1 file",
            "auto / one log, MiB/s, 4 files",
            "auto / one log, MiB/s, 9 files",
            "streams behind one lock / one log, MiB/s",
            "sent by file, a lock each / all sent, one lock, MiB/s",
            "waited for the lock of each stream, ms",
        ],
    );
}
