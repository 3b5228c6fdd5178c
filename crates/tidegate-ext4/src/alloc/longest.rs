//! A bound on the length of each group's free runs, as far as one is known: a group whose bound is below the wanted
//! length is not searched. Linux keeps the same in its buddies (`bb_largest_free_order`).
//!
//! A search of a whole bitmap learns the bound. Allocations leave it as it is, and frees raise it. Blocks that a commit has
//! yet to free, or that are being discarded, do not count: a bound learnt beside such blocks holds only as long as none of
//! them can be taken, which a stamp tells ([`Freed::stamp`](super::Freed)). Blocks kept for growing files count.

use crate::format::units::GroupNo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bit of a bound that holds only for its stamp, which is in the 31 bits below.
const STAMPED: u64 = 1 << 63;
const STAMP_BITS: u32 = 31;

/// The bounds: one more than the number of blocks in the low half, and 0 where nothing is known. They change under the
/// group's lock.
pub(crate) struct LongestFree(Box<[AtomicU64]>);

fn stamped(stamp: u64) -> u64 {
    STAMPED | (stamp & ((1 << STAMP_BITS) - 1)) << 32
}

impl LongestFree {
    pub(crate) fn new(groups: u32) -> Self {
        LongestFree((0..groups).map(|_| AtomicU64::new(0)).collect())
    }

    /// A number of blocks than which no free run of the group is longer; `None` where nothing is known. `stamp` is the
    /// present stamp.
    pub(super) fn at_most(&self, group: GroupNo, stamp: u64) -> Option<u32> {
        let bound = self.0[group.0 as usize].load(Relaxed);
        let holds = bound & STAMPED == 0 || bound >> 32 == stamped(stamp) >> 32;
        ((bound & u64::from(u32::MAX)) as u32).checked_sub(1).filter(|_| holds)
    }

    /// Notes the length of a group's longest free run; with a stamp, for as long as the stamp stays. The caller holds the
    /// group's lock.
    pub(super) fn learn(&self, group: GroupNo, blocks: u32, stamp: Option<u64>) {
        self.0[group.0 as usize].store(stamp.map_or(0, stamped) | (u64::from(blocks) + 1), Relaxed);
    }

    /// Notes that a group has a free run of `blocks` blocks. The caller holds the group's lock.
    pub(super) fn raise(&self, group: GroupNo, blocks: u32) {
        let bound = self.0[group.0 as usize].load(Relaxed);
        let (stamp, known) = (bound >> 32 << 32, bound & u64::from(u32::MAX));
        if known > 0 && known <= u64::from(blocks) {
            self.0[group.0 as usize].store(stamp | (u64::from(blocks) + 1), Relaxed);
        }
    }

    /// Notes that nothing is known of a group. The caller holds the group's lock.
    pub(super) fn forget(&self, group: GroupNo) {
        self.0[group.0 as usize].store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_raised_and_not_made_up() {
        let (longest, group) = (LongestFree::new(2), GroupNo(1));
        longest.raise(group, 7);
        assert_eq!(longest.at_most(group, 0), None, "a longer run may be elsewhere in the group");
        longest.learn(group, 0, None);
        assert_eq!(longest.at_most(group, 0), Some(0));
        longest.raise(group, 7);
        longest.raise(group, 5);
        assert_eq!((longest.at_most(group, 9), longest.at_most(GroupNo(0), 9)), (Some(7), None));
        longest.forget(group);
        assert_eq!(longest.at_most(group, 9), None);
    }

    #[test]
    fn a_bound_with_a_stamp_holds_for_the_stamp() {
        let (longest, group) = (LongestFree::new(1), GroupNo(0));
        let stamp = u64::from(u32::MAX) + 5;
        longest.learn(group, 3, Some(stamp));
        assert_eq!((longest.at_most(group, stamp), longest.at_most(group, stamp + 1)), (Some(3), None));
        longest.raise(group, 4);
        assert_eq!((longest.at_most(group, stamp), longest.at_most(group, stamp + 1)), (Some(4), None));
        longest.learn(group, 6, None);
        assert_eq!(longest.at_most(group, stamp + 1), Some(6));
    }
}
