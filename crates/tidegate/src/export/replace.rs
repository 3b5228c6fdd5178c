//! Gives a new file on the host a name that may be taken.
//!
//! The old file keeps the name until the new one is complete. Then one step replaces it.

use crate::host;
use crate::paths::temporary;
use rustix::fs::{AtFlags, FileType};
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use tidegate_block::Errno;

/// The new file, and its present name.
pub enum Made {
    /// It has its own name, which was free.
    New(CString),
    /// It has the first name, until it takes over the second, which is taken.
    Beside(CString, CString),
}

/// Makes the file that is to be called `name` in `dir`, by `how`. The image that is read, by its numbers, keeps its name.
///
/// # Errors
/// The host's; a directory is not replaced, and `BUSY` for the image.
pub fn make<T>(
    dir: BorrowedFd<'_>,
    name: &CStr,
    image: Option<(u64, u64)>,
    mut how: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, Made), Errno> {
    match how(name) {
        Err(Errno::EXIST) => {}
        r => return r.map(|t| (t, Made::New(name.to_owned()))),
    }
    let there = host::stat(dir, name)?;
    if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR);
    }
    if image == Some(host::id(&there)) {
        return Err(Errno::BUSY);
    }
    let beside = CString::new(temporary()).map_err(|_| Errno::INVAL)?;
    how(&beside).map(|t| (t, Made::Beside(beside, name.to_owned())))
}

impl Made {
    /// The present name.
    pub fn at(&self) -> &CStr {
        match self {
            Made::New(name) | Made::Beside(name, _) => name,
        }
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// The host's.
    pub fn settle(self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let Made::Beside(from, to) = &self else { return Ok(()) };
        if let Err(e) = rustix::fs::renameat(dir, from, dir, to) {
            self.give_up(dir);
            return Err(e);
        }
        // If both names belong to one file, a rename leaves both.
        let _ = rustix::fs::unlinkat(dir, from, AtFlags::empty());
        Ok(())
    }

    /// Removes the file.
    pub fn give_up(&self, dir: BorrowedFd<'_>) {
        let _ = rustix::fs::unlinkat(dir, self.at(), AtFlags::empty());
    }
}
