//! Copies into a volume: from the host, from another volume, or within the volume.

use super::Args;
use crate::bar::Bar;
use crate::global::Global;
use crate::place::{Place, Where, twice};
use crate::{out, report};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::import::{ImportOptions, Over, Source, Target, import};
use tidegate::vfs::FileType;
use tidegate::within::within;
use tidegate::{Progress, Result, Volume, export};

/// One source, found.
struct Origin {
    source: Source,
    /// Its name, if it has one. The content of `dir/.` has none.
    name: Option<Vec<u8>>,
    is_dir: bool,
    /// Whether it is a regular file, not a link to one.
    is_file: bool,
    /// It is a directory, whose content joins that of an earlier one.
    merges: bool,
    /// The volume that was opened only for it.
    other: Option<Arc<Volume>>,
}

/// Copies all of `from`. A failure is reported, and the copy goes on.
///
/// # Errors
/// An obstacle to the whole copy.
pub fn copy(from: &[Where], to: &Place, args: &Args, global: &Global) -> Result<()> {
    let progress = Arc::new(Progress::default());
    let volume = Arc::new(global.write(to)?);
    if from.len() > 1 && !volume.find(&to.path, true)?.is_some_and(|d| d.is_dir()) {
        return Err(volume.complain(Refusal::NotADirectory, &to.path, "not a directory"));
    }
    let bar = Bar::new(&progress, global.quiet);
    let id = std::fs::metadata(within(&to.image).0).ok();
    let options = ImportOptions {
        skip: id.map(|m| (m.dev(), m.ino())).into_iter().collect(),
        failed: Some(global.failed()),
        progress: progress.clone(),
        ..Default::default()
    };
    let (mut last, mut notes, mut made) = (None, Vec::new(), HashSet::new());
    for f in from {
        match one(f, &volume, to, args, &options, (global, &mut made)) {
            Ok(more) => notes.extend(more),
            Err(e) if e.ends_changes() => {
                last = Some(e);
                break;
            }
            Err(e) => global.fail(&e),
        }
    }
    let summary = Arc::into_inner(volume).expect("no source is open any more").unmount();
    drop(bar);
    out::notes(&notes);
    let summary = match (last, summary) {
        (None, summary) => summary?,
        (Some(e), Err(_)) => return Err(e),
        (Some(e), Ok(summary)) => {
            global.fail(&e.and("the copy ends here; what was copied before stays"));
            summary
        }
    };
    if args.verbose || global.json {
        report::print(global, &report::with_progress(summary, &progress), &[])?;
    }
    Ok(())
}

/// Copies one source. Returns its notes. `made` holds the names of the files that were copied before.
fn one(
    from: &Where,
    volume: &Arc<Volume>,
    to: &Place,
    args: &Args,
    options: &ImportOptions,
    (global, made): (&Global, &mut HashSet<Vec<u8>>),
) -> Result<Vec<String>> {
    let Origin { source, name, is_dir, is_file, merges, other } = find(from, volume, to, global)?;
    // Directories are put together.
    let single = name.clone().filter(|_| !merges);
    if single.as_ref().is_some_and(|name| made.contains(name)) {
        return Err(twice(&shown(from)));
    }
    let target = target(volume, to, name, is_dir)?;
    let target = if is_file { over(volume, target, args.preserve)? } else { target };
    let copied = import(volume, source, target, options);
    let let_go = other.and_then(Arc::into_inner).map(Volume::unmount);
    match copied {
        Err(e) if is_dir && !e.ends_changes() && e.refusal() != Some(Refusal::Argument) => {
            Err(e.and(format_args!("the rest of {} is not copied", shown(from))))
        }
        Err(e) => Err(e),
        Ok(done) => {
            let_go.transpose()?;
            made.extend(single);
            Ok(done.notes)
        }
    }
}

fn shown(from: &Where) -> String {
    match from {
        Where::Host(path) => show(path_bytes(path)),
        Where::Volume(place) => place.to_string(),
    }
}

/// Finds a source. A source in the target volume is read through the volume that is already open.
fn find(from: &Where, volume: &Arc<Volume>, to: &Place, global: &Global) -> Result<Origin> {
    let place = match from {
        Where::Host(path) => return Ok(on_host(path)),
        Where::Volume(place) => place,
    };
    let other = if place.is_in_volume_of(to) { None } else { Some(Arc::new(global.read(place)?)) };
    global.opening(&to.image);
    let of = other.as_ref().unwrap_or(volume);
    let inode = of.resolve(&place.path, false)?;
    Ok(Origin {
        name: place.name().map(<[u8]>::to_vec),
        is_dir: inode.is_dir(),
        merges: inode.is_dir(),
        is_file: inode.file_type == FileType::Regular,
        source: Source::Volume(of.clone(), export::From { inode, path: place.path.clone() }),
        other,
    })
}

fn on_host(path: &Path) -> Origin {
    let whole = matches!(path_bytes(path), b"." | b"..") || path_bytes(path).ends_with(b"/.");
    Origin {
        name: path.file_name().filter(|_| !whole).map(|n| n.as_bytes().to_vec()),
        is_dir: path.is_dir(),
        // A link to a directory is copied as a link, unless a slash follows.
        merges: path.is_dir() && (whole || path_bytes(path).ends_with(b"/") || !path.is_symlink()),
        is_file: std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()),
        source: Source::Tree(path.to_path_buf()),
        other: None,
    }
}

/// The target of a source in the volume: in an existing directory, else under the given name.
fn target(volume: &Volume, to: &Place, source: Option<Vec<u8>>, is_dir: bool) -> Result<Target> {
    if let Some(dir) = volume.find(&to.path, true)?
        && dir.is_dir()
    {
        return Ok(Target { dir, path: to.path.clone(), name: source, over: None });
    }
    let Some(name) = to.name() else {
        return Err(volume.complain(Refusal::NotADirectory, &to.path, "no such directory"));
    };
    if to.path.ends_with(b"/") && !is_dir {
        return Err(volume.complain(Refusal::NotADirectory, &to.path, "no such directory"));
    }
    let end = to.path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let parent = &to.path[..end - name.len()];
    let dir = volume.resolve_dir(parent)?;
    Ok(Target { dir, path: parent.to_vec(), name: Some(name.to_vec()), over: None })
}

/// Turns the target into an existing file that is overwritten, as with cp(1): links are followed, and names
/// stay.
fn over(volume: &Volume, target: Target, attributes: bool) -> Result<Target> {
    let Some(name) = target.name.as_deref() else { return Ok(target) };
    let path = tidegate::paths::join(&target.path, name);
    let refused = |why| Err(volume.complain(Refusal::Occupied, &path, why));
    match volume.find(&path, true)? {
        Some(inode) if inode.file_type == FileType::Regular => {
            Ok(Target { over: Some(Over { inode, attributes }), ..target })
        }
        Some(inode) if inode.is_dir() => Ok(target),
        Some(_) => refused("not a file that can be written into; remove it first"),
        None if volume.find(&path, false)?.is_some() => refused("a link to something that is not there"),
        None => Ok(target),
    }
}
