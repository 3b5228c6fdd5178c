//! `tidegate mv`.

use crate::global::Global;
use crate::place::{Place, Where, twice};
use crate::report;
use std::collections::HashSet;
use std::ffi::OsString;
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::{Error, Result};

/// Arguments of `tidegate mv`.
#[derive(clap::Args)]
pub struct Args {
    /// The things to move, and at last their new place in the same volume: a new name, or a directory to move into
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Moves.
///
/// # Errors
/// A path has no image; the volume cannot be opened, or a name cannot be moved.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.paths.iter().map(|p| Place::parse(p)).collect();
    refuse_host(args, &places)?;
    let volume = global.write_all(&places)?;
    let (to, from) = places.split_last().expect("clap wants two");
    if from.len() > 1 && !volume.find(&to.path, true)?.is_some_and(|d| d.is_dir()) {
        return Err(Error::refused(Refusal::NotADirectory, to.to_string(), "not a directory"));
    }
    let mut made = HashSet::new();
    for p in from {
        // A second file of the name would take the place of the first.
        if from.len() > 1 && p.name().is_some_and(|name| made.contains(name)) {
            global.fail(&twice(&p.to_string()));
        } else if global.or_fail(volume.rename(&p.path, &to.path)).is_some() {
            made.extend(p.name());
        }
    }
    report::after_change(global, Ok(()), volume)
}

/// Refuses a path without an image beside one with an image: it may be meant to be on the host or in the volume. An
/// image without a path means its root.
fn refuse_host(args: &Args, places: &[Place]) -> Result<()> {
    let wheres: Vec<Where> = args.paths.iter().map(|p| Where::parse(p)).collect();
    let volume = wheres.iter().find_map(|w| if let Where::Volume(p) = w { Some(p) } else { None });
    let Some(volume) = volume else { return Ok(()) };
    let is_elsewhere = |(w, p): &(&Where, &Place)| matches!(w, Where::Host(_)) && !p.is_in_volume_of(volume);
    let Some((_, place)) = wheres.iter().zip(places).find(is_elsewhere) else { return Ok(()) };
    let (path, image) = (show(path_bytes(&place.image)), show(path_bytes(&volume.image)));
    Err(Error::argument(
        path.clone(),
        format!(
            "not in a volume; a path in this one is written {image}:{}, and cp copies to and from the host",
            slashed(&path)
        ),
    ))
}

/// A path in the form behind an image.
fn slashed(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}
