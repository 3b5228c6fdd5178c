//! A short exploration of power cuts. `cargo xtask crash` does it at length.

use std::sync::Arc;
use tidegate::crash::generate::generate;
use tidegate::crash::model::Model;
use tidegate::crash::rng::Rng;
use tidegate::crash::state::Amount;
use tidegate::crash::{Failure, Limits, Progress, Settings, explore};

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

#[test]
fn a_seed_gives_one_run_and_every_part_of_it_is_a_run() {
    let run = |seed| generate(&mut Rng::new(seed), 40, seed == 6);
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    // Dropping operations leaves some that cannot be done; the model passes over them.
    let mut model = Model::default();
    run(5).iter().skip(1).step_by(2).for_each(|s| model.apply(s));
    assert_eq!(model.state, 20);
}
