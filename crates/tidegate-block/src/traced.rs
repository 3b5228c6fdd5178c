//! Requests on their way to the device and back, as trace events.

use crate::{Errno, Request};
use tidegate_rt::trace::{self, EventPoint, causes};
use tidegate_rt::{Nanos, clock};

static INSERT: EventPoint<4> = EventPoint::new("block_rq_insert", ["sector", "bytes", "op", "flags"]);
static ISSUE: EventPoint<4> = EventPoint::new("block_rq_issue", ["sector", "bytes", "op", "flags"]);
static COMPLETE: EventPoint<4> = EventPoint::new("block_rq_complete", ["sector", "bytes", "op", "flags"]);
static ERROR: EventPoint<4> = EventPoint::new("block_rq_error", ["sector", "bytes", "op", "error"]);

/// A request whose issue was recorded.
#[derive(Clone, Copy)]
pub(crate) struct Traced {
    numbers: [u64; 4],
    issued: Nanos,
}

fn numbers(rq: &Request) -> [u64; 4] {
    [rq.sector.0, rq.bytes, rq.op as u64, rq.flags.bits().into()]
}

/// Records that an elevator gets `rq`. A request that is merged with another there is issued with that one.
pub(crate) fn insert(rq: &Request) {
    if trace::enabled() {
        INSERT.record(numbers(rq));
    }
}

impl Traced {
    /// Records that `rq` goes to the device, if events are recorded.
    pub(crate) fn issue(rq: &Request) -> Option<Traced> {
        if !trace::enabled() {
            return None;
        }
        let numbers = numbers(rq);
        let issued = clock::stamp();
        ISSUE.record(numbers);
        Some(Traced { numbers, issued })
    }

    /// Records that the calling thread executes `rq`, if events are recorded.
    pub(crate) fn issue_here(rq: &Request) -> Option<Traced> {
        causes::calls();
        Traced::issue(rq)
    }

    /// Records that the request is done.
    pub(crate) fn complete(self, r: Result<(), Errno>) {
        if let Err(e) = r {
            let [sector, bytes, op, _] = self.numbers;
            ERROR.record([sector, bytes, op, e.raw_os_error().unsigned_abs().into()]);
        }
        COMPLETE.record(self.numbers);
    }

    /// Records that the calling thread has executed the request.
    pub(crate) fn complete_here(self, r: Result<(), Errno>) {
        self.complete(r);
        causes::called(self.issued);
    }

    /// Records the issue now and the end when it comes. To be called right before the request goes to the device.
    pub(crate) fn watch(rq: &mut Request) {
        if let Some(traced) = Traced::issue(rq) {
            rq.after_end_with(move |r| traced.complete(r));
        }
    }
}
