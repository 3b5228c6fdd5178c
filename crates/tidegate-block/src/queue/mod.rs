//! The request queue: merges the bios of a plug, bounds the requests in flight, and counts.
//!
//! Lock owned: `queue->ended` 978. Callers: file systems, through bios, and the page cache.

mod ordered;
mod stats;

pub use ordered::ZoneWriter;
pub use stats::{QueueStats, SizeClass};

use crate::bio::{Bio, BioData, BioFlags, Op, Sector};
use crate::completion;
use crate::inflight::{InFlight, Place};
use crate::traced::{self, Traced};
use crate::wbt::Wbt;
use crate::wfq::{Slot, Wfq};
use crate::zones::plug::ZonePlugs;
use crate::{Device, Elevator, ElevatorStats, Errno, PageBuf, Request};
use stats::Counters;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::{clock, device_wait, thread, trace::SpanPoint};

static SUBMIT_BIO_WAIT: SpanPoint<0> = SpanPoint::new("submit_bio_wait", []);

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// The most requests in flight before submitters wait.
    pub nr_requests: usize,
    /// The most bytes in flight before submitters wait. A request that is alone may exceed this.
    pub max_inflight_bytes: u64,
    /// Largest merged request in bytes.
    pub max_bytes: u64,
    /// Most memory segments in a request.
    pub max_segments: usize,
    /// The most write-back in flight while a thread waits for a request. `None`: as much as of other requests. An
    /// elevator itself decides how much that is, without this bound.
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

/// The queue in front of a device, shared by all threads that do I/O on it.
pub struct RequestQueue {
    device: Arc<dyn Device>,
    limits: QueueLimits,
    inflight: Arc<InFlight>,
    wfq: Option<Wfq>,
    /// The zones of a zoned device.
    zones: Option<Arc<ZonePlugs>>,
    n: Arc<Counters>,
}

impl RequestQueue {
    /// A queue in front of `device`, without an elevator.
    pub fn new(device: Arc<dyn Device>, limits: QueueLimits) -> Self {
        Self::with_elevator(device, limits, Elevator::None)
    }

    /// A queue in front of `device`. With [`Elevator::Wfq`], `limits` holds for each I/O group separately. A zoned
    /// device gets no elevator: its writes have an order of their own.
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

    /// Whether the bound on write-back ([`QueueLimits::wbt`]), if there is one, is on. It is on at first.
    pub fn wbt(&self) -> bool {
        self.inflight.throttle.is_on()
    }

    /// Turns the bound on write-back on or off, while the queue is in use.
    pub fn set_wbt(&self, on: bool) {
        self.inflight.throttle.turn(on);
    }

    /// Sets the weight of an I/O group, 1 to 1000 (other values are clamped); the default is 100. Does
    /// nothing without an elevator.
    pub fn set_group_weight(&self, group: u32, weight: u32) {
        if let Some(w) = &self.wfq {
            w.set_group_weight(group, weight);
        }
    }

    /// The work of the elevator for each group and class that has sent anything, in this order. Empty without
    /// an elevator.
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

    /// Starts `bio`. Waits while the queue is congested; with an elevator, while the queue of the bio's group
    /// is.
    pub fn submit(&self, bio: Bio) {
        device_wait::check();
        self.count(&bio);
        self.dispatch(Request::new(bio));
    }

    /// Starts `bio` for a caller that then waits for it. An operation that the device does quickly is
    /// executed in the calling thread, without another thread in between. Waits while the queue is congested.
    pub fn submit_here(&self, bio: Bio) {
        self.count(&bio);
        self.do_here(Request::new(bio));
    }

