//! Trace points: named events and spans with a few numbers, kept in a ring for each thread, and call trees of
//! the spans.
//!
//! Tracing is off by default; a trace point then costs two relaxed loads. A full ring drops its oldest events
//! and counts them. Records of ended threads are kept, within a bound, until they are taken.

use crate::clock::{self, Nanos};
use crate::profile::CallTree;
use crate::sim;
use points::Named;
use record::Kind;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use threads::with;

pub mod causes;
mod packed;
mod points;
mod record;
mod ring;
mod threads;

const EVENTS: u8 = 1;
const CALLS: u8 = 2;
/// Events go to the simulated world of the calling thread.
const KEPT: u8 = 4;
/// Events that say why threads waited are recorded, too.
const CAUSES: u8 = 8;

static MODE: AtomicU8 = AtomicU8::new(0);
/// Counts the beginnings and ends of recordings.
static RECORDING: AtomicU32 = AtomicU32::new(0);

/// Named numbers of an event, e.g. `("ino", 5)`.
pub type Args = [(&'static str, u64); 4];

/// No numbers.
pub const NO_ARGS: Args = [("", 0); 4];

/// Whether an event is a point in time or one end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A point.
    Instant,
    /// The beginning of a span.
    Begin,
    /// The end of the span of this name that began last on this thread.
    End,
    /// The beginning of a wait for a lock. The name is its class. The first number is the place where it is
    /// taken: a file and a line. The second distinguishes it from others of its class, except in a simulated
    /// world.
    ContentionBegin,
    /// The end of a wait for a lock.
    ContentionEnd,
}

/// One recorded event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The time, on the monotonic clock.
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

/// The records up to the time when they were taken.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Events in order of time, those of one thread in the order in which they happened.
    pub events: Vec<Event>,
    /// Events that were dropped since rings were full.
    pub dropped: u64,
    /// Before this time events of some thread may be missing, since they were dropped; 0 where none were.
    pub complete_from: Nanos,
    /// Names of the threads that recorded anything, by number.
    pub threads: BTreeMap<u32, String>,
    /// A call tree for each name of threads.
    pub calls: Vec<CallTree>,
    /// Timed spans that began during a search for causes, and had not ended.
    pub lasting: Vec<Lasting>,
}

/// A span that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// The trace point's name.
    pub name: &'static str,
    /// The thread in the span.
    pub thread: u32,
    /// When the span began, on the monotonic clock.
    pub since: Nanos,
}

/// Switches recording of events on (each thread keeps its last `capacity` events) or off (`None`). A span is recorded
/// when it ends, if it also began in this recording. During a search for causes every span is recorded, from the
/// beginning of the search at the earliest.
pub fn enable(capacity: Option<usize>) {
    match capacity {
        Some(n) => ring::prepare(n),
        None => {
            switch(EVENTS, false);
            ring::release();
        }
    }
    RECORDING.fetch_add(1, Relaxed);
    switch(EVENTS, capacity.is_some());
}

/// Switches events on or off that say why threads waited: long holds of locks, and the processor time of
/// operations. See [`causes`].
pub fn enable_causes(on: bool) {
    if on {
        causes::begins();
    }
    switch(CAUSES, on);
}

/// Switches call trees on or off.
pub fn enable_calls(on: bool) {
    switch(CALLS, on);
}

fn switch(bit: u8, on: bool) {
    if on {
        clock::prepare_stamps();
        MODE.fetch_or(bit, Relaxed)
    } else {
        MODE.fetch_and(!bit, Relaxed)
    };
}

/// Whether events are recorded.
#[inline]
pub fn enabled() -> bool {
    mode() & EVENTS != 0
}

/// Whether the calling thread records anything.
pub(crate) fn recording() -> bool {
    mode() != 0
}

/// The calling thread's kinds of records: a simulated world may keep events of its own.
#[inline]
fn mode() -> u8 {
    MODE.load(Relaxed) | if sim::records() { EVENTS | KEPT } else { 0 }
}

/// Gives an event to the calling thread's simulated world.
#[cold]
fn keep(at: Nanos, name: &'static str, phase: Phase, args: Args) {
    sim::keep(Event { at, thread: crate::thread::id(), name, phase, args });
}

/// A place in the source that records points in time, with up to four numbers. A `static`.
pub struct EventPoint<const N: usize>(Named);

impl<const N: usize> EventPoint<N> {
    /// A point of this name, the kernel's where there is one, with numbers of these names.
    ///
    /// # Panics
    /// A number has no name. Where the point is a `static`, that does not compile.
    pub const fn new(name: &'static str, keys: [&'static str; N]) -> Self {
        EventPoint(Named::new(Kind::Instant, name, keys))
    }

    /// Records a point if tracing is on.
    #[inline]
    pub fn record(&'static self, numbers: [u64; N]) {
        let mode = mode();
        if mode & EVENTS != 0 {
            record(&self.0, mode, &four(numbers));
        }
    }
}

/// A place in the source that records spans, with up to four numbers. A `static`.
pub struct SpanPoint<const N: usize>(Named);

