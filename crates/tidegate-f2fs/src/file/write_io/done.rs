//! Completions of bios: the state that they need and the results that they leave.

use super::growing::{Pages, Then};
use super::order::Order;
use crate::durable::flush::FlushControl;
use crate::file::failed_pages::FailedPages;
use crate::file::in_flight::InFlight;
use crate::format::units::BlockAddr;
use crate::inode::fi;
use crate::segment::log::Log;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_block::Errno;
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::{Error, ErrorKind};

static FSYNC_NODES: LockClass = LockClass::new("sbi->fsync_node_lock", 575);

/// Bios of the warm-node log, numbered in the order of their blocks.
pub(super) struct Chain {
    /// The number of the next bio. Changed with `open` locked.
    pub next: AtomicU64,
    /// Bios that are not on the device yet.
    pub open: Mutex<BTreeSet<u64>>,
}

/// The state that completions of bios need, and the results that they leave.
pub(super) struct Done {
    pub chain: Chain,
    pub shorter: WaitQueue,
    pub in_flight: InFlight,
    pub flushes: Arc<FlushControl>,
    pub failed_pages: Arc<FailedPages>,
    /// The first error of a write whose blocks nothing may vouch for.
    pub metadata_error: OnceLock<Error>,
}

/// The end of one bio, for its pages and for all threads that wait for them.
pub(super) struct Completion {
    pub log: Log,
    pub start: BlockAddr,
    pub pages: Vec<Pages>,
    /// The bio's number in the chain, in the warm-node log.
    pub seq: u64,
    /// The half of the bios in flight that counts the bio.
    pub half: usize,
    /// Whether every checkpoint waits for the bio.
    pub cp_data: bool,
    pub then: Vec<Then>,
    pub blocks: u32,
    /// Of a volume on zones: the order of its blocks.
    pub order: Option<Arc<Order>>,
    pub done: Arc<Done>,
}

impl Completion {
    /// Ends the bio, which was written or failed. Pages that failed are dirty again.
    pub(super) fn ended(self, r: Result<(), Errno>) {
        let done = &self.done;
        if let Err(e) = r {
            done.failed(self.log, self.start, &self.pages, e);
            if let Some(order) = &self.order {
                order.bad.note(self.start);
                order.active.failed(self.start, e);
            }
        }
        // The write is counted first: a thread that finds its pages written asks for a flush by this number.
        let n = done.flushes.write_completed();
        for p in self.pages {
            if !self.log.is_node() {
                if p.moved && r.is_ok() {
                    done.failed_pages.settle(p.inode.ino.0, p.range());
                }
                fi(&p.inode).fsync.data_written(n, p.pages, p.moved, r.is_err());
            }
            p.inode.end_writeback(p.index, p.pages, r.err().map(kind_of));
        }
        if self.log == Log::WarmNode {
            done.end(self.seq);
        }
        self.then.into_iter().for_each(|f| f(r));
        done.in_flight.end(self.half, self.cp_data);
        if let Some(order) = self.order.filter(|_| r.is_ok()) {
            order.active.written(self.start, self.blocks);
        }
    }
}

/// The error that an fsync returns: the device is full, or a write failed.
fn kind_of(e: Errno) -> ErrorKind {
    if e == Errno::NOSPC { ErrorKind::NoSpace } else { ErrorKind::Io }
}

impl Done {
    /// The state of a volume that has sent no bio yet.
    pub(super) fn new(flushes: Arc<FlushControl>, failed_pages: Arc<FailedPages>) -> Done {
        Done {
            chain: Chain { next: AtomicU64::new(0), open: Mutex::new(&FSYNC_NODES, BTreeSet::new()) },
            shorter: WaitQueue::new(),
            in_flight: InFlight::default(),
            flushes,
            failed_pages,
            metadata_error: OnceLock::new(),
        }
    }

    /// Notes that a write of `pages` at `start` failed, for those that want to rely on it.
    pub(super) fn failed(&self, log: Log, start: BlockAddr, pages: &[Pages], e: Errno) {
        let dir = pages.iter().find(|p| p.inode.is_dir());
        if log.is_node() || dir.is_some() {
            let e = match dir {
                Some(d) => Error::device_at(e, "writing", start.place()).in_dir(d.inode.ino),
                None => Error::device_at(e, "writing nodes at", start.place()),
            };
            let _ = self.metadata_error.set(e);
        }
        for p in pages.iter().filter(|p| !log.is_node() && !p.inode.is_dir()) {
            p.inode.mapping.record_errno(e);
            if p.moved {
                self.failed_pages.note(&p.inode, p.range());
            }
        }
    }

    pub(super) fn begin(&self) -> u64 {
        let mut open = self.chain.open.lock();
        let seq = self.chain.next.fetch_add(1, SeqCst);
        open.insert(seq);
        seq
    }

    pub(super) fn end(&self, seq: u64) {
        self.chain.open.lock().remove(&seq);
        self.shorter.wake_all();
    }
}
