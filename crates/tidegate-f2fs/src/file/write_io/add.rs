//! The way blocks that have their places join bios.

use super::growing::{Extent, Growing, LastBio, Placed};
use super::order::Order;
use super::{FullBios, Sender, WriteIo};
use crate::format::units::BlockAddr;
use crate::segment::log::LogId;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_block::{BioFlags, PageBuf, Segment};

/// An extent of at least this many pages goes out in bios of its own.
const OWN_BIO: usize = 32;

/// The bios that blocks join, and the fate of bios that are full.
pub(crate) enum Bios<'a, 'b> {
    /// The growing bio of the log. Full bios are left in the list: nothing waits here.
    Grown(&'a mut FullBios<'b>),
    /// The growing bio of the log, as in Linux: a full bio is sent with the growing bio still locked, also
    /// while the queue is congested.
    Locked,
    /// Bios of their own if the blocks are many enough, so that no other thread's blocks come between; a few
    /// blocks join the log's growing bio. The last of these bios is left in here; the bio that was in here is
    /// sent.
    Own(&'a mut Option<LastBio>),
}

impl WriteIo {
    /// Adds blocks that have their places from a log to bios. On zones they join the log's growing bio in the
    /// order of their addresses, whatever `bios` says.
    pub(crate) fn add(&self, log: LogId, placed: impl Into<Placed>, flags: BioFlags, bios: Bios<'_, '_>) {
        match (bios, placed.into()) {
            (Bios::Own(last), Placed { blk, segments, pages: Some(pages), then: None }) => {
                self.add_own(log, Extent { blk, segments, pages }, flags, last);
            }
            (Bios::Own(_), placed) => self.add_grown(log, placed, flags, &mut self.full_bios()),
            (Bios::Grown(full), placed) => self.add_grown(log, placed, flags, full),
            (Bios::Locked, placed) => self.add_locked(log, placed, flags),
        }
    }

    fn add_own(&self, log: LogId, extent: Extent, flags: BioFlags, last: &mut Option<LastBio>) {
        let limits = self.queue.limits();
        let most = (limits.max_bytes / 4096) as usize;
        if let Some(order) = self.order_of(extent.pages.moved) {
            let mut full = self.full_bios();
            for e in extent.pieces(most, limits.max_segments) {
                let _span = e.pages.submitting(e.blk, log, flags);
                self.add_in_order(order, log, e.into(), flags, &mut full);
            }
            return;
        }
        if extent.pages.pages < OWN_BIO {
            return self.add_grown(log, extent.into(), flags, &mut self.full_bios());
        }
        let _span = extent.pages.submitting(extent.blk, log, flags);
        for Extent { blk, segments, pages } in extent.pieces(most, limits.max_segments) {
            let mut g = Growing { start: blk, flags, ..Growing::default() };
            self.begin(&mut g);
            self.note_cp_data(&mut g, pages.is_cp_data(log));
            (g.blocks, g.segments) = (pages.pages as u32, segments);
            g.pages.push(pages);
            if let Some(LastBio(log, before)) = last.replace(LastBio(log, g)) {
                self.send(log, before, Sender::Queue);
            }
        }
    }

    fn add_grown(&self, log: LogId, placed: Placed, flags: BioFlags, full: &mut FullBios<'_>) {
        let _span = placed.pages.as_ref().map(|p| p.submitting(placed.blk, log, flags));
        // Pages of nodes have no note that they move: all of them do.
        let moved = log.kind.is_node() || placed.pages.as_ref().is_none_or(|p| p.moved);
        if let Some(order) = self.order_of(moved) {
            return self.add_in_order(order, log, placed, flags, full);
        }
        let mut g = self.lock(log);
        let bio = self.join(&mut g, log, placed, flags);
        full.bios.extend(bio.map(|bio| (log, bio)));
    }

    fn add_locked(&self, log: LogId, placed: Placed, flags: BioFlags) {
        let _span = placed.pages.as_ref().map(|p| p.submitting(placed.blk, log, flags));
        if let Some(order) = self.order_of(placed.pages.as_ref().is_none_or(|p| p.moved)) {
            let mut full = self.full_bios();
            return self.add_in_order(order, log, placed, flags, &mut full);
        }
        let mut g = self.lock(log);
        if let Some(full) = self.join(&mut g, log, placed, flags) {
            self.send(log, full, Sender::Queue);
        }
    }

    /// The order for blocks that got a place from a log; none for a page that is written in place.
    fn order_of(&self, moved: bool) -> Option<&Order> {
        self.order.as_deref().filter(|_| moved)
    }

    /// A list for bios that become full while locks are held under which no thread may wait for the device.
    pub(crate) fn full_bios(&self) -> FullBios<'_> {
        FullBios { io: self, bios: Vec::new() }
    }

    /// Adds blocks that have their places to their log, in the log's order. Full bios, and bios that a thread
    /// may wait for already, are left in `full`.
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
            // The section is full, and bios that begin other zones may wait for its last bio.
            if order.span.is_end(g.start.plus(g.blocks)) {
                full.bios.push((log, self.take_grown(&mut g, log)));
            }
        }
        // A thread may wait for blocks that came early: it asked for them to be sent before they were in a
        // bio.
        if others && g.blocks > 0 {
            full.bios.push((log, self.take_grown(&mut g, log)));
        }
        drop((g, s));
        if order.over.load(SeqCst) {
            self.fail_early(order);
        }
    }

    /// Fills places that got no content: a zone has no gaps. Bios that are full are left in `full`.
    pub(crate) fn fill(&self, log: LogId, start: BlockAddr, blocks: u32, full: &mut FullBios<'_>) {
        let Some(order) = &self.order else { return };
        let zeros = Arc::new(PageBuf::zeroed(1));
        for blk in (0..blocks).map(|i| start.plus(i)) {
            let segments = vec![Segment::pages(zeros.clone(), 0, 1)];
            let placed = Placed { blk, segments, pages: None, then: None };
            self.add_in_order(order, log, placed, BioFlags::empty(), full);
        }
    }
}
