//! `cargo xtask`: the commands that test and measure Tidegate.

#![forbid(unsafe_code)]

mod crash;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tidegate_testing::{fill, golden, manifest, oracle, power, uml, workspace};
use xtask::zoned::ZonedArgs;
use xtask::{arrows, bench, mutants, soak, suite};

#[derive(Parser)]
#[command(name = "xtask", about = "Tests and measures Tidegate")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Show the programs results are checked against.
    Oracle {
        /// Install what is missing (as root).
        #[arg(long)]
        install: bool,
    },
    /// Describe a tree, or compare two descriptions.
    Manifest(ManifestArgs),
    /// Run a shell script under a real kernel with an image as /dev/ubda.
    Uml(UmlArgs),
    /// Run a shell script under a real kernel with conventional and zoned disks, in QEMU.
    Zoned(ZonedArgs),
    /// Run every check: oracles, format, lints, build, golden volumes, tests.
    Test {
        /// Do not make the golden volumes beforehand.
        #[arg(long)]
        quick: bool,
    },
    /// Measure what is shipped against its peers.
    #[command(subcommand)]
    Bench(bench::Task),
    /// Cut the power at every moment of many runs and judge what recovery makes of it.
    Crash(crash::CrashArgs),
    /// Break promises one at a time, in a copy of the sources, and see that the tests named in mutants.toml notice.
    Mutants {
        /// Only those whose name contains this.
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// Print which file of a crate calls which, and fail where these form a cycle.
    Arrows {
        /// The crate's directory below `crates`.
        #[arg(default_value = "tidegate-f2fs")]
        package: String,
    },
    /// Run the tests of the mount that are short elsewhere at length (as root).
    Soak(soak::SoakArgs),
    /// Make the golden volumes.
    Golden(GoldenArgs),
    /// Fill a directory with a test tree.
    GuestFill {
        /// The tree.
        kind: fill::Kind,
        /// An existing directory.
        dir: PathBuf,
    },
    /// (In a guest) change and sync files until the power fails.
    #[command(hide = true)]
    GuestPower {
        /// Of the run.
        seed: u64,
        /// Which of its workers this is.
        worker: u32,
        /// Where to work.
        dir: PathBuf,
    },
    /// (In a guest) compare a tree with what was promised.
    #[command(hide = true)]
    GuestPowerVerify {
        /// The promises.
        promises: PathBuf,
        /// The tree.
        dir: PathBuf,
    },
    /// (In a guest) run a job as process 1.
    #[command(hide = true)]
    GuestInit {
        /// Directory of the job.
        job: PathBuf,
    },
    /// (In a guest) power off.
    #[command(hide = true)]
    GuestPoweroff,
}

#[derive(Args)]
struct ManifestArgs {
    /// Directory to describe.
    #[arg(required_unless_present = "compare")]
    dir: Option<PathBuf>,
    /// Where to write; standard output unless told.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Compare two manifests instead; exit 1 when they differ.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "dir")]
    compare: Option<Vec<PathBuf>>,
    #[command(flatten)]
    options: manifest::Options,
}

#[derive(Args)]
struct GoldenArgs {
    /// Where the volumes are kept.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Make only these.
    #[arg(long)]
    only: Vec<String>,
    /// Make them anew.
    #[arg(long)]
    force: bool,
    /// List the volumes and make none.
    #[arg(long)]
    list: bool,
}

#[derive(Args)]
struct UmlArgs {
    /// The image.
    #[arg(long)]
    image: PathBuf,
    /// A second image, as /dev/ubdb.
    #[arg(long)]
    second: Option<PathBuf>,
    /// The shell script.
    #[arg(long)]
    script: PathBuf,
    /// Seconds until the guest is killed.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Memory of the guest.
    #[arg(long, default_value = "512M")]
    mem: String,
    /// Show the kernel's messages too.
    #[arg(long)]
    console: bool,
}

/// The status that a shell shows for a process that SIGPIPE ended.
const PIPE: i32 = 141;

