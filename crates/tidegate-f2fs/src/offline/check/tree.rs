//! A file's tree of nodes, down to its block addresses.

use super::device::Block;
use super::dir::DirState;
use super::inode::{Inode, Kind};
use super::usage::Owner;
use super::{Checker, rules};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_vfs::Result;

/// Findings in a file so far.
pub(super) struct FileState {
    ino: u32,
    /// Blocks that i_blocks counts.
    pub(super) blocks: u64,
    /// The count lacks blocks, since a node could not be read.
    pub(super) broken: bool,
    /// One past the last mapped block of the file.
    pub(super) end: u64,
    addrs_per_node: usize,
    compressed: bool,
    released: bool,
    extent: Option<RawExtent>,
    matched: u32,
    /// Set for directories, whose blocks are read.
    pub(super) dir: Option<DirState>,
}

impl FileState {
    pub(super) fn new(i: &Inode, dir: Option<DirState>) -> Self {
        let extent =
            (i.kind != Kind::Special && !i.compressed && i.raw.i_ext.len.get() > 0).then_some(i.raw.i_ext);
        FileState {
            ino: i.ino,
            blocks: 1,
            broken: false,
            end: 0,
            addrs_per_node: i.addrs_per_node,
            compressed: i.compressed,
            released: i.has(inline::COMPRESS_RELEASED),
            extent,
            matched: 0,
            dir,
        }
    }
}

