//! Zones that are neither empty nor full, of which a device takes so many.
//!
//! A log begins a zone as soon as it has filled one, and bios of the two are on their way together. Where that would be a zone
//! too many, the bio that begins is held until another zone is full.

use super::order::SectionSpan;
use crate::format::units::BlockAddr;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use tidegate_block::{Bio, Errno, RequestQueue};
use tidegate_rt::{LockClass, Mutex, WaitQueue, thread};

static ACTIVE: LockClass = LockClass::new("write_io->active_zones", 579).off_device();

#[derive(Default)]
struct State {
    /// Sections whose zones were begun, until those are full, finished or reset.
    active: BTreeSet<u32>,
    /// Sections that a log has filled, until their last bio has ended.
    ending: BTreeSet<u32>,
    held: VecDeque<(u32, Bio)>,
    /// No longer held, and not sent yet.
    going: Vec<Bio>,
    over: bool,
}

/// What is known of a device's zones.
pub(crate) struct ActiveZones {
    span: SectionSpan,
    /// So many may be active.
    most: usize,
    state: Mutex<State>,
    /// Weak, as bios on their way lead here: the last reference to a queue must not go in a request of its own.
    queue: Weak<RequestQueue>,
    unsent: Arc<Unsent>,
}

/// Bios that were begun and that the queue does not have yet, wherever they are held.
#[derive(Default)]
pub(super) struct Unsent {
    count: AtomicU64,
    pub none: WaitQueue,
}

impl Unsent {
    pub(super) fn begin(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    pub(super) fn sent(&self) {
        if self.count.fetch_sub(1, SeqCst) == 1 {
            self.none.wake_all();
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.count.load(SeqCst) == 0
    }
}

impl State {
    /// Whether another zone may be begun. Also where none is about to be full: nobody would let go of what is held.
    fn has_room(&self, most: usize) -> bool {
        self.over || self.active.len() < most || self.ending.is_disjoint(&self.active)
    }
}

impl ActiveZones {
    /// Those of a device that takes `most` active ones, and has `active`.
    pub(super) fn new(
        span: SectionSpan,
        active: &[u32],
        most: usize,
        queue: &Arc<RequestQueue>,
        unsent: Arc<Unsent>,
    ) -> Self {
        let state = State { active: active.iter().copied().collect(), ..State::default() };
        let queue = Arc::downgrade(queue);
        ActiveZones { span, most, state: Mutex::new(&ACTIVE, state), queue, unsent }
    }

    /// A log has filled the section of a block, and whoever filled it is about to send that.
    pub(super) fn filled(&self, blk: BlockAddr) {
        self.state.lock().ending.insert(self.span.of(blk));
    }

    /// A bio that may go to the queue now; one that is held goes later.
    pub(super) fn admit(&self, start: BlockAddr, bio: Bio) -> Option<Bio> {
        if !self.span.is_sequential(start) || !self.span.begins_at(start) {
            return Some(bio);
        }
        let section = self.span.of(start);
        let mut s = self.state.lock();
        if !s.active.contains(&section) && !s.has_room(self.most) {
            s.held.push_back((section, bio));
            return None;
        }
        s.active.insert(section);
        Some(bio)
    }

    /// A bio of `blocks` blocks from `start` on has ended.
    pub(super) fn ended(self: &Arc<Self>, start: BlockAddr, blocks: u32, ok: bool) {
        if self.span.is_end(start.plus(blocks)) {
            let section = self.span.of(start);
            self.change(|s| {
                s.ending.remove(&section);
                if ok {
                    s.active.remove(&section);
                }
            });
        }
    }

    /// A zone was finished or reset.
    pub(super) fn left(self: &Arc<Self>, section: u32) {
        self.change(|s| s.active.retain(|n| *n != section));
    }

    pub(super) fn is_active(&self, section: u32) -> bool {
        self.state.lock().active.contains(&section)
    }

    /// Holds nothing from now on.
    pub(super) fn give_up(self: &Arc<Self>) {
        self.change(|s| s.over = true);
    }

    fn change(self: &Arc<Self>, f: impl FnOnce(&mut State)) {
        {
            let mut s = self.state.lock();
            f(&mut s);
            while !s.held.is_empty() && s.has_room(self.most) {
                let Some((section, bio)) = s.held.pop_front() else { break };
                s.active.insert(section);
                s.going.push(bio);
            }
            if s.going.is_empty() {
                return;
            }
        }
        // A bio waits for room in the queue, and whoever ends another is not to.
        let zones = self.clone();
        if thread::spawn("tg-f2fs-zones", move || zones.send_going()).is_err() {
            self.send_going();
        }
    }

    fn send_going(&self) {
        let going = std::mem::take(&mut self.state.lock().going);
        let queue = self.queue.upgrade();
        for bio in going {
            match &queue {
                Some(queue) => queue.submit(bio),
                None => bio.complete(Err(Errno::IO)),
            }
            self.unsent.sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_block::{
        BioFlags, Device, MemoryDevice, PageBuf, QueueLimits, Segment, ZoneSpec, ZonedDevice,
    };

    const ZONE: u64 = 2 << 20;

    fn bed() -> (Arc<ZonedDevice>, Arc<RequestQueue>, Arc<ActiveZones>) {
        let spec = ZoneSpec { size: ZONE, capacity: ZONE, conventional: 0, max_open: 1, max_active: 1 };
        let device = Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(8 * ZONE)), spec));
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        let span = SectionSpan { main: 0, blocks: 512, first: 0, capacity: 512 };
        let zones = Arc::new(ActiveZones::new(span, &[0], 1, &queue, Arc::default()));
        (device, queue, zones)
    }

    fn begin(zones: &ActiveZones, section: u32) -> Option<Bio> {
        let start = BlockAddr(section * 512);
        let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
        zones.unsent.begin();
        zones.admit(start, Bio::write(start.sector(), vec![page], BioFlags::empty()))
    }

    #[test]
    fn a_zone_that_is_one_too_many_waits_for_one_to_be_full() {
        let (device, _queue, zones) = bed();
        zones.filled(BlockAddr(500));
        assert!(begin(&zones, 1).is_none());
        zones.ended(BlockAddr(500), 4, true);
        assert_eq!(device.report_zones().unwrap()[1].pointer, ZONE, "there is more of the first");
        zones.ended(BlockAddr(504), 8, true);
        zones.unsent.none.wait_until(|| zones.unsent.is_none());
        assert_eq!((device.refused(), device.report_zones().unwrap()[1].pointer), (0, ZONE + 4096));
    }

    #[test]
    fn nothing_is_held_that_nobody_lets_go() {
        let (_, _queue, zones) = bed();
        assert!(begin(&zones, 1).is_some(), "no zone is about to be full");
        zones.filled(BlockAddr(512));
        assert!(begin(&zones, 2).is_none());
        assert!(begin(&zones, 3).is_none());
        zones.give_up();
        zones.unsent.sent();
        zones.unsent.none.wait_until(|| zones.unsent.is_none());
    }
}
