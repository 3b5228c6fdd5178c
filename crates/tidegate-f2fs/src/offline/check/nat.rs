//! The NAT: the place of each node, and whether it is possible.

use super::device::Reader;
use super::pack::{self, Pack};
use super::{Checker, rules};
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::bits::Bits;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

type NatBlock = [RawNatEntry; NAT_ENTRY_PER_BLOCK];

/// The NAT in memory; blocks without entries take no memory.
pub(super) struct NatTable {
    blocks: Vec<Option<Box<NatBlock>>>,
}

impl NatTable {
    /// Reads the current copy of every NAT block; the journal is not applied yet.
    pub(super) fn load(dev: &Reader<'_>, sb: &Superblock, cp: &Checkpoint) -> Result<NatTable> {
        let mut blocks = Vec::with_capacity(sb.nat_blocks as usize);
        let addrs = (0..sb.nat_blocks).map(|n| nat_block(sb, cp, n));
        dev.scan(addrs, |_, block| {
            let empty = block.iter().all(|&b| b == 0);
            blocks.push(if empty { None } else { parse(block) });
        })?;
        Ok(NatTable { blocks })
    }

    /// Lets the journal's entries override the table's.
    pub(super) fn apply(&mut self, pack: &Pack) {
        for entry in &pack.nat_journal {
            let nid = entry.nid.get() as usize;
            if let Some(block) = self.blocks.get_mut(nid / NAT_ENTRY_PER_BLOCK) {
                let block =
                    block.get_or_insert_with(|| Box::new([RawNatEntry::default(); NAT_ENTRY_PER_BLOCK]));
                block[nid % NAT_ENTRY_PER_BLOCK] = entry.ne;
            }
        }
    }

    /// The entry of `nid`; zeros where there is none.
    pub(super) fn entry(&self, nid: u32) -> RawNatEntry {
        let block = self.blocks.get(nid as usize / NAT_ENTRY_PER_BLOCK).and_then(Option::as_ref);
        block.map_or_else(RawNatEntry::default, |b| b[nid as usize % NAT_ENTRY_PER_BLOCK])
    }

    /// Entries in use: node, entry.
    fn used(&self) -> impl Iterator<Item = (u32, RawNatEntry)> {
        let blocks = self.blocks.iter().enumerate().filter_map(|(n, b)| Some((n, b.as_ref()?)));
        let entries = blocks.flat_map(|(n, b)| {
            b.iter().enumerate().map(move |(i, e)| ((n * NAT_ENTRY_PER_BLOCK + i) as u32, *e))
        });
        entries.filter(|(_, e)| e.block_addr.get() != 0)
    }

    /// Valid entries of block `n` as nat_bits count them: number 0 is never free.
    fn valid_in(&self, n: usize) -> usize {
        let Some(Some(block)) = self.blocks.get(n) else { return usize::from(n == 0) };
        block.iter().enumerate().filter(|(i, e)| e.block_addr.get() != 0 || (n == 0 && *i == 0)).count()
    }
}

fn parse(block: &[u8; BLOCK_SIZE]) -> Option<Box<NatBlock>> {
    NatBlock::read_from_prefix(block).ok().map(|(b, _)| Box::new(b))
}

/// The address of the current copy of NAT block `n`; copies alternate by segment.
fn nat_block(sb: &Superblock, cp: &Checkpoint, n: u32) -> u32 {
    let pair = n / BLOCKS_PER_SEG * 2 * BLOCKS_PER_SEG + n % BLOCKS_PER_SEG;
    let second = test_bit_msb(&cp.nat_bitmap, n as usize);
    sb.nat_blkaddr + pair + if second { BLOCKS_PER_SEG } else { 0 }
}

impl Checker<'_> {
    /// Checks nat_bits against the NAT blocks on the volume.
    pub(super) fn check_nat_bits(&mut self) -> Result<()> {
        let Some(bits) = pack::nat_bits(&self.dev, &self.sb, &self.cp)? else { return Ok(()) };
        if bits.key != self.cp.version() | (self.cp.crc as u64) << 32 {
            // Linux lets nat_bits go stale while mounted, and ignores them then.
            if self.cp.flags.contains(CpFlags::UMOUNT) {
                let start = self.cp.start;
                self.found.add(rules::NAT_BITS_KEY, || {
                    format!("nat_bits of the pack at block {start} are of another checkpoint")
                });
            }
            return Ok(());
        }
        for n in 0..self.sb.nat_blocks as usize {
            let valid = self.nat.valid_in(n);
            let says = (test_bit_le(&bits.full, n), test_bit_le(&bits.empty, n));
            if says != (valid == NAT_ENTRY_PER_BLOCK, valid == 0) {
                self.found.add(rules::NAT_BITS, || {
                    let (full, empty) = says;
                    format!("NAT block {n} holds {valid} entries; nat_bits: full {full}, empty {empty}")
                });
            }
        }
        Ok(())
    }

    /// Checks that addresses in the NAT are inside the main area, each once.
    pub(super) fn check_nat(&mut self) {
        self.check_nat_reserved();
        let mut taken = Bits::new(self.sb.main_segments as u64 * BLOCKS_PER_SEG as u64);
        for (nid, entry) in self.nat.used() {
            let addr = entry.block_addr.get();
            if nid <= self.sb.meta_ino.max(self.sb.node_ino) {
                continue;
            }
            if !self.sb.in_main(BlockAddr(addr)) {
                self.found.add(rules::NAT_ADDRESS, || {
                    format!("node {nid} of inode {}: block {addr} is not in the main area", entry.ino)
                });
            } else if !taken.set(addr - self.sb.main_blkaddr) {
                self.found.add(rules::NAT_SHARED, || {
                    format!("node {nid} of inode {}: block {addr} is another node's too", entry.ino)
                });
            }
        }
    }

    /// Checks the entries of the node and meta inodes. They have no node of their own: mkfs gives them
    /// address 1.
    fn check_nat_reserved(&mut self) {
        let none = self.nat.entry(0);
        if none.block_addr.get() != 0 {
            self.found.add(rules::NAT_NONE, || {
                format!("there is no node 0, and it is of inode {} at block {}", none.ino, none.block_addr)
            });
        }
        for nid in [self.sb.node_ino, self.sb.meta_ino] {
            let e = self.nat.entry(nid);
            if (e.ino.get(), e.block_addr.get()) != (nid, 1) {
                self.found.add(rules::NAT_RESERVED, || {
                    format!("node {nid} is of inode {} at block {}", e.ino, e.block_addr)
                });
            }
        }
    }

    /// Checks entries of nodes that the walk did not reach.
    pub(super) fn check_nat_reached(&mut self) {
        for (nid, entry) in self.nat.used() {
            if nid > self.sb.meta_ino.max(self.sb.node_ino) && !self.reached.get(nid) {
                self.found.add(rules::NAT_UNREACHED, || {
                    format!("node {nid} of inode {} at block {}", entry.ino, entry.block_addr)
                });
            }
        }
    }
}
