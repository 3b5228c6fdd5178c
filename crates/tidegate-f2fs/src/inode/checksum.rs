//! The checksum of an inode block.

use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::node::ino_of;

/// The checksum of an inode block: over UUID, number, generation and the block with its field as zero.
fn checksum(sb: &Superblock, page: &[u8]) -> u32 {
    let seed = f2fs_chksum(u32::MAX, &sb.raw.uuid);
    let seed = f2fs_chksum(seed, &ino_of(page).to_le_bytes());
    let generation = le32(page, std::mem::offset_of!(RawInode, i_generation));
    let seed = f2fs_chksum(seed, &generation.to_le_bytes());
    let c = f2fs_chksum(seed, &page[..I_CHKSUM_OFFSET]);
    let c = f2fs_chksum(c, &[0; 4]);
    f2fs_chksum(c, &page[I_CHKSUM_OFFSET + 4..BLOCK_SIZE])
}

fn has_checksum(sb: &Superblock, page: &[u8]) -> bool {
    sb.features.contains(Features::INODE_CHKSUM)
        && page[3] & inline::EXTRA_ATTR != 0
        && le16(page, I_ADDR_OFFSET) >= 12
}

/// Whether an inode block as it was read has no checksum, or the right one.
pub(crate) fn checksum_holds(sb: &Superblock, page: &[u8]) -> bool {
    !has_checksum(sb, page) || checksum(sb, page) == le32(page, I_CHKSUM_OFFSET)
}

/// Sets an inode block's checksum if it has one.
pub(crate) fn set_checksum(sb: &Superblock, page: &mut [u8]) {
    if has_checksum(sb, page) {
        let c = checksum(sb, page);
        put32(page, I_CHKSUM_OFFSET, c);
    }
}
