//! Active zones: zones that are neither empty nor full. A device limits their number.
//!
//! A log begins a zone as soon as it has filled one, and bios of the two zones are on their way together.
//! Where that would be an active zone too many, the first bio of the new zone is held until another zone is
//! full. A zone that a write failed in will never be full: it is finished at once.

use super::sections::SectionSpan;
use crate::format::units::BlockAddr;
use crate::segment::zones::ActiveAtOpen;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_block::{Bio, BioFlags, Errno, Op, RequestQueue, ZoneWriter};
use tidegate_rt::{LockClass, Mutex, WaitQueue};

static ACTIVE: LockClass = LockClass::new("write_io->active_zones", 579).off_device();

#[derive(Default)]
struct State {
    /// Sections whose zones were begun, until those are full, finished or reset.
    active: BTreeSet<u32>,
    /// Sections that a log has filled, until their last bio has ended.
    ending: BTreeSet<u32>,
    /// Sections whose zones are being finished because a write failed there.
    finishing: BTreeSet<u32>,
    held: VecDeque<(u32, Bio)>,
    /// Bios that are no longer held and not sent yet.
    going: VecDeque<Bio>,
    /// A thread sends the bios in `going`.
    sending: bool,
    over: bool,
}

/// The state of a device's zones, as far as it is known.
pub(crate) struct ActiveZones {
    span: SectionSpan,
    /// Most zones that may be active.
    most: usize,
    state: Mutex<State>,
    /// The way to the device for ends of other bios, which must not wait for room in the queue.
    writer: Option<ZoneWriter>,
    unsent: Arc<Unsent>,
}

/// Bios that were begun and that the queue does not have yet, wherever they wait.
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
    /// Whether another zone may be begun. True also where no zone is about to be full: nothing would release
    /// the held bios.
    fn has_room(&self, most: usize) -> bool {
        let none = |of: &BTreeSet<u32>| of.is_disjoint(&self.active);
        self.over || self.active.len() < most || none(&self.ending) && none(&self.finishing)
    }
}

impl ActiveZones {
    /// The zones of the device behind `queue`.
    pub(super) fn new(
        span: SectionSpan,
        at: ActiveAtOpen<'_>,
        queue: &RequestQueue,
        unsent: Arc<Unsent>,
    ) -> Self {
        let state = State { active: at.sections.iter().copied().collect(), ..State::default() };
        let writer = queue.zone_writer();
        ActiveZones { span, most: at.most, state: Mutex::new(&ACTIVE, state), writer, unsent }
    }

    /// Notes that a log has filled the section of a block. The thread that filled it is about to send the
    /// section's last bio.
    pub(super) fn filled(&self, blk: BlockAddr) {
        self.state.lock().ending.insert(self.span.of(blk));
    }

    /// Returns a bio that may go to the queue now, or holds it to be sent later.
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

    /// Notes that a bio of `blocks` blocks from `start` on was written.
    pub(super) fn written(&self, start: BlockAddr, blocks: u32) {
        if self.span.is_end(start.plus(blocks)) {
            let section = self.span.of(start);
            self.change(|s| {
                s.ending.remove(&section);
                s.active.remove(&section);
            });
        }
    }

    /// Notes that a write failed in the section of a block: its zone takes no more writes, and is finished.
    /// To be called before any other code learns of the write's end: when the section is free later, its
    /// reset then comes after this finish.
    pub(super) fn failed(self: &Arc<Self>, blk: BlockAddr, e: Errno) {
        if !self.span.is_sequential(blk) {
            return;
        }
        let section = self.span.of(blk);
        let mut finish = false;
        self.change(|s| {
            s.ending.remove(&section);
            if e == Errno::OVERFLOW {
                // The device did not let the zone begin.
                s.active.remove(&section);
            }
            finish = !s.over && s.active.contains(&section) && s.finishing.insert(section);
        });
        let Some(writer) = self.writer.as_ref().filter(|_| finish) else { return };
        let zones = self.clone();
        let start = BlockAddr(self.span.main + section * self.span.blocks).sector();
        let bio = Bio::range(Op::ZoneFinish, start, u64::from(self.span.blocks) * 4096, BioFlags::SYNC);
        writer.submit(bio.on_end(move |r, _| zones.finished(section, r)));
    }

