//! Zones: the requests that a device refuses, and the order into which a queue puts writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::slice::Slice;
use tidegate_block::{
    Bio, BioData, BioFlags, Device, DeviceInfo, Errno, Fault, Faulty, Linear, MemoryDevice, Op, PAGE_SIZE,
    PageBuf, QueueLimits, Recorder, Request, RequestQueue, Rule, Sector, Segment, Zone, ZoneSpec, ZoneState,
    ZonedDevice,
};
use tidegate_rt::{rng::Rng, thread};

const MIB: u64 = 1 << 20;
const PAGE: u64 = PAGE_SIZE as u64;
const SPEC: ZoneSpec = ZoneSpec { size: 2 * MIB, capacity: MIB, conventional: 1, max_open: 2, max_active: 3 };

fn zoned(size: u64) -> Arc<ZonedDevice> {
    Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(size)), SPEC))
}

fn write(pos: u64, pages: usize, byte: u8) -> Bio {
    let mut buf = PageBuf::zeroed(pages);
    buf.fill(byte);
    Bio::write(Sector::from_bytes(pos), vec![Segment::pages(Arc::new(buf), 0, pages)], BioFlags::empty())
}

fn zone_op(op: Op, zone: u64) -> Bio {
    Bio::range(op, Sector::from_bytes(zone * SPEC.size), SPEC.size, BioFlags::empty())
}

fn queue(device: Arc<dyn Device>, nr_requests: usize) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device, QueueLimits { nr_requests, ..QueueLimits::default() }))
}

#[test]
fn a_zone_is_closed_for_another_and_counts_until_it_is_full_or_reset() {
    let d = zoned(12 * MIB);
    let q = queue(d.clone(), 4);
    let put = |pos| q.submit_wait(write(pos, 1, 1)).map(drop);
    let states = || d.report_zones().unwrap().iter().map(|z| z.state).collect::<Vec<_>>();
    for n in 1..4 {
        put(n * SPEC.size).unwrap();
    }
    use ZoneState::*;
    assert_eq!(states(), [Conventional, Closed, Open, Open, Empty, Empty]);
    assert_eq!(put(4 * SPEC.size), Err(Errno::OVERFLOW));
    q.submit_wait(zone_op(Op::ZoneFinish, 2)).unwrap();
    q.submit_wait(zone_op(Op::ZoneReset, 4)).unwrap();
    put(4 * SPEC.size).unwrap();
    put(SPEC.size + PAGE).unwrap();
    assert_eq!(states(), [Conventional, Open, Full, Closed, Open, Empty]);
    assert_eq!(q.submit_wait(zone_op(Op::ZoneReset, 0)).map(drop), Err(Errno::INVAL));
    assert_eq!(put(2 * SPEC.size), Err(Errno::IO), "a full zone");
    q.submit_wait(zone_op(Op::ZoneReset, 2)).unwrap();
    assert_eq!(states()[2], Empty);
    let plain = queue(Arc::new(MemoryDevice::new(4 * MIB)), 4);
    assert_eq!(plain.submit_wait(zone_op(Op::ZoneReset, 0)).map(drop), Err(Errno::OPNOTSUPP));
}

/// A thread that waited for a reset may write before the reset's other completions have run.
#[test]
fn a_zone_takes_writes_as_soon_as_the_end_of_its_reset_is_told() {
    let d = zoned(12 * MIB);
    let q = queue(d.clone(), 4);
    q.submit_wait(write(SPEC.size, 3, 1)).unwrap();
    let (writer, ended) = (q.zone_writer().unwrap(), Arc::new(AtomicU64::new(0)));
    let of_write = ended.clone();
    let first = write(SPEC.size, 1, 2).on_end(move |r, _| of_write.store(1 + r.is_err() as u64, SeqCst));
    let reset = zone_op(Op::ZoneReset, 1).on_end(move |r, _| {
        assert_eq!(r, Ok(()));
        writer.submit(first);
    });
    q.submit(reset);
    q.drain();
    assert_eq!((ended.load(SeqCst), d.refused(), q.stats().zone_refused), (1, 0, 0));
    assert_eq!(d.report_zones().unwrap()[1].pointer, SPEC.size + PAGE);
}

#[test]
fn a_zone_that_the_device_gave_up_takes_no_more() {
    let d = zoned(12 * MIB);
    let q = queue(d.clone(), 4);
    for n in [1, 2, 3] {
        q.submit_wait(write(n * SPEC.size, 1, 7)).unwrap();
    }
    d.give_up(1, ZoneState::ReadOnly);
    d.give_up(2, ZoneState::Offline);
    // The full zones are no longer active.
    for n in [4, 5] {
        q.submit_wait(write(n * SPEC.size, 1, 7)).unwrap();
    }
    for n in [1, 2] {
        let after = write(n * SPEC.size + PAGE, 1, 1);
        for bio in [after, zone_op(Op::ZoneReset, n), zone_op(Op::ZoneFinish, n)] {
            assert_eq!(q.submit_wait(bio).map(drop), Err(Errno::IO), "zone {n}");
        }
    }
    assert_eq!(d.refused(), 6);
    let read = |n: u64| q.read_wait(Sector::from_bytes(n * SPEC.size), 1, BioFlags::empty()).map(|b| b[0]);
    assert_eq!((read(1), read(2), read(3)), (Ok(7), Err(Errno::IO), Ok(7)));
    assert_eq!(d.refused(), 6, "a read breaks no rule");
}

