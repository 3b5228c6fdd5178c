//! `tidegate umount`: unmounts, and waits until the volume is written.
//!
//! umount(8) and fusermount3 return when the kernel has let go: the serving process still has to write what is
//! dirty, and has the image locked for so long.

use crate::global::Global;
use crate::out;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::error::{path_bytes, show};
use tidegate::{Error, Result};
use tidegate_fuse::control::{Client, address};
use tidegate_fuse::mount::{is_dead, unmount};
use tidegate_rt::thread;

/// How often a busy mount is tried again, and after how long.
const BUSY: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted
    directory: PathBuf,
    /// Let go of the name at once, and do not wait: the volume is written when nobody uses it any more
    #[arg(long, short)]
    lazy: bool,
}

/// Unmounts; returns when the serving process has ended.
///
/// # Errors
/// Nothing of ours is mounted there, or it is in use; what could not be written at last.
pub fn run(args: &Args, _global: &Global) -> Result<()> {
    let dir = &args.directory;
    let about = |e: io::Error| Error::os(path_bytes(dir), e);
    if args.lazy || is_dead(dir) {
        return unmount(dir, args.lazy).map_err(about);
    }
    check_mountpoint(dir)?;
    let ending = Client::connect(dir).and_then(Client::end);
    let_go(dir).map_err(about)?;
    match ending {
        Ok(ending) => {
            if !ending.wait()? {
                let dir = show(path_bytes(dir));
                out::note(format_args!("{dir}: mounted elsewhere, too: written when that goes"));
            }
            Ok(())
        }
        Err(e) => Err(about(io::Error::other(format!("unmounted; how it ends is not known: {e}")))),
    }
}

/// Refuses what is in a mount, but not where it is mounted.
fn check_mountpoint(dir: &Path) -> Result<()> {
    let mount = address::mount_of(dir).map_err(|e| Error::os(path_bytes(dir), e))?;
    let wrong = |why: String| Err(Error::other(show(path_bytes(dir)), why));
    let Some(mount) = mount else { return wrong("not a directory".into()) };
    match std::fs::canonicalize(dir) {
        Ok(at) if !address::is_mounted_at(&at) => {
            wrong(format!("not a mount point; the volume is mounted at {}", show(mount.directory.as_bytes())))
        }
        _ => Ok(()),
    }
}

/// Unmounts. The serving process itself may have a file open for a moment.
fn let_go(dir: &Path) -> io::Result<()> {
    let is_busy = |e: &io::Error| {
        e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) || e.to_string().contains("busy")
    };
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
