//! Group descriptors.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a descriptor without the 64bit feature.
pub const DESC_SIZE_32: usize = 32;
/// Fewest bytes of a descriptor with the 64bit feature.
pub const DESC_SIZE_64: usize = 64;
/// Most bytes of a descriptor.
pub const DESC_SIZE_MAX: usize = 1024;
/// Offset of `bg_checksum`.
pub const DESC_CSUM_OFFSET: usize = 0x1E;

/// `struct ext4_group_desc`: both halves. The second half is zero without the 64bit feature.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const _: () = assert!(size_of::<RawGroupDesc>() == DESC_SIZE_64);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, bg_checksum) == DESC_CSUM_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, bg_block_bitmap_hi) == DESC_SIZE_32);

bitflags::bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u16 {
        /// The inode table and its bitmap were never written.
        const INODE_UNINIT = 1;
        /// The block bitmap was never written.
        const BLOCK_UNINIT = 2;
        /// The inode table was zeroed.
        const INODE_ZEROED = 4;
    }
}
