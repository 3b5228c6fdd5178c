//! How busy a queue is: how long submitters wait for room in it (`get_request`, `blk_mq_get_tag`), and how much is on
//! its way, in the queue and at the device.

use crate::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::trace::{Span, SpanPoint};
use tidegate_rt::{Nanos, clock, device_wait};

static GET_TAG: SpanPoint<0> = SpanPoint::timed("blk_mq_get_tag", []);

/// Counts of a queue; they only grow.
#[derive(Default)]
pub(crate) struct Busy {
    /// Waits for room that began.
    waits: AtomicU64,
    /// How long those that have ended took.
    waited_ns: AtomicU64,
    /// Those of threads that held locks which others want.
    holding_ns: AtomicU64,
    /// Bytes × time of requests that have ended, in KiB × µs.
    kib_us: Arc<AtomicU64>,
}

/// A wait for room; it ends when dropped.
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

    /// Counts a request that is on its way from now until its end.
    pub fn watch(&self, rq: &mut Request) {
        let (sum, since, bytes) = (self.kib_us.clone(), clock::now(), rq.bytes);
        rq.after_end(move || add(&sum, since, bytes));
    }

    /// Counts the bytes that were on their way from `since` until now.
    pub fn was(&self, since: Nanos, bytes: u64) {
        add(&self.kib_us, since, bytes);
    }

    /// Waits for room; how long they took in nanoseconds, all and those with locks held that others want; KiB
    /// × µs on the way.
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
