//! Group descriptors and bitmaps.

use super::place::{Space, Tables};
use crate::format::crc::crc32c;
use crate::format::gate::{Superblock, group};
use crate::format::raw::*;
use crate::format::units::GroupNo;
use zerocopy::IntoBytes;

/// Directories of a new volume: the root and lost+found.
const DIRS: u16 = 2;

/// Everything that is written about the groups.
pub(super) struct Groups<'a> {
    pub space: &'a Space<'a>,
    pub tables: &'a [Tables],
    /// Inodes in use, all in the first group.
    pub inodes: u32,
    /// Inode tables are zeros.
    pub zeroed: bool,
}

/// The blocks with copies of descriptor block `n`; the copy in use comes first.
pub(super) fn desc_copies(sb: &Superblock, n: u64) -> Vec<u64> {
    if !sb.incompat.contains(Incompat::META_BG) {
        let has = (0..sb.groups).map(GroupNo).filter(|g| sb.has_super(*g));
        return has.map(|g| sb.group_start(g).0 + 1 + n).collect();
    }
    let per_meta = sb.descs_per_block();
    let first = n as u32 * per_meta;
    [0, 1, per_meta - 1]
        .into_iter()
        .map(|g| GroupNo(first + g))
        .filter(|g| g.0 < sb.groups)
        .map(|g| sb.group_start(g).0 + u64::from(sb.has_super(g)))
        .collect()
}

impl Groups<'_> {
    /// Whether a group's block bitmap is written.
    pub fn has_block_bitmap(&self, group: u32) -> bool {
        !self.space.sb.has_group_csum() || self.space.written[group as usize]
    }

    /// Whether a group's inode bitmap is written.
    pub fn has_inode_bitmap(&self, group: u32) -> bool {
        !self.space.sb.has_group_csum() || group == 0
    }

    /// A group's block bitmap; bits behind the group's end are set.
    pub fn block_bitmap(&self, group: u32) -> Vec<u8> {
        let sb = self.space.sb;
        let own = self.space.blocks_of(group);
        let mut map = vec![0; sb.block_size as usize];
        for run in self.space.used.within(own.clone()) {
            set(&mut map, (run.start - own.start) as usize..(run.end - own.start) as usize);
        }
        set(&mut map, (own.end - own.start) as usize..sb.block_size as usize * 8);
        map
    }

    /// A group's inode bitmap.
    pub fn inode_bitmap(&self, group: u32) -> Vec<u8> {
        let sb = self.space.sb;
        let mut map = vec![0; sb.block_size as usize];
        if group == 0 {
            set(&mut map, 0..self.inodes as usize);
        }
        set(&mut map, sb.inodes_per_group as usize..sb.block_size as usize * 8);
        map
    }

    fn free_blocks(&self, group: u32) -> u32 {
        let own = self.space.blocks_of(group);
        let used: u64 = self.space.used.within(own.clone()).map(|r| r.end - r.start).sum();
        (own.end - own.start - used) as u32
    }

    /// All descriptors, in whole blocks.
    pub fn descriptors(&self) -> Vec<u8> {
        let sb = self.space.sb;
        let mut all = vec![0; (sb.desc_blocks() * u64::from(sb.block_size)) as usize];
        for (g, bytes) in (0..sb.groups).zip(all.chunks_exact_mut(sb.desc_size as usize)) {
            let raw = self.descriptor(g);
            let n = bytes.len().min(DESC_SIZE_64);
            bytes[..n].copy_from_slice(&raw.as_bytes()[..n]);
            let csum = group::desc_csum(sb, GroupNo(g), bytes);
            bytes[DESC_CSUM_OFFSET..DESC_CSUM_OFFSET + 2].copy_from_slice(&csum.to_le_bytes());
        }
        all
    }

    fn descriptor(&self, group: u32) -> RawGroupDesc {
        let (sb, tables) = (self.space.sb, &self.tables[group as usize]);
        let in_use = if group == 0 { self.inodes } else { 0 };
        let (blocks, inodes) = (self.free_blocks(group), sb.inodes_per_group - in_use);
        let mut d = RawGroupDesc::default();
        let low = |n: u64| (n as u32).into();
        let high = |n: u64| ((n >> 32) as u32).into();
        let low16 = |n: u32| (n as u16).into();
        let high16 = |n: u32| ((n >> 16) as u16).into();
        (d.bg_block_bitmap_lo, d.bg_block_bitmap_hi) = (low(tables.block_bitmap), high(tables.block_bitmap));
        (d.bg_inode_bitmap_lo, d.bg_inode_bitmap_hi) = (low(tables.inode_bitmap), high(tables.inode_bitmap));
        (d.bg_inode_table_lo, d.bg_inode_table_hi) = (low(tables.inode_table), high(tables.inode_table));
        (d.bg_free_blocks_count_lo, d.bg_free_blocks_count_hi) = (low16(blocks), high16(blocks));
        (d.bg_free_inodes_count_lo, d.bg_free_inodes_count_hi) = (low16(inodes), high16(inodes));
        d.bg_used_dirs_count_lo = if group == 0 { DIRS } else { 0 }.into();
        let mut flags = GroupFlags::empty();
        flags.set(GroupFlags::BLOCK_UNINIT, !self.has_block_bitmap(group));
        flags.set(GroupFlags::INODE_UNINIT, !self.has_inode_bitmap(group));
        flags.set(GroupFlags::INODE_ZEROED, self.zeroed);
        d.bg_flags = flags.bits().into();
        if sb.has_group_csum() {
            (d.bg_itable_unused_lo, d.bg_itable_unused_hi) = (low16(inodes), high16(inodes));
        }
        if sb.has_csum() {
            let csum = |map: Vec<u8>, bits: u32| crc32c(sb.csum_seed, &map[..bits as usize / 8]);
            if self.has_block_bitmap(group) {
                let c = csum(self.block_bitmap(group), sb.blocks_per_group);
                (d.bg_block_bitmap_csum_lo, d.bg_block_bitmap_csum_hi) = (low16(c), high16(c));
            }
            if self.has_inode_bitmap(group) {
                let c = csum(self.inode_bitmap(group), sb.inodes_per_group);
                (d.bg_inode_bitmap_csum_lo, d.bg_inode_bitmap_csum_hi) = (low16(c), high16(c));
            }
        }
        d
    }
}

/// Sets bits, least significant first.
fn set(map: &mut [u8], range: std::ops::Range<usize>) {
    let whole = range.start.div_ceil(8)..range.end / 8;
    if whole.start < whole.end {
        map[whole.clone()].fill(0xff);
        let ends = (range.start..whole.start * 8).chain(whole.end * 8..range.end);
        ends.for_each(|n| map[n / 8] |= 1 << (n % 8));
    } else {
        range.for_each(|n| map[n / 8] |= 1 << (n % 8));
    }
}
