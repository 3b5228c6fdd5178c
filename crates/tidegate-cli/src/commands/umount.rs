//! `tidegate umount`: unmounts, and waits until the volume is written.
//!
//! umount(8) and fusermount3 return when the kernel has unmounted. The serving process then still has to write dirty
//! data, and keeps the image locked for that time.

use crate::global::Global;
use crate::out::{self, Out};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::error::{Refusal, path_bytes, show};
use tidegate::{Error, Result};
use tidegate_fuse::control::Client;
use tidegate_fuse::control::address::{self, Mounted};
use tidegate_fuse::mount::{is_dead, unmount};
use tidegate_rt::thread;

const ELSEWHERE: &str = "mounted elsewhere, too: written when that goes";
/// How often the unmount of a busy mount is tried again, and after how long.
const BUSY: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

/// Arguments of `tidegate umount`.
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted
    directory: PathBuf,
    /// Detach the mount at once, and do not wait: the volume is written when it is no longer in use
    #[arg(long, short)]
    lazy: bool,
}

/// Unmounts; returns when the serving process has ended.
///
/// # Errors
/// No Tidegate volume is mounted there, or it is in use; data could not be written at the end.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let written = end(args)?;
    if !global.json {
        return Ok(());
    }
    let mut out = Out::new();
    out.json(&json!({ "directory": args.directory.display().to_string(), "written": written }))?;
    out.finish()
}

/// Unmounts. Returns whether the whole volume is written, as far as that is known.
fn end(args: &Args) -> Result<bool> {
    let dir = &args.directory;
    let about = |e: io::Error| Error::os(path_bytes(dir), e);
    if args.lazy || is_dead(dir) {
        return unmount(dir, args.lazy).map_err(about).map(|()| false);
    }
    let (mount, elsewhere) = mounted(dir)?;
    if elsewhere {
        let_go(dir).map_err(about)?;
        let dir = show(path_bytes(dir));
        out::note(format_args!("{dir}: {ELSEWHERE}"));
        return Ok(false);
    }
    // The directory also finds mounts whose owner is not the owner of the image.
    let place = if dir.is_dir() { dir.as_path() } else { Path::new(&mount.source) };
    let ending = Client::connect(place).and_then(Client::end);
    let_go(dir).map_err(about)?;
    match ending {
        Ok(ending) => {
            // The volume may also be mounted in another namespace, which is not visible here.
            let written = ending.wait()?;
            if !written {
                out::note(format_args!("{}: {ELSEWHERE}", show(path_bytes(dir))));
            }
            Ok(written)
        }
        Err(e) => Err(about(io::Error::other(format!("unmounted; how it ends is not known: {e}")))),
    }
}

/// The volume that is mounted at `dir`, and whether it is mounted elsewhere, too.
fn mounted(dir: &Path) -> Result<(Mounted, bool)> {
    let about = |e| Error::os(path_bytes(dir), e);
    if let Some(found) = std::fs::canonicalize(dir).ok().and_then(|at| address::mounted_at(&at)) {
        return Ok(found);
    }
    Err(match address::mount_of(dir).map_err(about)? {
        Some(m) => {
            let at = show(m.directory.as_bytes());
            Error::refused(
                Refusal::NotMounted,
                dir,
                format!("not a mount point; the volume is mounted at {at}"),
            )
        }
        None => {
            Error::refused(Refusal::NotMounted, dir, "not a directory, and nothing of ours is mounted there")
        }
    })
}

/// Unmounts. It tries again while the mount is busy: the serving process itself may have a file open for a
/// moment.
fn let_go(dir: &Path) -> io::Result<()> {
    let is_busy = |e: &io::Error| e.kind() == io::ErrorKind::ResourceBusy;
    for _ in 0..BUSY {
        match unmount(dir, false) {
            Err(e) if is_busy(&e) => thread::sleep(PAUSE),
            r => return r,
        }
    }
    unmount(dir, false).map_err(|e| match is_busy(&e) {
        true => io::Error::other(
            "busy: some program has a file open or its working directory there (fuser -vm shows which); \
             with --lazy it is let go of when nobody uses it any more",
        ),
        false => e,
    })
}
