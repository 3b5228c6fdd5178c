//! The file that a new volume is made in.
//!
//! A new image has no name until it is complete, so neither a failure nor a kill leaves half of one.

use crate::error::{About, Error, Result, path_bytes, show};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{Backend, Device, OpenOptions};

/// What is at a path where a volume is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Nothing,
    /// A file of so many bytes, and its device and inode number.
    File(u64, (u64, u64)),
    /// A block device.
    Device,
}

/// Looks.
///
/// # Errors
/// It is something else, or cannot be looked at.
pub fn existing(path: &Path) -> Result<Existing> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let m = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        r => r.about(path_bytes(path))?,
    };
    let shown = show(path_bytes(path));
    match m.file_type() {
        t if t.is_file() => Ok(Existing::File(m.len(), (m.dev(), m.ino()))),
        t if t.is_block_device() => Ok(Existing::Device),
        t if t.is_dir() => Err(Error::other(shown, "not an image: is a directory")),
        _ => Err(Error::other(shown, "not an image: neither a file nor a block device")),
    }
}

/// A file being made into an image.
pub struct NewImage {
    /// The opened device, locked.
    pub device: Arc<dyn Device>,
    path: PathBuf,
    state: State,
}

enum State {
    /// Was there before, and stays.
    Old,
    /// Has its name already: file systems without unnamed files. Goes unless it is finished.
    Named,
    /// Gets its name when it is finished.
    Unnamed(OwnedFd),
}

impl NewImage {
    /// Opens what is at `path`, emptied and of `size` bytes, or makes it; a device stays as it is.
    ///
    /// # Errors
    /// In use, no permission, no space.
    pub fn create(path: &Path, size: u64, backend: Backend) -> Result<NewImage> {
        let shown = show(path_bytes(path));
        let open = |at: &Path, create| {
            let o = OpenOptions { read_only: false, backend, direct: true, create };
            tidegate_block::file::open(at, o).map_err(|e| Error::open(&shown, e))
        };
        let done = |device, state| Ok(NewImage { device, path: path.to_path_buf(), state });
        match existing(path)? {
            Existing::Device => done(open(path, None)?, State::Old),
            Existing::File(..) => done(open(path, Some(size))?, State::Old),
            Existing::Nothing => {
                if let Some(fd) = unnamed(path) {
                    let at = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                    return done(open(&at, Some(size))?, State::Unnamed(fd));
                }
                done(open(path, Some(size))?, State::Named)
            }
        }
    }

    /// The volume is complete: it gets its name.
    ///
    /// # Errors
    /// Something took the name meanwhile.
    pub fn finish(mut self) -> Result<()> {
        if let State::Unnamed(fd) = &self.state {
            let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
            rustix::fs::linkat(CWD, from, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)
                .about(path_bytes(&self.path))?;
        }
        self.state = State::Old;
        Ok(())
    }
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if matches!(self.state, State::Named) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The directory that a path lies in.
pub fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// A file without a name where `path` will be, if the file system has such files.
fn unnamed(path: &Path) -> Option<OwnedFd> {
    if path.is_symlink() {
        return None; // one that leads nowhere: the file belongs at its end
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir_of(path), flags, Mode::from_raw_mode(0o666)).ok()?;
    // Without /proc it could neither be opened again nor named.
    Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())).exists().then_some(fd)
}
