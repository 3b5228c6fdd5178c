//! `tidegate info`.

use super::checkpoints;
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate info`.
#[derive(clap::Args)]
pub struct Args {
    /// Ask for 32 checkpoints from 4 threads, write them, and show the time of each step. Nothing in the
    /// volume changes but the version of its checkpoint; opening it for writing first recovers fsynced files
    /// after a power cut
    #[arg(long)]
    checkpoints: bool,
    /// The volume
    image: OsString,
}

/// Shows superblock, checkpoint and segments.
///
/// # Errors
/// The volume cannot be opened, or its structures cannot be read.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let place = Place::image(&args.image);
    if args.checkpoints {
        return checkpoints::run(&place, global);
    }
    let volume = global.read(&place)?;
    let info = volume.info()?;
    let mut out = Out::new();
    if global.json {
        out.json(&info.json(volume.queue().device().backend()))?;
    } else {
        let lines = info.lines(volume.image(), volume.queue().device().backend());
        lines.iter().try_for_each(|l| out.line(l))?;
    }
    volume.unmount()?;
    out.finish()
}
