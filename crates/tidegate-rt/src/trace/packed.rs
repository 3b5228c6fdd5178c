//! Events in as few bytes as they need.
//!
//! What an event writes drives something else out of the processor's caches, and brings memory in: that costs
//! more than packing it. A record is a head (which point, of which kind, and how long each number is), the time
//! since the record before it, for a span how long it took, and its numbers in the order of the point's keys.

use super::points::{Point, PointId};
use super::record::{Kind, Record};
use super::{Args, NO_ARGS};
use crate::clock::Nanos;

/// Bytes of a record at most: a head, two times and four numbers.
const LONGEST: usize = HEAD + 6 * 8;
const HEAD: usize = 4;
/// Bytes that events take in the mean, with some room.
const USUAL: usize = 16;

/// Records of one thread, one after the other.
pub(super) struct Chunk {
    bytes: Vec<u8>,
    /// Bytes with records in them.
    used: usize,
    events: usize,
    most: usize,
    thread: u32,
    /// Times are counted from here.
    first: Nanos,
    last: Nanos,
}

impl Chunk {
    /// One for so many events, or fewer that are long.
    pub fn of(most: usize) -> Chunk {
        Chunk {
            bytes: vec![0; (most * USUAL).max(LONGEST)],
            used: 0,
            events: 0,
            most,
            thread: 0,
            first: Nanos(0),
            last: Nanos(0),
        }
    }

    /// One whose memory was written to.
    pub fn touched(most: usize) -> Chunk {
        let mut chunk = Chunk::of(most);
        chunk.bytes.fill(1);
        chunk
    }

    /// Forgets what is in it, for events of `thread` from `at` on.
    pub fn begin(&mut self, thread: u32, at: Nanos) {
        (self.used, self.events) = (0, 0);
        (self.thread, self.first, self.last) = (thread, at, at);
    }

    /// Events in it.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Gives memory that nothing is in back.
    pub fn shrink(&mut self) {
        self.bytes.truncate(self.used);
        self.bytes.shrink_to_fit();
    }

    /// Adds a record of `kind` from `at` to `until`; false when there is no room for it.
    #[inline]
    pub fn push(
        &mut self,
        (at, until): (Nanos, Nanos),
        point: PointId,
        kind: Kind,
        numbers: &[u64; 4],
    ) -> bool {
        let room = self.bytes.get_mut(self.used..).and_then(|b| b.first_chunk_mut::<LONGEST>());
        let Some(room) = room.filter(|_| self.events < self.most) else { return false };
        let mut writer = Writer { room, used: HEAD, lengths: 0, numbers: 0 };
        // Backwards, since what a span is around comes before it.
        writer.number(zigzag(at.0.wrapping_sub(self.last.0)));
        if kind.is_span() {
            writer.number(until.since(at).0);
        }
        for number in numbers.iter().take(usize::from(point.args)) {
            writer.number(*number);
        }
        self.used += writer.finish(point.number, kind);
        self.events += kind.events();
        // Processors' counters differ by nanoseconds: who moves to another may end before it began.
        self.last = until.max(at);
        true
    }

    /// The records, by the points' numbers.
    pub fn records<'a>(&'a self, points: &'a [Point]) -> impl Iterator<Item = Record> + 'a {
        let (mut left, mut last) = (&self.bytes[..self.used], self.first);
        std::iter::from_fn(move || {
            let mut reader = Reader::new(&mut left)?;
            let point = points.get(usize::from(reader.point))?;
            let kind = reader.kind();
            let at = Nanos(last.0.wrapping_add(unzigzag(reader.number()?)));
            let took = if kind.is_span() { reader.number()? } else { 0 };
            let until = Nanos(at.0.wrapping_add(took));
            last = until;
            let mut args: Args = NO_ARGS;
            let last = point.keys.iter().rposition(|k| !k.is_empty()).map_or(0, |last| last + 1);
            for (to, key) in args.iter_mut().zip(&point.keys).take(last) {
                *to = (*key, reader.number()?);
            }
            Some(Record { at, until, ended: 0, thread: self.thread, name: point.name, kind, args })
        })
    }
}

fn zigzag(delta: u64) -> u64 {
    (delta << 1) ^ ((delta as i64 >> 63) as u64)
}

fn unzigzag(n: u64) -> u64 {
    (n >> 1) ^ (n & 1).wrapping_neg()
}

