//! The index in memory of a large directory's names: at which levels a name can be.
//!
//! On the volume, a name may be in one bucket of each level. So a lookup reads a bucket of every level, and a
//! search for a new name reads all of them in vain. A table holds the hash and the level of each name. It is
//! made when lookups have read as many blocks as the directory has. With the table, a lookup reads one bucket
//! for a name that is there, and none for a name that is not.
//!
//! ```text
//! lookup "x"   level 0  1  2  3  4  5 … 11          table: hash("x") -> {9}
//! without       ▒▒  ▒▒  ▒▒  ▒▒  ▒▒  ▒▒ … ▒▒         with      only ▒▒ at level 9
//! ```
//!
//! The table says "may be": two hashes with equal bits cost a read in vain. The table never hides a name. A
//! directory that cannot be read whole has no table, and neither has a directory for which memory does not
//! suffice.
//!
//! Lock: `fi->names` 448, short, never while the device is waited for.
//!
//! | module | holds |
//! |---|---|
//! | `table` | the table itself |

mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use table::{Full, Table};
use tidegate_rt::{LockClass, Mutex};

static NAMES: LockClass = LockClass::new("fi->names", 448);

/// Blocks that lookups read before a table is worth its cost.
const WORTH: u64 = 64;

/// Memory that all tables of a volume take together, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    /// Changes the budget for a table that grows or shrinks from `had` to `has` bytes; false if the sum would
    /// exceed `limit`.
    fn change(&self, had: usize, has: usize, limit: usize) -> bool {
        let used = self.0.fetch_add(has, Relaxed) + has - had;
        let fits = has <= had || used <= limit;
        self.0.fetch_sub(if fits { had } else { has }, Relaxed);
        fits
    }
}

/// A table with its share of the budget, which returns to the budget when the table is dropped.
struct Held {
    table: Table,
    bytes: usize,
    budget: Arc<Budget>,
    limit: usize,
}

impl Held {
    fn new(budget: &Arc<Budget>, limit: usize) -> Option<Held> {
        let table = Table::new();
        let bytes = table.bytes();
        let fits = budget.change(0, bytes, limit);
        fits.then(|| Held { table, bytes, budget: budget.clone(), limit })
    }

    fn insert(&mut self, hash: u32, level: u32, slots: usize) -> Result<(), Full> {
        let bytes = self.table.bytes_to_add();
        if !self.budget.change(self.bytes, bytes, self.limit) {
            return Err(Full);
        }
        self.bytes = bytes;
        self.table.insert(hash, level, slots)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.change(self.bytes, 0, 0);
    }
}

enum State {
    /// No table; the number is the blocks that lookups have read since.
    Without(u64),
    /// A thread reads the directory to make a table.
    Building,
    Known(Box<Held>),
    /// This directory cannot have a table.
    Never,
}

/// The index of one directory's names.
pub(crate) struct Names(Mutex<(State, u64)>);

impl Default for Names {
    fn default() -> Self {
        Names(Mutex::new(&NAMES, (State::Without(0), 0)))
    }
}

/// A table that is being made from a read of the directory.
pub(crate) struct Builder {
    held: Option<Held>,
    /// The directory's count of changes when the read began.
    changes: u64,
}

impl Builder {
    /// Adds a name that was read. If memory does not suffice for all names, there will be no table.
    pub(crate) fn add(&mut self, hash: u32, level: u32, slots: usize) {
        if self.held.as_mut().is_some_and(|h| h.insert(hash, level, slots) == Err(Full)) {
            self.held = None;
        }
    }

    /// Whether it is of use to read on.
    pub(crate) fn goes_on(&self) -> bool {
        self.held.is_some()
    }
}

impl Names {
    /// The levels at which a name with `hash` may be, one bit for each; all levels where there is no table.
    pub(crate) fn levels(&self, hash: u32) -> u64 {
        match &self.0.lock().0 {
            State::Known(h) => h.table.levels(hash),
            _ => u64::MAX,
        }
    }

    /// The levels at which to look for free slots, one bit for each.
    pub(crate) fn roomy(&self, dir_level: u32, levels: u32) -> u64 {
        match &self.0.lock().0 {
            State::Known(h) => {
                (0..levels).filter(|&l| h.table.has_room(l, dir_level)).fold(0, |bits, l| bits | 1 << l)
            }
            _ => u64::MAX,
        }
    }

