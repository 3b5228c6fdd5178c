//! A host file's content in page buffers.

use super::batch::{BatchSender, Gone};
use super::{Item, Piece};
use crate::host;
use rustix::fs::Stat;
use std::os::fd::BorrowedFd;
use tidegate_block::{Errno, PAGE_SIZE, PageBuf};

/// Bytes in the buffers of large files.
const PIECE: u64 = (PageBuf::MAX_PAGES * PAGE_SIZE) as u64;

/// The reason why reading a file stopped.
pub enum Stop {
    /// An error of the operating system.
    Os(Errno),
    /// The other thread is gone.
    Gone,
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Stop::Os(e)
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Stop::Gone
    }
}

/// Reads all of a file that fits one buffer and has no holes.
///
/// # Errors
/// The operating system's.
pub fn whole(fd: BorrowedFd<'_>, size: u64) -> Result<Option<Piece>, Errno> {
    if size == 0 {
        return Ok(None);
    }
    let mut buf = PageBuf::stale(size.div_ceil(PAGE_SIZE as u64) as usize);
    let len = fill(fd, None, &mut buf[..size as usize])?;
    Ok((len > 0).then_some(Piece { pos: 0, buf, len }))
}

/// Whether [`whole`] can read the file.
pub fn is_small(st: &Stat) -> bool {
    st.st_size as u64 <= PIECE && !host::may_have_holes(st)
}

/// Sends the pieces of a file one by one, without holes. Returns the size that was found.
///
/// # Errors
/// A [`Stop`].
pub fn pieces(fd: BorrowedFd<'_>, st: &Stat, to: &mut BatchSender) -> Result<u64, Stop> {
    let size = st.st_size as u64;
    let sparse = host::may_have_holes(st);
    let mut at = 0;
    while at < size {
        let (start, end) = match sparse {
            true => match host::next_data(fd, at, size)? {
                Some(range) => range,
                None => break,
            },
            false => (at, size),
        };
        at = start;
        while at < end {
            let want = (end - at).min(PIECE) as usize;
            let mut buf = PageBuf::stale(want.div_ceil(PAGE_SIZE));
            let len = fill(fd, Some(at), &mut buf[..want])?;
            if len == 0 {
                return Ok(at); // truncated meanwhile
            }
            to.push(Item::Data(Piece { pos: at, buf, len }))?;
            at += len as u64;
            if len < want {
                return Ok(at);
            }
        }
    }
    Ok(size)
}

/// Fills `buf` from the file's position or from `at`. Fewer bytes only at the end of the file.
fn fill(fd: BorrowedFd<'_>, at: Option<u64>, buf: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        let r = match at {
            Some(at) => rustix::io::pread(fd, &mut buf[done..], at + done as u64),
            None => rustix::io::read(fd, &mut buf[done..]),
        };
        match r {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
