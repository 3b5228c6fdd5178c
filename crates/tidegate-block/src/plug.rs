//! Bios that one thread gathers before it sends them.

use crate::Request;
use crate::bio::{Bio, BioFlags};
use crate::queue::RequestQueue;
use tidegate_rt::device_wait;

/// Gathers bios of one thread so that adjacent ones go out as one request; sends them when dropped.
pub struct Plug<'a> {
    queue: &'a RequestQueue,
    pending: Vec<Request>,
    flags: BioFlags,
}

/// A plug this full is sent on.
const PLUG_MAX: usize = 32;

impl<'a> Plug<'a> {
    /// An empty plug on `queue`.
    pub fn new(queue: &'a RequestQueue) -> Self {
        Self::marking(queue, BioFlags::empty())
    }

    /// The same, where each bio gets these flags, too.
    pub fn marking(queue: &'a RequestQueue, flags: BioFlags) -> Self {
        Plug { queue, pending: Vec::new(), flags }
    }

    /// Adds `bio`: behind a gathered request that it continues, or as one of its own.
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

    /// Sends what was gathered, in order of address.
    pub fn send(&mut self) {
        if !self.pending.is_empty() {
            device_wait::check();
        }
        self.pending.sort_by_key(|r| r.sector);
        for rq in self.pending.drain(..) {
            self.queue.dispatch(rq);
        }
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.send();
    }
}
