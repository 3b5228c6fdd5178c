//! Lookup through the hash tree: up to three levels of nodes, and blocks of entries below them.
//!
//! Each node lists blocks by their least hash. Names of one hash may fill more than one block: then the
//! node's entry of the next block has the lowest bit of its hash set.

use super::block::root_entries;
use super::entry::{Dirent, Spot, entries, find_checked};
use crate::format::gate::rule;
use crate::format::hash::DirHash;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::map::Place;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use tidegate_jbd2::Verified;
use tidegate_vfs::{Error, Result};
use zerocopy::{FromBytes, FromZeros};

/// A node, and the entry of it that the way goes through.
pub(super) struct Node {
    block: Block,
    pub addr: BlockAddr,
    /// Byte offset of its entries.
    pub at: usize,
    pub count: usize,
    pub slot: usize,
}

impl Node {
    pub(super) fn entry(&self, n: usize) -> (u32, u64) {
        // The node was checked: it has room for all of its entries.
        let e = RawDxEntry::of(&self.block, self.at, n).unwrap_or_else(RawDxEntry::new_zeroed);
        // The node's counts lie in place of the first entry's hash, which counts as the least hash.
        (if n == 0 { 0 } else { e.hash.get() }, e.block.get().into())
    }

    fn child(&self) -> FileBlock {
        FileBlock(self.entry(self.slot).1 & 0x0fff_ffff)
    }
}

/// The way from the root to the block that would have a name.
pub(super) struct Way {
    pub nodes: Vec<Node>,
    /// The hash of names in this directory.
    pub hash: DirHash,
}

impl Way {
    /// The block of entries at the end of the way.
    pub(super) fn leaf(&self) -> FileBlock {
        self.nodes[self.nodes.len() - 1].child()
    }

    /// The least hash of the next block, if there is one.
    pub(super) fn next_hash(&self) -> Option<u32> {
        next_hash(&self.nodes)
    }
}

/// The lowest level at which the way can move on by one entry.
fn may_step(way: &[Node]) -> Option<usize> {
    way.iter().rposition(|n| n.slot + 1 < n.count)
}

fn next_hash(way: &[Node]) -> Option<u32> {
    may_step(way).map(|level| way[level].entry(way[level].slot + 1).0)
}

/// A block of a directory and its address.
pub(super) struct TreeBlock {
    pub block: Block,
    pub addr: BlockAddr,
}

impl Ext4 {
    /// The hash of names in a directory whose root block has hash number `number`; `None` when the hash takes
    /// a key, or is not known.
    pub(super) fn dir_hash(&self, number: u8) -> Option<DirHash> {
        let r = &self.sb.raw;
        let unsigned = r.s_flags.get() & FLAGS_UNSIGNED_HASH != 0;
        DirHash::new(number, unsigned, std::array::from_fn(|i| r.s_hash_seed[i].get()))
    }

    /// The hash of trees that are made. The superblock names no algorithm with unsigned bytes: a flag does.
    pub(super) fn new_tree_hash(&self) -> Option<DirHash> {
        let version = self.sb.raw.s_def_hash_version;
        self.dir_hash(version).filter(|_| version < 3)
    }

