//! Each operation, as fuser hands it over.

use super::convert::*;
use crate::errno::Result;
use crate::ioctl::UserPointer;
use crate::names::Make;
use crate::privileges::Kill;
use crate::server::Server;
use crate::transport::TTL;
use crate::transport::dev::wire::decode_dev;
use fuser::{
    CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tidegate::vfs::{DeviceNumber, FileType, SetAttr};

pub(super) struct Adapter {
    pub(super) server: Arc<Server>,
}

/// Does `work` in a thread of its own: it waits for requests that this thread may have to serve.
fn offload(name: &str, work: impl FnOnce() + Send + 'static) {
    // Without a thread the reply goes unanswered, which fuser turns into EIO.
    let _ = tidegate_rt::thread::spawn(name, work);
}

tidegate_rt::thread::local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });

fn make<'a>(parent: INodeNo, name: &'a OsStr, mode: u32, umask: u32) -> Make<'a> {
    Make { parent: parent.0, name: name.as_bytes(), mode, umask, rdev: DeviceNumber::default(), target: b"" }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.server.lookup(parent.0, name.as_bytes()) {
            Ok(Some(x)) => reply.entry(&TTL, &attr(&x), generation(&x)),
            Ok(None) => reply.entry(&TTL, &MISSING, Generation(0)),
            Err(x) => reply.error(e(x)),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.server.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        send_attr(reply, self.server.getattr(ino.0, fh.map(|fh| fh.0)));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = || self.server.vfs().now();
        let when = |t: Option<TimeOrNow>| match t? {
            TimeOrNow::SpecificTime(t) => Some(timespec(t)),
            TimeOrNow::Now => Some(now()),
        };
        let touch = matches!(atime, Some(TimeOrNow::Now))
            && match mtime {
                Some(TimeOrNow::SpecificTime(t)) => ctime == Some(t),
                now => now.is_some(),
            };
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: when(atime),
            mtime: when(mtime),
            ctime: ctime.map(timespec),
            ..SetAttr::default()
        };
        send_attr(reply, self.server.setattr(ino.0, &set, Kill::No, touch));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.server.readlink(ino.0) {
            Ok(target) => reply.data(&target),
            Err(x) => reply.error(e(x)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let m = Make { rdev: decode_dev(rdev), ..make(parent, name, mode, umask) };
        send_entry(reply, self.server.make(&caller(req), &m));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let m = make(parent, name, FileType::Directory.mode_bits() | mode & 0o7777, umask);
        send_entry(reply, self.server.make(&caller(req), &m));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(reply, self.server.remove(parent.0, name.as_bytes(), false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(reply, self.server.remove(parent.0, name.as_bytes(), true));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let m = Make { target, ..make(parent, name, FileType::Symlink.mode_bits() | 0o777, 0) };
        send_entry(reply, self.server.make(&caller(req), &m));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        send_empty(reply, self.server.rename(&caller(req), from, to, flags.bits()));
    }

    fn link(&self, _req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        send_entry(reply, self.server.link(ino.0, parent.0, name.as_bytes()));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.server.open(ino.0, flags.0 as u32, Kill::No) {
            Ok(fh) => reply.opened(FileHandle(fh), FopenFlags::FOPEN_KEEP_CACHE),
            Err(x) => reply.error(e(x)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let m = make(parent, name, FileType::Regular.mode_bits() | mode & 0o7777, umask);
        match self.server.create(&caller(req), &m, flags as u32, Kill::No) {
            Ok((x, fh)) => {
                let (attr, fh) = (attr(&x), FileHandle(fh));
                reply.created(&TTL, &attr, generation(&x), fh, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(x) => reply.error(e(x)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buf| {
            let size = size as usize;
            if buf.len() < size {
                buf.resize(size, 0);
            }
            match self.server.read(fh.0, offset, &mut buf[..size], flags.0 as u32) {
                Ok(n) => reply.data(&buf[..n]),
                Err(x) => reply.error(e(x)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        match self.server.write(fh.0, offset, data, cached, Kill::No) {
            Ok(()) => reply.written(data.len() as u32),
            Err(x) => {
                if cached {
                    self.server.refuse(ino.0, x, offset, data.len() as u64);
                }
                reply.error(e(x));
            }
        }
    }

    // `flush` stays unanswered (ENOSYS): the kernel has written its pages before, and asks no more.

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.server.release(fh.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        send_empty(reply, self.server.fsync(fh.0, datasync));
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Directories are read by inode number; the kernel opens them without asking from now on.
        reply.error(e(Errno::NOSYS));
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, pos: u64, mut reply: ReplyDirectory) {
        let r = self.server.readdir(ino.0, pos, &mut |x| {
            let t = x.file_type.map_or(fuser::FileType::RegularFile, kind);
            !reply.add(INodeNo(x.ino.0), x.next, t, OsStr::from_bytes(&x.name))
        });
        match r {
            Ok(()) => reply.ok(),
            Err(x) => reply.error(e(x)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        pos: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let r = self.server.readdirplus(ino.0, pos, &mut |d, x| {
            let name = OsStr::from_bytes(&d.name);
            // A name alone is what fuser cannot send.
            let Some(x) = x else { return true };
            !reply.add(INodeNo(x.ino), d.next, name, &TTL, &attr(x), generation(x))
        });
        match r {
            Ok(()) => reply.ok(),
            Err(x) => reply.error(e(x)),
        }
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        send_empty(reply, self.server.fsyncdir(ino.0, datasync));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let s = self.server.statfs();
        let (blocks, free, available) = (s.blocks, s.blocks_free, s.blocks_available);
        reply.statfs(blocks, free, available, s.files, s.files_free, s.block_size, s.name_max, s.block_size);
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        send_empty(reply, self.server.setxattr(ino.0, name.as_bytes(), Some(value), flags as u32, false));
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        send_xattr(reply, size, self.server.getxattr(ino.0, name.as_bytes()));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        send_xattr(reply, size, self.server.listxattr(&caller(req), ino.0));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(reply, self.server.setxattr(ino.0, name.as_bytes(), None, 0, false));
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let answer = move |reply: ReplyIoctl, r: Result<Vec<u8>>| match r {
            Ok(out) => reply.ioctl(0, &out[..out.len().min(out_size as usize)]),
            Err(x) => reply.error(e(x)),
        };
        let who = caller(req);
        // Where the argument is, fuser does not say.
        let at = UserPointer { pid: req.pid(), address: 0 };
        if !Server::ioctl_waits(cmd) {
            return answer(reply, self.server.ioctl(&who, ino.0, cmd, in_data, at));
        }
        let (server, input) = (self.server.clone(), in_data.to_vec());
        offload("tg-fuse-ioctl", move || answer(reply, server.ioctl(&who, ino.0, cmd, &input, at)));
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        send_empty(reply, self.server.fallocate(fh.0, mode as u32, offset, length, Kill::No));
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let answer = |reply: ReplyLseek, r: Result<u64>| match r {
            Ok(at) => reply.offset(at as i64),
            Err(x) => reply.error(e(x)),
        };
        let Ok(pos) = u64::try_from(offset) else { return reply.error(e(Errno::NXIO)) };
        if !self.server.lseek_waits(ino.0) {
            return answer(reply, self.server.lseek(ino.0, fh.0, pos, whence as u32));
        }
        let server = self.server.clone();
        offload("tg-fuse-lseek", move || answer(reply, server.lseek(ino.0, fh.0, pos, whence as u32)));
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.server.copy_file_range((fh_in.0, offset_in), (fh_out.0, offset_out), len, Kill::No) {
            Ok(n) => reply.written(n as u32),
            Err(x) => reply.error(e(x)),
        }
    }
}
