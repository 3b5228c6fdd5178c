//! New images.

use super::Format;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tidegate::{Elevator, NewVolume};
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_uml::programs;

/// An image in a directory of its own; both are removed when this is dropped.
pub(crate) struct Fresh {
    dir: TempDir,
}

/// The directory for images: on a disk rather than in memory, unless `TMPDIR` names it.
pub(crate) fn directory() -> PathBuf {
    let on_disk = Path::new("/var/tmp");
    let told = std::env::var_os("TMPDIR").is_some();
    if told || !on_disk.is_dir() { std::env::temp_dir() } else { on_disk.into() }
}

impl Fresh {
    /// Makes an image of `size` bytes.
    pub(crate) fn new(format: Format, size: u64) -> Result<Fresh> {
        let parent = directory();
        let dir = tempfile::Builder::new().prefix("tidegate-lab-").tempdir_in(&parent);
        let fresh = Fresh { dir: dir.map_err(|e| Error::host(&parent, e))? };
        let path = fresh.path();
        match format {
            Format::F2fs => {
                let how = file::OpenOptions { create: Some(size), ..file::OpenOptions::default() };
                let device = file::open(&path, how).map_err(|e| Error::spec(e.to_string()))?;
                let queue = RequestQueue::with_elevator(device, QueueLimits::default(), Elevator::None);
                NewVolume::default().make(&path, &queue)?;
            }
            Format::Ext4 => {
                let made = std::fs::File::create_new(&path).and_then(|f| f.set_len(size));
                made.map_err(|e| Error::host(&path, e))?;
                let mut mke2fs = Command::new(programs::require("mke2fs", "e2fsprogs")?);
                run(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(&path))?;
            }
        }
        Ok(fresh)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("volume.img")
    }

    /// A directory beside the image.
    pub(crate) fn beside(&self) -> &Path {
        self.dir.path()
    }
}

/// Runs a program; if it fails, its message is the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_owned();
    let out = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let out = out.map_err(|e| Error::host(Path::new(&name), e))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let first = said.lines().find(|l| !l.trim().is_empty()).unwrap_or("no reason given").trim();
    let named = format!("{}: ", name.display());
    Err(Error::spec(if first.starts_with(&named) { first.into() } else { format!("{named}{first}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why() {
        let fails = |script: &str| run(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert_eq!(fails("echo >&2; echo ' no room ' >&2; exit 3"), "sh: no room");
        assert_eq!(fails("echo 'sh: broken' >&2; exit 1"), "sh: broken");
        assert_eq!(fails("exit 1"), "sh: no reason given");
        run(&mut Command::new("true")).unwrap();
    }

    #[test]
    fn an_image_goes_with_its_directory() {
        let fresh = Fresh::new(Format::F2fs, 64 << 20).unwrap();
        let path = fresh.path();
        assert_eq!(path.metadata().unwrap().len(), 64 << 20);
        drop(fresh);
        assert!(!path.parent().unwrap().exists());
    }
}
