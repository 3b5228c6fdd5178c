//! Keeps golden volumes between runs; safe for concurrent tests.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use rustix::io::Errno;
use tidegate_rt::clock;

use super::{SPECS, Spec, make, spec};
use crate::ext4::golden as ext4;
use crate::manifest::Manifest;
use crate::workspace;
use crate::zoned::golden as zoned;

/// Raised when the content changes, so that older copies are made anew.
const VERSION: u32 = 1;

/// A golden volume that exists.
///
/// Its files are shared: tests that write work on a [`Golden::copy_to`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Golden {
    /// The image.
    pub image: PathBuf,
    /// The tree that the kernel found in the image, if it could mount it.
    pub manifest: Option<PathBuf>,
    /// The tree that the kernel finds after its recovery from the power cut, if there was one.
    pub recovered: Option<PathBuf>,
}

impl Golden {
    pub(crate) fn at(dir: &Path, name: &str) -> Self {
        let file = |suffix: &str| dir.join(format!("{name}.{suffix}"));
        let there = |suffix| Some(file(suffix)).filter(|p| p.exists());
        Golden { image: file("img"), manifest: there("jsonl"), recovered: there("recovered.jsonl") }
    }

    /// Loads the manifest.
    pub fn load_manifest(&self) -> Result<Manifest> {
        match &self.manifest {
            Some(path) => Manifest::load(path),
            None => bail!("{} has no manifest", self.image.display()),
        }
    }

    /// Copies the image and keeps its holes.
    pub fn copy_to(&self, to: &Path) -> Result<()> {
        sparse_copy(&self.image, to)
    }
}

/// The default directory of golden volumes: `target/golden`, or `TIDEGATE_GOLDEN_DIR`.
pub fn default_dir() -> PathBuf {
    match std::env::var_os("TIDEGATE_GOLDEN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => workspace::target_dir().join("golden"),
    }
}

/// The volume of that name; makes it if it is missing.
pub fn ensure(name: &str) -> Result<Golden> {
    ensure_in(&default_dir(), name)
}

/// The volume of that name in a directory; makes it if it is missing.
pub fn ensure_in(dir: &Path, name: &str) -> Result<Golden> {
    obtain(dir, spec(name)?, false).map(|(golden, _)| golden)
}

/// Name and purpose of every golden volume.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    let f2fs = SPECS.iter().map(|s| (s.name, s.about));
    let ext4 = ext4::SPECS.iter().map(|s| (s.name, s.about));
    f2fs.chain(ext4).chain(zoned::SPECS.iter().map(|s| (s.name, s.about)))
}

/// Makes all volumes, or the named ones, as many at once as there are CPUs, and prints the time of each.
///
/// # Errors
/// An error of a volume. Volumes under way are completed first; no volume is begun after the error.
pub fn make_all(dir: &Path, only: &[String], force: bool) -> Result<()> {
    let names: Vec<&str> = list().map(|(name, _)| name).collect();
    for name in only {
        ensure!(names.contains(&name.as_str()), "no golden volume is called {name:?}");
    }
    let wanted = |name: &&str| only.is_empty() || only.iter().any(|n| n == name);
    let names: Vec<&str> = names.into_iter().filter(wanted).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || -> Result<()> {
        while let Some(name) = names.get(next.fetch_add(1, Relaxed)).filter(|_| !failed.load(Relaxed)) {
            obtain_loudly(dir, name, force).inspect_err(|_| failed.store(true, Relaxed))?;
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|s| {
        let workers: Vec<_> = (0..workers).map(|_| s.spawn(work)).collect();
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        ends.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn obtain_loudly(dir: &Path, name: &str, force: bool) -> Result<()> {
    let start = clock::now();
    let of_ext4 = ext4::SPECS.iter().find(|s| s.name == name);
    let of_zones = zoned::SPECS.iter().find(|s| s.name == name);
    let (manifest, made) = match (of_ext4, of_zones) {
        (Some(spec), _) => ext4::obtain(dir, spec, force).map(|(golden, made)| (golden.manifest, made))?,
        (_, Some(_)) if crate::zoned::skip_or_fail() => return Ok(()),
        (_, Some(spec)) => zoned::obtain(dir, spec, force).map(|(volume, made)| (volume.manifest, made))?,
        _ => obtain(dir, spec(name)?, force).map(|(golden, made)| (golden.manifest, made))?,
    };
    let state = if made { "made" } else { "cached" };
    let note = if manifest.is_none() { ", no manifest" } else { "" };
    let seconds = clock::now().since(start).duration().as_secs_f64();
    println!("golden {name:<27} {state} in {seconds:.1} s{note}");
    Ok(())
}

fn obtain(dir: &Path, spec: &Spec, force: bool) -> Result<(Golden, bool)> {
    let files = ["img", "jsonl", "recovered.jsonl"];
    let made = once(dir, spec.name, VERSION, &files, force, || make::make(spec, dir))?;
    Ok((Golden::at(dir, spec.name), made))
}

/// Makes the files `NAME.SUFFIX`, of which the first always exists, unless this version of them exists;
/// returns whether they were made. Concurrent callers wait.
pub(crate) fn once(
    dir: &Path,
    name: &str,
    version: u32,
    suffixes: &[&str],
    force: bool,
    make: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let file = |suffix: &str| dir.join(format!("{name}.{suffix}"));
    let lock = File::create(file("lock")).context("creating the lock")?;
    flock(&lock, FlockOperation::LockExclusive).context("locking")?;
    let stamp = file("stamp");
    let want = format!("{version}\n");
    let there = suffixes.first().is_some_and(|s| file(s).exists());
    if there && !force && fs::read_to_string(&stamp).is_ok_and(|s| s == want) {
        return Ok(false);
    }
    for suffix in suffixes.iter().copied().chain(["stamp"]) {
        let _ = fs::remove_file(file(suffix));
    }
    make().with_context(|| format!("making golden volume {name}"))?;
    fs::write(&stamp, want).context("writing the stamp")?;
    Ok(true)
}

/// Copies a file's data and keeps its holes.
pub fn sparse_copy(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).with_context(|| format!("opening {}", from.display()))?;
    let target = File::create(to).with_context(|| format!("creating {}", to.display()))?;
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let start = match seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e).context("seeking data"),
        };
        let end = seek(&source, SeekFrom::Hole(start)).context("seeking a hole")?;
        at = start;
        while at < end {
            let part = &mut buf[..(end - at).min(1 << 20) as usize];
            source.read_exact_at(part, at)?;
            target.write_all_at(part, at)?;
            at += part.len() as u64;
        }
    }
    Ok(())
}
