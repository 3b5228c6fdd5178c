//! The structures as they lie in the log, with the names of `jbd2.h` and, for fast commits, `fast_commit.h`.
//! Structures of fast commits are little-endian, all others big-endian. Nothing here is checked.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of each of the journal's own blocks.
pub const JBD2_MAGIC: u32 = 0xc03b_3998;

/// `h_blocktype` of a block of tags.
pub const DESCRIPTOR_BLOCK: u32 = 1;
/// `h_blocktype` of a commit record.
pub const COMMIT_BLOCK: u32 = 2;
/// `h_blocktype` of a superblock without features.
pub const SUPERBLOCK_V1: u32 = 3;
/// `h_blocktype` of a superblock with features.
pub const SUPERBLOCK_V2: u32 = 4;
/// `h_blocktype` of a block of revoke records.
pub const REVOKE_BLOCK: u32 = 5;

/// `s_checksum_type`, `h_chksum_type`: crc32 of csum v1.
pub const CRC32_CHKSUM: u8 = 1;
/// `s_checksum_type`: crc32c, the only one of csum v2 and v3.
pub const CRC32C_CHKSUM: u8 = 4;
/// `h_chksum_size` of [`CRC32_CHKSUM`], in bytes.
pub const CRC32_CHKSUM_SIZE: u8 = 4;

/// Tag flag: the block's first four bytes were the magic, and are zeros in the log.
pub const FLAG_ESCAPE: u32 = 1;
/// Tag flag: no UUID follows the tag.
pub const FLAG_SAME_UUID: u32 = 2;
/// Tag flag: the last tag of its descriptor.
pub const FLAG_LAST_TAG: u32 = 8;

/// Bytes of a UUID behind a tag.
pub const UUID_SIZE: usize = 16;
/// Blocks of the fast-commit area when `s_num_fc_blks` is 0.
pub const DEFAULT_FC_BLOCKS: u32 = 256;
/// The shortest log that Linux takes, in blocks.
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;

/// `journal_header_t`: the beginning of each of the journal's own blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// `journal_superblock_t`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawSuperblock {
    pub s_header: RawHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; UUID_SIZE],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; UUID_SIZE]; 48],
}

/// `journal_block_tag_t` without its last field: the tag of csum v1, v2 and none, in a log of 32 bits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawTag {
    pub t_blocknr: U32,
    /// The low half of the block's checksum, with csum v2.
    pub t_checksum: U16,
    pub t_flags: U16,
}

/// `journal_block_tag_t`: the tag of csum v1, v2 and none, in a log of 64 bits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawTag64 {
    pub low: RawTag,
    pub t_blocknr_high: U32,
}

/// `journal_block_tag3_t`: the tag of csum v3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// `jbd2_journal_revoke_header_t`; block numbers of 4 or, in a log of 64 bits, 8 bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawRevoke {
    pub r_header: RawHeader,
    /// Bytes used in the block, this header included.
    pub r_count: U32,
}

/// `struct commit_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawCommit {
    pub h_header: RawHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

/// `struct jbd2_journal_block_tail`: the end of a descriptor or revoke block, with csum v2 and v3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawTail {
    pub t_checksum: U32,
}

/// `struct ext4_fc_tl`: the head of a tag.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcTl {
    pub fc_tag: le::U16,
    /// Bytes behind the head.
    pub fc_len: le::U16,
}

/// `struct ext4_fc_head`: the first tag of the area.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcHead {
    pub fc_features: le::U32,
    pub fc_tid: le::U32,
}

/// `struct ext4_fc_tail`: the last tag of a fast commit.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcTail {
    pub fc_tid: le::U32,
    pub fc_crc: le::U32,
}

/// `struct ext4_fc_del_range`: a file loses blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcDelRange {
    pub fc_ino: le::U32,
    pub fc_lblk: le::U32,
    pub fc_len: le::U32,
}

/// `struct ext4_fc_dentry_info` without its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcDentryInfo {
    pub fc_parent_ino: le::U32,
    pub fc_ino: le::U32,
}

/// `struct ext4_fc_add_range`: a file gets an extent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawFcAddRange {
    pub fc_ino: le::U32,
    /// The extent, in the volume's format.
    pub fc_ex: [u8; EXTENT_SIZE],
}

/// Bytes of the superblock that its checksum covers.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Bytes of an extent in the volume's format.
pub const EXTENT_SIZE: usize = 12;
/// Bytes of a [`RawTail`].
pub const TAIL_SIZE: usize = size_of::<RawTail>();

const _: () = {
    assert!(size_of::<RawHeader>() == 12);
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
    assert!(std::mem::offset_of!(RawSuperblock, s_nr_users) == 0x40);
    assert!(std::mem::offset_of!(RawSuperblock, s_num_fc_blks) == 0x54);
    assert!(std::mem::offset_of!(RawSuperblock, s_checksum) == 0xFC);
    assert!(size_of::<RawTag>() == 8);
    assert!(size_of::<RawTag64>() == 12);
    assert!(size_of::<RawTag3>() == 16);
    assert!(size_of::<RawRevoke>() == 16);
    assert!(size_of::<RawCommit>() == 60);
    assert!(TAIL_SIZE == 4);
    assert!(size_of::<RawFcTl>() == 4);
    assert!(size_of::<RawFcHead>() == 8);
    assert!(size_of::<RawFcTail>() == 8);
    assert!(size_of::<RawFcDelRange>() == 12);
    assert!(size_of::<RawFcDentryInfo>() == 8);
    assert!(size_of::<RawFcAddRange>() == 16);
};
