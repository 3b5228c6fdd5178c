//! Recovering the addresses of a file's data.

use super::RollForward;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::fi;
use crate::node::dnode::{Dnode, start_of_node};
use crate::node::{ino_of, ofs_of};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_vfs::{Error, Inode, Result};
use zerocopy::FromBytes;

impl RollForward<'_> {
    /// Takes over a direct node. With `grows`, the file size grows to the last page of the node.
    pub(super) fn recover_dnode(&self, inode: &Arc<Inode>, page: &[u8], grows: bool) -> Result<()> {
        let f = fi(inode);
        let start = start_of_node(ofs_of(page), f.addrs_per_inode() as u64)
            .ok_or_else(|| Error::corrupt(format!("node {} has no place in a file", ofs_of(page))))?;
        if f.has_inline(inline::DATA) {
            // The file was no longer inline when this node was written; the inode that says so may come later
            // in the chain.
            self.recover_inline_data(inode, page, None)?;
        }
        let wanted: Vec<BlockAddr> = (0..ADDRS_PER_BLOCK).map(|i| BlockAddr(word(page, i))).collect();
        let last = self.recover_addresses(inode, start, &wanted)?;
        if let Some(last) = last.filter(|_| grows && !f.has_advise(advise::KEEP_SIZE)) {
            let mut a = inode.attr();
            // A page that begins below the file's end says nothing about where the file ends.
            if a.size <= last * BLOCK_SIZE as u64 {
                a.size = (last + 1) * BLOCK_SIZE as u64;
            }
        }
        self.fs.store_inode(inode)
    }

    /// Moves the pages from `start` on to the places in `wanted`; returns the last page that got another
    /// place. The caller stores the inode.
    pub(super) fn recover_addresses(
        &self,
        inode: &Inode,
        start: u64,
        wanted: &[BlockAddr],
    ) -> Result<Option<u64>> {
        let fs = self.fs;
        let (mut at, mut last) = (0, None);
        while at < wanted.len() {
            let index = start + at as u64;
            if let crate::node::dnode::Found::Hole(n) = fs.find_dnode(inode, index)? {
                // A node is made only for addresses that are no holes.
                let holes = wanted[at..].iter().take_while(|a| **a == BlockAddr::NULL).count();
                let skip = holes.min(n as usize);
                if skip > 0 {
                    at += skip;
                    continue;
                }
            }
            let map = fi(inode).map.lock();
            let d = fs.make_dnode(inode, index)?;
            drop(map);
            let n = d.room.min(wanted.len() - at);
            let moved = self.move_pages(inode, index, &d, &wanted[at..at + n])?;
            last = moved.map(|i| index + i as u64).or(last);
            at += n;
        }
        Ok(last)
    }

    /// Moves the pages behind `d` to the places in `wanted`; returns the last page that got a place. The
    /// pages' old blocks are freed first: pages of one file may have exchanged them.
    fn move_pages(
        &self,
        inode: &Inode,
        index: u64,
        d: &Dnode,
        wanted: &[BlockAddr],
    ) -> Result<Option<usize>> {
        let (fs, n) = (self.fs, wanted.len());
        let olds = fs.addresses(inode, d, n)?;
        if olds == wanted {
            return Ok(None);
        }
        fi(inode).map.lock().invalidate(index, n as u64);
        for (old, new) in olds.iter().zip(wanted).filter(|(old, new)| old != new) {
            self.drop_page(inode, *old)?;
            self.check_new(inode, *new)?;
        }
        let kept = |i: usize| if olds[i] == wanted[i] { olds[i] } else { BlockAddr::NULL };
        fs.update_addresses(inode, d, n, |i, _| kept(i))?;
        let mut moved = (0..n).filter(|i| olds[*i] != wanted[*i] && wanted[*i] != BlockAddr::NULL);
        for i in moved.clone() {
            self.take_block(inode, d.nid, d.slot + i, wanted[i])?;
            fs.update_addresses(inode, &d.nth(i), 1, |_, _| wanted[i])?;
        }
        Ok(moved.next_back())
    }

    /// Frees the block of a page.
    fn drop_page(&self, inode: &Inode, old: BlockAddr) -> Result<()> {
        let fs = self.fs;
        fs.check_data_addr(old, inode.ino.0)?;
        if old.is_data() {
            fs.sit.invalidate(&[old])?;
        }
        if old != BlockAddr::NULL {
            fs.unbook(1, 0, 0);
            let mut a = inode.attr();
            a.blocks = a.blocks.saturating_sub(8);
        }
        Ok(())
    }

    /// Whether data may lie at `new`.
    fn check_new(&self, inode: &Inode, new: BlockAddr) -> Result<()> {
        let fs = self.fs;
        if new == BlockAddr::COMPRESS {
            return Err(Error::corrupt("a compressed cluster on a volume without compression"));
        }
        fs.check_data_addr(new, inode.ino.0)?;
        if new.is_data() && (self.chain_is_in(new) || fs.sit.holds_nodes(new)?) {
            return Err(Error::corrupt("data among nodes").at_block(new).in_inode(inode.ino));
        }
        Ok(())
    }

    /// Gives block `new` (or a reservation) to slot `slot` of node `nid`, a page that has none.
    fn take_block(&self, inode: &Inode, nid: Nid, slot: usize, new: BlockAddr) -> Result<()> {
        let fs = self.fs;
        fs.book(1, 0, 0)?;
        inode.attr().blocks += 8;
        if !new.is_data() {
            return Ok(());
        }
        if fs.sit.is_valid(new)? {
            self.take_from_owner(inode, new)?;
        }
        fs.sit.claim(new, fs.data_log(inode))?;
        let version = fs.nat.versions(&fs.meta, &[nid])?[0];
        let sum = RawSummary { nid: nid.0.into(), version, ofs_in_node: (slot as u16).into() };
        fs.set_summary(new, sum)
    }

    /// Takes a block from the page that has it so far (Linux moves blocks between files).
    fn take_from_owner(&self, inode: &Inode, blk: BlockAddr) -> Result<()> {
        let fs = self.fs;
        let sum = fs.summary_of(blk)?;
        let (owner, at) = (Nid(sum.nid.get()), sum.ofs_in_node.get() as usize);
        fs.check_nid(owner, inode.ino.0)?;
        let page = fs.node(owner)?;
        let (ino, is_inode) = (ino_of(page.bytes()), ofs_of(page.bytes()) == 0);
        let same = ino as u64 == inode.ino.0;
        let loaded = if same { None } else { Some(self.load(ino)?) };
        let holder: &Inode = loaded.as_deref().unwrap_or(inode);
        let w = at + if is_inode { fi(holder).addr_base() } else { 0 };
        if w >= FOOTER_OFFSET / 4 || BlockAddr(word(page.bytes(), w)) != blk {
            let rule = "in use, and not by the node that its summary names";
            return Err(Error::corrupt(rule).at_block(blk).at(owner.place()));
        }
        fs.modify_node(owner, |p| set_word(p, w, BlockAddr::NULL.0))?;
        self.drop_page(holder, blk)?;
        fi(holder).map.lock().invalidate(0, u64::MAX);
        fs.store_inode(holder)
    }
}

