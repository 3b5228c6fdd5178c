//! How busy a queue is: how long submitters wait for room in it (`get_request`, `blk_mq_get_tag`), and how many bytes
//! are in flight, in the queue and at the device.

use crate::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::trace::{Span, SpanPoint};
use tidegate_rt::{Nanos, clock, device_wait};

static GET_TAG: SpanPoint<0> = SpanPoint::timed("blk_mq_get_tag", []);

/// The counts of a queue. They only grow.
#[derive(Default)]
pub(crate) struct Busy {
    /// The number of waits for room that have begun.
    waits: AtomicU64,
    /// The time of all waits that have ended.
    waited_ns: AtomicU64,
    /// The time of those waits in which the thread held locks that other threads may want.
    holding_ns: AtomicU64,
    /// Bytes × time of requests that have ended, in KiB × µs.
    kib_us: Arc<AtomicU64>,
}

/// A wait for room. It ends when this is dropped.
pub(crate) struct Wait<'a> {
    busy: &'a Busy,
    since: Nanos,
    _span: Span,
}

impl Busy {
    /// A submitter begins to wait, since the queue is full.
    pub fn congested(&self) -> Wait<'_> {
        self.waits.fetch_add(1, Relaxed);
        Wait { busy: self, since: clock::now(), _span: GET_TAG.enter([]) }
    }

    /// Counts a request as in flight from now until its end.
    pub fn watch(&self, rq: &mut Request) {
        let (sum, since, bytes) = (self.kib_us.clone(), clock::now(), rq.bytes);
        rq.after_end(move || add(&sum, since, bytes));
    }

    /// Counts bytes that were in flight from `since` until now.
    pub fn was(&self, since: Nanos, bytes: u64) {
        add(&self.kib_us, since, bytes);
    }

    /// The number of waits for room; their time in nanoseconds; of that, the time with locks held that others
    /// may want; KiB × µs in flight.
    pub fn read(&self) -> [u64; 4] {
        [&self.waits, &self.waited_ns, &self.holding_ns, &self.kib_us].map(|n| n.load(Relaxed))
    }
}

fn add(sum: &AtomicU64, since: Nanos, bytes: u64) {
    let us = clock::now().since(since).0 / 1000;
    sum.fetch_add((bytes >> 10).saturating_mul(us), Relaxed);
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let ns = clock::now().since(self.since).0;
        self.busy.waited_ns.fetch_add(ns, Relaxed);
        if device_wait::holds() {
            self.busy.holding_ns.fetch_add(ns, Relaxed);
        }
    }
}