impl<const N: usize> SpanPoint<N> {
    /// A point of this name, the kernel's where there is one, with numbers of these names.
    ///
    /// # Panics
    /// A number has no name. Where the point is a `static`, that does not compile.
    pub const fn new(name: &'static str, keys: [&'static str; N]) -> Self {
        SpanPoint(Named::new(Kind::Span, name, keys))
    }

    /// A span that is an operation in the eyes of its caller, or a wait. A search for causes also records how long its
    /// thread ran on a processor meanwhile, and how long it waited for one.
    ///
    /// # Panics
    /// As [`SpanPoint::new`].
    pub const fn timed(name: &'static str, keys: [&'static str; N]) -> Self {
        SpanPoint(Named::new(Kind::Span, name, keys).timed())
    }

    /// Begins a span that ends when the result is dropped.
    #[inline]
    #[must_use = "the span lasts as long as the guard"]
    pub fn enter(&'static self, numbers: [u64; N]) -> Span {
        let (mode, numbers) = (mode(), four(numbers));
        let (at, recording) = if mode == 0 { (Nanos(0), 0) } else { begin(&self.0, mode, &numbers) };
        Span { point: &self.0, mode, recording, at, numbers }
    }
}

#[inline]
fn four<const N: usize>(numbers: [u64; N]) -> [u64; 4] {
    std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0))
}

/// Ends its span when dropped.
pub struct Span {
    point: &'static Named,
    /// The kinds of records that were on when it began.
    mode: u8,
    recording: u32,
    at: Nanos,
    numbers: [u64; 4],
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.mode != 0 || MODE.load(Relaxed) & CAUSES != 0 {
            end(self);
        }
    }
}

// The following code exists once, apart from the places that record: every copy would evict the engine's own
// code from the processor's cache.

#[inline(never)]
fn record(point: &'static Named, mode: u8, numbers: &[u64; 4]) {
    let at = clock::stamp();
    if mode & KEPT != 0 {
        return keep(at, point.name(), Phase::Instant, point.args(numbers));
    }
    with(|l| l.push(RECORDING.load(Relaxed), (at, at), point.id(Kind::Instant), numbers));
}

/// Begins a span. Returns its time and its recording.
#[inline(never)]
fn begin(point: &'static Named, mode: u8, numbers: &[u64; 4]) -> (Nanos, u32) {
    if mode & (CAUSES | KEPT) == CAUSES && point.is_timed() {
        causes::processor();
    }
    let at = clock::stamp();
    if mode & (CAUSES | KEPT) == CAUSES && point.is_timed() {
        with(|l| l.begins(point.name(), at));
    }
    if mode & KEPT != 0 {
        keep(at, point.name(), Phase::Begin, point.args(numbers));
    }
    if mode & CALLS != 0 {
        enter(point.name(), at);
    }
    (at, RECORDING.load(Relaxed))
}

#[inline(never)]
fn end(span: &Span) {
    let at = clock::stamp();
    if span.mode & KEPT != 0 {
        keep(at, span.point.name(), Phase::End, NO_ARGS);
    } else {
        let recording = RECORDING.load(Relaxed);
        let began_within = span.mode & EVENTS != 0 && span.recording == recording;
        if began_within || causes::wanted() {
            let since = if began_within { span.at } else { span.at.max(causes::began()) };
            with(|l| l.push(recording, (since, at), span.point.id(Kind::Span), &span.numbers));
        }
    }
    if span.mode & CALLS != 0 {
        leave(at);
    }
    if span.mode & (CAUSES | KEPT) == CAUSES {
        match span.point.is_timed() {
            true => {
                with(threads::Mine::ends);
                causes::processor();
            }
            false => causes::called(span.at),
        }
    }
}

#[inline(never)]
fn enter(name: &'static str, at: Nanos) {
    with(|l| l.enter(name, false, at));
}

#[inline(never)]
fn leave(at: Nanos) {
    with(|l| l.leave(at));
}

/// Records a wait for the lock numbered `lock`, of `class`, that began at `since`, at `place`, and ended at `at`.
pub(crate) fn contention(
    class: &'static str,
    lock: u64,
    (since, at): (Nanos, Nanos),
    place: &'static Location<'static>,
) {
    let (mode, line) = (mode(), u64::from(place.line()));
    if mode & KEPT != 0 {
        let mut args = NO_ARGS;
        args[0] = (place.file(), line);
        keep(since, class, Phase::ContentionBegin, args);
        keep(at, class, Phase::ContentionEnd, NO_ARGS);
    } else if mode & EVENTS != 0 {
        // Spans around the wait begin no earlier than the search.
        let since = if causes::wanted() { since.max(causes::began()) } else { since };
        let point = points::contention(class, place.file());
        with(|l| l.push(RECORDING.load(Relaxed), (since, at), point, &[line, lock, 0, 0]));
        causes::called(since);
    }
    if mode & CALLS != 0 {
        with(|l| {
            l.enter(class, true, since);
            l.leave(at);
        });
    }
}

/// Takes all records since the last call. Open spans are in the trees up to now.
pub fn take() -> Recorded {
    threads::take()
}

/// Takes all recorded events in order of time, with the number dropped since the last call.
pub fn drain() -> (Vec<Event>, u64) {
    let r = take();
    (r.events, r.dropped)
}

#[cfg(test)]
mod tests;
