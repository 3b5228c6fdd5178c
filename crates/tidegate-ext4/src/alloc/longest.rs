//! The longest free run of each group, as far as it is known: a group without a run of the wanted length is not looked
//! into. Linux keeps the same in its buddies (`bb_largest_free_order`).
//!
//! A look through a bitmap makes a group known. Allocations leave the number as it is, so it is a bound, and frees raise
//! it. Runs of blocks that may not be taken yet count: nothing tells when they may.

use crate::format::units::GroupNo;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const UNKNOWN: u32 = 0;

/// The bounds. They change under the group's lock.
pub(crate) struct LongestFree(Box<[AtomicU32]>);

impl LongestFree {
    pub(crate) fn new(groups: u32) -> Self {
        LongestFree((0..groups).map(|_| AtomicU32::new(UNKNOWN)).collect())
    }

    /// A number of blocks than which no free run of the group is longer; `None` where nothing is known.
    pub(super) fn at_most(&self, group: GroupNo) -> Option<u32> {
        self.0[group.0 as usize].load(Relaxed).checked_sub(1)
    }

    /// Notes that a group's longest free run has `blocks` blocks. The caller holds the group's lock.
    pub(super) fn is(&self, group: GroupNo, blocks: u32) {
        self.0[group.0 as usize].store(blocks + 1, Relaxed);
    }

    /// Notes that nothing is known of a group. The caller holds the group's lock.
    pub(super) fn forget(&self, group: GroupNo) {
        self.0[group.0 as usize].store(UNKNOWN, Relaxed);
    }

    /// Notes that a group has a free run of `blocks` blocks. The caller holds the group's lock.
    pub(super) fn has(&self, group: GroupNo, blocks: u32) {
        if self.at_most(group).is_some_and(|most| most < blocks) {
            self.is(group, blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_raised_and_not_made_up() {
        let (longest, group) = (LongestFree::new(2), GroupNo(1));
        longest.has(group, 7);
        assert_eq!(longest.at_most(group), None, "a longer run may be elsewhere in the group");
        longest.is(group, 0);
        assert_eq!(longest.at_most(group), Some(0));
        longest.has(group, 7);
        longest.has(group, 5);
        assert_eq!((longest.at_most(group), longest.at_most(GroupNo(0))), (Some(7), None));
    }
}
