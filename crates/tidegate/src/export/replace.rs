//! Giving something a name on the host that may be taken.
//!
//! The old file keeps the name until the new one is complete; then it is gone in one step.

use crate::host;
use rustix::fs::{AtFlags, FileType};
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use tidegate_block::Errno;

/// The new file, and its name for now.
pub enum Made {
    /// Under its own: nothing had it.
    New(CString),
    /// Under the first, until it takes the second from what has it.
    Beside(CString, CString),
}

/// Makes by `how` what is to be called `name` in `dir`.
///
/// # Errors
/// The host's; a directory does not give way.
pub fn make<T>(
    dir: BorrowedFd<'_>,
    name: &CStr,
    mut how: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, Made), Errno> {
    match how(name) {
        Err(Errno::EXIST) => {}
        r => return r.map(|t| (t, Made::New(name.to_owned()))),
    }
    if FileType::from_raw_mode(host::stat(dir, name)?.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR);
    }
    let beside = CString::new(temporary()).map_err(|_| Errno::INVAL)?;
    how(&beside).map(|t| (t, Made::Beside(beside, name.to_owned())))
}

/// A name that nothing has.
pub fn temporary() -> String {
    format!(".tidegate-{:016x}", tidegate_rt::clock::entropy())
}

impl Made {
    /// The name it has now.
    pub fn at(&self) -> &CStr {
        match self {
            Made::New(name) | Made::Beside(name, _) => name,
        }
    }

    /// It is complete: it gets its name.
    ///
    /// # Errors
    /// The host's.
    pub fn settle(self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let Made::Beside(from, to) = &self else { return Ok(()) };
        if let Err(e) = rustix::fs::renameat(dir, from, dir, to) {
            self.give_up(dir);
            return Err(e);
        }
        // Two names of one file: a rename leaves both.
        let _ = rustix::fs::unlinkat(dir, from, AtFlags::empty());
        Ok(())
    }

    /// Takes it away.
    pub fn give_up(&self, dir: BorrowedFd<'_>) {
        let _ = rustix::fs::unlinkat(dir, self.at(), AtFlags::empty());
    }
}
