//! A short exploration of power cuts. `cargo xtask crash` does a long one.

use std::path::Path;
use std::sync::Arc;
use tidegate_block::Overlay;
use tidegate_crash::base::{Bases, Shape};
use tidegate_crash::generate::{Profile, generate};
use tidegate_crash::model::Model;
use tidegate_crash::plan::Plan;
use tidegate_crash::state::Amount;
use tidegate_crash::{Failure, Limits, Progress, Settings, explore};
use tidegate_rt::{clock, rng::Rng};
use tidegate_testing::overlay::with_image;
use tidegate_testing::{ext4, golden, oracle};

/// One run in this many is done by several threads at once.
const CROWDS: u64 = 4;

/// Describes a failure and how to replay it.
fn text(format: &str, f: &Failure) -> String {
    let steps = f.short.iter().flat_map(|s| &s.steps).map(|s| s.to_string());
    format!(
        "{}\ncargo xtask crash --format {format} --crowds {CROWDS} --replay {}\n{}\n{}\n",
        f.fault,
        f.seed,
        steps.collect::<Vec<_>>().join("\n"),
        f.short.as_ref().and_then(|s| s.state.clone()).unwrap_or_default()
    )
}

/// A number from the environment.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Explores this many states, or as many as `TIDEGATE_CRASH_STATES` says. `TIDEGATE_SEED` gives the seed of
/// the first run; without it, the seed is random.
fn explored(format: &str, bases: Bases, states: u64, fsck: fn(&Path) -> anyhow::Result<()>) {
    let dir = ext4::scratch("judged").unwrap_or_else(|e| panic!("{e}"));
    let judge = move |d: &Overlay| with_image(&dir, d, fsck).map_err(|e| format!("{e:#}"));
    let settings =
        Settings { bases: Arc::new(bases), reference: Some(Arc::new(judge)), ..Settings::default() };
    let states = told("TIDEGATE_CRASH_STATES").unwrap_or(states);
    // The seed is small enough to be typed.
    let seed = told("TIDEGATE_SEED").unwrap_or_else(|| clock::entropy() % 1_000_000_000);
    println!("TIDEGATE_SEED={seed}");
    let limits = Limits {
        seed,
        states,
        amount: Amount { boundaries: 10, prefixes: 20, subsets: 40 },
        shrink: 10,
        crowds: CROWDS,
        reference: 20,
        ..Limits::default()
    };
    let report = explore(&limits, &settings, &Arc::new(Progress::default()));
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    let failed: String = report.failures.iter().map(|f| text(format, f)).collect();
    assert!(report.failures.is_empty(), "TIDEGATE_SEED={seed}\n{failed}");
    assert!(report.states >= states && report.runs >= 3 && report.epochs > 0 && report.references > 0);
}

#[test]
fn a_few_hundred_power_cuts_break_no_promise() {
    if oracle::skip_or_fail("fsck.f2fs") {
        return;
    }
    explored("f2fs", Bases::default(), 600, golden::fsck_f2fs);
}

/// Power cuts of ext4 volumes, which mke2fs makes.
#[test]
fn a_few_hundred_power_cuts_of_ext4_break_no_promise() {
    if ["mke2fs", "e2fsck"].into_iter().any(oracle::skip_or_fail) {
        return;
    }
    explored("ext4", ext4_bases(), 400, ext4::is_clean);
}

/// Volumes that mke2fs makes.
fn ext4_bases() -> Bases {
    let scratch = ext4::scratch("crash").unwrap_or_else(|e| panic!("{e}"));
    let made = move |s: Shape, bytes| ext4::made_small(&scratch, bytes, s.block, s.how);
    Bases::ext4(Arc::new(move |s, bytes| made(s, bytes).map_err(|e| format!("{e:#}"))))
}

