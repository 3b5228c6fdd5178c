//! The superblock.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the superblock begins in blocks 0 and 1, in bytes.
pub const SUPER_OFFSET: usize = 1024;

/// A device of a multi-device volume.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDevice {
    /// Path, NUL-terminated.
    pub path: [u8; 64],
    /// Size in segments.
    pub total_segments: U32,
}

/// `struct f2fs_super_block`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawSuperblock {
    pub magic: U32,
    pub major_ver: U16,
    pub minor_ver: U16,
    pub log_sectorsize: U32,
    pub log_sectors_per_block: U32,
    pub log_blocksize: U32,
    pub log_blocks_per_seg: U32,
    pub segs_per_sec: U32,
    pub secs_per_zone: U32,
    pub checksum_offset: U32,
    pub block_count: U64,
    pub section_count: U32,
    pub segment_count: U32,
    pub segment_count_ckpt: U32,
    pub segment_count_sit: U32,
    pub segment_count_nat: U32,
    pub segment_count_ssa: U32,
    pub segment_count_main: U32,
    pub segment0_blkaddr: U32,
    pub cp_blkaddr: U32,
    pub sit_blkaddr: U32,
    pub nat_blkaddr: U32,
    pub ssa_blkaddr: U32,
    pub main_blkaddr: U32,
    pub root_ino: U32,
    pub node_ino: U32,
    pub meta_ino: U32,
    pub uuid: [u8; 16],
    pub volume_name: [U16; 512],
    pub extension_count: U32,
    pub extension_list: [[u8; 8]; 64],
    pub cp_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; 8],
    pub qf_ino: [U32; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_stop_reason: [u8; 32],
    pub s_errors: [u8; 16],
    pub reserved: [u8; 258],
    pub crc: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == 3072);
/// Offset of `crc` in the superblock.
pub const SB_CRC_OFFSET: usize = 3068;

bitflags::bitflags! {
    /// The superblock's `feature` field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Some files or directories may be encrypted.
        const ENCRYPT = 0x0001;
        /// Zoned block device.
        const BLKZONED = 0x0002;
        /// Written without checks by the makers of Android's userdata.
        const ATOMIC_WRITE = 0x0004;
        /// Inodes have extra attributes.
        const EXTRA_ATTR = 0x0008;
        /// Project quota ids.
        const PRJQUOTA = 0x0010;
        /// Inodes carry a checksum.
        const INODE_CHKSUM = 0x0020;
        /// The inline xattr area's size is kept in the inode.
        const FLEXIBLE_INLINE_XATTR = 0x0040;
        /// Quota files in hidden inodes.
        const QUOTA_INO = 0x0080;
        /// Inodes carry their birth time.
        const INODE_CRTIME = 0x0100;
        /// There is a lost+found directory for fsck.
        const LOST_FOUND = 0x0200;
        /// fs-verity.
        const VERITY = 0x0400;
        /// The superblock carries a checksum.
        const SB_CHKSUM = 0x0800;
        /// Case-insensitive directories.
        const CASEFOLD = 0x1000;
        /// Compressed files.
        const COMPRESSION = 0x2000;
        /// Whole volume read-only, packed by mkfs.
        const RO = 0x4000;
    }
}
