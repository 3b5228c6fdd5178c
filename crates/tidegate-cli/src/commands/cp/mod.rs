//! `tidegate cp`.
//!
//! | module | holds |
//! |---|---|
//! | `inward` | into a volume, from the host or from a volume |

mod inward;

use crate::bar::Bar;
use crate::global::Global;
use crate::out::Out;
use crate::place::{Place, Where, twice};
use crate::{out, report};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::vfs::{Cred, OpenFlags};
use tidegate::within::within;
use tidegate::{Error, Progress, Result, Summary, export};

/// Arguments of `tidegate cp`.
#[derive(clap::Args)]
#[command(override_usage = "tidegate cp [OPTIONS] SRC... DST")]
pub struct Args {
    /// Accepted for habit; directories are always copied whole
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Accepted for habit; what is made anew always gets all attributes, and links are copied as links
    #[arg(short, long)]
    archive: bool,
    /// Also set owner, mode, times and attributes of an existing file that is written into, and of an existing
    /// directory on the host
    #[arg(short, long)]
    preserve: bool,
    /// To the host: everything belongs to the caller, without set-id bits and capabilities
    #[arg(long)]
    no_same_owner: bool,
    /// To the host: take away the bits of the umask, set-id and sticky bits, and ACLs
    #[arg(long)]
    no_same_permissions: bool,
    /// Print the copy's figures: files, bytes, time
    #[arg(short, long)]
    verbose: bool,
    /// The sources, then the destination: one side, or both, in a volume (IMAGE:/path), the other on the host; `-` is
    /// standard input or output
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

/// The reason why there is no JSON on standard output.
const CONTENT_GOES_OUT: &str = "standard output takes the file itself; stat --json describes it";
/// Bytes of a stream that are read at once.
const CHUNK: usize = 1 << 20;

impl Args {
    fn drops_attributes(&self) -> bool {
        self.no_same_owner || self.no_same_permissions
    }
}

/// Copies. A failure is reported, and the copy goes on.
///
/// # Errors
/// The obstacle to all of it.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // The options have no effect: their behaviour is the default.
    let _ = (args.recursive, args.archive);
    let (to, from) = args.paths.split_last().expect("clap wants two");
    let from: Vec<Where> = from.iter().map(|p| Where::parse(p)).collect();
    let to = Where::parse(to);
    if args.drops_attributes() && (to == Where::Host("-".into()) || matches!(to, Where::Volume(_))) {
        return Err(Error::argument("--no-same-owner, --no-same-permissions", "for copies to the host"));
    }
    match to {
        Where::Volume(to) => match &from[..] {
            [Where::Host(from)] if from == Path::new("-") => {
                stream_in(&to, &mut std::io::stdin(), "standard input", global)
            }
            [Where::Host(from)] if is_linked_pipe(from) => {
                let name = show(path_bytes(from));
                let mut file = File::open(from).map_err(|e| Error::os(path_bytes(from), e))?;
                stream_in(&to, &mut file, &name, global)
            }
            from => inward::copy(from, &to, args, global),
        },
        Where::Host(to) if to == Path::new("-") => stream_out(&from, global),
        Where::Host(path) => {
            let (owners, permissions) = (!args.no_same_owner, !args.no_same_permissions);
            let to = export::To {
                path,
                inside: false,
                attributes: args.preserve,
                owners,
                permissions,
                image: None,
            };
            outward(&from, to, args, global)
        }
    }
}

/// Whether it is a link to a pipe, such as `<(…)` and /dev/stdin in a shell. A fifo that is given by its own name is
/// copied as a fifo.
fn is_linked_pipe(path: &Path) -> bool {
    path.is_symlink() && std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

/// Makes a file with the content of the stream `from`, called `name`, or replaces the content of an existing
/// file.
fn stream_in(to: &Place, from: &mut dyn Read, name: &str, global: &Global) -> Result<()> {
    let volume = global.write(to)?;
    let mut done = || -> Result<()> {
        let fails = |e| volume.error_at(&to.path, e);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let file = volume.vfs().open_path(&Cred::ROOT, &to.path, flags, 0o644).map_err(fails)?;
        let (mut buf, mut at) = (vec![0; CHUNK], 0);
        loop {
            let n = from.read(&mut buf).map_err(|e| Error::Os(name.into(), e))?;
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
    global.refuse_json(CONTENT_GOES_OUT)?;
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

fn outward(from: &[Where], to: export::To, args: &Args, global: &Global) -> Result<()> {
    let mut places = Vec::new();
    for f in from {
        match f {
            Where::Volume(p) => places.push(p),
            Where::Host(_) => return Err(no_volume(f)),
        }
    }
    if places.len() > 1 && !to.path.is_dir() {
        return Err(Error::refused(Refusal::NotADirectory, &to.path, "not a directory"));
    }
    let progress = Arc::new(Progress::default());
    let (summary, notes) = (Summary::default(), Vec::new());
    let mut out = Outward { to, summary, notes, to_stdout: false, made: HashSet::new() };
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
    /// The summary of the last copy.
    summary: Summary,
    notes: Vec<String>,
    /// The content of a file went to the file of standard output: no other output may go there.
    to_stdout: bool,
    /// The files that were copied into the target directory.
    made: HashSet<PathBuf>,
}

impl Outward {
    /// Copies one source. Returns whether more can be written.
    fn copy(&mut self, place: &Place, global: &Global, progress: &Arc<Progress>) -> Result<bool> {
        let volume = global.read(place)?;
        let inode = volume.resolve(&place.path, false)?;
        let (path, inside) = host_target(place, inode.is_dir(), &self.to.path)?;
        let single = (inside && !inode.is_dir()).then(|| path.clone());
        if single.as_ref().is_some_and(|path| self.made.contains(path)) {
            return Err(twice(&place.to_string()));
        }
        self.to_stdout |= is_stdout(&path);
        if self.to_stdout {
            global.refuse_json(CONTENT_GOES_OUT)?;
        }
        let from = export::From { inode, path: place.path.clone() };
        let image = id(&within(&place.image).0);
        let to = export::To { path, inside, image, ..self.to };
        let done = export::to_host(&volume, &from, to, progress, &global.failed());
        drop(from);
        let unmounted = volume.unmount();
        match done {
            Ok(done) => {
                self.notes.extend(done.notes);
                self.made.extend(single);
            }
            Err(e) => {
                global.fail(&e);
                return Ok(false);
            }
        }
        self.summary = unmounted?;
        Ok(true)
    }
}

/// Whether `path` leads to the file of standard output.
fn is_stdout(path: &Path) -> bool {
    let Ok(to) = std::fs::metadata(path) else { return false };
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    stdout.and_then(|f| f.metadata()).is_ok_and(|m| (m.dev(), m.ino()) == (to.dev(), to.ino()))
}

/// The numbers that tell a file from all others.
fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// The target of a place on the host, and whether its last name is the place's.
fn host_target(place: &Place, is_dir: bool, to: &Path) -> Result<(PathBuf, bool)> {
    let name = place.name().map(|n| OsString::from_vec(n.to_vec()));
    let (target, inside) = match name.filter(|_| to.is_dir()) {
        Some(name) => (to.join(name), true),
        None => (to.to_path_buf(), false),
    };
    if !to.is_dir() && !is_dir && path_bytes(to).ends_with(b"/") {
        return Err(Error::refused(Refusal::NotADirectory, to, "not a directory"));
    }
    if id(&target).is_some_and(|i| Some(i) == id(&within(&place.image).0)) {
        return Err(Error::argument(&target, "is the image itself"));
    }
    Ok((target, inside))
}
