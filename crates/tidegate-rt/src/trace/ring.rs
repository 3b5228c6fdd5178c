//! Events, packed, in chunks of memory that was touched before it is needed.
//!
//! Memory that is touched for the first time costs more than the event that goes there, so as much as most
//! recordings take is prepared when recording begins. And what an event writes drives something else out of the
//! processor's caches, so it is little: a time, the number of a [`Point`], and its own numbers.

use super::points::{self, Point};
use super::{Args, Event, NO_ARGS, Phase};
use crate::clock::Nanos;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Events that memory is prepared for.
const PREPARED: usize = 1 << 18;
/// Most events in a chunk; a full ring drops one at a time.
const CHUNK: usize = 1024;
/// Chunks that a ring of its capacity has at least.
const PIECES: usize = 16;

/// Numbers that chunks have room for from the beginning, for each event: most ends of spans have none, most
/// points have three.
const NUMBERS: usize = 2;

static CAPACITY: AtomicUsize = AtomicUsize::new(65_536);
static PREPARED_CHUNKS: parking_lot::Mutex<Vec<Chunk>> = parking_lot::Mutex::new(Vec::new());

/// Events that a ring keeps.
pub(super) fn capacity() -> usize {
    CAPACITY.load(Relaxed)
}

fn chunk_len() -> usize {
    (capacity() / PIECES).clamp(1, CHUNK)
}

/// Rings keep `capacity` events from now on.
pub(super) fn prepare(capacity: usize) {
    CAPACITY.store(capacity.max(1), Relaxed);
    let len = chunk_len();
    if len < CHUNK {
        return;
    }
    *PREPARED_CHUNKS.lock() = (0..PREPARED / len).map(|_| Chunk::touched(len)).collect();
}

/// Gives prepared memory back.
pub(super) fn release() {
    drop(std::mem::take(&mut *PREPARED_CHUNKS.lock()));
}

fn new_chunk() -> Chunk {
    PREPARED_CHUNKS.lock().pop().unwrap_or_else(|| Chunk::of(chunk_len()))
}

/// An event without its numbers.
struct Head {
    at: Nanos,
    thread: u32,
    point: u16,
    phase: Phase,
}

/// Events one after the other, and their numbers.
struct Chunk {
    heads: Vec<Head>,
    numbers: Vec<u64>,
}

impl Chunk {
    fn of(len: usize) -> Chunk {
        Chunk { heads: Vec::with_capacity(len), numbers: Vec::with_capacity(len * NUMBERS) }
    }

    /// One whose memory was written to.
    fn touched(len: usize) -> Chunk {
        let head = || Head { at: Nanos(1), thread: 0, point: 0, phase: Phase::Instant };
        let heads = std::iter::repeat_with(head).take(len).collect();
        let mut chunk = Chunk { heads, numbers: vec![1; len * NUMBERS] };
        chunk.clear();
        chunk
    }

    fn clear(&mut self) {
        self.heads.clear();
        self.numbers.clear();
    }

    fn room(&self) -> usize {
        self.heads.capacity() - self.heads.len()
    }

    fn push(&mut self, head: Head, args: &Args) {
        self.heads.push(head);
        for (key, number) in args {
            if !key.is_empty() {
                self.numbers.push(*number);
            }
        }
    }

    fn append(&mut self, other: Chunk) {
        self.heads.extend(other.heads);
        self.numbers.extend(other.numbers);
    }

    fn events(self, points: &[Point]) -> impl Iterator<Item = Event> {
        let mut numbers = self.numbers.into_iter();
        self.heads.into_iter().filter_map(move |h| {
            let point = points.get(usize::from(h.point))?;
            let mut args: Args = NO_ARGS;
            let used = args.iter_mut().zip(&point.keys).filter(|(_, k)| !k.is_empty());
            used.zip(numbers.by_ref()).for_each(|((to, key), n)| *to = (*key, n));
            Some(Event { at: h.at, thread: h.thread, name: point.name, phase: h.phase, args })
        })
    }
}

/// The last events of a thread, or of several.
#[derive(Default)]
pub(super) struct Ring {
    chunks: VecDeque<Chunk>,
    len: usize,
    /// Events that had to go.
    pub dropped: u64,
}

impl Ring {
    pub const fn new() -> Self {
        Ring { chunks: VecDeque::new(), len: 0, dropped: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.dropped == 0
    }

    /// Adds an event; with no number of a point for it, it is dropped.
    pub fn push(&mut self, at: Nanos, thread: u32, point: Option<u16>, phase: Phase, args: &Args) {
        let Some(point) = point else {
            self.dropped += 1;
            return;
        };
        if self.chunks.back().is_none_or(|c| c.room() == 0) {
            let used = if self.len >= capacity() { self.drop_oldest() } else { None };
            self.chunks.push_back(used.unwrap_or_else(new_chunk));
        }
        if let Some(c) = self.chunks.back_mut() {
            c.push(Head { at, thread, point, phase }, args);
            self.len += 1;
        }
    }

    /// Drops the oldest events; their memory.
    fn drop_oldest(&mut self) -> Option<Chunk> {
        let mut c = self.chunks.pop_front()?;
        self.len -= c.heads.len();
        self.dropped += c.heads.len() as u64;
        c.clear();
        Some(c)
    }

    /// Takes all of `other` in, and drops what is more than `most`.
    pub fn append(&mut self, other: &mut Ring, most: usize) {
        self.len += std::mem::take(&mut other.len);
        self.dropped += std::mem::take(&mut other.dropped);
        for c in other.chunks.drain(..) {
            // Short ones share memory.
            match self.chunks.back_mut().filter(|b| b.room() >= c.heads.len()) {
                Some(b) => b.append(c),
                None => self.chunks.push_back(c),
            }
        }
        while self.len > most && self.drop_oldest().is_some() {}
    }

    /// Moves the events to `to`; how many had been dropped.
    pub fn take(&mut self, to: &mut Vec<Event>) -> u64 {
        to.reserve(self.len);
        let points = points::all();
        self.chunks.drain(..).for_each(|c| to.extend(c.events(&points)));
        self.len = 0;
        std::mem::take(&mut self.dropped)
    }
}
