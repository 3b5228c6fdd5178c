//! Inodes whose times or size are newer than their node block (the kernel's `inode_list[DIRTY_META]`).
//!
//! A read, or a write that changes only times and the size, does not take `cp_rwsem` for that: it notes the
//! inode here. A checkpoint stores the noted inodes, and an fsync stores its inode. An operation stores every
//! other change of an inode itself.

use crate::format::raw::BLOCKS_PER_SEG;
use crate::inode::dirty::{GONE, NOTED, STORED};
use crate::inode::fi;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_vfs::{Inode, Result};

/// Most inodes that are noted before they are stored without a checkpoint: each is a node for the next
/// checkpoint to write.
const MOST: u64 = BLOCKS_PER_SEG as u64;

impl F2fs {
    /// Notes that times or the size of `inode` have changed, but its node has not (`f2fs_dirty_inode`). Takes
    /// `inode_lock[DIRTY_META]`, no other lock.
    pub(crate) fn dirty_inode(&self, inode: &Arc<Inode>) {
        if fi(inode).meta.change(STORED, NOTED) {
            self.dirty_inodes.insert(inode);
        }
    }

    /// Stores `inode` if it is noted. For callers that hold `cp_rwsem` and `i_dnode`.
    pub(crate) fn store_if_dirty(&self, inode: &Inode) -> Result<()> {
        if !fi(inode).meta.is_noted() {
            return Ok(());
        }
        // The inode stays on the list until its node is dirty: a checkpoint that looks meanwhile finds one of
        // the two. An inode that changes after its attributes are read is noted again, and stays on the list.
        fi(inode).meta.change(NOTED, STORED);
        let r = self.store_times(inode);
        if r.is_err() {
            fi(inode).meta.change(STORED, NOTED);
        }
        self.dirty_inodes.remove_if(inode.ino.0, || !fi(inode).meta.is_noted());
        r
    }

    /// Stores all noted inodes (`f2fs_sync_inode_meta`), for a caller that has operations frozen.
    ///
    /// # Errors
    /// The first error; all other inodes are stored, and inodes that failed stay noted.
    pub(crate) fn sync_inode_meta(&self) -> Result<()> {
        self.store_each(|| ())
    }

    /// Stores all noted inodes beside operations: takes `cp_rwsem` shared for each.
    pub(crate) fn store_inode_meta(&self) -> Result<()> {
        self.store_each(|| self.cp_rwsem.read())
    }

    fn store_each<G>(&self, lock: impl Fn() -> G) -> Result<()> {
        if self.dirty_inodes.len() == 0 {
            return Ok(());
        }
        let mut first = Ok(());
        for inode in self.dirty_inodes.all() {
            let op = lock();
            let map = fi(&inode).map.lock();
            first = first.and(self.store_if_dirty(&inode));
            drop(map);
            drop(op);
            // Another thread stored the inode before it came onto the list.
            self.dirty_inodes.remove_if(inode.ino.0, || !fi(&inode).meta.is_noted());
        }
        first
    }

    /// Bounds the number of noted inodes. Called between operations, with no lock held.
    pub(crate) fn balance_inode_meta(&self) -> Result<()> {
        if self.dirty_inodes.len() < MOST || self.why_read_only().is_some() {
            return Ok(());
        }
        // One thread stores the inodes for all.
        match self.dirty_inodes.begin_storing() {
            Some(_storing) => self.store_inode_meta(),
            None => Ok(()),
        }
    }

    /// Drops the note of `inode`, which is being freed. Takes `i_dnode`.
    pub(crate) fn forget_inode_meta(&self, inode: &Inode) {
        let map = fi(inode).map.lock();
        fi(inode).meta.0.store(GONE, SeqCst);
        drop(map);
        self.dirty_inodes.remove(inode.ino.0);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::new_volume;
    use tidegate_vfs::{Cred, OpenFlags};

    /// A checkpoint may freeze operations between any two inodes; it stores the inodes that are not stored
    /// then.
    #[test]
    fn inodes_are_noted_until_they_are_stored() {
        let v = new_volume();
        let root = v.vfs.root().unwrap();
        let files = ["a", "b", "c"].map(|name| {
            let inode = v.vfs.create(&Cred::ROOT, &root, name.as_bytes(), 0o644).unwrap();
            let f = v.vfs.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
            f.write_at(0, &[1; 5000]).unwrap();
            f
        });
        v.vfs.sync().unwrap();
        assert!(!v.fs.is_dirty());
        for f in &files {
            f.write_at(5000, &[2; 10]).unwrap();
        }
        assert_eq!(v.fs.dirty_inodes.len(), 3);
        let left = std::cell::RefCell::new(Vec::new());
        v.fs.store_each(|| left.borrow_mut().push((v.fs.dirty_inodes.len(), v.fs.is_dirty()))).unwrap();
        assert_eq!(left.into_inner(), [(3, true), (2, true), (1, true)]);
        assert_eq!((v.fs.dirty_inodes.len(), v.fs.is_dirty()), (0, true), "their nodes are dirty");
    }
}
