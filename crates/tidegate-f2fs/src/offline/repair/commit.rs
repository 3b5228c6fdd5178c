//! Writes all changes in one new checkpoint: its blocks go to places that the old checkpoint does not refer
//! to, and the tail of its pack makes it count. After a power cut at any point, the volume is as it was or as
//! it should be.

use super::Repair;
use super::alloc::{HOT_DATA, HOT_NODE, WARM_NODE, holds};
use super::claim::Owner;
use super::disk::Changed;
use super::footer::Footer;
use super::inode::{checksum, file_type_of};
use super::map::{self, Place, nat_block, sit_block};
use crate::format::raw::*;
use tidegate_block::BioFlags;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

impl Repair<'_, '_> {
    /// Reports segments and counters that have other values than before.
    pub(super) fn tell_maps(&mut self) {
        for segno in 0..self.sb.main_segments {
            self.tell_segment(segno);
        }
        for (segno, n) in std::mem::take(&mut self.ssa.corrected) {
            let place = format!("summaries of segment {segno}");
            self.change("ssa", place, format!("{n} wrong"), "as their owners are".into());
        }
        let free = (0..self.sb.main_segments).filter(|s| self.is_empty(*s)).count() as u64;
        let (r, u) = (&self.cp.raw, &self.usage);
        let counters = [
            ("valid_block_count", r.valid_block_count.get(), u.blocks + u.reserved),
            ("valid_node_count", r.valid_node_count.get() as u64, u.nodes),
            ("valid_inode_count", r.valid_inode_count.get() as u64, u.inodes),
            ("free_segment_count", r.free_segment_count.get() as u64, free),
        ];
        for (name, stored, right) in counters.into_iter().filter(|c| c.1 != c.2) {
            self.change("checkpoint", name.into(), stored.to_string(), right.to_string());
        }
    }

    fn tell_segment(&mut self, segno: u32) {
        let e = &self.sit[segno as usize];
        let count = e.vblocks.get() & ((1 << SIT_VBLOCKS_SHIFT) - 1);
        let (mut freed, mut marked) = (0, 0);
        for n in 0..BLOCKS_PER_SEG {
            let was = test_bit_msb(&e.valid_map, n as usize);
            let is = self.usage.used.get(segno * BLOCKS_PER_SEG + n);
            freed += u32::from(was && !is);
            marked += u32::from(!was && is);
        }
        let (kind, right) = (map::kind(e), self.kind_of(segno));
        let (is, used) = (self.usage.used.count(segno), self.usage.kinds[segno as usize] != 0);
        if freed > 0 || marked > 0 || count as u32 != is || used && kind != right || kind >= NR_CURSEG_TYPE {
            let to = format!("{is} blocks of type {right} ({freed} freed, {marked} marked)");
            self.change("sit", format!("segment {segno}"), format!("{count} blocks of type {kind}"), to);
        }
    }

    /// The log type that fits a segment.
    fn kind_of(&self, segno: u32) -> usize {
        if let Some(kind) = self.logs.iter().position(|l| l.segno == segno) {
            return kind;
        }
        let (kind, has) = (map::kind(&self.sit[segno as usize]), self.usage.kinds[segno as usize]);
        let fits = kind < NR_CURSEG_TYPE && has & !holds(kind) == 0;
        match (fits, has & super::claim::HAS_NODES != 0) {
            (true, _) => kind,
            (false, true) => WARM_NODE,
            (false, false) => 1,
        }
    }

    /// Moves changed blocks to new places and writes everything.
    pub(super) fn commit(&mut self, clear_flags: bool) -> Result<()> {
        self.move_entries()?;
        self.move_nodes()?;
        self.mend_logs(false)?;
        let changed = std::mem::take(&mut self.disk.changed);
        if self.options.dry_run {
            // Nothing was written so far.
        } else if self.zones.is_some() {
            self.write_zones(changed)?;
        } else {
            for (addr, c) in changed {
                self.disk.write(addr, &c.block[..], BioFlags::empty())?;
            }
        }
        self.flush_ssa()?;
        self.write_nat()?;
        self.write_sit()?;
        self.write_pack(clear_flags)
    }

    fn stale(&self, node: bool) -> Vec<(u32, Place)> {
        let all = self.disk.changed.iter().filter(|(_, c)| !c.fresh);
        let all = all.filter(|(_, c)| matches!(c.place, Place::Node(_)) == node);
        all.map(|(addr, c)| (*addr, c.place)).collect()
    }