    fn finished(&self, section: u32, r: Result<(), Errno>) {
        self.change(|s| {
            // An empty zone need not be finished, and the device may not be able to finish it for want of an
            // active zone.
            let is_over = matches!(r, Ok(()) | Err(Errno::OVERFLOW));
            if s.finishing.remove(&section) && is_over {
                s.active.remove(&section);
            }
        });
    }

    /// Notes that a zone was finished or reset.
    pub(super) fn left(&self, section: u32) {
        self.change(|s| {
            s.active.remove(&section);
            s.finishing.remove(&section);
        });
    }

    /// Whether a zone is active and is not being finished.
    pub(super) fn is_active(&self, section: u32) -> bool {
        let s = self.state.lock();
        s.active.contains(&section) && !s.finishing.contains(&section)
    }

    /// Holds no bio from now on. Held bios go to the queue: other bios of their zones may wait there for
    /// them.
    pub(super) fn give_up(&self) {
        self.change(|s| s.over = true);
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        {
            let mut s = self.state.lock();
            f(&mut s);
            while !s.held.is_empty() && s.has_room(self.most) {
                let Some((section, bio)) = s.held.pop_front() else { break };
                s.active.insert(section);
                s.going.push_back(bio);
            }
        }
        self.send_going();
    }

    /// Sends the bios that are no longer held, one thread at a time: a device may end a bio at once, and that
    /// end may release another bio.
    fn send_going(&self) {
        let mut own = false;
        loop {
            let bio = {
                let mut s = self.state.lock();
                if s.sending && !own {
                    return;
                }
                let bio = s.going.pop_front();
                s.sending = bio.is_some();
                bio
            };
            let Some(bio) = bio else { return };
            own = true;
            match &self.writer {
                Some(writer) => writer.submit(bio),
                None => bio.complete(Err(Errno::IO)),
            }
            self.unsent.sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_block::{
        Device, Fault, Faulty, MemoryDevice, PageBuf, QueueLimits, Rule, Segment, Zone, ZoneSpec, ZoneState,
        ZonedDevice,
    };

    const ZONE: u64 = 2 << 20;

    struct Bed {
        device: Arc<ZonedDevice>,
        faulty: Arc<Faulty>,
        queue: RequestQueue,
        zones: Arc<ActiveZones>,
    }

    /// A device that takes at most `most` active zones, with these sections active.
    fn bed(most: usize, sections: &[u32]) -> Bed {
        bed_with(most, most, QueueLimits::default(), sections)
    }

    fn bed_with(of_device: usize, most: usize, limits: QueueLimits, sections: &[u32]) -> Bed {
        let (max_open, max_active) = (of_device, of_device);
        let spec = ZoneSpec { size: ZONE, capacity: ZONE, conventional: 0, max_open, max_active };
        let device = Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(8 * ZONE)), spec));
        let faulty = Faulty::new(device.clone(), []);
        let queue = RequestQueue::new(faulty.clone(), limits);
        let span = SectionSpan { main: 0, blocks: 512, first: 0, capacity: 512 };
        let at = ActiveAtOpen { sections, most };
        let zones = Arc::new(ActiveZones::new(span, at, &queue, Arc::default()));
        Bed { device, faulty, queue, zones }
    }

    impl Bed {
        fn bio(section: u32) -> Bio {
            let page = Segment::pages(Arc::new(PageBuf::zeroed(1)), 0, 1);
            Bio::write(BlockAddr(section * 512).sector(), vec![page], BioFlags::empty())
        }

        fn begin(&self, section: u32) -> Option<Bio> {
            self.zones.unsent.begin();
            self.zones.admit(BlockAddr(section * 512), Self::bio(section))
        }

        fn zone(&self, section: usize) -> Zone {
            self.device.report_zones().unwrap()[section]
        }

        fn wait(&self) {
            self.zones.unsent.none.wait_until(|| self.zones.unsent.is_none());
        }
    }

    #[test]
    fn a_zone_that_is_one_too_many_waits_for_one_to_be_full() {
        let bed = bed(1, &[0]);
        bed.zones.filled(BlockAddr(500));
        assert!(bed.begin(1).is_none());
        bed.zones.written(BlockAddr(500), 4);
        assert_eq!(bed.zone(1).pointer, ZONE, "there is more of the first");
        bed.zones.written(BlockAddr(504), 8);
        bed.wait();
        assert_eq!((bed.device.refused(), bed.zone(1).pointer), (0, ZONE + 4096));
    }

    #[test]
    fn nothing_is_held_that_nobody_lets_go() {
        let bed = bed(1, &[0]);
        assert!(bed.begin(1).is_some(), "no zone is about to be full");
        bed.zones.filled(BlockAddr(512));
        assert!(bed.begin(2).is_none());
        assert!(bed.begin(3).is_none());
        bed.zones.give_up();
        bed.zones.unsent.sent();
        bed.wait();
    }

    /// Zones with a failed write count as active until they are finished.
    #[test]
    fn zones_that_failed_make_room_for_others() {
        let bed = bed(2, &[0, 1]);
        for section in 0..2 {
            bed.queue.submit_wait(Bed::bio(section)).unwrap();
        }
        let late = Fault::Late(Duration::from_millis(20));
        bed.faulty.set([Rule::new(late).op(Op::ZoneFinish)]);
        for section in 0..2 {
            bed.zones.failed(BlockAddr(section * 512 + 1), Errno::IO);
            bed.zones.failed(BlockAddr(section * 512 + 2), Errno::IO);
        }
        assert!(bed.begin(2).is_none() && bed.begin(3).is_none(), "they are about to end");
        bed.wait();
        bed.queue.drain();
        let states = [0, 1, 2, 3].map(|n| bed.zone(n).state);
        assert_eq!(states, [ZoneState::Full, ZoneState::Full, ZoneState::Open, ZoneState::Open]);
        assert_eq!((bed.device.refused(), bed.faulty.late()), (0, 2));
    }

    /// A zone that the device did not let begin is empty and takes no active zone's place.
    #[test]
    fn a_zone_that_was_refused_is_not_active() {
        let bed = bed(2, &[0]);
        drop(bed.begin(1));
        bed.zones.failed(BlockAddr(512), Errno::OVERFLOW);
        bed.zones.filled(BlockAddr(0));
        assert!(bed.begin(2).is_some() && bed.begin(3).is_none());
    }

    /// The end of a bio that releases held bios does not wait for room in the queue: the end of another bio
    /// might have to make that room.
    #[test]
    fn what_goes_in_the_end_of_a_bio_waits_for_nobody() {
        let one = QueueLimits { nr_requests: 1, ..QueueLimits::default() };
        let bed = bed_with(8, 3, one, &[0, 1, 2]);
        (0..3).for_each(|section| bed.zones.filled(BlockAddr(section * 512)));
        assert!((3..6).all(|section| bed.begin(section).is_none()));
        bed.faulty.set([Rule::new(Fault::Late(Duration::from_millis(50)))]);
        bed.queue.submit(Bed::bio(7));
        for section in 0..3 {
            bed.zones.written(BlockAddr(section * 512), 512);
        }
        assert!(bed.zones.unsent.is_none() && bed.queue.in_flight() == 4);
        bed.queue.drain();
        assert!((3..6).all(|n| bed.zone(n).state.is_active()));
    }
}
