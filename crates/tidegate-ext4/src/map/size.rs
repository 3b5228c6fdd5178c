//! The size of a file in the inode table: it is no larger than the file, and not ahead of data that is not on
//! the device yet.
//!
//! When data arrives, the change that gives the data a place or marks it written raises the size. A size that
//! must wait for data is noted, so that a sync, which waits for all data, can store it.
//!
//! Data before a run of pages must be there before the run makes the file longer: pages are taken in an order
//! (`ei->i_order_lock`), a pass first sends dirty pages that the size would newly cover (`left_out`), and a run that
//! arrives before an earlier one is held (`hold_back`). With `nomap_first=off|on`, passes go on as in Linux, and a power
//! cut may leave zeros in place of bytes that were added to the last page while it was on its way. A size that
//! truncate(2) sets is stored at once, also over dirty pages, as in Linux.
//!
//! A write may make the file longer while a pass is at work. The pass takes no page behind the size that readers see,
//! and a run reaches to the size at the moment when its pages were taken (not with `nomap_first=off|on`, as in Linux).

use crate::inode::{ei, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use tidegate_block::PAGE_SIZE;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{FileType, Inode, Result};

const PAGE: u64 = PAGE_SIZE as u64;

static BEHIND: LockClass = LockClass::new("ext4->behind", 585);

/// Inodes whose size in the table is smaller than in memory, by number.
pub(crate) struct Behind(Mutex<BTreeMap<u64, Weak<Inode>>>);

impl Behind {
    pub(crate) fn new() -> Self {
        Behind(Mutex::new(&BEHIND, BTreeMap::new()))
    }
}

impl Ext4 {
    /// The byte to which a file is written with these taken pages, which hold all of its bytes before byte `size`;
    /// `None` if the file was cut before them. A file gets no blocks past its end. Bytes that a write has put behind
    /// `size` are sent by a later pass: the page with the end stayed dirty.
    pub(super) fn end_of_run(&self, inode: &Inode, pages: &Range<u64>, size: u64) -> Option<u64> {
        let end = (pages.end * PAGE).min(inode.size()).min(size);
        (pages.start * PAGE < end).then_some(end)
    }

    /// The size that the table may have for a file with data up to `end`. Pages behind `end`, dirty or on
    /// their way, raise it when they have places.
    pub(super) fn size_with(&self, inode: &Inode, end: u64) -> u64 {
        // The size is read before the look for pages: pages that make the file longer after this have no
        // place yet.
        let size = inode.read_size();
        let more = inode.mapping.next_unwritten(end.div_ceil(PAGE), u64::MAX).is_some()
            // The page with the end got longer since it was sent.
            || !end.is_multiple_of(PAGE) && inode.mapping.is_dirty(end / PAGE);
        // A write that goes on has raised the size to which pages get places, and not yet the size that is read.
        if more { end } else { size.max(end) }
    }

    /// Raises a file's size in the table to `size`, but not beyond the file's end, if the table's is smaller.
    pub(super) fn raise_disk_size(&self, handle: &mut Handle<'_>, inode: &Inode, size: u64) -> Result<()> {
        {
            let mut data = own(inode).write();
            let longer = size.min(inode.size());
            if data.disk_size >= longer {
                return Ok(());
            }
            // The note comes before other threads can see the size: an fsync that finds the size waits for
            // the commit.
            own(inode).note(handle.tid());
            own(inode).note_needed(handle.tid());
            Arc::make_mut(&mut data).disk_size = longer;
        }
        self.store_inode(handle, inode)
    }

    /// Stores the size in memory in the table, if no unwritten data has to come first; otherwise notes it.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn settle_size(&self, inode: &Arc<Inode>) -> Result<()> {
        if !self.settled(inode)? {
            self.note_behind(inode);
        }
        Ok(())
    }

    /// Settles the size as [`Ext4::settle_size`] does, without a note; true if the table has it.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn settled(&self, inode: &Inode) -> Result<bool> {
        let disk_size = ei(inode).disk_size;
        if inode.file_type != FileType::Regular || disk_size >= inode.size() {
            return Ok(true);
        }
        // The size is read before the look for pages: pages that make the file longer after this have no
        // place yet.
        let size = inode.read_size();
        let unwritten = inode.mapping.next_unwritten(disk_size / PAGE, u64::MAX).is_some();
        if unwritten {
            return Ok(false);
        }
        self.op(HandleType::Inode, |handle| self.raise_disk_size(handle, inode, size))?;
        Ok(inode.size() <= size)
    }

    /// Notes a file whose size in the table is smaller than in memory.
    pub(super) fn note_behind(&self, inode: &Arc<Inode>) {
        let behind = || ei(inode).disk_size < inode.size();
        if !behind() {
            self.behind.0.lock().remove(&inode.ino.0);
            // The file may have got longer meanwhile, and the removed note may be the one for that.
            if !behind() {
                return;
            }
        }
        self.behind.0.lock().insert(inode.ino.0, Arc::downgrade(inode));
    }

    /// Called before a sync commits: gives the table the sizes of files whose data is on the device.
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
