//! Allocation of given blocks and inodes: fast commits name theirs.

use super::bitmap::{clear_run, fill, is_set};
use crate::format::gate::rule;
use crate::format::units::{BlockAddr, GroupNo};
use crate::inode::Ranges;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::Result;

impl Ext4 {
    /// Marks a range of the volume's blocks as in use, or as free; returns the blocks that were not so
    /// before.
    ///
    /// # Errors
    /// `Corrupt` for blocks outside of the volume and of its own tables, and for damaged bitmaps; those of the device.
    pub(crate) fn set_blocks(
        &self,
        handle: &mut Handle<'_>,
        range: Range<u64>,
        used: bool,
    ) -> Result<Ranges> {
        let (first, n) = (BlockAddr(range.start), range.end - range.start);
        rule(self.sb.holds(first, n), "it lies outside of the volume").map_err(|e| e.at(first.place()))?;
        self.refuse_to_free_tables(first, n)?;
        let (mut at, mut changed) = (range.start, Ranges::default());
        while at < range.end {
            let group = self.group_of(BlockAddr(at));
            let start = self.sb.group_start(group).0;
            let bit = (at - start) as u32;
            let len = ((range.end - at) as u32).min(self.blocks_in(group) - bit);
            let _lock = self.group_locks.lock(group);
            let desc = self.group(group)?;
            let mut map = self.block_bitmap(&desc)?;
            let (mut n, mut flipped) = (bit, 0);
            while n < bit + len {
                let clear = clear_run(&map, n, bit + len, u32::MAX);
                let run = match clear {
                    0 => (n..bit + len).take_while(|b| is_set(&map, *b)).count() as u32,
                    clear => clear,
                };
                if used == (clear > 0) {
                    fill(&mut map, n..n + run, used);
                    changed.add(start + u64::from(n)..start + u64::from(n + run));
                    flipped += i64::from(run);
                }
                n += run;
            }
            if flipped > 0 {
                if !used {
                    self.longest_free.forget(group);
                }
                self.store_block_bitmap(handle, &desc, &map, if used { -flipped } else { flipped })?;
            }
            at += u64::from(len);
        }
        Ok(changed)
    }

    /// Whether an inode is in use.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn is_inode_used(&self, ino: u32) -> Result<bool> {
        let (group, bit) = self.inode_group(ino);
        Ok(is_set(&self.inode_bitmap(&self.group(group)?)?, bit))
    }

    /// Takes an inode that is free. Earlier places of the table that may never have been written become
    /// zeros, as they are read from now on.
    ///
    /// # Errors
    /// As [`Ext4::is_inode_used`].
    pub(crate) fn claim_inode(&self, handle: &mut Handle<'_>, ino: u32, is_dir: bool) -> Result<()> {
        let (group, bit) = self.inode_group(ino);
        self.zero_table(handle, group, bit)?;
        let _lock = self.group_locks.lock(group);
        let desc = self.group(group)?;
        let mut map = self.inode_bitmap(&desc)?;
        fill(&mut map, bit..bit + 1, true);
        let behind = self.sb.inodes_per_group - bit - 1;
        self.store_inode_bitmap(handle, &desc, &map, -1, is_dir, desc.itable_unused.min(behind))
    }

    fn zero_table(&self, handle: &mut Handle<'_>, group: GroupNo, bit: u32) -> Result<()> {
        let desc = self.group(group)?;
        let first = group.0 * self.sb.inodes_per_group + 1;
        let len = self.sb.inode_size as usize;
        for n in self.never_written(&desc)..=bit {
            let (addr, at) = self.inode_address(first + n)?;
            handle.write(addr, |block| block[at..at + len].fill(0))?;
        }
        Ok(())
    }
}
