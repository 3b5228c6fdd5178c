//! The directories of the host on the way down into a tree, with few of them open.
//!
//! A tree can be deeper than the number of files that a process may have open. Of the way down only the lowest [`OPEN`]
//! directories stay open. A directory above them is opened again through `..` when the walk comes back to it, and must
//! then be the directory that it was before.

use crate::host;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tidegate_block::Errno;

/// The number of directories that stay open.
const OPEN: usize = 256;

/// A stack of directories, each with data of the walk.
pub struct Descent<T> {
    levels: Vec<Level<T>>,
}

struct Level<T> {
    /// The last directory is always open.
    fd: Option<OwnedFd>,
    /// Device and inode number.
    id: (u64, u64),
    of: T,
}

impl<T> Descent<T> {
    /// An empty stack.
    pub fn new() -> Self {
        Descent { levels: Vec::new() }
    }

    /// Goes down into the directory `fd`.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn push(&mut self, fd: OwnedFd, of: T) -> Result<(), Errno> {
        let id = host::id(&rustix::fs::fstat(&fd)?);
        self.levels.push(Level { fd: Some(fd), id, of });
        if let Some(at) = self.levels.len().checked_sub(OPEN + 1)
            // The first directory may not lie where its name says: it may be behind a link, or the working
            // directory.
            && at > 0
        {
            self.levels[at].fd = None;
        }
        Ok(())
    }

    /// Goes back up. Returns the directory that the walk leaves.
    ///
    /// # Errors
    /// `Stale` when the directory above is no longer where it was; those of opening it.
    pub fn pop(&mut self) -> Result<Option<(OwnedFd, T)>, Errno> {
        let Some(Level { fd: Some(fd), of, .. }) = self.levels.pop() else { return Ok(None) };
        if let Some(above) = self.levels.last_mut()
            && above.fd.is_none()
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let up = rustix::fs::openat(&fd, c"..", flags, Mode::empty())?;
            if host::id(&rustix::fs::fstat(&up)?) != above.id {
                return Err(Errno::STALE);
            }
            above.fd = Some(up);
        }
        Ok(Some((fd, of)))
    }

    /// The directory where the walk is.
    pub fn last(&self) -> Option<(BorrowedFd<'_>, &T)> {
        let level = self.levels.last()?;
        Some((level.fd.as_ref()?.as_fd(), &level.of))
    }

    /// The directory where the walk is, to be changed.
    pub fn last_mut(&mut self) -> Option<(BorrowedFd<'_>, &mut T)> {
        let level = self.levels.last_mut()?;
        Some((level.fd.as_ref()?.as_fd(), &mut level.of))
    }

    /// Whether the way back was not found: then the walk does not know where it is.
    pub fn is_lost(&self) -> bool {
        !self.is_empty() && self.last().is_none()
    }

    /// Whether the walk is where it began.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn open(dir: impl AsFd, name: &str) -> OwnedFd {
        rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_deep_way_keeps_few_directories_open_and_leads_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut way = Descent::new();
        way.push(open(rustix::fs::CWD, dir.path().to_str().unwrap()), 0).unwrap();
        for n in 1..3 * OPEN {
            let here = way.last().unwrap().0;
            rustix::fs::mkdirat(here, "d", Mode::RWXU).unwrap();
            let next = open(here, "d");
            way.push(next, n).unwrap();
            assert!(way.levels.iter().filter(|l| l.fd.is_some()).count() <= OPEN + 1);
        }
        for n in (1..3 * OPEN).rev() {
            let (fd, of) = way.pop().unwrap().unwrap();
            assert_eq!(of, n);
            drop(fd);
            rustix::fs::unlinkat(way.last().unwrap().0, "d", rustix::fs::AtFlags::REMOVEDIR).unwrap();
        }
        let top = rustix::fs::fstat(way.last().unwrap().0).unwrap();
        assert_eq!(top.st_ino, dir.path().metadata().unwrap().ino());
    }

    #[test]
    fn a_directory_that_was_moved_is_not_taken_for_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        let mut way = Descent::new();
        way.push(open(rustix::fs::CWD, dir.path().to_str().unwrap()), ()).unwrap();
        for _ in 0..OPEN + 1 {
            let here = way.last().unwrap().0;
            rustix::fs::mkdirat(here, "d", Mode::RWXU).unwrap();
            let next = open(here, "d");
            way.push(next, ()).unwrap();
        }
        for _ in 0..OPEN - 1 {
            way.pop().unwrap();
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(dir.path().join("d/d"), elsewhere).unwrap();
        assert_eq!(way.pop().err(), Some(Errno::STALE));
    }
}
