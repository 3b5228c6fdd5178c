//! A checkpoint, validated.

use super::{Superblock, size};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use std::borrow::Cow;
use tidegate_vfs::Error;

/// A checkpoint whose pack is whole.
#[derive(Clone)]
pub struct Checkpoint {
    /// The head's fixed part.
    pub raw: Box<RawCheckpoint>,
    /// Flags.
    pub flags: CpFlags,
    /// The pack that it came from: 0 or 1.
    pub pack: u32,
    /// First block of the pack.
    pub start: u32,
    /// The head's checksum.
    pub crc: u32,
    /// Version bitmap of the SIT.
    pub sit_bitmap: Vec<u8>,
    /// Version bitmap of the NAT.
    pub nat_bitmap: Vec<u8>,
    /// Version of the newest pack that was written to its end; the next pack has a later version.
    pub newest_version: u64,
    /// The fault of the other pack, if that pack is newer and was written to its end: the volume is damaged
    /// then.
    pub passed_over: Option<Error>,
}

/// The stamp in footers of nodes that were written after a checkpoint, and the bits of it that count.
#[derive(Clone, Copy, Debug)]
pub struct NodeStamp {
    version: u64,
    mask: u64,
}

impl NodeStamp {
    /// Whether a footer with this `cp_ver` was written after the checkpoint.
    pub fn is_on(self, cp_ver: u64) -> bool {
        (cp_ver ^ self.version) & self.mask == 0
    }
}

impl Checkpoint {
    /// The version in the footers of nodes that are written after this checkpoint.
    pub(crate) fn node_version(&self) -> u64 {
        let v = self.version();
        if self.flags.contains(CpFlags::CRC_RECOVERY) { v | u64::from(self.crc) << 32 } else { v }
    }

    /// Checks the rules between the checkpoint's fields, and between them and the superblock.
    pub(super) fn validate(&self, sb: &Superblock) -> Result<(), Cow<'static, str>> {
        let r = &self.raw;
        let fail = |what: &'static str| Err(what.into());
        if self.sit_bitmap.len() * 8 != size(sb.sit_blocks)
            || self.nat_bitmap.len() * 8 != size(sb.nat_blocks)
        {
            return fail("the version bitmaps are not of the size of SIT and NAT");
        }
        for i in 0..NR_CURSEG_DATA_TYPE {
            let logs =
                [(r.cur_node_segno[i], r.cur_node_blkoff[i]), (r.cur_data_segno[i], r.cur_data_blkoff[i])];
            if logs.iter().any(|(s, o)| s.get() >= sb.main_segments || u32::from(o.get()) >= BLOCKS_PER_SEG) {
                return fail("a current segment lies outside the main area");
            }
        }
        let mut segs: Vec<u32> =
            (0..3).flat_map(|i| [r.cur_node_segno[i].get(), r.cur_data_segno[i].get()]).collect();
        segs.sort_unstable();
        if segs.windows(2).any(|w| w[0] == w[1]) && !sb.features.contains(Features::RO) {
            return fail("two logs share a segment");
        }
        let blocks = u64::from(sb.main_segments) * u64::from(BLOCKS_PER_SEG);
        let user = r.user_block_count.get();
        if user == 0 || user > blocks || r.valid_block_count.get() > user {
            return fail("user_block_count or valid_block_count");
        }
        let r_areas = &sb.raw;
        let (reserved, overprovision) = (r.rsvd_segment_count.get(), r.overprov_segment_count.get());
        let none = reserved == 0 || overprovision == 0;
        // Limits of Linux and fsck.f2fs: what is not for files leaves something.
        let areas = [
            r_areas.segment_count_ckpt,
            r_areas.segment_count_sit,
            r_areas.segment_count_nat,
            r_areas.segment_count_ssa,
        ];
        let other: u64 = areas.iter().map(|n| u64::from(n.get())).sum();
        let all = u64::from(r_areas.segment_count.get());
        if other + u64::from(reserved) >= all
            || reserved > sb.main_segments
            || none && !sb.features.contains(Features::RO)
        {
            return fail("rsvd_segment_count or overprov_segment_count");
        }
        if u64::from(r.valid_node_count.get()) > r.valid_block_count.get()
            || r.valid_inode_count.get() > r.valid_node_count.get()
        {
            return fail("valid_node_count or valid_inode_count");
        }
        if r.free_segment_count.get() > sb.main_segments || overprovision > sb.main_segments {
            return fail("free_segment_count or overprov_segment_count");
        }
        if r.next_free_nid.get() >= sb.max_nid {
            return fail("next_free_nid");
        }
        let (start, total) = (r.cp_pack_start_sum.get(), r.cp_pack_total_block_count.get());
        if start < 1 + sb.cp_payload || start >= total {
            return fail("cp_pack_start_sum");
        }
        let data_sums = if self.flags.contains(CpFlags::COMPACT_SUM) { 1 } else { 3 };
        let node_sums = if self.has_node_summaries() { 3 } else { 0 };
        if start + data_sums + node_sums + 1 > total {
            return fail("the pack is too small for its summaries");
        }
        Ok(())
    }

    /// Whether the pack holds node summaries.
    pub fn has_node_summaries(&self) -> bool {
        self.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
    }

    /// The start of the chain of fsynced nodes, if there is a chain: the next block of the warm node log.
    pub fn chain_start(&self, sb: &Superblock) -> BlockAddr {
        let (segno, off) = (self.raw.cur_node_segno[1].get(), u32::from(self.raw.cur_node_blkoff[1].get()));
        BlockAddr(sb.main_blkaddr + segno * BLOCKS_PER_SEG + off)
    }

    /// The stamp of nodes that were written after this checkpoint.
    pub fn node_stamp(&self) -> NodeStamp {
        // fsck.f2fs writes a checkpoint whose CRC no node has.
        let any_crc = self.flags.contains(CpFlags::NOCRC_RECOVERY);
        let mask = if any_crc { u64::from(u32::MAX) } else { u64::MAX };
        NodeStamp { version: self.node_version(), mask }
    }

    /// Version.
    pub fn version(&self) -> u64 {
        self.raw.checkpoint_ver.get()
    }
}
