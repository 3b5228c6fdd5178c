//! The order of a log's blocks on zones: they join bios in the order of their addresses, from any thread and
//! at any time.
//!
//! A zone is written from its start on without a gap, and threads add what they have placed in any order.
//! Blocks that come early wait here. The thread that placed the blocks before them adds those soon: it waits
//! for no write between placing and adding. A log says where it leaves a section and where it begins another
//! ([`WriteIo::turn`]), before blocks are placed there.

use super::active::ActiveZones;
use super::growing::Placed;
use super::sections::{BadSections, SectionSpan};
use super::{Completion, WriteIo};
use crate::format::units::BlockAddr;
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{BioFlags, Errno};
use tidegate_rt::{LockClass, Mutex};

static IO_ORDER: LockClass = LockClass::new("sbi->io_order_lock", 568).off_device();

/// A log's next block, and the blocks that came early.
#[derive(Default)]
pub(super) struct Sequence {
    next: BlockAddr,
    closed_at: BlockAddr,
    /// The places where the log leaves a section, and where it begins the next.
    turns: VecDeque<(BlockAddr, BlockAddr)>,
    pub early: BTreeMap<u32, (Placed, BioFlags)>,
}

impl Sequence {
    pub(super) fn take_next(&mut self) -> Option<(Placed, BioFlags)> {
        let found = self.early.remove(&self.next.0)?;
        self.next = self.next.plus(found.0.blocks());
        self.follow_turns();
        Some(found)
    }

    fn follow_turns(&mut self) {
        while let Some((_, begin)) =
            self.turns.front().copied().filter(|t| t.0 == self.next || self.next == BlockAddr::NULL)
        {
            self.next = begin;
            self.turns.pop_front();
        }
    }
}

/// The order of all logs of a volume on zones.
pub(crate) struct Order {
    pub(super) span: SectionSpan,
    pub(super) logs: [Mutex<Sequence>; LOG_SLOTS],
    /// The volume stopped: missing blocks may never come.
    pub(super) over: AtomicBool,
    pub(super) bad: BadSections,
    pub(super) active: Arc<ActiveZones>,
}

impl Order {
    pub(super) fn new(span: SectionSpan, active: ActiveZones) -> Order {
        Order {
            span,
            logs: std::array::from_fn(|_| Mutex::new(&IO_ORDER, Sequence::default())),
            over: AtomicBool::new(false),
            bad: BadSections::new(span),
            active: Arc::new(active),
        }
    }
}

impl WriteIo {
    /// Says that a log goes on at `begin` once its blocks up to `left` are added. For callers that have the
    /// log locked.
    pub(crate) fn turn(&self, log: LogId, left: BlockAddr, begin: BlockAddr) {
        if let Some(order) = self.order.as_ref().filter(|_| left != begin) {
            let mut s = order.logs[log.slot()].lock();
            s.turns.push_back((left, begin));
            s.follow_turns();
        }
    }

    /// Says that a log is closed at `at`: it goes nowhere for now.
    pub(crate) fn leaves(&self, log: LogId, at: BlockAddr) {
        if let Some(order) = &self.order {
            order.logs[log.slot()].lock().closed_at = at;
        }
    }

    /// The place where a log was closed.
    pub(crate) fn left_of(&self, log: LogId) -> BlockAddr {
        self.order.as_ref().map_or(BlockAddr::NULL, |o| o.logs[log.slot()].lock().closed_at)
    }

    /// Fails blocks that came early, now and from now on: the volume stopped.
    pub(crate) fn give_up_order(&self) {
        if let Some(order) = &self.order {
            order.over.store(true, SeqCst);
            order.active.give_up();
            self.fail_early(order);
        }
    }

    pub(super) fn fail_early(&self, order: &Order) {
        for log in LogId::of_bits(u64::MAX) {
            let early = std::mem::take(&mut order.logs[log.slot()].lock().early);
            for (placed, _) in early.into_values() {
                Completion {
                    log: log.kind,
                    start: placed.blk,
                    pages: placed.pages.into_iter().collect(),
                    seq: if log.kind == Log::WarmNode { self.done.begin() } else { 0 },
                    half: self.done.in_flight.begin(),
                    cp_data: false,
                    blocks: 0,
                    then: placed.then.into_iter().collect(),
                    order: None,
                    done: self.done.clone(),
                }
                .ended(Err(Errno::IO));
            }
        }
    }

    /// Whether a write failed in the section of a block.
    pub(crate) fn is_bad(&self, blk: BlockAddr) -> bool {
        self.order.as_ref().is_some_and(|o| o.bad.has(blk))
    }

    /// Says that a log has filled the section of a block, whose blocks are about to be added.
    pub(crate) fn filled(&self, blk: BlockAddr) {
        if let Some(order) = self.order.as_ref().filter(|o| o.span.is_sequential(blk)) {
            order.active.filled(blk);
        }
    }

    /// Notes that a zone was finished.
    pub(crate) fn finished(&self, section: u32) {
        if let Some(order) = &self.order {
            order.active.left(section);
        }
    }

    /// Sections that a write failed in and whose zones are active.
    pub(crate) fn bad_and_active(&self) -> Vec<u32> {
        let Some(order) = self.order.as_ref().filter(|o| o.bad.any.load(SeqCst)) else { return Vec::new() };
        let bad = order.bad.list.lock().clone();
        bad.into_iter().filter(|n| order.active.is_active(*n)).collect()
    }

    /// Notes that a zone was reset: it takes writes again.
    pub(crate) fn is_good_again(&self, section: u32) {
        self.finished(section);
        if let Some(order) = self.order.as_ref().filter(|o| o.bad.any.load(SeqCst)) {
            order.bad.list.lock().remove(&section);
        }
    }
}

/// A volume may be dropped without having stopped. A held bio refers to its holder, and both would stay in
/// memory.
impl Drop for WriteIo {
    fn drop(&mut self) {
        self.give_up_order();
    }
}
