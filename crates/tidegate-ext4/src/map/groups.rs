//! The groups in which one change frees blocks: each has a bitmap and may have a block of descriptors for itself, and
//! a change that has begun must have room for all.

use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::sbi::Ext4;

/// Groups that one change frees blocks in at most, beside those of the map's own blocks: a bitmap and a descriptor of
/// each are half of what a change begins with.
const AT_ONCE: usize = 16;

/// Groups of blocks in one piece that one change frees at most, where it frees a few such.
pub(super) const OF_A_RUN: u64 = 8;

/// The groups that a change has been given so far.
pub(super) struct Groups<'a> {
    fs: &'a Ext4,
    given: Vec<GroupNo>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(fs: &'a Ext4) -> Self {
        Groups { fs, given: Vec::new() }
    }

    /// How many of the last of `n` blocks from `first` on the change can take, too.
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
