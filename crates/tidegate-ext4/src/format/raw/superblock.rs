//! The superblock.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The byte offset of the superblock on the volume.
pub const SUPER_OFFSET: usize = 1024;
/// Its length in bytes.
pub const SUPER_SIZE: usize = 1024;
/// `s_magic`.
pub const EXT4_MAGIC: u16 = 0xEF53;
/// The first inode that is not reserved, if the superblock has no field for it.
pub const GOOD_OLD_FIRST_INO: u32 = 11;
/// The size of inodes, if the superblock has no field for it, in bytes.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// The root directory.
pub const ROOT_INO: u32 = 2;
/// The inode of the bad blocks.
pub const BAD_INO: u32 = 1;
/// The inode of the blocks reserved for more group descriptors.
pub const RESIZE_INO: u32 = 7;
/// `s_checksum_type` of crc32c.
pub const CHECKSUM_CRC32C: u8 = 1;
/// Offset of `s_checksum` in the superblock.
pub const SB_CSUM_OFFSET: usize = 0x3FC;

/// `struct ext4_super_block`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_def_resuid_hi: U16,
    pub s_def_resgid_hi: U16,
    pub s_reserved: [U32; 93],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPER_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_feature_compat) == 0x5C);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_blocks_count_hi) == 0x150);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_orphan_file_inum) == 0x280);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_checksum) == SB_CSUM_OFFSET);

bitflags::bitflags! {
    /// `s_feature_compat`: a volume with an unknown feature of these may be changed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directories are preallocated.
        const DIR_PREALLOC = 0x0001;
        /// AFS server inodes.
        const IMAGIC_INODES = 0x0002;
        /// There is a journal.
        const HAS_JOURNAL = 0x0004;
        /// Extended attributes.
        const EXT_ATTR = 0x0008;
        /// Room for the group descriptors to grow.
        const RESIZE_INODE = 0x0010;
        /// Hashed directories.
        const DIR_INDEX = 0x0020;
        /// Never used by Linux.
        const LAZY_BG = 0x0040;
        /// Never used by Linux.
        const EXCLUDE_INODE = 0x0080;
        /// Never used by Linux.
        const EXCLUDE_BITMAP = 0x0100;
        /// Two backups of the superblock at most.
        const SPARSE_SUPER2 = 0x0200;
        /// The journal has an area for fast commits.
        const FAST_COMMIT = 0x0400;
        /// Inode numbers and the UUID never change.
        const STABLE_INODES = 0x0800;
        /// A file lists the orphans.
        const ORPHAN_FILE = 0x1000;
    }

    /// `s_feature_incompat`: a volume with an unknown feature of these cannot be read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Never used by Linux.
        const COMPRESSION = 0x0001;
        /// Directory entries have types.
        const FILETYPE = 0x0002;
        /// The journal holds what the volume does not.
        const RECOVER = 0x0004;
        /// This is a journal, not a volume.
        const JOURNAL_DEV = 0x0008;
        /// Group descriptors lie with their groups.
        const META_BG = 0x0010;
        /// Files are mapped by extents.
        const EXTENTS = 0x0040;
        /// Block numbers of more than 32 bits.
        const BIT64 = 0x0080;
        /// Protection against being mounted twice.
        const MMP = 0x0100;
        /// Groups' bitmaps and inode tables may lie anywhere.
        const FLEX_BG = 0x0200;
        /// Values of attributes may lie in inodes.
        const EA_INODE = 0x0400;
        /// Data in directory entries; never used by Linux.
        const DIRDATA = 0x1000;
        /// The seed of checksums is in the superblock.
        const CSUM_SEED = 0x2000;
        /// Directories above 2 GiB, or three levels of hash tree.
        const LARGEDIR = 0x4000;
        /// Small files and directories lie in their inodes.
        const INLINE_DATA = 0x8000;
        /// Some directories may be encrypted.
        const ENCRYPT = 0x1_0000;
        /// Some directories may fold case.
        const CASEFOLD = 0x2_0000;
    }

    /// `s_feature_ro_compat`: a volume with an unknown feature of these can only be read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        /// Only some groups have backups of the superblock.
        const SPARSE_SUPER = 0x0001;
        /// A file is larger than 2 GiB.
        const LARGE_FILE = 0x0002;
        /// Never used by Linux.
        const BTREE_DIR = 0x0004;
        /// `i_blocks` has 48 bits, and may count blocks.
        const HUGE_FILE = 0x0008;
        /// Group descriptors have checksums (crc16), and tables may be uninitialised.
        const GDT_CSUM = 0x0010;
        /// A directory of more than 64,999 subdirectories has a link count of 1.
        const DIR_NLINK = 0x0020;
        /// Inodes have fields behind the first 128 bytes.
        const EXTRA_ISIZE = 0x0040;
        /// Never used by Linux.
        const HAS_SNAPSHOT = 0x0080;
        /// Quota files are hidden inodes.
        const QUOTA = 0x0100;
        /// Space is given out in clusters of blocks.
        const BIGALLOC = 0x0200;
        /// All metadata has checksums (crc32c).
        const METADATA_CSUM = 0x0400;
        /// Never used by Linux.
        const REPLICA = 0x0800;
        /// The volume may not be changed.
        const READONLY = 0x1000;
        /// Project quota ids.
        const PROJECT = 0x2000;
        /// Files share blocks.
        const SHARED_BLOCKS = 0x4000;
        /// fs-verity.
        const VERITY = 0x8000;
        /// The orphan file may not be empty.
        const ORPHAN_PRESENT = 0x1_0000;
    }

    /// `s_state`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being removed.
        const ORPHAN = 4;
        /// Fast commits are being replayed.
        const FC_REPLAY = 32;
    }

    /// `s_default_mount_opts` without the two bits of the data mode ([`DEFM_JMODE`]). The names in small
    /// letters are those of tune2fs(8).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DefaultMount: u32 {
        /// More messages.
        const DEBUG = 1;
        /// New inodes have the group of their directory.
        const BSDGROUPS = 2;
        /// Attributes of users.
        const USER_XATTR = 4;
        /// Lists of rights.
        const ACL = 8;
        /// Owners in 16 bits.
        const UID16 = 0x10;
        /// No flushes.
        const NOBARRIER = 0x100;
        /// Blocks are checked against those of the volume's own tables.
        const BLOCK_VALIDITY = 0x200;
        /// Freed blocks are discarded.
        const DISCARD = 0x400;
        /// Blocks are allocated at once.
        const NODELALLOC = 0x800;
    }
}

/// The two bits of `s_default_mount_opts` that give the data mode, as a number.
pub const DEFM_JMODE: u32 = 0x60;
/// All data through the journal.
pub const DEFM_JMODE_DATA: u32 = 0x20;
/// Data before its commit.
pub const DEFM_JMODE_ORDERED: u32 = 0x40;
/// Data at any time.
pub const DEFM_JMODE_WBACK: u32 = 0x60;

/// `s_flags`: names are hashed as signed bytes.
pub const FLAGS_SIGNED_HASH: u32 = 1;
/// `s_flags`: names are hashed as unsigned bytes.
pub const FLAGS_UNSIGNED_HASH: u32 = 2;
