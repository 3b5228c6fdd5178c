//! Sections of the main area, and the sections whose zones take no more writes.

use crate::format::units::BlockAddr;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_rt::{LockClass, Mutex};

static BAD: LockClass = LockClass::new("write_io->bad_sections", 578);

/// Sections of the main area.
#[derive(Clone, Copy)]
pub(crate) struct SectionSpan {
    /// First block of the main area.
    pub main: u32,
    /// Blocks from the start of a section to the start of the next.
    pub blocks: u32,
    /// The first section that must be written in order.
    pub first: u32,
    /// Blocks of such a section that can be written.
    pub capacity: u32,
}

impl SectionSpan {
    /// The section that a block is in.
    pub(super) fn of(self, blk: BlockAddr) -> u32 {
        (blk.0 - self.main) / self.blocks
    }

    pub(super) fn begins_at(self, blk: BlockAddr) -> bool {
        (blk.0 - self.main).is_multiple_of(self.blocks)
    }

    pub(super) fn is_sequential(self, blk: BlockAddr) -> bool {
        self.of(blk) >= self.first
    }

    /// Whether `blk` is the end of the writable blocks of a section that must be written in order.
    pub(super) fn is_end(self, blk: BlockAddr) -> bool {
        let last = BlockAddr(blk.0 - 1);
        self.is_sequential(last) && (last.0 - self.main) % self.blocks + 1 == self.capacity
    }
}

/// Sections that a write failed in: their zones take no more writes.
#[derive(Clone)]
pub(super) struct BadSections {
    span: SectionSpan,
    pub any: Arc<AtomicBool>,
    pub list: Arc<Mutex<BTreeSet<u32>>>,
}

impl BadSections {
    pub(super) fn new(span: SectionSpan) -> Self {
        BadSections { span, any: Arc::default(), list: Arc::new(Mutex::new(&BAD, BTreeSet::new())) }
    }

    /// Notes that a write at a block failed.
    pub(super) fn note(&self, blk: BlockAddr) {
        self.list.lock().insert(self.span.of(blk));
        self.any.store(true, SeqCst);
    }

    pub(super) fn has(&self, blk: BlockAddr) -> bool {
        self.any.load(SeqCst) && self.list.lock().contains(&self.span.of(blk))
    }
}
