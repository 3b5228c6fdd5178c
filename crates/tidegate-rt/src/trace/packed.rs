//! Events in as few words as they need.
//!
//! What an event writes drives something else out of the processor's caches, and brings memory in: that costs
//! more than packing it. A record is a head (which point, of which kind, the time since the record before it, and
//! which numbers take a word), then for a span how long it took, and its numbers in the order of the point's keys:
//! two to a word, unless they are long.
//!
//! One thread writes a chunk, others may read it meanwhile: no lock is taken for a record, since giving one back
//! would wait until the record has left the processor.

use super::points::{Point, PointId};
use super::record::{Kind, Record};
use super::{Args, NO_ARGS};
use crate::clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Words of a record at most: a head, two times and four numbers; and one to make it a power of two.
const LONGEST: usize = 8;
/// Words that events take in the mean, with some room.
const USUAL: usize = 2;

const KIND: u32 = 16;
/// Bits that say which numbers take a word: the time since the record before it, the time it took, its numbers.
const WIDE: u32 = 18;
const DELTA: u32 = 32;

/// Records of one thread, one after the other.
pub(super) struct Chunk {
    words: Box<[AtomicU64]>,
    /// Words with records in them, and above these the events that they are. Set after them.
    used: AtomicU64,
    most: usize,
    thread: u32,
    recording: u32,
    /// Times are counted from here.
    first: Nanos,
}

/// How far a chunk was written, as others see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    words: usize,
    events: usize,
}

/// How far a chunk was written, by who writes it, or read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    words: usize,
    /// Events up to there.
    pub events: usize,
    last: Nanos,
}

impl Chunk {
    /// One for so many events, or fewer that are long.
    pub fn of(most: usize) -> Chunk {
        let words = (most * USUAL).max(LONGEST);
        Chunk {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU64::new(0),
            most,
            thread: 0,
            recording: 0,
            first: Nanos(0),
        }
    }

    /// One whose memory was written to.
    pub fn touched(most: usize) -> Chunk {
        let chunk = Chunk::of(most);
        chunk.words.iter().for_each(|w| w.store(1, Relaxed));
        chunk
    }

    /// Forgets what is in it, for events of `thread` in a recording from `at` on.
    pub fn begin(&mut self, thread: u32, recording: u32, at: Nanos) {
        self.used = AtomicU64::new(0);
        (self.thread, self.recording, self.first) = (thread, recording, at);
    }

    /// Where its first record is.
    pub fn start(&self) -> Position {
        Position { last: self.first, ..Position::default() }
    }

    /// The recording whose events it takes.
    pub fn recording(&self) -> u32 {
        self.recording
    }

    /// How many events it may have.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Events in it.
    pub fn len(&self) -> usize {
        self.written().events
    }

    /// How far it is written. The points of what is there are known to who asks for them after this.
    pub fn written(&self) -> Written {
        let used = self.used.load(Acquire);
        Written { words: used as u32 as usize, events: (used >> 32) as usize }
    }

    /// Gives memory that nothing is in back.
    pub fn shrink(&mut self) {
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.truncate(self.written().words);
        self.words = words.into_boxed_slice();
    }

    /// Adds a record of `kind` from `at` to `until`; false when there is no room for it. Only one thread does so, and
    /// says how far it has come.
    #[inline]
    pub fn push(
        &self,
        end: &mut Position,
        (at, until): (Nanos, Nanos),
        point: PointId,
        kind: Kind,
        numbers: &[u64; 4],
    ) -> bool {
        let room = self.words.get(end.words..).and_then(|w| w.first_chunk::<LONGEST>());
        let Some(room) = room.filter(|_| end.events < self.most) else { return false };
        let mut writer = Writer { room, used: 1, half: None, wide: 0, number: 0 };
        // Backwards, since what a span is around comes before it.
        let delta = zigzag(at.0.wrapping_sub(end.last.0));
        let short = u32::try_from(delta).unwrap_or_else(|_| {
            writer.word(delta);
            0
        });
        writer.number = 1;
        if kind.is_span() {
            writer.number(until.since(at).0);
        }
        for number in numbers.iter().take(usize::from(point.args)) {
            writer.number(*number);
        }
        end.words +=
            writer.finish(u64::from(point.number) | (kind as u64) << KIND | u64::from(short) << DELTA);
        end.events += kind.events();
        // Processors' counters differ by nanoseconds: who moves to another may end before it began.
        end.last = until.max(at);
        self.used.store(end.words as u64 | (end.events as u64) << 32, Release);
        true
    }

