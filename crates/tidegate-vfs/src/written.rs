//! The begin and the end of the write-back of an inode's pages, by a format that writes them.

use crate::error::ErrorKind;
use crate::inode::Inode;
use crate::mapping::{Tag, Taken};
use std::sync::Arc;
use tidegate_block::PAGE_SIZE;

impl Inode {
    /// Takes dirty pages as [`AddressSpace::take_dirty`](crate::AddressSpace::take_dirty) does, but none behind the
    /// size that readers see: a write that goes on may be about to change them. Returns also that size. The taken pages
    /// hold all bytes before it, and may lack some of those that a write adds behind it.
    pub fn take_dirty(&self, start: u64, end: u64, tag: Tag, max: usize) -> (Taken, u64) {
        // A write announces its growth before it changes pages, and it changes them under the lock that is held here.
        let mut size = 0;
        let before = || {
            size = self.read_size();
            end.min(size.div_ceil(PAGE_SIZE as u64))
        };
        (self.mapping.take_dirty_before(start, before, tag, max), size)
    }

    /// Marks a cached page as dirty, also one that is under write-back: it is written again.
    pub fn write_again(self: &Arc<Self>, index: u64) {
        if self.mapping.modify(index, |_| ()).is_some() {
            self.mapping.bdi().mark_dirty(self);
        }
    }

    /// Ends the write-back of `pages` pages from `index` and wakes the waiters. After a failed write the pages are
    /// dirty again, fsync reports the error, and the flusher finds the inode; only then is `wb->list_lock` taken.
    pub fn end_writeback(self: &Arc<Self>, index: u64, pages: usize, failed: Option<ErrorKind>) {
        self.mapping.end_writeback(index, pages, failed);
        if failed.is_some() {
            self.mapping.bdi().mark_dirty(self);
        }
    }
}