/// Power cuts on zones: every write is at a write pointer, and of each zone a beginning is left.
#[test]
fn a_few_hundred_power_cuts_on_zones_break_no_promise() {
    if oracle::skip_or_fail("fsck.f2fs") {
        return;
    }
    explored("zoned", Bases::zoned(), 400, golden::fsck_f2fs);
}

#[test]
fn a_seed_gives_one_run_and_every_part_of_it_is_a_run() {
    let run = |seed| generate(&mut Rng::new(seed), 40, Profile::Mixed, Model::default());
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    // After operations are dropped, some others are impossible; the model skips those.
    let mut model = Model::default();
    run(5).iter().skip(1).step_by(2).for_each(|s| model.apply(s));
    assert_eq!(model.state, 20);
}

#[test]
fn seeds_reach_every_profile_and_the_same_run_writes_the_same() {
    use tidegate_crash::run::record;
    let settings = Settings::default();
    let mut seen = Vec::new();
    for seed in 1..60 {
        let plan = Plan::new(seed, &settings.bases).unwrap_or_else(|e| panic!("{e}"));
        if seen.contains(&plan.profile) || plan.manner.pressure {
            continue;
        }
        seen.push(plan.profile);
        let base = settings.bases.get(plan.base).unwrap_or_else(|e| panic!("{e}"));
        let tape = || {
            let run = record(base, &plan.steps, plan.manner, &settings).unwrap_or_else(|e| panic!("{e}"));
            let change = |c: &tidegate_crash::tape::Change| (c.block, c.count, c.submitted, c.completed);
            run.tape.changes.iter().map(change).collect::<Vec<_>>()
        };
        assert_eq!(tape(), tape(), "seed {seed}");
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

/// Explores volumes with a planted bug for at most this many states, until the bug is found.
#[cfg(any(debug_assertions, feature = "planted-bugs"))]
fn caught(bases: &Arc<Bases>, bug: tidegate::planted::PlantedBug, seed: u64, states: u64) {
    let planted = tidegate::planted::Planted::new(bug).unwrap();
    let settings = Settings { planted, bases: bases.clone(), ..Settings::default() };
    let amount = Amount { boundaries: 10, prefixes: 30, subsets: 20 };
    let limits = Limits { seed, states, amount, workers: 1, failures: 1, shrink: 0, ..Limits::default() };
    let report = explore(&limits, &settings, &Arc::default()).unwrap_or_else(|e| panic!("{e}"));
    let found = report.failures.first();
    let found = found.unwrap_or_else(|| panic!("{bug:?}: not found in {} states", report.states));
    assert_ne!(found.fault.promise, "run", "{bug:?}: {}", found.fault);
    println!("{bug:?}: {} after {} states of seed {}", found.fault.promise, found.after, found.seed);
}

/// Each planted bug is found, from a seed with which it is found soon.
#[cfg(any(debug_assertions, feature = "planted-bugs"))]
#[test]
fn planted_bugs_are_caught() {
    use tidegate::planted::PlantedBug::{EarlyReuse, MissingFlush, WrongDentryMark};
    let bases = Arc::default();
    for (bug, seed, states) in [(MissingFlush, 1, 100), (EarlyReuse, 17, 200), (WrongDentryMark, 1, 100)] {
        caught(&bases, bug, seed, states);
    }
}

#[cfg(any(debug_assertions, feature = "planted-bugs"))]
#[test]
fn planted_bugs_of_a_journal_are_caught() {
    use tidegate::planted::PlantedBug::{EarlyClean, EarlyReuse, EarlySize, MissingFlush, MissingRevoke};
    if ["mke2fs", "e2fsck"].into_iter().any(oracle::skip_or_fail) {
        return;
    }
    let bases = Arc::new(ext4_bases());
    let of_seeds =
        [(MissingFlush, 1), (EarlyReuse, 5), (MissingRevoke, 2028), (EarlySize, 6), (EarlyClean, 1)];
    for (bug, seed) in of_seeds {
        caught(&bases, bug, seed, 200);
    }
}
