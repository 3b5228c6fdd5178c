//! A short exploration of power cuts. `cargo xtask crash` does it at length.

use std::sync::Arc;
use tidegate_crash::base::{Bases, Shape};
use tidegate_crash::generate::{Profile, generate};
use tidegate_crash::model::Model;
use tidegate_crash::plan::Plan;
use tidegate_crash::state::Amount;
use tidegate_crash::{Failure, Limits, Progress, Settings, explore};
use tidegate_rt::rng::Rng;
use tidegate_testing::{ext4, oracle};

/// A failure in words, with what replays it.
fn text(f: &Failure) -> String {
    let steps = f.short.iter().flat_map(|s| &s.steps).map(|s| s.to_string());
    format!(
        "{}\ncargo xtask crash --replay {}\n{}\n{}",
        f.fault,
        f.seed,
        steps.collect::<Vec<_>>().join("\n"),
        f.short.as_ref().and_then(|s| s.state.clone()).unwrap_or_default()
    )
}

#[test]
fn a_few_hundred_power_cuts_break_no_promise() {
    let limits = Limits {
        seed: 1,
        states: 600,
        amount: Amount { boundaries: 10, prefixes: 20, subsets: 40 },
        shrink: 10,
        ..Limits::default()
    };
    let report = explore(&limits, &Settings::default(), &Arc::new(Progress::default()));
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    assert!(report.failures.is_empty(), "{}", report.failures.iter().map(text).collect::<String>());
    assert!(report.states >= 600 && report.runs >= 5 && report.epochs > 0);
}

/// Power cuts of ext4 volumes, which mke2fs makes.
#[test]
fn a_few_hundred_power_cuts_of_ext4_break_no_promise() {
    if ["mke2fs", "e2fsck"].into_iter().any(oracle::skip_or_fail) {
        return;
    }
    let scratch = ext4::scratch("crash").unwrap_or_else(|e| panic!("{e}"));
    let made = move |s: Shape, bytes| ext4::made_small(&scratch, bytes, s.block, s.features);
    let maker = Arc::new(move |s, bytes| made(s, bytes).map_err(|e| format!("{e:#}")));
    let settings = Settings { bases: Arc::new(Bases::ext4(maker)), ..Settings::default() };
    let limits = Limits {
        seed: 1,
        states: 400,
        amount: Amount { boundaries: 10, prefixes: 20, subsets: 40 },
        shrink: 10,
        ..Limits::default()
    };
    let report = explore(&limits, &settings, &Arc::new(Progress::default()));
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    let failed = report.failures.iter().map(|f| text(f).replacen("--replay", "--format ext4 --replay", 1));
    assert!(report.failures.is_empty(), "{}", failed.collect::<String>());
    assert!(report.states >= 400 && report.runs >= 3 && report.epochs > 0);
}

/// A setting of the environment that is a number.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Power cuts on zones: every write at a write pointer, and of each zone a beginning is left.
/// `TIDEGATE_CRASH_STATES` says how many states, `TIDEGATE_SEED` which run is the first.
#[test]
fn a_few_hundred_power_cuts_on_zones_break_no_promise() {
    let settings = Settings { bases: Arc::new(Bases::zoned()), ..Settings::default() };
    let states = told("TIDEGATE_CRASH_STATES").unwrap_or(400);
    let limits = Limits {
        seed: told("TIDEGATE_SEED").unwrap_or(1),
        states,
        amount: Amount { boundaries: 10, prefixes: 20, subsets: 40 },
        shrink: 10,
        crowds: 4,
        ..Limits::default()
    };
    let report = explore(&limits, &settings, &Arc::new(Progress::default()));
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    let failed = report.failures.iter().map(|f| text(f).replacen("--replay", "--format zoned --replay", 1));
    assert!(report.failures.is_empty(), "{}", failed.collect::<String>());
    assert!(report.states >= states && report.runs >= 3 && report.epochs > 0);
}

#[test]
fn a_seed_gives_one_run_and_every_part_of_it_is_a_run() {
    let run = |seed| generate(&mut Rng::new(seed), 40, Profile::Mixed, Model::default());
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    // Dropping operations leaves some that cannot be done; the model passes over them.
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

/// Each bug that is planted in the engine is found, from a seed that is soon there.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_caught() {
    use tidegate::planted::Planted;
    use tidegate::planted::PlantedBug::{EarlyReuse, MissingFlush, WrongDentryMark};
    let amount = Amount { boundaries: 10, prefixes: 30, subsets: 20 };
    for (bug, seed, states) in [(MissingFlush, 1, 100), (EarlyReuse, 17, 200), (WrongDentryMark, 1, 100)] {
        let settings = Settings { planted: Planted::new(bug).unwrap(), ..Settings::default() };
        let limits = Limits { seed, states, amount, workers: 1, failures: 1, shrink: 0, ..Limits::default() };
        let report = explore(&limits, &settings, &Arc::default()).unwrap_or_else(|e| panic!("{e}"));
        let found = report.failures.first();
        let found = found.unwrap_or_else(|| panic!("{bug:?}: not found in {} states", report.states));
        assert_ne!(found.fault.promise, "run", "{bug:?}: {}", found.fault);
        println!("{bug:?}: {} after {} states", found.fault.promise, found.after);
    }
}
