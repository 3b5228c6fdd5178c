//! Single inodes: the tables, group by group.

use super::disk::Stage;
use super::map::Map;
use super::{Repair, State};
use crate::format::raw::*;
use crate::offline::node::{Kind, Node, is_listed};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Most blocks with two owners that are remembered.
const MOST_SHARED: usize = 4 << 20;

impl Repair<'_, '_> {
    /// Inode `ino` with all changes.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn node(&mut self, ino: u32) -> Result<Node> {
        let (block, at) = self.node_place(ino);
        let bytes = self.disk.block(block)?;
        Ok(Node::parse(&self.sb, ino, &bytes[at..at + self.sb.inode_size as usize]))
    }

    fn node_place(&self, ino: u32) -> (u64, usize) {
        let (group, slot) = self.place(ino);
        let byte = slot as u64 * u64::from(self.sb.inode_size);
        let bs = u64::from(self.sb.block_size);
        (self.descs[group].desc.inode_table.0 + byte / bs, (byte % bs) as usize)
    }

    /// Puts an inode back, with its checksum.
    ///
    /// # Errors
    /// Those of the device, and of too many changes.
    pub(super) fn store(&mut self, n: &mut Node) -> Result<()> {
        let len = n.bytes.len().min(size_of::<RawInode>());
        n.bytes[..len].copy_from_slice(&n.raw.as_bytes()[..len]);
        if self.sb.has_csum() {
            let (_, sum) = n.checksums();
            n.raw.i_checksum_lo = (sum as u16).into();
            if n.bytes.len() > INODE_BASE && n.raw.i_extra_isize.get() >= 4 {
                n.raw.i_checksum_hi = ((sum >> 16) as u16).into();
            }
            n.bytes[..len].copy_from_slice(&n.raw.as_bytes()[..len]);
        }
        let (block, at) = self.node_place(n.ino);
        let mut bytes = self.disk.block(block)?;
        bytes[at..at + n.bytes.len()].copy_from_slice(&n.bytes);
        self.disk.put(block, Stage::InPlace, bytes)
    }

    /// Clears an inode as if it was never used.
    ///
    /// # Errors
    /// As [`Repair::store`].
    pub(super) fn clear_inode(&mut self, n: &Node, why: impl ToString) -> Result<()> {
        self.tell("inode", n.ino, why, "cleared");
        let mut empty = Node::parse(&self.sb, n.ino, &vec![0; n.bytes.len()]);
        self.store(&mut empty)
    }

    /// Repairs every inode that may be in use.
    pub(super) fn mend_inodes(&mut self) -> Result<()> {
        for g in 0..self.sb.groups {
            let per = self.sb.inodes_per_group;
            let unused = self.descs[g as usize].unused(per);
            for slot in 0..per - unused {
                self.mend_inode(g * per + slot + 1)?;
            }
        }
        Ok(())
    }

    fn mend_inode(&mut self, ino: u32) -> Result<()> {
        let mut n = self.node(ino)?;
        let (stored, changes) = (n.bytes.clone(), self.changes);
        let special = self.sb.is_special(ino);
        if special && !self.mend_special(&mut n)? {
            return Ok(());
        }
        if n.raw.i_links_count.get() == 0 && !special {
            return self.mend_free(&mut n);
        }
        if n.kind().is_none() && !special {
            if n.bytes.iter().any(|b| *b != 0) {
                self.clear_inode(&n, format!("mode {:o}", n.raw.i_mode.get()))?;
            }
            return Ok(());
        }
        self.keep(n, special, &stored, changes)
    }

    /// Repairs an inode without links: it is free, or becomes a freed orphan.
    fn mend_free(&mut self, n: &mut Node) -> Result<()> {
        let dtime = n.raw.i_dtime.get();
        // If an orphan list was cut off, times of deletion are still inode numbers.
        let wrong = if dtime == 0 { n.raw.i_mode.get() != 0 } else { is_listed(&self.sb, dtime) };
        if !wrong || self.orphans.contains(&n.ino) {
            return self.seal_unused(n, false);
        }
        self.tell("inode", n.ino, format!("no link, and time of deletion {dtime}"), "deleted now");
        let least = i64::from(self.sb.raw.s_inodes_count.get());
        n.raw.i_dtime = (self.options.now.secs.max(least) as u32).into();
        self.store(n)
    }

    /// Repairs an inode that stays. The volume has it as `stored`, and there were so many `changes` before its first.
    fn keep(&mut self, mut n: Node, special: bool, stored: &[u8], changes: u64) -> Result<()> {
        let ino = n.ino;
        let (has, should) = n.checksums();
        self.mend_fields(&mut n, special)?;
        let mut map = if n.is_mapped() && ino != RESIZE_INO { self.map(&n, true)? } else { Map::default() };
        if n.kind() == Some(Kind::Dir) && !self.mend_dir_map(&n, &mut map)? {
            return Ok(());
        }
        if !self.mend_size(&mut n, &mut map, special)? {
            return Ok(());
        }
        let attributes = self.mend_xattrs(&mut n)?;
        self.mend_encryption(&mut n);
        self.claim_map(&map)?;
        // If another inode's map leads to this one's block, this inode is not at fault.
        let sealed = !self.sb.has_csum() || has == should;
        let right = self.changes == changes && sealed && map.wrong.is_none() && map.unsealed.is_empty();
        let blameless = right && map.shared.is_some();
        self.mend_map(&n, &map)?;
        if ino != RESIZE_INO {
            // If the map is rebuilt, the count follows from that.
            let blocks = map.data() + map.nodes.len() as u64 + u64::from(attributes);
            self.mend_block_count(&mut n, blocks, map.fault().is_none());
        }
        if self.sb.has_csum() && has != should && self.changes == changes {
            self.tell("inode", ino, format!("checksum {has:#010x}"), format!("{should:#010x}"));
        }
        let raw = n.raw.as_bytes();
        let common = raw.len().min(stored.len());
        let differs = n.bytes != stored || raw[..common] != stored[..common];
        if differs || self.changes != changes || has != should {
            self.store(&mut n)?;
        }
        let mended = self.changes != changes && !blameless;
        let links = n.raw.i_links_count.get().into();
        *self.state_mut(ino) = State { kind: n.kind(), special, mended, links, ..State::default() };
        self.used_inodes.set(ino.into());
        Ok(())
    }

    /// Rebuilds a map if necessary, and otherwise corrects the checksums of its blocks.
    fn mend_map(&mut self, n: &Node, map: &Map) -> Result<()> {
        if let Some(why) = map.fault() {
            self.tell("map", format!("inode {}", n.ino), why, "made anew");
            self.rebuild.insert(n.ino, map.runs.clone());
            return Ok(());
        }
        map.unsealed.iter().try_for_each(|block| self.seal_extents(n, *block))
    }

    /// Claims all blocks of a map.
    fn claim_map(&mut self, map: &Map) -> Result<()> {
        let runs = map.runs.iter().flat_map(|r| r.start..r.start + r.len);
        for block in runs {
            if !self.claim(block) {
                self.shared.insert(block);
                self.count_claim()?;
            }
        }
        let anew = map.fault().is_some();
        for block in &map.nodes {
            self.seen.set(*block);
            // Nodes of a map that is rebuilt are given up.
            if anew {
                continue;
            }
            self.map_blocks.set(*block);
            if !self.claim(*block) {
                self.shared.insert(*block);
                self.count_claim()?;
            }
        }
        Ok(())
    }

    fn count_claim(&mut self) -> Result<()> {
        self.claims += 1;
        if self.claims > self.sb.blocks {
            let what = "more blocks have two owners than the volume has blocks: nothing was changed";
            return Err(Error::corrupt(what));
        }
        if self.shared.len() > MOST_SHARED {
            let what = format!("more than {MOST_SHARED} blocks have two owners: nothing was changed");
            return Err(Error::new(ErrorKind::FileTooBig, what));
        }
        Ok(())
    }
}
