//! The checkpoint pack's head and its orphan blocks.

use super::{BLOCK_SIZE, F2FS_MAGIC, f2fs_chksum};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct f2fs_checkpoint` up to its bitmaps.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawCheckpoint {
    pub checkpoint_ver: U64,
    pub user_block_count: U64,
    pub valid_block_count: U64,
    pub rsvd_segment_count: U32,
    pub overprov_segment_count: U32,
    pub free_segment_count: U32,
    pub cur_node_segno: [U32; 8],
    pub cur_node_blkoff: [U16; 8],
    pub cur_data_segno: [U32; 8],
    pub cur_data_blkoff: [U16; 8],
    pub ckpt_flags: U32,
    pub cp_pack_total_block_count: U32,
    pub cp_pack_start_sum: U32,
    pub valid_node_count: U32,
    pub valid_inode_count: U32,
    pub next_free_nid: U32,
    pub sit_ver_bitmap_bytesize: U32,
    pub nat_ver_bitmap_bytesize: U32,
    pub checksum_offset: U32,
    pub elapsed_time: U64,
    pub alloc_type: [u8; 16],
}

/// Offset of the version bitmaps in the checkpoint block.
pub const CP_BITMAP_OFFSET: usize = 192;
/// Usual place of the checksum: the block's last four bytes.
pub const CP_CHKSUM_OFFSET: usize = 4092;
/// Lowest place of the checksum (with `LARGE_NAT_BITMAP`).
pub const CP_MIN_CHKSUM_OFFSET: usize = 192;
const _: () = assert!(size_of::<RawCheckpoint>() == CP_BITMAP_OFFSET);

bitflags::bitflags! {
    /// The checkpoint's `ckpt_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CpFlags: u32 {
        /// Cleanly unmounted: node summaries are in the pack.
        const UMOUNT = 0x0001;
        /// Orphan blocks follow the head.
        const ORPHAN_PRESENT = 0x0002;
        /// Data summaries are packed.
        const COMPACT_SUM = 0x0004;
        /// An error was found.
        const ERROR = 0x0008;
        /// fsck is needed.
        const FSCK = 0x0010;
        /// Node summaries are in the pack though the volume was not unmounted.
        const FASTBOOT = 0x0020;
        /// Roll-forward matches nodes by version and CRC.
        const CRC_RECOVERY = 0x0040;
        /// nat_bits lie at the end of the pack's segment.
        const NAT_BITS = 0x0080;
        /// Everything free was discarded.
        const TRIMMED = 0x0100;
        /// Roll-forward matches nodes by version alone.
        const NOCRC_RECOVERY = 0x0200;
        /// Checksum first, large NAT bitmap behind it.
        const LARGE_NAT_BITMAP = 0x0400;
        /// Quota files need a check.
        const QUOTA_NEED_FSCK = 0x0800;
        /// Checkpointing was switched off.
        const DISABLED = 0x1000;
        /// Switched off without cleaning first.
        const DISABLED_QUICK = 0x2000;
        /// A resize was under way.
        const RESIZEFS = 0x4000;
    }
}

/// Inode numbers in an orphan block.
pub const ORPHANS_PER_BLOCK: usize = 1020;

/// `struct f2fs_orphan_block`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawOrphanBlock {
    pub ino: [U32; ORPHANS_PER_BLOCK],
    pub reserved: U32,
    pub blk_addr: U16,
    pub blk_count: U16,
    pub entry_count: U32,
    pub check_sum: U32,
}
const _: () = assert!(size_of::<RawOrphanBlock>() == BLOCK_SIZE);

/// The checksum of a checkpoint block whose checksum field lies at `offset`: the field's own four bytes are
/// left out, and the bytes behind them are included when the field is not at the end.
pub fn checkpoint_crc(block: &[u8], offset: usize) -> u32 {
    let crc = f2fs_chksum(F2FS_MAGIC, &block[..offset]);
    if offset < CP_CHKSUM_OFFSET { f2fs_chksum(crc, &block[offset + 4..BLOCK_SIZE]) } else { crc }
}
