//! A loop mount on the host.

use super::fresh::{Fresh, run};
use super::{Format, joined};
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_uml::programs;

/// The Debian package of mount(8).
const PACKAGE: &str = "mount";

/// Mounts a new volume of `size` bytes, calls `f` on its directory and unmounts it.
pub(crate) fn with_mounted<R>(
    format: Format,
    options: &str,
    size: u64,
    f: impl FnOnce(&Path) -> Result<R>,
) -> Result<R> {
    allowed(rustix::process::geteuid().is_root(), format.name())?;
    let mount = programs::require("mount", PACKAGE)?;
    let fresh = Fresh::new(format, size)?;
    let dir = fresh.beside().join("mnt");
    fs::create_dir(&dir).map_err(|e| Error::host(&dir, e))?;
    let options = joined("loop", options);
    let mut command = Command::new(mount);
    run(command.args(["-t", format.name(), "-o", &options]).arg(fresh.path()).arg(&dir)).map_err(|e| {
        Error::spec(format!("{e} (kernel:{} needs nothing of the host's kernel)", format.name()))
    })?;
    let mounted = Mounted(dir);
    let done = f(&mounted.0);
    let unmounted = mounted.end();
    done.and_then(|r| unmounted.map(|()| r))
}

/// Whether the user of this process may mount.
fn allowed(root: bool, format: &str) -> Result<()> {
    if root {
        return Ok(());
    }
    Err(Error::spec(format!(
        "a loop mount needs root: run this as root, or take kernel:{format}, which does not"
    )))
}

/// A mount, which ends when this is dropped: otherwise its directory could not be removed.
struct Mounted(PathBuf);

impl Mounted {
    fn end(self) -> Result<()> {
        let dir = self.0.clone();
        std::mem::forget(self);
        run(Command::new(programs::require("umount", PACKAGE)?).arg(&dir))
    }
}

impl Drop for Mounted {
    /// Unmounts after a panic.
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_said_with_a_way_out() {
        let e = allowed(false, "ext4").unwrap_err().to_string();
        assert!(e.contains("as root") && e.contains("kernel:ext4"), "{e}");
        allowed(true, "ext4").unwrap();
    }
}
