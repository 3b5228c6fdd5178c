//! Inodes whose times or size are newer than their node block (the kernel's `inode_list[DIRTY_META]`).
//!
//! A write that changes nothing but times and the size, or a read, does not join the checkpoint for that: it notes
//! the inode here. A checkpoint stores what is noted, and so does an fsync of the inode. Everything else an
//! operation does to an inode is stored with it.

use crate::format::raw::BLOCKS_PER_SEG;
use crate::inode::fi;
use crate::volume::sbi::F2fs;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{Inode, Result};

static DIRTY_META: LockClass = LockClass::new("sbi->inode_lock[DIRTY_META]", 445);

/// Inodes noted at most before they are stored without a checkpoint: each is a node for the next one to write.
const MOST: u64 = BLOCKS_PER_SEG as u64;

const STORED: u8 = 0;
const NOTED: u8 = 1;
const GONE: u8 = 2;

/// What an inode says of itself. It leaves `NOTED` with `i_dnode` held.
#[derive(Default)]
pub(crate) struct State(AtomicU8);

impl State {
    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn is_noted(&self) -> bool {
        self.0.load(SeqCst) == NOTED
    }
}

/// See the module.
pub(crate) struct DirtyInodes {
    list: Mutex<HashMap<u64, Arc<Inode>>>,
    /// How many, to be looked at without the lock.
    len: AtomicU64,
}

impl Default for DirtyInodes {
    fn default() -> Self {
        DirtyInodes { list: Mutex::new(&DIRTY_META, HashMap::new()), len: AtomicU64::new(0) }
    }
}

impl DirtyInodes {
    /// How many are noted.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn insert(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        list.insert(inode.ino.0, inode.clone());
        self.len.store(list.len() as u64, Relaxed);
    }

    fn remove(&self, ino: u64) -> Option<Arc<Inode>> {
        let mut list = self.list.lock();
        let gone = list.remove(&ino);
        self.len.store(list.len() as u64, Relaxed);
        gone
    }

    fn take(&self) -> Vec<Arc<Inode>> {
        let mut list = self.list.lock();
        self.len.store(0, Relaxed);
        let mut all: Vec<_> = std::mem::take(&mut *list).into_values().collect();
        all.sort_by_key(|i| i.ino);
        all
    }
}

impl F2fs {
    /// Notes that times or the size of `inode` have changed and its node has not (`f2fs_dirty_inode`). Takes
    /// `inode_lock[DIRTY_META]`, no other lock.
    pub(crate) fn dirty_inode(&self, inode: &Arc<Inode>) {
        if fi(inode).meta.change(STORED, NOTED) {
            self.dirty_inodes.insert(inode);
        }
    }

    /// Stores what is noted of `inode`. For who holds `cp_rwsem` and `i_dnode`.
    pub(crate) fn store_if_dirty(&self, inode: &Inode) -> Result<()> {
        if !fi(inode).meta.is_noted() {
            return Ok(());
        }
        // In this order: what changes after its attributes are read is noted again, and stays on the list.
        let listed = self.dirty_inodes.remove(inode.ino.0);
        fi(inode).meta.change(NOTED, STORED);
        self.store_times(inode).inspect_err(|_| {
            fi(inode).meta.change(STORED, NOTED);
            listed.iter().for_each(|i| self.dirty_inodes.insert(i));
        })
    }

    /// Stores all that are noted (`f2fs_sync_inode_meta`), for who has operations frozen.
    ///
    /// # Errors
    /// The first; the others are stored, and those that failed stay noted.
    pub(crate) fn sync_inode_meta(&self) -> Result<()> {
        self.store_each(|| ())
    }

    /// The same beside operations: takes `cp_rwsem` shared for each.
    pub(crate) fn store_inode_meta(&self) -> Result<()> {
        self.store_each(|| self.cp_rwsem.read())
    }

    fn store_each<G>(&self, lock: impl Fn() -> G) -> Result<()> {
        if self.dirty_inodes.len() == 0 {
            return Ok(());
        }
        let mut first = Ok(());
        for inode in self.dirty_inodes.take() {
            let op = lock();
            let map = fi(&inode).map.lock();
            let r = self.store_if_dirty(&inode);
            drop(map);
            drop(op);
            if r.is_err() {
                self.dirty_inodes.insert(&inode);
            }
            first = first.and(r);
        }
        first
    }

    /// Between operations: bounds what is noted. No lock held.
    pub(crate) fn balance_inode_meta(&self) -> Result<()> {
        if self.dirty_inodes.len() < MOST || self.why_read_only().is_some() {
            return Ok(());
        }
        self.store_inode_meta()
    }

    /// Nothing of `inode` is to be stored any more: it is being freed. Takes `i_dnode`.
    pub(crate) fn forget_inode_meta(&self, inode: &Inode) {
        let map = fi(inode).map.lock();
        fi(inode).meta.0.store(GONE, SeqCst);
        drop(map);
        self.dirty_inodes.remove(inode.ino.0);
    }
}
