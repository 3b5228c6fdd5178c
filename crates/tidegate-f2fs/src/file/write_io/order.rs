//! Blocks of a log on zones: they join bios in the order of their addresses, from any thread and at any time.
//!
//! A zone is written from its start on without a gap, and threads add what they have placed in any order.
//! Blocks that come early wait here. The thread that placed the blocks before them adds these soon: between
//! the two it waits for no write. A log says where it leaves a section and where it begins another
//! ([`WriteIo::turn`]), before blocks are placed there.

use super::active::ActiveZones;
use super::growing::{Placed, Then};
use super::{Completion, FullBios, WriteIo};
use crate::format::units::BlockAddr;
use crate::segment::log::{LOG_SLOTS, Log, LogId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_block::{BioFlags, Errno, PageBuf, Segment};
use tidegate_rt::{LockClass, Mutex, WaitQueue};

static IO_ORDER: LockClass = LockClass::new("sbi->io_order_lock", 568).off_device();
static BAD: LockClass = LockClass::new("write_io->bad_sections", 578);

/// Sections of the main area.
#[derive(Clone, Copy)]
pub(crate) struct SectionSpan {
    /// First block of the main area.
    pub main: u32,
    /// Blocks from the start of a section to that of the next.
    pub blocks: u32,
    /// The first section that is written in order.
    pub first: u32,
    /// Blocks that can be written of those.
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

    /// Whether a section that is written in order is full up to a block.
    pub(super) fn is_end(self, blk: BlockAddr) -> bool {
        let last = BlockAddr(blk.0 - 1);
        self.is_sequential(last) && (last.0 - self.main) % self.blocks + 1 == self.capacity
    }
}

/// Sections that a write failed in: their zones take no more.
#[derive(Clone)]
pub(super) struct BadSections {
    span: SectionSpan,
    any: Arc<AtomicBool>,
    list: Arc<Mutex<BTreeSet<u32>>>,
}

impl BadSections {
    fn new(span: SectionSpan) -> Self {
        BadSections { span, any: Arc::default(), list: Arc::new(Mutex::new(&BAD, BTreeSet::new())) }
    }

    /// A write at a block failed.
    pub(super) fn note(&self, blk: BlockAddr) {
        self.list.lock().insert(self.span.of(blk));
        self.any.store(true, SeqCst);
    }

    fn has(&self, blk: BlockAddr) -> bool {
        self.any.load(SeqCst) && self.list.lock().contains(&self.span.of(blk))
    }
}

/// A log's next block, and the blocks that came early.
#[derive(Default)]
struct Sequence {
    next: BlockAddr,
    closed_at: BlockAddr,
    /// Where the log leaves a section, and begins another.
    turns: VecDeque<(BlockAddr, BlockAddr)>,
    early: BTreeMap<u32, (Placed, BioFlags)>,
}

impl Sequence {
    fn take_next(&mut self) -> Option<(Placed, BioFlags)> {
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
    logs: [Mutex<Sequence>; LOG_SLOTS],
    /// The volume stopped: missing blocks may never come.
    over: AtomicBool,
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
    /// Says that a log goes on at `begin` behind what it has up to `left`. For callers that have the log
    /// locked.
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

    /// Where a log was closed.
    pub(crate) fn left_of(&self, log: LogId) -> BlockAddr {
        self.order.as_ref().map_or(BlockAddr::NULL, |o| o.logs[log.slot()].lock().closed_at)
    }

    /// Adds blocks that have their places to their log, in its order. Bios that are full, and those that somebody may
    /// wait for already, are left in `full`.
    pub(super) fn add_in_order(
        &self,
        order: &Order,
        log: LogId,
        placed: Placed,
        flags: BioFlags,
        full: &mut FullBios<'_>,
    ) {
        let own = placed.blk;
        let mut s = order.logs[log.slot()].lock();
        s.early.insert(own.0, (placed, flags));
        let (mut g, mut others) = (self.lock(log), false);
        while let Some((placed, flags)) = s.take_next() {
            others |= placed.blk != own;
            if order.span.begins_at(placed.blk) && g.blocks > 0 {
                full.bios.push((log, self.take_grown(&mut g, log)));
            }
            let bio = self.join(&mut g, log, placed, flags);
            full.bios.extend(bio.map(|bio| (log, bio)));
            // Bios that begin other zones may wait for this one.
            if order.span.is_end(g.start.plus(g.blocks)) {
                full.bios.push((log, self.take_grown(&mut g, log)));
            }
        }
        // A thread that waits for pages that came early has asked for them to be sent before they were in a bio.
        if others && g.blocks > 0 {
            full.bios.push((log, self.take_grown(&mut g, log)));
        }
        drop((g, s));
        if order.over.load(SeqCst) {
            self.fail_early(order);
        }
    }

    /// Fills places that nothing was put to: a zone has no gaps.
    /// Bios that are full are left in `full`.
    pub(crate) fn fill(&self, log: LogId, start: BlockAddr, blocks: u32, full: &mut FullBios<'_>) {
        let Some(order) = &self.order else { return };
        let zeros = Arc::new(PageBuf::zeroed(1));
        for blk in (0..blocks).map(|i| start.plus(i)) {
            let segments = vec![Segment::pages(zeros.clone(), 0, 1)];
            let placed = Placed { blk, segments, pages: None, then: None };
            self.add_in_order(order, log, placed, BioFlags::empty(), full);
        }
    }

    /// Adds one block that nobody's page is, sends it and waits for it.
    pub(crate) fn write_and_wait(&self, log: LogId, blk: BlockAddr, segment: Segment) -> Result<(), Errno> {
        let Some(order) = &self.order else { return Err(Errno::INVAL) };
        let ended = Arc::new((OnceLock::new(), WaitQueue::new()));
        let of_bio = ended.clone();
        let then: Then = Box::new(move |r| {
            let _ = of_bio.0.set(r);
            of_bio.1.wake_all();
        });
        let placed = Placed { blk, segments: vec![segment], pages: None, then: Some(then) };
        let mut full = self.full_bios();
        self.add_in_order(order, log, placed, BioFlags::SYNC, &mut full);
        drop(full);
        self.submit_log(log);
        ended.1.wait_until(|| ended.0.get().is_some());
        ended.0.get().copied().unwrap_or(Err(Errno::IO))
    }

    /// Has what came early fail, now and from now on: the volume stopped.
    pub(crate) fn give_up_order(&self) {
        if let Some(order) = &self.order {
            order.over.store(true, SeqCst);
            order.active.give_up();
            self.fail_early(order);
        }
    }

    fn fail_early(&self, order: &Order) {
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

    /// A zone was finished.
    pub(crate) fn finished(&self, section: u32) {
        if let Some(order) = &self.order {
            order.active.left(section);
        }
    }

    /// Sections that a write failed in and that are partly written.
    pub(crate) fn bad_and_active(&self) -> Vec<u32> {
        let Some(order) = self.order.as_ref().filter(|o| o.bad.any.load(SeqCst)) else { return Vec::new() };
        let bad = order.bad.list.lock().clone();
        bad.into_iter().filter(|n| order.active.is_active(*n)).collect()
    }

    /// A zone was reset: it takes writes again.
    pub(crate) fn is_good_again(&self, section: u32) {
        self.finished(section);
        if let Some(order) = self.order.as_ref().filter(|o| o.bad.any.load(SeqCst)) {
            order.bad.list.lock().remove(&section);
        }
    }
}

/// Of a volume that goes without having stopped: a held bio leads to its holder, and would stay.
impl Drop for WriteIo {
    fn drop(&mut self) {
        self.done.over.store(true, SeqCst);
        self.give_up_order();
    }
}
