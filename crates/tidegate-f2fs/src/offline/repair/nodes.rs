//! The search for nodes: by the NAT, or by the footers of blocks that the NAT has lost.

use super::claim::Owner;
use super::disk::Block;
use super::footer::Footer;
use super::map::Place;
use super::{Repair, map};
use crate::format::raw::*;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;

impl Repair<'_, '_> {
    /// Takes node `nid` of inode `ino` at offset `ofs` of the file's tree: returns its address and block.
    /// None when there is no such node, or it has another place in a tree.
    pub(super) fn take_node(&mut self, nid: u32, ino: u32, ofs: u32) -> Result<Option<(u32, Block)>> {
        if !self.known_nid(nid) || self.reached.get(nid) {
            return Ok(None);
        }
        let Some((addr, mut block)) = self.find_node(nid, ino, ofs)? else { return Ok(None) };
        if !self.claim(addr, Owner { nid, slot: None })? {
            return Ok(None);
        }
        self.reached.set(nid);
        let e = self.nat.entry(nid);
        if e.block_addr.get() != addr || e.ino.get() != ino {
            let from = format!("inode {} block {}", e.ino, e.block_addr);
            self.change("nat", format!("node {nid}"), from, format!("inode {ino} block {addr}"));
            self.nat.place(nid, ino, addr);
        }
        let (has, want) = (Footer::of(&block), Footer { nid, ino, ofs });
        if (has.nid, has.ino, has.ofs) != (nid, ino, ofs) {
            let show = |f: Footer| format!("node {} of inode {} offset {}", f.nid, f.ino, f.ofs);
            self.change("node", format!("footer of node {nid} (block {addr})"), show(has), show(want));
            want.put(&mut block);
            self.disk.put(addr, Place::Node(nid), block.clone());
        }
        Ok(Some((addr, block)))
    }

    /// The address of the node, by the NAT or else by its own footer.
    pub(super) fn find_node(&mut self, nid: u32, ino: u32, ofs: u32) -> Result<Option<(u32, Block)>> {
        let by_nat = self.nat.addr(nid);
        if let Some(block) = self.node_at(by_nat, nid, ino, ofs)? {
            return Ok(Some((by_nat, block)));
        }
        let Some(addr) = self.lost_node(nid)? else { return Ok(None) };
        let found = self.node_at(addr, nid, ino, ofs)?;
        Ok(found.filter(|b| Footer::of(b).ino == ino).map(|b| (addr, b)))
    }

    /// The block at `addr` if it is this node: two of the NAT entry, the footer's node and the footer's inode
    /// must agree.
    fn node_at(&mut self, addr: u32, nid: u32, ino: u32, ofs: u32) -> Result<Option<Block>> {
        if !self.is_free(addr) {
            return Ok(None);
        }
        let block = self.disk.block(addr)?;
        let (f, e) = (Footer::of(&block), self.nat.entry(nid));
        let known = e.ino.get() == ino && e.block_addr.get() == addr;
        let fits = if f.nid == nid { f.ino == ino || known } else { f.ino == ino && f.ofs == ofs && known };
        Ok(fits.then_some(block))
    }

    /// The address of a node that the NAT does not know.
    fn lost_node(&mut self, nid: u32) -> Result<Option<u32>> {
        if self.lost.is_none() {
            self.lost = Some(self.scan_for_lost()?);
        }
        Ok(self.lost.as_ref().and_then(|l| l.get(&nid)).map(|l| l.0))
    }

    /// Searches the used blocks of node segments, as the last checkpoint has them, for nodes that the NAT has
    /// elsewhere or nowhere. Of each node the newest counts, by the checkpoint in its footer.
    fn scan_for_lost(&self) -> Result<HashMap<u32, (u32, u64)>> {
        let mut lost: HashMap<u32, (u32, u64)> = HashMap::default();
        for (segno, e) in self.sit.iter().enumerate() {
            if map::kind(e) < NR_CURSEG_DATA_TYPE || e.valid_map == [0; 64] {
                continue;
            }
            let first = self.sb.main_blkaddr + segno as u32 * BLOCKS_PER_SEG;
            self.disk.scan(first, BLOCKS_PER_SEG, |addr, block| {
                let f = Footer::of(block);
                let valid = test_bit_msb(&e.valid_map, (addr - first) as usize);
                if valid && self.known_nid(f.nid) && self.nat.addr(f.nid) != addr && f.ino != 0 {
                    // The bits above the version are the CRC.
                    let version = RawNodeFooter::of(block).cp_ver.get() & u64::from(u32::MAX);
                    let known = lost.entry(f.nid).or_insert((addr, version));
                    if version > known.1 {
                        *known = (addr, version);
                    }
                }
                Ok(())
            })?;
        }
        Ok(lost)
    }
}
