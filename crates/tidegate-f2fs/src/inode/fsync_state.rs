//! The state that fsync keeps of an inode in memory.

use crate::format::units::Nid;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};

static DNODES: LockClass = LockClass::new("fi->dirty_dnodes", 705);
static ONE: LockClass = LockClass::new("fi->i_fsync", 19);

/// Direct nodes remembered for each inode; if there are more, fsync searches for them.
const MAX_DNODES: usize = 1024;

/// The state that fsync keeps of an inode in memory.
pub(crate) struct FsyncState {
    /// Lets one fsync of a file run at a time: the next may rely on what this one takes over.
    pub(crate) one: Mutex<()>,
    /// Direct nodes changed since the last fsync, the inode and the xattr node not among them. `None`
    /// when they are not known.
    pub(crate) dnodes: Mutex<Option<BTreeSet<u32>>>,
    /// A change without which the file's data cannot be read back.
    pub(crate) changed: AtomicBool,
    /// Number of the last completed write of its data, and of the last to a new place.
    pub(crate) written: AtomicU64,
    pub(crate) moved: AtomicU64,
    /// Pages that have a new place and are not there yet.
    pub(crate) moving: AtomicU64,
    /// A page could not be written in place: from now on the file's pages go elsewhere.
    pub(crate) in_place_failed: AtomicBool,
}

impl FsyncState {
    /// The state of an inode that was just read, when `completed` writes had completed. The inode may have
    /// been in memory before, so any of these writes may be its own.
    pub(crate) fn of_read(completed: u64) -> Self {
        let s = Self::new(false);
        s.moved_alone(completed);
        s
    }

    /// The state of an inode that was just made.
    pub(crate) fn of_made() -> Self {
        Self::new(true)
    }

    fn new(made: bool) -> Self {
        FsyncState {
            one: Mutex::new(&ONE, ()),
            dnodes: Mutex::new(&DNODES, made.then(BTreeSet::new)),
            changed: AtomicBool::new(true),
            written: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            moving: AtomicU64::new(0),
            in_place_failed: AtomicBool::new(false),
        }
    }

    /// Notes a changed direct node.
    pub(crate) fn dnode_changed(&self, nid: Nid) {
        self.changed.store(true, Relaxed);
        let mut d = self.dnodes.lock();
        if let Some(set) = &mut *d {
            set.insert(nid.0);
            if set.len() > MAX_DNODES {
                *d = None;
            }
        }
    }

    /// Notes a change of the inode that fdatasync must keep.
    pub(crate) fn inode_changed(&self) {
        self.changed.store(true, Relaxed);
    }

    /// Whether pages may be written where they are.
    pub(crate) fn may_stay_in_place(&self) -> bool {
        !self.in_place_failed.load(Relaxed)
    }

    /// Notes that `pages` pages got new places. The caller holds `i_dnode`.
    pub(crate) fn placed(&self, pages: usize) {
        self.moving.fetch_add(pages as u64, SeqCst);
    }

    /// Notes that data write number `n`, of `pages` pages, has completed or has failed.
    pub(crate) fn data_written(&self, n: u64, pages: usize, moved: bool, failed: bool) {
        if failed {
            self.in_place_failed.store(true, Relaxed);
        }
        self.written.fetch_max(n, SeqCst);
        if moved {
            self.moved.fetch_max(n, SeqCst);
            self.moving.fetch_sub(pages as u64, SeqCst);
        }
    }

    /// Notes a completed write of data to a new place, outside the page cache.
    pub(crate) fn moved_alone(&self, n: u64) {
        self.written.fetch_max(n, SeqCst);
        self.moved.fetch_max(n, SeqCst);
    }

    /// Undoes the effect of a failed fsync: the direct nodes are unknown now, and the inode counts as
    /// changed.
    pub(crate) fn forget(&self) {
        *self.dnodes.lock() = None;
        self.changed.store(true, Relaxed);
    }
}
