//! Help for a kernel that was built before the CPU.

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("registers.c");

/// Builds, in `dir`, a library to preload into the kernel. The kernel needs it where the CPU has more
/// registers than it was built for (AMX): its first process would die of them.
pub(crate) fn library(dir: &Path) -> Result<Option<PathBuf>> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if cpu.contains(" amx_tile") { build(dir).map(Some) } else { Ok(None) }
}

fn build(dir: &Path) -> Result<PathBuf> {
    let (source, library) = (dir.join("registers.c"), dir.join("registers.so"));
    fs::write(&source, SOURCE).map_err(Error::file(&source))?;
    let missing =
        |_| Error::Missing { name: "cc, which user-mode-linux needs on this CPU,".into(), package: "gcc" };
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).status();
    match status.map_err(missing)?.success() {
        true => Ok(library),
        false => Err(Error::Guest(format!("cc cannot build {}", source.display()))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_is_built() {
        if crate::programs::find("cc").is_none() {
            assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "cc is missing");
            println!("SKIPPED: cc is missing");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(super::build(dir.path()).unwrap().is_file());
    }
}
