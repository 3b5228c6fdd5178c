//! The owner of each block of the main area, and whether the summaries agree.

use super::{Checker, rules};
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::bits::Bits;
use tidegate_vfs::Result;

/// The segment holds nodes.
pub(super) const HAS_NODES: u8 = 1;
/// The segment holds data.
pub(super) const HAS_DATA: u8 = 2;
/// A wrong summary type of the segment was reported already.
const TOLD: u8 = 4;

/// Blocks in use, and the kind of blocks in each segment.
pub(super) struct Usage {
    /// A bit for each block of the main area.
    pub(super) seen: Bits,
    /// `HAS_*` for each segment.
    pub(super) kinds: Vec<u8>,
    /// Blocks found in use.
    pub(super) blocks: u64,
    /// Nodes among the blocks.
    pub(super) nodes: u64,
    /// Blocks that are counted but have no place yet.
    pub(super) reserved: u64,
    /// Inodes found.
    pub(super) inodes: u64,
}

/// The place that refers to a block.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    /// The inode.
    pub(super) ino: u32,
    /// The node that the summary names: the block itself, or the node that holds the block's address.
    pub(super) nid: u32,
    /// The node's version in the NAT.
    pub(super) version: u8,
    /// Index of the address in that node; none for nodes.
    pub(super) slot: Option<u16>,
}

impl Usage {
    pub(super) fn new(sb: &Superblock) -> Self {
        Usage {
            seen: Bits::new(sb.main_segments as u64 * BLOCKS_PER_SEG as u64),
            kinds: vec![0; sb.main_segments as usize],
            blocks: 0,
            nodes: 0,
            reserved: 0,
            inodes: 0,
        }
    }
}

impl Checker<'_> {
    /// Takes block `addr` for `owner`. True if the block may be read for this owner: it lies in the main area
    /// and has no other owner.
    pub(super) fn claim(&mut self, addr: u32, owner: Owner) -> Result<bool> {
        if !self.sb.in_main(BlockAddr(addr)) {
            if owner.slot.is_some() {
                self.at(rules::DATA_ADDRESS, owner.ino, || format!("block {addr} is not in the main area"))?;
            }
            return Ok(false);
        }
        let n = addr - self.sb.main_blkaddr;
        if !self.usage.seen.set(n) {
            self.at(rules::DATA_SHARED, owner.ino, || {
                format!("block {addr} (of node {}) has another owner, too", owner.nid)
            })?;
            return Ok(false);
        }
        self.usage.blocks += 1;
        self.usage.nodes += u64::from(owner.slot.is_none());
        let segno = n / BLOCKS_PER_SEG;
        self.usage.kinds[segno as usize] |= if owner.slot.is_none() { HAS_NODES } else { HAS_DATA };
        self.check_summary(addr, segno, owner)?;
        Ok(true)
    }

    /// Checks the summary of `addr` against its owner. Linux keeps the version up to date only for data.
    fn check_summary(&mut self, addr: u32, segno: u32, owner: Owner) -> Result<()> {
        // A read-only volume needs no summaries and has no SSA.
        if self.sb.features.contains(Features::RO) {
            return Ok(());
        }
        let at = ((addr - self.sb.main_blkaddr) % BLOCKS_PER_SEG) as usize;
        let sum = match self.pack.summaries.get(&segno) {
            Some(Some(sums)) => sums[at],
            // A log's node summaries are missing from the pack of an unclean volume.
            Some(None) => return Ok(()),
            None => self.ssa_summary(segno, at, owner)?,
        };
        let right = match owner.slot {
            Some(slot) => {
                sum.nid.get() == owner.nid && sum.ofs_in_node.get() == slot && sum.version == owner.version
            }
            None => sum.nid.get() == owner.nid,
        };
        if !right {
            self.at(rules::SUM_OWNER, owner.ino, || {
                let slot =
                    owner.slot.map_or(String::new(), |s| format!(" slot {s} version {}", owner.version));
                format!(
                    "block {addr} is of node {}{slot}; its summary says node {} slot {} version {}",
                    owner.nid, sum.nid, sum.ofs_in_node, sum.version
                )
            })?;
        }
        Ok(())
    }

    fn ssa_summary(&mut self, segno: u32, at: usize, owner: Owner) -> Result<RawSummary> {
        let ssa = self.sb.ssa_blkaddr + segno;
        let block = self.dev.block(ssa)?;
        let sums = RawSummaryBlock::of(&block);
        let (kind, summary) = (sums.entry_type, sums.entries[at]);
        let want = if owner.slot.is_some() { SUM_TYPE_DATA } else { SUM_TYPE_NODE };
        let told = &mut self.usage.kinds[segno as usize];
        if kind != want && *told & TOLD == 0 {
            *told |= TOLD;
            self.found.add(rules::SUM_TYPE, || {
                format!("summary of segment {segno} (block {ssa}): type {kind}, but the segment's is {want}")
            });
        }
        Ok(summary)
    }
}
