//! The list of inodes whose times or size are newer than their node.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::Inode;

static DIRTY_META: LockClass = LockClass::new("sbi->inode_lock[DIRTY_META]", 445);

pub(super) const STORED: u8 = 0;
pub(super) const NOTED: u8 = 1;
pub(super) const GONE: u8 = 2;

/// The state of one inode: stored, noted or gone. It leaves `NOTED` with `i_dnode` held.
#[derive(Default)]
pub(crate) struct State(pub(super) AtomicU8);

impl State {
    pub(super) fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    pub(super) fn is_noted(&self) -> bool {
        self.0.load(SeqCst) == NOTED
    }
}

/// The inodes that are noted.
pub(crate) struct DirtyInodes {
    list: Mutex<HashMap<u64, Arc<Inode>>>,
    /// Number of noted inodes, read without the lock.
    len: AtomicU64,
    /// A thread stores noted inodes beside operations.
    storing: AtomicBool,
}

/// Marks the thread that stores noted inodes, until it is dropped.
pub(super) struct Storing<'a>(&'a AtomicBool);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Default for DirtyInodes {
    fn default() -> Self {
        DirtyInodes {
            list: Mutex::new(&DIRTY_META, HashMap::new()),
            len: AtomicU64::new(0),
            storing: AtomicBool::new(false),
        }
    }
}

impl DirtyInodes {
    /// Number of noted inodes.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    pub(super) fn insert(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        list.insert(inode.ino.0, inode.clone());
        self.len.store(list.len() as u64, Relaxed);
    }

    pub(super) fn remove(&self, ino: u64) -> Option<Arc<Inode>> {
        let mut list = self.list.lock();
        let gone = list.remove(&ino);
        self.len.store(list.len() as u64, Relaxed);
        gone
    }

    /// Takes an inode off the list if `gone` is true, called with the list locked.
    pub(super) fn remove_if(&self, ino: u64, gone: impl FnOnce() -> bool) {
        let mut list = self.list.lock();
        if gone() {
            list.remove(&ino);
            self.len.store(list.len() as u64, Relaxed);
        }
    }

    /// All noted inodes, by number. They stay on the list.
    pub(super) fn all(&self) -> Vec<Arc<Inode>> {
        let mut all: Vec<_> = self.list.lock().values().cloned().collect();
        all.sort_by_key(|i| i.ino);
        all
    }

    /// Makes the caller the thread that stores noted inodes beside operations; `None` where another thread
    /// does.
    pub(super) fn begin_storing(&self) -> Option<Storing<'_>> {
        (!self.storing.swap(true, SeqCst)).then(|| Storing(&self.storing))
    }
}
