//! The groups in which one change frees blocks: each has a bitmap, and may have a block of descriptors to
//! itself. A change that has begun must have room for all of them.

use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::sbi::Ext4;

/// Most groups in which one change frees blocks, besides those of the map's own blocks: a bitmap and a
/// descriptor of each are half of the credits that a change begins with.
const AT_ONCE: usize = 16;

/// Most groups of one run of blocks that a change frees, if it frees only a few runs.
pub(super) const OF_A_RUN: u64 = 8;

/// The groups in which a change frees blocks so far.
pub(super) struct Groups<'a> {
    fs: &'a Ext4,
    given: Vec<GroupNo>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(fs: &'a Ext4) -> Self {
        Groups { fs, given: Vec::new() }
    }

    /// How many of the last of `n` blocks from `first` on the change can free, too.
    pub(super) fn take_last(&mut self, first: BlockAddr, n: u64) -> u64 {
        let mut left = n;
        while left > 0 {
            let group = self.fs.group_of(first.plus(left - 1));
            if !self.given.contains(&group) {
                if self.given.len() == AT_ONCE && self.fs.blocks.journal().is_some() {
                    break;
                }
                self.given.push(group);
            }
            left = self.fs.sb.group_start(group).0.saturating_sub(first.0).min(left - 1);
        }
        n - left
    }
}
