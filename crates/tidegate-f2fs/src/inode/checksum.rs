//! The checksum of an inode block.

use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::node::{ino_of, word};

/// The checksum of an inode block: over UUID, number, generation and the block with its field as zero.
fn checksum(sb: &Superblock, page: &[u8]) -> u32 {
    let seed = f2fs_chksum(u32::MAX, &sb.raw.uuid);
    let seed = f2fs_chksum(seed, &ino_of(page).to_le_bytes());
    let generation = word(page, std::mem::offset_of!(RawInode, i_generation) / 4);
    let seed = f2fs_chksum(seed, &generation.to_le_bytes());
    let c = f2fs_chksum(seed, &page[..I_CHKSUM_OFFSET]);
    let c = f2fs_chksum(c, &[0; 4]);
    f2fs_chksum(c, &page[I_CHKSUM_OFFSET + 4..BLOCK_SIZE])
}

fn has_checksum(sb: &Superblock, page: &[u8]) -> bool {
    sb.features.contains(Features::INODE_CHKSUM)
        && page[3] & inline::EXTRA_ATTR != 0
        && u16::from_le_bytes([page[I_ADDR_OFFSET], page[I_ADDR_OFFSET + 1]]) as usize >= 12
}

/// Whether an inode block as it was read has no checksum, or the right one.
pub(crate) fn checksum_holds(sb: &Superblock, page: &[u8]) -> bool {
    !has_checksum(sb, page) || checksum(sb, page) == word(page, I_CHKSUM_OFFSET / 4)
}

/// Sets an inode block's checksum if it has one.
pub(crate) fn set_checksum(sb: &Superblock, page: &mut [u8]) {
    if has_checksum(sb, page) {
        let c = checksum(sb, page);
        page[I_CHKSUM_OFFSET..I_CHKSUM_OFFSET + 4].copy_from_slice(&c.to_le_bytes());
    }
}
