//! Requests that were submitted and have not ended, and the room for more.

use crate::bio::Op;
use crate::wbt::Throttle;
use crate::{QueueLimits, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::WaitQueue;

/// Requests and their bytes, in one number. A thread that finds no room leaves the number as it is: another
/// thread would else take that for a request in flight, and sleep until it ends.
///
/// ```text
///   63            44 43                                        0
///   ┌───────────────┬─────────────────────────────────────────┐
///   │ requests      │ their pages                             │
///   └───────────────┴─────────────────────────────────────────┘
/// ```
#[derive(Default)]
pub(crate) struct Booked(AtomicU64);

const REQUEST: u64 = 1 << PAGES_BITS;
const PAGES_BITS: u32 = 44;
const PAGE: u64 = 4096;

/// The number that a request of `bytes` adds. A discard may be as long as a device: bytes past 16 TiB are not
/// counted.
fn share(bytes: u64) -> u64 {
    REQUEST + bytes.div_ceil(PAGE).min(u32::MAX.into())
}

impl Booked {
    /// Adds a request if there is none, or if the sums with it are at most `most_requests` and `most_bytes`.
    pub fn enter(&self, bytes: u64, most_requests: usize, most_bytes: u64) -> bool {
        let fits = |now: u64| {
            let next = now + share(bytes);
            let few =
                next >> PAGES_BITS <= most_requests as u64 && (next & (REQUEST - 1)) <= most_bytes / PAGE;
            (now == 0 || few).then_some(next)
        };
        self.0.fetch_update(SeqCst, SeqCst, fits).is_ok()
    }

    /// Whether there are at most so many requests and bytes.
    pub fn is_at_most(&self, requests: usize, bytes: u64) -> bool {
        let now = self.0.load(SeqCst);
        now >> PAGES_BITS <= requests as u64 && (now & (REQUEST - 1)) <= bytes / PAGE
    }

    /// Takes a request off.
    pub fn leave(&self, bytes: u64) {
        self.0.fetch_sub(share(bytes), SeqCst);
    }
}

/// A thread that waits with write-back is woken after so many ends of requests, while more are in flight.
const WAKE_BATCH: usize = 8;

/// Requests that were submitted and have not ended.
pub(crate) struct InFlight {
    limits: QueueLimits,
    requests: AtomicUsize,
    /// The requests that took room here. An elevator has room of its own.
    booked: Booked,
    pub throttle: Throttle,
    /// The number of requests that change the device.
    changes: AtomicUsize,
    /// Waiters are woken whenever a request ends.
    room: WaitQueue,
    /// Waiters with write-back are woken when several requests have ended: the flusher then sends as many with one
    /// call. For queues that bound write-back.
    room_for_write_back: WaitQueue,
    ends: AtomicUsize,
}

impl InFlight {
    pub fn new(limits: QueueLimits) -> Self {
        InFlight {
            limits,
            requests: AtomicUsize::new(0),
            booked: Booked::default(),
            throttle: Throttle::default(),
            changes: AtomicUsize::new(0),
            room: WaitQueue::new(),
            room_for_write_back: WaitQueue::new(),
            ends: AtomicUsize::new(0),
        }
    }

    /// Counts a request that takes no room here: an elevator has room of its own.
    pub fn enter_freely(&self) -> Place {
        self.requests.fetch_add(1, SeqCst);
        Place::NONE
    }

    /// Counts a request, if there is room for it.
    pub fn enter(&self, place: &Place) -> bool {
        let (Some(bytes), l) = (place.bytes, &self.limits) else { return true };
        if place.write_back && !self.throttle.enter(bytes, l) {
            return false;
        }
        let fits = self.booked.enter(bytes, l.nr_requests, l.max_inflight_bytes);
        if fits {
            self.requests.fetch_add(1, SeqCst);
        } else if place.write_back {
            self.throttle.leave(bytes);
        }
        fits
    }

    /// Counts a request, once there is room for it.
    pub fn wait_to_enter(&self, place: &Place) {
        let in_batches = place.write_back && self.limits.wbt.is_some();
        let room = if in_batches { &self.room_for_write_back } else { &self.room };
        room.wait_until(|| self.enter(place));
    }

    /// The calling thread begins to wait for a request of `bytes`. [`Self::has_waited`] gets the result when the
    /// request ends.
    pub fn begins_to_wait(&self, bytes: u64) -> bool {
        self.throttle.begins_to_wait(bytes, &self.limits)
    }

    /// A request has ended. `waits` is the result of [`Self::begins_to_wait`].
    pub fn has_waited(&self, waits: bool) {
        if waits {
            self.throttle.somebody_waits(&self.limits);
        }
    }

    /// Gives the room of a request back at its end.
    pub fn leave(&self, place: &Place) {
        if let Some(bytes) = place.bytes {
            if place.write_back {
                self.throttle.leave(bytes);
            }
            self.booked.leave(bytes);
        }
        let was_last = self.requests.fetch_sub(1, SeqCst) == 1;
        self.room.wake_all();
        // A thread that sleeps found requests in flight: the last of these wakes it, if none of the others does.
        let nth = self.ends.fetch_add(1, Relaxed);
        if was_last || nth.is_multiple_of(WAKE_BATCH) || self.throttle.is_half_empty(&self.limits) {
            self.room_for_write_back.wake_all();
        }
    }

    /// Counts a request that changes the device until its end. Resets and finishes of zones are not counted: they may
    /// take a second, and only the thread that asked for them waits for them. A checkpoint that drains the queue does
    /// not.
    pub fn watch(self: &Arc<Self>, rq: &mut Request) {
        if !matches!(rq.op, Op::Read | Op::ZoneReset | Op::ZoneFinish) {
            self.changes.fetch_add(1, SeqCst);
            let inflight = self.clone();
            rq.after_end(move || {
                inflight.changes.fetch_sub(1, SeqCst);
                inflight.room.wake_all();
            });
        }
    }

    /// The number of requests that have not ended.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Waits until no request is left.
    pub fn wait_for_all(&self) {
        self.room.wait_until(|| self.requests.load(SeqCst) == 0);
    }

    /// Waits until no request is left that changes the device.
    pub fn wait_for_changes(&self) {
        self.room.wait_until(|| self.changes.load(SeqCst) == 0);
    }
}

/// The room that a request takes in the queue.
pub(crate) struct Place {
    /// `None` where the request takes no room.
    bytes: Option<u64>,
    write_back: bool,
}

impl Place {
    /// The room of a request that a thread waits for, whatever its flags say.
    pub fn awaited(rq: &Request) -> Self {
        Place { bytes: Some(rq.bytes), write_back: false }
    }

    /// No room.
    pub const NONE: Place = Place { bytes: None, write_back: false };

    pub fn of(rq: &Request) -> Self {
        Place { bytes: Some(rq.bytes), write_back: rq.is_write_back() }
    }
}
