//! Opening an image file or block device, and synchronous I/O on it.

use crate::bio::{BioData, BioFlags, Op};
use crate::durable::Durable;
use crate::loops;
use crate::threads::ThreadDevice;
use crate::uring::UringDevice;
use crate::zones::{Zone, Zoning, host};
use crate::{Device, DeviceInfo, Errno, PAGE_SIZE, Request};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidegate_sys::zoned::Operation;

/// The magic number of tmpfs in statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The backend that serves an opened image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or threads where it is refused.
    #[default]
    Auto,
    /// io_uring, or an error where it is refused.
    Uring,
    /// pread/pwrite in worker threads.
    Threads,
}

/// How to open an image.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Refuse writes; take the shared lock.
    pub read_only: bool,
    /// The backend.
    pub backend: Backend,
    /// Go around the host's page cache (O_DIRECT) where the host's file system supports that.
    pub direct: bool,
    /// The caller holds the [`Claim`](crate::claim::Claim) on a block device.
    pub claimed: bool,
    /// Create the file, or truncate an existing one, and give it this many bytes.
    pub create: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { read_only: false, backend: Backend::Auto, direct: true, claimed: false, create: None }
    }
}

/// An image that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct OpenError {
    /// The path it was opened by.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub why: NotOpened,
}

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The operating system refuses.
    #[error("{0}")]
    Os(#[from] std::io::Error),
    /// io_uring was asked for, and the kernel refuses it.
    #[error("io_uring: {0}")]
    Uring(#[source] std::io::Error),
    /// Another process, or this one, has the image open.
    #[error("in use: another program has this image open{0}")]
    Busy(Busy),
    /// It is not something that holds blocks.
    #[error("not an image: {0}")]
    NotAnImage(NoImage),
}

impl From<Errno> for NotOpened {
    fn from(e: Errno) -> Self {
        NotOpened::Os(e.into())
    }
}

/// How an image is in use. `Display` makes the rest of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// A program that writes or reads has locked it.
    Locked,
    /// A program that writes has locked it.
    Written,
    /// The kernel uses the device, perhaps for a mount.
    Device,
    /// The kernel has mounted it through this loop device.
    MountedThrough(String),
    /// It is a loop device over this file, which is in use.
    Behind(PathBuf),
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Busy::Locked => Ok(()),
            Busy::Written => f.write_str(" for writing"),
            Busy::Device => f.write_str(", or it is mounted"),
            Busy::MountedThrough(device) => write!(f, ": it is mounted through /dev/{device}"),
            Busy::Behind(file) => write!(f, "; it lies in {}, which is open or mounted", file.display()),
        }
    }
}

/// Things that cannot be an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each names it
pub enum NoImage {
    Directory,
    Fifo,
    Socket,
    CharacterDevice,
    Other,
}

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoImage::Directory => "is a directory",
            NoImage::Fifo => "is a fifo",
            NoImage::Socket => "is a socket",
            NoImage::CharacterDevice => "is a character device",
            NoImage::Other => "neither a file nor a block device",
        })
    }
}

/// The environment variable that makes io_uring look refused by the kernel when it is `refuse`.
pub const URING_KNOB: &str = "TIDEGATE_IO_URING";

/// Opens the image at `path`, locks it (exclusive for writing, shared for reading) and picks a backend.
///
/// # Errors
/// Every message begins with the path and names the obstacle.
pub fn open(path: &Path, options: OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    let refused = std::env::var_os(URING_KNOB).is_some_and(|v| v == "refuse");
    let opened = FileIo::open(path, options).and_then(|io| choose(io, options.backend, refused));
    opened.map_err(|why| OpenError { path: path.into(), why })
}

/// Puts a backend on an opened file. `refused` stands for a kernel that refuses io_uring.
fn choose(io: FileIo, backend: Backend, refused: bool) -> Result<Arc<dyn Device>, NotOpened> {
    // Completions of a ring come from outside a simulated world.
    if backend == Backend::Threads || tidegate_rt::sim::active() {
        return Ok(Arc::new(ThreadDevice::new(io)));
    }
    match if refused { Err((io, Errno::PERM)) } else { UringDevice::new(io) } {
        Ok(d) => Ok(Arc::new(d)),
        Err((io, _)) if backend == Backend::Auto => Ok(Arc::new(ThreadDevice::new(io))),
        Err((_, e)) => Err(NotOpened::Uring(e.into())),
    }
}

/// Synchronous writes of at most this many bytes go through the host's page cache: the flush that follows
/// writes many of them at once.
const SMALL: u64 = 64 << 10;
/// After a large write, this many small writes go around the page cache, too. Beside writes that go around
/// it, a write to the cache waits for the host's lock on the file, and the flush then waits for the data in
/// the cache.
const AFTER_LARGE: u32 = 16;

