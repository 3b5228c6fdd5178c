//! Inodes whose times or size are newer than their node block (the kernel's `inode_list[DIRTY_META]`).
//!
//! A write that changes nothing but times and the size, or a read, does not join the checkpoint for that: it notes
//! the inode here. A checkpoint stores what is noted, and so does an fsync of the inode. Everything else an
//! operation does to an inode is stored with it.

use crate::format::raw::BLOCKS_PER_SEG;
use crate::inode::dirty::{GONE, NOTED, STORED};
use crate::inode::fi;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_vfs::{Inode, Result};

/// Inodes noted at most before they are stored without a checkpoint: each is a node for the next one to write.
const MOST: u64 = BLOCKS_PER_SEG as u64;

impl F2fs {
    /// Notes that times or the size of `inode` have changed and its node has not (`f2fs_dirty_inode`). Takes
    /// `inode_lock[DIRTY_META]`, no other lock.
    pub(crate) fn dirty_inode(&self, inode: &Arc<Inode>) {
        if fi(inode).meta.change(STORED, NOTED) {
            self.dirty_inodes.insert(inode);
        }
    }

    /// Stores what is noted of `inode`. For callers that hold `cp_rwsem` and `i_dnode`.
    pub(crate) fn store_if_dirty(&self, inode: &Inode) -> Result<()> {
        if !fi(inode).meta.is_noted() {
            return Ok(());
        }
        // In this order: an inode that changes after its attributes are read is noted again, and stays on the
        // list.
        let listed = self.dirty_inodes.remove(inode.ino.0);
        fi(inode).meta.change(NOTED, STORED);
        self.store_times(inode).inspect_err(|_| {
            fi(inode).meta.change(STORED, NOTED);
            listed.iter().for_each(|i| self.dirty_inodes.insert(i));
        })
    }

    /// Stores all that are noted (`f2fs_sync_inode_meta`), for a caller that has operations frozen.
    ///
    /// # Errors
    /// The first; the others are stored, and those that failed stay noted.
    pub(crate) fn sync_inode_meta(&self) -> Result<()> {
        self.store_each(|| ())
    }

    /// Stores all that are noted beside operations: takes `cp_rwsem` shared for each.
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