    fn relocate(&mut self, from: u32, to: u32) {
        if let Some(c) = self.disk.changed.remove(&from) {
            self.disk.changed.insert(to, Changed { fresh: true, ..c });
        }
    }

    fn move_entries(&mut self) -> Result<()> {
        for (addr, place) in self.stale(false) {
            let Place::Entries { nid, slot } = place else { continue };
            let to = self.alloc(HOT_DATA, Owner { nid, slot: Some(slot) })?;
            self.disown(addr, false);
            self.relocate(addr, to);
            let at = self.nat.addr(nid);
            let mut node = self.disk.block(at)?;
            let is_inode = Footer::of(&node).ino == nid;
            let base = if is_inode { self.addr_base(&node) } else { 0 };
            put32(&mut node[..], base + 4 * slot as usize, to);
            self.disk.put(at, Place::Node(nid), node);
        }
        Ok(())
    }

    fn move_nodes(&mut self) -> Result<()> {
        let nodes: Vec<u32> = self
            .disk
            .changed
            .iter()
            .filter_map(|(a, c)| match c.place {
                Place::Node(_) => Some(*a),
                Place::Entries { .. } => None,
            })
            .collect();
        for addr in nodes {
            let Some(c) = self.disk.changed.get_mut(&addr) else { continue };
            let f = Footer::of(&c.block);
            // Roll-forward must not take the node for one of its own.
            if let Some(raw) = RawNodeFooter::of_mut(&mut c.block[..]) {
                raw.flag = (raw.flag.get() & !(FSYNC_BIT_MASK | DENT_BIT_MASK)).into();
                raw.cp_ver = 0.into();
                raw.next_blkaddr = 0.into();
            }
            if f.ino == f.nid
                && let Some((_, sum)) = checksum(&self.sb, f.nid, &c.block)
                && let Some(extra) = RawExtraAttr::of_mut(&mut c.block[..])
            {
                extra.i_inode_checksum = sum.into();
            }
            if c.fresh {
                continue;
            }
            let is_dir = f.ino == f.nid && file_type_of(&c.block) == file_type::DIR;
            let log = if is_dir { HOT_NODE } else { WARM_NODE };
            let to = self.alloc(log, Owner { nid: f.nid, slot: None })?;
            self.disown(addr, true);
            self.relocate(addr, to);
            self.nat.place(f.nid, f.ino, to);
        }
        Ok(())
    }

    fn write_nat(&mut self) -> Result<()> {
        for n in std::mem::take(&mut self.nat.dirty) {
            let second = test_bit_msb(&self.cp.nat_bitmap, n as usize);
            set_bit_msb(&mut self.cp.nat_bitmap, n as usize, !second);
            if !self.options.dry_run {
                let addr = nat_block(&self.sb, &self.cp.nat_bitmap, n);
                self.disk.write(addr, &self.nat.bytes(n), BioFlags::empty())?;
            }
        }
        Ok(())
    }

    fn sit_entry(&self, segno: u32) -> RawSitEntry {
        let mut valid_map = [0; 64];
        for n in 0..BLOCKS_PER_SEG {
            set_bit_msb(&mut valid_map, n as usize, self.usage.used.get(segno * BLOCKS_PER_SEG + n));
        }
        let vblocks = (self.kind_of(segno) as u16) << SIT_VBLOCKS_SHIFT | self.usage.used.count(segno) as u16;
        RawSitEntry { vblocks: vblocks.into(), valid_map, mtime: self.sit[segno as usize].mtime }
    }

    fn write_sit(&mut self) -> Result<()> {
        const PER_BLOCK: u32 = SIT_ENTRY_PER_BLOCK as u32;
        let segments = self.sb.main_segments;
        for n in 0..segments.div_ceil(PER_BLOCK) {
            let mut block = [0; BLOCK_SIZE];
            let entries = n * PER_BLOCK..segments.min((n + 1) * PER_BLOCK);
            for (at, segno) in block.chunks_exact_mut(size_of::<RawSitEntry>()).zip(entries) {
                at.copy_from_slice(self.sit_entry(segno).as_bytes());
            }
            if self.disk.read(sit_block(&self.sb, &self.cp.sit_bitmap, n), 1)?[..] == block[..] {
                continue;
            }
            let second = test_bit_msb(&self.cp.sit_bitmap, n as usize);
            set_bit_msb(&mut self.cp.sit_bitmap, n as usize, !second);
            if !self.options.dry_run {
                let addr = sit_block(&self.sb, &self.cp.sit_bitmap, n);
                self.disk.write(addr, &block, BioFlags::empty())?;
            }
        }
        Ok(())
    }
}
