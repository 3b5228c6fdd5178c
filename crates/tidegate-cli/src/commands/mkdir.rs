//! `tidegate mkdir`.

use crate::global::Global;
use crate::mode::{ModeChange, umask};
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate mkdir`.
#[derive(clap::Args)]
pub struct Args {
    /// Make missing parents; existing directories are no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, as for chmod
    #[arg(short, long, value_parser = ModeChange::parse, default_value = "755")]
    mode: ModeChange,
    /// The directories to make
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Makes directories.
///
/// # Errors
/// The volume cannot be opened, or a directory cannot be made.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    let mode = args.mode.of(0o777, true, umask());
    for p in &places {
        global.or_fail(volume.mkdir(&p.path, mode, args.parents));
    }
    report::after_change(global, Ok(()), volume)
}
