//! The common part of all events of one place in the source, under a number, so that most of an event need
//! not be written each time.

use super::causes::{LOCK, QUEUE, SLEEP};
use super::record::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A point's number among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointId {
    pub number: u16,
    pub kind: Kind,
    /// How many of the four numbers its records have.
    pub args: u8,
}

impl PointId {
    #[inline]
    pub fn is_span(self) -> bool {
        self.kind.is_span()
    }

    /// The number of events of each record.
    #[inline]
    pub fn events(self) -> usize {
        self.kind.events()
    }
}

/// A name, and the names of the numbers; unused places, which are the last, have an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub kind: Kind,
    pub name: &'static str,
    pub keys: [&'static str; 4],
}

static POINTS: parking_lot::Mutex<Points> =
    parking_lot::Mutex::new(Points { all: Vec::new(), numbers: BTreeMap::new() });

struct Points {
    all: Vec<Point>,
    numbers: BTreeMap<Point, u16>,
}

/// All points, by number.
pub(super) fn all() -> Vec<Point> {
    POINTS.lock().all.clone()
}

/// The number of a point, assigned at first use. `None` when there are too many points.
#[cold]
fn registered(point: Point) -> Option<u16> {
    let points = &mut *POINTS.lock();
    if let Some(n) = points.numbers.get(&point) {
        return Some(*n);
    }
    let number = u16::try_from(points.all.len()).ok()?;
    points.all.push(point);
    points.numbers.insert(point, number);
    Some(number)
}

/// A point that the source names. The number of its numbers is not part of its type, so that the code that
/// records events exists once: every copy would evict the engine's own code from the processor's cache.
pub(super) struct Named {
    point: Point,
    /// How many numbers it has.
    pub args: u8,
    /// Whether processor time is recorded at both ends, for searches for causes.
    timed: bool,
    /// One more than its number; 0 while it has none.
    number: AtomicU32,
}

impl Named {
    pub const fn new<const N: usize>(kind: Kind, name: &'static str, keys: [&'static str; N]) -> Self {
        const { assert!(N <= 4, "an event has four numbers at most") };
        let mut all = [""; 4];
        let mut i = 0;
        while i < N {
            assert!(!keys[i].is_empty(), "a number without a name is none");
            all[i] = keys[i];
            i += 1;
        }
        Named {
            point: Point { kind, name, keys: all },
            args: N as u8,
            timed: false,
            number: AtomicU32::new(0),
        }
    }

    pub const fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    pub fn is_timed(&self) -> bool {
        self.timed
    }

    pub fn name(&self) -> &'static str {
        self.point.name
    }

    /// Its number. `None` when there are too many points. `kind` is the kind of the point, which the caller
    /// knows.
    #[inline(always)]
    pub fn id(&self, kind: Kind) -> Option<PointId> {
        debug_assert_eq!(kind, self.point.kind, "{}", self.point.name);
        match self.number.load(Acquire) {
            0 => self.register(),
            n => Some(PointId { number: (n - 1) as u16, kind, args: self.args }),
        }
    }

    #[cold]
    fn register(&self) -> Option<PointId> {
        let number = registered(self.point)?;
        self.number.store(u32::from(number) + 1, Release);
        Some(PointId { number, kind: self.point.kind, args: self.args })
    }

    /// The numbers with their names.
    pub fn args(&self, numbers: &[u64; 4]) -> super::Args {
        std::array::from_fn(|i| (self.point.keys[i], numbers[i]))
    }
}

/// A point that no place in the source names, with the given first numbers. `None` when there are too many
/// points.
#[cold]
pub(super) fn instant(name: &'static str, keys: [&'static str; 4], args: u8) -> Option<PointId> {
    let kind = Kind::Instant;
    registered(Point { kind, name, keys }).map(|number| PointId { number, kind, args })
}

/// The point of sleeps in a file. `None` when there are too many points.
pub(super) fn sleep(file: &'static str) -> Option<PointId> {
    let kind = Kind::Span;
    let point = Point { kind, name: SLEEP, keys: [file, QUEUE, "", ""] };
    found(SLEEP, file, point, |number| PointId { number, kind, args: 2 })
}

