//! Blocks that are freed by a transaction which is not committed yet: nobody gets them before, since after a power cut
//! they are what they were.

use crate::format::units::GroupNo;
use std::collections::HashMap;
use tidegate_jbd2::{Journal, Tid};
use tidegate_rt::{LockClass, Mutex};

static FREED: LockClass = LockClass::new("ext4->freed", 523);

/// Bits of a group: the first, how many, and the transaction that freed them.
type Run = (u32, u32, Tid);

/// The blocks, by group.
pub(crate) struct Freed(Mutex<HashMap<u32, Vec<Run>>>);

impl Default for Freed {
    fn default() -> Self {
        Freed(Mutex::new(&FREED, HashMap::new()))
    }
}

impl Freed {
    /// Blocks are freed by `tid`.
    pub(super) fn add(&self, group: GroupNo, bit: u32, len: u32, tid: Tid) {
        self.0.lock().entry(group.0).or_default().push((bit, len, tid));
    }

    /// What of a group nobody may have yet.
    pub(super) fn of(&self, group: GroupNo, journal: &Journal) -> Vec<(u32, u32)> {
        let done = journal.committed();
        let mut all = self.0.lock();
        let Some(runs) = all.get_mut(&group.0) else { return Vec::new() };
        runs.retain(|r| !done.reaches(r.2));
        let left = runs.iter().map(|r| (r.0, r.1)).collect();
        if runs.is_empty() {
            all.remove(&group.0);
        }
        left
    }

    /// Whether a commit would let blocks be used again.
    pub(crate) fn waits(&self) -> bool {
        !self.0.lock().is_empty()
    }
}
