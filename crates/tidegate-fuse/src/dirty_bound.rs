//! How much the kernel may keep back of what programs wrote.
//!
//! With the write-back cache write(2) ends in the kernel, which sends the pages to us later, in the order in
//! which it began with them: an fsync waits for all that is in front of its own. So the kernel keeps little,
//! and the volume's own cache the rest, where requests that somebody waits for go first. The kernel asks for
//! room only when it sends the pages, so near the end of a volume it keeps less still: programs would write
//! what nobody can hold.
//!
//! The mount's limits in sysfs (`/sys/class/bdi`) say so to the kernel. They are the superuser's to set; a
//! mount of somebody else has the kernel's own: a hundredth of what may be dirty on the machine. Linux before
//! 6.2 has no limit in bytes: there the kernel keeps what it keeps of a disk.

use crate::server::Server;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most that the kernel may keep, in bytes: 16 ms of a fast disk. Beside a stream of writes the p99 of
/// fsyncs is 20 to 27 ms, and was 147 with 256 MiB. With half of it that would be 11, and the stream would
/// lose a fifth of its speed.
const MOST: u64 = 32 << 20;
/// The least that the kernel may keep.
const LEAST: u64 = 1 << 20;
/// Bytes written after which the limit is set again, at most.
const LOOK: u64 = 256 << 20;

/// The bound on what the kernel may keep back of what programs wrote.
pub(crate) struct DirtyBound {
    /// The directory in sysfs, where it may be written.
    dir: OnceLock<Option<PathBuf>>,
    /// Bytes that may be written before the room is looked at again.
    unasked: AtomicU64,
}

impl DirtyBound {
    pub(crate) fn new() -> Self {
        DirtyBound { dir: OnceLock::new(), unasked: AtomicU64::new(0) }
    }

    /// The volume is mounted at `dir`.
    pub(crate) fn mounted(&self, server: &Server, dir: &Path) {
        let sysfs = crate::mount::bdi(dir);
        let writable =
            |d: &PathBuf| std::fs::OpenOptions::new().write(true).open(d.join("max_bytes")).is_ok();
        let _ = self.dir.set(sysfs.filter(writable));
        self.follow(server);
    }

    /// Before `len` bytes are written: looks at the room again when enough was written since the last look.
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
        // Each time: the kernel keeps it as a share of what may be dirty now, which changes with free memory.
        for (file, value) in [("max_bytes", (room / 8).clamp(LEAST, MOST)), ("strict_limit", 1)] {
            let _ = std::fs::write(dir.join(file), value.to_string());
        }
    }
}
