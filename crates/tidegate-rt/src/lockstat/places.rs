//! Places in the source that take locks. A lock remembers where it was taken last, by a store alone; the
//! places that this may mean are those whose holds were timed, and a thread that has to wait asks for them.

use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Places that there is room for; more are not told.
const PLACES: usize = 4096;
/// Where a key may be, from the entry that it says.
const PROBES: usize = 16;

/// A short name of a place: the low half of its address. Two have the same if four gigabytes lie between them, which
/// no program is large enough for.
type Key = u32;

fn key(at: &'static Location<'static>) -> Key {
    ptr::from_ref(at).addr() as u32
}

/// Where a lock was taken last, while somebody looked; 0 for nowhere.
pub(crate) struct TakenAt(AtomicU32);

impl TakenAt {
    pub(crate) const fn nowhere() -> Self {
        TakenAt(AtomicU32::new(0))
    }

    /// Notes it. By the thread that has just taken the lock, in whose cache it therefore is.
    #[inline]
    pub(crate) fn set(&self, at: &'static Location<'static>) {
        self.0.store(key(at), Relaxed);
    }

    /// The place; none where nobody looked, or no hold from there was timed since counts began.
    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        TABLE.all.lock().get(&self.0.load(Relaxed)).copied()
    }
}

/// Knows no place any more: what is told depends on nothing that was before.
pub(super) fn reset() {
    TABLE.reset();
}

/// From now on [`TakenAt::get`] knows this place.
pub(super) fn tell(at: &'static Location<'static>) {
    TABLE.tell(at);
}

struct Table {
    /// Keys of what is in `all`, to be looked for without its lock; 0 in free entries.
    known: [AtomicU32; PLACES],
    all: parking_lot::Mutex<BTreeMap<Key, &'static Location<'static>>>,
}

static TABLE: Table = Table::empty();

impl Table {
    const fn empty() -> Table {
        Table { known: [const { AtomicU32::new(0) }; PLACES], all: parking_lot::Mutex::new(BTreeMap::new()) }
    }

    /// Entries that may have a key.
    fn probes(&self, key: Key) -> impl Iterator<Item = &AtomicU32> {
        // Places lie in read-only memory, some words from each other.
        let first = ((key >> 3).wrapping_mul(0x9E37_79B1) >> 12) as usize;
        (0..PROBES).map(move |i| &self.known[(first + i) % PLACES])
    }

    fn tell(&self, at: &'static Location<'static>) {
        let key = key(at);
        // No single entry is given up: a free one ends the search.
        let found = self.probes(key).map(|k| k.load(Acquire)).find(|k| [0, key].contains(k));
        if found == Some(0) {
            self.insert(at, key);
        }
    }

    /// A thread that tells of a place at the same time may be too early; its next one of there is not.
    fn reset(&self) {
        let mut all = self.all.lock();
        all.clear();
        self.known.iter().for_each(|k| k.store(0, Relaxed));
    }

    #[cold]
    fn insert(&self, at: &'static Location<'static>, key: Key) {
        let mut all = self.all.lock();
        if let Some(free) = self.probes(key).find(|k| k.load(Relaxed) == 0) {
            all.insert(key, at);
            free.store(key, Release);
        }
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
        at.set(here);
        assert_eq!(at.get(), None, "nobody was told of it");
        for place in [here, there, here] {
            tell(place);
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
        many.iter().for_each(|at| FULL.tell(at));
        let all = FULL.all.lock().clone();
        assert!((PLACES / 2..=PLACES).contains(&all.len()), "{}", all.len());
        many.iter().for_each(|at| FULL.tell(at));
        assert_eq!(FULL.all.lock().len(), all.len());
        assert!(all.iter().all(|(k, at)| key(at) == *k));
        FULL.reset();
        assert!(FULL.all.lock().is_empty());
        FULL.tell(many[0]);
        assert_eq!(FULL.all.lock().len(), 1);
    }
}