    /// Adds the records from `seen` to `end` to `to`, by the points' numbers, and moves `seen`.
    pub fn read(&self, seen: &mut Position, end: Written, points: &[Point], to: &mut Vec<Record>) {
        let words = self.words.get(..end.words).unwrap_or_default();
        let mut reader = Reader { words, at: seen.words, half: None };
        while let Some(record) = reader.record(seen.last, points, self.thread) {
            seen.last = record.until;
            to.push(record);
        }
        debug_assert_eq!(reader.at, words.len(), "records end where they are said to");
        (seen.words, seen.events) = (end.words, end.events);
    }
}

fn zigzag(delta: u64) -> u64 {
    (delta << 1) ^ ((delta as i64 >> 63) as u64)
}

fn unzigzag(n: u64) -> u64 {
    (n >> 1) ^ (n & 1).wrapping_neg()
}

/// Writes a record.
struct Writer<'a> {
    room: &'a [AtomicU64; LONGEST],
    used: usize,
    /// The word that has room for another short number, and what is in it.
    half: Option<(usize, u64)>,
    wide: u64,
    number: u32,
}

impl Writer<'_> {
    #[inline]
    fn store(&self, at: usize, word: u64) {
        self.room[at % LONGEST].store(word, Relaxed);
    }

    #[inline]
    fn word(&mut self, n: u64) {
        self.wide |= 1 << self.number;
        self.store(self.used, n);
        self.used += 1;
    }

    #[inline]
    fn number(&mut self, n: u64) {
        if n > u64::from(u32::MAX) {
            self.word(n);
        } else if let Some((at, low)) = self.half.take() {
            self.store(at, low | n << 32);
        } else {
            self.half = Some((self.used, n));
            self.used += 1;
        }
        self.number += 1;
    }

    #[inline]
    fn finish(self, head: u64) -> usize {
        if let Some((at, low)) = self.half {
            self.store(at, low);
        }
        self.store(0, head | self.wide << WIDE);
        self.used
    }
}

