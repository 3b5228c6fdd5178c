//! `cargo xtask crash`: power cuts, many thousands of them.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate::crash::{Failure, Limits, Progress, Report, Settings, explore, replay};
use tidegate_block::{Device, Overlay};
use xtask::{golden, oracle, temp::TempDir, workspace};

/// What `cargo xtask crash` takes.
#[derive(Args)]
pub struct CrashArgs {
    /// Explore for so many minutes; 1 unless told.
    #[arg(long, conflicts_with = "states")]
    minutes: Option<f64>,
    /// Explore so many states.
    #[arg(long)]
    states: Option<u64>,
    /// Seed of the first run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; as many as processors unless told.
    #[arg(long)]
    workers: Option<usize>,
    /// Give one state in so many to fsck.f2fs; 0 for none.
    #[arg(long, default_value_t = 500)]
    fsck: u64,
    /// Seconds for making a failure short.
    #[arg(long, default_value_t = 40)]
    shrink: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Do one run again, or one state of it.
    #[arg(long, value_name = "SEED[:STATE]")]
    replay: Option<String>,
    /// With --replay: only the operations with these numbers.
    #[arg(long, value_delimiter = ',', requires = "replay")]
    keep: Vec<u32>,
    /// Find each of the bugs that are planted in the engine for this.
    #[arg(long)]
    planted: bool,
}

