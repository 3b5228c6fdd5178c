//! The begin and the end of the write-back of an inode's pages, by a format that writes them.

use crate::error::ErrorKind;
use crate::inode::Inode;
use crate::mapping::{Tag, Taken};
use std::sync::Arc;
use tidegate_block::PAGE_SIZE;

const PAGE: u64 = PAGE_SIZE as u64;

impl Inode {
    /// Takes dirty pages as [`AddressSpace::take_dirty`](crate::AddressSpace::take_dirty) does. Returns also the size
    /// that readers see: the taken pages hold all bytes before it. While a write makes the file longer, no page behind
    /// that size is taken, and the page with the end is taken but stays dirty: the write may have changed part of it.
    pub fn take_dirty(&self, start: u64, end: u64, tag: Tag, max: usize) -> (Taken, u64) {
        let mut size = 0;
        // A write announces its growth before it changes pages, and changes them under the lock that is held here.
        let limit = || {
            size = self.read_size();
            match self.size() > size {
                true => {
                    (end.min(size.div_ceil(PAGE)), Some(size / PAGE).filter(|_| !size.is_multiple_of(PAGE)))
                }
                false => (end, None),
            }
        };
        (self.mapping.take_dirty_up_to(start, limit, tag, max), size)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::chunk::PageRun;
    use crate::{Cred, OpenFlags};
    use tidegate_block::PageBuf;

    #[test]
    fn a_page_of_a_write_that_goes_on_is_taken_and_stays_dirty() {
        let (vfs, _) = crate::memfs::mount();
        let file = vfs.open_path(&Cred::ROOT, b"/f", OpenFlags::CREATE | OpenFlags::WRITE, 0o644).unwrap();
        file.write_at(0, &[1; 2000]).unwrap();
        let inode = file.inode();
        let take = || match inode.take_dirty(0, u64::MAX, Tag::Dirty, PageBuf::MAX_PAGES) {
            (Taken::Run(run), size) => {
                inode.end_writeback(run.index, run.pages, None);
                (run.index, run.pages, size)
            }
            _ => panic!("a page is dirty"),
        };
        let growing = inode.grow();
        inode.attr().size = 8000;
        inode.mapping.modify(0, |page| page.fill(2)).unwrap();
        inode.mapping.insert_dirty(1, &PageRun { buf: Arc::new(PageBuf::zeroed(1)), first: 0, pages: 1 });
        assert_eq!(
            (take(), inode.mapping.is_dirty(0), inode.mapping.is_dirty(1)),
            ((0, 1, 2000), true, true)
        );
        drop(growing);
        assert_eq!((take(), inode.mapping.nr_dirty()), ((0, 2, 8000), 0));
        drop(file);
        vfs.unmount().unwrap();
    }
}
