//! Bios that one thread gathers before it sends them.

use crate::Request;
use crate::bio::{Bio, BioFlags};
use crate::queue::RequestQueue;
use crate::shared_plug::SharedPlug;
use tidegate_rt::device_wait;

/// Gathers bios of one thread, so that adjacent bios go out as one request. Sends them when dropped.
pub struct Plug<'a> {
    queue: &'a RequestQueue,
    /// The plug that requests go to instead of the queue, and the function that is called with the number of
    /// the load that they joined.
    behind: Option<(&'a SharedPlug, &'a dyn Fn(u64))>,
    pending: Vec<Request>,
    flags: BioFlags,
}

/// A plug with so many requests is sent.
pub(crate) const PLUG_MAX: usize = 32;

impl<'a> Plug<'a> {
    /// An empty plug on `queue`.
    pub fn new(queue: &'a RequestQueue) -> Self {
        Self::marking(queue, BioFlags::empty())
    }

    /// An empty plug on `queue` that adds `flags` to its bios.
    pub fn marking(queue: &'a RequestQueue, flags: BioFlags) -> Self {
        Plug { queue, behind: None, pending: Vec::new(), flags }
    }

    /// Has the requests join those of `shared`. `joined` is called with the number of the load of each
    /// request ([`SharedPlug::send_with`]), with the shared plug locked.
    pub fn behind(mut self, shared: &'a SharedPlug, joined: &'a dyn Fn(u64)) -> Self {
        self.behind = Some((shared, joined));
        self
    }

    /// Adds `bio` to a gathered request that it continues, or as a request of its own.
    pub fn add(&mut self, bio: Bio) {
        self.queue.count(&bio);
        let l = &self.queue.limits();
        let mut bio = bio;
        bio.flags |= self.flags;
        for rq in self.pending.iter_mut().rev() {
            match rq.merge_back(bio, l.max_bytes, l.max_segments) {
                Ok(()) => return,
                Err(b) => bio = b,
            }
        }
        self.pending.push(Request::new(bio));
        if self.pending.len() >= PLUG_MAX {
            self.send();
        }
    }

    /// Sends the gathered bios, in order of address.
    pub fn send(&mut self) {
        match self.behind {
            Some((shared, joined)) => shared.add(&mut self.pending, joined),
            None => send_all(self.queue, &mut self.pending, false),
        }
    }

    /// Sends the gathered bios for a caller that then waits for all of them. The last request is executed in
    /// the calling thread if the device does it quickly ([`RequestQueue::submit_here`]).
    pub fn send_here(&mut self) {
        if self.behind.is_some() {
            return self.send();
        }
        self.pending.sort_by_key(|r| r.sector);
        let last = self.pending.pop();
        send_all(self.queue, &mut self.pending, true);
        if let Some(last) = last {
            self.queue.do_here(last);
        }
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

/// Sends requests in order of address. `awaited` says that a thread waits for them.
pub(crate) fn send_all(queue: &RequestQueue, pending: &mut Vec<Request>, awaited: bool) {
    if !pending.is_empty() {
        device_wait::check();
    }
    pending.sort_by_key(|r| r.sector);
    queue.dispatch_all(pending.drain(..), awaited);
}
