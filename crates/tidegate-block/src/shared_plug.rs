//! Bios of many passes, gathered until there are enough or until a thread waits.
//!
//! Small files that are adjacent on the device are passes of one bio each. Their requests are merged here
//! into a few. Requests that are here are not in flight: a thread that waits for one of them first sends
//! them, and a pass sends the rest when it ends.

use crate::plug::{PLUG_MAX, send_all};
use crate::{Request, RequestQueue};
use std::sync::Arc;
use tidegate_rt::{LockClass, Mutex, device_wait};

static PENDING: LockClass = LockClass::new("plug->pending", 950);

/// When the last request has at least so many bytes and the next one does not continue it, the plug is sent:
/// a long request gains little by waiting.
const FLUSH_SIZE: u64 = 128 << 10;

/// Requests that threads share before they go to the queue.
pub struct SharedPlug {
    queue: Arc<RequestQueue>,
    load: Mutex<Load>,
}

/// Requests that are sent together.
struct Load {
    /// The number of the load, from 1.
    number: u64,
    pending: Vec<Request>,
}

impl Load {
    fn take(&mut self) -> Vec<Request> {
        self.number += 1;
        std::mem::take(&mut self.pending)
    }
}

impl SharedPlug {
    /// An empty plug on `queue`.
    pub fn new(queue: Arc<RequestQueue>) -> Self {
        SharedPlug { queue, load: Mutex::new(&PENDING, Load { number: 1, pending: Vec::new() }) }
    }

    /// Adds requests, each merged with one that it continues. Sends a load that is full. `joined` is called
    /// with the number of the load of each request.
    pub(crate) fn add(&self, requests: &mut Vec<Request>, joined: &dyn Fn(u64)) {
        if !requests.is_empty() {
            device_wait::check();
        }
        for rq in requests.drain(..) {
            let mut full = {
                let mut load = self.load.lock();
                let full = self.join(&mut load, rq);
                joined(load.number);
                full
            };
            send_all(&self.queue, &mut full, false);
        }
    }

    /// Puts a request into the load. Returns the requests that are to be sent now.
    fn join(&self, load: &mut Load, mut rq: Request) -> Vec<Request> {
        let l = self.queue.limits();
        for before in load.pending.iter_mut().rev() {
            match before.append(rq, l.max_bytes, l.max_segments) {
                Ok(()) => return Vec::new(),
                Err(back) => rq = back,
            }
        }
        let enough =
            load.pending.len() >= PLUG_MAX || load.pending.last().is_some_and(|r| r.bytes >= FLUSH_SIZE);
        let full = if enough { load.take() } else { Vec::new() };
        load.pending.push(rq);
        full
    }

    /// Sends the gathered bios, in order of address.
    pub fn send(&self) {
        let mut load = self.load.lock().take();
        send_all(&self.queue, &mut load, false);
    }

    /// Sends the gathered bios for a thread that waits for them.
    pub fn send_awaited(&self) {
        let mut load = self.load.lock().take();
        send_all(&self.queue, &mut load, true);
    }

    /// Sends the gathered bios, for a thread that waits for them, if they are load `number`. Else that load
    /// was sent already.
    pub fn send_with(&self, number: u64) {
        let mut load = {
            let mut load = self.load.lock();
            if load.number != number {
                return;
            }
            load.take()
        };
        send_all(&self.queue, &mut load, true);
    }
}

impl Drop for SharedPlug {
    fn drop(&mut self) {
        self.send();
    }
}
