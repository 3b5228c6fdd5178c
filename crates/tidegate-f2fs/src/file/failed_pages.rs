//! Pages that have a new place but whose write to that place failed.
//!
//! The block map names the new place, and nothing names the old place any more. A checkpoint or an fsync that
//! vouched for the new place would replace durable data by that block's old content. So neither is written
//! while there are such pages: the checkpoint first writes the pages to other places, and stops the volume
//! when it cannot; an fsync of such an inode becomes a checkpoint.
//!
//! A page is noted before its write-back ends. From then on it is dirty until it is written or cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::Inode;

static FAILED_PAGES: LockClass = LockClass::new("sbi->failed_pages", 577);

type ByInode = BTreeMap<u64, (Arc<Inode>, BTreeSet<u64>)>;

/// Pages whose write to a new place failed, by inode.
pub(crate) struct FailedPages {
    /// Number of inodes with failed pages; read without the lock.
    inodes: AtomicU64,
    list: Mutex<ByInode>,
}

impl Default for FailedPages {
    fn default() -> Self {
        FailedPages { inodes: AtomicU64::new(0), list: Mutex::new(&FAILED_PAGES, ByInode::new()) }
    }
}

impl FailedPages {
    /// Notes pages whose write to a new place failed.
    pub(crate) fn note(&self, inode: &Arc<Inode>, pages: Range<u64>) {
        let mut list = self.list.lock();
        list.entry(inode.ino.0).or_insert_with(|| (inode.clone(), BTreeSet::new())).1.extend(pages);
        self.inodes.store(list.len() as u64, SeqCst);
    }

    /// Forgets pages that are written now, or that have no place any more.
    pub(crate) fn settle(&self, ino: u64, pages: Range<u64>) {
        if self.is_empty() || pages.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        let Some((_, of)) = list.get_mut(&ino) else { return };
        let mut after = of.split_off(&pages.start);
        of.append(&mut after.split_off(&pages.end));
        let gone = if of.is_empty() { list.remove(&ino) } else { None };
        self.inodes.store(list.len() as u64, SeqCst);
        drop(list);
        drop(gone);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.load(SeqCst) == 0
    }

    /// Whether inode `ino` has any.
    pub(crate) fn has(&self, ino: u64) -> bool {
        !self.is_empty() && self.list.lock().contains_key(&ino)
    }

    pub(crate) fn all(&self) -> Vec<(Arc<Inode>, BTreeSet<u64>)> {
        self.list.lock().values().cloned().collect()
    }
}
