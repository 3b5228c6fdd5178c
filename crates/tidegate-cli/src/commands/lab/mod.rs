//! `tidegate lab`: the effect of a switch, measured; volumes and directories raced.

use super::mkfs::format;
use crate::global::Global;
use crate::out::{self, Out};
use crate::units::size;
use clap::{Subcommand, ValueEnum};
use head::head;
use look::Look;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use tidegate::{Error, Result, error::Refusal};
use tidegate_lab::experiment::compare::{self, compare};
use tidegate_lab::experiment::contestant::Contestant;
use tidegate_lab::experiment::room;
use tidegate_lab::experiment::rounds::Rounds;
use tidegate_lab::experiment::sweep::Sweep;
use tidegate_lab::experiment::{self, Experiment, Jobs, Measured, Opening, Outcome, Plan, Where};
use tidegate_lab::report::{self, Extras};
use tidegate_lab::workload::{CkptStorm, FsMark, PgIoPerf, Spec, Streams, SyncMode};

mod head;
mod job_file;
mod look;

/// The default directory of results.
const RESULTS: &str = "tidegate-lab";

/// Arguments of `tidegate lab`.
#[derive(clap::Args)]
pub struct Args {
    /// Where results and the report are kept
    #[arg(long, global = true, default_value = RESULTS, value_name = "DIR")]
    out: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the experiments with their subjects
    List,
    /// Run an experiment: a published one with its switch in every position, or one of your own
    ///
    /// One of your own is a TOML file: a workload, devices and mount options. Lists in it are tried value by
    /// value. crates/tidegate-lab/examples/commits.toml is one. Every result is kept as JSON, and each run's
    /// figures as CSV.
    ///
    /// All positions run once in each round, in an order of its own. In real time a run of each goes before
    /// that does not count. In simulated time equal seeds print equal bytes with --json; the date is in the
    /// kept file.
    ///
    /// m5 also shows checkpoint_merge in Linux itself, where user-mode-linux is installed: not with --quick
    /// or --device.
    ///
    /// --lockstat, --trace and --profile look at one more run of each position, from the making of its volume
    /// to the end. In simulated time this is the median run again; in real time it is a run that is not among
    /// the results. Each position has its own files: with --trace t.json, t.m3.1.sync_wait=caller.json is of
    /// m3's first setting. Times are those of the run: virtual on a simulated device. On models call trees
    /// are always recorded and kept with the results; `lab report` draws them.
    #[command(verbatim_doc_comment)]
    Run(Run),
    /// Make one HTML file of the results that are kept, and print each published table with ours in the same
    /// form
    ///
    /// The path of the file is the last line; with --quiet, the only one.
    Report(Report),
    /// Run one workload on several targets
    ///
    /// --lockstat, --trace and --profile look at one more run on each target, as in `lab run`, at what this
    /// process does of it: nothing, of a directory. The workload's files are removed after each run.
    ///
    /// kernel: is Linux's own file system in a guest, which takes no root: user-mode-linux, with one CPU and
    /// 512 MiB. kernel:f2fs and kernel:ext4 make a new volume for each run, kernel:IMAGE takes one that is
    /// there. host:ext4 is this host's on a new volume, through a loop device, as root. Mount options follow
    /// a comma: kernel:f2fs,nocheckpoint_merge. -o is for volumes that Tidegate opens. New volumes are sparse
    /// files of 2 GiB in /var/tmp, or where TMPDIR says. In a guest each write waits until it is on the disk
    /// below, since user-mode-linux passes no flush on; on the host, flushes do.
    #[command(verbatim_doc_comment)]
    Compare(Compare),
    /// Run a job file of fio's on a target, and print what fio prints; with --json, as its
    /// --output-format=json
    ///
    /// filename= and directory= are paths in the target. Files stay, as fio leaves them.
    Fio(job_file::Args),
}

