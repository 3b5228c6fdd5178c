//! Trace points: named events with a few numbers, kept in a ring for each thread.
//!
//! Off by default; a trace point then costs one relaxed load. A full ring drops its oldest events and
//! counts them.

use crate::clock::{self, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);
static CAPACITY: AtomicUsize = AtomicUsize::new(65_536);
static RINGS: parking_lot::Mutex<Vec<Arc<parking_lot::Mutex<Ring>>>> = parking_lot::Mutex::new(Vec::new());

/// Named numbers of an event, e.g. `("ino", 5)`.
pub type Args = [(&'static str, u64); 4];

/// Whether an event is a point in time or one end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A point.
    Instant,
    /// The beginning of a span.
    Begin,
    /// The end of the span of the same name begun last on this thread.
    End,
}

/// One recorded event.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// The thread, as [`crate::thread::id`] numbers it.
    pub thread: u32,
    /// The trace point's name, the kernel's where there is one.
    pub name: &'static str,
    /// Point or span end.
    pub phase: Phase,
    /// Numbers; unused places have an empty name.
    pub args: Args,
}

struct Ring {
    events: VecDeque<Event>,
    dropped: u64,
}

thread_local!(static RING: Arc<parking_lot::Mutex<Ring>> = {
    let r = Arc::new(parking_lot::Mutex::new(Ring { events: VecDeque::new(), dropped: 0 }));
    RINGS.lock().push(r.clone());
    r
});

/// Switches recording on (each thread keeps its last `capacity` events) or off (`None`).
pub fn enable(capacity: Option<usize>) {
    if let Some(n) = capacity {
        CAPACITY.store(n.max(1), Relaxed);
    }
    ON.store(capacity.is_some(), Relaxed);
}

/// Whether events are recorded.
#[inline]
pub fn enabled() -> bool {
    ON.load(Relaxed) || crate::sim::records()
}

/// Records a point event if tracing is on.
#[inline]
pub fn event(name: &'static str, args: Args) {
    if enabled() {
        record(name, Phase::Instant, args);
    }
}

/// Begins a span that ends when the result is dropped.
#[inline]
pub fn span(name: &'static str, args: Args) -> SpanGuard {
    let on = enabled();
    if on {
        record(name, Phase::Begin, args);
    }
    SpanGuard { name: on.then_some(name) }
}

/// Ends its span when dropped.
pub struct SpanGuard {
    name: Option<&'static str>,
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            record(name, Phase::End, [("", 0); 4]);
        }
    }
}

#[cold]
fn record(name: &'static str, phase: Phase, args: Args) {
    let e = Event { at: clock::now(), thread: crate::thread::id(), name, phase, args };
    if crate::sim::keeps(&e) {
        return;
    }
    RING.with(|r| {
        let mut r = r.lock();
        if r.events.len() >= CAPACITY.load(Relaxed) {
            r.events.pop_front();
            r.dropped += 1;
        }
        r.events.push_back(e);
    });
}

/// Takes all recorded events in order of time, with the number dropped since the last call.
pub fn drain() -> (Vec<Event>, u64) {
    let (mut all, mut dropped) = (Vec::new(), 0);
    let mut rings = RINGS.lock();
    for r in rings.iter() {
        let mut r = r.lock();
        all.extend(r.events.drain(..));
        dropped += std::mem::take(&mut r.dropped);
    }
    rings.retain(|r| Arc::strong_count(r) > 1);
    all.sort_by_key(|e| e.at);
    (all, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_keeps_the_newest() {
        enable(Some(3));
        for i in 0..5 {
            event("n", [("i", i), ("", 0), ("", 0), ("", 0)]);
        }
        enable(None);
        event("n", [("i", 9), ("", 0), ("", 0), ("", 0)]);
        let (ev, dropped) = drain();
        assert_eq!(ev.iter().map(|e| e.args[0].1).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(dropped, 2);
    }
}
