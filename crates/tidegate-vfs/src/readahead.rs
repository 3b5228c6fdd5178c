//! Reading pages in: what is wanted now, and what a sequential reader will want.
//!
//! A reader that goes on where it stopped gets a window that doubles up to [`RA_MAX`]. When half of what was
//! read ahead is used up, the next window is started without waiting for it.

use crate::error::{ErrorKind, Result};
use crate::file::File;
use crate::inode::Inode;
use crate::mapping::ReadAhead;
use crate::mapping::chunk::PageRun;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{PAGE_SIZE, PageBuf};

/// Pages of the first window, and of the largest.
const RA_MIN: u64 = 32;
const RA_MAX: u64 = 256;
const PAGE: u64 = PAGE_SIZE as u64;

/// What an open file remembers of its reader. Readers that share it may mislead each other, to no harm.
pub(crate) struct ReadAheadState {
    /// Where the last read ended, in bytes.
    next: AtomicU64,
    /// Pages of the next window.
    window: AtomicU64,
    /// First page that was neither read nor started.
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

impl File {
    /// Reads missing pages at byte `pos` into the cache, for a read of which `want` bytes are left and that
    /// began at `start`: what is wanted and, for sequential readers, a window.
    pub(crate) fn read_in(&self, pos: u64, start: u64, want: u64, size: u64) -> Result<()> {
        let index = pos / PAGE;
        let wanted = (pos + want).div_ceil(PAGE) - index;
        let pages = if self.ra.next.load(Relaxed) == start {
            wanted.max(self.ra.next_window())
        } else {
            self.ra.window.store(RA_MIN, Relaxed);
            wanted
        };
        let pages = pages.min(RA_MAX).min(size.div_ceil(PAGE) - index);
        let (cached, n) = self.inode.mapping.residency(index, pages);
        self.ra.end.store(index + n, Relaxed);
        if cached {
            // Another reader was faster. What is on the volume may be older than pages that are dirty; it must
            // not come into the cache when these are written and dropped meanwhile.
            return Ok(());
        }
        self.vfs.fill(&self.inode, index, n)
    }

    /// After a read of `start..end`: starts the next window if the reader is sequential and near its end.
    /// The caller holds `i_rwsem` shared.
    pub(crate) fn read_on(&self, start: u64, end: u64, size: u64) {
        let sequential = self.ra.next.swap(end, Relaxed) == start;
        let (ahead, last) = (self.ra.end.load(Relaxed), size.div_ceil(PAGE));
        let at = end.div_ceil(PAGE);
        if !sequential || ahead < at || ahead >= last || at + self.ra.window.load(Relaxed) / 2 < ahead {
            return;
        }
        let pages = self.ra.next_window().min(last - ahead);
        self.ra.end.store(ahead + pages, Relaxed);
        self.vfs.start_fill(&self.inode, ahead, pages);
    }
}

impl Vfs {
    /// Reads `pages` pages from the volume into the cache. Bytes past the file's size are zeroed, as
    /// other writers may have left anything there.
    pub(crate) fn fill(&self, inode: &Arc<Inode>, index: u64, pages: u64) -> Result<()> {
        let size = inode.size();
        let mut at = index;
        while at < index + pages {
            let runs = self.fs.read_pages(inode, at, (index + pages - at) as usize)?;
            if runs.is_empty() {
                return Err(ErrorKind::Io.into());
            }
            at = insert_read(inode, at, runs, size);
        }
        self.bdi.cached(inode);
        Ok(())
    }

    /// Starts to read the first missing pages of a range into the cache.
    fn start_fill(&self, inode: &Arc<Inode>, index: u64, pages: u64) {
        let (cached, n) = inode.mapping.residency(index, pages);
        if cached {
            return;
        }
        let Some(ahead) = ReadAhead::begin(inode, index..index + n) else { return };
        let bdi = self.bdi.clone();
        let done = Box::new(move |read: Result<Vec<PageRun>>| {
            let inode = ahead.inode();
            // Who wants the pages reads them again and is told of the error.
            if let Ok(runs) = read {
                insert_read(inode, index, runs, inode.size());
                bdi.cached(inode);
            }
        });
        self.fs.read_ahead(inode, index, n as usize, done);
    }
}

/// Caches what was read from page `at` on; the page after it. Bytes past the file's size are zeroed, as other
/// writers may have left anything there.
fn insert_read(inode: &Inode, mut at: u64, runs: Vec<PageRun>, size: u64) -> u64 {
    for run in runs {
        let end = (at + run.pages as u64) * PAGE;
        let run = if end > size { zero_past(run, size.saturating_sub(at * PAGE)) } else { run };
        inode.mapping.insert_clean(at, &run);
        at += run.pages as u64;
    }
    at
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
