//! Bitmaps of blocks and inodes: a bit is set where one is in use, least significant bit first.
//!
//! A group's bitmap may never have been written: then its content follows from the geometry.

use crate::format::crc::crc32c;
use crate::format::gate::{GroupDesc, rule};
use crate::format::raw::{GroupFlags, Incompat};
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_jbd2::Verified;
use tidegate_vfs::{At, Result};

/// Whether bit `n` is set.
pub(super) fn is_set(map: &[u8], n: u32) -> bool {
    map[n as usize / 8] & 1 << (n % 8) != 0
}

/// Sets or clears bits.
pub(super) fn fill(map: &mut [u8], range: Range<u32>, on: bool) {
    let mut one = |n: u32| {
        let (byte, bit) = (&mut map[n as usize / 8], 1 << (n % 8));
        if on { *byte |= bit } else { *byte &= !bit }
    };
    // Whole bytes in between.
    let bytes = range.start.div_ceil(8)..range.end / 8;
    if bytes.is_empty() {
        return range.for_each(one);
    }
    (range.start..bytes.start * 8).for_each(&mut one);
    (bytes.end * 8..range.end).for_each(&mut one);
    map[bytes.start as usize..bytes.end as usize].fill(if on { 0xff } else { 0 });
}

/// The first clear bit in a range.
pub(super) fn first_clear(map: &[u8], range: Range<u32>) -> Option<u32> {
    let mut n = range.start;
    while n < range.end {
        if n.is_multiple_of(8) && map[n as usize / 8] == 0xff {
            n += 8;
            continue;
        }
        if !is_set(map, n) {
            return Some(n);
        }
        n += 1;
    }
    None
}

/// The number of clear bits in a range.
pub(super) fn clear_in(map: &[u8], range: Range<u32>) -> u32 {
    range.filter(|n| !is_set(map, *n)).count() as u32
}

/// The number of clear bits from `from` on, up to `end` and at most `max`.
pub(super) fn clear_run(map: &[u8], from: u32, end: u32, max: u32) -> u32 {
    let end = end.min(from.saturating_add(max));
    let mut n = from;
    while n < end {
        if n.is_multiple_of(8) && map[n as usize / 8] == 0 {
            n += 8;
        } else if is_set(map, n) {
            break;
        } else {
            n += 1;
        }
    }
    n.min(end) - from
}

/// The number of clear bits right before `end`.
pub(super) fn clear_before(map: &[u8], end: u32) -> u32 {
    let mut n = end;
    while n > 0 {
        if n.is_multiple_of(8) && map[n as usize / 8 - 1] == 0 {
            n -= 8;
        } else if is_set(map, n - 1) {
            break;
        } else {
            n -= 1;
        }
    }
    end - n
}

/// The length of the longest run of clear bits before `end`.
pub(super) fn longest_clear(map: &[u8], end: u32) -> u32 {
    let (mut at, mut longest) = (0, 0);
    while let Some(bit) = first_clear(map, at..end) {
        let len = clear_run(map, bit, end, u32::MAX);
        longest = longest.max(len);
        at = bit + len;
    }
    longest
}

impl Ext4 {
    /// Blocks of a group; the last may have fewer.
    pub(super) fn blocks_in(&self, group: GroupNo) -> u32 {
        let left = self.sb.blocks - self.sb.group_start(group).0;
        left.min(self.sb.blocks_per_group.into()) as u32
    }

