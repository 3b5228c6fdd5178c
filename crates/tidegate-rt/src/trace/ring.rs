//! The last events of a thread, in chunks of memory that was touched before it is needed.
//!
//! Memory that is touched for the first time costs more than the event that goes there, so as much as most
//! recordings take is prepared when recording begins.

use super::packed::Chunk;
use super::points::{self, PointId};
use super::record::{Kind, Record};
use crate::clock::Nanos;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Events that memory is prepared for.
const PREPARED: usize = 1 << 18;
/// A chunk that has so many events takes no more; a full ring drops one at a time.
const CHUNK: usize = 1024;
/// Chunks that a ring of its capacity has at least.
const PIECES: usize = 16;

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

    /// Adds a record of the thread whose ring it is; with no number of a point for it, it is dropped.
    #[inline]
    pub fn push(
        &mut self,
        at: (Nanos, Nanos),
        thread: u32,
        point: Option<PointId>,
        kind: Kind,
        numbers: &[u64; 4],
    ) {
        let Some(point) = point else {
            self.dropped += kind.events() as u64;
            return;
        };
        self.len += kind.events();
        if !self.chunks.back_mut().is_some_and(|c| c.push(at, point, kind, numbers)) {
            let chunk = self.begin_chunk(thread, at.0);
            let there_is_room = chunk.push(at, point, kind, numbers);
            debug_assert!(there_is_room, "a chunk has room for one record of any length");
        }
    }

    /// An empty chunk for events from `at` on; a full ring gives its oldest up for it.
    #[cold]
    fn begin_chunk(&mut self, thread: u32, at: Nanos) -> &mut Chunk {
        let used = if self.len > capacity() { self.drop_oldest() } else { None };
        self.chunks.push_back(used.unwrap_or_else(new_chunk));
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        chunk.begin(thread, at);
        chunk
    }

    /// Drops the oldest events; their memory.
    fn drop_oldest(&mut self) -> Option<Chunk> {
        let c = self.chunks.pop_front()?;
        self.len -= c.len();
        self.dropped += c.len() as u64;
        Some(c)
    }

    /// Takes all of `other` in, and drops what is more than `most`.
    pub fn append(&mut self, other: &mut Ring, most: usize) {
        self.len += std::mem::take(&mut other.len);
        self.dropped += std::mem::take(&mut other.dropped);
        // Nothing comes to it any more.
        other.chunks.iter_mut().for_each(Chunk::shrink);
        self.chunks.append(&mut other.chunks);
        while self.len > most && self.drop_oldest().is_some() {}
    }

    /// Moves the records to `to`; how many events had been dropped.
    pub fn take(&mut self, to: &mut Vec<Record>) -> u64 {
        to.reserve(self.len);
        let points = points::all();
        self.chunks.drain(..).for_each(|c| to.extend(c.records(&points)));
        self.len = 0;
        std::mem::take(&mut self.dropped)
    }
}
