//! Requests on their way to the device and back, as trace events.

use crate::{Errno, Request};
use tidegate_rt::trace::{self, Args};

/// A request whose issue was recorded.
#[derive(Clone, Copy)]
pub(crate) struct Traced(Args);

impl Traced {
    /// Records that `rq` goes to the device, if events are recorded.
    pub(crate) fn issue(rq: &Request) -> Option<Traced> {
        if !trace::enabled() {
            return None;
        }
        let flags = u64::from(rq.flags.bits());
        let args = [("sector", rq.sector.0), ("bytes", rq.bytes), ("op", rq.op as u64), ("flags", flags)];
        trace::event("block_rq_issue", args);
        Some(Traced(args))
    }

    /// Records that it is done.
    pub(crate) fn complete(self, r: Result<(), Errno>) {
        if let Err(e) = r {
            let mut args = self.0;
            args[3] = ("error", e.raw_os_error().unsigned_abs().into());
            trace::event("block_rq_error", args);
        }
        trace::event("block_rq_complete", self.0);
    }

    /// Records the issue now and the end when it comes. With an elevator the issue is when it gets the
    /// request.
    pub(crate) fn watch(rq: &mut Request) {
        if let Some(traced) = Traced::issue(rq) {
            rq.after_end_with(move |r| traced.complete(r));
        }
    }
}
