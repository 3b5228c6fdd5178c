//! Blocks of the volume's own tables, which no file may have, whatever its map says (Linux's
//! `block_validity`): copies of the superblock and of the descriptors with the blocks reserved for their
//! growth, bitmaps, inode tables, the journal.

use crate::format::gate::{GroupDesc, Journal, rule};
use crate::format::units::BlockAddr;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::Result;

/// Damaged descriptors after which the search stops: a superblock may claim any number of groups.
const DAMAGED: u32 = 1 << 14;

/// The tables, as ranges of blocks in order.
pub(crate) struct Tables {
    ranges: Vec<Range<u64>>,
    /// The first block that two tables share.
    shared: Option<BlockAddr>,
}

impl Tables {
    fn new(mut found: Vec<Range<u64>>) -> Self {
        found.sort_unstable_by_key(|r| r.start);
        let (mut ranges, mut shared) = (Vec::<Range<u64>>::new(), None);
        for r in found {
            match ranges.last_mut() {
                Some(before) if r.start <= before.end => {
                    if r.start < before.end {
                        shared = shared.or(Some(BlockAddr(r.start)));
                    }
                    before.end = before.end.max(r.end);
                }
                _ => ranges.push(r),
            }
        }
        ranges.shrink_to_fit();
        Tables { ranges, shared }
    }

    /// Whether any of `n` blocks from `first` on belongs to a table.
    fn touch(&self, first: BlockAddr, n: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= first.0);
        self.ranges.get(at).is_some_and(|r| r.start < first.0.saturating_add(n))
    }

    /// A block that two tables share, if there is one.
    pub(crate) fn shared(&self) -> Option<BlockAddr> {
        self.shared
    }
}

/// Tables of one kind in the order in which they are found: neighbours, as flex_bg lays them out, become one
/// range at once.
#[derive(Default)]
struct Found(Vec<Range<u64>>);

impl Found {
    fn add(&mut self, first: BlockAddr, n: u64) {
        match self.0.last_mut() {
            Some(r) if r.end == first.0 => r.end += n,
            _ if n > 0 => self.0.push(first.0..first.0 + n),
            _ => {}
        }
    }
}

impl Ext4 {
    /// Refuses an inode's blocks that overlap the volume's own tables. The journal's blocks belong to its
    /// inode.
    ///
    /// # Errors
    /// `Corrupt` for such blocks.
    pub(crate) fn refuse_tables(&self, ino: u32, first: BlockAddr, n: u64) -> Result<()> {
        if self.sb.journal == Journal::Inode(ino) {
            return Ok(());
        }
        let apart = !self.tables().touch(first, n);
        rule(apart, format_args!("{n} blocks from here on touch the volume's own tables"))
            .map_err(|e| e.at(first.place()).in_inode(ino))
    }

    /// Refuses to free blocks of the volume's own tables.
    ///
    /// # Errors
    /// `Corrupt` for such blocks.
    pub(super) fn refuse_to_free_tables(&self, first: BlockAddr, n: u64) -> Result<()> {
        let apart = !self.tables().touch(first, n);
        rule(apart, format_args!("{n} blocks that are freed touch the volume's own tables"))
            .map_err(|e| e.at(first.place()))
    }

    /// The volume's own tables. Reads all group descriptors the first time.
    pub(crate) fn tables(&self) -> &Tables {
        if let Some(tables) = self.tables.get() {
            return tables;
        }
        // Other threads may search for the tables meanwhile: none waits for another, and all find the same.
        let found = self.find_tables();
        self.tables.get_or_init(|| found)
    }

    /// Finds the tables. Where descriptors cannot be read or are damaged, so that the volume is not changed,
    /// their tables are left out.
    fn find_tables(&self) -> Tables {
        let (mut copies, mut bitmaps, mut inodes, mut tables) =
            (Found::default(), Found::default(), Found::default(), Found::default());
        let mut damaged = 0;
        let _ = self.each_group(&mut |desc: Result<GroupDesc>| match desc {
            Ok(desc) => {
                copies.add(self.sb.group_start(desc.group), self.sb.copies_in(desc.group));
                bitmaps.add(desc.block_bitmap, 1);
                inodes.add(desc.inode_bitmap, 1);
                tables.add(desc.inode_table, self.sb.itable_blocks());
                Ok(())
            }
            Err(e) => {
                damaged += 1;
                if damaged < DAMAGED { Ok(()) } else { Err(e) }
            }
        });
        let mut found = [copies.0, bitmaps.0, inodes.0, tables.0].concat();
        found.extend(self.journal_blocks.iter().cloned());
        Tables::new(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_from_what_lies_between() {
        let t = Tables::new(vec![40..50, 1..4, 4..6, 60..61]);
        assert_eq!(t.ranges, [1..6, 40..50, 60..61]);
        assert_eq!(t.shared(), None);
        let touched = |first, n| t.touch(BlockAddr(first), n);
        assert!(touched(5, 1) && touched(0, 2) && touched(39, 2) && touched(49, 1) && touched(7, 100));
        assert!(!touched(6, 34) && !touched(50, 10) && !touched(61, u64::MAX) && !touched(0, 1));
        assert_eq!(Tables::new(vec![1..4, 3..6]).shared(), Some(BlockAddr(3)));
    }
}