/// The function that makes the written data of a file durable.
type Sync = Box<dyn Fn(BorrowedFd<'_>) -> Result<(), Errno> + Send + std::marker::Sync>;

/// An open, locked file, with all that synchronous I/O needs.
pub struct FileIo {
    pub(crate) fd: OwnedFd,
    /// Locks on the files behind a loop device.
    _behind: Vec<OwnedFd>,
    /// Another description of the file, through the host's page cache, where `fd` goes around it.
    cached: Option<OwnedFd>,
    durable: Box<Durable>,
    /// fdatasync, which tests watch.
    sync: Sync,
    /// The number of small writes that are still to go around the page cache.
    direct_next: AtomicU32,
    /// The file is memory.
    in_memory: bool,
    /// It is a device with zones.
    zones: Option<Box<Zoning>>,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) read_only: bool,
}

impl FileIo {
    fn open(path: &Path, o: OpenOptions) -> Result<Self, NotOpened> {
        let name = path.display().to_string();
        let (fd, st) = open_locked(path, &o)?;
        let behind =
            loops::lock_behind(&st, lock_of(&o)).map_err(|file| NotOpened::Busy(Busy::Behind(file)))?;
        if let Some(device) = loops::mounted_through(&st).filter(|_| !o.read_only) {
            return Err(NotOpened::Busy(Busy::MountedThrough(device)));
        }
        let zones = host::zoning(&fd, &st)?.map(Box::new);
        // The lock belongs to the open file, so O_DIRECT is set on it instead of opening the file again.
        let set = (o.direct || zones.is_some()) && !o.read_only;
        let direct = match set.then(|| rustix::fs::fcntl_setfl(&fd, OFlags::DIRECT)) {
            // Zones are written in order, and the page cache keeps no order.
            Some(Err(e)) if zones.is_some() => return Err(e.into()),
            set => set.is_some_and(|r| r.is_ok()),
        };
        let in_memory = rustix::fs::fstatfs(&fd).is_ok_and(|s| s.f_type == TMPFS_MAGIC);
        // Another description of the same file, without its lock. Where it cannot be had, all I/O goes
        // through the first.
        let again = || {
            let flags = OFlags::CLOEXEC | OFlags::RDWR;
            rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok()
        };
        let cached = (direct && !in_memory && zones.is_none()).then(again).flatten();
        if let Some(size) = o.create
            && FileType::from_raw_mode(st.st_mode) == FileType::RegularFile
        {
            // The old content is dropped only once it is known that a file can have this size.
            [size, 0, size].iter().try_for_each(|&n| rustix::fs::ftruncate(&fd, n))?;
        }
        let size = rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0))?;
        let direct_next = AtomicU32::new(0);
        let durable = Box::new(Durable::new(&fd, !o.read_only));
        Ok(FileIo {
            fd,
            _behind: behind,
            cached,
            durable,
            sync: Box::new(|fd| rustix::fs::fdatasync(fd)),
            direct_next,
            in_memory,
            zones,
            name,
            size,
            read_only: o.read_only,
        })
    }

    /// Name, size and kind of the device that `backend` makes of the file.
    pub(crate) fn info(&self, backend: &'static str) -> DeviceInfo<'_> {
        DeviceInfo {
            name: &self.name,
            size: self.size,
            read_only: self.read_only,
            backend,
            zones: self.zones.as_deref().copied(),
        }
    }

    pub(crate) fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        if self.zones.is_some() { host::report(&self.fd) } else { Ok(Vec::new()) }
    }

    pub(crate) fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        if self.zones.is_some() { host::report_one(&self.fd, pos) } else { Ok(None) }
    }

    /// Whether a request can be repeated from its start when part of it was done. A write to a zone cannot.
    pub(crate) fn repeats(&self, rq: &Request) -> bool {
        rq.op == Op::Read || self.zones.as_ref().is_none_or(|z| z.zone_of(rq.sector.bytes()).is_none())
    }

    pub(crate) fn is_quick(&self, rq: &Request) -> bool {
        rq.op == Op::Write && (self.in_memory || (self.cached.is_some() && rq.bytes <= SMALL))
    }

    /// Executes `rq` for a thread that waits for it.
    pub(crate) fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let fd = self.cached.as_ref().filter(|_| self.takes_cache(rq)).unwrap_or(&self.fd);
        self.execute_on(fd, rq)
    }

    /// Whether `rq` is quicker through the host's page cache, or cannot go around it: a disk with blocks of 4 KiB
    /// refuses what is not aligned to them.
    fn takes_cache(&self, rq: &Request) -> bool {
        let goes_direct = || {
            let less = |n: u32| n.checked_sub(1);
            self.direct_next.fetch_update(Relaxed, Relaxed, less).is_ok()
        };
        !is_aligned(rq) || rq.bytes <= SMALL && !(rq.op == Op::Write && goes_direct())
    }

    /// Notes whether writes of data are large.
    pub(crate) fn note(&self, rq: &Request) {
        if rq.op == Op::Write && rq.bytes > SMALL && !rq.flags.contains(BioFlags::META) {
            self.direct_next.store(AFTER_LARGE, Relaxed);
        }
    }

    /// Executes `rq`. A write goes around the host's page cache where that is possible.
    pub(crate) fn execute_direct(&self, rq: &mut Request) -> Result<(), Errno> {
        self.execute_on(&self.fd, rq)
    }

    fn execute_on(&self, fd: &OwnedFd, rq: &mut Request) -> Result<(), Errno> {
        self.note(rq);
        if rq.op != Op::Read && self.read_only {
            return Err(Errno::ROFS);
        }
        if rq.op != Op::Flush && rq.end().bytes() > self.size {
            return Err(Errno::IO);
        }
        if rq.flags.contains(BioFlags::PREFLUSH) {
            self.flush()?;
        }
        match rq.op {
            // A read that is aligned leaves the host's page cache alone.
            Op::Read if is_aligned(rq) => read(&self.fd, rq)?,
            Op::Read => read(fd, rq)?,
            Op::Write => write(fd, rq)?,
            Op::Flush => self.flush()?,
            Op::Discard => match self.punch(rq, FallocateFlags::PUNCH_HOLE) {
                Err(Errno::NODEV | Errno::INVAL) => return Err(Errno::OPNOTSUPP),
                r => r?,
            },
            Op::WriteZeroes => match self.punch(rq, FallocateFlags::PUNCH_HOLE) {
                Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL) => self.write_zeros(rq)?,
                r => r?,
            },
            Op::ZoneReset | Op::ZoneFinish if self.zones.is_none() => return Err(Errno::OPNOTSUPP),
            Op::ZoneReset => host::manage(&self.fd, Operation::Reset, rq.sector.bytes(), rq.bytes)?,
            Op::ZoneFinish => host::manage(&self.fd, Operation::Finish, rq.sector.bytes(), rq.bytes)?,
        }
        if rq.flags.contains(BioFlags::FUA) {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes all written data durable. After one failure it fails always: see [`crate::durable`].
    fn flush(&self) -> Result<(), Errno> {
        self.durable.flush(&self.fd, |fd| retry(|| (self.sync)(fd)))
    }

    fn punch(&self, rq: &Request, f: FallocateFlags) -> Result<(), Errno> {
        retry(|| rustix::fs::fallocate(&self.fd, f | FallocateFlags::KEEP_SIZE, rq.sector.bytes(), rq.bytes))
    }

    fn write_zeros(&self, rq: &Request) -> Result<(), Errno> {
        let page = PAGE_SIZE as u64;
        let is_aligned = rq.sector.bytes().is_multiple_of(page) && rq.end().bytes().is_multiple_of(page);
        let fd = self.cached.as_ref().filter(|_| !is_aligned).unwrap_or(&self.fd);
        let zeros = crate::PageBuf::zeroed(crate::PageBuf::MAX_PAGES);
        let (mut at, end) = (rq.sector.bytes(), rq.end().bytes());
        while at < end {
            let n = zeros.len().min((end - at) as usize);
            at += wrote(rustix::io::pwrite(fd, &zeros[..n], at))?;
        }
        Ok(())
    }
}

