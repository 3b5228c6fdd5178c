//! `cargo xtask crash`: many thousands of power cuts.
//!
//! The engine is explored as it is shipped. A second program, built with bugs that can be planted, then hunts
//! these bugs and so shows that the explorer would notice one.

mod ext4;
mod planted;
mod report;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate::planted::PlantedBug;
use tidegate_block::Overlay;
use tidegate_crash::base::Bases;
use tidegate_crash::{Limits, Progress, Report, Settings, explore, replay};
use tidegate_testing::{golden, oracle, overlay, workspace};

/// One run in so many is done by several threads, unless told.
const CROWDS: u64 = 16;

/// The arguments of `cargo xtask crash`.
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
    /// One run in so many is done by several threads at once; 0 for none.
    #[arg(long, default_value_t = CROWDS)]
    crowds: u64,
    /// The volumes' format.
    #[arg(long, value_enum, default_value_t = Format::F2fs)]
    format: Format,
    /// Give one state in so many to fsck.f2fs or e2fsck; 0 for none.
    #[arg(long, default_value_t = 500)]
    fsck: u64,
    /// Seconds for making a failure short.
    #[arg(long, default_value_t = 40)]
    shrink: u64,
    /// Put the volume that each failure's power cut left, with notes on it, into this directory.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Do one run again, or one state of it.
    #[arg(long, value_name = "SEED[:STATE]")]
    replay: Option<String>,
    /// With --replay: only the operations with these numbers.
    #[arg(long, value_delimiter = ',', requires = "replay")]
    keep: Vec<u32>,
    /// Only hunt the bugs that are planted in the engine for this.
    #[arg(long, conflicts_with_all = ["replay", "bug"])]
    planted: bool,
    /// Do not hunt them after the exploration.
    #[arg(long)]
    no_planted: bool,
    /// Plant a bug in the engine that does the runs.
    #[arg(long, value_name = "NAME")]
    bug: Option<PlantedBug>,
}

/// A format that is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// F2FS.
    F2fs,
    /// F2FS on zones.
    Zoned,
    /// ext4, made by mke2fs: blocks of 1, 2 and 4 KiB, with checksums and without, as ext3, and with an orphan
    /// file, a checksum seed, small inodes.
    Ext4,
}

impl Format {
    /// The format's name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::F2fs => "f2fs",
            Format::Zoned => "zoned",
            Format::Ext4 => "ext4",
        }
    }
}

/// Explores, hunts the planted bugs, and prints the findings.
pub fn run(args: &CrashArgs) -> Result<ExitCode> {
    let with_bugs = args.planted || args.bug.is_some();
    if cfg!(debug_assertions) || (with_bugs && !cfg!(feature = "planted-bugs")) {
        let status =
            rebuilt(with_bugs).args(std::env::args_os().skip(1)).status().context("running cargo")?;
        return Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)));
    }
    if args.planted {
        return planted::hunt_all(args.format, &limits(args), &settings(args)?, args.json);
    }
    let mut settings = settings(args)?;
    if let Some(bug) = args.bug {
        planted::plant(&mut settings, bug)?;
    }
    let mut with = args.bug.map_or(String::new(), |b| format!(" --bug {}", b.name()));
    if args.format != Format::F2fs {
        with += &format!(" --format {}", args.format.name());
    }
    if args.crowds != CROWDS {
        with += &format!(" --crowds {}", args.crowds);
    }
    if let Some(which) = &args.replay {
        let (seed, state) = parse(which)?;
        let limits = Limits { seed, states: u64::MAX, nanos: u64::MAX, ..limits(args) };
        let report = replay(&limits, &settings, state, &args.keep).map_err(|e| anyhow!("{e}"))?;
        if let Some(dir) = &args.save {
            save(&report, dir)?;
        }
        report::print(&report, args.json, &with)?;
        return Ok(exit(report.failures.is_empty()));
    }
    let report = watched(&limits(args), &settings, !args.json).map_err(|e| anyhow!("{e}"))?;
    if let Some(dir) = &args.save {
        save(&report, dir)?;
    }
    let mut all_well = report.failures.is_empty();
    let hunts = args.bug.is_none() && !args.no_planted && !planted::of(args.format).is_empty();
    if !args.json {
        report::print_text(&report, &with);
        if hunts {
            all_well &= planted::hunted_apart(args)?.status().context("running cargo")?.success();
        }
        return Ok(exit(all_well));
    }
    let mut value = report::to_json(&report);
    if hunts {
        let out = planted::hunted_apart(args)?.arg("--json").stdout(Stdio::piped()).output()?;
        all_well &= out.status.success();
        value["planted"] =
            serde_json::from_slice(&out.stdout).context("what was said of the planted bugs")?;
    }
    report::print_json(&value)?;
    Ok(exit(all_well))
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn limits(args: &CrashArgs) -> Limits {
    let mut limits =
        Limits { seed: args.seed, reference: args.fsck, shrink: args.shrink, ..Limits::default() };
    match (args.states, args.minutes) {
        (Some(n), _) => limits.states = n,
        (None, m) => limits.nanos = (m.unwrap_or(1.0) * 60e9) as u64,
    }
    limits.workers = args.workers.unwrap_or(limits.workers);
    limits.crowds = args.crowds;
    limits
}

/// This program, rebuilt with optimisation, and with the planted bugs if wanted.
fn rebuilt(with_bugs: bool) -> Command {
    let mut cargo = Command::new(workspace::cargo());
    cargo.args(["run", "--quiet", "--release", "--package", "xtask"]).current_dir(workspace::root());
    if with_bugs {
        cargo.args(["--features", "planted-bugs"]);
    }
    cargo.arg("--");
    cargo
}

fn parse(which: &str) -> Result<(u64, Option<usize>)> {
    let (seed, state) = which.split_once(':').map_or((which, None), |(a, b)| (a, Some(b)));
    let state = state.map(str::parse).transpose().context("the state's number")?;
    Ok((seed.parse().context("the seed")?, state))
}

fn settings(args: &CrashArgs) -> Result<Settings> {
    if args.format == Format::Ext4 {
        return ext4::settings(args.fsck > 0);
    }
    let mut settings = Settings::default();
    if args.format == Format::Zoned {
        settings.bases = Arc::new(Bases::zoned());
    }
    if args.fsck == 0 || oracle::skip_or_fail("fsck.f2fs") {
        return Ok(settings);
    }
    let dir = tidegate_testing::ext4::scratch("crash")?;
    let judge = move |d: &Overlay| overlay::with_image(&dir, d, golden::fsck_f2fs);
    settings.reference = Some(Arc::new(move |d| judge(d).map_err(|e| format!("{e:#}"))));
    Ok(settings)
}

/// Saves the volumes of the failures.
fn save(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for f in &report.failures {
        let place = |end: &str| dir.join(format!("{}.{end}", f.seed));
        if let Some(image) = &f.image {
            overlay::save(&place("img"), image)?;
        }
        std::fs::write(place("json"), serde_json::to_string_pretty(&report::failure(f))?)?;
        eprintln!("seed {}: kept in {}", f.seed, dir.display());
    }
    Ok(())
}

/// Explores with a progress bar on a terminal.
fn watched(
    limits: &Limits,
    settings: &Settings,
    bar: bool,
) -> std::result::Result<Report, tidegate_crash::Fault> {
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