    /// Notes that a lookup read `looked` blocks of a directory of `blocks`. With `Some`, the caller reads the
    /// directory, and calls [`Names::built`] in any case. `limit`: bytes that all tables may take.
    pub(crate) fn looked(
        &self,
        looked: u64,
        blocks: u64,
        budget: &Arc<Budget>,
        limit: usize,
    ) -> Option<Builder> {
        let mut guard = self.0.lock();
        let (state, changes) = &mut *guard;
        let State::Without(sum) = state else { return None };
        *sum += looked;
        if *sum < blocks.max(WORTH) {
            return None;
        }
        *state = State::Building;
        Some(Builder { held: Held::new(budget, limit), changes: *changes })
    }

    /// Takes over a builder's table; `whole`: the builder has every name.
    pub(crate) fn built(&self, builder: Builder, whole: bool) {
        let mut guard = self.0.lock();
        let (state, changes) = &mut *guard;
        *state = match builder.held {
            Some(_) if whole && *changes != builder.changes => State::Without(0),
            Some(held) if whole => State::Known(Box::new(held)),
            _ => State::Never,
        };
    }

    /// Notes a name that was added.
    pub(crate) fn added(&self, hash: u32, level: u32, slots: usize) {
        let mut guard = self.0.lock();
        let (state, changes) = &mut *guard;
        *changes += 1;
        if let State::Known(h) = state
            && h.insert(hash, level, slots) == Err(Full)
        {
            *state = State::Never;
        }
    }

    /// Notes a name that was removed.
    pub(crate) fn removed(&self, hash: u32, level: u32, slots: usize) {
        let mut guard = self.0.lock();
        let (state, changes) = &mut *guard;
        *changes += 1;
        if let State::Known(h) = state {
            let known = h.table.remove(hash, level, slots);
            debug_assert!(known, "a name that was found is in the table");
        }
    }

    /// Drops the table after a change that failed: the directory's content is not known now.
    pub(crate) fn forget(&self) {
        let mut guard = self.0.lock();
        let (state, changes) = &mut *guard;
        *changes += 1;
        if matches!(state, State::Known(_)) {
            *state = State::Without(0);
        }
    }

    /// Whether there is a table.
    #[cfg(test)]
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.0.lock().0, State::Known(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u64 = 0;

    fn build(names: &Names, budget: &Arc<Budget>, limit: usize, all: u32) {
        let mut b = names.looked(1000, 10, budget, limit).unwrap();
        (0..all).for_each(|i| b.add(i.wrapping_mul(0x9e37_79b1), 5, 1));
        names.built(b, true);
    }

    #[test]
    fn a_table_is_made_once_it_pays_and_follows_changes() {
        let (names, budget) = (Names::default(), Arc::new(Budget::default()));
        assert!(names.looked(63, 10, &budget, 1 << 20).is_none());
        assert_eq!(names.levels(7 << 6), u64::MAX);
        build(&names, &budget, 1 << 20, 100);
        assert!(names.looked(1000, 10, &budget, 1 << 20).is_none(), "made twice");
        assert_eq!(names.levels(7 << 6), NONE);
        names.added(7 << 6, 4, 2);
        assert_eq!(names.levels(7 << 6), 1 << 4);
        names.removed(7 << 6, 4, 2);
        assert_eq!(names.levels(7 << 6), NONE);
        names.forget();
        assert_eq!((names.levels(7 << 6), budget.0.load(Relaxed)), (u64::MAX, 0));
    }

    #[test]
    fn a_change_beside_the_reader_wins() {
        let (names, budget) = (Names::default(), Arc::new(Budget::default()));
        let b = names.looked(1000, 10, &budget, 1 << 20).unwrap();
        names.added(7 << 6, 4, 2);
        names.built(b, true);
        assert_eq!(names.levels(7 << 6), u64::MAX);
    }

    #[test]
    fn the_budget_is_kept_and_given_back() {
        let (a, b, budget) = (Names::default(), Names::default(), Arc::new(Budget::default()));
        build(&a, &budget, 20_000, 2000);
        assert!(a.is_known());
        build(&b, &budget, 20_000, 2000);
        assert!(!b.is_known());
        assert!(budget.0.load(Relaxed) <= 20_000);
        drop((a, b));
        assert_eq!(budget.0.load(Relaxed), 0);
    }
}
