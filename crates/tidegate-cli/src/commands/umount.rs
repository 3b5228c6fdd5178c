//! `tidegate umount`: unmounts, and waits until the volume is written.
//!
//! umount(8) and fusermount3 return when the kernel has let go: the serving process still has to write what is
//! dirty, and has the image locked for so long.

use crate::global::Global;
use std::path::PathBuf;
use tidegate::error::{path_bytes, show};
use tidegate::{Error, Result};
use tidegate_fuse::control::{Client, address};
use tidegate_fuse::mount::{is_dead, unmount};

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
    let about = |e: std::io::Error| Error::other(show(path_bytes(dir)), e);
    if args.lazy || is_dead(dir) {
        return unmount(dir, args.lazy).map_err(about);
    }
    address::to_ask(dir).map_err(about)?;
    let ending = Client::connect(dir).and_then(Client::end);
    unmount(dir, false).map_err(about)?;
    match ending {
        Ok(ending) => {
            if !ending.wait()? {
                let dir = show(path_bytes(dir));
                eprintln!("tidegate: note: {dir}: mounted elsewhere, too: written when that goes");
            }
            Ok(())
        }
        Err(e) => Err(about(std::io::Error::other(format!("unmounted; how it ends is not known: {e}")))),
    }
}
