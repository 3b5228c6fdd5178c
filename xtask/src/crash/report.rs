//! The output of `cargo xtask crash`.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_crash::{Failure, Report};

fn per_minute(r: &Report) -> u64 {
    (r.states as f64 / (r.nanos as f64 / 60e9).max(1e-9)) as u64
}

/// Prints a report; `with` has the arguments that a replay needs besides the seed.
pub fn print(r: &Report, as_json: bool, with: &str) -> Result<()> {
    if as_json {
        return print_json(&to_json(r));
    }
    print_text(r, with);
    Ok(())
}

/// Prints the failures, then the counters.
pub fn print_text(r: &Report, with: &str) {
    r.failures.iter().for_each(|f| print_failure(f, with));
    println!(
        "{} runs ({} ended full), {} operations, {} epochs, {} states ({} a minute), {} recoveries cut, {} fsck samples, {} violations",
        r.runs,
        r.full,
        r.operations,
        r.epochs,
        r.states,
        per_minute(r),
        r.recoveries,
        r.references,
        r.failures.len()
    );
}

fn id(f: &Failure) -> String {
    f.state.map_or(f.seed.to_string(), |n| format!("{}:{n}", f.seed))
}

fn keep(f: &Failure) -> String {
    let serials = f.short.iter().flat_map(|s| &s.steps).map(|s| s.serial.to_string());
    serials.collect::<Vec<_>>().join(",")
}

/// Prints a failure; `with` has the arguments that a replay needs besides the seed.
pub fn print_failure(f: &Failure, with: &str) {
    println!("{}", f.fault);
    println!("  replay: cargo xtask crash --replay {}{with}", id(f));
    if let Some(cut) = &f.cut {
        println!("  {}", cut.replace('\n', "\n  "));
    }
    if let Some(s) = &f.short {
        println!("  made short: {}", s.fault);
        println!("  replay: cargo xtask crash --replay {}{with} --keep {}", f.seed, keep(f));
        s.steps.iter().for_each(|s| println!("    {s}"));
        if let Some(state) = &s.state {
            println!("    {}", state.replace('\n', "\n    "));
        }
    }
    println!();
}

/// A failure as JSON.
pub fn failure(f: &Failure) -> Value {
    let short = f.short.as_ref().map(|s| {
        let steps: Vec<_> = s.steps.iter().map(|s| s.to_string()).collect();
        json!({ "promise": s.fault.promise, "text": s.fault.text, "state": s.state, "steps": steps })
    });
    json!({
        "seed": f.seed, "state": f.state, "replay": id(f), "promise": f.fault.promise,
        "text": f.fault.text, "cut": f.cut, "after": f.after, "short": short, "keep": keep(f),
    })
}

/// A report as JSON.
pub fn to_json(r: &Report) -> Value {
    json!({
        "runs": r.runs, "full": r.full, "operations": r.operations, "epochs": r.epochs, "states": r.states,
        "states_per_minute": per_minute(r), "recoveries": r.recoveries, "fsck_samples": r.references,
        "seconds": r.nanos as f64 / 1e9,
        "violations": r.failures.iter().map(failure).collect::<Vec<_>>(),
    })
}

/// Prints a value.
pub fn print_json(v: &Value) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(v)?);
    Ok(())
}
