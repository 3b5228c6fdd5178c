//! Places in the source that take locks, under numbers: a lock remembers in two bytes where it was taken last, so
//! that who has to wait can tell who was in the way.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Places that are found without a lock; more are not told.
const PLACES: usize = 4096;
/// Where a place may be, from the one that its address says.
const PROBES: usize = 16;

/// A place's number, from 1, beside the address by which it is known.
struct Known {
    /// 0 while nothing is here. Set after `number`, with the table's list locked.
    address: AtomicUsize,
    number: AtomicU16,
}

impl Known {
    const fn nothing() -> Known {
        Known { address: AtomicUsize::new(0), number: AtomicU16::new(0) }
    }
}

/// Places by number and by address.
struct Table {
    known: [Known; PLACES],
    all: parking_lot::Mutex<Vec<&'static Location<'static>>>,
}

static TABLE: Table = Table::empty();

/// Where a lock was taken last, while somebody looked.
pub(crate) struct TakenAt(AtomicU16);

impl TakenAt {
    pub(crate) const fn nowhere() -> Self {
        TakenAt(AtomicU16::new(0))
    }

    /// Notes it. By who has just taken the lock, in whose cache it therefore is.
    #[inline(never)]
    pub(super) fn set(&self, at: &'static Location<'static>) {
        self.0.store(TABLE.number(at), Relaxed);
    }

    /// The place; none where nobody looked or there are too many of them.
    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        TABLE.place(self.0.load(Relaxed))
    }
}

impl Table {
    const fn empty() -> Table {
        Table { known: [const { Known::nothing() }; PLACES], all: parking_lot::Mutex::new(Vec::new()) }
    }

    /// Entries that may have the place at `address`.
    fn probes(&self, address: usize) -> impl Iterator<Item = &Known> {
        // Places lie in read-only memory, some words from each other.
        let first = (address >> 3).wrapping_mul(0x9E37_79B1) >> 7;
        (0..PROBES).map(move |i| &self.known[(first + i) % PLACES])
    }

    /// The number of a place; 0 where there are too many.
    fn number(&self, at: &'static Location<'static>) -> u16 {
        let address = ptr::from_ref(at).addr();
        let known = self.probes(address).find(|k| k.address.load(Acquire) == address);
        known.map_or_else(|| self.register(at, address), |k| k.number.load(Relaxed))
    }

    #[cold]
    fn register(&self, at: &'static Location<'static>, address: usize) -> u16 {
        let mut all = self.all.lock();
        let free = self.probes(address).find(|k| [0, address].contains(&k.address.load(Relaxed)));
        let Some(known) = free else { return 0 };
        if known.address.load(Relaxed) == 0 {
            all.push(at);
            known.number.store(all.len() as u16, Relaxed);
            known.address.store(address, Release);
        }
        known.number.load(Relaxed)
    }

    fn place(&self, number: u16) -> Option<&'static Location<'static>> {
        self.all.lock().get(usize::from(number).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_remembers_where_it_was_taken() {
        let at = TakenAt::nowhere();
        assert_eq!(at.get(), None);
        let (here, there) = (Location::caller(), there());
        for place in [here, there, here] {
            at.set(place);
            assert_eq!(at.get(), Some(place));
        }
    }

    fn there() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn more_places_than_fit_are_not_told() {
        static FULL: Table = Table::empty();
        let leaked = |_| -> &'static Location<'static> { Box::leak(Box::new(*Location::caller())) };
        let many: Vec<_> = (0..PLACES + 100).map(leaked).collect();
        let numbers: Vec<u16> = many.iter().map(|at| FULL.number(at)).collect();
        assert!(numbers.contains(&0));
        for (at, n) in many.iter().zip(&numbers).filter(|(_, n)| **n > 0) {
            assert!(ptr::eq(FULL.place(*n).unwrap(), *at) && FULL.number(at) == *n);
        }
    }
}