#[derive(clap::Args)]
struct Report {
    /// Show the calls below this function alone, as `perf report --symbol-filter`; f2fs_writepages unless
    /// told
    #[arg(long, value_name = "NAME")]
    symbol: Option<String>,
    /// Draw the ratios of all experiments into an SVG file, too
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Run {
    /// m1, m2, m3, m4, m5, all, or a file of your own: FILE.toml
    name: String,
    /// Less of everything, for a first look
    #[arg(long)]
    quick: bool,
    /// Another device: ramdisk, hdd, raid-bbwc, ufs, nvme, zoned:zns (simulated), real:PRESET or file:PATH (in
    /// real time)
    ///
    /// A file must not be there yet: it is made for each run and removed again.
    #[arg(long, value_name = "DEVICE")]
    device: Option<Where>,
    /// The first run's seed; each further one has the next. 1 unless told
    #[arg(long)]
    seed: Option<u64>,
    /// Runs of each position; 7 unless told, with --quick 3
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Runs in simulated time at once, in processes of their own; as many as there are CPUs, and 3 GiB of memory
    /// for, unless told
    ///
    /// Their figures do not depend on it. Runs in real time are one at a time, with nothing beside them, and so
    /// are those of a file of your own.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MOST_JOBS))]
    jobs: Option<u32>,
}

/// The most processes. A larger number is taken for a typing error.
const MOST_JOBS: i64 = 1024;

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    #[value(name = "fs_mark")]
    FsMark,
    Pgioperf,
    #[value(name = "ckpt_storm")]
    CkptStorm,
    Streams,
}

#[derive(clap::Args)]
struct Compare {
    /// dir:PATH, image:PATH, preset:NAME (a model in real time), sim:NAME (simulated), kernel:f2fs,
    /// kernel:ext4, kernel:IMAGE or host:ext4; give it for each
    #[arg(long = "target", required = true, value_name = "TARGET")]
    targets: Vec<Contestant>,
    /// The workload to run
    #[arg(long, value_enum, default_value = "fs_mark")]
    workload: Workload,
    /// A whole specification as JSON instead, such as {"workload":"pgioperf","duration_ms":5000}
    #[arg(long, value_name = "JSON")]
    spec: Option<String>,
    /// Threads of fs_mark
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Files of each thread of fs_mark
    #[arg(long, default_value_t = 100)]
    files: u64,
    /// Bytes of each file of fs_mark
    #[arg(long, value_parser = size, default_value = "4k")]
    size: u64,
    /// The format of the new volumes of sim:NAME and preset:NAME; f2fs unless told
    #[arg(long, value_parser = format())]
    format: Option<tidegate::detect::Format>,
    /// When fs_mark makes files durable, as its -S: 0 never, 1 each, 2 by one sync, 3 all in reverse, 5 all
    #[arg(long, default_value_t = 1)]
    sync: u8,
    /// Runs of each target
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Runs what the arguments ask for.
///
/// # Errors
/// A fault of the experiment, the target or the results.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    match &args.what {
        What::List => list(global),
        What::Run(run) if run.name.ends_with(".toml") => run_file(run, &args.out, global),
        What::Run(run) => run_experiments(run, &args.out, global),
        What::Report(r) => make_report(r, &args.out, global),
        What::Compare(c) => race(c, &args.out, global),
        What::Fio(f) => job_file::run(f, global),
    }
}

/// Executes runs for another process of this program, which reads their results.
///
/// # Errors
/// A line does not describe a run, or the reader of the results is gone.
pub fn run_apart() -> Result<()> {
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    experiment::jobs::work(&mut from, &mut to).map_err(failed(experiment::jobs::RUN))
}

fn list(global: &Global) -> Result<()> {
    let mut out = Out::new();
    if global.json {
        let described = |e: &&Experiment| {
            let (name, title, mechanism) = (e.name, e.title, e.mechanism);
            serde_json::json!({ "name": name, "title": title, "mechanism": mechanism, "settings": e.settings() })
        };
        out.json(&experiment::ALL.iter().map(described).collect::<Vec<_>>())?;
        return out.finish();
    }
    for e in experiment::ALL {
        out.line(format_args!("{}  {}\n    {}", e.name, e.title, e.mechanism))?;
        for (name, device, metric) in e.settings() {
            out.line(format_args!("    - {name}, on {device}: {metric}"))?;
        }
    }
    out.finish()
}

fn failed(what: &str) -> impl Fn(tidegate_lab::Error) -> Error + '_ {
    move |e| Error::refused(Refusal::Failed, what, e)
}

/// Runs what a TOML file says.
fn run_file(args: &Run, dir: &Path, global: &Global) -> Result<()> {
    let text = fs::read_to_string(&args.name).map_err(|e| Error::Os(args.name.as_str().into(), e))?;
    let mut sweep = Sweep::parse(&text).map_err(failed(&args.name))?;
    if args.device.is_some() {
        return Err(Error::argument("--device", format!("{}: its devices are in the file", args.name)));
    }
    if args.seed.is_some() || args.runs.is_some() {
        let runs = args.runs.map_or(sweep.seeds.len() as u64, u64::from);
        sweep.seeds = Rounds::new(args.seed.unwrap_or(sweep.seeds[0]), runs, 0).seeds;
    }
    if args.quick && args.runs.is_none() {
        sweep.quick();
    }
    writable(dir)?;
    let look = Look::new(sweep.runs(global.watch.wanted()), global)?;
    let race = sweep.run(&opening(global)?, &look).map_err(failed(&args.name))?;
    look.end();
    finish(race, args.quick, dir, global)
}

