//! The request queue: merges the bios of a plug, bounds the requests in flight, counts.
//!
//! Lock owned: `queue->ended` 978. Callers: file systems, through bios, and the page cache.

mod ordered;

pub use ordered::ZoneWriter;

use crate::bio::{Bio, BioData, BioFlags, Op, Sector};
use crate::busy::Busy;
use crate::inflight::{InFlight, Place};
use crate::traced::{self, Traced};
use crate::wbt::Wbt;
use crate::wfq::{Slot, Wfq};
use crate::zones::plug::ZonePlugs;
use crate::{Device, Elevator, ElevatorStats, Errno, PageBuf, Request};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{Distribution, Histogram, clock, device_wait, sim, trace::SpanPoint};

static SUBMIT_BIO_WAIT: SpanPoint<0> = SpanPoint::new("submit_bio_wait", []);

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Requests in flight before submitters wait.
    pub nr_requests: usize,
    /// Bytes in flight before submitters wait; one request may exceed it alone.
    pub max_inflight_bytes: u64,
    /// Largest merged request in bytes.
    pub max_bytes: u64,
    /// Most memory segments in a request.
    pub max_segments: usize,
    /// The most write-back in flight while somebody waits for a request; `None`: as much as of other requests. An
    /// elevator decides that by itself.
    pub wbt: Option<Wbt>,
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            nr_requests: 64,
            max_inflight_bytes: 16 << 20,
            max_bytes: 1 << 20,
            max_segments: 256,
            wbt: None,
        }
    }
}

/// The requests that went through a queue since it was made, and those in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Bios that read.
    pub read_bios: u64,
    /// Bytes in them.
    pub read_bytes: u64,
    /// Bios that wrote.
    pub write_bios: u64,
    /// Bytes in them.
    pub write_bytes: u64,
    /// Requests written, after merging.
    pub write_requests: u64,
    /// Flushes, PREFLUSH and FUA included.
    pub flushes: u64,
    /// Discards, and zones that were reset or finished.
    pub discards: u64,
    /// Times that a submitter waited since the queue was full.
    pub congested: u64,
    /// How long they waited together, in nanoseconds.
    #[serde(default)]
    pub congested_ns: u64,
    /// How much of that with a lock held under which nobody is to wait for a device ([`tidegate_rt::device_wait`]).
    #[serde(default)]
    pub congested_holding_ns: u64,
    /// Bytes × time that requests that have ended were on their way, in KiB × µs: its growth in a time, by
    /// that time, is the mean of bytes on their way.
    #[serde(default)]
    pub kib_us: u64,
    /// Writes to zones that failed by themselves: not at the write pointer, or refused by the device.
    #[serde(default)]
    pub zone_refused: u64,
    /// Requests submitted and not ended, now.
    pub in_flight: u64,
    /// Bios by size, smallest first.
    pub sizes: Vec<SizeClass>,
}

/// Bios of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// They have at least so many bytes (a power of two), and less than twice as many.
    pub bytes: u64,
    /// Those that read.
    pub reads: u64,
    /// Those that wrote.
    pub writes: u64,
}

fn sizes(reads: &Distribution, writes: &Distribution) -> Vec<SizeClass> {
    let mut by_size: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let class = |largest: u64| 1 << largest.checked_ilog2().unwrap_or(0);
    for (largest, n) in &reads.buckets {
        by_size.entry(class(*largest)).or_default().0 += n;
    }
    for (largest, n) in &writes.buckets {
        by_size.entry(class(*largest)).or_default().1 += n;
    }
    by_size.into_iter().map(|(bytes, (reads, writes))| SizeClass { bytes, reads, writes }).collect()
}

#[derive(Default)]
struct Counters {
    read_bios: AtomicU64,
    read_bytes: AtomicU64,
    write_bios: AtomicU64,
    write_bytes: AtomicU64,
    write_requests: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    busy: Busy,
    read_sizes: Histogram,
    write_sizes: Histogram,
}

impl Counters {
    fn count(&self, bio: &Bio) {
        sim::bio();
        let len = bio.data.len();
        match bio.op {
            Op::Read => {
                self.read_bios.fetch_add(1, Relaxed);
                self.read_bytes.fetch_add(len, Relaxed);
                self.read_sizes.record(len);
            }
            Op::Write | Op::WriteZeroes => {
                self.write_bios.fetch_add(1, Relaxed);
                self.write_bytes.fetch_add(len, Relaxed);
                self.write_sizes.record(len);
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Relaxed);
            }
            Op::Discard | Op::ZoneReset | Op::ZoneFinish => {
                self.discards.fetch_add(1, Relaxed);
            }
        }
        if bio.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA) {
            self.flushes.fetch_add(
                bio.flags.intersection(BioFlags::PREFLUSH | BioFlags::FUA).bits().count_ones() as u64,
                Relaxed,
            );
        }
    }
}

