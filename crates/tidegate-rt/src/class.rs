//! Lock classes and the order in which they may be taken.

use crate::lockstat::Counted;

/// What a lock is: a name (the kernel's where there is one), a rank, and its statistics.
///
/// Every lock is made with a `&'static LockClass`. Debug builds panic when a thread takes a lock whose
/// rank is not above that of every lock it holds; `lock_nested` permits an equal rank, for two locks
/// of one class that the caller orders itself (by inode number, say).
pub struct LockClass {
    name: &'static str,
    rank: u16,
    /// Of those who take a lock alone.
    pub(crate) alone: Counted,
    /// Of those who share one.
    pub(crate) shared: Counted,
}

impl LockClass {
    /// A class with the given name and rank. Lower ranks are taken first.
    pub const fn new(name: &'static str, rank: u16) -> Self {
        LockClass { name, rank, alone: Counted::new(), shared: Counted::new() }
    }

    /// The name, e.g. `sit_i->sentry_lock`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The rank: a thread takes locks in ascending rank.
    pub fn rank(&self) -> u16 {
        self.rank
    }
}

#[cfg(debug_assertions)]
mod held {
    use super::LockClass;
    use std::cell::RefCell;
    thread_local!(static HELD: RefCell<Vec<&'static LockClass>> = const { RefCell::new(Vec::new()) });

    pub(crate) fn push(class: &'static LockClass, nested: bool) {
        HELD.with(|h| {
            let mut h = h.borrow_mut();
            if let Some(top) = h.iter().max_by_key(|c| c.rank) {
                let ok = class.rank > top.rank || (nested && class.rank == top.rank);
                assert!(
                    ok,
                    "lock order: taking {} (rank {}) while holding {} (rank {})",
                    class.name, class.rank, top.name, top.rank
                );
            }
            h.push(class);
        });
    }

    pub(crate) fn pop(class: &'static LockClass) {
        HELD.with(|h| {
            let mut h = h.borrow_mut();
            if let Some(i) = h.iter().rposition(|c| std::ptr::eq(*c, class)) {
                h.remove(i);
            }
        });
    }
}

#[cfg(debug_assertions)]
pub(crate) use held::{pop, push};

#[cfg(not(debug_assertions))]
pub(crate) fn push(_: &'static LockClass, _: bool) {}
#[cfg(not(debug_assertions))]
pub(crate) fn pop(_: &'static LockClass) {}
