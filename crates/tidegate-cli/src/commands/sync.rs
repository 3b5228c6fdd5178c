//! `tidegate sync`: makes everything durable that a mounted volume was given.
//!
//! sync(2) and syncfs(2) end in the kernel's FUSE client, which hands over what it holds and asks nobody to
//! make it durable.

use crate::global::Global;
use std::path::PathBuf;
use tidegate::error::{path_bytes, show};
use tidegate::{Error, Result};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where volumes are mounted, or anything below
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Syncs the volumes, one after the other.
///
/// # Errors
/// The directory that is in no mounted volume; what could not be written.
pub fn run(args: &Args, _global: &Global) -> Result<()> {
    args.dirs.iter().try_for_each(|dir| {
        let full_sync = tidegate_fuse::ioctl::full_sync(dir);
        full_sync.map_err(|e| Error::other(show(path_bytes(dir)), e))
    })
}
