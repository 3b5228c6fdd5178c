//! What events of one place in the source have in common, under a number: most of an event need not be written
//! again each time.

use super::Args;
use std::collections::BTreeMap;
use std::sync::OnceLock;

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

    /// Whether it is the same place's. Equal texts elsewhere are found by [`registered`].
    fn is(&self, name: &'static str, args: &Args) -> bool {
        std::ptr::eq(self.name, name) && self.keys.iter().zip(args).all(|(k, a)| std::ptr::eq(*k, a.0))
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

/// Points with their numbers, for all threads to find without a lock. Once there, a point stays; those that
/// find no place any more are found by [`registered`].
static FOUND: [OnceLock<(Point, PointId)>; PLACES] = [const { OnceLock::new() }; PLACES];

/// The number of a point; none when there are too many.
pub(super) fn id(name: &'static str, args: &Args) -> Option<PointId> {
    let mixed = (name.as_ptr().addr() ^ args[0].0.as_ptr().addr().rotate_left(32)) as u64;
    let place = (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
    for p in (place..place + PROBES).map(|p| p % PLACES) {
        match FOUND[p].get() {
            Some((point, id)) if point.is(name, args) => return Some(*id),
            Some(_) => {}
            None => {
                let id = registered(Point::of(name, args))?;
                // Who came first has the place: this one is asked for again.
                let _ = FOUND[p].set((Point::of(name, args), id));
                return Some(id);
            }
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
