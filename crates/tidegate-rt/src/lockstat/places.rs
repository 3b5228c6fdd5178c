//! Places in the source that take locks. A lock remembers where it was taken last, by a single store of a
//! key. Only places with timed holds are known by their keys, and a thread that has to wait looks them up.

use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The most places. More are not reported.
const PLACES: usize = 4096;
/// The number of entries in which a key may be, from its own entry on.
const PROBES: usize = 16;

/// A short name of a place: the low half of its address. Two places share a key only if four gigabytes lie between
/// them, and no program is that large.
type Key = u32;

fn key(at: &'static Location<'static>) -> Key {
    ptr::from_ref(at).addr() as u32
}

/// The place where a lock was last taken while statistics were on; 0 for none.
pub(crate) struct TakenAt(AtomicU32);

impl TakenAt {
    pub(crate) const fn nowhere() -> Self {
        TakenAt(AtomicU32::new(0))
    }

    /// Notes the place. Called by the thread that has just taken the lock, in whose cache the lock therefore
    /// is.
    #[inline]
    pub(crate) fn set(&self, at: &'static Location<'static>) {
        self.0.store(key(at), Relaxed);
    }

    /// The place. `None` where statistics were off, or where no hold from there was timed since counts began.
    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        TABLE.all.lock().get(&self.0.load(Relaxed)).copied()
    }
}

/// Forgets all places, so that reports do not depend on earlier ones.
pub(super) fn reset() {
    TABLE.reset();
}

/// Lets [`TakenAt::get`] know this place from now on.
pub(super) fn tell(at: &'static Location<'static>) {
    TABLE.tell(at);
}

struct Table {
    /// The keys of the places in `all`, to be looked up without its lock; 0 in free entries.
    known: [AtomicU32; PLACES],
    all: parking_lot::Mutex<BTreeMap<Key, &'static Location<'static>>>,
}

static TABLE: Table = Table::empty();

impl Table {
    const fn empty() -> Table {
        Table { known: [const { AtomicU32::new(0) }; PLACES], all: parking_lot::Mutex::new(BTreeMap::new()) }
    }

    /// The entries that may hold `key`.
    fn probes(&self, key: Key) -> impl Iterator<Item = &AtomicU32> {
        // Places lie in read-only memory, some words apart.
        let first = ((key >> 3).wrapping_mul(0x9E37_79B1) >> 12) as usize;
        (0..PROBES).map(move |i| &self.known[(first + i) % PLACES])
    }

    fn tell(&self, at: &'static Location<'static>) {
        let key = key(at);
        // No single entry is ever freed, so a free entry ends the search.
        let found = self.probes(key).map(|k| k.load(Acquire)).find(|k| [0, key].contains(k));
        if found == Some(0) {
            self.insert(at, key);
        }
    }

    /// A place that another thread adds at this time may be lost; its next acquisition there adds it again.
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
