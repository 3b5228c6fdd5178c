//! Blocks that have a place on zones and never reach it.

use super::growing::Placed;
use super::{Grown, SectionSpan, Sender, WriteIo};
use crate::format::units::BlockAddr;
use crate::segment::log::{Log, LogId};
use crate::segment::zones::ActiveAtOpen;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use tidegate_block::{
    BioFlags, Errno, MemoryDevice, PageBuf, QueueLimits, RequestQueue, Segment, ZoneSpec, ZonedDevice,
};

const ZONE: u64 = 2 << 20;
const LOGS: [Log; 2] = [Log::WarmData, Log::ColdData];

/// A volume's bios, on a device that takes one active zone. Each of its two logs is at the start of a zone.
fn bed() -> WriteIo {
    let spec = ZoneSpec { size: ZONE, capacity: ZONE, conventional: 0, max_open: 1, max_active: 1 };
    let device = Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(8 * ZONE)), spec));
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let span = SectionSpan { main: 0, blocks: 512, first: 0, capacity: 512 };
    let at = ActiveAtOpen { sections: &[0], most: 1 };
    let io = WriteIo::new(queue, Arc::default(), Arc::default(), Some((span, at)));
    for (n, log) in (0..).zip(LOGS) {
        io.turn(log.into(), BlockAddr::NULL, BlockAddr(n * 512));
    }
    io
}

/// Adds a block; returns its end, and a reference that tells whether anything still holds the block.
fn add(io: &WriteIo, log: Log, blk: u32) -> (Receiver<Result<(), Errno>>, Weak<PageBuf>) {
    let (tx, rx) = channel();
    let page = Arc::new(PageBuf::zeroed(1));
    let held = Arc::downgrade(&page);
    let segments = vec![Segment::pages(page, 0, 1)];
    let then = Some(Box::new(move |r| tx.send(r).unwrap()) as super::growing::Then);
    let placed = Placed { blk: BlockAddr(blk), segments, pages: None, then };
    let log = LogId::from(log);
    io.add_in_order(io.order.as_ref().unwrap(), log, placed, BioFlags::empty(), &mut io.full_bios());
    io.submit(Grown::Log(log, Sender::Queue));
    (rx, held)
}

#[test]
fn what_came_early_or_is_held_ends_with_the_volume() {
    let io = bed();
    let early = add(&io, LOGS[0], 1);
    io.filled(BlockAddr(0));
    // One zone is active and about to be full; this block would begin another zone.
    let held = add(&io, LOGS[1], 512);
    // This block waits in the queue for the held block before it.
    let behind = add(&io, LOGS[1], 513);
    assert!([&early, &held, &behind].iter().all(|b| b.0.try_recv().is_err()));
    drop(io);
    for ((ended, memory), r) in [(early, Err(Errno::IO)), (held, Ok(())), (behind, Ok(()))] {
        assert_eq!(ended.try_recv(), Ok(r));
        assert!(memory.upgrade().is_none());
    }
}
