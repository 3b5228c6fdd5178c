//! Requests to zones, which have an order among themselves.

use super::{Counters, RequestQueue};
use crate::bio::{Bio, BioData, Op};
use crate::inflight::{InFlight, Place};
use crate::traced::Traced;
use crate::zones::plug::ZonePlugs;
use crate::{Errno, Request};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use tidegate_rt::{LockClass, Mutex, WaitQueue};

static ENDED: LockClass = LockClass::new("queue->ended", 978);

impl RequestQueue {
    /// Whether a request has a place in the order of its zone.
    pub(super) fn is_ordered(&self, rq: &Request) -> bool {
        self.zones.as_ref().is_some_and(|z| z.orders(rq))
    }

    /// Sends a request to a zone, and waits for its end.
    pub(super) fn wait_for_ordered(&self, mut rq: Request) -> Result<BioData, Errno> {
        let ended = Arc::new((Mutex::new(&ENDED, None), WaitQueue::new()));
        let of_bio = ended.clone();
        if let Some(bio) = rq.bios.last_mut() {
            bio.end_io = Some(Box::new(move |r, data| {
                *of_bio.0.lock() = Some(r.map(|()| data));
                of_bio.1.wake_all();
            }));
        }
        let mut together = Vec::new();
        self.add_ordered(rq, true, &mut together);
        let mut over = None;
        ended.1.wait_until(|| {
            over = ended.0.lock().take();
            over.is_some()
        });
        over.unwrap_or(Err(Errno::IO))
    }

    /// Sends a request to a zone once there is room for it. An early request, whose predecessor was not
    /// submitted yet, takes no room and waits for none: the thread with the predecessor may itself be waiting
    /// for room.
    pub(super) fn add_ordered(&self, mut rq: Request, awaited: bool, together: &mut Vec<Request>) {
        let Some(zones) = &self.zones else { return };
        self.device.submit_all(std::mem::take(together));
        self.inflight.watch(&mut rq);
        self.n.busy.watch(&mut rq);
        self.n.write_requests.fetch_add((rq.op == Op::Write) as u64, Relaxed);
        let waits = self.begins_to_wait(&rq, awaited);
        let wanted = if awaited { Place::awaited(&rq) } else { Place::of(&rq) };
        let place = match zones.is_early(&rq) {
            true => self.inflight.enter_freely(),
            false => self.wait_in_line(wanted),
        };
        Traced::watch(&mut rq);
        let inflight = self.inflight.clone();
        zones.submit(rq, move || {
            inflight.has_waited(waits);
            inflight.leave(&place);
        });
    }
}

/// The way to the zones of a device for completions of other bios. It takes no room in the queue, and waits for none.
///
/// It holds no reference to the device: a request that is sent after the queue was dropped fails.
#[derive(Clone)]
pub struct ZoneWriter {
    /// The reference is weak because bios in flight lead here: the last reference to a device must not be dropped in
    /// one of its own requests.
    zones: Weak<ZonePlugs>,
    inflight: Arc<InFlight>,
    n: Arc<Counters>,
}

impl RequestQueue {
    /// A way to the device's zones that waits for no room. `None` where the device has no zones that are
    /// written in order.
    pub fn zone_writer(&self) -> Option<ZoneWriter> {
        let zones = Arc::downgrade(self.zones.as_ref()?);
        Some(ZoneWriter { zones, inflight: self.inflight.clone(), n: self.n.clone() })
    }
}

impl ZoneWriter {
    /// Starts `bio`, which must change one zone that is written in order. Any other bio ends with `EINVAL`, and all end
    /// with `EIO` after the queue was dropped.
    pub fn submit(&self, bio: Bio) {
        let Some(zones) = self.zones.upgrade() else { return bio.complete(Err(Errno::IO)) };
        self.n.count(&bio);
        let mut rq = Request::new(bio);
        if !zones.orders(&rq) {
            return rq.complete(Err(Errno::INVAL));
        }
        self.inflight.watch(&mut rq);
        self.n.busy.watch(&mut rq);
        self.n.write_requests.fetch_add((rq.op == Op::Write) as u64, Relaxed);
        let place = self.inflight.enter_freely();
        Traced::watch(&mut rq);
        let inflight = self.inflight.clone();
        zones.submit(rq, move || inflight.leave(&place));
    }
}
