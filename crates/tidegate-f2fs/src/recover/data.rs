//! Recovering the addresses of a file's data.

use super::RollForward;
use crate::dnode::start_of_node;
use crate::inode::fi;
use crate::node::{ino_of, ofs_of, set_word, word};
use crate::raw::*;
use crate::sbi::F2fs;
use crate::units::{BlockAddr, Nid};
use std::sync::Arc;
use tidegate_vfs::{Error, Inode, Result};

impl RollForward<'_> {
    /// Takes over a direct node. With `grows`, the file reaches as far as the node has pages.
    pub(super) fn recover_dnode(&self, inode: &Arc<Inode>, page: &[u8], grows: bool) -> Result<()> {
        let f = fi(inode);
        let start = start_of_node(ofs_of(page), f.addrs_per_inode() as u64)
            .ok_or_else(|| Error::corrupt(format!("node {} has no place in a file", ofs_of(page))))?;
        if f.has_inline(inline::DATA) {
            return Ok(()); // an inode that follows in the chain makes room for it first
        }
        let wanted: Vec<BlockAddr> = (0..ADDRS_PER_BLOCK).map(|i| BlockAddr(word(page, i))).collect();
        self.recover_addresses(inode, start, &wanted)?;
        let used = wanted.iter().rposition(|a| *a != BlockAddr::NULL).map_or(0, |i| start + i as u64 + 1);
        if grows && !f.has_advise(advise::KEEP_SIZE) {
            let mut a = inode.attr();
            a.size = a.size.max(used * BLOCK_SIZE as u64);
        }
        self.fs.store_inode(inode)
    }

    /// Makes pages from `start` on lie where `wanted` says. The inode is stored by the caller.
    pub(super) fn recover_addresses(&self, inode: &Inode, start: u64, wanted: &[BlockAddr]) -> Result<()> {
        let fs = self.fs;
        let mut at = 0;
        while at < wanted.len() {
            let index = start + at as u64;
            if let crate::dnode::Found::Hole(n) = fs.find_dnode(inode, index)? {
                // A node is made only for something to put in it.
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
            let olds = fs.addresses(inode, &d, n)?;
            let mut news = olds.clone();
            for i in 0..n {
                let (old, new) = (olds[i], wanted[at + i]);
                if old == new {
                    continue;
                }
                self.replace(inode, d.nid, d.slot + i, old, new)?;
                news[i] = new;
            }
            if news != olds {
                fi(inode).map.lock().invalidate(index, n as u64);
                fs.update_addresses(inode, &d, n, |i, _| news[i])?;
            }
            at += n;
        }
        Ok(())
    }

    /// Books one page's move from `old` to `new`: slot `slot` of node `nid`.
    fn replace(&self, inode: &Inode, nid: Nid, slot: usize, old: BlockAddr, new: BlockAddr) -> Result<()> {
        let fs = self.fs;
        if new == BlockAddr::COMPRESS {
            return Err(Error::corrupt("a compressed cluster on a volume without compression"));
        }
        fs.check_data_addr(new, inode.ino.0)?;
        fs.check_data_addr(old, inode.ino.0)?;
        if old.is_data() {
            fs.sit.invalidate(&[old])?;
        }
        match (old == BlockAddr::NULL, new == BlockAddr::NULL) {
            (true, false) => {
                fs.book(1, 0, 0)?;
                inode.attr().blocks += 8;
            }
            (false, true) => {
                fs.unbook(1, 0, 0);
                let mut a = inode.attr();
                a.blocks = a.blocks.saturating_sub(8);
            }
            _ => {}
        }
        if new.is_data() {
            if fs.sit.is_valid(new)? {
                self.take_from_owner(inode, nid, slot, new)?;
            }
            fs.sit.claim(new, fs.data_log(inode) as usize)?;
            let version = fs.nat.versions(&fs.meta, &[nid])?[0];
            let sum = RawSummary { nid: nid.0.into(), version, ofs_in_node: (slot as u16).into() };
            fs.set_summary(new, sum)?;
        }
        Ok(())
    }

    /// The block belongs to another page so far (Linux moves blocks between files): that one loses it.
    fn take_from_owner(&self, inode: &Inode, nid: Nid, slot: usize, blk: BlockAddr) -> Result<()> {
        let fs = self.fs;
        let sum = fs.summary_of(blk)?;
        let (owner, at) = (Nid(sum.nid.get()), sum.ofs_in_node.get() as usize);
        fs.check_nid(owner, inode.ino.0)?;
        let page = fs.node(owner)?;
        let (ino, is_inode) = (ino_of(page.bytes()), ofs_of(page.bytes()) == 0);
        if (owner, at) == (nid, slot) {
            fs.sit.invalidate(&[blk])?;
            return Ok(());
        }
        let same = ino as u64 == inode.ino.0;
        let loaded = if same { None } else { Some(self.load(ino)?) };
        let holder: &Inode = loaded.as_deref().unwrap_or(inode);
        let w = at + if is_inode { fi(holder).addr_base() } else { 0 };
        if w < FOOTER_OFFSET / 4 && BlockAddr(word(page.bytes(), w)) == blk {
            fs.modify_node(owner, |p| set_word(p, w, BlockAddr::NULL.0))?;
            fs.unbook(1, 0, 0);
            {
                let mut a = holder.attr();
                a.blocks = a.blocks.saturating_sub(8);
            }
            fi(holder).map.lock().invalidate(0, u64::MAX);
            fs.store_inode(holder)?;
        }
        fs.sit.invalidate(&[blk])
    }
}

impl F2fs {
    /// Who owns a block of a segment that no log works on.
    pub(crate) fn summary_of(&self, blk: BlockAddr) -> Result<RawSummary> {
        let (seg, i) = self.sit.place(blk);
        let page = self.meta.read(self.sb.ssa_blkaddr + seg.0)?;
        let at = i * SUMMARY_SIZE;
        zerocopy::FromBytes::read_from_prefix(&page.bytes()[at..])
            .map(|r| r.0)
            .map_err(|_| Error::corrupt("SSA block"))
    }

    /// Sets who owns a block of data in a segment that no log works on.
    fn set_summary(&self, blk: BlockAddr, sum: RawSummary) -> Result<()> {
        let (seg, i) = self.sit.place(blk);
        self.meta.modify(self.sb.ssa_blkaddr + seg.0, |page| {
            page[i * SUMMARY_SIZE..(i + 1) * SUMMARY_SIZE]
                .copy_from_slice(zerocopy::IntoBytes::as_bytes(&sum));
            page[BLOCK_SIZE - SUM_FOOTER_SIZE] = SUM_TYPE_DATA;
        })
    }
}
