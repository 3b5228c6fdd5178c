//! `tidegate mv`.

use crate::global::Global;
use crate::place::{Place, Where};
use crate::report;
use std::ffi::OsString;
use tidegate::{Error, Result, error::Refusal};

/// Arguments of `tidegate mv`.
#[derive(clap::Args)]
pub struct Args {
    /// The things to move, and at last their new place: a new name, or a directory to move into
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Moves.
///
/// # Errors
/// The volume cannot be opened, or a name not be moved.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut places: Vec<Place> = args.paths.iter().map(|p| Place::parse(p)).collect();
    // The target may be a path alone: it is in the same volume.
    let last = places.len() - 1;
    if let Some(Where::Host(path)) = args.paths.last().map(|p| Where::parse(p))
        && path.is_absolute()
        && !path.exists()
    {
        let image = places[0].image.clone();
        places[last] = Place { image, path: tidegate::error::path_bytes(&path).to_vec() };
    }
    let volume = global.write_all(&places)?;
    let (to, from) = places.split_last().expect("clap wants two");
    if from.len() > 1 && !volume.find(&to.path, true)?.is_some_and(|d| d.is_dir()) {
        return Err(Error::refused(Refusal::NotADirectory, to.to_string(), "not a directory"));
    }
    for p in from {
        global.or_fail(volume.rename(&p.path, &to.path));
    }
    report::after_change(global, Ok(()), volume)
}
