//! Where the workspace, its target directory and the helper program are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The workspace root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The cargo target directory.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo to call: the cargo that called this program, if any.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds the shipped program and returns its path.
///
/// # Errors
/// It does not build.
pub fn build_tidegate() -> Result<PathBuf> {
    build_release(&["--bin", "tidegate", "-p", "tidegate-cli"])?;
    Ok(target_dir().join("release/tidegate"))
}

/// Builds the targets that these arguments of `cargo build` select, for release.
///
/// # Errors
/// It does not build.
pub fn build_release(what: &[&str]) -> Result<()> {
    let status = Command::new(cargo())
        .args(["build", "--quiet", "--release"])
        .args(what)
        .current_dir(root())
        .status()
        .context("running cargo build")?;
    ensure!(status.success(), "building {} failed: {status}", what.join(" "));
    Ok(())
}

/// The `xtask` executable, which guests run as their init and test helper.
///
/// Test binaries of other crates link this library but are not that executable. So it is searched for in
/// `XTASK_BIN`, then beside the running program, and is built as the last resort.
pub fn helper_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("XTASK_BIN") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "XTASK_BIN names {}, which is no file", path.display());
        return Ok(path);
    }
    let exe = std::env::current_exe().context("finding the running executable")?;
    if exe.file_name().is_some_and(|n| n == "xtask") && exe.is_file() {
        return Ok(exe);
    }
    let beside = exe.ancestors().skip(1).take(2).map(|dir| dir.join("xtask"));
    if let Some(found) = beside.into_iter().find(|p| p.is_file()) {
        return Ok(found);
    }
    build_release(&["--package", "xtask"])?;
    Ok(target_dir().join("release/xtask"))
}
