//! `tidegate sync`: makes everything durable that a mounted volume was given.
//!
//! sync(2) and syncfs(2) end in the kernel's FUSE client, which hands over what it holds and asks nobody to
//! make it durable.

use crate::global::Global;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate::error::path_bytes;
use tidegate::{Error, Result};
use tidegate_fuse::control::address;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where volumes are mounted, or anything below
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Syncs the volumes, one after the other.
///
/// # Errors
/// The directory that is in no mounted volume; what could not be written.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    for dir in &args.dirs {
        let synced = match tidegate_fuse::ioctl::full_sync(dir) {
            Err(e) if e.kind() == ErrorKind::PermissionDenied => as_owner(dir).unwrap_or(Err(e)),
            r => r,
        };
        global.or_fail(synced.map_err(|e| Error::os(path_bytes(dir), e)));
    }
    Ok(())
}

/// Has it done by the user who mounted, where the superuser is not let in; `None` where that is of no use.
fn as_owner(dir: &Path) -> Option<io::Result<()>> {
    let mount = address::mount_of(dir).ok()??;
    if !rustix::process::geteuid().is_root() || mount.owner == 0 {
        return None;
    }
    let dir = std::path::absolute(dir).ok()?;
    let mut sync = Command::new("/proc/self/exe");
    sync.arg0("tidegate").arg("sync").arg(dir).uid(mount.owner).gid(mount.group);
    let out = match sync.output() {
        Ok(out) => out,
        Err(e) => return Some(Err(e)),
    };
    let said = String::from_utf8_lossy(&out.stderr);
    let why = said.trim().strip_prefix("tidegate: ").unwrap_or(said.trim());
    Some(if out.status.success() { Ok(()) } else { Err(io::Error::other(why)) })
}
