//! File data inside the inode.

use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::{NodeId, fi, write_fields};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::PageBuf;
use tidegate_rt::Timespec;
use tidegate_vfs::fs::WriteEnd;
use tidegate_vfs::{Inode, PageRun, Result};

impl F2fs {
    /// Page 0 of an inline file; every other page is a hole.
    pub(crate) fn read_inline(&self, inode: &Inode, index: u64) -> Result<PageRun> {
        let mut page = PageBuf::zeroed(1);
        if index == 0 {
            let node = self.node_of(inode.nid(), inode.ino.0)?;
            let data = &node.bytes()[fi(inode).inline_area()];
            page[..data.len()].copy_from_slice(data);
        }
        Ok(PageRun { buf: Arc::new(page), first: 0, pages: 1 })
    }

    /// Writes into an inline file, or into an empty one that then becomes inline. False when the file is
    /// not kept in its inode or would outgrow it.
    pub(crate) fn write_inline_data(
        &self,
        inode: &Inode,
        pos: u64,
        data: &[u8],
        now: Option<Timespec>,
    ) -> Result<bool> {
        let f = fi(inode);
        let area = f.inline_area();
        if !f.has_inline(inline::DATA) || pos + data.len() as u64 > area.len() as u64 {
            return Ok(false);
        }
        let _op = self.cp_rwsem.read();
        let map = f.map.lock();
        f.set_inline(inline::DATA_EXIST, true);
        let size = inode.size();
        let attr = {
            let mut a = inode.attr();
            WriteEnd { end: pos + data.len() as u64, time: now }.apply(&mut a);
            a.clone()
        };
        let at = area.start + pos as usize;
        // Bytes past the end of the file may be anything.
        let gap = area.start + size.min(pos) as usize..at;
        self.modify_node(inode.nid(), |page| {
            f.fsync.inode_changed();
            page[gap.clone()].fill(0);
            page[at..at + data.len()].copy_from_slice(data);
            write_fields(page, &attr, f, map.largest);
        })?;
        Ok(true)
    }

    /// Moves an inline file's data to a block of its own. The block is written before the inode says so:
    /// after a crash one of the two forms is there whole. The caller holds `cp_rwsem`.
    pub(crate) fn convert_inline(&self, inode: &Inode) -> Result<()> {
        let f = fi(inode);
        let map = f.map.lock();
        let nid = inode.nid();
        let size = inode.size();
        let mut block = None;
        if size > 0 && f.has_inline(inline::DATA_EXIST) {
            let mut bytes = self.read_inline(inode, 0)?.bytes().to_vec();
            // Bytes past the end of the file may be anything, and the file may grow over them.
            bytes[(size as usize).min(BLOCK_SIZE)..].fill(0);
            block = Some(self.place_first_block(nid, &bytes)?);
            f.fsync.moved_alone(self.flushes.write_completed());
            inode.attr().blocks += 8;
        }
        f.set_inline(inline::DATA | inline::DATA_EXIST, false);
        let attr = inode.attr().clone();
        self.modify_node(nid, |page| {
            f.fsync.inode_changed();
            page[f.inline_area()].fill(0);
            set_word(page, f.addr_base(), block.unwrap_or(BlockAddr::NULL).0);
            write_fields(page, &attr, f, map.largest);
        })
    }

    /// Zeroes inline data from byte `from` on.
    pub(crate) fn truncate_inline(&self, inode: &Inode, from: u64) -> Result<()> {
        let area = fi(inode).inline_area();
        if from == 0 {
            fi(inode).set_inline(inline::DATA_EXIST, false);
        }
        let start = area.start + (from as usize).min(area.len());
        self.modify_node(inode.nid(), |page| {
            fi(inode).fsync.inode_changed();
            page[start..area.end].fill(0);
        })
    }
}
