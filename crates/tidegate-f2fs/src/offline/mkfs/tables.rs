//! The first NAT block, and nat_bits, which save a mount from reading the other NAT blocks.

use super::Layout;
use super::tree::{META_INO, NODE_INO, NewDir};
use crate::format::raw::{BLOCK_SIZE, BLOCKS_PER_SEG, RawNatEntry, set_bit_le};
use crate::format::units::{BlockAddr, Nid};
use tidegate_block::PageBuf;
use zerocopy::IntoBytes;

/// Address of a node that exists only in memory.
const NO_BLOCK: BlockAddr = BlockAddr(1);
/// Bytes before the bits: checkpoint version and CRC.
const NAT_BITS_HEADER: usize = 8;

/// The first block of the NAT. All entries go to the table and none to the journal: a journal entry for a
/// node in the table makes fsck.f2fs 1.15 doubt nat_bits.
pub(super) fn nat_block(dirs: &[NewDir]) -> PageBuf {
    let mut block = PageBuf::zeroed(1);
    let mut set = |nid: Nid, addr: BlockAddr| {
        let entry = RawNatEntry { version: 0, ino: nid.0.into(), block_addr: addr.0.into() };
        let at = nid.0 as usize * size_of::<RawNatEntry>();
        block[at..at + size_of::<RawNatEntry>()].copy_from_slice(entry.as_bytes());
    };
    set(NODE_INO, NO_BLOCK);
    set(META_INO, NO_BLOCK);
    dirs.iter().for_each(|d| set(d.nid, d.node));
    block
}

/// nat_bits for a NAT of which only the first block is in use: the key, a bit for each full block, a bit for
/// each empty block.
pub(super) fn nat_bits(layout: &Layout, version: u64, crc: u32) -> PageBuf {
    let blocks = (layout.segment_count_nat / 2 * BLOCKS_PER_SEG) as usize;
    let empty = NAT_BITS_HEADER + blocks / 8;
    let mut bits = PageBuf::zeroed((empty + blocks / 8).div_ceil(BLOCK_SIZE));
    bits[..NAT_BITS_HEADER].copy_from_slice(&(version | (crc as u64) << 32).to_le_bytes());
    bits[empty..empty + blocks / 8].fill(0xff);
    set_bit_le(&mut bits[empty..], 0, false);
    bits
}
