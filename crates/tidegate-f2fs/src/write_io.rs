//! Write bios that are still growing: one for each log (the kernel's `sbi->write_io`).
//!
//! Pages of many inodes that follow each other in a log leave as one bio. A growing bio goes out when it
//! is full, when the next page does not continue it, at the end of a write-back pass, and before anybody
//! waits for write-back ([`tidegate_vfs::Bdi::set_submit_pending`]).

use crate::curseg::Log;
use crate::raw::NR_CURSEG_TYPE;
use crate::stats::Counters;
use crate::units::BlockAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{Bio, BioFlags, RequestQueue, Segment};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{ErrorKind, Inode};

static IO_LOCK: LockClass = LockClass::new("io->io_rwsem", 570);

/// Pages whose write-back ends with their bio.
pub(crate) struct Pages {
    pub inode: Arc<Inode>,
    pub index: u64,
    pub pages: usize,
}

#[derive(Default)]
struct Growing {
    start: BlockAddr,
    blocks: u32,
    segments: Vec<Segment>,
    pages: Vec<Pages>,
    flags: BioFlags,
}

/// See the module.
pub(crate) struct WriteIo {
    queue: Arc<RequestQueue>,
    logs: [Mutex<Growing>; NR_CURSEG_TYPE],
    dir_failed: Arc<AtomicBool>,
}

impl WriteIo {
    pub(crate) fn new(queue: Arc<RequestQueue>) -> Self {
        let logs = std::array::from_fn(|_| Mutex::new(&IO_LOCK, Growing::default()));
        WriteIo { queue, logs, dir_failed: Arc::default() }
    }

    /// Whether a directory's block could not be written. No checkpoint may vouch for it then.
    pub(crate) fn dir_failed(&self) -> bool {
        self.dir_failed.load(SeqCst)
    }

    /// Adds pages that were placed at `blk`. Waits while the queue is congested, holding no lock.
    pub(crate) fn add(
        &self,
        stats: &Counters,
        log: Log,
        blk: BlockAddr,
        segments: Vec<Segment>,
        pages: Pages,
        flags: BioFlags,
    ) {
        let n = pages.pages as u32;
        let mut g = self.logs[log as usize].lock();
        let limits = self.queue.limits();
        let fits = g.start.plus(g.blocks) == blk
            && g.segments.len() + segments.len() <= limits.max_segments
            && ((g.blocks + n) as u64) * 4096 <= limits.max_bytes;
        let full = if g.blocks > 0 && !fits { Some(std::mem::take(&mut *g)) } else { None };
        if g.blocks == 0 {
            g.start = blk;
        }
        g.blocks += n;
        g.flags |= flags;
        g.segments.extend(segments);
        g.pages.push(pages);
        drop(g);
        if let Some(full) = full {
            self.submit(stats, log, full);
        }
    }

    /// Sends every growing bio.
    pub(crate) fn submit_all(&self, stats: &Counters) {
        for log in Log::ALL {
            let g = std::mem::take(&mut *self.logs[log as usize].lock());
            if g.blocks > 0 {
                self.submit(stats, log, g);
            }
        }
    }

    fn submit(&self, stats: &Counters, log: Log, g: Growing) {
        stats.bio(log.kind(), g.blocks as u64);
        tidegate_rt::trace::event(
            "f2fs_submit_write_bio",
            [("sector", g.start.sector().0), ("size", g.blocks as u64 * 4096), ("log", log as u64), ("", 0)],
        );
        let pages = g.pages;
        let flags = if log.is_node() { g.flags | BioFlags::META } else { g.flags };
        let dir_failed = self.dir_failed.clone();
        self.queue.submit(Bio::write(g.start.sector(), g.segments, flags).on_end(move |r, _| {
            let failed = r.err().map(|_| ErrorKind::Io);
            if failed.is_some() && pages.iter().any(|p| p.inode.is_dir()) {
                dir_failed.store(true, SeqCst);
            }
            for p in pages {
                p.inode.mapping.end_writeback(p.index, p.pages, failed);
            }
        }));
    }
}
