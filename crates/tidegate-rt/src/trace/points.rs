//! What events of one place in the source have in common, under a number: most of an event need not be written
//! again each time.

use super::Args;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A point's number among all, and how many numbers its records have: the first of the four places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointId {
    pub number: u16,
    pub args: u8,
}

/// A name, and what the numbers are called; unused places, which are the last, have an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub name: &'static str,
    pub keys: [&'static str; 4],
}

impl Point {
    fn of(name: &'static str, args: &Args) -> Point {
        Point { name, keys: args.map(|a| a.0) }
    }
}

static POINTS: parking_lot::Mutex<Points> =
    parking_lot::Mutex::new(Points { all: Vec::new(), numbers: BTreeMap::new() });

struct Points {
    all: Vec<Point>,
    numbers: BTreeMap<Point, u16>,
}

/// All there are, by number.
pub(super) fn all() -> Vec<Point> {
    POINTS.lock().all.clone()
}

/// A point's number, given when it is first asked for; none when there are too many.
#[cold]
fn registered(point: Point) -> Option<PointId> {
    let args = point.keys.iter().rposition(|k| !k.is_empty()).map_or(0, |last| last as u8 + 1);
    let points = &mut *POINTS.lock();
    if let Some(n) = points.numbers.get(&point) {
        return Some(PointId { number: *n, args });
    }
    let number = u16::try_from(points.all.len()).ok()?;
    points.all.push(point);
    points.numbers.insert(point, number);
    Some(PointId { number, args })
}

const PLACES: usize = 512;
/// Places where a point may be.
const PROBES: usize = 8;

/// Points for all threads to find without a lock, and without a look at more of each than a word. Once there, a
/// point stays; those that find no place any more are found by [`registered`].
static FOUND: [Found; PLACES] = [const { Found { key: AtomicU64::new(0), id: AtomicU32::new(0) } }; PLACES];

struct Found {
    /// What [`key_of`] says; 0 while nothing is here. Set after `id`, with [`POINTS`] locked.
    key: AtomicU64,
    /// The point's number, and above it the number of its args.
    id: AtomicU32,
}

impl Found {
    fn id(&self) -> PointId {
        let id = self.id.load(Relaxed);
        PointId { number: id as u16, args: (id >> 16) as u8 }
    }

    fn set(&self, key: u64, id: PointId) {
        let _points = POINTS.lock();
        if self.key.load(Relaxed) == 0 {
            self.id.store(u32::from(id.number) | u32::from(id.args) << 16, Relaxed);
            self.key.store(key, Release);
        }
    }
}

/// What tells places in the source apart: where their texts are. Texts that are not the same have one key as rarely
/// as 64 bits that were drawn by lot are the same.
#[inline]
fn key_of(name: &'static str, args: &Args) -> u64 {
    // Odd numbers with nothing in common, multiplied side by side.
    const BY: [u64; 4] =
        [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0xD6E8_FEB8_6659_FD93];
    let at = |s: &'static str| s.as_ptr().addr() as u64 ^ (s.len() as u64) << 56;
    let sum = args.iter().zip(BY).fold(at(name), |sum, (a, by)| sum.wrapping_add(at(a.0).wrapping_mul(by)));
    sum.wrapping_mul(0xFF51_AFD7_ED55_8CCD).rotate_left(32).max(1)
}

/// The number of a point; none when there are too many.
pub(super) fn id(name: &'static str, args: &Args) -> Option<PointId> {
    let key = key_of(name, args);
    for p in 0..PROBES {
        let found = &FOUND[(key as usize).wrapping_add(p) % PLACES];
        match found.key.load(Acquire) {
            k if k == key => return Some(found.id()),
            0 => {
                let id = registered(Point::of(name, args))?;
                // Who came first has the place: this one is asked for again.
                found.set(key, id);
                return Some(id);
            }
            _ => {}
        }
    }
    registered(Point::of(name, args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::NO_ARGS;

    #[test]
    fn equal_points_have_one_number_and_more_than_have_a_place_keep_theirs() {
        let names: Vec<&'static str> = (0..1000).map(|i| &*format!("point {i}").leak()).collect();
        let numbers: Vec<_> = names.iter().map(|n| id(n, &NO_ARGS).unwrap()).collect();
        let again: Vec<_> = names.iter().map(|n| id(n, &NO_ARGS).unwrap()).collect();
        let elsewhere: Vec<_> = names.iter().map(|n| id(n.to_string().leak(), &NO_ARGS).unwrap()).collect();
        assert_eq!((&numbers, &numbers), (&again, &elsewhere));
        let all = all();
        assert!(names.iter().zip(&numbers).all(|(name, n)| all[usize::from(n.number)].name == *name));
        let mut args = NO_ARGS;
        args[2].0 = "key";
        assert_ne!(id(names[0], &args).unwrap().number, numbers[0].number);
        assert_eq!((id(names[0], &args).unwrap().args, numbers[0].args), (3, 0));
    }
}
