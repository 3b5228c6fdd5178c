//! `tidegate rmdir`.

use crate::global::Global;
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate rmdir`.
#[derive(clap::Args)]
pub struct Args {
    /// Also the parents that the path names, if they are empty then
    #[arg(short, long)]
    parents: bool,
    /// The directories to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Removes empty directories.
///
/// # Errors
/// The volume cannot be opened, or a directory cannot be removed.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    for p in &places {
        let mut path = &p.path[..];
        while global.or_fail(volume.rmdir(path)).is_some() && args.parents {
            let end = |p: &[u8], is_name: bool| p.iter().rposition(|&b| (b != b'/') == is_name);
            let name = end(path, true).map_or(0, |at| at + 1);
            let above = end(&path[..name], false).and_then(|slash| end(&path[..slash], true));
            let Some(above) = above else { break };
            path = &path[..=above];
        }
    }
    report::after_change(global, Ok(()), volume)
}
