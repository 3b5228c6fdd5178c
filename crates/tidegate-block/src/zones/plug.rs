//! Writes to a zone, put in order on the way to the device.
//!
//! A device refuses a write that does not begin at the write pointer of its zone, and writes that are in
//! flight at once may reach the device in any order. So one write to a zone is in flight at a time, and the
//! next is the write that begins where it ends, in whatever order they were submitted. (Linux's zone write
//! plugging takes them in order of submission.) A write that comes early waits. When a write fails, the write
//! pointer of the device is no longer where the next write begins: all waiting writes fail with it, and all
//! that come later, until the zone is reset or finished.

use super::Zoning;
use crate::bio::Op;
use crate::{Device, Errno, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex};

static CLASS: LockClass = LockClass::new("queue->zone_wplugs", 975);

/// A zone as the queue knows it.
#[derive(Default)]
struct Plugged {
    /// Where the next write begins.
    next: u64,
    /// The number of the request that is in flight.
    busy: Option<u64>,
    /// Where the request in flight ends.
    busy_end: u64,
    /// The number of requests so far.
    count: u64,
    /// A thread is sending the next request, and looks again when it is sent.
    sending: bool,
    failed: Option<Errno>,
    /// The writes that came early.
    early: BTreeMap<u64, Numbered>,
    /// Resets and finishes. They go when no write is left that can go.
    operations: VecDeque<Numbered>,
}

/// A request and its number in its zone.
type Numbered = (u64, Request);

impl Plugged {
    /// The end of the writes that are in flight or can follow without a gap.
    fn end(&self) -> u64 {
        let mut end = if self.busy.is_some() { self.busy_end } else { self.next };
        while let Some((_, rq)) = self.early.get(&end) {
            end = rq.end().bytes();
        }
        end
    }

    fn take_next(&mut self) -> Option<Request> {
        if self.busy.is_some() {
            return None;
        }
        let (number, rq) = self.early.remove(&self.next).or_else(|| self.operations.pop_front())?;
        self.busy = Some(number);
        self.busy_end = if rq.op == Op::Write { rq.end().bytes() } else { self.next };
        Some(rq)
    }
}

/// The zones of a queue's device.
pub(crate) struct ZonePlugs {
    device: Arc<dyn Device>,
    zoning: Zoning,
    /// The zones that were written to, by their first bytes.
    zones: Mutex<BTreeMap<u64, Plugged>>,
    /// The number of writes that have no place in their zones, and of those that the device refused.
    refused: AtomicU64,
}

impl ZonePlugs {
    /// The zones of `device`, if it is zoned.
    pub(crate) fn of(device: &Arc<dyn Device>) -> Option<Arc<Self>> {
        let zoning = device.info().zones?;
        let zones = Mutex::new(&CLASS, BTreeMap::new());
        Some(Arc::new(ZonePlugs { device: device.clone(), zoning, zones, refused: AtomicU64::new(0) }))
    }

    /// The number of writes that failed on their own account: behind the write pointer, over another that waits, across
    /// the end of a zone, or refused by the device. Writes that failed because an earlier one did are not counted.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whether a request is to be put in order: it changes a zone that is written in order.
    pub(crate) fn orders(&self, rq: &Request) -> bool {
        let changes = matches!(rq.op, Op::Write | Op::WriteZeroes | Op::ZoneReset | Op::ZoneFinish);
        changes && rq.bytes > 0 && self.zoning.zone_of(rq.sector.bytes()).is_some()
    }

    /// Whether a request waits for one that was not submitted yet. Such a request takes no room from others.
    pub(crate) fn is_early(&self, rq: &Request) -> bool {
        let Some(zone) = self.zone(rq).filter(|_| rq.op == Op::Write) else { return false };
        // The device answers for itself when the request is submitted.
        if self.look(zone, Some(rq.sector.bytes())).is_err() {
            return false;
        }
        let zones = self.zones.lock();
        zones.get(&zone).is_some_and(|z| z.failed.is_none() && rq.sector.bytes() > z.end())
    }

    fn zone(&self, rq: &Request) -> Option<u64> {
        self.zoning.zone_of(rq.sector.bytes())
    }