fn run_experiments(args: &Run, dir: &Path, global: &Global) -> Result<()> {
    let experiments: Vec<&Experiment> = match args.name.as_str() {
        "all" => experiment::ALL.to_vec(),
        name => vec![Experiment::named(name).map_err(failed("lab run"))?],
    };
    writable(dir)?;
    // Each of the settings would say so.
    if let Some(Where::File(path)) = args.device.as_ref()
        && path.exists()
    {
        return Err(failed("lab run")(tidegate_lab::Error::Exists { path: path.clone() }));
    }
    let plan = Plan {
        quick: args.quick,
        device: args.device.clone(),
        seed: args.seed.unwrap_or(1),
        runs: args.runs.unwrap_or(0),
        opening: opening(global)?,
        kernel: true,
        jobs: Jobs::default(),
    };
    let jobs = args.jobs.map_or_else(room::for_jobs, |n| n as usize);
    let plan = Plan { jobs: Jobs::start(jobs, &experiments, &plan).map_err(failed("lab run"))?, ..plan };
    let wanted = global.watch.wanted();
    let look = Look::new(experiments.iter().map(|e| e.runs(&plan, wanted)).sum(), global)?;
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for e in experiments {
        let ran = e.run(&plan, &look);
        failures
            .extend(ran.failed.into_iter().map(|(setting, e)| Error::refused(Refusal::Failed, setting, e)));
        if !ran.outcome.cases.is_empty() {
            let outcome = Outcome { head: head(plan.quick), ..ran.outcome };
            keep(dir, &outcome)?;
            outcomes.push(outcome);
        }
    }
    look.end();
    if !outcomes.is_empty() {
        show(&outcomes, dir, global)?;
    }
    fail(failures)
}

fn race(args: &Compare, dir: &Path, global: &Global) -> Result<()> {
    let spec = args.spec()?;
    let mut opening = opening(global)?;
    if let Some(format) = args.format {
        if let Some(other) = args.targets.iter().find(|t| !t.is_model()) {
            return Err(Error::argument(
                "--format",
                format!("{other} has its own; for sim:NAME and preset:NAME"),
            ));
        }
        opening.hardware.format = format;
    }
    writable(dir)?;
    let look = Look::new(compare::runs(&args.targets, args.runs.into(), global.watch.wanted()), global)?;
    let race = compare(&args.targets, &spec, args.runs, &opening, &look);
    let race = race.map_err(failed("lab compare"))?;
    look.end();
    finish(race, false, dir, global)
}

/// Keeps and shows the result of a race. The command fails if a target failed.
fn finish(race: Measured, quick: bool, dir: &Path, global: &Global) -> Result<()> {
    let outcome = Outcome { head: head(quick), ..race.outcome };
    if outcome.cases.iter().any(|c| !c.positions.is_empty()) {
        keep(dir, &outcome)?;
        show(&[outcome], dir, global)?;
    }
    fail(race.failed.into_iter().map(|(t, e)| Error::refused(Refusal::Failed, t, e)).collect())
}

/// Tells all failures but the last, which the command ends with.
fn fail(mut failures: Vec<Error>) -> Result<()> {
    let Some(last) = failures.pop() else { return Ok(()) };
    failures.iter().for_each(out::say);
    Err(last)
}

/// How volumes are opened, from the options of every command.
fn opening(global: &Global) -> Result<Opening> {
    let open = global.open_options(false)?;
    let memory = global.cache.map(|_| open.memory);
    let options = global.options();
    Ok(Opening { options, memory, backend: open.backend, ..Opening::default() })
}

impl Compare {
    fn spec(&self) -> Result<Spec> {
        if let Some(json) = &self.spec {
            return serde_json::from_str(json).map_err(|e| Error::argument("--spec", e));
        }
        let sync = match self.sync {
            0 => SyncMode::None,
            1 => SyncMode::Each,
            2 => SyncMode::Sync,
            3 => SyncMode::PostReverse,
            5 => SyncMode::Post,
            n => return Err(Error::argument("--sync", format!("{n}: it must be 0, 1, 2, 3 or 5"))),
        };
        let (threads, files, size) = (self.threads, self.files, self.size);
        let write_size = size.clamp(1, 16 << 10);
        Ok(match self.workload {
            Workload::FsMark => {
                Spec::FsMark(FsMark { threads, files, size, write_size, sync, ..FsMark::default() })
            }
            Workload::Pgioperf => Spec::Pgioperf(PgIoPerf::default()),
            Workload::CkptStorm => Spec::CkptStorm(CkptStorm::default()),
            Workload::Streams => Spec::Streams(Streams::default()),
        })
    }
}

