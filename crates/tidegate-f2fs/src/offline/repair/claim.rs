//! The owner of each block: a block gets one owner, and its summary is corrected to name it.

use super::Repair;
use super::disk::Block;
use super::footer::Footer;
use super::map::{self, in_main, split};
use crate::format::raw::*;
use crate::offline::bits::Bits;
use std::collections::BTreeMap;
use tidegate_block::BioFlags;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;
use zerocopy::{FromBytes, FromZeros};

/// The segment holds nodes.
pub(super) const HAS_NODES: u8 = 1;
/// The segment holds data.
pub(super) const HAS_DATA: u8 = 2;
/// Most summary blocks kept in memory before they are written.
const KEPT: usize = 256;

/// The place that refers to a block.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    /// The node that the summary names: the block itself, or the node that holds the block's address.
    pub(super) nid: u32,
    /// Index of the address in that node; none for nodes.
    pub(super) slot: Option<u16>,
}

/// Blocks in use, and the counters that follow from them.
pub(super) struct Usage {
    /// A bit for each block of the main area.
    pub(super) used: Bits,
    /// `HAS_*` for each segment.
    pub(super) kinds: Vec<u8>,
    pub(super) blocks: u64,
    pub(super) nodes: u64,
    pub(super) inodes: u64,
    /// Blocks that are counted but have no place yet.
    pub(super) reserved: u64,
}

impl Usage {
    /// A `Usage` of `segments` segments with nothing in use.
    pub(super) fn new(segments: u32) -> Self {
        Usage {
            used: Bits::new(segments as u64 * BLOCKS_PER_SEG as u64),
            kinds: vec![0; segments as usize],
            blocks: 0,
            nodes: 0,
            inodes: 0,
            reserved: 0,
        }
    }
}

/// Summary blocks of the SSA that the repair has looked at.
#[derive(Default)]
pub(super) struct Ssa {
    kept: HashMap<u32, (Block, bool)>,
    /// Summaries corrected in each segment.
    pub(super) corrected: BTreeMap<u32, u32>,
}

impl Repair<'_, '_> {
    /// Whether block `addr` can be allocated.
    pub(super) fn is_free(&self, addr: u32) -> bool {
        in_main(&self.sb, addr) && !self.usage.used.get(addr - self.sb.main_blkaddr)
    }

    /// Whether a log is in a segment.
    pub(super) fn is_log(&self, segno: u32) -> bool {
        self.logs.iter().any(|l| l.segno == segno)
    }

    /// Whether a segment is free: neither the last checkpoint nor the walk has a block in it, and no log is
    /// in it.
    pub(super) fn is_free_segment(&self, segno: u32) -> bool {
        !self.is_log(segno)
            && self.usage.used.count(segno) == 0
            && self.referred.count(segno) == 0
            && self.sit[segno as usize].valid_map == [0; 64]
    }

    /// Takes block `addr` for `owner`; false when the block is outside the main area or has another owner.
    pub(super) fn claim(&mut self, addr: u32, owner: Owner) -> Result<bool> {
        if !self.is_free(addr) {
            return Ok(false);
        }
        let sum = self.summary(addr)?;
        let right = self.summary_for(owner);
        let same = |a: RawSummary| match owner.slot {
            Some(_) => a == right,
            None => a.nid == right.nid,
        };
        // The version may differ where the NAT was lost.
        let named = (sum.nid, sum.ofs_in_node) == (right.nid, right.ofs_in_node);
        if owner.slot.is_some() && self.is_foreign(addr, sum, named)? {
            return Ok(false);
        }
        self.own(addr, owner);
        self.put_summary(addr, right, owner.slot.is_none(), !same(sum))?;
        Ok(true)
    }

    /// Marks the block as owned.
    pub(super) fn own(&mut self, addr: u32, owner: Owner) {
        self.usage.used.set(addr - self.sb.main_blkaddr);
        self.referred.set(addr - self.sb.main_blkaddr);
        self.usage.blocks += 1;
        self.usage.nodes += u64::from(owner.slot.is_none());
        let (segno, _) = split(&self.sb, addr);
        self.usage.kinds[segno as usize] |= if owner.slot.is_none() { HAS_NODES } else { HAS_DATA };
    }

    /// Clears the mark of [`Repair::own`].
    pub(super) fn disown(&mut self, addr: u32, node: bool) {
        self.usage.used.clear(addr - self.sb.main_blkaddr);
        self.usage.blocks -= 1;
        self.usage.nodes -= u64::from(node);
    }

    pub(super) fn summary_for(&self, owner: Owner) -> RawSummary {
        let nid = owner.nid.into();
        match owner.slot {
            // Linux keeps the version up to date only for data.
            Some(slot) => {
                RawSummary { nid, version: self.nat.entry(owner.nid).version, ofs_in_node: slot.into() }
            }
            None => RawSummary { nid, ..Default::default() },
        }
    }

