//! The host's files: listing directories, attributes, holes.
//!
//! All calls are relative to open directories, so trees deeper than the longest path work and no link is
//! followed out of them.

use crate::node::{Meta, Xattr};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, Stat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tidegate_block::Errno;
use tidegate_rt::Timespec;
use tidegate_vfs::{DeviceNumber, FileType};

/// An entry of a host directory.
pub struct HostEntry {
    /// Name.
    pub name: CString,
    /// Type, where the directory tells it.
    pub kind: Option<FileType>,
}

/// Lists a directory in order of name, without "." and "..", as far as it can be read. Also returns the error
/// that ended the list, if any.
pub fn list(dir: BorrowedFd<'_>, buf: &mut Vec<u8>) -> (Vec<HostEntry>, Result<(), Errno>) {
    buf.clear();
    buf.reserve(64 << 10);
    let mut out = Vec::new();
    let mut end = Ok(());
    let mut raw = RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(e) = raw.next() {
        let e = match e {
            Ok(e) => e,
            Err(e) => {
                end = Err(e);
                break;
            }
        };
        let name = e.file_name();
        if name != c"." && name != c".." {
            out.push(HostEntry { name: name.to_owned(), kind: kind_of(e.file_type()) });
        }
    }
    out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    (out, end)
}

fn kind_of(t: rustix::fs::FileType) -> Option<FileType> {
    use rustix::fs::FileType as T;
    Some(match t {
        T::RegularFile => FileType::Regular,
        T::Directory => FileType::Directory,
        T::Symlink => FileType::Symlink,
        T::Fifo => FileType::Fifo,
        T::Socket => FileType::Socket,
        T::CharacterDevice => FileType::CharDevice,
        T::BlockDevice => FileType::BlockDevice,
        T::Unknown => return None,
    })
}

/// Opens a file or directory for reading; never follows a link, never waits for a peer.
///
/// # Errors
/// The operating system's.
pub fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The attributes of a name, links not followed.
///
/// # Errors
/// The operating system's.
pub fn stat(dir: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The attributes in a `stat`. `None` for a type that no volume can hold.
pub fn meta(st: &Stat, xattrs: Vec<Xattr>) -> Option<Meta> {
    Some(Meta {
        kind: FileType::from_mode(st.st_mode)?,
        mode: st.st_mode & 0o7777,
        uid: st.st_uid,
        gid: st.st_gid,
        atime: Timespec { secs: st.st_atime, nanos: st.st_atime_nsec as u32 },
        mtime: Timespec { secs: st.st_mtime, nanos: st.st_mtime_nsec as u32 },
        rdev: DeviceNumber { major: rustix::fs::major(st.st_rdev), minor: rustix::fs::minor(st.st_rdev) },
        xattrs,
    })
}

/// The numbers that tell a file apart from all others: device and inode.
pub fn id(st: &Stat) -> (u64, u64) {
    (st.st_dev, st.st_ino)
}

/// A path to `name` in `dir`, for calls that only take a path.
pub fn proc_path(dir: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut p = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    p.extend_from_slice(name.to_bytes());
    p
}

/// The extended attributes of an open file or directory.
///
/// # Errors
/// The operating system's.
pub fn xattrs_of(fd: impl AsFd) -> Result<Vec<Xattr>, Errno> {
    let fd = fd.as_fd();
    let mut few = [0u8; 256];
    let names = match rustix::fs::flistxattr(fd, &mut few[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(n) => few[..n].to_vec(),
        Err(Errno::RANGE) => grown(|b| rustix::fs::flistxattr(fd, b))?,
        Err(e) => return Err(e),
    };
    values(&names, |n, b| rustix::fs::fgetxattr(fd, n, b))
}

/// The extended attributes of a name that cannot be opened: a link, a device.
///
/// # Errors
/// The operating system's.
pub fn xattrs_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Vec<Xattr>, Errno> {
    let path = proc_path(dir, name);
    let names = match grown(|b| rustix::fs::llistxattr(&path[..], b)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        r => r?,
    };
    values(&names, |n, b| rustix::fs::lgetxattr(&path[..], n, b))
}

fn values(names: &[u8], get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>) -> Result<Vec<Xattr>, Errno> {
    let mut out = Vec::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        match grown(|b| get(name, b)) {
            Ok(v) => out.push((name.to_vec(), v)),
            // The attribute was removed meanwhile, or a security module shows it though no file system stores
            // it.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    out.sort();
    Ok(out)
}

/// Calls with a larger buffer until the result fits.
fn grown(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 256];
    loop {
        match call(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf.resize(buf.len() * 8, 0),
            Err(e) => return Err(e),
        }
    }
}

/// Whether a `stat` hints at holes: fewer blocks than bytes.
pub fn may_have_holes(st: &Stat) -> bool {
    (st.st_blocks as u64).saturating_mul(512) < st.st_size as u64
}

/// The next range of data at or after `from`, widened to whole pages; `None` when only a hole is left.
///
/// # Errors
/// The operating system's.
pub fn next_data(fd: BorrowedFd<'_>, from: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(fd, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((from < size).then_some((from, size))),
        Err(e) => return Err(e),
    };
    let end = match rustix::fs::seek(fd, SeekFrom::Hole(start)) {
        Ok(at) => at,
        Err(Errno::NXIO) => size,
        Err(e) => return Err(e),
    };
    let page = tidegate_block::PAGE_SIZE as u64;
    let start = (start / page * page).max(from);
    let end = end.checked_next_multiple_of(page).unwrap_or(size).min(size);
    Ok((start < end).then_some((start, end)))
}
