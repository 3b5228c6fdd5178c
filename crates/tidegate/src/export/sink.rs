//! The file of the host into which content is written.

use super::Piece;
use super::replace::{self, Made};
use crate::host;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tidegate_block::Errno;

/// An open file that is being filled.
pub struct Sink {
    fd: OwnedFd,
    form: Form,
    /// Bytes up to here are written.
    at: u64,
}

enum Form {
    /// A new file, and the mode with which it was created.
    Ours(Made, Mode),
    /// A file that existed. It keeps its names. It is truncated first, so that holes are holes.
    Regular,
    /// A device or fifo. All bytes are written from front to back, and holes as zeros.
    Stream,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Sink {
    /// Makes the file `name` in `dir`. Once complete, it replaces the file that has the name.
    ///
    /// # Errors
    /// The host's.
    pub fn make(
        dir: BorrowedFd<'_>,
        name: &CStr,
        image: Option<(u64, u64)>,
        mode: Mode,
    ) -> Result<Sink, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (fd, made) = replace::make(dir, name, image, |n| rustix::fs::openat(dir, n, flags, mode))?;
        Ok(Sink { fd, form: Form::Ours(made, mode), at: 0 })
    }

    /// Opens the file `name` like a shell's `>`: links are followed, and the file keeps its attributes.
    /// `None` when there is no such file, or one that cannot be written: then another file can take its name.
    ///
    /// # Errors
    /// The host's; `NOENT` for a link that leads nowhere.
    pub fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<Sink>, Errno> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
                return if there { Err(Errno::NOENT) } else { Ok(None) };
            }
            // This process may not write the file, or it is a running program.
            Err(e @ (Errno::ACCESS | Errno::PERM | Errno::TXTBSY)) => {
                let is_file = |st: Stat| FileType::from_raw_mode(st.st_mode) == FileType::RegularFile;
                return if host::stat(dir, name).is_ok_and(is_file) { Ok(None) } else { Err(e) };
            }
            r => r?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        let form = if kind == FileType::RegularFile { Form::Regular } else { Form::Stream };
        Ok(Some(Sink { fd, form, at: 0 }))
    }

    /// Writes a piece. Pieces come in order.
    ///
    /// # Errors
    /// The host's.
    pub fn piece(&mut self, p: &Piece) -> Result<(), Errno> {
        let bytes = &p.run.bytes()[..p.len];
        match self.form {
            Form::Stream => {
                self.zeros(p.pos)?;
                whole(bytes, |b, _| rustix::io::write(&self.fd, b))?;
            }
            _ => whole(bytes, |b, done| rustix::io::pwrite(&self.fd, b, p.pos + done))?,
        }
        self.at = p.pos + p.len as u64;
        Ok(())
    }

    /// Ends the content, which has `size` bytes.
    ///
    /// # Errors
    /// The host's.
    pub fn end(&mut self, size: u64) -> Result<(), Errno> {
        match self.form {
            Form::Stream => self.zeros(size),
            // A hole at the end.
            _ if self.at < size => rustix::fs::ftruncate(&self.fd, size),
            _ => Ok(()),
        }
    }

    fn zeros(&mut self, until: u64) -> Result<(), Errno> {
        while self.at < until {
            let n = (until - self.at).min(ZEROS.len() as u64) as usize;
            whole(&ZEROS[..n], |b, _| rustix::io::write(&self.fd, b))?;
            self.at += n as u64;
        }
        Ok(())
    }

    /// The open file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mode with which the file was created, if it did not exist before.
    pub fn made(&self) -> Option<Mode> {
        match self.form {
            Form::Ours(_, mode) => Some(mode),
            _ => None,
        }
    }

    /// Whether it is a regular file, not a device or fifo.
    pub fn is_file(&self) -> bool {
        !matches!(self.form, Form::Stream)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The host's.
    pub fn settle(self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.form {
            Form::Ours(made, _) => made.settle(dir),
            _ => Ok(()),
        }
    }

    /// Gives up the file: removes it if it is new. Returns the message about a remainder.
    pub fn give_up(self, dir: BorrowedFd<'_>) -> Option<&'static str> {
        match self.form {
            Form::Ours(made, _) => {
                made.give_up(dir);
                None
            }
            Form::Regular => Some("what it held is gone, and what is there now is only a part"),
            Form::Stream => Some("only a part went in"),
        }
    }
}

/// Calls `write` until all bytes are written. `write` gets the remaining bytes, and how many are done.
fn whole(bytes: &[u8], write: impl Fn(&[u8], u64) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match write(&bytes[done..], done as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
