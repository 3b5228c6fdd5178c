//! Blocks freed by a transaction that is not committed yet: they are not allocated before the commit, since a
//! power cut would bring their old use back.

use crate::format::units::GroupNo;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use tidegate_jbd2::{Journal, Tid};
use tidegate_rt::{Condvar, LockClass, Mutex};

static FREED: LockClass = LockClass::new("ext4->freed", 523);

/// A run of bits of a group: the first bit, the length, and the transaction that freed them.
type Run = (u32, u32, Tid);

/// The freed blocks, by group, and the blocks that are being discarded.
pub(crate) struct Freed {
    state: Mutex<State>,
    /// Number of times that a commit was found to have made blocks usable again.
    released: AtomicU64,
    /// Number of times that a run that was being discarded was released.
    let_go: AtomicU64,
    goes: Condvar,
}

#[derive(Default)]
struct State {
    freed: HashMap<u32, Vec<Run>>,
    /// Group, first bit, length, first block.
    held: Vec<(u32, u32, u32, u64)>,
}

impl Default for Freed {
    fn default() -> Self {
        Freed {
            state: Mutex::new(&FREED, State::default()),
            released: AtomicU64::new(0),
            let_go: AtomicU64::new(0),
            goes: Condvar::new(),
        }
    }
}

impl Freed {
    /// Adds blocks that `tid` frees.
    pub(super) fn add(&self, group: GroupNo, bit: u32, len: u32, tid: Tid) {
        self.state.lock().freed.entry(group.0).or_default().push((bit, len, tid));
    }

    /// Blocks of a group that must not be allocated yet.
    pub(super) fn of(&self, group: GroupNo, journal: Option<&Journal>) -> Vec<(u32, u32)> {
        let done = journal.map(Journal::committed);
        let mut all = self.state.lock();
        let mut left: Vec<_> = all.held.iter().filter(|h| h.0 == group.0).map(|h| (h.1, h.2)).collect();
        let Some(runs) = all.freed.get_mut(&group.0) else { return left };
        let before = runs.len();
        runs.retain(|r| !done.is_some_and(|d| d.reaches(r.2)));
        if runs.len() < before {
            self.released.fetch_add(1, Relaxed);
        }
        left.extend(runs.iter().map(|r| (r.0, r.1)));
        if runs.is_empty() {
            all.freed.remove(&group.0);
        }
        left
    }

    /// A number that stays as long as no blocks of [`Freed::of`] can have become usable.
    pub(super) fn stamp(&self, journal: Option<&Journal>) -> u64 {
        journal.map_or(0, |j| u64::from(j.committed().0)) + self.let_go()
    }

    /// Keeps a free run, which begins with block `first`, from other threads until it is released.
    pub(super) fn hold(&self, group: GroupNo, bit: u32, len: u32, first: u64) {
        self.state.lock().held.push((group.0, bit, len, first));
    }

    /// Releases the run that begins with block `first`.
    pub(super) fn release(&self, group: GroupNo, first: u64) {
        let mut state = self.state.lock();
        state.held.retain(|h| (h.0, h.3) != (group.0, first));
        self.let_go.fetch_add(1, AcqRel);
        self.goes.notify_all();
    }

    /// A number that changes when a held run is released.
    pub(super) fn let_go(&self) -> u64 {
        self.let_go.load(Acquire)
    }

    /// Waits until a run has been released since `seen`; false if none was and none is held. A thread that
    /// holds a run waits only for the device.
    pub(super) fn wait_let_go(&self, seen: u64) -> bool {
        let mut state = self.state.lock();
        while self.let_go() == seen {
            if state.held.is_empty() {
                return false;
            }
            self.goes.wait(&mut state);
        }
        true
    }

    /// Whether a commit would make blocks usable again.
    pub(crate) fn waits(&self) -> bool {
        !self.state.lock().freed.is_empty()
    }

    /// A number that changes when commits have made blocks usable again: a search that found none before may
    /// find some now.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Relaxed)
    }
}