    /// Executes a request of counted bios in the calling thread, as [`RequestQueue::submit_here`].
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
            None => self.wait_in_line(Place::awaited(&rq)),
        };
        let r = self.execute(&mut rq);
        drop(slot);
        rq.complete(r);
        self.inflight.leave(&place);
    }

    /// Submits `bio` and waits for it. Returns its memory; its completion is not called.
    ///
    /// # Errors
    /// The device's errno.
    pub fn submit_wait(&self, bio: Bio) -> Result<BioData, Errno> {
        // A read may come from an operation that holds locks: it takes no room in the queue, so it waits for
        // none.
        if bio.op != Op::Read {
            device_wait::check();
        }
        self.count(&bio);
        if bio.op == Op::Write {
            self.n.write_requests.fetch_add(1, Relaxed);
        }
        // A thread that asks for a flush already has a span for it.
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

    /// Waits until it is the turn of `rq` in the elevator, if there is one.
    fn enter(&self, rq: &Request) -> Option<Slot<'_>> {
        let w = self.wfq.as_ref()?;
        traced::insert(rq);
        Some(w.enter(rq))
    }

    /// Executes a request in the calling thread.
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let (traced, since) = (Traced::issue_here(rq), clock::now());
        let waits = self.begins_to_wait(rq, false);
        let r = self.device.execute(rq);
        self.inflight.has_waited(waits);
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

    /// The figures of the requests so far.
    pub fn stats(&self) -> QueueStats {
        let zone_refused = self.zones.as_ref().map_or(0, |z| z.refused());
        QueueStats { zone_refused, in_flight: self.in_flight() as u64, ..self.n.read() }
    }

    /// The number of requests that were submitted and have not ended, without those that a thread executes
    /// itself.
    pub fn in_flight(&self) -> usize {
        self.inflight.requests()
    }

    pub(crate) fn count(&self, bio: &Bio) {
        self.n.count(bio);
    }

    /// Sends a request to the device once there is room for it, and gives the room back at its end.
    pub(crate) fn dispatch(&self, rq: Request) {
        self.dispatch_all([rq], false);
    }

    /// Sends several requests to the device, in this order. Requests that there is room for go together.
    /// `awaited` says that a thread waits for them, whatever their flags say: they are no write-back then.
    pub(crate) fn dispatch_all(&self, requests: impl IntoIterator<Item = Request>, awaited: bool) {
        let mut together = Vec::new();
        for rq in requests {
            self.add(rq, awaited, &mut together);
        }
        self.device.submit_all(together);
    }

    /// Adds a request to `together`, which goes to the device next. When the request has to wait for room,
    /// `together` is sent first.
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
        let waits = self.begins_to_wait(&rq, awaited);
        if !self.inflight.enter(&place) {
            self.device.submit_all(std::mem::take(together));
            let _waits = self.n.busy.congested();
            self.inflight.wait_to_enter(&place);
        }
        Traced::watch(&mut rq);
        let inflight = self.inflight.clone();
        rq.after_end(move || {
            inflight.has_waited(waits);
            inflight.leave(&place);
        });
        together.push(rq);
    }

    /// Throttles write-back for a while if a thread waits for `rq`. Returns whether the end of `rq` is to do
    /// so, too.
    fn begins_to_wait(&self, rq: &Request, awaited: bool) -> bool {
        (awaited || rq.is_awaited()) && self.inflight.begins_to_wait(rq.bytes)
    }

    fn wait_in_line(&self, place: Place) -> Place {
        if !self.inflight.enter(&place) {
            let _waits = self.n.busy.congested();
            self.inflight.wait_to_enter(&place);
        }
        place
    }

    /// Waits until no request that changes the device is in flight, whichever thread submitted it. Reads may be in
    /// flight, and requests of [`RequestQueue::submit_wait`], such as resets and finishes of zones: the threads that
    /// asked for these wait for them.
    pub fn drain(&self) {
        device_wait::check();
        self.inflight.wait_for_changes();
    }
}

impl Drop for RequestQueue {
    /// Waits until no request is left, then drops the device. In a completion, the thread would wait for the very
    /// request that it is ending, so another thread waits there.
    fn drop(&mut self) {
        let last =
            Last { wfq: self.wfq.take(), inflight: self.inflight.clone(), device: self.device.clone() };
        if !completion::within() {
            return last.wait();
        }
        // Without a thread the device is never closed, which is better than a thread that waits for itself.
        let last = ManuallyDrop::new(last);
        let _ = thread::spawn("tg-last", move || ManuallyDrop::into_inner(last).wait());
    }
}

/// The parts of a queue that live until its last request has ended.
struct Last {
    wfq: Option<Wfq>,
    inflight: Arc<InFlight>,
    /// Dropped last.
    device: Arc<dyn Device>,
}

impl Last {
    fn wait(self) {
        if let Some(w) = &self.wfq {
            w.close();
        }
        self.inflight.wait_for_all();
        drop(self.wfq);
        drop(self.device);
    }
}