/// Reads records.
struct Reader<'a> {
    words: &'a [AtomicU64],
    at: usize,
    half: Option<u64>,
}

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let word = self.words.get(self.at)?.load(Relaxed);
        self.at += 1;
        Some(word)
    }

    fn number(&mut self, wide: bool) -> Option<u64> {
        if wide {
            return self.word();
        }
        match self.half.take() {
            Some(high) => Some(high),
            None => {
                let word = self.word()?;
                self.half = Some(word >> 32);
                Some(u64::from(word as u32))
            }
        }
    }

    /// The next record; `last` is when the one before it ended.
    fn record(&mut self, last: Nanos, points: &[Point], thread: u32) -> Option<Record> {
        let head = self.word()?;
        self.half = None;
        let wide = |number: u32| head >> (WIDE + number) & 1 == 1;
        let kind = Kind::ALL.get((head >> KIND & 3) as usize).copied().unwrap_or(Kind::Instant);
        let delta = if wide(0) { self.word()? } else { head >> DELTA };
        let at = Nanos(last.0.wrapping_add(unzigzag(delta)));
        let mut next = 1;
        let mut number = |reader: &mut Self| {
            next += 1;
            reader.number(wide(next - 1))
        };
        let took = if kind.is_span() { number(self)? } else { 0 };
        let point = points.get(usize::from(head as u16))?;
        let mut args: Args = NO_ARGS;
        let used = point.keys.iter().rposition(|k| !k.is_empty()).map_or(0, |last| last + 1);
        for (to, key) in args.iter_mut().zip(&point.keys).take(used) {
            *to = (*key, number(self)?);
        }
        let until = Nanos(at.0.wrapping_add(took));
        Some(Record { at, until, ended: 0, thread, name: point.name, kind, args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_out() {
        let keys = ["a", "b", "c", "d"];
        let points: Vec<Point> = (0..=4)
            .map(|n| Point { name: "p", keys: std::array::from_fn(|i| if i < n { keys[i] } else { "" }) })
            .collect();
        let edges = [0, 1, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX];
        let mut chunk = Chunk::touched(1 << 16);
        // The second time shows that nothing of the first is left.
        for thread in [7, 8] {
            chunk.begin(thread, 1, Nanos(1 << 40));
            let (mut end, mut seen, mut found) = (chunk.start(), chunk.start(), Vec::new());
            let mut want = Vec::new();
            for (i, n) in edges.iter().chain(edges.iter().rev()).enumerate() {
                for (kind, (number, point)) in Kind::ALL.into_iter().cycle().zip(points.iter().enumerate()) {
                    // Backwards, too.
                    let at = Nanos((1u64 << 40).wrapping_add(*n).wrapping_sub(i as u64 % 2 * 300));
                    let until = Nanos(if kind.is_span() { at.0.wrapping_add(n >> number) } else { at.0 });
                    let args = std::array::from_fn(|k| (point.keys[k], n.rotate_left(8 * k as u32)));
                    let id = PointId { number: number as u16, args: number as u8 };
                    assert!(chunk.push(&mut end, (at, until), id, kind, &args.map(|a| a.1)));
                    let args = args.map(|a| if a.0.is_empty() { ("", 0) } else { a });
                    want.push(Record { at, until, ended: 0, thread, name: "p", kind, args });
                }
                // What is there is read while more comes.
                if i % 3 == 0 {
                    chunk.read(&mut seen, chunk.written(), &points, &mut found);
                    assert_eq!(found, want);
                }
            }
            chunk.shrink();
            chunk.read(&mut seen, chunk.written(), &points, &mut found);
            assert_eq!((&found, seen.events), (&want, chunk.len()));
            chunk = Chunk::touched(1 << 16);
        }
    }

    #[test]
    fn a_chunk_is_full_by_number_or_by_words() {
        let cases = [
            (Kind::Instant, 0, 100..=100),
            (Kind::Instant, 4, 30..=50),
            (Kind::Span, 0, 50..=50),
            (Kind::Contention, 4, 30..=50),
        ];
        for (kind, args, want) in cases {
            let id = PointId { number: 3, args };
            let mut chunk = Chunk::of(100);
            chunk.begin(1, 1, Nanos(5));
            let mut end = chunk.start();
            let at = |i| (Nanos(5 + i), Nanos(7 + i));
            let mut push = |i: u64| chunk.push(&mut end, at(i), id, kind, &[u64::MAX; 4]);
            let pushed = (0..1000u64).take_while(|i| push(*i)).count();
            assert!(want.contains(&pushed), "{kind:?}: {pushed}");
            assert_eq!(chunk.len(), pushed * kind.events());
        }
    }

    /// Whatever a reader finds of a chunk that grows is whole.
    #[test]
    fn one_reads_what_another_writes() {
        const RECORDS: u64 = 200_000;
        let points = [Point { name: "p", keys: ["a", "b", "", ""] }];
        let mut chunk = Chunk::of(RECORDS as usize * 2);
        chunk.begin(1, 1, Nanos(0));
        let chunk = &chunk;
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut end = chunk.start();
                let id = PointId { number: 0, args: 2 };
                for i in 0..RECORDS {
                    let wide = if i % 3 == 0 { i << 33 } else { i };
                    assert!(chunk.push(&mut end, (Nanos(i), Nanos(i + 1)), id, Kind::Span, &[wide, i, 0, 0]));
                }
            });
            let (mut seen, mut found) = (chunk.start(), Vec::new());
            while found.len() < RECORDS as usize {
                chunk.read(&mut seen, chunk.written(), &points, &mut found);
                assert_eq!(seen.events, 2 * found.len());
                std::thread::yield_now();
            }
            for (i, r) in (0..).zip(&found) {
                let wide = if i % 3 == 0 { i << 33 } else { i };
                assert_eq!((r.at.0, r.until.0, r.args[0].1, r.args[1].1), (i, i + 1, wide, i));
            }
        });
    }
}
