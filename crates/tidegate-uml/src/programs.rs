//! Finds programs and the guest's modules.

use crate::error::{Error, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The guest's kernel.
pub const KERNEL: &str = "linux.uml";
/// The Debian package that contains the kernel and its modules.
pub const PACKAGE: &str = "user-mode-linux";

const MODULE_ROOT: &str = "/usr/lib/uml/modules";
/// A user's `PATH` often lacks the directories of administration programs.
const EXTRA_DIRS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The directories that are searched for programs, in order.
pub fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(EXTRA_DIRS.iter().map(PathBuf::from)).collect()
}

/// The path of a program, if it is installed.
pub fn find(name: &str) -> Option<PathBuf> {
    directories().into_iter().map(|dir| dir.join(name)).find(|p| is_executable(p))
}

/// Whether the path is a file that may be run.
pub fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The path of a program.
///
/// # Errors
/// It is not installed: the message names `package`, which contains it.
pub fn require(name: &str, package: &'static str) -> Result<PathBuf> {
    find(name).ok_or_else(|| Error::Missing { name: name.into(), package })
}

/// The path of a module of the guest's kernel, such as `f2fs.ko`, if it is installed.
pub fn module(name: &str) -> Option<PathBuf> {
    find_file(Path::new(MODULE_ROOT), name, 8)
}

pub(crate) fn require_module(name: &str) -> Result<PathBuf> {
    module(name).ok_or_else(|| Error::Missing { name: name.into(), package: PACKAGE })
}

/// The file of that name in a directory or at most `depth` levels below it.
pub fn find_file(dir: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let mut below = Vec::new();
    for item in std::fs::read_dir(dir).ok()?.flatten() {
        if item.file_name() == name {
            return Some(item.path());
        }
        if item.file_type().is_ok_and(|t| t.is_dir()) {
            below.push(item.path());
        }
    }
    let next = depth.checked_sub(1)?;
    below.iter().find_map(|d| find_file(d, name, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert!(find("sh").is_some_and(|p| p.is_absolute()));
        let e = require("linux.none", PACKAGE).unwrap_err().to_string();
        assert_eq!(e, "linux.none is not installed (on Debian: apt-get install user-mode-linux)");
    }
}
