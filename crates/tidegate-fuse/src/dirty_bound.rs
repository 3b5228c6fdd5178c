//! How much the kernel may keep back of what programs wrote, near the end of a volume.
//!
//! With the write-back cache write(2) ends in the kernel, which asks for room only when it writes the pages out. What
//! it may keep until then is a share of the machine's memory: on a volume with less room than that, programs write
//! what nobody can hold. So the mount's own limits in sysfs (`/sys/class/bdi`) follow the room that is left. They
//! are the superuser's to set; a mount of somebody else goes without.

use crate::server::Server;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of room from which on the kernel's own limits do.
const PLENTY: u64 = 4 << 30;
/// The least that the kernel may keep.
const LEAST: u64 = 1 << 20;
/// No limit of ours.
const NONE: u64 = u64::MAX;

/// The bound on what the kernel may keep back of what programs wrote.
pub(crate) struct DirtyBound {
    /// The directory in sysfs, where it may be written.
    dir: OnceLock<Option<PathBuf>>,
    /// What the kernel had as `max_ratio`.
    usual: OnceLock<String>,
    /// The limit that is set.
    set: AtomicU64,
    /// Bytes that may be written before the room is looked at again.
    unasked: AtomicU64,
}

impl DirtyBound {
    pub(crate) fn new() -> Self {
        let (set, unasked) = (AtomicU64::new(NONE), AtomicU64::new(0));
        DirtyBound { dir: OnceLock::new(), usual: OnceLock::new(), set, unasked }
    }

    /// The volume is mounted at `dir`.
    pub(crate) fn mounted(&self, server: &Server, dir: &Path) {
        let sysfs = crate::mount::bdi(dir);
        let writable =
            |d: &PathBuf| std::fs::OpenOptions::new().write(true).open(d.join("max_bytes")).is_ok();
        let sysfs = sysfs.filter(writable);
        if let Some(usual) = sysfs.as_ref().and_then(|d| std::fs::read_to_string(d.join("max_ratio")).ok()) {
            let _ = self.usual.set(usual);
        }
        let _ = self.dir.set(sysfs);
        self.follow(server);
    }

    /// Before `len` bytes are written: looks at the room again when enough was written since the last look.
    pub(crate) fn wrote(&self, server: &Server, len: u64) {
        if self.unasked.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(len)).is_err() {
            self.follow(server);
        }
    }

    fn follow(&self, server: &Server) {
        let (Some(Some(dir)), Some(usual)) = (self.dir.get(), self.usual.get()) else {
            self.unasked.store(NONE, Relaxed);
            return;
        };
        let s = server.vfs().statfs();
        let room = s.blocks_available.saturating_mul(u64::from(s.block_size));
        // In powers of two, so that it seldom changes.
        let wanted = if room >= PLENTY { NONE } else { (room / 8).max(LEAST).next_power_of_two() };
        self.unasked.store(room.min(PLENTY) / 16, Relaxed);
        if self.set.swap(wanted, Relaxed) != wanted {
            let write = |file: &str, text: &str| drop(std::fs::write(dir.join(file), text));
            if wanted == NONE {
                write("strict_limit", "0");
                write("max_ratio", usual.trim());
            } else {
                write("max_bytes", &wanted.to_string());
                write("strict_limit", "1");
            }
        }
    }
}