/// Ends the program quietly when its reader has gone. Otherwise `println!` panics (`xtask golden | head`),
/// and prints a trace.
fn end_with_reader() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>().map_or("", |s| s.as_str());
        if said.starts_with("failed printing to std") && said.contains("Broken pipe") {
            std::process::exit(PIPE);
        }
        before(info);
    }));
}

fn main() -> ExitCode {
    end_with_reader();
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Oracle { install } => {
            if install {
                oracle::install_missing()?;
            }
            Ok(verdict(oracle::print_table()))
        }
        Task::Manifest(args) => run_manifest(&args),
        Task::Uml(args) => run_uml(&args),
        Task::Zoned(args) => xtask::zoned::run(&args),
        Task::Test { quick } => suite::run(quick).map(|()| ExitCode::SUCCESS),
        Task::Bench(task) => task.run().map(|()| ExitCode::SUCCESS),
        Task::Crash(args) => crash::run(&args),
        Task::Mutants { only } => mutants::run(&only),
        Task::Arrows { package } => run_arrows(&package),
        Task::Soak(args) => soak::run(&args).map(|()| ExitCode::SUCCESS),
        Task::Golden(args) => run_golden(&args),
        Task::GuestFill { kind, dir } => fill::fill(kind, &dir).map(|()| ExitCode::SUCCESS),
        Task::GuestPower { seed, worker, dir } => power::work(seed, worker, &dir).map(|()| ExitCode::SUCCESS),
        Task::GuestPowerVerify { promises, dir } => power::verify(&promises, &dir).map(verdict),
        Task::GuestInit { job } => match uml::init(&job)? {},
        Task::GuestPoweroff => match uml::poweroff()? {},
    }
}

fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_manifest(args: &ManifestArgs) -> Result<ExitCode> {
    const SHOWN: usize = 40;
    if let Some([a, b]) = args.compare.as_deref() {
        let (a, b) = (manifest::Manifest::load(a)?, manifest::Manifest::load(b)?);
        let found = manifest::compare(&a, &b, &args.options);
        for line in found.iter().take(SHOWN) {
            println!("{line}");
        }
        if found.len() > SHOWN {
            println!("and {} more", found.len() - SHOWN);
        }
        return Ok(verdict(found.is_empty()));
    }
    let dir = args.dir.as_deref().context("a directory is needed")?;
    let tree = manifest::walk(dir)?;
    match &args.output {
        Some(path) => tree.save(path)?,
        None => tree.write(std::io::stdout().lock())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_arrows(package: &str) -> Result<ExitCode> {
    let src = workspace::root().join("crates").join(package).join("src");
    let arrows = arrows::of(&src).with_context(|| src.display().to_string())?;
    for (from, to) in &arrows {
        for (to, calls) in to {
            println!("{from} -> {to}: {}", calls.iter().cloned().collect::<Vec<_>>().join(", "));
        }
    }
    let cycles = arrows::cycles(&arrows);
    for files in &cycles {
        eprintln!("a cycle of {}: {}", files.len(), files.iter().cloned().collect::<Vec<_>>().join(", "));
    }
    Ok(verdict(cycles.is_empty()))
}

fn run_uml(args: &UmlArgs) -> Result<ExitCode> {
    let body = std::fs::read_to_string(&args.script).with_context(|| args.script.display().to_string())?;
    let mut guest = uml::guest(&args.image).memory(&args.mem).timeout(Duration::from_secs(args.timeout));
    if let Some(second) = &args.second {
        guest = guest.second_image(second);
    }
    let out = guest.run(&body)?;
    let text = if args.console { &out.console } else { &out.stdout };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(u8::try_from(out.status).unwrap_or(u8::MAX)))
}

fn run_golden(args: &GoldenArgs) -> Result<ExitCode> {
    if args.list {
        golden::list().for_each(|(name, about)| println!("{name:<27} {about}"));
        return Ok(ExitCode::SUCCESS);
    }
    let dir = args.dir.clone().unwrap_or_else(golden::default_dir);
    golden::make_all(&dir, &args.only, args.force)?;
    Ok(ExitCode::SUCCESS)
}