fn read(fd: &OwnedFd, rq: &mut Request) -> Result<(), Errno> {
    let mut at = rq.sector.bytes();
    let mut iov = Vec::with_capacity(rq.segments());
    rq.for_each_target(|t| iov.push(IoSliceMut::new(t)));
    let mut rest = &mut iov[..];
    while !rest.is_empty() {
        let few = rest.len().min(1024);
        let n = match rustix::io::preadv(fd, &mut rest[..few], at) {
            Ok(0) => return Err(Errno::IO),
            Err(Errno::INTR) => continue,
            r => r?,
        };
        at += n as u64;
        IoSliceMut::advance_slices(&mut rest, n);
    }
    Ok(())
}

fn write(fd: &OwnedFd, rq: &Request) -> Result<(), Errno> {
    let mut at = rq.sector.bytes();
    let mut iov = Vec::with_capacity(rq.segments());
    rq.for_each_source(|s| iov.push(IoSlice::new(s)));
    let mut rest = &mut iov[..];
    while !rest.is_empty() {
        let n = wrote(rustix::io::pwritev(fd, &rest[..rest.len().min(1024)], at))?;
        at += n;
        IoSlice::advance_slices(&mut rest, n as usize);
    }
    Ok(())
}

/// The kind of thing that cannot be an image; `None` for a file or a block device.
fn kind(st: &Stat) -> Option<NoImage> {
    Some(match FileType::from_raw_mode(st.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => return None,
        FileType::Directory => NoImage::Directory,
        FileType::Fifo => NoImage::Fifo,
        FileType::Socket => NoImage::Socket,
        FileType::CharacterDevice => NoImage::CharacterDevice,
        _ => NoImage::Other,
    })
}