    /// Whether block `addr` cannot be the claimant's data: it is a node, or lies among nodes, or its summary
    /// names an owner who confirms it, or neither SIT nor summary know of it (`named`: the summary names the
    /// claimant).
    fn is_foreign(&mut self, addr: u32, sum: RawSummary, named: bool) -> Result<bool> {
        let (segno, _) = split(&self.sb, addr);
        let among_nodes = self.usage.kinds[segno as usize] & HAS_NODES != 0;
        Ok(among_nodes
            || self.is_node(addr)?
            || !named && (!self.was_valid(addr) || self.is_owner(addr, sum)?))
    }

    /// Whether the block is a node, by its footer and the NAT.
    fn is_node(&mut self, addr: u32) -> Result<bool> {
        if !self.nat_addrs.get(addr - self.sb.main_blkaddr) {
            return Ok(false);
        }
        let nid = Footer::of(&*self.disk.block(addr)?).nid;
        Ok(self.known_nid(nid) && self.nat.addr(nid) == addr)
    }

    /// Whether the node that a summary names holds `addr` at the slot in the summary.
    fn is_owner(&mut self, addr: u32, sum: RawSummary) -> Result<bool> {
        let (nid, slot) = (sum.nid.get(), sum.ofs_in_node.get() as usize);
        let at = self.nat.addr(nid);
        if !self.known_nid(nid) || !in_main(&self.sb, at) || slot >= ADDRS_PER_BLOCK {
            return Ok(false);
        }
        let block = self.disk.block(at)?;
        let footer = Footer::of(&block);
        if footer.nid != nid {
            return Ok(false);
        }
        let base = if footer.ino == nid { self.addr_base(&block) } else { 0 };
        let at = base + 4 * slot;
        Ok(at + 4 <= FOOTER_OFFSET && le32(&block[..], at) == addr)
    }

    fn summary(&mut self, addr: u32) -> Result<RawSummary> {
        let (segno, at) = split(&self.sb, addr);
        if let Some((sums, _)) = self.summaries.get(&segno) {
            return Ok(sums[at]);
        }
        let (block, _) = self.ssa_block(segno)?;
        let sum = RawSummary::read_from_prefix(&block[at * SUMMARY_SIZE..]);
        Ok(sum.map(|s| s.0).unwrap_or_default())
    }

    /// Sets the summary of `addr`. `wrong`: the old summary was wrong.
    pub(super) fn put_summary(&mut self, addr: u32, sum: RawSummary, node: bool, wrong: bool) -> Result<()> {
        let (segno, at) = split(&self.sb, addr);
        if let Some((sums, known)) = self.summaries.get_mut(&segno) {
            sums[at] = sum;
            if wrong && *known {
                *self.ssa.corrected.entry(segno).or_default() += 1;
            }
            return Ok(());
        }
        let want = if node { SUM_TYPE_NODE } else { SUM_TYPE_DATA };
        let (block, dirty) = self.ssa_block(segno)?;
        let block = RawSummaryBlock::of_mut(block);
        let wrong_type = std::mem::replace(&mut block.entry_type, want) != want;
        if wrong || wrong_type {
            *dirty = true;
            block.entries[at] = sum;
            *self.ssa.corrected.entry(segno).or_default() += 1;
        }
        Ok(())
    }

    fn ssa_block(&mut self, segno: u32) -> Result<&mut (Block, bool)> {
        if !self.ssa.kept.contains_key(&segno) {
            if self.ssa.kept.len() >= KEPT {
                self.flush_ssa()?;
            }
            let block = self.disk.block(self.sb.ssa_blkaddr + segno)?;
            self.ssa.kept.insert(segno, (block, false));
        }
        let missing = || tidegate_vfs::Error::corrupt(format!("no summary of segment {segno}"));
        self.ssa.kept.get_mut(&segno).ok_or_else(missing)
    }

    /// Replaces the summaries of a segment that a log was in; its SSA block is out of date.
    pub(super) fn put_ssa(&mut self, segno: u32, sums: &super::pack::Summaries, node: bool) -> Result<()> {
        let (block, dirty) = self.ssa_block(segno)?;
        let block = RawSummaryBlock::of_mut(block);
        block.zero();
        block.entries = **sums;
        block.entry_type = if node { SUM_TYPE_NODE } else { SUM_TYPE_DATA };
        *dirty = true;
        Ok(())
    }

    /// Writes changed summary blocks. They may be written at any time: they name a block's owner now, and the
    /// summaries that they replace were wrong before.
    pub(super) fn flush_ssa(&mut self) -> Result<()> {
        for (segno, (block, dirty)) in std::mem::take(&mut self.ssa.kept) {
            if dirty && !self.options.dry_run && !self.keeps_ssa {
                self.disk.write(self.sb.ssa_blkaddr + segno, &block[..], BioFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Whether the last checkpoint marks block `addr` as in use.
    pub(super) fn was_valid(&self, addr: u32) -> bool {
        let (segno, at) = map::split(&self.sb, addr);
        test_bit_msb(&self.sit[segno as usize].valid_map, at)
    }
}

impl Repair<'_, '_> {
    /// The summary block of a segment as the SSA has it, changes included.
    pub(super) fn disk_summaries(&mut self, segno: u32) -> Result<Block> {
        Ok(self.ssa_block(segno)?.0.clone())
    }
}