    /// The block bitmap of a group, checked; computed if it was never written.
    pub(super) fn block_bitmap(&self, desc: &GroupDesc) -> Result<Vec<u8>> {
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(self.made_up_block_bitmap(desc));
        }
        let block = self.blocks.read(desc.block_bitmap)?;
        let bytes = self.sb.blocks_per_group as usize / 8;
        self.check_bitmap("block bitmap", desc.block_bitmap, &block, bytes, desc.block_bitmap_csum)?;
        Ok(block.to_vec())
    }

    /// The inode bitmap of a group, checked; computed if it was never written.
    pub(super) fn inode_bitmap(&self, desc: &GroupDesc) -> Result<Vec<u8>> {
        let inodes = self.sb.inodes_per_group;
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut map = vec![0; self.sb.block_size as usize];
            fill(&mut map, inodes..self.sb.block_size * 8, true);
            return Ok(map);
        }
        let block = self.blocks.read(desc.inode_bitmap)?;
        let bytes = inodes as usize / 8;
        self.check_bitmap("inode bitmap", desc.inode_bitmap, &block, bytes, desc.inode_bitmap_csum)?;
        Ok(block.to_vec())
    }

    /// The checksum of a bitmap's bytes, cut to the bits that the descriptor has room for.
    pub(super) fn bitmap_csum(&self, bytes: &[u8]) -> u32 {
        let crc = crc32c(self.sb.csum_seed, bytes);
        if self.sb.incompat.contains(Incompat::BIT64) { crc } else { crc & 0xffff }
    }

    /// Compares the checksum of a bitmap's bytes with `stored`, unless an earlier read has done so.
    fn check_bitmap(
        &self,
        what: &'static str,
        addr: BlockAddr,
        map: &Block,
        bytes: usize,
        stored: u32,
    ) -> Result<()> {
        if !self.sb.has_csum() || map.is_verified(Verified::Checksum) {
            return Ok(());
        }
        rule(self.bitmap_csum(&map[..bytes]) == stored, "its checksum does not match")
            .map_err(|e| e.at(At::Part(what, addr.0)))?;
        self.blocks.set_verified(addr, map, Verified::Checksum);
        Ok(())
    }

    /// The content of a block bitmap that was never written: the copies of superblock and descriptors are in
    /// use, and so are the blocks of the group's own tables that lie in the group.
    fn made_up_block_bitmap(&self, desc: &GroupDesc) -> Vec<u8> {
        let (sb, group) = (&self.sb, desc.group);
        let mut map = vec![0; sb.block_size as usize];
        let (start, blocks) = (sb.group_start(group), self.blocks_in(group));
        fill(&mut map, 0..(sb.copies_in(group) as u32).min(blocks), true);
        let mut mark = |first: BlockAddr, n: u64| {
            let inside = |b: u64| b.checked_sub(start.0).filter(|n| *n < blocks.into());
            for bit in (first.0..first.0 + n).filter_map(inside) {
                fill(&mut map, bit as u32..bit as u32 + 1, true);
            }
        };
        mark(desc.block_bitmap, 1);
        mark(desc.inode_bitmap, 1);
        mark(desc.inode_table, sb.itable_blocks());
        fill(&mut map, blocks..sb.block_size * 8, true);
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_filled_to_the_bit() {
        for (start, end) in (0..40).flat_map(|start| (start..=40).map(move |end| (start, end))) {
            for on in [true, false] {
                let mut map = vec![if on { 0 } else { 0xff }; 5];
                fill(&mut map, start..end, on);
                assert!(
                    (0..40).all(|n| is_set(&map, n) == (on == (start..end).contains(&n))),
                    "{start}..{end}"
                );
            }
        }
    }

    #[test]
    fn runs_are_found_across_bytes() {
        let mut map = vec![0xff; 8];
        fill(&mut map, 5..41, false);
        assert_eq!((first_clear(&map, 0..64), first_clear(&map, 41..64)), (Some(5), None));
        assert_eq!(
            (clear_run(&map, 5, 64, 100), clear_run(&map, 5, 64, 7), clear_run(&map, 5, 30, 100)),
            (36, 7, 25)
        );
        fill(&mut map, 16..17, true);
        assert_eq!((clear_run(&map, 5, 64, 100), first_clear(&map, 16..64)), (11, Some(17)));
        assert_eq!((longest_clear(&map, 64), longest_clear(&map, 20)), (24, 11));
        for end in 0..64 {
            let clear = (0..end).rev().take_while(|n| !is_set(&map, *n)).count() as u32;
            assert_eq!(clear_before(&map, end), clear, "before {end}");
        }
        assert_eq!(clear_before(&[0; 4], 32), 32);
    }
}
