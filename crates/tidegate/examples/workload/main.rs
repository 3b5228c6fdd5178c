//! Workloads on an image, by the library, or on a mounted directory, by the kernel: the same code for both,
//! so that `cargo xtask bench` can set one beside the other. Prints JSON.
//!
//! ```sh
//! cargo run --release -p tidegate --example workload -- --image demo.img mark --threads 16 --files 8 --size 524288
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `target` | what a workload runs on |
//! | `volume`, `host` | an opened image; a directory of the host |
//! | `mark` | many threads make files, in the manner of fs_mark |
//! | `age` | a volume is filled, then overwritten at random |
//! | `stamp` | pages that say which they are |
#![forbid(unsafe_code)]

mod age;
mod host;
mod mark;
mod stamp;
mod target;
mod volume;

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use target::{Report, Result, Target};
use tidegate::observe::{Recording, Wanted};

#[derive(Parser)]
#[command(name = "workload", about = "Runs a workload on an image or a directory and prints what it took")]
struct Cli {
    /// An F2FS image, opened by the library.
    #[arg(long, required_unless_present = "dir", conflicts_with = "dir")]
    image: Option<PathBuf>,
    /// Mount options for the image, as `writepages=locked,mode=lfs`.
    #[arg(short, long, default_value = "")]
    options: String,
    /// A directory of the host; best where something is mounted.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What to look at meanwhile; what is found is thrown away.
    #[arg(long, value_enum, value_delimiter = ',')]
    observe: Vec<Observe>,
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Observe {
    Lockstat,
    Trace,
    Profile,
}

/// Events that are kept of each thread: as `tidegate --trace` does.
const EVENTS: usize = 65_536;

#[derive(Subcommand)]
enum What {
    /// Threads make files: create, write, fsync.
    Mark(mark::Mark),
    /// One file takes a share of the volume.
    Fill(age::Fill),
    /// Pages of that file are overwritten at random.
    Overwrite(age::Overwrite),
}

fn main() -> ExitCode {
    match run(&Cli::parse()).and_then(|r| Ok(serde_json::to_string(&r)?)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn open(cli: &Cli) -> Result<Arc<dyn Target>> {
    match (&cli.image, &cli.dir) {
        (Some(image), _) => Ok(Arc::new(volume::Image::open(image, &cli.options)?)),
        (None, Some(dir)) => Ok(Arc::new(host::Directory::open(dir)?)),
        (None, None) => Err("--image or --dir is needed".into()),
    }
}

fn run(cli: &Cli) -> Result<Report> {
    let target = open(cli)?;
    let wants = |what| cli.observe.contains(&what);
    let wanted = Wanted {
        locks: wants(Observe::Lockstat),
        events: wants(Observe::Trace).then_some(EVENTS),
        calls: wants(Observe::Profile),
    };
    let recording = if wanted.anything() { Recording::start(wanted) } else { None };
    let mut report = match &cli.what {
        What::Mark(m) => m.run(&target)?,
        What::Fill(f) => f.run(&*target)?,
        What::Overwrite(o) => o.run(&*target)?,
    };
    if let Some(r) = recording {
        let observed = r.finish();
        let acquisitions = observed.locks.iter().map(|l| l.acquisitions).sum();
        let r = observed.recorded;
        report.counts.insert("events", r.events.len() as u64 + r.dropped);
        report.counts.insert("spans", r.calls.iter().flat_map(|t| &t.nodes).map(|n| n.count).sum());
        report.counts.insert("acquisitions", acquisitions);
    }
    target.close()?;
    drop(target);
    if let What::Mark(m) = &cli.what
        && m.read_back
    {
        let target = open(cli)?;
        report.read_seconds = Some(m.read(&*target)?);
        report.counts.insert("read_back_bios", target.counts()["reads"]);
        target.close()?;
    }
    Ok(report)
}