/// The way to a device, shared by all who do I/O on it.
pub struct RequestQueue {
    device: Arc<dyn Device>,
    limits: QueueLimits,
    inflight: Arc<InFlight>,
    wfq: Option<Wfq>,
    /// Of a zoned device.
    zones: Option<Arc<ZonePlugs>>,
    n: Arc<Counters>,
}

impl RequestQueue {
    /// A queue in front of `device`, without an elevator.
    pub fn new(device: Arc<dyn Device>, limits: QueueLimits) -> Self {
        Self::with_elevator(device, limits, Elevator::None)
    }

    /// A queue in front of `device`. With [`Elevator::Wfq`], `limits` holds for each I/O group by itself. A zoned
    /// device has no elevator: its writes have an order of their own.
    pub fn with_elevator(device: Arc<dyn Device>, limits: QueueLimits, elevator: Elevator) -> Self {
        let inflight = Arc::new(InFlight::new(limits));
        let wfq = match elevator {
            Elevator::None => None,
            Elevator::Wfq(_) if device.info().zones.is_some() => None,
            Elevator::Wfq(options) => Some(Wfq::new(device.clone(), limits, options, inflight.clone())),
        };
        let zones = ZonePlugs::of(&device);
        RequestQueue { device, limits, inflight, wfq, zones, n: Arc::default() }
    }

    /// Whether the bound on write-back ([`QueueLimits::wbt`]) holds, if there is one. It does until it is turned off.
    pub fn wbt(&self) -> bool {
        self.inflight.throttle.is_on()
    }

    /// Turns that bound on or off, while the queue is in use.
    pub fn set_wbt(&self, on: bool) {
        self.inflight.throttle.turn(on);
    }

    /// Sets the share of an I/O group, 1 to 1000 (other values are cut to that); 100 when never set.
    /// Without an elevator there are no shares and this does nothing.
    pub fn set_group_weight(&self, group: u32, weight: u32) {
        if let Some(w) = &self.wfq {
            w.set_group_weight(group, weight);
        }
    }

    /// The elevator's work for each group and class that has sent anything, in this order; empty without an
    /// elevator.
    pub fn elevator_stats(&self) -> Vec<ElevatorStats> {
        self.wfq.as_ref().map(Wfq::stats).unwrap_or_default()
    }

    /// The device behind the queue.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The queue's bounds.
    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// Starts `bio`. Waits while the queue is congested; with an elevator, while its group's queue is.
    pub fn submit(&self, bio: Bio) {
        device_wait::check();
        self.count(&bio);
        self.dispatch(Request::new(bio));
    }

    /// Starts `bio` for a caller that then waits for it: an operation that the device does quickly is done in
    /// the calling thread, with no other in between. Waits while the queue is congested.
    pub fn submit_here(&self, bio: Bio) {
        self.count(&bio);
        self.do_here(Request::new(bio));
    }

    /// Does a request of counted bios in the calling thread, as [`RequestQueue::submit_here`].
    pub(crate) fn do_here(&self, mut rq: Request) {
        device_wait::check();
        if self.is_ordered(&rq) || !self.device.is_quick(&rq) {
            return self.dispatch_all([rq], true);
        }
        self.inflight.watch(&mut rq);
        self.n.write_requests.fetch_add((rq.op == Op::Write) as u64, Relaxed);
        let slot = self.enter(&rq);
        let place = match slot {
            Some(_) => self.inflight.enter_freely(),
            None => self.wait_for_room(Place::awaited(&rq)),
        };
        let r = self.execute(&mut rq);
        drop(slot);
        rq.complete(r);
        self.inflight.leave(&place);
    }

    /// Does `bio` and waits for it; its completion is not called, its memory is returned.
    ///
    /// # Errors
    /// The device's errno.
    pub fn submit_wait(&self, bio: Bio) -> Result<BioData, Errno> {
        // An operation reads what it finds missing with its locks held. It takes no room in the queue.
        if bio.op != Op::Read {
            device_wait::check();
        }
        self.count(&bio);
        if bio.op == Op::Write {
            self.n.write_requests.fetch_add(1, Relaxed);
        }
        // A thread that asks for a flush has a span for that.
        let _span = (bio.op != Op::Flush).then(|| SUBMIT_BIO_WAIT.enter([]));
        let mut rq = Request::new(bio);
        if self.is_ordered(&rq) {
            return self.wait_for_ordered(rq);
        }
        let slot = self.enter(&rq);
        self.execute(&mut rq)?;
        drop(slot);
        Ok(rq.bios.remove(0).data)
    }

