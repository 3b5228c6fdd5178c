//! Blocks that are freed by a transaction which is not committed yet: nobody gets them before, since after a
//! power cut they are what they were.

use crate::format::units::GroupNo;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use tidegate_jbd2::{Journal, Tid};
use tidegate_rt::{Condvar, LockClass, Mutex};

static FREED: LockClass = LockClass::new("ext4->freed", 523);

/// Bits of a group: the first, how many, and the transaction that freed them.
type Run = (u32, u32, Tid);

/// The blocks, by group, and those that are being discarded.
pub(crate) struct Freed {
    state: Mutex<State>,
    /// How often a commit was found to have let blocks be used again.
    released: AtomicU64,
    /// How often a run that was being discarded was let go.
    let_go: AtomicU64,
    goes: Condvar,
}

#[derive(Default)]
struct State {
    freed: HashMap<u32, Vec<Run>>,
    /// Group, first bit, how many, first block.
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
    /// Blocks are freed by `tid`.
    pub(super) fn add(&self, group: GroupNo, bit: u32, len: u32, tid: Tid) {
        self.state.lock().freed.entry(group.0).or_default().push((bit, len, tid));
    }

    /// Blocks of a group that nobody may have yet.
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

    /// Keeps a free run, which begins with block `first`, from others until it is released.
    pub(super) fn hold(&self, group: GroupNo, bit: u32, len: u32, first: u64) {
        self.state.lock().held.push((group.0, bit, len, first));
    }

    /// Lets go of the run that begins with block `first`.
    pub(super) fn release(&self, group: GroupNo, first: u64) {
        let mut state = self.state.lock();
        state.held.retain(|h| (h.0, h.3) != (group.0, first));
        self.let_go.fetch_add(1, AcqRel);
        self.goes.notify_all();
    }

    /// Changes when a run that was held is let go.
    pub(super) fn let_go(&self) -> u64 {
        self.let_go.load(Acquire)
    }

    /// Waits until a run has been let go since `seen`; false if none was and none is held. One who holds a run waits
    /// for the device alone.
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

    /// Whether a commit would let blocks be used again.
    pub(crate) fn waits(&self) -> bool {
        !self.state.lock().freed.is_empty()
    }

    /// Changes when commits have let blocks be used again: a search that found none meanwhile may find some.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Relaxed)
    }
}
