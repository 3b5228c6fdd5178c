//! The size that the inode table has of a file: no larger than the file, and not ahead of data that has yet to come.
//!
//! It is raised when data arrives, by the change that gives it a place or marks it written. A size that has
//! to wait for data is noted, so that a sync, which waits for all of that, can store it.

use crate::inode::{ei, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tidegate_block::PAGE_SIZE;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{FileType, Inode, Result};

const PAGE: u64 = PAGE_SIZE as u64;

static BEHIND: LockClass = LockClass::new("ext4->behind", 585);

/// Inodes whose table has a smaller size than they, by number.
pub(crate) struct Behind(Mutex<BTreeMap<u64, Weak<Inode>>>);

impl Behind {
    pub(crate) fn new() -> Self {
        Behind(Mutex::new(&BEHIND, BTreeMap::new()))
    }
}

impl Ext4 {
    /// The size that a file has in the table when it has data up to `end`. Pages behind that, dirty or on
    /// their way, make it longer when they have places.
    pub(super) fn size_with(&self, inode: &Inode, end: u64) -> u64 {
        // Before the look for pages: those that make the file longer now have no place yet.
        let size = inode.read_size();
        let more = inode.mapping.next_unwritten(end.div_ceil(PAGE), u64::MAX).is_some()
            // The page that has the end got longer since it was sent.
            || !end.is_multiple_of(PAGE) && inode.mapping.is_dirty(end / PAGE);
        if more { end } else { size }
    }

    /// Has the table say that a file is as long as this, if it says less and the file is.
    pub(super) fn raise_disk_size(&self, handle: &mut Handle<'_>, inode: &Inode, size: u64) -> Result<()> {
        {
            let mut data = own(inode).write();
            let longer = size.min(inode.size());
            if data.disk_size >= longer {
                return Ok(());
            }
            // Before others can see the size: an fsync that finds it waits for the commit.
            own(inode).note(handle.tid());
            own(inode).note_needed(handle.tid());
            Arc::make_mut(&mut data).disk_size = longer;
        }
        self.store_inode(handle, inode)
    }

    /// The size that a file has in memory becomes the table's, if no data is unwritten that would have to
    /// come first; else that is noted.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn settle_size(&self, inode: &Arc<Inode>) -> Result<()> {
        if !self.settled(inode)? {
            self.note_behind(inode);
        }
        Ok(())
    }

    /// Settles the size as [`Ext4::settle_size`], without a note; whether the table has it.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn settled(&self, inode: &Inode) -> Result<bool> {
        let disk_size = ei(inode).disk_size;
        if inode.file_type != FileType::Regular || disk_size >= inode.size() {
            return Ok(true);
        }
        // Before the look for pages: those that make the file longer now have no place yet.
        let size = inode.read_size();
        let unwritten = inode.mapping.next_unwritten(disk_size / PAGE, u64::MAX).is_some();
        if unwritten {
            return Ok(false);
        }
        self.op(HandleType::Inode, |handle| self.raise_disk_size(handle, inode, size))?;
        Ok(inode.size() <= size)
    }

    /// Notes that the table has a smaller size than a file, if it has.
    pub(super) fn note_behind(&self, inode: &Arc<Inode>) {
        let behind = || ei(inode).disk_size < inode.size();
        if !behind() {
            self.behind.0.lock().remove(&inode.ino.0);
            // The file may have got longer meanwhile, and the note of that be the one that is gone.
            if !behind() {
                return;
            }
        }
        self.behind.0.lock().insert(inode.ino.0, Arc::downgrade(inode));
    }

    /// Before a sync commits: the table has the sizes that data on the device makes.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn settle_all(&self) -> Result<()> {
        let all = std::mem::take(&mut *self.behind.0.lock());
        for inode in all.values().filter_map(Weak::upgrade) {
            self.settle_size(&inode)?;
        }
        Ok(())
    }
}
