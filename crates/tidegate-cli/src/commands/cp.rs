//! `tidegate cp`.

use crate::bar::Bar;
use crate::global::Global;
use crate::out::Out;
use crate::place::{Place, Where};
use crate::{out, report};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::import::{ImportOptions, Over, Source, Target};
use tidegate::vfs::{Cred, FileType, OpenFlags};
use tidegate::within::within;
use tidegate::{Error, Progress, Result, Summary, Volume, export, import};

/// Arguments of `tidegate cp`.
#[derive(clap::Args)]
#[command(override_usage = "tidegate cp [OPTIONS] SRC... DST")]
pub struct Args {
    /// Accepted for habit; directories are always copied whole
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Also set owner, mode, times and attributes of an existing file that is written into, and of an existing
    /// directory on the host
    #[arg(short, long)]
    preserve: bool,
    /// Print the copy's figures: files, bytes, time
    #[arg(short, long)]
    verbose: bool,
    /// The sources, then the destination: one side on the host, the other in a volume (IMAGE:/path); `-` is standard
    /// input or output
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Bytes of a stream read at once.
const CHUNK: usize = 1 << 20;

/// Copies. A failure is reported, and the rest goes on.
///
/// # Errors
/// The obstacle to all of it.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // Directories are always copied whole; the option is there for habit.
    let _ = args.recursive;
    let (to, from) = args.paths.split_last().expect("clap wants two");
    let from: Vec<Where> = from.iter().map(|p| Where::parse(p)).collect();
    match Where::parse(to) {
        Where::Volume(to) => match &from[..] {
            [Where::Host(from)] if from == Path::new("-") => stream_in(&to, global),
            from => inward(from, &to, args, global),
        },
        Where::Host(to) if to == Path::new("-") => stream_out(&from, global),
        Where::Host(to) => outward(&from, export::To { path: to, attributes: args.preserve }, args, global),
    }
}

/// Makes a file of what comes on standard input, or replaces its content.
fn stream_in(to: &Place, global: &Global) -> Result<()> {
    let volume = global.write(to)?;
    let done = || -> Result<()> {
        let fails = |e| volume.error_at(&to.path, e);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let file = volume.vfs().open_path(&Cred::ROOT, &to.path, flags, 0o644).map_err(fails)?;
        let (mut buf, mut at) = (vec![0; CHUNK], 0);
        loop {
            let n = std::io::stdin().read(&mut buf).map_err(|e| Error::Os("standard input".into(), e))?;
            if n == 0 {
                return Ok(());
            }
            file.write_at(at, &buf[..n]).map_err(fails)?;
            at += n as u64;
        }
    };
    let done = done();
    report::after_change(global, done, volume)
}

/// Writes files to standard output.
fn stream_out(from: &[Where], global: &Global) -> Result<()> {
    let mut out = Out::new();
    for f in from {
        let Where::Volume(place) = f else { return Err(no_volume(f)) };
        super::cat::copy(place, global, &mut out)?;
    }
    out.finish()
}

fn no_volume(of: &Where) -> Error {
    let shown = match of {
        Where::Host(p) => show(path_bytes(p)),
        Where::Volume(p) => p.to_string(),
    };
    Error::argument(shown, "neither side is in a volume; name a place there as IMAGE:/path")
}

