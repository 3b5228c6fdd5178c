//! The first block of the journal, the blocks of the orphan file, and the map of the blocks reserved for
//! descriptors.

use super::MkfsError;
use super::groups::desc_copies;
use super::plan::Plan;
use super::writer::Writer;
use crate::format::crc::crc32c;
use crate::format::gate::Superblock;
use crate::format::raw::{ORPHAN_MAGIC, RawOrphanTail};
use crate::format::units::BlockAddr;
use tidegate_jbd2::format::raw as jbd2;
use zerocopy::{FromZeros, IntoBytes};

/// The journal's superblock: of version 2 without features, empty.
pub(in crate::offline) fn superblock(sb: &Superblock, blocks: u64) -> Vec<u8> {
    let mut raw = jbd2::RawSuperblock::new_zeroed();
    raw.s_header.h_magic = jbd2::JBD2_MAGIC.into();
    raw.s_header.h_blocktype = jbd2::SUPERBLOCK_V2.into();
    raw.s_blocksize = sb.block_size.into();
    raw.s_maxlen = (blocks as u32).into();
    (raw.s_first, raw.s_sequence, raw.s_nr_users) = (1.into(), 1.into(), 1.into());
    raw.s_uuid = sb.raw.s_uuid;
    let mut block = vec![0; sb.block_size as usize];
    block[..size_of::<jbd2::RawSuperblock>()].copy_from_slice(raw.as_bytes());
    block
}

/// An empty block of the orphan file, at `at` of the volume.
pub(super) fn orphan_block(sb: &Superblock, seed: u32, at: u64) -> Vec<u8> {
    let mut block = vec![0; sb.block_size as usize];
    let end = block.len() - size_of::<RawOrphanTail>();
    let csum = if sb.has_csum() { crc32c(crc32c(seed, &at.to_le_bytes()), &block[..end]) } else { 0 };
    let tail = RawOrphanTail { ob_magic: ORPHAN_MAGIC.into(), ob_checksum: csum.into() };
    block[end..].copy_from_slice(tail.as_bytes());
    block
}

/// Writes the map of the blocks reserved for growth of the descriptors: each block behind those in use lists
/// its copies in other groups. The map lists those blocks, each at its number among the descriptors' blocks.
pub(super) fn write_resize_map(w: &Writer<'_>, plan: &Plan<'_>) -> Result<(), MkfsError> {
    let sb = plan.space.sb;
    let bs = sb.block_size as usize;
    let mut map = vec![0; bs];
    for n in 0..u64::from(sb.raw.s_reserved_gdt_blocks.get()) {
        let number = sb.desc_blocks() + n;
        let copies = desc_copies(sb, number);
        let mut list = vec![0; bs];
        for (to, copy) in list.chunks_exact_mut(4).zip(&copies[1..]) {
            to.copy_from_slice(&(*copy as u32).to_le_bytes());
        }
        w.write(BlockAddr(copies[0]), &list)?;
        let at = number as usize % (bs / 4) * 4;
        map[at..at + 4].copy_from_slice(&(copies[0] as u32).to_le_bytes());
    }
    w.write(BlockAddr(plan.resize_map), &map)
}
