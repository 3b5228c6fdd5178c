//! The last events of a thread, in chunks of memory that was touched before it is needed.
//!
//! The first touch of memory costs more than the event that goes there. So as much memory as most recordings
//! take is prepared when recording begins.
//!
//! The thread writes the last chunk without a lock ([`End`]). The ring itself is locked to begin another
//! chunk, and by the thread that takes the records.

use super::packed::{Chunk, Position};
use super::points::{self, PointId};
use super::record::Record;
use crate::clock::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of events for which memory is prepared.
const PREPARED: usize = 1 << 18;
/// The most events of a chunk. A full ring drops one chunk at a time.
const CHUNK: usize = 1024;
/// The least number of chunks in a full ring.
const PIECES: usize = 16;

static CAPACITY: AtomicUsize = AtomicUsize::new(65_536);
static PREPARED_CHUNKS: parking_lot::Mutex<Vec<Chunk>> = parking_lot::Mutex::new(Vec::new());

/// The number of events that a ring keeps.
pub(super) fn capacity() -> usize {
    CAPACITY.load(Relaxed)
}

fn chunk_len() -> usize {
    (capacity() / PIECES).clamp(1, CHUNK)
}

/// Lets rings keep `capacity` events from now on.
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

/// A chunk, and how much of it was already taken.
struct Piece {
    chunk: Arc<Chunk>,
    taken: Position,
}

impl Piece {
    /// The number of events that were not taken yet.
    fn left(&self) -> usize {
        self.chunk.len() - self.taken.events
    }
}

/// The last events of a thread, or of several.
#[derive(Default)]
pub(super) struct Ring {
    pieces: VecDeque<Piece>,
    /// Whether the last piece is being written.
    open: bool,
    /// The number of events in the other pieces.
    closed: usize,
    /// The number of dropped events.
    pub dropped: u64,
}

impl Ring {
    pub const fn new() -> Self {
        Ring { pieces: VecDeque::new(), open: false, closed: 0, dropped: 0 }
    }

    fn len(&self) -> usize {
        self.closed + self.pieces.back().filter(|_| self.open).map_or(0, Piece::left)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.dropped == 0
    }

    /// Closes the last piece, which gets no more events.
    fn close(&mut self) {
        self.closed = self.len();
        self.open = false;
    }

    /// An empty chunk for at least `events` of `thread` in a recording from `at` on. A full ring drops its oldest chunk
    /// for it.
    fn begin_chunk(&mut self, events: usize, thread: u32, recording: u32, at: Nanos) -> Arc<Chunk> {
        self.close();
        let used = if self.len() + events > capacity() { self.drop_oldest() } else { None };
        let mut chunk = used.filter(|c| c.most() == chunk_len()).unwrap_or_else(new_chunk);
        chunk.begin(thread, recording, at);
        let chunk = Arc::new(chunk);
        self.pieces.push_back(Piece { taken: chunk.start(), chunk: chunk.clone() });
        self.open = true;
        chunk
    }

    /// Drops the oldest events, from a chunk that gets no more. Returns its memory.
    fn drop_oldest(&mut self) -> Option<Chunk> {
        let piece = self.pieces.pop_front()?;
        self.closed -= piece.left();
        self.dropped += piece.left() as u64;
        Arc::into_inner(piece.chunk)
    }

    /// Appends all of `other`, which gets no more events, and drops events beyond `most`.
    pub fn append(&mut self, other: &mut Ring, most: usize) {
        other.close();
        self.closed += std::mem::take(&mut other.closed);
        self.dropped += std::mem::take(&mut other.dropped);
        other.pieces.iter_mut().filter_map(|p| Arc::get_mut(&mut p.chunk)).for_each(Chunk::shrink);
        self.pieces.append(&mut other.pieces);
        while self.len() > most && !self.pieces.is_empty() {
            self.drop_oldest();
        }
    }

    /// Adds the records to `to`. Returns how many events had been dropped. Records of the present `recording`
    /// may grow.
    pub fn take(&mut self, recording: u32, to: &mut Vec<Record>) -> u64 {
        to.reserve(self.len());
        let ends: Vec<_> = self.pieces.iter().map(|p| p.chunk.written()).collect();
        let points = points::all();
        for (p, end) in self.pieces.iter_mut().zip(ends) {
            p.chunk.read(&mut p.taken, end, &points, to);
        }
        // In a recording that is over, one record that a thread is just adding may be lost.
        let grows = self.pieces.pop_back().filter(|p| self.open && p.chunk.recording() == recording);
        self.open = grows.is_some();
        self.pieces.clear();
        self.pieces.extend(grows);
        self.closed = 0;
        std::mem::take(&mut self.dropped)
    }
}

/// The end of a ring at which its thread adds. It keeps its last chunk after a recording, until the next
/// recording.
#[derive(Default)]
pub(super) struct End {
    chunk: Option<Arc<Chunk>>,
    position: Position,
}

impl End {
    /// Adds a record. False when it needs another chunk, see [`End::begin`].
    #[inline]
    pub fn push(&mut self, recording: u32, at: (Nanos, Nanos), point: PointId, numbers: &[u64; 4]) -> bool {
        let chunk = self.chunk.as_ref().filter(|c| c.recording() == recording);
        chunk.is_some_and(|c| c.push(&mut self.position, at, point, numbers))
    }

    /// Goes on in a new chunk, with room for a record of any length with so many `events`.
    pub fn begin(&mut self, ring: &mut Ring, events: usize, thread: u32, recording: u32, at: Nanos) {
        // The ring may drop the old chunk.
        self.chunk = None;
        let chunk = ring.begin_chunk(events, thread, recording, at);
        self.position = chunk.start();
        self.chunk = Some(chunk);
    }
}
