//! Between fuser's values and ours, and the answers that several operations share.

use crate::errno::Result;
use crate::server::{Caller, Entry};
use crate::transport::TTL;
use crate::transport::dev::wire::encode_dev;
use fuser::{FileAttr, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use rustix::io::Errno;
use std::time::Duration;
use tidegate::Timespec;
use tidegate::vfs::FileType;

#[allow(clippy::disallowed_types)] // what fuser takes times as; nothing reads a clock
pub(super) type SystemTime = std::time::SystemTime;

pub(super) fn e(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

pub(super) fn time(t: Timespec) -> SystemTime {
    let whole = Duration::from_secs(t.secs.unsigned_abs());
    let base = if t.secs < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    base + Duration::from_nanos(t.nanos as u64)
}

pub(super) fn timespec(t: SystemTime) -> Timespec {
    match t.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => Timespec { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(before) => {
            // fuser 0.18 takes the nanoseconds before 1970 for a part of the distance; they count up.
            let d = before.duration();
            Timespec { secs: -(d.as_secs() as i64), nanos: d.subsec_nanos() }
        }
    }
}

pub(super) fn kind(t: FileType) -> fuser::FileType {
    match t {
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::Directory => fuser::FileType::Directory,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// `ino` is the number users see, or in a new entry the number the kernel will use: there they are the same.
pub(super) fn attr(x: &Entry) -> FileAttr {
    let a = &x.attr;
    FileAttr {
        ino: INodeNo(x.ino),
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(a.file_type),
        perm: a.mode as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: encode_dev(a.rdev),
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), pid: req.pid() }
}

pub(super) fn generation(x: &Entry) -> Generation {
    Generation(x.attr.generation as u64)
}

pub(super) fn send_entry(reply: ReplyEntry, r: Result<Entry>) {
    match r {
        Ok(x) => reply.entry(&TTL, &attr(&x), generation(&x)),
        Err(x) => reply.error(e(x)),
    }
}

pub(super) fn send_empty(reply: ReplyEmpty, r: Result<()>) {
    match r {
        Ok(()) => reply.ok(),
        Err(x) => reply.error(e(x)),
    }
}

pub(super) fn send_attr(reply: ReplyAttr, r: Result<Entry>) {
    match r {
        Ok(x) => reply.attr(&TTL, &attr(&x)),
        Err(x) => reply.error(e(x)),
    }
}

/// An attribute's value, or its length if the caller has no room.
pub(super) fn send_xattr(reply: ReplyXattr, size: u32, r: Result<Vec<u8>>) {
    match r {
        Ok(v) if size == 0 => reply.size(v.len() as u32),
        Ok(v) if v.len() > size as usize => reply.error(e(Errno::RANGE)),
        Ok(v) => reply.data(&v),
        Err(x) => reply.error(e(x)),
    }
}

/// An entry with number 0: there is nothing by that name, and the kernel may remember it.
pub(super) const MISSING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: fuser::FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};