    /// Finds `name` through the tree of a directory of `size` bytes. `None` when the tree cannot tell: its
    /// hash is not known, or is not a hash of the names that the caller has.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn find_hashed(
        &self,
        dir: &Ext4Inode,
        size: u64,
        name: &[u8],
    ) -> Result<Option<Option<Spot>>> {
        if dir.flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT) {
            return Ok(None);
        }
        if matches!(name, b"." | b"..") {
            let root = self.tree_block(dir, size, FileBlock(0))?;
            return self.find_in_block(dir, FileBlock(0), &root, name).map(Some);
        }
        let Some(mut way) = self.way_to(dir, size, name)? else { return Ok(None) };
        let hash = way.hash.of(name).0;
        self.search(dir, size, &mut way.nodes, hash, name).map(Some)
    }

    /// The way to the block where `name` would be; `None` when the hash is not known.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn way_to(&self, dir: &Ext4Inode, size: u64, name: &[u8]) -> Result<Option<Way>> {
        self.way_at(dir, size, |hash| hash.of(name).0)
    }

    /// The hash of names in the tree of a directory; `None` when it is not known.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn tree_hash(&self, dir: &Ext4Inode, size: u64) -> Result<Option<DirHash>> {
        let root = self.tree_block(dir, size, FileBlock(0))?;
        Ok(self.hash_of_root(dir, &root)?.map(|(_, hash)| hash))
    }

    fn hash_of_root(&self, dir: &Ext4Inode, root: &TreeBlock) -> Result<Option<(RawDxRootInfo, DirHash)>> {
        let info = RawDxRootInfo::read_from_prefix(&root.block[DX_ROOT_INFO..])
            .map_err(|_| Error::corrupt("no hash tree").in_dir(dir.ino))?
            .0;
        let hash = self.dir_hash(info.hash_version).filter(|_| info.reserved_zero.get() == 0);
        Ok(hash.map(|hash| (info, hash)))
    }

    /// The way to the block for the hash that `wanted` returns; `None` when the directory's hash is not
    /// known.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn way_at(
        &self,
        dir: &Ext4Inode,
        size: u64,
        wanted: impl FnOnce(&DirHash) -> u32,
    ) -> Result<Option<Way>> {
        let root = self.tree_block(dir, size, FileBlock(0))?;
        let Some((info, hash)) = self.hash_of_root(dir, &root)? else { return Ok(None) };
        let deepest = if self.sb.incompat.contains(Incompat::LARGEDIR) { DX_MAX_INDIRECT } else { 1 };
        rule(
            info.indirect_levels <= deepest && info.info_length == 8,
            format_args!("a hash tree of {} levels", info.indirect_levels),
        )
        .map_err(|e| e.in_dir(dir.ino))?;
        let wanted = wanted(&hash);
        let at = root_entries(&root.block);
        let mut nodes = vec![self.node(dir, root, at, wanted)?];
        // A leaf that is a node, too, would be overwritten with entries.
        let mut passed = vec![FileBlock(0)];
        for left in (0..=info.indirect_levels).rev() {
            let child = nodes[nodes.len() - 1].child();
            rule(!passed.contains(&child), "a hash tree that leads back").map_err(|e| e.in_dir(dir.ino))?;
            if left == 0 {
                break;
            }
            passed.push(child);
            let block = self.tree_block(dir, size, child)?;
            nodes.push(self.node(dir, block, DX_NODE_ENTRIES, wanted)?);
        }
        Ok(Some(Way { nodes, hash }))
    }

    /// Searches the block at the end of the way, and the blocks behind it that continue the hash.
    fn search(
        &self,
        dir: &Ext4Inode,
        size: u64,
        way: &mut [Node],
        hash: u32,
        name: &[u8],
    ) -> Result<Option<Spot>> {
        // A tree leads to no block twice, so there are at most as many blocks as the directory has.
        for _ in 0..self.blocks_of(size) {
            let n = way[way.len() - 1].child();
            let block = self.tree_block(dir, size, n)?;
            let found = self.find_in_block(dir, n, &block, name)?;
            if found.is_some() || !self.step_on(dir, size, way, hash)? {
                return Ok(found);
            }
        }
        Err(Error::corrupt("its hash tree leads to a block twice").in_dir(dir.ino))
    }

    /// Moves the way to the next block if that has names of the same hash.
    fn step_on(&self, dir: &Ext4Inode, size: u64, way: &mut [Node], hash: u32) -> Result<bool> {
        if next_hash(way) == Some(hash | 1) { self.step(dir, size, way) } else { Ok(false) }
    }

    /// Moves the way to the next block; false at the end of the tree.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn step(&self, dir: &Ext4Inode, size: u64, way: &mut [Node]) -> Result<bool> {
        let Some(level) = may_step(way) else { return Ok(false) };
        way[level].slot += 1;
        for below in level + 1..way.len() {
            let block = self.tree_block(dir, size, way[below - 1].child())?;
            way[below] = self.node(dir, block, DX_NODE_ENTRIES, 0)?;
        }
        Ok(true)
    }

    /// A node that is not on any way yet.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn any_node(&self, dir: &Ext4Inode, block: TreeBlock, is_root: bool) -> Result<Node> {
        let at = if is_root { root_entries(&block.block) } else { DX_NODE_ENTRIES };
        self.node(dir, block, at, 0)
    }

    /// A checked node, with the way through the last entry of at most `hash`.
    fn node(&self, dir: &Ext4Inode, block: TreeBlock, at: usize, hash: u32) -> Result<Node> {
        let TreeBlock { block, addr } = block;
        let (count, limit) = RawDxCountLimit::of(&block, at);
        rule(
            count > 0 && count <= limit && at + limit * DX_ENTRY <= block.len(),
            format_args!("a node of its hash tree with {count} of {limit} entries"),
        )
        .map_err(|e| e.at(addr.place()).in_dir(dir.ino))?;
        let mut node = Node { block, addr, at, count, slot: 0 };
        let (mut low, mut high) = (1, count);
        while low < high {
            let middle = (low + high) / 2;
            if node.entry(middle).0 > hash { high = middle } else { low = middle + 1 }
        }
        node.slot = low - 1;
        Ok(node)
    }

    /// A block of the directory that the tree leads to.
    pub(super) fn tree_block(&self, dir: &Ext4Inode, size: u64, n: FileBlock) -> Result<TreeBlock> {
        let bad = || Error::corrupt(format!("its hash tree leads to block {n}")).in_dir(dir.ino);
        if n.0 >= self.blocks_of(size) {
            return Err(bad());
        }
        match self.map_blocks(dir, n, 1)?.place {
            Place::Data(addr) => Ok(TreeBlock { block: self.dir_block(dir, n, addr)?, addr }),
            _ => Err(bad()),
        }
    }

    pub(super) fn find_in_block(
        &self,
        dir: &Ext4Inode,
        n: FileBlock,
        block: &TreeBlock,
        name: &[u8],
    ) -> Result<Option<Spot>> {
        let spot = |e: Dirent<'_>| Spot { ino: e.ino, block: n, addr: block.addr, offset: e.offset };
        if block.block.is_verified(Verified::Content) {
            return Ok(find_checked(&block.block, name, self.dir_rules(dir)).map(spot));
        }
        for e in entries(&block.block, self.dir_rules(dir), n) {
            let e = e?;
            if e.name == name {
                return Ok(Some(spot(e)));
            }
        }
        self.blocks.set_verified(block.addr, &block.block, Verified::Content);
        Ok(None)
    }
}
