//! The independent programs results are checked against.
//!
//! Each is found by name, and each knows which Debian package brings it, so
//! that a bare machine can be made ready by one command.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A program (or kernel module) and the package that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oracle {
    /// The name given to [`require`].
    pub name: &'static str,
    /// The Debian package.
    pub package: &'static str,
}

const fn oracle(name: &'static str, package: &'static str) -> Oracle {
    Oracle { name, package }
}

/// Every oracle the tests and the benchmark use.
pub const TABLE: &[Oracle] = &[
    oracle("mkfs.f2fs", "f2fs-tools"),
    oracle("fsck.f2fs", "f2fs-tools"),
    oracle("dump.f2fs", "f2fs-tools"),
    oracle("sload.f2fs", "f2fs-tools"),
    oracle("mke2fs", "e2fsprogs"),
    oracle("e2fsck", "e2fsprogs"),
    oracle("debugfs", "e2fsprogs"),
    oracle("dumpe2fs", "e2fsprogs"),
    oracle("linux.uml", "user-mode-linux"),
    oracle("f2fs.ko", "user-mode-linux"),
    oracle("crc32_generic.ko", "user-mode-linux"),
    oracle("fuse2fs", "fuse2fs"),
    oracle("fio", "fio"),
    oracle("setfacl", "acl"),
    oracle("getfattr", "attr"),
    oracle("setfattr", "attr"),
    oracle("fusermount3", "fuse3"),
    oracle("zstd", "zstd"),
    oracle("git", "git"),
];

const MODULE_ROOT: &str = "/usr/lib/uml/modules";
const EXTRA_DIRS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Where the oracle is, if it is installed.
pub fn available(name: &str) -> Option<PathBuf> {
    if name.ends_with(".ko") {
        return find_module(Path::new(MODULE_ROOT), name, 8);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(EXTRA_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|p| is_executable(p))
}

/// Where the oracle is; an error that names its package when it is missing.
pub fn require(name: &str) -> Result<PathBuf> {
    match available(name) {
        Some(path) => Ok(path),
        None => bail!("oracle `{name}` missing (apt-get install {})", package_of(name)),
    }
}

/// For a test to ask whether it must be skipped for want of an oracle.
///
/// # Panics
///
/// Panics when the oracle is missing and `CI=true`: there, a skipped check
/// would pass for a done one.
pub fn skip_or_fail(name: &str) -> bool {
    if available(name).is_some() {
        return false;
    }
    let package = package_of(name);
    if in_ci() {
        panic!("oracle `{name}` missing (apt-get install {package})");
    }
    println!("SKIPPED: oracle `{name}` missing (apt-get install {package})");
    true
}

/// Whether this runs under continuous integration.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v == "true")
}

/// The oracles that are not installed.
pub fn missing() -> Vec<Oracle> {
    TABLE.iter().copied().filter(|o| available(o.name).is_none()).collect()
}

/// Installs what is missing; only root can.
pub fn install_missing() -> Result<()> {
    let lacking = missing();
    if lacking.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = lacking.iter().map(|o| o.package).collect();
    let list = packages.iter().copied().collect::<Vec<_>>().join(" ");
    if !rustix::process::geteuid().is_root() {
        let names = lacking.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
        bail!("missing oracles: {names}; as root, run: apt-get install {list}");
    }
    println!("installing {list}");
    apt(&["update"])?;
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)?;
    let still = missing();
    let names = still.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
    ensure!(still.is_empty(), "still missing after installation: {names}");
    Ok(())
}

/// Prints which oracles are here; says whether all are.
pub fn print_table() -> bool {
    let mut all = true;
    for o in TABLE {
        match available(o.name) {
            Some(path) => println!("{:<18} {}", o.name, path.display()),
            None => {
                all = false;
                println!("{:<18} MISSING (apt-get install {})", o.name, o.package);
            }
        }
    }
    all
}

fn apt(args: &[&str]) -> Result<()> {
    let out = Command::new("apt-get")
        .arg("-q")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("running apt-get")?;
    if !out.status.success() {
        bail!("apt-get {} failed: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

fn package_of(name: &str) -> &'static str {
    TABLE.iter().find(|o| o.name == name).map_or("?", |o| o.package)
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn find_module(dir: &Path, name: &str, depth: u32) -> Option<PathBuf> {
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
    below.iter().find_map(|d| find_module(d, name, next))
}
