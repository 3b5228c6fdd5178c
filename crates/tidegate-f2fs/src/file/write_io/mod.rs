//! Write bios that are still growing: one for each log (the kernel's `sbi->write_io`).
//!
//! Pages of many inodes that follow each other in a log leave as one bio. A growing bio goes out when it
//! is full, when the next page does not continue it, at the end of a write-back pass, and before anybody
//! waits for write-back ([`tidegate_vfs::Bdi::set_submit_pending`]).
//!
//! Blocks come in by [`WriteIo::add`]; [`Bios`] selects how they join bios. Bios go out by [`WriteIo::submit`]; [`Grown`]
//! selects them. The waits (`wait_…`) send the bios that they wait for first.
//!
//! Locks owned: the locks listed in the folder above, except `sbi->streammap_lock`. Callers: passes over data
//! and nodes add blocks; a thread that waits for write-back has bios sent.
//!
//! | module | holds |
//! |---|---|
//! | `growing`, `add` | a bio that grows and its pages; blocks that have got their places join one |
//! | `submit` | bios that are sent as they are, and the waits for what was sent |
//! | `done` | the ends of bios, and the news that they leave |
//! | `order`, `active`, `sections` | on zones: the order of blocks, zones that are open, zones that take no more |

mod active;
mod add;
mod done;
mod growing;
mod order;
mod sections;
mod submit;

pub(crate) use add::Bios;
pub(crate) use growing::{Extent, LastBio, Pages, Placed};
pub(crate) use sections::SectionSpan;
pub(crate) use submit::Grown;

use active::{ActiveZones, Unsent};
use done::{Completion, Done};
use growing::Growing;
use order::Order;

use crate::durable::flush::FlushControl;
use crate::file::failed_pages::FailedPages;
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use crate::segment::zones::ActiveAtOpen;
use crate::volume::stats::Counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_block::{Bio, BioFlags, RequestQueue};
use tidegate_rt::{
    LockClass, Mutex, MutexGuard, WaitQueue, thread,
    trace::{self, EventPoint},
};
use tidegate_vfs::Error;

/// In the flags, from bit 16 on: one more than the processor that sends the bio; 0 where it is not known.
static SUBMIT_WRITE_BIO: EventPoint<4> =
    EventPoint::new("f2fs_submit_write_bio", ["sector", "size", "log", "flags"]);

static IO_LOCK: LockClass = LockClass::new("io->io_rwsem", 570).off_device();

/// The thread that carries out a bio which the device takes quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The queue's thread.
    Queue,
    /// The calling thread, which is about to wait for the bio.
    Caller,
}

/// The growing bios of a volume, one for each log.
pub(crate) struct WriteIo {
    queue: Arc<RequestQueue>,
    stats: Arc<Counters>,
    logs: [Mutex<Growing>; LOG_SLOTS],
    /// The logs that have a growing bio, one bit each; changed with the log locked.
    growing: AtomicU64,
    /// The logs that ever had a growing bio, and the logs that a checkpoint names.
    used: AtomicU64,
    /// Runs of pages that have their places and are about to join bios.
    placing: AtomicU64,
    /// The runs among these that every checkpoint waits for.
    placing_cp_data: AtomicU64,
    unsent: Arc<Unsent>,
    sent: WaitQueue,
    /// Of a volume on zones: the order of its blocks.
    order: Option<Arc<Order>>,
    done: Arc<Done>,
    pub failed_pages: Arc<FailedPages>,
}

/// A run of pages that have their places and are not in bios yet; a checkpoint waits for it.
pub(crate) struct Placing<'a> {
    io: &'a WriteIo,
    cp_data: bool,
}

impl Drop for Placing<'_> {
    fn drop(&mut self) {
        let mut over = self.io.placing.fetch_sub(1, SeqCst) == 1;
        over |= self.cp_data && self.io.placing_cp_data.fetch_sub(1, SeqCst) == 1;
        if over {
            self.io.sent.wake_all();
        }
    }
}

/// Bios that are full. They are sent when this list is dropped, which waits while the queue is congested. So
/// the list is made before the locks that must not be held meanwhile, and is dropped after them. A thread
/// that holds full bios waits neither for a checkpoint nor for a page's write-back: either may wait for these
/// bios.
pub(crate) struct FullBios<'a> {
    io: &'a WriteIo,
    bios: Vec<(LogId, Growing)>,
}

impl Drop for FullBios<'_> {
    fn drop(&mut self) {
        for (log, bio) in std::mem::take(&mut self.bios) {
            self.io.send(log, bio, Sender::Queue);
        }
    }
}