fn inward(from: &[Where], to: &Place, args: &Args, global: &Global) -> Result<()> {
    let mut sources = Vec::new();
    for f in from {
        match f {
            Where::Host(path) => sources.push(path),
            Where::Volume(p) => {
                return Err(Error::argument(p.to_string(), "copying from volume to volume is not supported"));
            }
        }
    }
    let progress = Arc::new(Progress::default());
    let volume = global.write(to)?;
    let several = sources.len() > 1;
    if several && !volume.find(&to.path, true)?.is_some_and(|d| d.is_dir()) {
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
    let mut last = None;
    let mut notes = Vec::new();
    for source in &sources {
        let target = target(&volume, to, source).and_then(|t| over(&volume, source, t, args.preserve));
        let tree = Source::Tree(source.to_path_buf());
        let began = target.is_ok() && source.is_dir();
        match target.and_then(|target| import::import(&volume, tree, target, &options)) {
            Ok(done) => notes.extend(done.notes),
            Err(e) if e.ends_changes() => {
                last = Some(e);
                break;
            }
            Err(e) if began => {
                let rest = format_args!("the rest of {} is not copied", show(path_bytes(source)));
                global.fail(&e.and(rest));
            }
            Err(e) => global.fail(&e),
        }
    }
    let summary = volume.unmount();
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

/// Where in the volume `source` goes: into a directory that is there, else under the name given.
fn target(volume: &Volume, to: &Place, source: &Path) -> Result<Target> {
    if let Some(dir) = volume.find(&to.path, true)?
        && dir.is_dir()
    {
        let whole = matches!(path_bytes(source), b"." | b"..") || path_bytes(source).ends_with(b"/.");
        let name = source.file_name().filter(|_| !whole).map(|n| n.as_bytes().to_vec());
        return Ok(Target { dir, path: to.path.clone(), name, over: None });
    }
    let Some(name) = to.name() else {
        return Err(volume.complain(Refusal::NotADirectory, &to.path, "no such directory"));
    };
    if to.path.ends_with(b"/") && !source.is_dir() {
        return Err(volume.complain(Refusal::NotADirectory, &to.path, "no such directory"));
    }
    let end = to.path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let parent = &to.path[..end - name.len()];
    let dir = volume.resolve_dir(parent)?;
    Ok(Target { dir, path: parent.to_vec(), name: Some(name.to_vec()), over: None })
}

/// A file is written into the one that is there, as with cp(1): links are followed, and names stay.
fn over(volume: &Volume, source: &Path, target: Target, attributes: bool) -> Result<Target> {
    let Some(name) = target.name.as_deref().filter(|_| is_file(source)) else { return Ok(target) };
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

/// Whether it is a file, and no link to one.
fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file())
}

fn outward(from: &[Where], to: export::To, args: &Args, global: &Global) -> Result<()> {
    let mut places = Vec::new();
    for f in from {
        match f {
            Where::Volume(p) => places.push(p),
            Where::Host(_) => return Err(no_volume(f)),
        }
    }
    if places.len() > 1 && !to.path.is_dir() {
        return Err(Error::refused(Refusal::NotADirectory, show(path_bytes(&to.path)), "not a directory"));
    }
    let progress = Arc::new(Progress::default());
    let mut out = Outward { to, summary: Summary::default(), notes: Vec::new(), to_stdout: false };
    let bar = Bar::new(&progress, global.quiet);
    for place in &places {
        match out.copy(place, global, &progress) {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => global.fail(&e),
        }
    }
    drop(bar);
    out::notes(&out.notes);
    if !out.to_stdout && (args.verbose || global.json) {
        report::print(global, &report::with_progress(out.summary, &progress), &[])?;
    }
    Ok(())
}

struct Outward {
    to: export::To,
    /// Of the last.
    summary: Summary,
    notes: Vec<String>,
    /// A content went to what standard output is: nothing else may.
    to_stdout: bool,
}

impl Outward {
    /// Copies one; whether more can be written.
    fn copy(&mut self, place: &Place, global: &Global, progress: &Arc<Progress>) -> Result<bool> {
        let volume = global.read(place)?;
        let inode = volume.resolve(&place.path, false)?;
        let path = host_target(place, inode.is_dir(), &self.to.path)?;
        self.to_stdout |= is_stdout(&path);
        let from = export::From { inode, path: place.path.clone() };
        let to = export::To { path, ..self.to };
        let done = export::to_host(&volume, &from, to, progress, &global.failed());
        drop(from);
        let unmounted = volume.unmount();
        match done {
            Ok(done) => self.notes.extend(done.notes),
            Err(e) => {
                global.fail(&e);
                return Ok(false);
            }
        }
        self.summary = unmounted?;
        Ok(true)
    }
}

/// Whether `path` leads to what standard output is.
fn is_stdout(path: &Path) -> bool {
    let Ok(to) = std::fs::metadata(path) else { return false };
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    stdout.and_then(|f| f.metadata()).is_ok_and(|m| (m.dev(), m.ino()) == (to.dev(), to.ino()))
}

/// Where on the host a place goes.
fn host_target(place: &Place, is_dir: bool, to: &Path) -> Result<PathBuf> {
    let name = place.name().map(|n| OsString::from_vec(n.to_vec()));
    let target = match name {
        _ if !to.is_dir() => to.to_path_buf(),
        Some(name) => to.join(name),
        None => to.to_path_buf(),
    };
    if !to.is_dir() && !is_dir && path_bytes(to).ends_with(b"/") {
        return Err(Error::refused(Refusal::NotADirectory, show(path_bytes(to)), "not a directory"));
    }
    let id = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
    if id(&target).is_some_and(|i| Some(i) == id(&within(&place.image).0)) {
        return Err(Error::argument(show(path_bytes(&target)), "is the image itself"));
    }
    Ok(target)
}
