//! The bound on dirty pages that the kernel may keep.
//!
//! With the write-back cache, write(2) ends in the kernel, which sends the pages to the server later, in the
//! order in which it began to write them: an fsync waits for all pages in front of its own. So the kernel
//! keeps few dirty pages, and the volume's own cache keeps the rest, where requests that a thread waits for
//! go first. The kernel asks for space only when it sends the pages, so on a nearly full volume it keeps
//! still less: programs would write data for which there is no space.
//!
//! The bound is set by the mount's limits in sysfs (`/sys/class/bdi`). Only the superuser may set them. A
//! mount of another user has the kernel's default: a hundredth of what may be dirty on the machine. Linux
//! before 6.2 has no limit in bytes: there the kernel keeps as much as for a disk.

use crate::server::Server;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most that the kernel may keep, in bytes: 16 ms of a fast disk. Beside a stream of writes the p99 of
/// fsyncs is 20 to 27 ms; with 256 MiB it is 147 ms. With half the bound it would be 11 ms, and the stream
/// would lose a fifth of its speed.
const MOST: u64 = 32 << 20;
/// The least that the kernel may keep.
const LEAST: u64 = 1 << 20;
/// The most bytes that are written before the limit is set again.
const LOOK: u64 = 256 << 20;

/// The bound on dirty pages that the kernel may keep.
pub(crate) struct DirtyBound {
    /// The directory in sysfs, where it may be written.
    dir: OnceLock<Option<PathBuf>>,
    /// Bytes that may be written before the free space is checked again.
    unasked: AtomicU64,
}

impl DirtyBound {
    pub(crate) fn new() -> Self {
        DirtyBound { dir: OnceLock::new(), unasked: AtomicU64::new(0) }
    }

    /// Notes that the volume is mounted at `dir`.
    pub(crate) fn mounted(&self, server: &Server, dir: &Path) {
        let sysfs = crate::mount::bdi(dir);
        let writable =
            |d: &PathBuf| std::fs::OpenOptions::new().write(true).open(d.join("max_bytes")).is_ok();
        let _ = self.dir.set(sysfs.filter(writable));
        self.follow(server);
    }

    /// Called before `len` bytes are written. Checks the free space again when enough was written since the
    /// last check.
    pub(crate) fn wrote(&self, server: &Server, len: u64) {
        if self.unasked.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(len)).is_err() {
            self.follow(server);
        }
    }

    fn follow(&self, server: &Server) {
        let Some(Some(dir)) = self.dir.get() else {
            self.unasked.store(u64::MAX, Relaxed);
            return;
        };
        let s = server.vfs().statfs();
        let room = s.blocks_available.saturating_mul(u64::from(s.block_size));
        self.unasked.store((room / 16).clamp(LEAST, LOOK), Relaxed);
        // The limit is set each time: the kernel stores it as a share of what may be dirty, which changes
        // with free memory.
        for (file, value) in [("max_bytes", (room / 8).clamp(LEAST, MOST)), ("strict_limit", 1)] {
            let _ = std::fs::write(dir.join(file), value.to_string());
        }
    }
}
