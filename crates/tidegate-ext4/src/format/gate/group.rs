//! A group descriptor, validated.

use super::Superblock;
use crate::format::crc::{crc16, crc32c};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use tidegate_vfs::{Error, Result};
use zerocopy::IntoBytes;

/// The places of a group's tables, and its counts.
#[derive(Clone, Debug)]
pub struct GroupDesc {
    /// The group.
    pub group: GroupNo,
    /// Its block bitmap.
    pub block_bitmap: BlockAddr,
    /// Its inode bitmap.
    pub inode_bitmap: BlockAddr,
    /// The first block of its inode table.
    pub inode_table: BlockAddr,
    /// Free blocks; clusters with bigalloc.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the table's end that were never used.
    pub itable_unused: u32,
    /// Checksum of the block bitmap, 16 bits of it without 64bit.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap, likewise.
    pub inode_bitmap_csum: u32,
    /// Flags; those about uninitialised tables only count with checksums.
    pub flags: GroupFlags,
}

impl GroupDesc {
    /// Validates the bytes of the descriptor of `group`.
    ///
    /// # Errors
    /// `Corrupt`: the checksum, or a table outside of the volume.
    pub fn parse(sb: &Superblock, group: GroupNo, bytes: &[u8]) -> Result<GroupDesc> {
        check_csum(sb, group, bytes)?;
        let mut raw = RawGroupDesc::default();
        let n = bytes.len().min(DESC_SIZE_64);
        raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
        if !sb.incompat.contains(Incompat::BIT64) {
            raw.as_mut_bytes()[DESC_SIZE_32..].fill(0);
        }
        let block = |lo: zerocopy::little_endian::U32, hi: zerocopy::little_endian::U32| {
            BlockAddr(u64::from(lo.get()) | u64::from(hi.get()) << 32)
        };
        let count = |lo: zerocopy::little_endian::U16, hi: zerocopy::little_endian::U16| {
            u32::from(lo.get()) | u32::from(hi.get()) << 16
        };
        let desc = GroupDesc {
            group,
            block_bitmap: block(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi),
            inode_bitmap: block(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi),
            inode_table: block(raw.bg_inode_table_lo, raw.bg_inode_table_hi),
            free_blocks: count(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: count(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: count(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            itable_unused: count(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            block_bitmap_csum: count(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: count(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
            flags: GroupFlags::from_bits_retain(raw.bg_flags.get()),
        };
        desc.validate(sb)
    }

    fn validate(mut self, sb: &Superblock) -> Result<GroupDesc> {
        // The text is made only when it is needed: a large volume has many groups.
        let check = |holds: bool, what: &'static str| {
            if holds { Ok(()) } else { Err(Error::corrupt(what).at(self.group.place())) }
        };
        check(sb.holds(self.block_bitmap, 1), "its block bitmap lies outside of the volume")?;
        check(sb.holds(self.inode_bitmap, 1), "its inode bitmap lies outside of the volume")?;
        let table = sb.holds(self.inode_table, sb.itable_blocks());
        check(table, "its inode table lies outside of the volume")?;
        check(self.free_blocks <= sb.blocks_per_group, "more free blocks than it has")?;
        check(self.free_inodes <= sb.inodes_per_group, "more free inodes than it has")?;
        if !sb.has_group_csum() {
            self.flags = GroupFlags::empty();
            self.itable_unused = 0;
        }
        check(self.itable_unused <= sb.inodes_per_group, "more unused inodes than it has")?;
        Ok(self)
    }
}

fn check_csum(sb: &Superblock, group: GroupNo, bytes: &[u8]) -> Result<()> {
    if bytes.len() < DESC_SIZE_32 {
        return Err(Error::corrupt("its descriptor is cut short").at(group.place()));
    }
    if !sb.has_group_csum() {
        return Ok(());
    }
    let (stored, computed) = (le16(bytes, DESC_CSUM_OFFSET), desc_csum(sb, group, bytes));
    if computed == stored {
        return Ok(());
    }
    let what = format!("the checksum of its descriptor is {stored:#06x} and should be {computed:#06x}");
    Err(Error::corrupt(what).at(group.place()))
}

/// The checksum of a descriptor's bytes; 0 for volumes without one.
pub(crate) fn desc_csum(sb: &Superblock, group: GroupNo, bytes: &[u8]) -> u16 {
    let number = group.0.to_le_bytes();
    let (head, rest) = (&bytes[..DESC_CSUM_OFFSET], &bytes[DESC_CSUM_OFFSET + 2..]);
    if sb.has_csum() {
        let seed = crc32c(crc32c(sb.csum_seed, &number), head);
        let [a, b, ..] = crc32c(crc32c(seed, &[0; 2]), rest).to_le_bytes();
        u16::from_le_bytes([a, b])
    } else if sb.ro_compat.contains(RoCompat::GDT_CSUM) {
        let seed = crc16(crc16(crc16(!0, &sb.raw.s_uuid), &number), head);
        if sb.incompat.contains(Incompat::BIT64) { crc16(seed, rest) } else { seed }
    } else {
        0
    }
}
