//! Node table and segment table in memory.

use super::disk::Disk;
use super::pack::Pack;
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use std::collections::BTreeSet;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// The place that refers to a block of the main area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The block is this node: the NAT refers to it.
    Node(u32),
    /// The block holds entries of a directory: address `slot` of node `nid` refers to it.
    Entries {
        /// The node.
        nid: u32,
        /// Index of the address in the node.
        slot: u16,
    },
}

type NatBlock = [RawNatEntry; NAT_ENTRY_PER_BLOCK];

/// The NAT in memory; blocks without entries take no memory.
pub(super) struct NatTable {
    blocks: Vec<Option<Box<NatBlock>>>,
    /// Blocks that differ from the volume's.
    pub(super) dirty: BTreeSet<u32>,
}

impl NatTable {
    /// Reads the current copy of every NAT block and lets the journal's entries override it.
    pub(super) fn load(disk: &Disk<'_>, sb: &Superblock, cp: &Checkpoint, pack: &Pack) -> Result<Self> {
        let mut blocks = Vec::with_capacity(sb.nat_blocks as usize);
        let mut at = 0;
        while at < sb.nat_blocks {
            // Copies alternate by segment, so runs of one copy are read at once.
            let addr = nat_block(sb, &cp.nat_bitmap, at);
            let mut n = 1;
            while at + n < sb.nat_blocks && nat_block(sb, &cp.nat_bitmap, at + n) == addr + n {
                n += 1;
            }
            disk.scan(addr, n, |_, block| {
                let empty = block.iter().all(|&b| b == 0);
                let parsed = NatBlock::read_from_prefix(block).ok().filter(|_| !empty);
                blocks.push(parsed.map(|(b, _)| Box::new(b)));
                Ok(())
            })?;
            at += n;
        }
        let mut nat = NatTable { blocks, dirty: BTreeSet::new() };
        pack.nat_journal.iter().for_each(|(nid, e)| nat.set(*nid, *e));
        Ok(nat)
    }

    /// The entry of `nid`; zeros where there is none.
    pub(super) fn entry(&self, nid: u32) -> RawNatEntry {
        let block = self.blocks.get(nid as usize / NAT_ENTRY_PER_BLOCK).and_then(Option::as_ref);
        block.map_or_else(RawNatEntry::default, |b| b[nid as usize % NAT_ENTRY_PER_BLOCK])
    }

    /// The address of node `nid`.
    pub(super) fn addr(&self, nid: u32) -> u32 {
        self.entry(nid).block_addr.get()
    }

    pub(super) fn set(&mut self, nid: u32, e: RawNatEntry) {
        let n = nid as usize / NAT_ENTRY_PER_BLOCK;
        let Some(slot) = self.blocks.get_mut(n) else { return };
        let block = slot.get_or_insert_with(|| Box::new([RawNatEntry::default(); NAT_ENTRY_PER_BLOCK]));
        block[nid as usize % NAT_ENTRY_PER_BLOCK] = e;
        self.dirty.insert(n as u32);
    }

    /// Sets the entry of node `nid` of inode `ino` to `addr`.
    pub(super) fn place(&mut self, nid: u32, ino: u32, addr: u32) {
        let version = self.entry(nid).version;
        self.set(nid, RawNatEntry { version, ino: ino.into(), block_addr: addr.into() });
    }

    /// Clears the entry of node `nid`.
    pub(super) fn free(&mut self, nid: u32) {
        let version = self.entry(nid).version.wrapping_add(1);
        self.set(nid, RawNatEntry { version, ino: 0.into(), block_addr: 0.into() });
    }

