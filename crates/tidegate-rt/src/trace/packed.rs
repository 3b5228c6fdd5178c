//! Events as they are recorded: quickly, and in few bytes.
//!
//! The bytes of an event evict others from the processor's caches, and so does the code that writes them. So
//! a record has one of two forms, and the usual form takes some twenty instructions. It consists of a head
//! with the point and the end time, counted from the end of the previous record; for a span its duration; and
//! the numbers of the point, two to a word. If any of these is longer than half a word, each has a word.
//!
//! One thread writes a chunk, and others may read it meanwhile. No lock is taken for a record, since
//! releasing a lock would wait until the record has left the processor.

use super::NO_ARGS;
use super::points::{Point, PointId};
use super::record::Record;
use crate::clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The most words of a record: a head, two times and four numbers.
const LONGEST: usize = 7;
/// Words that events take in the mean, with some room.
const USUAL: usize = 2;
/// The number of words between a record and the memory that is prefetched while it is written.
const AHEAD: usize = 32;

/// The bit in a head, above the point's number, which says that each other value has a word.
const WIDE: u64 = 1 << 16;
/// The shift of the time since the previous record, unless it has a word.
const SINCE: u32 = 32;

/// Records of one thread, one after the other.
pub(super) struct Chunk {
    words: Box<[AtomicU64]>,
    /// The number of words with records and, in the upper bits, the number of their events. Set after the
    /// records are written.
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

/// How far a chunk was written, for its writer, or how far it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    words: usize,
    /// The number of events up to there.
    pub events: usize,
    last: Nanos,
}

impl Chunk {
    /// A chunk for so many events, or fewer long ones.
    pub fn of(most: usize) -> Chunk {
        Chunk {
            words: (0..most * USUAL + LONGEST + AHEAD).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU64::new(0),
            most,
            thread: 0,
            recording: 0,
            first: Nanos(0),
        }
    }

    /// A chunk whose memory was already touched.
    pub fn touched(most: usize) -> Chunk {
        let chunk = Chunk::of(most);
        chunk.words.iter().for_each(|w| w.store(1, Relaxed));
        chunk
    }

    /// Empties the chunk, for events of `thread` in a recording from `at` on.
    pub fn begin(&mut self, thread: u32, recording: u32, at: Nanos) {
        self.used = AtomicU64::new(0);
        (self.thread, self.recording, self.first) = (thread, recording, at);
    }

    /// The position of its first record.
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

    /// How far the chunk is written. The points of these records are known to a thread that looks them up
    /// after this.
    pub fn written(&self) -> Written {
        let used = self.used.load(Acquire);
        Written { words: used as u32 as usize, events: (used >> 32) as usize }
    }

    /// Gives unused memory back.
    pub fn shrink(&mut self) {
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.truncate(self.written().words);
        self.words = words.into_boxed_slice();
    }

    /// Adds a record of a `point` from `at` to `until`. False when there is no room for it. Only one thread
    /// does so, and `end` is its position.
    #[inline(always)]
    pub fn push(
        &self,
        end: &mut Position,
        (at, until): (Nanos, Nanos),
        point: PointId,
        numbers: &[u64; 4],
    ) -> bool {
        let room = self.words.get(end.words..).and_then(|w| w.first_chunk::<{ LONGEST + AHEAD }>());
        let Some(room) = room.filter(|_| end.events < self.most) else { return false };
        fetch(&room[LONGEST + AHEAD - 1]);
        // Processors' counters differ by nanoseconds: a thread that moves to another may end before it began.
        let until = until.max(at);
        // The time may also be before the last record: then this number is long.
        let since = until.0.wrapping_sub(end.last.0);
        let [a, b, c, d] = *numbers;
        let (values, count) = match point.is_span() {
            true => ([until.0 - at.0, a, b, c, d], usize::from(point.args) + 1),
            false => ([a, b, c, d, 0], usize::from(point.args)),
        };
        let head = u64::from(point.number);
        end.words += if values.iter().fold(since, |all, v| all | v) >> 32 == 0 {
            let [a, b, c, d, e] = values;
            let words = [head | since << SINCE, a | b << 32, c | d << 32, e];
            room.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
            1 + count.div_ceil(2)
        } else {
            push_wide(room, head, since, &values);
            2 + count
        };
        end.events += point.events();
        end.last = until;
        self.used.store(end.words as u64 | (end.events as u64) << 32, Release);
        true
    }

    /// Adds the records from `seen` to `end` to `to`, by the points' numbers, and moves `seen`.
    pub fn read(&self, seen: &mut Position, end: Written, points: &[Point], to: &mut Vec<Record>) {
        let mut rest =
            self.words.get(seen.words..end.words).unwrap_or_default().iter().map(|w| w.load(Relaxed));
        while let Some(record) = record(&mut rest, seen.last, points, self.thread) {
            seen.last = record.until;
            to.push(record);
        }
        debug_assert_eq!(rest.len(), 0, "records end where they are said to");
        (seen.words, seen.events) = (end.words, end.events);
    }
}

/// Prefetches memory that will be written soon. Otherwise the next lock operation waits for it.
#[inline(always)]
fn fetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    safe_arch::prefetch_t0(word);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cold]
fn push_wide(room: &[AtomicU64], head: u64, since: u64, values: &[u64; 5]) {
    let words = [head | WIDE, since].into_iter().chain(*values);
    room.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
}