/// Writes a record. A number has 1, 2, 4 or 8 bytes, and two bits of the head that say which.
struct Writer<'a> {
    room: &'a mut [u8; LONGEST],
    used: usize,
    lengths: u16,
    numbers: u32,
}

impl Writer<'_> {
    #[inline]
    fn number(&mut self, n: u64) {
        let length = u16::from(n > 0xFF) + u16::from(n > 0xFFFF) + u16::from(n > 0xFFFF_FFFF);
        // All eight bytes: what is not part of the number is written over by what comes next.
        if let Some(to) = self.room.get_mut(self.used..self.used + 8) {
            to.copy_from_slice(&n.to_le_bytes());
        }
        self.used += 1 << length;
        self.lengths |= length << (2 * self.numbers);
        self.numbers += 1;
    }

    #[inline]
    fn finish(self, point: u16, kind: Kind) -> usize {
        let head = u32::from(point) | u32::from(self.lengths) << 16 | (kind as u32) << 28;
        self.room[..HEAD].copy_from_slice(&head.to_le_bytes());
        self.used
    }
}

/// Reads a record.
struct Reader<'a, 'b> {
    left: &'a mut &'b [u8],
    point: u16,
    lengths: u32,
    kind: usize,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn new(left: &'a mut &'b [u8]) -> Option<Self> {
        let (head, rest) = left.split_first_chunk::<HEAD>()?;
        *left = rest;
        let head = u32::from_le_bytes(*head);
        Some(Reader { left, point: head as u16, lengths: head >> 16 & 0xFFF, kind: (head >> 28) as usize })
    }

    fn kind(&self) -> Kind {
        Kind::ALL.get(self.kind).copied().unwrap_or(Kind::Instant)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.left.split_at_checked(1 << (self.lengths & 3))?;
        *self.left = rest;
        self.lengths >>= 2;
        let mut bytes = [0; 8];
        bytes[..number.len()].copy_from_slice(number);
        Some(u64::from_le_bytes(bytes))
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
        let edges = [0, 1, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX];
        let mut chunk = Chunk::touched(1 << 16);
        // The second time shows that nothing of the first is left.
        for thread in [7, 8] {
            chunk.begin(thread, Nanos(1 << 40));
            let mut want = Vec::new();
            for (i, n) in edges.iter().chain(edges.iter().rev()).enumerate() {
                for (kind, (number, point)) in Kind::ALL.into_iter().cycle().zip(points.iter().enumerate()) {
                    // Backwards, too.
                    let at = Nanos((1u64 << 40).wrapping_add(*n).wrapping_sub(i as u64 % 2 * 300));
                    let until = Nanos(if kind.is_span() { at.0.wrapping_add(n >> number) } else { at.0 });
                    let args = std::array::from_fn(|k| (point.keys[k], n.rotate_left(8 * k as u32)));
                    let id = PointId { number: number as u16, args: number as u8 };
                    assert!(chunk.push((at, until), id, kind, &args.map(|a| a.1)));
                    let args = args.map(|a| if a.0.is_empty() { ("", 0) } else { a });
                    want.push(Record { at, until, ended: 0, thread, name: "p", kind, args });
                }
            }
            let found: Vec<_> = chunk.records(&points).collect();
            assert_eq!(found, want);
            chunk.shrink();
            assert_eq!(chunk.records(&points).count(), want.len());
            chunk = Chunk { bytes: vec![9; 1 << 20], ..chunk };
        }
    }

    #[test]
    fn a_chunk_is_full_by_number_or_by_bytes() {
        let cases = [
            (Kind::Instant, 0, 100..=100),
            (Kind::Instant, 4, 30..=50),
            (Kind::Span, 0, 50..=50),
            (Kind::Contention, 4, 30..=50),
        ];
        for (kind, args, want) in cases {
            let id = PointId { number: 3, args };
            let mut chunk = Chunk::of(100);
            chunk.begin(1, Nanos(5));
            let at = |i| (Nanos(5 + i), Nanos(7 + i));
            let pushed = (0..1000u64).take_while(|i| chunk.push(at(*i), id, kind, &[u64::MAX; 4])).count();
            assert!(want.contains(&pushed), "{kind:?}: {pushed}");
            assert_eq!(chunk.len(), pushed * kind.events());
        }
    }
}
