//! Reading pages in: pages that are needed now, and pages that a sequential reader will need.
//!
//! A reader that continues where it stopped gets a window that doubles up to [`RA_MAX`]. When half of the
//! pages that were read ahead are used, reading of the next window is started without waiting for it.

use crate::error::{ErrorKind, Result};
use crate::file::File;
use crate::inode::Inode;
use crate::mapping::PageIn;
use crate::mapping::chunk::PageRun;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_rt::sim;

/// The number of pages of the first window, and of the largest.
const RA_MIN: u64 = 32;
const RA_MAX: u64 = 256;
const PAGE: u64 = PAGE_SIZE as u64;

/// The state that an open file keeps about its reader. Readers that share it may disturb each other, which
/// does no harm.
pub(crate) struct ReadAheadState {
    /// Where the last read ended, in bytes.
    next: AtomicU64,
    /// The number of pages of the next window.
    window: AtomicU64,
    /// The first page whose reading was not started.
    end: AtomicU64,
}

impl Default for ReadAheadState {
    fn default() -> Self {
        ReadAheadState { next: AtomicU64::new(0), window: AtomicU64::new(RA_MIN), end: AtomicU64::new(0) }
    }
}

impl ReadAheadState {
    fn next_window(&self) -> u64 {
        let w = self.window.load(Relaxed);
        self.window.store((w * 2).min(RA_MAX), Relaxed);
        w
    }
}

/// The result for a page that was missing.
pub(crate) enum PagedIn {
    /// Another thread reads the page, or has read it: it is looked up again.
    Cached,
    /// The page was read, and its neighbours with it. It is in memory unless it was dropped at once.
    Read(PageRun),
    /// The file ends before the page.
    End,
}

impl File {
    /// Reads missing pages at byte `pos` into the cache, for a read that began at `start` and of which `want`
    /// bytes are left: the pages of the read and, for sequential readers, a window. Takes `invalidate_lock`
    /// shared.
    pub(crate) fn page_in(&self, pos: u64, start: u64, want: u64) -> Result<PagedIn> {
        let (inode, mapping) = (&self.inode, &self.inode.mapping);
        let index = pos / PAGE;
        let kept = mapping.invalidate_lock.read();
        let size = inode.read_size();
        if pos >= size {
            return Ok(PagedIn::End);
        }
        let wanted = (pos + want).div_ceil(PAGE) - index;
        let pages = if self.ra.next.load(Relaxed) == start {
            wanted.max(self.ra.next_window())
        } else {
            self.ra.window.store(RA_MIN, Relaxed);
            wanted
        };
        let pages = pages.min(RA_MAX).min(size.div_ceil(PAGE) - index);
        let (cached, missing) = mapping.residency(index, pages);
        if cached {
            self.ra.end.store(index + missing, Relaxed);
            return Ok(PagedIn::Cached);
        }
        let Some(page_in) = PageIn::begin(inode, index..index + missing) else {
            drop(kept);
            mapping.wait_not_busy(index);
            return Ok(PagedIn::Cached);
        };
        // The cache is checked only after the pages were marked: a page that is missing then is not dirty,
        // and stays so. Before, a page could have been dirty a moment ago, and the content of the volume
        // would be older.
        let (cached, missing) = mapping.residency(index, page_in.len());
        self.ra.end.store(index + missing, Relaxed);
        if cached { Ok(PagedIn::Cached) } else { self.vfs.fill(inode, index, missing).map(PagedIn::Read) }
    }

    /// Called after a read of `start..end`. Starts the next window if the reader is sequential and near the end of its
    /// window. Takes `invalidate_lock` shared.
    pub(crate) fn read_on(&self, start: u64, end: u64) {
        let sequential = self.ra.next.swap(end, Relaxed) == start;
        let (ahead, last) = (self.ra.end.load(Relaxed), self.inode.read_size().div_ceil(PAGE));
        let at = end.div_ceil(PAGE);
        if !sequential || ahead < at || ahead >= last || at + self.ra.window.load(Relaxed) / 2 < ahead {
            return;
        }
        let pages = self.ra.next_window().min(last - ahead);
        self.ra.end.store(ahead + pages, Relaxed);
        self.vfs.start_fill(&self.inode, ahead, pages);
    }
}

/// Copies bytes of the file from `pos` on out of a run that begins with the page of `pos`. Returns how many.
pub(crate) fn copy_run(run: &PageRun, pos: u64, to: &mut [u8]) -> usize {
    let from = &run.bytes()[pos as usize % PAGE_SIZE..];
    let n = from.len().min(to.len());
    to[..n].copy_from_slice(&from[..n]);
    sim::copy(n);
    n
}

impl Vfs {
    /// Reads `pages` pages from the volume into the cache. Returns the first of them. Bytes past the size of the file
    /// are zeroed, as other implementations may have left anything there. The caller has marked the pages as being read
    /// in, or holds `i_rwsem` exclusive.
    pub(crate) fn fill(&self, inode: &Arc<Inode>, index: u64, pages: u64) -> Result<PageRun> {
        let size = inode.read_size();
        let (mut at, mut first) = (index, None);
        while at < index + pages {
            let runs = self.fs.read_pages(inode, at, (index + pages - at) as usize)?;
            if runs.is_empty() {
                break;
            }
            for run in runs {
                let run = insert_read(inode, at, run, size);
                at += run.pages as u64;
                first.get_or_insert(run);
            }
        }
        self.bdi.cached(inode);
        if at < index + pages { Err(ErrorKind::Io.into()) } else { first.ok_or_else(|| ErrorKind::Io.into()) }
    }

    /// Starts to read the first missing pages of a range into the cache.
    fn start_fill(&self, inode: &Arc<Inode>, index: u64, pages: u64) {
        let _kept = inode.mapping.invalidate_lock.read();
        let (cached, missing) = inode.mapping.residency(index, pages);
        if cached {
            return;
        }
        let Some(page_in) = PageIn::begin(inode, index..index + missing) else { return };
        // The cache is checked again, as in `page_in`.
        let (cached, missing) = inode.mapping.residency(index, page_in.len());
        if cached {
            return;
        }
        let bdi = self.bdi.clone();
        let done = Box::new(move |read: Result<Vec<PageRun>>| {
            let inode = page_in.inode();
            // An error is ignored: a thread that needs the pages reads them again and gets the error.
            if let Ok(runs) = read {
                let (size, mut at) = (inode.read_size(), index);
                for run in runs {
                    at += insert_read(inode, at, run, size).pages as u64;
                }
                bdi.cached(inode);
            }
        });
        self.fs.read_ahead(inode, index, missing as usize, done);
    }
}

/// Caches pages that were read from page `at` on, with zeros past the end of the file, where other
/// implementations may have left anything. Returns the pages as they are cached.
fn insert_read(inode: &Inode, at: u64, run: PageRun, size: u64) -> PageRun {
    let end = (at + run.pages as u64) * PAGE;
    let run = if end > size { zero_past(run, size.saturating_sub(at * PAGE)) } else { run };
    inode.mapping.insert_clean(at, &run);
    run
}

/// The run with zeros from byte `valid` on.
fn zero_past(run: PageRun, valid: u64) -> PageRun {
    let valid = (valid as usize).min(run.bytes().len());
    if run.bytes()[valid..].iter().all(|&b| b == 0) {
        return run;
    }
    let mut buf = PageBuf::from_slice(run.bytes());
    buf[valid..].fill(0);
    PageRun { buf: Arc::new(buf), first: 0, pages: run.pages }
}

#[cfg(test)]
#[path = "page_in_tests.rs"]
mod pinned;