impl Checker<'_> {
    /// Walks everything below the inode, its xattr node excepted.
    pub(super) fn walk_tree(&mut self, i: &Inode, f: &mut FileState) -> Result<()> {
        if i.kind == Kind::Special {
            return Ok(());
        }
        if !i.is_inline() {
            let version = self.nat.entry(i.ino).version;
            self.leaf(f, i.ino, version, i.raw_addrs(), 0)?;
        }
        const NIDS: u32 = NIDS_PER_BLOCK as u32;
        let per_node = i.addrs_per_node as u64;
        let nids: Vec<u32> = i.raw_nids().collect();
        let mut first = i.addrs as u64;
        for n in 0..2 {
            self.direct(f, nids[n as usize], 1 + n, first)?;
            first += per_node;
        }
        for n in 0..2 {
            self.indirect(f, nids[2 + n as usize], 3 + n * (NIDS + 1), first)?;
            first += per_node * NIDS as u64;
        }
        self.double_indirect(f, nids[4], 5 + 2 * NIDS, first)
    }

    /// Checks a direct node. `ofs`: the node's offset in the file's tree; `first`: the first block of the
    /// file that it maps.
    fn direct(&mut self, f: &mut FileState, nid: u32, ofs: u32, first: u64) -> Result<()> {
        let Some(block) = self.child(f, nid, ofs)? else { return Ok(()) };
        let version = self.nat.entry(nid).version;
        self.leaf(f, nid, version, &block[..4 * f.addrs_per_node], first)
    }

    fn indirect(&mut self, f: &mut FileState, nid: u32, ofs: u32, first: u64) -> Result<()> {
        let Some(block) = self.child(f, nid, ofs)? else { return Ok(()) };
        for n in 0..NIDS_PER_BLOCK {
            let first = first + (n * f.addrs_per_node) as u64;
            self.direct(f, le32(&block[..], 4 * n), ofs + 1 + n as u32, first)?;
        }
        Ok(())
    }

    fn double_indirect(&mut self, f: &mut FileState, nid: u32, ofs: u32, first: u64) -> Result<()> {
        let Some(block) = self.child(f, nid, ofs)? else { return Ok(()) };
        let blocks = (NIDS_PER_BLOCK * f.addrs_per_node) as u64;
        for n in 0..NIDS_PER_BLOCK {
            let ofs = ofs + 1 + (n * (NIDS_PER_BLOCK + 1)) as u32;
            self.indirect(f, le32(&block[..], 4 * n), ofs, first + n as u64 * blocks)?;
        }
        Ok(())
    }

    /// A node of the file other than its inode; 0 is a hole.
    pub(super) fn child(&mut self, f: &mut FileState, nid: u32, ofs: u32) -> Result<Option<Block>> {
        if nid == 0 {
            return Ok(None);
        }
        f.blocks += 1;
        if !self.known_nid(nid) {
            f.broken = true;
            self.at(rules::NODE_NID, f.ino, || format!("node offset {ofs}: there is no node {nid}"))?;
            return Ok(None);
        }
        if !self.reached.set(nid) {
            f.broken = true;
            self.at(rules::NODE_SHARED, f.ino, || format!("node {nid} has another place, too"))?;
            return Ok(None);
        }
        let block = self.node(nid, f.ino, ofs)?;
        f.broken |= block.is_none();
        Ok(block)
    }

    /// Checks the addresses in one node. The first of them is of the file's block `first`.
    fn leaf(&mut self, f: &mut FileState, nid: u32, version: u8, addrs: &[u8], first: u64) -> Result<()> {
        for (n, addr) in addrs.as_chunks::<4>().0.iter().enumerate() {
            let (addr, index) = (BlockAddr(u32::from_le_bytes(*addr)), first + n as u64);
            self.check_extent(f, index, addr.0)?;
            match addr {
                BlockAddr::NULL => continue,
                BlockAddr::COMPRESS if f.compressed => {
                    // The mark keeps a block's place in the count until the file's spare blocks are released.
                    self.usage.reserved += u64::from(!f.released);
                    f.end = index + 1;
                    continue;
                }
                BlockAddr::NEW => {
                    self.usage.reserved += 1;
                    f.blocks += 1;
                    f.end = index + 1;
                    continue;
                }
                _ => {}
            }
            f.blocks += 1;
            f.end = index + 1;
            let owner = Owner { ino: f.ino, nid, version, slot: Some(n as u16) };
            if self.claim(addr.0, owner)? && f.dir.is_some() {
                let block = self.dev.block(addr.0)?;
                self.dentry_block(f, index, addr.0, &block)?;
            }
        }
        Ok(())
    }

    fn check_extent(&mut self, f: &mut FileState, index: u64, addr: u32) -> Result<()> {
        let Some(e) = f.extent else { return Ok(()) };
        let Some(n) = index.checked_sub(e.fofs.get() as u64).filter(|n| *n < e.len.get() as u64) else {
            return Ok(());
        };
        if e.blk.get() as u64 + n == addr as u64 {
            f.matched += 1;
            return Ok(());
        }
        f.extent = None; // reported once for each file
        self.at(rules::INODE_EXTENT, f.ino, || {
            let (fofs, blk, len) = (e.fofs, e.blk, e.len);
            format!("i_ext maps {len} blocks at {fofs} to {blk}, but block {index} of the file is {addr}")
        })
    }

    /// Checks that need the whole tree.
    pub(super) fn check_tree(&mut self, i: &Inode, f: &FileState, orphan: bool) -> Result<()> {
        if let Some(e) = f.extent.filter(|e| e.len.get() != f.matched && !f.broken) {
            let what = format!("i_ext covers {} blocks at {}, {} are mapped", e.len, e.fofs, f.matched);
            self.at(rules::INODE_EXTENT, i.ino, || what)?;
        }
        let stored = i.raw.i_blocks.get();
        if stored != f.blocks && !f.broken && !f.compressed {
            let counted = f.blocks;
            self.at(rules::INODE_BLOCKS, i.ino, || format!("i_blocks is {stored}, {counted} are in use"))?;
        }
        let size = i.raw.i_size.get();
        let covered = size.div_ceil(BLOCK_SIZE as u64);
        // Files may keep blocks behind their end (fallocate); directories may not.
        if i.kind == Kind::Directory && !i.is_inline() && f.end > covered && !orphan {
            let end = f.end;
            self.at(rules::INODE_SIZE, i.ino, || {
                format!("i_size is {size}, but block {} is in use", end - 1)
            })?;
        }
        Ok(())
    }
}