/// Explores, and says what was found.
pub fn run(args: &CrashArgs) -> Result<ExitCode> {
    if cfg!(debug_assertions) || (args.planted && !cfg!(feature = "planted-bugs")) {
        return rebuilt(args.planted);
    }
    let mut limits =
        Limits { seed: args.seed, reference: args.fsck, shrink: args.shrink, ..Limits::default() };
    match (args.states, args.minutes) {
        (Some(n), _) => limits.states = n,
        (None, m) => limits.nanos = (m.unwrap_or(1.0) * 60e9) as u64,
    }
    limits.workers = args.workers.unwrap_or(limits.workers);
    let settings = settings(args.fsck > 0)?;
    if args.planted {
        return planted(&limits, &settings);
    }
    let report = match &args.replay {
        Some(which) => {
            let (seed, state) = parse(which)?;
            let limits = Limits { seed, states: u64::MAX, nanos: u64::MAX, ..limits };
            replay(&limits, &settings, state, &args.keep)
        }
        None => watched(&limits, &settings, !args.json),
    };
    let report = report.map_err(|e| anyhow!("{e}"))?;
    if args.json {
        print_json(&report)?
    } else {
        print_text(&report)
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Goes on as a program built as it must be: with optimisation, and with the planted bugs if wanted.
fn rebuilt(planted: bool) -> Result<ExitCode> {
    let mut cargo = Command::new(workspace::cargo());
    cargo.args(["run", "--quiet", "--release", "--package", "xtask"]).current_dir(workspace::root());
    if planted {
        cargo.args(["--features", "planted-bugs"]);
    }
    let status = cargo.arg("--").args(std::env::args_os().skip(1)).status().context("running cargo")?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

/// States after which a planted bug counts as not found.
#[cfg(feature = "planted-bugs")]
const BOUND: u64 = 200_000;

/// Looks for each planted bug until it is found.
#[cfg(feature = "planted-bugs")]
fn planted(limits: &Limits, settings: &Settings) -> Result<ExitCode> {
    use tidegate::f2fs::options::PlantedBug::{EarlyReuse, MissingFlush, WrongDentryMark};
    let mut all = true;
    for bug in [MissingFlush, EarlyReuse, WrongDentryMark] {
        let with = Settings { planted: Some(bug), ..settings.clone() };
        match hunt(limits, settings, &with)? {
            (after, Some(f)) => {
                println!("{bug:?}: found after {after} states");
                print_failure(&f);
            }
            (states, None) => {
                println!("{bug:?}: NOT FOUND in {states} states");
                all = false;
            }
        }
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first failure with a bug that is none without it, and the states tried by then.
#[cfg(feature = "planted-bugs")]
fn hunt(limits: &Limits, without: &Settings, with: &Settings) -> Result<(u64, Option<Failure>)> {
    let mut limits = Limits { nanos: u64::MAX, failures: 1, ..limits.clone() };
    let mut states = 0;
    while states < BOUND {
        limits.states = BOUND - states;
        let mut report = watched(&limits, with, true).map_err(|e| anyhow!("{e}"))?;
        states += report.states;
        let Some(f) = report.failures.pop() else { break };
        let same = Limits { seed: f.seed, states: u64::MAX, shrink: 0, ..limits.clone() };
        let sound = replay(&same, without, None, &[]).map_err(|e| anyhow!("{e}"))?.failures.is_empty();
        if sound {
            return Ok((states, Some(f)));
        }
        println!("seed {}: broken without the planted bug, too", f.seed);
        limits.seed = f.seed + 1;
    }
    Ok((states, None))
}

#[cfg(not(feature = "planted-bugs"))]
fn planted(_: &Limits, _: &Settings) -> Result<ExitCode> {
    anyhow::bail!("built without the planted bugs")
}

fn parse(which: &str) -> Result<(u64, Option<usize>)> {
    let (seed, state) = which.split_once(':').map_or((which, None), |(a, b)| (a, Some(b)));
    let state = state.map(str::parse).transpose().context("the state's number")?;
    Ok((seed.parse().context("the seed")?, state))
}

fn settings(reference: bool) -> Result<Settings> {
    let mut settings = Settings::default();
    if !reference || oracle::skip_or_fail("fsck.f2fs") {
        return Ok(settings);
    }
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = TempDir::new_in(&base, "crash")?;
    settings.reference = Some(Arc::new(move |device| fsck(&dir, device).map_err(|e| format!("{e:#}"))));
    Ok(settings)
}

/// What the reference checker says of a device's content.
fn fsck(dir: &TempDir, device: &Overlay) -> Result<()> {
    let copy = TempDir::new_in(dir.path(), "state")?;
    let path = copy.path().join("state.img");
    let file = File::create(&path)?;
    file.set_len(device.size())?;
    for n in 0..device.len() {
        device.with_block(n, |b| match b.iter().all(|&b| b == 0) {
            true => Ok(()),
            false => file.write_all_at(b, u64::from(n) * b.len() as u64),
        })?;
    }
    golden::fsck_f2fs(&path)
}

/// Explores with a bar on a terminal.
fn watched(
    limits: &Limits,
    settings: &Settings,
    bar: bool,
) -> std::result::Result<Report, tidegate::crash::Fault> {
    let progress = Arc::new(Progress::default());
    if !bar || !std::io::stderr().is_terminal() {
        return explore(limits, settings, &progress);
    }
    let (by_states, total) = match limits.states {
        u64::MAX => (false, limits.nanos / 1_000_000_000),
        n => (true, n),
    };
    let shown = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {elapsed} {msg}");
    shown.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (p, b, done) = (progress.clone(), shown.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stop = done.clone();
    let painter = std::thread::spawn(move || {
        while !stop.load(Relaxed) {
            let states = p.states.load(Relaxed);
            b.set_position(if by_states { states } else { b.elapsed().as_secs() });
            b.set_message(format!("{} runs, {states} states", p.runs.load(Relaxed)));
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let report = explore(limits, settings, &progress);
    done.store(true, Relaxed);
    let _ = painter.join();
    shown.finish_and_clear();
    report
}

fn per_minute(r: &Report) -> u64 {
    (r.states as f64 / (r.nanos as f64 / 60e9).max(1e-9)) as u64
}

fn print_text(r: &Report) {
    r.failures.iter().for_each(print_failure);
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

fn print_failure(f: &Failure) {
    println!("{}", f.fault);
    println!("  replay: cargo xtask crash --replay {}", id(f));
    if f.pressure {
        println!("  (the flusher wrote by itself in this run: a replay can differ)");
    }
    if let Some(cut) = &f.cut {
        println!("  {}", cut.replace('\n', "\n  "));
    }
    if let Some(s) = &f.short {
        println!("  made short: {}", s.fault);
        println!("  replay: cargo xtask crash --replay {} --keep {}", f.seed, keep(f));
        s.steps.iter().for_each(|s| println!("    {s}"));
        if let Some(state) = &s.state {
            println!("    {}", state.replace('\n', "\n    "));
        }
    }
    println!();
}

fn print_json(r: &Report) -> Result<()> {
    let failures = r.failures.iter().map(|f| {
        let short = f.short.as_ref().map(|s| {
            let steps: Vec<_> = s.steps.iter().map(|s| s.to_string()).collect();
            serde_json::json!({ "promise": s.fault.promise, "text": s.fault.text, "state": s.state, "steps": steps })
        });
        serde_json::json!({
            "seed": f.seed, "state": f.state, "replay": id(f), "promise": f.fault.promise,
            "text": f.fault.text, "cut": f.cut, "after": f.after, "short": short, "keep": keep(f),
        })
    });
    let failures: Vec<_> = failures.collect();
    let report = serde_json::json!({
        "runs": r.runs, "full": r.full, "operations": r.operations, "epochs": r.epochs, "states": r.states,
        "states_per_minute": per_minute(r), "recoveries": r.recoveries, "fsck_samples": r.references,
        "seconds": r.nanos as f64 / 1e9, "violations": failures,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