    /// Sends a request for which [`ZonePlugs::orders`] is true, now or when it is the next of its zone.
    /// `left` is called after its end, when the next request of the zone may go.
    pub(crate) fn submit(self: &Arc<Self>, mut rq: Request, left: impl FnOnce() + Send + 'static) {
        let Some(zone) = self.zone(&rq) else {
            rq.after_end(left);
            return self.device.submit(rq);
        };
        let (pos, bytes, op) = (rq.sector.bytes(), rq.bytes, rq.op);
        let is_write = matches!(op, Op::Write | Op::WriteZeroes);
        if is_write && rq.end().bytes() > zone + self.zoning.size {
            self.refused.fetch_add(1, Relaxed);
            rq.after_end(left);
            return rq.complete(Err(Errno::IO));
        }
        if let (Err(e), true) = (self.look(zone, is_write.then_some(pos)), is_write) {
            // Writes that would follow this one must not wait for it.
            let mut zones = self.zones.lock();
            let z = zones.entry(zone).or_default();
            z.failed = Some(e);
            let early = std::mem::take(&mut z.early);
            drop(zones);
            fail(early.into_values().map(|f| f.1), e);
            rq.after_end(left);
            return rq.complete(Err(e));
        }
        let mut zones = self.zones.lock();
        let z = zones.entry(zone).or_default();
        z.count += 1;
        let number = z.count;
        // A thread that waited for a reset may write to the zone at once.
        let plugs = self.clone();
        rq.before_end(move |r| plugs.ended(zone, number, op, pos + bytes, r));
        let plugs = self.clone();
        rq.after_end(move || {
            plugs.send(zone);
            // The queue waits for its requests, so that its device is dropped in none of them.
            drop(plugs);
            left();
        });
        if let Some(e) = z.failed.filter(|_| is_write) {
            drop(zones);
            return fail([rq], e);
        }
        if !is_write {
            z.operations.push_back((number, rq));
        } else if pos < z.next || z.early.contains_key(&pos) {
            // The request has no place in the zone: the device would refuse it.
            drop(zones);
            self.refused.fetch_add(1, Relaxed);
            return fail([rq], Errno::IO);
        } else {
            z.early.insert(pos, (number, rq));
        }
        drop(zones);
        self.send(zone);
    }

    /// Asks the device for the write pointer of a zone if the pointer is not known, or if a write begins
    /// elsewhere: the zone may have been written through another queue. The answer is stale if a request came
    /// meanwhile. Without an answer, a known pointer stays; where none is known, no write may wait, as no other may ever
    /// come before it.
    fn look(&self, zone: u64, pos: Option<u64>) -> Result<(), Errno> {
        let unknown = |z: Option<&Plugged>| {
            z.is_none_or(|z| pos.is_some_and(|p| p != z.next) && z.busy.is_none() && z.early.is_empty())
        };
        let came = |z: Option<&Plugged>| z.map(|z| z.count);
        let before = {
            let zones = self.zones.lock();
            let z = zones.get(&zone);
            if !unknown(z) {
                return Ok(());
            }
            came(z)
        };
        let report = match self.device.report_zone(zone) {
            Err(_) if self.zones.lock().contains_key(&zone) => return Ok(()),
            r => r?,
        };
        let pointer = report.filter(|z| z.start == zone).map_or(zone, |z| z.pointer);
        let mut zones = self.zones.lock();
        let z = zones.get(&zone);
        if unknown(z) && came(z) == before {
            zones.entry(zone).or_default().next = pointer;
        }
        Ok(())
    }

    /// Sends the next write of a zone, and the ones after it as long as the device completes each at once.
    fn send(&self, zone: u64) {
        let mut first = true;
        loop {
            let mut zones = self.zones.lock();
            let Some(z) = zones.get_mut(&zone) else { return };
            if first && z.sending {
                return;
            }
            let Some(rq) = z.take_next() else {
                z.sending = false;
                return;
            };
            (z.sending, first) = (true, false);
            drop(zones);
            self.device.submit(rq);
        }
    }

    /// Notes that a request of a zone is about to end. The next one of the zone is not sent yet.
    fn ended(&self, zone: u64, number: u64, op: Op, end: u64, r: Result<(), Errno>) {
        let mut zones = self.zones.lock();
        let z = zones.entry(zone).or_default();
        if z.busy != Some(number) {
            return; // the request never was in flight
        }
        z.busy = None;
        let mut failed = BTreeMap::new();
        match (op, r) {
            (Op::ZoneReset, Ok(())) => (z.next, z.failed) = (zone, None),
            (Op::ZoneFinish, Ok(())) => (z.next, z.failed) = (zone + self.zoning.size, None),
            (Op::ZoneReset | Op::ZoneFinish, Err(_)) => {}
            (_, Ok(())) => z.next = end,
            (_, Err(e)) => {
                self.refused.fetch_add(1, Relaxed);
                z.failed = Some(e);
                failed = std::mem::take(&mut z.early);
            }
        }
        drop(zones);
        if let Err(e) = r {
            fail(failed.into_values().map(|f| f.1), e);
        }
    }
}

/// Ends requests with an error.
fn fail(requests: impl IntoIterator<Item = Request>, e: Errno) {
    requests.into_iter().for_each(|rq| rq.complete(Err(e)));
}
