//! Comparisons of measured runs that must reproduce.

use super::ways::*;
use crate::experiment::comparison::Verdict::{No, Yes};
use crate::experiment::outcome::Case;
use crate::experiment::setting::Setting;
use crate::experiment::{ALONE, Experiment, Plan};
use crate::workload::Spec;
use tidegate::observe::why::Cause;

/// Runs the settings of these names as a first look does, `runs` times each, after a change by `smaller`.
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
        assert_eq!(found.reproduces, Yes, "{found:?}");
    }
}

/// Panics unless each of these comparisons fails for the reason that is given with it: a figure that gets there must be
/// noticed, too.
fn known_to_miss(cases: &[Case], comparisons: &[&str]) {
    for name in comparisons {
        let found = cases.iter().flat_map(|c| &c.comparisons).find(|c| c.name == *name).unwrap();
        assert_eq!(found.reproduces, No, "{found:?}");
        assert!(found.known, "a known reason: {found:?}");
    }
}

/// Runs the settings unchanged, and requires each of the comparisons to reproduce.
fn shows(experiment: &str, runs: u32, settings: &[&str], comparisons: &[&str]) {
    good(&measured(experiment, runs, settings, |_| {}), comparisons);
}

/// There are fewer operations than in a first look, to keep the test short: one pass of the flusher over data
/// 30 s old.
#[test]
fn a_handle_over_a_congested_queue_costs_commits_what_was_published() {
    let fewer = |s: &mut Setting| {
        let Spec::Pgioperf(p) = &mut s.workload else { panic!("{:?}", s.workload) };
        p.operations = Some(27_000);
        s.positions = &["nomap_first=off", "nomap_first=on", THIRD];
    };
    let cases = measured("m2", 5, &["pgioperf on raid-bbwc"], fewer);
    good(
        &cases,
        &["off / on", "mean commit, on, s", "worst commit, on, s", "explained of each commit, off, %"],
    );
    // The other figures of these runs must be no worse.
    good(
        &cases,
        &[
            "fdatasync, pipelined / on",
            "write, pipelined / on",
            "fsync of data, pipelined / on",
            "p99 read, pipelined / on",
            "writes/s, on / pipelined",
            "reads/s, on / pipelined",
        ],
    );
    // The intervals of these are wide.
    for name in ["p99 write, pipelined / on", "p99 fdatasync, pipelined / on"] {
        let p99 = cases[0].comparisons.iter().find(|c| c.name == name).unwrap();
        assert!(p99.ours < Some(1.05) && p99.low < Some(1.0), "{p99:?}");
    }
    // There are too few commits for the interval of so high a percentile.
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

/// Compares everything that is printed except the head.
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

#[test]
fn a_flusher_that_waits_costs_what_was_published() {
    // The dip is a ratio of two rows of one run: with two runs its interval says nothing.
    shows(
        "m3",
        5,
        &["one sync beside fs_mark", "as many files as go"],
        &["flusher / caller", "least/median files/s, flusher", "least/median files/s, caller"],
    );
}

/// Callers share a pass.
#[test]
fn sixteen_syncs_with_epochs_take_as_long_as_one() {
    let epochs = |s: &mut Setting| s.positions = &["sync_wait=epoch"];
    let settings = ["one sync beside fs_mark", "4 syncs at once", "16 syncs at once"];
    let mut cases = measured("m3", 7, &settings, epochs);
    (Experiment::named("m3").unwrap().across)(&mut cases);
    good(&cases, &["16 syncs / one, epoch"]);
}

#[test]
fn checkpoints_that_are_merged_save_what_was_published() {
    shows(
        "m5",
        3,
        &["groups of weight 100 and 20"],
        &[
            "without / with checkpoint_merge",
            "ms of an fsync, each its own checkpoint, least",
            "ms of an fsync, each its own checkpoint, most",
            "ms of an fsync, merged, least",
            "ms of an fsync, merged, most",
        ],
    );
}

/// A checkpoint runs beside a full queue; there are fewer checkpoints than in a first look.
#[test]
fn a_checkpoint_waits_for_no_room_in_the_queue() {
    let fewer = |s: &mut Setting| {
        let Spec::CkptStorm(storm) = &mut s.workload else { panic!("{:?}", s.workload) };
        storm.groups[0].times = 8;
    };
    let cases = measured("m2", 5, &["checkpoints of F2FS on raid-bbwc"], fewer);
    good(&cases, &["get_request with locks, submit_locked, %", "get_request with locks, extent, %"]);
    // There are too few checkpoints for an interval beside 1, so the figure itself must be no worse.
    let whole = "checkpoint, submit_locked / extent";
    let whole = cases[0].comparisons.iter().find(|c| c.name == whole).unwrap();
    assert!(whole.ours > Some(0.97) && whole.high > Some(1.0), "{whole:?}");
}

#[test]
fn files_on_streams_of_their_own_gain_what_was_published() {
    shows(
        "m4",
        5,
        &["1 file", "2 files", "4 files", "9 files", "9 files, a lock for write-pages"],
        &[
            "spf / one log, MiB/s, 1 file",
            "spf / one log, MiB/s, 2 files",
            "spf / one log, MiB/s, 4 files",
            "spf / one log, MiB/s, 9 files",
            "srr / one log, MiB/s, 9 files",
            "one log / spf, mean time of an fsync, 9 files",
            "auto / one log, MiB/s, 1 file",
            "auto / one log, MiB/s, 2 files",
            "auto / one log, MiB/s, 4 files",
            "auto / one log, MiB/s, 9 files",
            "streams behind one lock / one log, MiB/s",
            "sent by file, a lock each / all sent, one lock, MiB/s",
            "waited for the lock of each stream, ms",
        ],
    );
}

/// Streams cost nothing where they gain nothing.
#[test]
fn streams_lose_nothing_with_one_file_and_without_fsync() {
    shows(
        "m4",
        3,
        &["1 file, 32 at once", "9 files, no fsync"],
        &[
            "spf / one log, MiB/s, 1 file, 32 at once",
            "auto / one log, MiB/s, 1 file, 32 at once",
            "spf / one log, MiB/s, 9 files, no fsync",
            "auto / one log, MiB/s, 9 files, no fsync",
        ],
    );
}

#[test]
fn files_on_zones_gain_what_was_published() {
    let cases = measured("m4", 3, &["9 files on zones", "4 files beside cleaning, on zones"], |_| {});
    good(
        &cases,
        &[
            "spf / one log, MiB/s, 9 files on zones",
            "one log / spf, mean time of an fsync, 9 files on zones",
            "auto / one log, MiB/s, 9 files on zones",
            "writes refused by a write pointer, warm_streams=1",
            "writes refused by a write pointer, spf",
            "writes refused by a write pointer, srr",
            "writes refused by a write pointer, auto",
            "spf / one log, MiB/s, beside cleaning",
            "auto / one log, MiB/s, beside cleaning",
        ],
    );
    known_to_miss(
        &cases,
        &[
            "spf / one log, MiB/s, 9 files on zones: of what we want",
            "spf / one log, MiB/s, beside cleaning: of what we want",
        ],
    );
}

/// Each split costs a bio, which is less than the published cost of all splits.
#[test]
fn writers_that_take_turns_split_bios_and_extents_take_no_turns() {
    let cases = measured("m1", 3, &["16 threads, files of 512 KiB"], |_| {});
    good(
        &cases,
        &[
            "bios split with locked",
            "bios split with submit_locked",
            "KiB of a bio, submit_locked",
            "extent / submit_locked",
            "extent / locked",
            "pieces, extent / submit_locked",
        ],
    );
    let saved = cases[0].comparisons.iter().find(|c| c.name == "locked / submit_locked").unwrap();
    assert_eq!(saved.reproduces, No, "{saved:?}");
    assert!(saved.why.contains("what is saved is one bio for each that was split"), "{saved:?}");
}
