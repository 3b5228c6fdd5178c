//! Bios that were begun and have not ended, in two halves: a checkpoint waits for one while the other fills.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use tidegate_rt::WaitQueue;

/// Counts of bios in flight, in two halves.
#[derive(Default)]
pub(crate) struct InFlight {
    turns: AtomicUsize,
    bios: [AtomicU64; 2],
    /// Bios in flight, of both halves, with data that every checkpoint waits for (`F2FS_WB_CP_DATA`).
    cp_data: AtomicU64,
    /// Wakes when one of the counts reaches 0.
    pub ended: WaitQueue,
}

impl InFlight {
    /// Counts a bio and returns its half. A thread that turns to the other half at this moment may miss this
    /// bio: only a wait with operations frozen covers all bios.
    pub(crate) fn begin(&self) -> usize {
        let half = self.turns.load(SeqCst) % 2;
        self.bios[half].fetch_add(1, SeqCst);
        half
    }

    /// Notes that a bio that was begun has data that every checkpoint waits for; called once for each such
    /// bio.
    pub(crate) fn note_cp_data(&self) {
        self.cp_data.fetch_add(1, SeqCst);
    }

    /// Ends a bio; `cp_data` if [`InFlight::note_cp_data`] was called for it.
    pub(crate) fn end(&self, half: usize, cp_data: bool) {
        let mut over = self.bios[half].fetch_sub(1, SeqCst) == 1;
        over |= cp_data && self.cp_data.fetch_sub(1, SeqCst) == 1;
        if over {
            self.ended.wake_all();
        }
    }

    /// Counts new bios in the other half from now on; returns the half until now. Called only when no bio of
    /// the other half is left.
    pub(crate) fn turn(&self) -> usize {
        self.turns.fetch_add(1, SeqCst) % 2
    }

    /// Whether no bio of a half is left.
    pub(crate) fn is_over(&self, half: usize) -> bool {
        self.bios[half].load(SeqCst) == 0
    }

    /// Whether a bio is left that every checkpoint waits for.
    pub(crate) fn has_cp_data(&self) -> bool {
        self.cp_data.load(SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_is_over_whatever_the_other_has() {
        let f = InFlight::default();
        let (first, second) = (f.begin(), f.begin());
        f.note_cp_data();
        assert_eq!(f.turn(), first);
        let later = f.begin();
        assert_ne!(later, first);
        f.end(first, true);
        assert!(!f.is_over(first) && !f.has_cp_data());
        f.end(second, false);
        assert!(f.is_over(first) && !f.is_over(later));
    }
}
