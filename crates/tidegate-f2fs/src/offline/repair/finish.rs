//! The new pack: head, payload, summaries, and the tail that makes it count.

use super::Repair;
use super::pack::Summaries;
use crate::durable::checkpoint::nat_bits_key;
use crate::format::gate::Checkpoint;
use crate::format::raw::*;
use tidegate_block::BioFlags;
use tidegate_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

/// The flags that the new checkpoint keeps.
const KEPT: CpFlags = CpFlags::LARGE_NAT_BITMAP.union(CpFlags::QUOTA_NEED_FSCK).union(CpFlags::NAT_BITS);
/// Flags that report an error.
pub(super) const HURT: CpFlags = CpFlags::ERROR.union(CpFlags::FSCK);

impl Repair<'_, '_> {
    /// Writes the pack that is not in use.
    pub(super) fn write_pack(&mut self, clear_flags: bool) -> Result<()> {
        let mut cp = self.next_checkpoint(clear_flags);
        let (head, payload) = build_head(&mut cp, self.sb.cp_payload);
        if self.options.dry_run {
            return Ok(());
        }
        let mut blocks = vec![head];
        blocks.extend(payload);
        for kind in 0..NR_CURSEG_TYPE {
            let entry_type = if kind < NR_CURSEG_DATA_TYPE { SUM_TYPE_DATA } else { SUM_TYPE_NODE };
            let sums = self.summaries.get(&self.logs[kind].segno);
            blocks.push(summary_block(sums.map(|s| &s.0), entry_type));
        }
        if cp.flags.contains(CpFlags::NAT_BITS) {
            let bits = self.nat_bits(&cp);
            let first = cp.start + BLOCKS_PER_SEG - bits.len() as u32;
            for (n, b) in bits.iter().enumerate() {
                self.disk.write(first + n as u32, b, BioFlags::empty())?;
            }
        }
        for (n, b) in blocks.iter().enumerate() {
            self.disk.write(cp.start + n as u32, b, BioFlags::empty())?;
        }
        let tail = cp.start + blocks.len() as u32;
        self.disk.write(tail, &blocks[0], BioFlags::PREFLUSH | BioFlags::FUA)
    }

    fn next_checkpoint(&self, clear_flags: bool) -> Checkpoint {
        let mut cp = self.cp.clone();
        let mut flags = cp.flags & KEPT | CpFlags::UMOUNT | CpFlags::CRC_RECOVERY;
        if !clear_flags {
            flags |= cp.flags & HURT;
        }
        let bits = (8 + self.sb.nat_blocks / 8 * 2).div_ceil(BLOCK_SIZE as u32);
        let total = 1 + self.sb.cp_payload + NR_CURSEG_TYPE as u32 + 1;
        flags.set(CpFlags::NAT_BITS, flags.contains(CpFlags::NAT_BITS) && total + bits <= BLOCKS_PER_SEG);
        cp.flags = flags;
        cp.pack = 1 - cp.pack;
        cp.start = self.sb.cp_blkaddr + cp.pack * BLOCKS_PER_SEG;
        let used = &self.usage;
        let free = (0..self.sb.main_segments).filter(|s| self.is_empty(*s)).count();
        let blocks = used.blocks + used.reserved;
        let version = cp.newest_version.wrapping_add(1);
        let r = &mut *cp.raw;
        r.checkpoint_ver = version.into();
        r.ckpt_flags = flags.bits().into();
        r.valid_block_count = blocks.into();
        r.valid_node_count = (used.nodes as u32).into();
        r.valid_inode_count = (used.inodes as u32).into();
        r.free_segment_count = (free as u32).into();
        r.cp_pack_total_block_count = total.into();
        r.cp_pack_start_sum = (1 + self.sb.cp_payload).into();
        r.next_free_nid = self.nat.next_free(self.sb.root_ino + 1).unwrap_or(self.sb.max_nid - 1).into();
        if r.user_block_count.get() < blocks {
            let usable = (0..self.sb.main_segments).filter(|s| self.usable(*s) > 0).count() as u32;
            let room = usable.saturating_sub(r.overprov_segment_count.get());
            r.user_block_count = (room as u64 * BLOCKS_PER_SEG as u64).max(blocks).into();
        }
        for (i, log) in self.logs.iter().enumerate() {
            let (segno, next) = (log.segno.into(), (log.next as u16).into());
            if i < NR_CURSEG_DATA_TYPE {
                (r.cur_data_segno[i], r.cur_data_blkoff[i]) = (segno, next);
            } else {
                (r.cur_node_segno[i - 3], r.cur_node_blkoff[i - 3]) = (segno, next);
            }
            r.alloc_type[i] = u8::from(!log.appends);
        }
        cp
    }

    /// nat_bits: the key, then a bit for each full NAT block, then a bit for each empty one.
    fn nat_bits(&self, cp: &Checkpoint) -> Vec<[u8; BLOCK_SIZE]> {
        let len = self.sb.nat_blocks as usize / 8;
        let mut bytes = nat_bits_key(cp).to_le_bytes().to_vec();
        bytes.resize(8 + 2 * len, 0);
        for n in 0..self.sb.nat_blocks {
            let used = self.nat.used_in(n);
            set_bit_le(&mut bytes[8..8 + len], n as usize, used == NAT_ENTRY_PER_BLOCK);
            set_bit_le(&mut bytes[8 + len..], n as usize, used == 0);
        }
        bytes.chunks(BLOCK_SIZE).map(padded).collect()
    }
}

fn padded(bytes: &[u8]) -> [u8; BLOCK_SIZE] {
    let mut out = [0; BLOCK_SIZE];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

/// A summary block with an empty journal.
fn summary_block(sums: Option<&Summaries>, entry_type: u8) -> [u8; BLOCK_SIZE] {
    let mut out = RawSummaryBlock::new_zeroed();
    out.entry_type = entry_type;
    if let Some(sums) = sums {
        out.entries = **sums;
    }
    zerocopy::transmute!(out)
}

/// The head block with its bitmaps and checksum, and the payload blocks.
fn build_head(cp: &mut Checkpoint, payload: u32) -> ([u8; BLOCK_SIZE], Vec<[u8; BLOCK_SIZE]>) {
    let mut head = padded(cp.raw.as_bytes());
    let (sit, nat) = (&cp.sit_bitmap, &cp.nat_bitmap);
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    let mut rest = Vec::new();
    if cp.flags.contains(CpFlags::LARGE_NAT_BITMAP) {
        put(CP_BITMAP_OFFSET + 4, nat);
        put(CP_BITMAP_OFFSET + 4 + nat.len(), sit);
    } else if payload == 0 {
        put(CP_BITMAP_OFFSET, sit);
        put(CP_BITMAP_OFFSET + sit.len(), nat);
    } else {
        put(CP_BITMAP_OFFSET, nat);
        for n in 0..payload as usize {
            let from = (n * BLOCK_SIZE).min(sit.len());
            rest.push(padded(&sit[from..sit.len().min(from + BLOCK_SIZE)]));
        }
    }
    let offset = cp.raw.checksum_offset.get() as usize;
    cp.crc = checkpoint_crc(&head, offset);
    put32(&mut head, offset, cp.crc);
    (head, rest)
}
