//! `tidegate sync`: makes all data and changes of a mounted volume durable.
//!
//! sync(2) and syncfs(2) end in the kernel's FUSE client, which sends its dirty pages but does not ask the
//! server to make them durable.

use crate::global::Global;
use crate::out::Out;
use serde_json::json;
use std::io::ErrorKind;
use std::path::PathBuf;
use tidegate::error::path_bytes;
use tidegate::{Error, Result};
use tidegate_fuse::control::address;

/// Arguments of `tidegate sync`.
#[derive(clap::Args)]
pub struct Args {
    /// Where volumes are mounted, or anything below
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Syncs the volumes, one after the other.
///
/// # Errors
/// A directory is in no mounted volume; data could not be written.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut done = Vec::new();
    for dir in &args.dirs {
        let synced = tidegate_fuse::ioctl::full_sync(dir).map_err(|e| match e.kind() {
            // The mount table tells the owner of the mount.
            ErrorKind::PermissionDenied => address::mount_of(dir).err().unwrap_or(e),
            _ => e,
        });
        let synced = global.or_fail(synced.map_err(|e| Error::os(path_bytes(dir), e)));
        done.push(json!({ "directory": dir.display().to_string(), "synced": synced.is_some() }));
    }
    if !global.json {
        return Ok(());
    }
    let mut out = Out::new();
    out.json(&done)?;
    out.finish()
}