fn show(outcomes: &[Outcome], dir: &Path, global: &Global) -> Result<()> {
    let mut out = Out::new();
    if global.json {
        out.json(&outcomes.iter().map(printed).collect::<Vec<_>>())?;
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        out.bytes(report::table(outcomes, colour).as_bytes())?;
        if !global.quiet {
            out.line(format_args!("kept in {0}; `tidegate lab report` draws them", dir.display()))?;
        }
    }
    out.finish()
}

/// An outcome in the printed form. In simulated time it depends only on its seeds, so the date is left out.
fn printed(outcome: &Outcome) -> Outcome {
    let mut printed = outcome.clone();
    if printed.simulated {
        printed.head.date.clear();
    }
    printed
}

/// Keeps an outcome as JSON, and the figures of every run as CSV beside it.
fn keep(dir: &Path, outcome: &Outcome) -> Result<()> {
    let path = |extension: &str| dir.join(format!("{}.{extension}", outcome.experiment));
    let failed = |path: &Path, e: std::io::Error| Error::Os(path.into(), e);
    let (json, csv) = (path("json"), path("csv"));
    save(&json, &serde_json::to_vec(outcome).map_err(|e| failed(&json, e.into()))?)?;
    save(&csv, &report::csv(outcome).map_err(|e| failed(&csv, std::io::Error::other(e)))?)
}

/// Makes the directory of results, and checks, before anything runs, that files can be made there.
fn writable(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|e| Error::Os(dir.into(), e))?;
    let probe = dir.join(format!(".{}.tmp", std::process::id()));
    save(&probe, b"")?;
    fs::remove_file(&probe).map_err(|e| Error::Os(probe.into(), e))
}

/// Replaces a file by `bytes` in one step: if the program is interrupted, or there is no space, the old file
/// stays.
fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let done = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    done.map_err(|e| {
        // The new file may not exist.
        let _ = fs::remove_file(&new);
        Error::Os(path.into(), e)
    })
}

fn make_report(args: &Report, dir: &Path, global: &Global) -> Result<()> {
    let named = |path: &Path| path.display().to_string();
    let entries = fs::read_dir(dir).map_err(|e| Error::Os(dir.into(), e))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let with =
        |suffix: &'static str| paths.iter().filter(move |p| p.extension().is_some_and(|e| e == suffix));
    let mut outcomes = Vec::new();
    for path in with("json") {
        let text = fs::read(path).map_err(|e| Error::Os(path.into(), e))?;
        match serde_json::from_slice(&text) {
            Ok(outcome) => outcomes.push(outcome),
            // The file is a trace, or is cut off.
            Err(e) => out::note(format_args!("{}: left out, no result of the lab: {e}", named(path))),
        }
    }
    if outcomes.is_empty() {
        return Err(Error::refused(
            Refusal::Missing,
            named(dir),
            "no results yet: `tidegate lab run all --quick` makes some",
        ));
    }
    let mut extras = Extras { symbol: args.symbol.clone(), ..Extras::default() };
    for path in with("folded") {
        let text = fs::read_to_string(path).map_err(|e| Error::Os(path.into(), e))?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        extras.folded.push((name, text));
    }
    if let Some(symbol) = args.symbol.as_deref().filter(|s| !report::is_called(&outcomes, s)) {
        return Err(Error::refused(
            Refusal::Missing,
            symbol,
            "no result has a call tree with this function in it",
        ));
    }
    if let Some(file) = &args.picture {
        let drawn = report::picture(&outcomes);
        save(
            file,
            drawn
                .ok_or_else(|| {
                    Error::refused(Refusal::Missing, named(file), "no result has a ratio to draw")
                })?
                .as_bytes(),
        )?;
    }
    let path = dir.join("report.html");
    save(&path, report::html(&outcomes, &extras).as_bytes())?;
    let mut out = Out::new();
    if global.json {
        out.json(&serde_json::json!({ "report": path }))?;
    } else {
        if !global.quiet {
            out.bytes(report::as_published(&outcomes, args.symbol.as_deref()).as_bytes())?;
        }
        out.line(path.display())?;
    }
    out.finish()
}
