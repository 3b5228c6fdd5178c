//! The end of write-back, as a format that has written an inode's pages tells it.

use crate::error::ErrorKind;
use crate::inode::Inode;
use std::sync::Arc;

impl Inode {
    /// Ends the write-back of `pages` pages from `index` and wakes the waiters. After a failed write the pages are dirty
    /// again, fsync is told, and the flusher finds the inode. Takes `wb->list_lock` then.
    pub fn end_writeback(self: &Arc<Self>, index: u64, pages: usize, failed: Option<ErrorKind>) {
        self.mapping.end_writeback(index, pages, failed);
        if failed.is_some() {
            self.mapping.bdi().mark_dirty(self);
        }
    }
}