impl F2fs {
    /// The owner of a block.
    fn summary_of(&self, blk: BlockAddr) -> Result<RawSummary> {
        let (seg, i) = self.sit.place(blk);
        for log in self.cursegs.all() {
            let c = self.cursegs.lock(log);
            if c.segno == seg {
                return Ok(c.sum.entries[i]);
            }
        }
        let page = self.meta.read(self.sb.ssa_blkaddr + seg.0)?;
        let at = i * SUMMARY_SIZE;
        zerocopy::FromBytes::read_from_prefix(&page.bytes()[at..])
            .map(|r| r.0)
            .map_err(|_| Error::corrupt("SSA block"))
    }

    /// Sets the owner of a block of data. A log may be in that segment only where nothing will be written.
    fn set_summary(&self, blk: BlockAddr, sum: RawSummary) -> Result<()> {
        let (seg, i) = self.sit.place(blk);
        for log in self.cursegs.all() {
            let mut c = self.cursegs.lock(log);
            if c.segno == seg {
                c.sum.entries[i] = sum;
            }
        }
        self.meta.modify(self.sb.ssa_blkaddr + seg.0, |page| {
            if let Ok(block) = RawSummaryBlock::mut_from_bytes(page) {
                block.entries[i] = sum;
                block.entry_type = SUM_TYPE_DATA;
            }
        })
    }
}
