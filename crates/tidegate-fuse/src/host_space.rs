//! Free space on the disk below sparse images.
//!
//! An image with holes can promise more than its disk has. When the disk fills up, the volume must still be
//! able to write the metadata of the data that it accepted. So data is refused while there is still space for
//! that.

use crate::errno::Result;
use crate::server::Server;
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatvfs, open};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate::Volume;
use tidegate_rt::clock;

/// Bytes that are kept for metadata and checkpoints beside dirty data. Changes of names may take half of
/// them.
const MARGIN: u64 = 8 << 20;
/// The bytes that a change of names is assumed to write: its nodes and directory blocks.
const NAMES: u64 = 32 << 10;
/// How long an answer of the host is used, in nanoseconds: other programs fill the disk, too.
const FRESH: u64 = 20_000_000;
/// The time between two attempts to get space back by a checkpoint, in nanoseconds.
const RELIEF: u64 = 1_000_000_000;

/// Free space below a sparse image, and when it was last read.
pub(crate) struct HostSpace {
    /// The files of the volume: they may have holes, and discards make new ones.
    files: Box<[OwnedFd]>,
    /// The host's last answer, in bytes, less the bytes that were accepted since: a fast writer fills a disk
    /// within one answer.
    available: AtomicU64,
    asked: AtomicU64,
    relieved: AtomicU64,
}

impl HostSpace {
    pub(crate) fn new(volume: &Volume) -> Self {
        let fd = |path: &Path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let is_file = |fd: &OwnedFd| fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_file());
        HostSpace {
            files: volume.paths().filter_map(fd).filter(is_file).collect(),
            available: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            relieved: AtomicU64::new(0),
        }
    }

    /// Counts `len` more bytes of data, or refuses them when the disk below the image could not take them.
    pub(crate) fn check_data(&self, server: &Server, len: u64) -> Result<()> {
        self.check(server, len, MARGIN)
    }

    /// Whether `len` more bytes of data would fit, by the last answer. Counts nothing, and gets no space
    /// back.
    pub(crate) fn has(&self, server: &Server, len: u64) -> bool {
        if self.files.is_empty() {
            return true;
        }
        self.ask_if_old(clock::now().0);
        self.available.load(Relaxed) >= wanted(server, len, MARGIN)
    }

    /// Counts a change of names, or refuses it when the disk could not take it.
    pub(crate) fn check_names(&self, server: &Server) -> Result<()> {
        self.check(server, NAMES, MARGIN / 2)
    }

    fn check(&self, server: &Server, len: u64, margin: u64) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let now = clock::now().0;
        self.ask_if_old(now);
        if self.let_through(server, len, margin) {
            return Ok(());
        }
        self.ask();
        if self.let_through(server, len, margin) {
            return Ok(());
        }
        // Space that was freed comes back by discards, and these wait for a checkpoint.
        let last = self.relieved.load(Relaxed);
        if now - last.min(now) > RELIEF
            && self.relieved.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
            && server.vfs().sync().is_ok()
        {
            server.volume.ops().discard_now();
            self.ask();
        }
        if self.let_through(server, len, margin) { Ok(()) } else { Err(Errno::NOSPC) }
    }

    /// Counts `len` bytes, if there is space for them beside the data that is still to be written.
    fn let_through(&self, server: &Server, len: u64, margin: u64) -> bool {
        let wanted = wanted(server, len, margin);
        let less = |a: u64| (a >= wanted).then(|| a - len);
        self.available.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    fn ask_if_old(&self, now: u64) {
        if now - self.asked.load(Relaxed).min(now) > FRESH {
            self.ask();
        }
    }

    /// Asks the host. Data may go to any of the files, so the one with the least space below it counts.
    fn ask(&self) {
        let room = self.files.iter().map(room_below).min().unwrap_or(u64::MAX);
        self.available.store(room, Relaxed);
        self.asked.store(clock::now().0, Relaxed);
    }
}

/// Bytes that the host has for the holes of a file.
fn room_below(file: &OwnedFd) -> u64 {
    let holes = fstat(file).is_ok_and(|s| (s.st_blocks as u64) * 512 < s.st_size as u64);
    match fstatvfs(file) {
        // A file system that reports no blocks at all, as some FUSE file systems do, does not know its free
        // space.
        Ok(s) if holes && s.f_blocks > 0 => s.f_bavail * s.f_frsize,
        _ => u64::MAX,
    }
}

/// The bytes that have to be free for `len` more bytes, beside the data that is still to be written.
fn wanted(server: &Server, len: u64, margin: u64) -> u64 {
    let bdi = server.vfs().bdi();
    len + margin + bdi.dirty_bytes() + bdi.writeback_bytes()
}