/// The next record in `words`. `last` is the end of the previous record.
fn record(
    words: &mut impl Iterator<Item = u64>,
    last: Nanos,
    points: &[Point],
    thread: u32,
) -> Option<Record> {
    let head = words.next()?;
    let point = points.get(usize::from(head as u16))?;
    let is_wide = head & WIDE != 0;
    let since = if is_wide { words.next()? } else { head >> SINCE };
    let mut half = None;
    let mut value = || match half.take() {
        Some(high) => Some(high),
        None if is_wide => words.next(),
        None => {
            let word = words.next()?;
            half = Some(word >> 32);
            Some(u64::from(word as u32))
        }
    };
    let took = if point.kind.is_span() { value()? } else { 0 };
    let mut args = NO_ARGS;
    for (to, key) in args.iter_mut().zip(point.keys).filter(|(_, key)| !key.is_empty()) {
        *to = (key, value()?);
    }
    let until = last.0.wrapping_add(since);
    let at = Nanos(until.wrapping_sub(took));
    Some(Record { at, until: Nanos(until), ended: 0, thread, name: point.name, kind: point.kind, args })
}

#[cfg(test)]
mod tests {
    use super::super::record::Kind;
    use super::*;
    use std::array::from_fn;

    const KEYS: [&str; 4] = ["a", "b", "c", "d"];

    /// Points of all kinds, with 0 to 4 numbers.
    fn points() -> Vec<Point> {
        let of = |kind, n| Point { kind, name: "p", keys: from_fn(|i| if i < n { KEYS[i] } else { "" }) };
        Kind::ALL.into_iter().flat_map(|kind| (0..=4).map(move |n| of(kind, n))).collect()
    }

    fn push(chunk: &Chunk, end: &mut Position, record: &Record, number: usize) -> bool {
        let args = record.args.iter().filter(|a| !a.0.is_empty()).count() as u8;
        let id = PointId { number: number as u16, kind: record.kind, args };
        chunk.push(end, (record.at, record.until), id, &record.args.map(|a| a.1))
    }

    #[test]
    fn what_is_pushed_comes_out() {
        let points = points();
        let edges = [0, 1, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX];
        let mut chunk = Chunk::touched(1 << 16);
        // The second round shows that nothing of the first is left.
        for thread in [7, 8] {
            chunk.begin(thread, 1, Nanos(1 << 40));
            let (mut end, mut seen, mut found) = (chunk.start(), chunk.start(), Vec::new());
            let mut want = Vec::new();
            for (i, n) in edges.iter().chain(edges.iter().rev()).cycle().take(200).enumerate() {
                for (number, point) in points.iter().enumerate().skip(i % 3) {
                    // Backwards, too.
                    let at = Nanos((1u64 << 40).wrapping_add(*n).wrapping_sub(i as u64 % 2 * 300));
                    let took = if point.kind.is_span() { *n >> (number % 64) } else { 0 };
                    let until = Nanos(at.0.saturating_add(took));
                    let key = |k: usize| point.keys[k];
                    let value = |k| if key(k).is_empty() { 0 } else { n.rotate_left(8 * k as u32) };
                    let args = from_fn(|k| (key(k), value(k)));
                    let record = Record { at, until, ended: 0, thread, name: "p", kind: point.kind, args };
                    assert!(push(&chunk, &mut end, &record, number));
                    want.push(record);
                }
                // Existing records are read while more come.
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
            (Kind::Instant, 4, 30..=40),
            (Kind::Span, 0, 50..=50),
            (Kind::Contention, 4, 25..=35),
        ];
        for (kind, args, want) in cases {
            let mut chunk = Chunk::of(100);
            chunk.begin(1, 1, Nanos(5));
            let mut end = chunk.start();
            let args = from_fn(|i| if i < args { (KEYS[i], u64::MAX) } else { ("", 0) });
            let record = |i| Record {
                at: Nanos(5 + i),
                until: Nanos(7 + i),
                ended: 0,
                thread: 1,
                name: "p",
                kind,
                args,
            };
            let pushed = (0..1000u64).take_while(|i| push(&chunk, &mut end, &record(*i), 3)).count();
            assert!(want.contains(&pushed), "{kind:?}: {pushed}");
            assert_eq!(chunk.len(), pushed * kind.events());
        }
    }

    /// A reader of a growing chunk only finds whole records.
    #[test]
    fn one_reads_what_another_writes() {
        const RECORDS: u64 = 200_000;
        let points = [Point { kind: Kind::Span, name: "p", keys: ["a", "b", "", ""] }];
        let mut chunk = Chunk::of(RECORDS as usize * 3);
        chunk.begin(1, 1, Nanos(0));
        let chunk = &chunk;
        let wide = |i: u64| if i.is_multiple_of(3) { i << 33 } else { i };
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut end = chunk.start();
                let id = PointId { number: 0, kind: Kind::Span, args: 2 };
                for i in 0..RECORDS {
                    assert!(chunk.push(&mut end, (Nanos(i), Nanos(i + 1)), id, &[wide(i), i, 0, 0]));
                }
            });
            let (mut seen, mut found) = (chunk.start(), Vec::new());
            while found.len() < RECORDS as usize {
                chunk.read(&mut seen, chunk.written(), &points, &mut found);
                assert_eq!(seen.events, 2 * found.len());
                std::thread::yield_now();
            }
            for (i, r) in (0..).zip(&found) {
                assert_eq!((r.at.0, r.until.0, r.args[0].1, r.args[1].1), (i, i + 1, wide(i), i));
            }
        });
    }
}