/// Sends writes of `threads` threads to three zones, in random order, on a device that takes a random time
/// for each.
fn shuffled(threads: u64, nr_requests: usize, seed: u64) {
    let d = zoned(8 * MIB);
    let late = Rule::new(Fault::Shuffled(Duration::from_micros(40))).op(Op::Write).chance(500, seed);
    let q = queue(Faulty::new(d.clone(), [late]), nr_requests);
    let pages = SPEC.capacity / PAGE / 4;
    let mut all: Vec<u64> =
        (1..4).flat_map(|z| (0..pages).map(move |p| z * SPEC.size + p * 4 * PAGE)).collect();
    let mut rng = Rng::new(seed);
    // Few threads wait for room, compared with the writes that may come early.
    for i in (1..all.len()).rev() {
        let near = i - rng.below(i.min(threads as usize) as u64 + 1) as usize;
        all.swap(i, near);
    }
    let (next, failed, all) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(all));
    let one = |n: u64| {
        let (next, failed, all, q) = (next.clone(), failed.clone(), all.clone(), q.clone());
        thread::spawn(&format!("t{n}"), move || {
            while let Some(pos) = all.get(next.fetch_add(1, SeqCst) as usize) {
                let failed = failed.clone();
                q.submit(write(*pos, 4, (*pos / PAGE) as u8).on_end(move |r, _| {
                    failed.fetch_add(u64::from(r.is_err()), SeqCst);
                }));
            }
        })
        .unwrap()
    };
    let running: Vec<_> = (0..threads).map(one).collect();
    running.into_iter().for_each(|t| t.join());
    q.drain();
    assert_eq!((failed.load(SeqCst), d.refused(), q.stats().zone_refused), (0, 0, 0), "seed {seed}");
    for pos in all.iter() {
        let page = q.read_wait(Sector::from_bytes(*pos), 1, BioFlags::empty()).unwrap();
        assert_eq!(page[0], (*pos / PAGE) as u8, "seed {seed}");
    }
    assert!(d.report_zones().unwrap()[1..].iter().all(|z| z.state == ZoneState::Full));
}

#[test]
fn writes_to_a_zone_reach_the_device_in_order_whoever_submits_them_when() {
    for seed in 0..8 {
        shuffled(6, 64, seed);
        // Early writes would take all the room, and the write that they wait for comes last.
        shuffled(6, 2, 100 + seed);
    }
}

#[test]
fn after_a_failure_a_zone_takes_nothing_until_it_is_reset() {
    let d = zoned(8 * MIB);
    let faulty = Faulty::new(d.clone(), [Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).which(1..2)]);
    let q = queue(faulty, 8);
    let put = |pos| q.submit_wait(write(pos, 1, 1)).map(drop);
    let at = SPEC.size;
    put(at).unwrap();
    // This write waits for the write that fails.
    let ended = Arc::new(AtomicU64::new(0));
    let of_early = ended.clone();
    q.submit(write(at + 2 * PAGE, 1, 1).on_end(move |r, _| {
        assert_eq!(r, Err(Errno::IO));
        of_early.fetch_add(1, SeqCst);
    }));
    assert_eq!((put(at + PAGE), ended.load(SeqCst)), (Err(Errno::IO), 1));
    assert_eq!((put(at + PAGE), put(2 * at)), (Err(Errno::IO), Ok(())));
    q.submit_wait(zone_op(Op::ZoneReset, 1)).unwrap();
    assert_eq!((put(at), put(at + PAGE)), (Ok(()), Ok(())));
    assert_eq!((put(at), d.refused()), (Err(Errno::IO), 0), "behind the write pointer: not even sent");
    // The last write and the write that the device failed are counted; those that failed with it are not.
    assert_eq!(q.stats().zone_refused, 2);
}