const PLACES: usize = 512;
/// The number of entries in which a point may be.
const PROBES: usize = 8;

/// Points of waits, which all threads find without a lock, by a single word of each. A point is never
/// removed. Points that find no free entry are looked up by [`registered`].
static FOUND: [Found; PLACES] =
    [const { Found { key: AtomicU64::new(0), number: AtomicU32::new(0) } }; PLACES];

struct Found {
    /// The value of [`key_of`]; 0 while the entry is free. Set after `number`, with [`POINTS`] locked.
    key: AtomicU64,
    number: AtomicU32,
}

impl Found {
    fn set(&self, key: u64, number: u16) {
        let _points = POINTS.lock();
        if self.key.load(Relaxed) == 0 {
            self.number.store(number.into(), Relaxed);
            self.key.store(key, Release);
        }
    }
}

/// The key of a pair of texts, made of their addresses. Different pairs share a key as rarely as two random
/// 64-bit numbers are equal.
#[inline]
fn key_of(class: &'static str, file: &'static str) -> u64 {
    let at = |s: &'static str| s.as_ptr().addr() as u64 ^ (s.len() as u64) << 56;
    // The factors are unrelated odd numbers.
    let sum = at(class).wrapping_add(at(file).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    sum.wrapping_mul(0xFF51_AFD7_ED55_8CCD).rotate_left(32).max(1)
}

/// The point of waits for locks of a class that are taken in a file. `None` when there are too many points.
pub(super) fn contention(class: &'static str, file: &'static str) -> Option<PointId> {
    let kind = Kind::Contention;
    let point = Point { kind, name: class, keys: [file, LOCK, "", ""] };
    found(class, file, point, |number| PointId { number, kind, args: 2 })
}

/// The point of these two texts. `of` makes it from its number.
#[inline(always)]
fn found(
    name: &'static str,
    file: &'static str,
    point: Point,
    of: impl Fn(u16) -> PointId,
) -> Option<PointId> {
    let key = key_of(name, file);
    for p in 0..PROBES {
        let found = &FOUND[(key as usize).wrapping_add(p) % PLACES];
        match found.key.load(Acquire) {
            k if k == key => return Some(of(found.number.load(Relaxed) as u16)),
            0 => {
                let number = registered(point)?;
                // If another point takes the entry first, this one is looked up again next time.
                found.set(key, number);
                return Some(of(number));
            }
            _ => {}
        }
    }
    registered(point).map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_points_have_one_number_and_more_than_have_a_place_keep_theirs() {
        let classes: Vec<&'static str> = (0..1000).map(|i| &*format!("class {i}").leak()).collect();
        let find = |class| contention(class, "file").unwrap();
        let numbers: Vec<_> = classes.iter().map(|c| find(c)).collect();
        let again: Vec<_> = classes.iter().map(|c| find(c)).collect();
        let elsewhere: Vec<_> = classes.iter().map(|c| find(c.to_string().leak())).collect();
        assert_eq!((&numbers, &numbers), (&again, &elsewhere));
        let all = all();
        assert!(classes.iter().zip(&numbers).all(|(c, n)| all[usize::from(n.number)].name == *c));
        assert_ne!(contention(classes[0], "other"), Some(numbers[0]));
    }

    #[test]
    fn a_named_point_has_one_number_for_a_kind_and_its_keys() {
        let [first, second] = [const { Named::new(Kind::Span, "named", ["a", "b"]) }; 2];
        let id = first.id(Kind::Span).unwrap();
        assert_eq!((first.id(Kind::Span), second.id(Kind::Span), id.args), (Some(id), Some(id), 2));
        let other = |kind, keys| Named::new(kind, "named", keys).id(kind).unwrap().number;
        assert_ne!(other(Kind::Span, ["a", "c"]), id.number);
        assert_ne!(other(Kind::Instant, ["a", "b"]), id.number);
        let point = all()[usize::from(id.number)];
        assert_eq!((point.kind, point.name, point.keys), (Kind::Span, "named", ["a", "b", "", ""]));
        assert_eq!(first.args(&[3, 4, 0, 0]), [("a", 3), ("b", 4), ("", 0), ("", 0)]);
    }
}
