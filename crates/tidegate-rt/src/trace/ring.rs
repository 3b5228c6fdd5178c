//! Events in chunks of memory that was touched before it is needed.
//!
//! Memory that is touched for the first time costs more than the event that goes there, so as much as most
//! recordings take is prepared when recording begins.

use super::Event;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Events that memory is prepared for.
const PREPARED: usize = 1 << 18;
/// Most events in a chunk; a full ring drops one at a time.
const CHUNK: usize = 1024;
/// Chunks that a ring of its capacity has at least.
const PIECES: usize = 16;

static CAPACITY: AtomicUsize = AtomicUsize::new(65_536);
static PREPARED_CHUNKS: parking_lot::Mutex<Vec<Vec<Event>>> = parking_lot::Mutex::new(Vec::new());

/// Events that a ring keeps.
pub(super) fn capacity() -> usize {
    CAPACITY.load(Relaxed)
}

fn chunk_len() -> usize {
    (capacity() / PIECES).clamp(1, CHUNK)
}

/// Rings keep `capacity` events from now on.
pub(super) fn prepare(capacity: usize, dummy: &Event) {
    CAPACITY.store(capacity.max(1), Relaxed);
    let len = chunk_len();
    if len < CHUNK {
        return;
    }
    let chunk = || {
        let mut v = vec![dummy.clone(); len];
        v.clear();
        v
    };
    *PREPARED_CHUNKS.lock() = (0..PREPARED / len).map(|_| chunk()).collect();
}

/// Gives prepared memory back.
pub(super) fn release() {
    drop(std::mem::take(&mut *PREPARED_CHUNKS.lock()));
}

fn new_chunk() -> Vec<Event> {
    PREPARED_CHUNKS.lock().pop().unwrap_or_else(|| Vec::with_capacity(chunk_len()))
}

/// The last events of a thread, or of several.
#[derive(Default)]
pub(super) struct Ring {
    chunks: VecDeque<Vec<Event>>,
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

    pub fn push(&mut self, e: Event) {
        if self.chunks.back().is_none_or(|c| c.len() >= c.capacity()) {
            let used = if self.len >= capacity() { self.drop_oldest() } else { None };
            self.chunks.push_back(used.unwrap_or_else(new_chunk));
        }
        if let Some(c) = self.chunks.back_mut() {
            c.push(e);
            self.len += 1;
        }
    }

    /// Drops the oldest events; their memory.
    fn drop_oldest(&mut self) -> Option<Vec<Event>> {
        let mut c = self.chunks.pop_front()?;
        self.len -= c.len();
        self.dropped += c.len() as u64;
        c.clear();
        Some(c)
    }

    /// Takes all of `other` in, and drops what is more than `most`.
    pub fn append(&mut self, other: &mut Ring, most: usize) {
        self.len += std::mem::take(&mut other.len);
        self.dropped += std::mem::take(&mut other.dropped);
        for c in other.chunks.drain(..) {
            // Short ones share memory.
            match self.chunks.back_mut().filter(|b| b.capacity() - b.len() >= c.len()) {
                Some(b) => b.extend(c),
                None => self.chunks.push_back(c),
            }
        }
        while self.len > most && self.drop_oldest().is_some() {}
    }

    /// Moves the events to `to`; how many had been dropped.
    pub fn take(&mut self, to: &mut Vec<Event>) -> u64 {
        to.reserve(self.len);
        self.chunks.drain(..).for_each(|c| to.extend(c));
        self.len = 0;
        std::mem::take(&mut self.dropped)
    }
}
