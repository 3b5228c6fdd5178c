//! Recovering an inode: its attributes, its inline parts, its xattr node.

use super::RollForward;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::checksum::checksum_holds;
use crate::inode::{NodeId, fi};
use crate::node::{Freed, ino_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{BioFlags, PageBuf};
use tidegate_rt::Timespec;
use tidegate_vfs::{Error, FileType, Inode, Result};
use zerocopy::FromBytes;

fn raw_of(page: &[u8]) -> Result<&RawInode> {
    RawInode::ref_from_prefix(page).map(|r| r.0).map_err(|_| Error::corrupt("short inode"))
}

impl RollForward<'_> {
    fn read_node_block(&self, at: BlockAddr) -> Result<PageBuf> {
        let page = self
            .fs
            .queue
            .read_wait(at.sector(), 1, BioFlags::META)
            .map_err(|e| Error::device_at(e, "reading node", at.place()))?;
        Ok(page)
    }

    /// Makes inode `ino` from its node at `at`, without its data, which follows. False for a file that is not
    /// regular, which fsync never leaves for recovery.
    pub(super) fn make_inode(&self, ino: u32, at: BlockAddr) -> Result<bool> {
        let fs = self.fs;
        let mut page = self.read_node_block(at)?;
        let raw = raw_of(&page)?;
        let regular = FileType::from_mode(raw.i_mode.get() as u32) == Some(FileType::Regular);
        if !regular || ino_of(&page) != ino || !checksum_holds(&fs.sb, &page) {
            return Ok(false);
        }
        let extra = raw.i_inline & inline::EXTRA_ATTR != 0;
        let isize = if extra { usize::from(RawExtraAttr::of(&page).i_extra_isize.get()) } else { 0 };
        if isize > 64 {
            return Err(Error::corrupt("i_extra_isize").in_inode(ino));
        }
        let raw = RawInode::mut_from_prefix(&mut page).map_err(|_| Error::corrupt("short inode"))?.0;
        raw.i_inline &= inline::XATTR | inline::EXTRA_ATTR;
        (raw.i_size, raw.i_blocks, raw.i_links, raw.i_xattr_nid) = (0.into(), 1.into(), 1.into(), 0.into());
        raw.i_ext = RawExtent { fofs: 0.into(), blk: 0.into(), len: 0.into() };
        page[I_ADDR_OFFSET + isize..I_NID_OFFSET].fill(0);
        if let Some(nids) = RawInodeBlock::nids_mut(&mut page) {
            nids.fill(0.into());
        }
        fs.book(1, 1, 1)?;
        fs.nat.claim(&fs.meta, Nid(ino))?;
        fs.insert_node(Nid(ino), page);
        Ok(true)
    }

    /// Drops the node trees that inode `ino` has in the checkpoint, but not in its last version at `at`.
    pub(super) fn drop_old_subtrees(&self, ino: u32, at: BlockAddr) -> Result<bool> {
        let page = self.read_node_block(at)?;
        let inode = self.load(ino)?;
        if inode.file_type != FileType::Regular {
            return Ok(false);
        }
        self.drop_subtrees(&inode, |now, k| now != RawInodeBlock::nids(&page)[k].get())?;
        self.fs.store_inode(&inode)?;
        Ok(true)
    }

    /// Drops the node trees for which `gone` is true; `gone` gets the node id and the index among the five of
    /// an inode.
    fn drop_subtrees(&self, inode: &Inode, gone: impl Fn(u32, usize) -> bool) -> Result<()> {
        for k in 0..5 {
            let node = self.fs.node_of(inode.nid(), inode.ino.0)?;
            let now = RawInodeBlock::nids(node.bytes())[k].get();
            if now != 0 && gone(now, k) {
                self.fs.drop_subtree(inode, k)?;
            }
        }
        Ok(())
    }

    /// Takes over an inode: attributes, inline parts, the addresses in it. Only the `last` inode node of a
    /// file tells that the file has no xattr node: in the log, an xattr node may come before an inode that
    /// does not name it yet.
    pub(super) fn recover_inode(&self, inode: &Arc<Inode>, page: &[u8], last: bool) -> Result<()> {
        let (fs, f) = (self.fs, fi(inode));
        if !checksum_holds(&fs.sb, page) {
            return Err(Error::corrupt("the checksum does not match"));
        }
        let raw = raw_of(page)?;
        let extra = raw.i_inline & inline::EXTRA_ATTR != 0;
        if fs.layout_of(page, raw).map_err(Error::corrupt)? != (f.extra_words, f.inline_xattr_words()) {
            return Err(Error::corrupt("its layout changed"));
        }
        fs.check_inode(raw, FileType::Regular, f).map_err(Error::corrupt)?;
        let isize = f.extra_words * 4;
        if last && raw.i_xattr_nid.get() == 0 && f.xattr_nid.load(Relaxed) != 0 {
            while let Freed::Busy(nid) = fs.free_xattr_node(inode)? {
                fs.wait_on_node(nid);
            }
        }
        self.drop_subtrees(inode, |_, k| RawInodeBlock::nids(page)[k].get() == 0)?;
        self.recover_inline_xattr(inode, page, raw)?;
        f.advise.store(raw.i_advise, Relaxed);
        f.set_inline(inline::PIN_FILE, raw.i_inline & inline::PIN_FILE != 0);
        // In a file this holds `i_gc_failures`.
        f.depth.store(raw.i_current_depth.get(), Relaxed);
        let in_inode = raw.i_inline & inline::DATA != 0;
        self.recover_inline_data(inode, page, in_inode.then_some(raw))?;
        if !in_inode {
            let base = f.addr_base();
            let wanted: Vec<BlockAddr> =
                (0..f.addrs_per_inode()).map(|i| BlockAddr(word(page, base + i))).collect();
            self.recover_addresses(inode, 0, &wanted)?;
        }
        if extra {
            let area = I_ADDR_OFFSET..I_ADDR_OFFSET + isize;
            fs.modify_node(inode.nid(), |p| p[area.clone()].copy_from_slice(&page[area.clone()]))?;
        }
        {
            let time = |s: u64, n: u32| Timespec { secs: s as i64, nanos: n.min(999_999_999) };
            let mut a = inode.attr();
            a.mode = raw.i_mode.get() as u32 & 0o7777;
            (a.uid, a.gid) = (raw.i_uid.get(), raw.i_gid.get());
            (a.size, a.flags) = (raw.i_size.get(), raw.i_flags.get());
            a.atime = time(raw.i_atime.get(), raw.i_atime_nsec.get());
            a.mtime = time(raw.i_mtime.get(), raw.i_mtime_nsec.get());
            a.ctime = time(raw.i_ctime.get(), raw.i_ctime_nsec.get());
        }
        fs.store_inode(inode)
    }

    fn recover_inline_xattr(&self, inode: &Inode, page: &[u8], raw: &RawInode) -> Result<()> {
        let f = fi(inode);
        if raw.i_inline & inline::XATTR == 0 || !f.has_inline(inline::XATTR) {
            return Ok(());
        }
        let area = f.inline_xattr_area();
        self.fs.modify_node(inode.nid(), |p| p[area.clone()].copy_from_slice(&page[area.clone()]))
    }

    /// Takes over the attributes kept in a node of their own.
    pub(super) fn recover_xattr_node(&self, inode: &Arc<Inode>, page: &[u8]) -> Result<()> {
        let (fs, f) = (self.fs, fi(inode));
        let fill =
            |p: &mut [u8]| p[..VALID_XATTR_BLOCK_SIZE].copy_from_slice(&page[..VALID_XATTR_BLOCK_SIZE]);
        match f.xattr_nid.load(Relaxed) {
            0 => {
                let nid = fs.new_node(Some(inode.nid().0), XATTR_NODE_OFFSET, true, fill)?;
                f.xattr_nid.store(nid.0, Relaxed);
                inode.attr().blocks += 8;
                fs.store_inode(inode)
            }
            nid => {
                fs.xattr_node(Nid(nid), inode.ino.0)?;
                fs.modify_node(Nid(nid), fill)
            }
        }
    }
}