    /// The first used entry from `nid` on: node and entry.
    pub(super) fn next_used(&self, nid: u32) -> Option<(u32, RawNatEntry)> {
        let (mut n, mut from) = (nid as usize / NAT_ENTRY_PER_BLOCK, nid as usize % NAT_ENTRY_PER_BLOCK);
        while n < self.blocks.len() {
            if let Some(b) = &self.blocks[n]
                && let Some(i) = (from..NAT_ENTRY_PER_BLOCK).find(|i| b[*i].block_addr.get() != 0)
            {
                return Some(((n * NAT_ENTRY_PER_BLOCK + i) as u32, b[i]));
            }
            (n, from) = (n + 1, 0);
        }
        None
    }

    /// A node number that is not in use, from `nid` on.
    pub(super) fn next_free(&self, nid: u32) -> Option<u32> {
        (nid..(self.blocks.len() * NAT_ENTRY_PER_BLOCK) as u32).find(|n| self.addr(*n) == 0)
    }

    /// Block `n` in the form of the volume.
    pub(super) fn bytes(&self, n: u32) -> [u8; BLOCK_SIZE] {
        use zerocopy::IntoBytes;
        let mut out = [0; BLOCK_SIZE];
        if let Some(Some(b)) = self.blocks.get(n as usize) {
            out[..size_of::<NatBlock>()].copy_from_slice(b.as_bytes());
        }
        out
    }

    /// Entries in use in block `n` as nat_bits count them: number 0 is never free.
    pub(super) fn used_in(&self, n: u32) -> usize {
        let Some(Some(b)) = self.blocks.get(n as usize) else { return usize::from(n == 0) };
        b.iter().enumerate().filter(|(i, e)| e.block_addr.get() != 0 || (n == 0 && *i == 0)).count()
    }
}

/// The address of the copy of NAT block `n` that `bitmap` selects; copies alternate by segment.
pub(super) fn nat_block(sb: &Superblock, bitmap: &[u8], n: u32) -> u32 {
    let pair = n / BLOCKS_PER_SEG * 2 * BLOCKS_PER_SEG + n % BLOCKS_PER_SEG;
    sb.nat_blkaddr + pair + if test_bit_msb(bitmap, n as usize) { BLOCKS_PER_SEG } else { 0 }
}

/// The address of the copy of SIT block `n` that `bitmap` selects; the copies are the halves of the area.
pub(super) fn sit_block(sb: &Superblock, bitmap: &[u8], n: u32) -> u32 {
    sb.sit_blkaddr + n + if test_bit_msb(bitmap, n as usize) { sb.sit_blocks } else { 0 }
}

/// The SIT as the last checkpoint has it: an entry for each segment.
pub(super) fn load_sit(
    disk: &Disk<'_>,
    sb: &Superblock,
    cp: &Checkpoint,
    pack: &Pack,
) -> Result<Vec<RawSitEntry>> {
    let mut sit = Vec::with_capacity(sb.main_segments as usize);
    for n in 0..sb.main_segments.div_ceil(SIT_ENTRY_PER_BLOCK as u32) {
        let block = disk.read(sit_block(sb, &cp.sit_bitmap, n), 1)?;
        let entries = block.chunks_exact(size_of::<RawSitEntry>()).take(SIT_ENTRY_PER_BLOCK);
        sit.extend(entries.filter_map(|e| RawSitEntry::read_from_bytes(e).ok()));
    }
    sit.truncate(sb.main_segments as usize);
    for (segno, e) in &pack.sit_journal {
        sit[*segno as usize] = e.clone();
    }
    Ok(sit)
}

/// The log type that a SIT entry gives its segment.
pub(super) fn kind(e: &RawSitEntry) -> usize {
    (e.vblocks.get() >> SIT_VBLOCKS_SHIFT) as usize
}

/// Splits an address of the main area into segment and block in it.
pub(super) fn split(sb: &Superblock, addr: u32) -> (u32, usize) {
    let n = addr - sb.main_blkaddr;
    (n / BLOCKS_PER_SEG, (n % BLOCKS_PER_SEG) as usize)
}

/// Whether `addr` is a block of the main area.
pub(super) fn in_main(sb: &Superblock, addr: u32) -> bool {
    sb.in_main(BlockAddr(addr))
}
