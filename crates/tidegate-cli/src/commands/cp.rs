//! `tidegate cp`.

use crate::bar::Bar;
use crate::global::Global;
use crate::place::{Place, Where};
use crate::{out, report};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::error::path_bytes;
use tidegate::import::{ImportOptions, Source, Target};
use tidegate::{Error, Progress, Result, Volume, export, import};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Copy directories with all that is in them (always so)
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owners, modes, times, attributes and links (always so)
    #[arg(short, long)]
    preserve: bool,
    /// What to copy, and where to: one side on the host, the other in a volume (IMAGE:/path)
    #[arg(required = true, num_args = 2.., value_name = "SRC... DST")]
    paths: Vec<OsString>,
}

/// Copies.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // Both are how it always goes; they are taken for the hands' sake.
    let _ = (args.recursive, args.preserve);
    let (to, from) = args.paths.split_last().expect("clap wants two");
    let from: Vec<Where> = from.iter().map(|p| Where::parse(p)).collect();
    match Where::parse(to) {
        Where::Volume(to) => inward(&from, &to, global),
        Where::Host(to) => outward(&from, &to, global),
    }
}

fn inward(from: &[Where], to: &Place, global: &Global) -> Result<()> {
    let mut sources = Vec::new();
    for f in from {
        match f {
            Where::Host(path) => sources.push(path),
            Where::Volume(p) => {
                return Err(Error::other(p.to_string(), "copying from volume to volume is not supported"));
            }
        }
    }
    let progress = Arc::new(Progress::default());
    let volume = global.write(to)?;
    let bar = Bar::new(&progress, global.quiet);
    let id = std::fs::metadata(&to.image).ok();
    let options = ImportOptions {
        skip: id.map(|m| {
            use std::os::unix::fs::MetadataExt;
            (m.dev(), m.ino())
        }),
        progress: progress.clone(),
        ..Default::default()
    };
    let mut notes = Vec::new();
    for source in &sources {
        let target = target(&volume, to, source, sources.len() > 1)?;
        let source = Source::Tree(source.to_path_buf());
        notes.extend(import::import(&volume, source, target, &options)?.notes);
    }
    let summary = volume.unmount();
    drop(bar);
    out::notes(&notes);
    report::print(global, &report::with_progress(summary?, &progress), &[])
}

/// Where in the volume `source` goes: into a directory that is there, else under the name given.
fn target(volume: &Volume, to: &Place, source: &Path, several: bool) -> Result<Target> {
    if let Some(dir) = volume.find(&to.path, true)?
        && dir.is_dir()
    {
        let whole = matches!(path_bytes(source), b"." | b"..") || path_bytes(source).ends_with(b"/.");
        let name = source.file_name().filter(|_| !whole).map(|n| n.as_bytes().to_vec());
        return Ok(Target { dir, path: to.path.clone(), name });
    }
    if several {
        return Err(volume.complain(&to.path, "not a directory"));
    }
    let Some(name) = to.name() else { return Err(volume.complain(&to.path, "no such directory")) };
    if to.path.ends_with(b"/") && !source.is_dir() {
        return Err(volume.complain(&to.path, "no such directory"));
    }
    let end = to.path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let parent = &to.path[..end - name.len()];
    Ok(Target { dir: volume.resolve_dir(parent)?, path: parent.to_vec(), name: Some(name.to_vec()) })
}

fn outward(from: &[Where], to: &Path, global: &Global) -> Result<()> {
    let mut places = Vec::new();
    for f in from {
        match f {
            Where::Volume(p) => places.push(p),
            Where::Host(p) => {
                return Err(Error::other(
                    p.display().to_string(),
                    "neither side is in a volume; name a place there as IMAGE:/path",
                ));
            }
        }
    }
    let progress = Arc::new(Progress::default());
    let mut summary = None;
    let mut notes = Vec::new();
    let bar = Bar::new(&progress, global.quiet);
    for place in &places {
        let volume = global.read(place)?;
        let inode = volume.resolve(&place.path, false)?;
        let to = host_target(place, inode.is_dir(), to, places.len() > 1)?;
        let from = export::From { inode, path: place.path.clone() };
        notes.extend(export::to_host(&volume, &from, to, &progress)?.notes);
        drop(from);
        summary = Some(volume.unmount()?);
    }
    drop(bar);
    out::notes(&notes);
    match summary {
        Some(s) => report::print(global, &report::with_progress(s, &progress), &[]),
        None => Ok(()),
    }
}

/// Where on the host a place goes.
fn host_target(place: &Place, is_dir: bool, to: &Path, several: bool) -> Result<PathBuf> {
    let name = place.name().map(|n| OsString::from_vec(n.to_vec()));
    if to.is_dir() {
        return Ok(name.map_or_else(|| to.to_path_buf(), |n| to.join(n)));
    }
    if several || !is_dir && path_bytes(to).ends_with(b"/") {
        return Err(Error::other(to.display().to_string(), "not a directory"));
    }
    Ok(to.to_path_buf())
}