#[test]
fn several_devices_are_one_and_a_flush_is_for_all_that_were_written() {
    let (plain, zones) = (Arc::new(Recorder::new(Arc::new(MemoryDevice::new(5 * MIB)))), zoned(8 * MIB));
    let second = Arc::new(Recorder::new(zones.clone()));
    let third = Arc::new(Recorder::new(zoned(8 * MIB)));
    let parts: Vec<(Arc<dyn Device>, u64)> =
        vec![(plain.clone(), 4 * MIB), (second.clone(), 8 * MIB), (third, 8 * MIB)];
    assert!(Linear::new(parts).is_none(), "conventional zones behind others");
    let all = Arc::new(Linear::new(vec![(plain.clone(), 4 * MIB), (second.clone(), 8 * MIB)]).unwrap());
    let info = all.info();
    assert_eq!((info.size, info.zones.unwrap().first), (12 * MIB, 6 * MIB));
    let report = all.report_zones().unwrap();
    assert_eq!((report.len(), report[0].len, report[2].start), (5, 4 * MIB, 6 * MIB));
    let q = queue(all.clone(), 8);
    let flushes = |r: &Recorder| r.take().iter().filter(|r| r.op == Op::Flush).count();
    q.submit_wait(write(0, 1, 3)).unwrap();
    q.flush().unwrap();
    assert_eq!((flushes(&plain), flushes(&second)), (1, 1), "a killed process may have written to any");
    q.flush().unwrap();
    assert_eq!((flushes(&plain), flushes(&second)), (1, 0));
    q.submit_wait(write(6 * MIB, 1, 4)).unwrap();
    let mut bio = write(4096, 1, 5);
    bio.flags |= BioFlags::PREFLUSH;
    q.submit_wait(bio).unwrap();
    assert_eq!((flushes(&plain), flushes(&second)), (0, 1));
    // A request of both.
    q.submit_wait(write(4 * MIB - PAGE, 2, 9)).unwrap();
    let data = q.submit_wait(Bio::read(
        Sector::from_bytes(4 * MIB - 2 * PAGE),
        vec![PageBuf::zeroed(4)],
        BioFlags::empty(),
    ));
    let Ok(BioData::Read(bufs)) = data else { panic!("{data:?}") };
    assert_eq!([0, 1, 2, 3].map(|p| bufs[0][p * PAGE_SIZE]), [0, 9, 9, 0]);
    assert_eq!(all.report_zones().unwrap()[2].pointer, 6 * MIB + PAGE);
    q.submit_wait(Bio::range(Op::ZoneReset, Sector::from_bytes(6 * MIB), 2 * MIB, BioFlags::empty()))
        .unwrap();
    assert_eq!(zones.report_zones().unwrap()[1].state, ZoneState::Empty);
}

/// A device that has gone away before its zones were asked for.
struct Gone(Arc<ZonedDevice>);

impl Device for Gone {
    fn info(&self) -> DeviceInfo<'_> {
        self.0.info()
    }
    fn report_zone(&self, _: u64) -> Result<Option<Zone>, Errno> {
        Err(Errno::NODEV)
    }
    fn execute(&self, _: &mut Request) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }
}

/// The queue does not know whether other writes are to come before this one, and so must not wait for them.
#[test]
fn a_write_to_a_zone_that_cannot_be_asked_for_fails() {
    let q = queue(Arc::new(Gone(zoned(12 * MIB))), 4);
    let failed = q.submit_wait(write(SPEC.size + 5 * PAGE, 1, 1)).map(drop);
    assert_eq!(failed, Err(Errno::NODEV));
    q.drain();
}

/// A device that counts how often it is asked for one zone, and cannot report all of them.
struct Asked(Arc<ZonedDevice>, AtomicU64);

impl Device for Asked {
    fn info(&self) -> DeviceInfo<'_> {
        self.0.info()
    }
    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        panic!("asked for all zones");
    }
    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        self.1.fetch_add(1, SeqCst);
        self.0.report_zone(pos)
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        self.0.execute(rq)
    }
}

/// A disk has tens of thousands of zones, and the queue asks for each zone that it begins to write.
#[test]
fn a_queue_asks_for_the_zone_that_it_writes() {
    let asked = Arc::new(Asked(zoned(12 * MIB), AtomicU64::new(0)));
    let q = queue(asked.clone(), 4);
    for n in 1..4 {
        (0..2).for_each(|page| q.submit_wait(write(n * SPEC.size + page * PAGE, 1, 1)).map(drop).unwrap());
    }
    assert_eq!(asked.1.load(SeqCst), 3);
}

/// Each kind of device reports a single zone as it does among all.
#[test]
fn one_zone_is_told_as_among_all() {
    let zones = zoned(8 * MIB);
    let q = queue(zones.clone(), 4);
    q.submit_wait(write(SPEC.size, 3, 1)).unwrap();
    let plain: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 * MIB));
    let of =
        |d: Arc<dyn Device>| Arc::new(Linear::new(vec![(plain.clone(), 4 * MIB), (d, 6 * MIB)]).unwrap());
    let all: [Arc<dyn Device>; 6] = [
        zones.clone(),
        Faulty::new(zones.clone(), []),
        Arc::new(Recorder::new(zones.clone())),
        Arc::new(Slice::new(zones.clone(), MIB).unwrap()),
        of(zones.clone()),
        plain.clone(),
    ];
    for d in all {
        let told = d.report_zones().unwrap();
        for pos in (0..d.size() + MIB).step_by(MIB as usize / 2) {
            let same = told.iter().find(|z| (z.start..z.start + z.len).contains(&pos)).copied();
            assert_eq!(d.report_zone(pos).unwrap(), same, "{} at {pos}", d.name());
        }
    }
}
