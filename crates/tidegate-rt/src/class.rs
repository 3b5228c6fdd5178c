//! Lock classes and the order in which they may be taken.

use crate::device_wait;
use crate::lockstat::Counted;

/// A lock's class: a name (the kernel's where there is one), a rank, and its statistics.
///
/// Every lock is made with a `&'static LockClass`. Debug builds panic when a thread takes a lock whose
/// rank is not above that of every lock it holds; `lock_nested` permits an equal rank, for two locks
/// of one class that the caller orders itself (by inode number, say).
pub struct LockClass {
    name: &'static str,
    rank: u16,
    /// No thread may wait for a device with a lock of this class held.
    pub(crate) off_device: bool,
    /// The counts of exclusive acquisitions.
    pub(crate) alone: Counted,
    /// The counts of shared acquisitions.
    pub(crate) shared: Counted,
}

impl LockClass {
    /// A class with the given name and rank. Lower ranks are taken first.
    pub const fn new(name: &'static str, rank: u16) -> Self {
        LockClass { name, rank, off_device: false, alone: Counted::new(), shared: Counted::new() }
    }

    /// Marks the class as one of locks under which no thread may wait for a device (see
    /// [`crate::device_wait`]): other threads need the locks for work without that device.
    pub const fn off_device(self) -> Self {
        LockClass { off_device: true, ..self }
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
    use crate::thread;
    use std::cell::RefCell;
    thread::local!(static HELD: RefCell<Vec<&'static LockClass>> = const { RefCell::new(Vec::new()) });

    pub(super) fn push(class: &'static LockClass, nested: bool) {
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

    pub(super) fn off_device() -> &'static str {
        HELD.with(|h| h.borrow().iter().rev().find(|c| c.off_device).map_or("", |c| c.name))
    }

    pub(super) fn pop(class: &'static LockClass) {
        HELD.with(|h| {
            let mut h = h.borrow_mut();
            if let Some(i) = h.iter().rposition(|c| std::ptr::eq(*c, class)) {
                h.remove(i);
            }
        });
    }
}

#[cfg(debug_assertions)]
use held as order;

#[cfg(not(debug_assertions))]
mod order {
    use super::LockClass;
    pub(super) fn push(_: &'static LockClass, _: bool) {}
    pub(super) fn pop(_: &'static LockClass) {}
    pub(super) fn off_device() -> &'static str {
        "a lock"
    }
}

/// The name of the class of a lock that the calling thread holds, and under which it may not wait for a device.
pub(crate) fn off_device_held() -> &'static str {
    order::off_device()
}

/// Notes that the calling thread is about to take a lock of `class`.
#[inline]
pub(crate) fn push(class: &'static LockClass, nested: bool) {
    order::push(class, nested);
    if class.off_device {
        device_wait::taken();
    }
}

/// Notes that the calling thread releases a lock of `class`.
#[inline]
pub(crate) fn pop(class: &'static LockClass) {
    order::pop(class);
    if class.off_device {
        device_wait::released();
    }
}
