//! The checksum of an inode block.

use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::node::ino_of;
use zerocopy::IntoBytes;

/// The checksum of an inode block: over UUID, number, generation and the block with its field as zero.
fn checksum(sb: &Superblock, page: &[u8]) -> u32 {
    let seed = f2fs_chksum(u32::MAX, &sb.raw.uuid);
    let seed = f2fs_chksum(seed, &ino_of(page).to_le_bytes());
    let seed = f2fs_chksum(seed, RawInode::of(page).i_generation.as_bytes());
    let c = f2fs_chksum(seed, &page[..I_CHKSUM_OFFSET]);
    let c = f2fs_chksum(c, &[0; 4]);
    f2fs_chksum(c, &page[I_CHKSUM_OFFSET + 4..BLOCK_SIZE])
}

fn has_checksum(sb: &Superblock, page: &[u8]) -> bool {
    sb.features.contains(Features::INODE_CHKSUM)
        && RawInode::of(page).i_inline & inline::EXTRA_ATTR != 0
        && usize::from(RawExtraAttr::of(page).i_extra_isize.get()) >= I_CHKSUM_OFFSET + 4 - I_ADDR_OFFSET
}

/// Whether an inode block, as it was read, has no checksum or the right one.
pub(crate) fn checksum_holds(sb: &Superblock, page: &[u8]) -> bool {
    !has_checksum(sb, page) || checksum(sb, page) == RawExtraAttr::of(page).i_inode_checksum.get()
}

/// Sets an inode block's checksum if it has one.
pub(crate) fn set_checksum(sb: &Superblock, page: &mut [u8]) {
    if has_checksum(sb, page) {
        let sum = checksum(sb, page);
        if let Some(extra) = RawExtraAttr::of_mut(page) {
            extra.i_inode_checksum = sum.into();
        }
    }
}
