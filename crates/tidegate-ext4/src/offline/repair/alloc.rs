//! Allocation of blocks and inodes that nothing on the volume uses.

use super::Repair;
use crate::format::raw::Incompat;
use crate::format::units::GroupNo;
use tidegate_vfs::{Error, ErrorKind, Result};

impl Repair<'_, '_> {
    /// A block that nothing on the volume names.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn alloc_block(&mut self) -> Result<u64> {
        let all = self.sb.blocks;
        // A block that is freed stays `seen`, so none becomes free again.
        let rest = if self.full { 0 } else { all };
        for n in 0..rest {
            let block = (self.next_block + n) % all;
            if block > self.sb.first_data_block.0 && !self.used.get(block) && !self.seen.get(block) {
                self.next_block = block + 1;
                self.claim(block);
                return Ok(block);
            }
        }
        self.full = true;
        let what = "no block is free, and repairing takes some: nothing was changed";
        Err(Error::new(ErrorKind::NoSpace, what))
    }

    /// A block for a bitmap of group `g`.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn alloc_bitmap(&mut self, g: u32) -> Result<u64> {
        if self.sb.incompat.contains(Incompat::FLEX_BG) {
            return self.alloc_block();
        }
        let start = self.sb.group_start(GroupNo(g)).0;
        let end = (start + u64::from(self.sb.blocks_per_group)).min(self.sb.blocks);
        let found = (start..end).find(|b| !self.used.get(*b) && !self.seen.get(*b));
        let none = || {
            Error::new(ErrorKind::NoSpace, format!("group {g} has no room for a bitmap: nothing was changed"))
        };
        let block = found.ok_or_else(none)?;
        self.claim(block);
        Ok(block)
    }

    /// An inode that is not in use; preferably one that was used before.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn alloc_inode(&mut self) -> Result<u32> {
        for fresh in [false, true] {
            for g in 0..self.sb.groups {
                let per = self.sb.inodes_per_group;
                let unused = self.descs[g as usize].unused(per);
                // Among the inodes that were never used, the first: all before it have an entry in the table.
                let end = if fresh { (per - unused + 1).min(per) } else { per - unused };
                let first = g * per + 1;
                let free = |ino: &u32| *ino >= self.sb.first_ino && !self.used_inodes.get((*ino).into());
                if let Some(ino) = (first..first + end).find(free) {
                    self.used_inodes.set(ino.into());
                    return Ok(ino);
                }
            }
        }
        Err(Error::new(ErrorKind::NoSpace, "no inode is free, and repairing takes one: nothing was changed"))
    }
}
