//! The end of write-back, as reported by a format that has written the pages of an inode.

use crate::error::ErrorKind;
use crate::inode::Inode;
use std::sync::Arc;

impl Inode {
    /// Ends the write-back of `pages` pages from `index` and wakes the waiters. After a failed write the pages are
    /// dirty again, fsync reports the error, and the flusher finds the inode; only then is `wb->list_lock` taken.
    pub fn end_writeback(self: &Arc<Self>, index: u64, pages: usize, failed: Option<ErrorKind>) {
        self.mapping.end_writeback(index, pages, failed);
        if failed.is_some() {
            self.mapping.bdi().mark_dirty(self);
        }
    }
}
