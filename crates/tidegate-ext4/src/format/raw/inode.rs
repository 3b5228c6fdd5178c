//! Inodes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an inode that every volume has.
pub const INODE_BASE: usize = 128;
/// Bytes of `i_block`: the root of the map, a short symbolic link, or inline data.
pub const I_BLOCK_SIZE: usize = 60;
/// Offset of `i_checksum_lo`.
pub const CSUM_LO_OFFSET: usize = 0x7C;
/// Offset of `i_checksum_hi`.
pub const CSUM_HI_OFFSET: usize = 0x82;

/// `struct ext4_inode`, up to its last field with a name.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version_lo: U32,
    pub i_block: [u8; I_BLOCK_SIZE],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
    /// From here on, `i_extra_isize` says which fields exist.
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == 160);
const _: () = assert!(std::mem::offset_of!(RawInode, i_extra_isize) == INODE_BASE);
const _: () = assert!(std::mem::offset_of!(RawInode, i_checksum_lo) == CSUM_LO_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawInode, i_checksum_hi) == CSUM_HI_OFFSET);

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hash tree.
        const INDEX = 0x1000;
        /// An inode of an AFS server.
        const IMAGIC = 0x2000;
        /// Its data goes through the journal (`EXT4_JOURNAL_DATA_FL`, `chattr +j`).
        const JOURNAL_DATA = 0x4000;
        /// A directory whose directories hold different things (`EXT4_TOPDIR_FL`, `chattr +T`).
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts blocks, not sectors.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Has fs-verity data behind its end.
        const VERITY = 0x10_0000;
        /// Holds the value of an attribute.
        const EA_INODE = 0x20_0000;
        /// Content lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// A directory that folds case.
        const CASEFOLD = 0x4000_0000;
    }
}

/// The flags that chattr(1) sets (`EXT4_FL_USER_MODIFIABLE`, without those of features that are only read).
pub const FLAGS_USER_MODIFIABLE: u32 = 0x0003_C0FF;

/// The flags that lsattr(1) shows (`EXT4_FL_USER_VISIBLE`).
pub const FLAGS_USER_VISIBLE: u32 = 0x725B_DFFF;
