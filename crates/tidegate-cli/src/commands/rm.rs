//! `tidegate rm`.

use crate::global::Global;
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate rm`.
#[derive(clap::Args)]
pub struct Args {
    /// Directories, with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore missing files
    #[arg(short, long)]
    force: bool,
    /// The files and directories to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Removes.
///
/// # Errors
/// The volume cannot be opened, or a name cannot be removed.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    for p in &places {
        match volume.remove(&p.path, args.recursive) {
            Err(e) if args.force && e.is_not_found() => {}
            // Below a file there is nothing, too.
            Err(e) if args.force && e.is_not_a_directory() && !p.path.ends_with(b"/") => {}
            r => drop(global.or_fail(r)),
        }
    }
    report::after_change(global, Ok(()), volume)
}