impl WriteIo {
    pub(crate) fn new(
        queue: Arc<RequestQueue>,
        flushes: Arc<FlushControl>,
        stats: Arc<Counters>,
        zones: Option<(SectionSpan, ActiveAtOpen<'_>)>,
    ) -> Self {
        let failed_pages = Arc::<FailedPages>::default();
        let done = Done::new(flushes, failed_pages.clone());
        let logs = std::array::from_fn(|_| Mutex::new(&IO_LOCK, Growing::default()));
        let unsent = Arc::<Unsent>::default();
        let order = zones
            .map(|(span, at)| Arc::new(Order::new(span, ActiveZones::new(span, at, &queue, unsent.clone()))));
        WriteIo {
            queue,
            stats,
            logs,
            growing: AtomicU64::new(0),
            used: AtomicU64::new(Log::ALL.into_iter().map(|l| LogId::from(l).bit()).sum()),
            placing: AtomicU64::new(0),
            placing_cp_data: AtomicU64::new(0),
            unsent,
            sent: WaitQueue::new(),
            order,
            done: Arc::new(done),
            failed_pages,
        }
    }

    /// Says that pages have their places, before `cp_rwsem` is released. The pages join bios until the result
    /// is dropped. `cp_data` when every checkpoint waits for them.
    pub(crate) fn placing(&self, cp_data: bool) -> Placing<'_> {
        self.placing.fetch_add(1, SeqCst);
        if cp_data {
            self.placing_cp_data.fetch_add(1, SeqCst);
        }
        Placing { io: self, cp_data }
    }

    /// The first error of a write of a node, of another block of the node chain, or of a directory's block,
    /// if there was one. Nothing may vouch for the block then.
    pub(crate) fn metadata_error(&self) -> Option<&Error> {
        self.done.metadata_error.get()
    }

    /// Locks a log, to add to its bio.
    fn lock(&self, log: LogId) -> MutexGuard<'_, Growing> {
        if self.used.load(SeqCst) & log.bit() == 0 {
            self.used.fetch_or(log.bit(), SeqCst);
        }
        self.logs[log.slot()].lock()
    }

    /// Adds blocks to a growing bio; the old bio is returned if they do not fit.
    fn join(&self, g: &mut Growing, log: LogId, placed: Placed, flags: BioFlags) -> Option<Growing> {
        let n = placed.blocks();
        let Placed { blk, segments, pages, then } = placed;
        let limits = self.queue.limits();
        let fits = g.start.plus(g.blocks) == blk
            && g.segments.len() + segments.len() <= limits.max_segments
            && ((g.blocks + n) as u64) * 4096 <= limits.max_bytes;
        let full = (g.blocks > 0 && !fits).then(|| self.take_grown(g, log));
        if let (Some(f), Some(p)) = (&full, &pages) {
            self.stats.sent_early(f.start.plus(f.blocks) != blk && f.is_of_another(&p.inode));
        }
        if g.blocks == 0 {
            self.begin(g);
            self.growing.fetch_or(log.bit(), SeqCst);
            g.start = blk;
            if log.kind == Log::WarmNode {
                g.seq = self.done.begin();
            }
        }
        self.note_cp_data(g, pages.as_ref().is_none_or(|p| p.is_cp_data(log)));
        g.blocks += n;
        g.flags |= flags;
        g.segments.extend(segments);
        g.then.extend(then);
        if let Some(p) = pages {
            p.inode.mapping.gathered().fetch_or(log.bit(), SeqCst);
            p.inode.mapping.joined();
            g.pages.push(p);
        }
        full
    }

    /// Takes the growing bio of a log that the caller has locked: no thread finds the bio's pages there any
    /// more.
    fn take_grown(&self, g: &mut Growing, log: LogId) -> Growing {
        self.growing.fetch_and(!log.bit(), SeqCst);
        for of_one in g.pages.chunk_by(|a, b| Arc::ptr_eq(&a.inode, &b.inode)) {
            of_one[0].inode.mapping.gathered().fetch_and(!log.bit(), SeqCst);
        }
        std::mem::take(g)
    }

    fn begin(&self, g: &mut Growing) {
        self.unsent.begin();
        g.half = self.done.in_flight.begin();
    }

    fn note_cp_data(&self, g: &mut Growing, cp_data: bool) {
        if cp_data && !g.cp_data {
            g.cp_data = true;
            self.done.in_flight.note_cp_data();
        }
    }

    /// Hands a bio to the queue.
    fn send(&self, log: LogId, g: Growing, sender: Sender) {
        self.stats.bio(log.kind.kind(), g.blocks as u64);
        let flags = if log.kind.is_node() { g.flags | BioFlags::META } else { g.flags };
        let (sector, size) = (g.start.sector().0, u64::from(g.blocks) * 4096);
        if trace::enabled() {
            let cpu = thread::cpu().map_or(0, |cpu| u64::from(cpu) + 1);
            SUBMIT_WRITE_BIO.record([sector, size, log.kind as u64, u64::from(flags.bits()) | cpu << 16]);
        }
        let completion = Completion {
            log: log.kind,
            start: g.start,
            pages: g.pages,
            seq: g.seq,
            half: g.half,
            cp_data: g.cp_data,
            then: g.then,
            blocks: g.blocks,
            order: self.order.clone(),
            done: self.done.clone(),
        };
        let bio = Bio::write(g.start.sector(), g.segments, flags).on_end(move |r, _| completion.ended(r));
        let Some(bio) = self.order.iter().try_fold(bio, |bio, o| o.active.admit(g.start, bio)) else {
            return;
        };
        match sender {
            Sender::Caller => self.queue.submit_here(bio),
            Sender::Queue => self.queue.submit(bio),
        }
        self.unsent.sent();
    }
}

#[cfg(test)]
mod tests;
