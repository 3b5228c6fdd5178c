//! The transport on the `fuser` crate: its multi-threaded session, its message formats.

use super::dev::wire::{decode_dev, encode_dev};
use super::{Connection, Kernel, MAX_IO, TTL, Transport};
use crate::errno::Result;
use crate::names::Make;
use crate::server::{Caller, Entry, Server};
use fuser::{
    Config, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate::Timespec;
use tidegate::vfs::{DeviceNumber, FileType, SetAttr};

#[allow(clippy::disallowed_types)] // what fuser takes times as; nothing reads a clock
type SystemTime = std::time::SystemTime;

/// What the kernel may do for us. Not among it: `ATOMIC_O_TRUNC`, since the kernel takes set-id bits off
/// only in a truncation of its own; `POSIX_LOCKS` and `FLOCK_LOCKS`, since a volume is mounted once and the
/// kernel's own locks are interruptible and see deadlocks, which fuser's are not (it answers no
/// `FUSE_INTERRUPT`); `HANDLE_KILLPRIV`, since cached writes reach us without the credentials it takes.
const WANTED: [InitFlags; 17] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_SPLICE_WRITE,
    InitFlags::FUSE_SPLICE_MOVE,
    InitFlags::FUSE_SPLICE_READ,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

/// Requests that the kernel may send ahead (read-ahead, write-back) before it waits.
const MAX_BACKGROUND: u16 = 64;

/// See the module.
pub struct Fuser {
    session: Session<Adapter>,
}

impl Fuser {
    /// Greets the kernel.
    ///
    /// # Errors
    /// As [`super::connect`].
    pub fn connect(server: Arc<Server>, connection: Connection) -> io::Result<Self> {
        let mut config = Config::default();
        config.n_threads = Some(connection.threads);
        config.clone_fd = connection.threads > 1;
        let adapter = Adapter { server: server.clone() };
        // The kernel lets in whom the mount options allow. fuser's own filter would refuse what the
        // kernel sends for nobody, such as the times it kept.
        let session = Session::from_fd(adapter, connection.fd, SessionACL::All, config)?;
        server.attach(Box::new(FuserKernel {
            notifier: session.notifier(),
            mountpoint: connection.mountpoint,
        }));
        Ok(Fuser { session })
    }
}

impl Transport for Fuser {
    fn run(self: Box<Self>) -> io::Result<()> {
        self.session.run()
    }
}

struct FuserKernel {
    notifier: Notifier,
    mountpoint: PathBuf,
}

impl Kernel for FuserKernel {
    fn write_back(&self, node: u64, from: u64) {
        // Dropping pages writes the dirty ones. That it fails where nothing is cached is no matter.
        let _ = self.notifier.inval_inode(INodeNo(node), from as i64, 0);
    }

    fn write_back_all(&self) {
        super::sync_mount(&self.mountpoint);
    }
}

struct Adapter {
    server: Arc<Server>,
}

fn e(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn time(t: Timespec) -> SystemTime {
    let whole = Duration::from_secs(t.secs.unsigned_abs());
    let base = if t.secs < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    base + Duration::from_nanos(t.nanos as u64)
}

fn timespec(t: SystemTime) -> Timespec {
    match t.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => Timespec { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(before) => {
            // fuser 0.18 takes the nanoseconds before 1970 for a part of the distance; they count up.
            let d = before.duration();
            Timespec { secs: -(d.as_secs() as i64), nanos: d.subsec_nanos() }
        }
    }
}

fn kind(t: FileType) -> fuser::FileType {
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
fn attr(x: &Entry) -> FileAttr {
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

fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

fn generation(x: &Entry) -> Generation {
    Generation(x.attr.generation as u64)
}

fn send_entry(reply: ReplyEntry, r: Result<Entry>) {
    match r {
        Ok(x) => reply.entry(&TTL, &attr(&x), generation(&x)),
        Err(x) => reply.error(e(x)),
    }
}

fn send_empty(reply: ReplyEmpty, r: Result<()>) {
    match r {
        Ok(()) => reply.ok(),
        Err(x) => reply.error(e(x)),
    }
}

fn send_attr(reply: ReplyAttr, r: Result<Entry>) {
    match r {
        Ok(x) => reply.attr(&TTL, &attr(&x)),
        Err(x) => reply.error(e(x)),
    }
}

/// An attribute's value, or its length if the caller has no room.
fn send_xattr(reply: ReplyXattr, size: u32, r: Result<Vec<u8>>) {
    match r {
        Ok(v) if size == 0 => reply.size(v.len() as u32),
        Ok(v) if v.len() > size as usize => reply.error(e(Errno::RANGE)),
        Ok(v) => reply.data(&v),
        Err(x) => reply.error(e(x)),
    }
}

/// Does `work` in a thread of its own: it waits for requests that this thread may have to serve.
fn aside(name: &str, work: impl FnOnce() + Send + 'static) {
    // Without a thread the reply goes unanswered, which fuser turns into EIO.
    let _ = tidegate_rt::thread::spawn(name, work);
}

tidegate_rt::thread::local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });

fn make<'a>(parent: INodeNo, name: &'a OsStr, mode: u32, umask: u32) -> Make<'a> {
    Make { parent: parent.0, name: name.as_bytes(), mode, umask, rdev: DeviceNumber::default(), target: b"" }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // What an older kernel lacks, it does without.
            let _ = config.add_capabilities(flag);
        }
        if let Err(most) = config.set_max_write(MAX_IO) {
            let _ = config.set_max_write(most);
        }
        if let Err(most) = config.set_max_readahead(MAX_IO) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
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

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        send_attr(reply, self.server.getattr(ino.0));
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
        send_attr(reply, self.server.setattr(ino.0, &set, false));
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
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        send_empty(reply, self.server.rename(from, to, flags.bits()));
    }

    fn link(&self, _req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        send_entry(reply, self.server.link(ino.0, parent.0, name.as_bytes()));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.server.open(ino.0, flags.0 as u32, false) {
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
        match self.server.create(&caller(req), &m, flags as u32, false) {
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
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buf| {
            let size = size as usize;
            if buf.len() < size {
                buf.resize(size, 0);
            }
            match self.server.read(fh.0, offset, &mut buf[..size]) {
                Ok(n) => reply.data(&buf[..n]),
                Err(x) => reply.error(e(x)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.server.write(fh.0, offset, data, false) {
            Ok(()) => reply.written(data.len() as u32),
            Err(x) => reply.error(e(x)),
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
        if !Server::ioctl_waits(cmd) {
            return answer(reply, self.server.ioctl(&who, ino.0, cmd, in_data));
        }
        let (server, input) = (self.server.clone(), in_data.to_vec());
        aside("tg-fuse-ioctl", move || answer(reply, server.ioctl(&who, ino.0, cmd, &input)));
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
        send_empty(reply, self.server.fallocate(fh.0, mode as u32, offset, length, false));
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
        aside("tg-fuse-lseek", move || answer(reply, server.lseek(ino.0, fh.0, pos, whence as u32)));
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
        match self.server.copy_file_range((fh_in.0, offset_in), (fh_out.0, offset_out), len, false) {
            Ok(n) => reply.written(n as u32),
            Err(x) => reply.error(e(x)),
        }
    }
}

/// An entry with number 0: there is nothing by that name, and the kernel may remember it.
const MISSING: FileAttr = FileAttr {
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
