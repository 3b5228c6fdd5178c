//! This program in a guest of the lab: as its process 1, and as the process that runs the workload.

use std::path::PathBuf;
use tidegate::{Error, Result, error::Refusal};

/// Arguments of the first program in a guest.
#[derive(clap::Args)]
pub struct Init {
    /// Directory of the job
    job: PathBuf,
}

/// Arguments of the work in a guest.
#[derive(clap::Args)]
pub struct Work {
    /// Directory of the job
    job: PathBuf,
    /// Where to work
    dir: PathBuf,
}

/// Runs the guest until it is powered off.
///
/// # Errors
/// This process is not process 1 of a guest.
pub fn init(args: &Init) -> Result<()> {
    let failed = |e| Error::refused(Refusal::Failed, tidegate_uml::INIT, e);
    match tidegate_uml::init(&args.job).map_err(failed)? {}
}

/// Runs the job's workload.
///
/// # Errors
/// Those of the workload.
pub fn work(args: &Work) -> Result<()> {
    let dir = args.dir.display().to_string();
    tidegate_lab::kernel::work(&args.job, &args.dir).map_err(|e| Error::refused(Refusal::Failed, dir, e))
}
