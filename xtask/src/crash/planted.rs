//! The hunt for bugs that are planted in the engine.

use super::{CrashArgs, Format, exit, rebuilt, report, watched};
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use std::process::{Command, ExitCode};
use std::time::Instant;
use tidegate::planted::{Planted, PlantedBug};
use tidegate_crash::{Failure, Limits, Settings, replay};

/// States and seconds after which a bug counts as not found.
const STATES: u64 = 100_000;
const SECONDS: u64 = 240;

/// The bugs that the engine of a format can have.
pub fn of(format: Format) -> &'static [PlantedBug] {
    use PlantedBug::{EarlyClean, EarlyReuse, EarlySize, MissingFlush, MissingRevoke, WrongDentryMark};
    match format {
        Format::F2fs => &[MissingFlush, EarlyReuse, WrongDentryMark],
        // The bugs of F2FS are hunted on volumes without zones.
        Format::Zoned => &[],
        Format::Ext4 => &[MissingFlush, EarlyReuse, MissingRevoke, EarlySize, EarlyClean],
    }
}

/// The program that hunts, with its arguments.
pub fn hunted_apart(args: &CrashArgs) -> Result<Command> {
    eprintln!("building the engine with bugs to be found");
    let mut program = rebuilt(true);
    program.args(["crash", "--planted", "--format", args.format.name()]);
    program.args(["--seed", &args.seed.to_string(), "--shrink", &args.shrink.to_string()]);
    if let Some(n) = args.workers {
        program.args(["--workers", &n.to_string()]);
    }
    Ok(program)
}

/// Plants a bug in the engine that does the runs.
///
/// # Errors
/// This program is built without the planted bugs.
pub fn plant(settings: &mut Settings, bug: PlantedBug) -> Result<()> {
    settings.planted = Planted::new(bug).context("built without the planted bugs")?;
    Ok(())
}

/// The result of one hunt.
struct Hunt {
    bug: PlantedBug,
    states: u64,
    seconds: f64,
    found: Option<Failure>,
}

/// Hunts each bug of a format until it is found; `sound` has the settings of runs without a bug.
pub fn hunt_all(format: Format, limits: &Limits, sound: &Settings, as_json: bool) -> Result<ExitCode> {
    ensure!(!of(format).is_empty(), "no bugs are planted for {}; f2fs and ext4 have some", format.name());
    let hunts = of(format).iter().map(|bug| hunt(*bug, limits, sound, !as_json));
    let hunts = hunts.collect::<Result<Vec<_>>>()?;
    if as_json {
        let all = hunts.iter().map(|h| {
            json!({
                "bug": h.bug.name(), "states": h.states, "seconds": h.seconds,
                "found": h.found.as_ref().map(report::failure),
            })
        });
        report::print_json(&all.collect())?;
    } else {
        hunts.iter().for_each(print);
        table(&hunts);
    }
    Ok(exit(hunts.iter().all(|h| h.found.is_some())))
}

/// The first failure with a bug that does not occur without the bug.
fn hunt(bug: PlantedBug, limits: &Limits, sound: &Settings, bar: bool) -> Result<Hunt> {
    let (start, mut before) = (Instant::now(), 0.0);
    let mut with = sound.clone();
    plant(&mut with, bug)?;
    let mut limits = Limits { failures: 1, reference: 0, crowds: 0, ..limits.clone() };
    let mut states = 0;
    while states < STATES && start.elapsed().as_secs() < SECONDS {
        limits.states = STATES - states;
        limits.nanos = (SECONDS - start.elapsed().as_secs()) * 1_000_000_000;
        let mut report = watched(&limits, &with, bar).map_err(|e| anyhow!("{e}"))?;
        let Some(f) = report.failures.pop() else {
            states += report.states;
            break;
        };
        states += f.after;
        let seconds = before + f.nanos as f64 / 1e9;
        let same = Limits { seed: f.seed, states: u64::MAX, nanos: u64::MAX, shrink: 0, ..limits.clone() };
        let without = replay(&same, sound, None, &[]).map_err(|e| anyhow!("{e}"))?;
        if without.failures.is_empty() {
            return Ok(Hunt { bug, states, seconds, found: Some(f) });
        }
        eprintln!("seed {}: broken without the planted bug, too", f.seed);
        limits.seed = f.seed + 1;
        before = start.elapsed().as_secs_f64();
    }
    Ok(Hunt { bug, states, seconds: start.elapsed().as_secs_f64(), found: None })
}

fn print(h: &Hunt) {
    println!("planted bug {}:", h.bug.name());
    match &h.found {
        Some(f) => report::print_failure(f, &format!(" --bug {}", h.bug.name())),
        None => println!("NOT FOUND\n"),
    }
}

fn table(hunts: &[Hunt]) {
    println!(
        "{:<18} {:<10} {:>7} {:>8} {:>17}",
        "planted bug", "caught", "states", "seconds", "short operations"
    );
    for h in hunts {
        let caught = h.found.as_ref().map_or("NO", |f| f.fault.promise);
        let short = h.found.as_ref().and_then(|f| f.short.as_ref()).map(|s| s.steps.len().to_string());
        println!(
            "{:<18} {:<10} {:>7} {:>8.1} {:>17}",
            h.bug.name(),
            caught,
            h.states,
            h.seconds,
            short.unwrap_or_else(|| "-".into())
        );
    }
}
