//! `tidegate lab fio`: a job file on any target.

use super::{failed, opening};
use crate::global::Global;
use crate::out::{self, Out};
use std::fs;
use std::path::PathBuf;
use tidegate::error::path_bytes;
use tidegate::{Error, Result};
use tidegate_lab::experiment::contestant::Contestant;
use tidegate_lab::fio::{self, JobFile, json::Output};

/// Arguments of `tidegate lab fio`.
#[derive(clap::Args)]
pub struct Args {
    /// The job file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// dir:PATH, image:PATH, preset:NAME (a model in real time), sim:NAME (simulated) or host:ext4 (as root)
    #[arg(long, value_name = "TARGET")]
    target: Contestant,
    /// Seed of a simulated world
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the job file and prints its figures.
///
/// # Errors
/// A job file that cannot be read; the target's error.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let name = args.file.display().to_string();
    let text = fs::read_to_string(&args.file).map_err(|e| Error::os(path_bytes(&args.file), e))?;
    let jobs = JobFile::parse(&text).map_err(|e| Error::argument(&name, e))?;
    let watching = global.watch.begin()?;
    let done = args.target.with(&opening(global)?, args.seed, move |t| fio::run(&jobs, t));
    let image = match &args.target {
        Contestant::Image(path) => Some(path.as_path()),
        _ => None,
    };
    let watched = watching.map_or(Ok(()), |w| w.end(image));
    let (outcome, _) = done.map_err(failed("lab fio"))?;
    if !global.quiet {
        outcome.notes.iter().for_each(|n| out::note(format_args!("{name}: {n}")));
    }
    let mut out = Out::new();
    if global.json {
        out.line(Output::new(&outcome).to_json())?;
    } else {
        out.bytes(fio::table(&outcome).as_bytes())?;
    }
    out.finish()?;
    watched
}