    /// Waits until the elevator, if there is one, has it be the turn of `rq`.
    fn enter(&self, rq: &Request) -> Option<Slot<'_>> {
        let w = self.wfq.as_ref()?;
        traced::insert(rq);
        Some(w.enter(rq))
    }

    /// Has the device do a request in the calling thread.
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let (traced, since) = (Traced::issue_here(rq), clock::now());
        self.note_wait(rq.is_awaited());
        let r = self.device.execute(rq);
        self.note_wait(rq.is_awaited());
        self.n.busy.was(since, rq.bytes);
        if let Some(t) = traced {
            t.complete_here(r);
        }
        r
    }

    /// Reads `pages` pages at `sector` and waits for them.
    ///
    /// # Errors
    /// The device's errno; EIO past its end.
    pub fn read_wait(&self, sector: Sector, pages: usize, flags: BioFlags) -> Result<PageBuf, Errno> {
        let bio = Bio::read(sector, vec![PageBuf::stale(pages)], flags | BioFlags::SYNC);
        match self.submit_wait(bio)? {
            BioData::Read(mut v) if v.len() == 1 => Ok(v.remove(0)),
            _ => Err(Errno::IO),
        }
    }

    /// Makes every write that has completed durable.
    ///
    /// # Errors
    /// The device's errno.
    pub fn flush(&self) -> Result<(), Errno> {
        self.submit_wait(Bio::flush()).map(drop)
    }

    /// Figures of the requests so far.
    pub fn stats(&self) -> QueueStats {
        let n = &self.n;
        let [congested, congested_ns, congested_holding_ns, kib_us] = n.busy.read();
        QueueStats {
            read_bios: n.read_bios.load(Relaxed),
            read_bytes: n.read_bytes.load(Relaxed),
            write_bios: n.write_bios.load(Relaxed),
            write_bytes: n.write_bytes.load(Relaxed),
            write_requests: n.write_requests.load(Relaxed),
            flushes: n.flushes.load(Relaxed),
            discards: n.discards.load(Relaxed),
            congested,
            congested_ns,
            congested_holding_ns,
            kib_us,
            zone_refused: self.zones.as_ref().map_or(0, |z| z.refused()),
            in_flight: self.in_flight() as u64,
            sizes: sizes(&n.read_sizes.read(), &n.write_sizes.read()),
        }
    }

    /// Requests that were submitted and have not ended; those that somebody does himself not among them.
    pub fn in_flight(&self) -> usize {
        self.inflight.requests()
    }

    pub(crate) fn count(&self, bio: &Bio) {
        self.n.count(bio);
    }

    /// Sends a request down once there is room for it, and books it out at its end.
    pub(crate) fn dispatch(&self, rq: Request) {
        self.dispatch_all([rq], false);
    }

    /// Sends several requests down, in this order: those that there is room for go to the device together.
    /// `awaited` where a thread waits for them, whatever their flags say: they are no write-back then.
    pub(crate) fn dispatch_all(&self, requests: impl IntoIterator<Item = Request>, awaited: bool) {
        let mut together = Vec::new();
        for rq in requests {
            self.add(rq, awaited, &mut together);
        }
        self.device.submit_all(together);
    }

    /// Adds a request to those that go to the device next. Where it has to wait for room, those go first.
    fn add(&self, mut rq: Request, awaited: bool, together: &mut Vec<Request>) {
        if self.is_ordered(&rq) {
            return self.add_ordered(rq, awaited, together);
        }
        let write = rq.op == Op::Write;
        self.inflight.watch(&mut rq);
        self.n.busy.watch(&mut rq);
        if let Some(w) = &self.wfq {
            traced::insert(&rq);
            let merged = w.submit(rq, &self.n.busy);
            self.n.write_requests.fetch_add((write && !merged) as u64, Relaxed);
            return;
        }
        if write {
            self.n.write_requests.fetch_add(1, Relaxed);
        }
        let place = if awaited { Place::awaited(&rq) } else { Place::of(&rq) };
        let awaited = self.limits.wbt.is_some() && (awaited || rq.is_awaited());
        self.note_wait(awaited);
        if !self.inflight.enter(&place) {
            self.device.submit_all(std::mem::take(together));
            let _waits = self.n.busy.congested();
            self.inflight.wait_to_enter(&place);
        }
        Traced::watch(&mut rq);
        let inflight = self.inflight.clone();
        rq.after_end(move || {
            if awaited {
                inflight.throttle.somebody_waits();
            }
            inflight.leave(&place);
        });
        together.push(rq);
    }

    /// Has write-back yield for a while where somebody waits for a request.
    fn note_wait(&self, awaited: bool) {
        if awaited && self.limits.wbt.is_some() {
            self.inflight.throttle.somebody_waits();
        }
    }

    fn wait_for_room(&self, place: Place) -> Place {
        self.note_wait(true);
        self.wait_in_line(place)
    }

    fn wait_in_line(&self, place: Place) -> Place {
        if !self.inflight.enter(&place) {
            let _waits = self.n.busy.congested();
            self.inflight.wait_to_enter(&place);
        }
        place
    }

    /// Waits until nothing that anybody submitted and that changes the device is in flight. Reads may be.
    pub fn drain(&self) {
        device_wait::check();
        self.inflight.wait_for_changes();
    }
}

impl Drop for RequestQueue {
    fn drop(&mut self) {
        if let Some(w) = &self.wfq {
            w.close();
        }
        self.inflight.wait_for_all();
    }
}