/// How often the file at a path may be replaced while the thread waits for its lock.
const REPLACED: usize = 8;

/// How often a busy file is tried, 20 ms apart.
const PATIENCE: usize = 100;

/// Opens and locks the file or device at `path`. The program that had the lock before may have put another
/// file in place of this one, and the next program would lock that other file. So the path must still lead to
/// the locked file.
fn open_locked(path: &Path, o: &OpenOptions) -> Result<(OwnedFd, Stat), NotOpened> {
    let op = lock_of(o);
    for _ in 0..REPLACED {
        let (fd, st) = open_once(path, o)?;
        match patiently(Errno::WOULDBLOCK, || rustix::fs::flock(&fd, op)) {
            Err(Errno::WOULDBLOCK) => break,
            r => r?,
        }
        match rustix::fs::stat(path) {
            Ok(now) if (now.st_dev, now.st_ino) != (st.st_dev, st.st_ino) => {}
            Err(Errno::NOENT) => {}
            _ => return Ok((fd, st)),
        }
    }
    Err(NotOpened::Busy(if o.read_only { Busy::Written } else { Busy::Locked }))
}

fn lock_of(o: &OpenOptions) -> FlockOperation {
    if o.read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive }
}

/// Opens the file at `path` if it holds blocks. Creates a missing file if the options say so.
fn open_once(path: &Path, o: &OpenOptions) -> Result<(OwnedFd, Stat), NotOpened> {
    let none = |st: Stat| match kind(&st) {
        Some(what) => Err(NotOpened::NotAnImage(what)),
        None => Ok(st),
    };
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= if o.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // open(2) of a FIFO waits for another process, and open(2) of some devices changes them, so stat(2) comes
    // first. NONBLOCK keeps open(2) from waiting for a file that replaced this one meanwhile.
    match rustix::fs::stat(path) {
        Ok(st) => {
            let is_device = FileType::from_raw_mode(none(st)?.st_mode) == FileType::BlockDevice;
            // No other program may write to a device that the kernel uses, as for a mount.
            flags.set(OFlags::EXCL, is_device && !o.read_only && !o.claimed);
        }
        // O_CREAT is added only here: some directories refuse it for an existing file of another owner.
        Err(Errno::NOENT) if o.create.is_some() => flags |= OFlags::CREATE,
        Err(_) => {}
    }
    let fd = patiently(Errno::BUSY, || rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)));
    let fd = fd.map_err(|e| match e {
        Errno::BUSY => NotOpened::Busy(Busy::Device),
        e => e.into(),
    })?;
    let st = none(rustix::fs::fstat(&fd)?)?;
    let _ = rustix::fs::fcntl_setfl(&fd, OFlags::empty());
    Ok((fd, st))
}

/// Tries again for some time while the error is `busy`. A program that ends or was killed keeps its files open until
/// the kernel has ended its I/O, and an unmounted volume keeps its files open until its last checkpoint is durable.
pub(crate) fn patiently<T>(busy: Errno, mut f: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..PATIENCE {
        match f() {
            Err(e) if e == busy => tidegate_rt::thread::sleep(std::time::Duration::from_millis(20)),
            r => return r,
        }
    }
    f()
}

/// The number of bytes written; 0 after an interruption. An error when the device takes no more bytes.
fn wrote(r: Result<usize, Errno>) -> Result<u64, Errno> {
    match r {
        Ok(0) => Err(Errno::NOSPC),
        Ok(n) => Ok(n as u64),
        Err(Errno::INTR) => Ok(0),
        Err(e) => Err(e),
    }
}

fn retry(mut f: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            r => return r,
        }
    }
}

/// Whether every segment of a request is aligned as O_DIRECT needs it. All buffers of this crate are.
pub(crate) fn is_aligned(rq: &Request) -> bool {
    let page = PAGE_SIZE as u64;
    rq.sector.bytes().is_multiple_of(page)
        && rq.bios.iter().all(|b| match &b.data {
            BioData::Write(v) => v.iter().all(|s| (s.len as u64 | s.offset as u64).is_multiple_of(page)),
            _ => true,
        })
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
