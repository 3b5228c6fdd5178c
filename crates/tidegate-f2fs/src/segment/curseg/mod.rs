//! The logs: where blocks are allocated, a run at a time.
//!
//! A log appends to a free segment (LFS) or, when free segments run short, fills the holes of a segment in
//! use (SSR). The log's summary names the owner of each block. The summary goes to the SSA when the log
//! leaves the segment. At each checkpoint it goes into the pack, or, for an extra stream, to the SSA.
//!
//! Lock owned: `curseg->curseg_mutex` 500, one for each log. Callers: passes over data and nodes, cleaning, checkpoints.
//!
//! | module | holds |
//! |---|---|
//! | `alloc` | runs of blocks, and moving a log on |
//! | `place` | where a log stands, and what it leaves behind |
//! | `stream` | extra streams of data |
//! | `zoned` | the differences on zones |

mod alloc;
mod place;
mod stream;
mod zoned;

use crate::format::gate::Checkpoint;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use crate::segment::policy::Reserve;
use crate::segment::zones::LeftInSections;
use crate::volume::options::AllocMode;
use crate::volume::sbi::F2fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_block::PageBuf;
use tidegate_rt::{LockClass, Mutex, MutexGuard};
use tidegate_vfs::{At, Error, ErrorKind, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

static CURSEG: LockClass = LockClass::new("curseg->curseg_mutex", 500);

/// A log's segment.
pub(crate) struct Curseg {
    pub segno: SegNo,
    /// Next block to be written; always below 512.
    pub next_blkoff: usize,
    /// The log fills holes.
    pub ssr: bool,
    pub sum: Box<RawSummaryBlock>,
    /// For an extra stream: the value of `next_blkoff` when the summary went to the SSA.
    stored: usize,
}

impl Curseg {
    /// The log as the checkpoint left it.
    pub(crate) fn from_checkpoint(cp: &Checkpoint, log: Log, sum: Box<RawSummaryBlock>) -> Curseg {
        let i = log as usize;
        let (segno, off) = if log.is_node() {
            (cp.raw.cur_node_segno[i - 3], cp.raw.cur_node_blkoff[i - 3])
        } else {
            (cp.raw.cur_data_segno[i], cp.raw.cur_data_blkoff[i])
        };
        let ssr = cp.raw.alloc_type[i] != 0;
        Curseg { segno: SegNo(segno.get()), next_blkoff: off.get() as usize, ssr, sum, stored: 0 }
    }

    /// A copy, for the checkpoint pack.
    pub(crate) fn snapshot(&self) -> Curseg {
        Curseg { sum: self.sum.clone(), ..*self }
    }

    /// A stream without a segment.
    fn closed() -> Curseg {
        let sum = Box::new(RawSummaryBlock::new_zeroed());
        Curseg { segno: SegNo::NONE, next_blkoff: BLOCKS_PER_SEG as usize, ssr: false, sum, stored: 0 }
    }

    /// Number of summaries that a checkpoint must keep: all of an SSR segment, the written ones of another.
    pub(crate) fn summaries(&self) -> usize {
        if self.ssr { ENTRIES_IN_SUM } else { self.next_blkoff }
    }
}

/// All logs. Each has a lock of its own.
pub(crate) struct Cursegs {
    logs: Vec<Mutex<Curseg>>,
    /// The extra streams that have a segment, a bit each; changed with the log locked.
    open: AtomicU64,
    /// The extra streams that found no segment since the last checkpoint, a bit each.
    refused: AtomicU64,
    /// Blocks allocated since the last checkpoint.
    allocated: AtomicU64,
    /// On zones: the blocks that are left in each log's section.
    pub left: LeftInSections,
    /// The last warm node does not name the next block of its log. This is also set when the volume is opened
    /// on a chain: nodes that a power cut left behind that chain would be taken for its next nodes.
    chain_broken: AtomicBool,
}

impl Cursegs {
    pub(crate) fn new(logs: [Curseg; NR_CURSEG_TYPE]) -> Self {
        let closed = std::iter::repeat_with(Curseg::closed).take(LOG_SLOTS - NR_CURSEG_TYPE);
        let logs = logs.into_iter().chain(closed).map(|c| Mutex::new(&CURSEG, c)).collect();
        Cursegs {
            logs,
            open: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            left: LeftInSections::default(),
            chain_broken: AtomicBool::new(true),
        }
    }

    /// Blocks allocated since the last checkpoint.
    pub(crate) fn allocated_since_cp(&self) -> u64 {
        self.allocated.load(Relaxed)
    }

    /// Whether roll-forward would miss the next warm nodes.
    pub(crate) fn chain_is_broken(&self) -> bool {
        self.chain_broken.load(Relaxed)
    }

    /// Called after a checkpoint: the next chain begins at the warm-node log's next block.
    pub(crate) fn checkpointed(&self) {
        self.allocated.store(0, Relaxed);
        self.chain_broken.store(false, Relaxed);
        self.refused.store(0, Relaxed);
    }

    /// Whether a stream found no segment since the last checkpoint.
    pub(crate) fn is_refused(&self, log: LogId) -> bool {
        self.refused.load(Relaxed) & log.bit() != 0
    }

    pub(crate) fn lock(&self, log: impl Into<LogId>) -> MutexGuard<'_, Curseg> {
        self.logs[log.into().slot()].lock()
    }

    /// The extra streams that have a segment.
    pub(crate) fn open_streams(&self) -> impl Iterator<Item = LogId> + use<> {
        LogId::of_bits(self.open.load(SeqCst))
    }

    /// All logs that have a segment.
    pub(crate) fn all(&self) -> impl Iterator<Item = LogId> + use<> {
        Log::ALL.into_iter().map(LogId::from).chain(self.open_streams())
    }
}

/// Blocks allocated in one piece.
pub(crate) struct Allocated {
    /// The log that gave the blocks.
    pub log: LogId,
    pub start: BlockAddr,
    pub blocks: u32,
    /// The block the log will write next.
    pub next: BlockAddr,
}

#[cfg(test)]
mod tests;
