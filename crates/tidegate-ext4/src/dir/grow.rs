//! Changes of the hash tree: blocks of entries split by hash, nodes split in the middle, the root grows a
//! level. A split takes the blocks that it changes into the transaction before it begins: if a block cannot
//! be read, the tree stays as it was.

use super::block::{put_dx_csum, root_entries};
use super::change::{NewEntry, entry_len, put_entry, set_rec_len};
use super::entry::entries;
use super::htree::{Node, Way};
use crate::format::hash::DirHash;
use crate::format::raw::*;
use crate::format::units::FileBlock;
use crate::inode::{Ext4Inode, ei, own};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use tidegate_vfs::{Error, ErrorKind, FileType, Inode, Result};

/// An entry of a block that is split.
struct Owned {
    hash: u32,
    ino: u32,
    file_type: u8,
    name: Vec<u8>,
}

impl Owned {
    fn len(&self) -> usize {
        entry_len(self.name.len())
    }
}

impl Ext4 {
    /// Number of entries that fit into a node whose list begins at byte `at`.
    fn dx_limit(&self, at: usize) -> usize {
        let tail = if self.sb.has_csum() { DX_ENTRY } else { 0 };
        (self.sb.block_size as usize - at - tail) / DX_ENTRY
    }

    /// Makes a directory with a single block hashed: its entries go to a block of their own, and the first
    /// block becomes the root. False where that block is malformed.
    pub(super) fn grow_tree(&self, handle: &mut Handle<'_>, dir: &Inode) -> Result<bool> {
        let version = self.sb.raw.s_def_hash_version;
        let before = ei(dir);
        let Some(hash) = self.new_tree_hash() else { return Ok(false) };
        let first = self.tree_block(&before, dir.size(), FileBlock(0))?;
        let block = first.block.to_vec();
        let dots = entry_len(1);
        let dot = read_at::<RawDirEntry>(&block, 0);
        let dotdot_is_second =
            dot.is_some_and(|e| e.stride() == dots) && block[dots + DIRENT_HEAD..].starts_with(b"..");
        if !dotdot_is_second {
            return Ok(false);
        }
        let all = self.owned_entries(&before, FileBlock(0), &block, &hash)?;
        handle.hold(first.addr)?;
        let (n, addr) = self.append_dir_block(handle, dir)?;
        handle.begin_step();
        self.with_own(dir, |own| own.flags |= InodeFlags::INDEX);
        dir.attr().flags |= InodeFlags::INDEX.bits();
        let own = ei(dir);
        let moved: Vec<Owned> = all.into_iter().filter(|e| !matches!(&e.name[..], b"." | b"..")).collect();
        self.write_entries(handle, &own, addr, &moved)?;
        let mut root = vec![0; block.len()];
        root[..dots + entry_len(2)].copy_from_slice(&block[..dots + entry_len(2)]);
        let bs = root.len();
        set_rec_len(&mut root, dots, bs - dots);
        root[DX_ROOT_INFO + 4] = version;
        root[DX_ROOT_INFO + 5] = 8;
        let at = root_entries(&root);
        self.put_dx_list(&mut root, at, &[(0, n.0 as u32)]);
        self.seal_node(&own, &mut root, at);
        handle.write(first.addr, |b| b.copy_from_slice(&root))?;
        handle.end_step();
        Ok(true)
    }

    fn with_own(&self, inode: &Inode, f: impl FnOnce(&mut Ext4Inode)) {
        f(Arc::make_mut(&mut own(inode).write()));
    }

    fn seal_node(&self, dir: &Ext4Inode, block: &mut [u8], at: usize) {
        if self.sb.has_csum() {
            put_dx_csum(dir.csum_seed, block, at);
        }
    }

    /// Writes a node's list: the counts, and hash and block of each entry.
    fn put_dx_list(&self, block: &mut [u8], at: usize, list: &[(u32, u32)]) {
        put_dx_list(block, at, self.dx_limit(at) as u16, list);
    }

    fn list_of(node: &Node) -> Vec<(u32, u32)> {
        (0..node.count).map(|n| node.entry(n)).map(|(hash, child)| (hash, child as u32)).collect()
    }

    fn store_node(
        &self,
        handle: &mut Handle<'_>,
        dir: &Ext4Inode,
        node: &Node,
        list: &[(u32, u32)],
    ) -> Result<()> {
        handle.write(node.addr, |block| {
            self.put_dx_list(block, node.at, list);
            self.seal_node(dir, block, node.at);
        })
    }

    /// Adds an entry to a hashed directory.
    pub(super) fn add_hashed(&self, handle: &mut Handle<'_>, dir: &Inode, e: NewEntry<'_>) -> Result<()> {
        loop {
            let before = ei(dir);
            let Some(way) = self.way_to(&before, dir.size(), e.name)? else {
                let what = "its names are hashed in a way that is not known";
                return Err(Error::new(ErrorKind::Unsupported, what).in_dir(dir.ino));
            };
            let leaf = self.tree_block(&before, dir.size(), way.leaf())?;
            if self.put_in_block(handle, &before, way.leaf(), leaf.addr, e)? {
                return Ok(());
            }
            if !self.make_room(handle, dir, &way)? {
                continue;
            }
            self.split_leaf(handle, dir, &way)?;
        }
    }

    /// Makes room in the lowest node for one more entry; true if it had room.
    fn make_room(&self, handle: &mut Handle<'_>, dir: &Inode, way: &Way) -> Result<bool> {
        let full = |n: &Node| n.count >= self.dx_limit(n.at);
        let nodes = &way.nodes;
        if !full(&nodes[nodes.len() - 1]) {
            return Ok(true);
        }
        // The topmost node of the full ones that reach down to the lowest node.
        let top = nodes.iter().rposition(|n| !full(n)).map_or(0, |n| n + 1);
        if top == 0 {
            return self.add_level(handle, dir, &nodes[0], nodes.len()).map(|()| false);
        }
        let (parent, node) = (&nodes[top - 1], &nodes[top]);
        [parent, node].into_iter().try_for_each(|n| handle.hold(n.addr))?;
        let (n, addr) = self.append_dir_block(handle, dir)?;
        handle.begin_step();
        let now = ei(dir);
        let mut list = Self::list_of(node);
        let upper = list.split_off(list.len() / 2);
        self.write_node(handle, &now, addr, &upper)?;
        self.store_node(handle, &now, node, &list)?;
        let mut above = Self::list_of(parent);
        above.insert(parent.slot + 1, (upper[0].0, n.0 as u32));
        self.store_node(handle, &now, parent, &above)?;
        handle.end_step();
        Ok(false)
    }

    /// Writes a new node.
    fn write_node(
        &self,
        handle: &mut Handle<'_>,
        dir: &Ext4Inode,
        addr: crate::format::units::BlockAddr,
        list: &[(u32, u32)],
    ) -> Result<()> {
        handle.create(addr, |block| {
            let all = block.len();
            set_rec_len(block, 0, all);
            self.put_dx_list(block, DX_NODE_ENTRIES, list);
            self.seal_node(dir, block, DX_NODE_ENTRIES);
        })
    }

    /// Moves the root's entries to a node below it.
    fn add_level(&self, handle: &mut Handle<'_>, dir: &Inode, root: &Node, levels: usize) -> Result<()> {
        let deepest = if self.sb.incompat.contains(Incompat::LARGEDIR) { DX_MAX_INDIRECT } else { 1 };
        if levels > usize::from(deepest) {
            return Err(Error::new(ErrorKind::DirectoryFull, "its hash tree is full").in_dir(dir.ino));
        }
        handle.hold(root.addr)?;
        let (n, addr) = self.append_dir_block(handle, dir)?;
        handle.begin_step();
        let now = ei(dir);
        self.write_node(handle, &now, addr, &Self::list_of(root))?;
        handle.write(root.addr, |block| {
            block[DX_ROOT_INFO + 6] += 1;
            self.put_dx_list(block, root.at, &[(0, n.0 as u32)]);
            self.seal_node(&now, block, root.at);
        })?;
        handle.end_step();
        Ok(())
    }

    fn owned_entries(
        &self,
        dir: &Ext4Inode,
        n: FileBlock,
        block: &[u8],
        hash: &DirHash,
    ) -> Result<Vec<Owned>> {
        let owned = |e: super::entry::Dirent<'_>| Owned {
            hash: hash.of(e.name).0,
            ino: e.ino,
            file_type: block[e.offset + 7],
            name: e.name.to_vec(),
        };
        entries(block, self.dir_rules(dir), n).map(|e| e.map(owned)).collect()
    }

    /// Writes a block of entries.
    fn write_entries(
        &self,
        handle: &mut Handle<'_>,
        dir: &Ext4Inode,
        addr: crate::format::units::BlockAddr,
        list: &[Owned],
    ) -> Result<()> {
        let mut block = self.empty_block();
        let (end, mut at) = (self.entries_end(), 0);
        for (i, e) in list.iter().enumerate() {
            let len = if i + 1 == list.len() { end - at } else { e.len() };
            let new = NewEntry { name: &e.name, ino: e.ino, file_type: FileType::Regular };
            put_entry(&mut block, at, len, new, false);
            block[at + 7] = e.file_type;
            at += len;
        }
        self.seal_block(dir, &mut block);
        handle.create(addr, |b| b.copy_from_slice(&block))
    }

    /// Splits the block that a way leads to: entries with larger hashes go to a new block.
    fn split_leaf(&self, handle: &mut Handle<'_>, dir: &Inode, way: &Way) -> Result<()> {
        let before = ei(dir);
        let leaf = self.tree_block(&before, dir.size(), way.leaf())?;
        let mut list = self.owned_entries(&before, way.leaf(), &leaf.block, &way.hash)?;
        list.sort_by_key(|e| e.hash);
        let all: usize = list.iter().map(Owned::len).sum();
        let (mut middle, mut bytes) = (0, 0);
        while middle < list.len() && bytes + list[middle].len() <= all / 2 {
            bytes += list[middle].len();
            middle += 1;
        }
        let middle = middle.clamp(1, list.len().saturating_sub(1).max(1));
        if list.len() < 2 {
            return Err(Error::new(ErrorKind::NoSpace, "a block cannot be split").in_dir(dir.ino));
        }
        let upper = list.split_off(middle);
        let continued = u32::from(list[list.len() - 1].hash == upper[0].hash);
        let node = &way.nodes[way.nodes.len() - 1];
        [leaf.addr, node.addr].into_iter().try_for_each(|at| handle.hold(at))?;
        let (n, addr) = self.append_dir_block(handle, dir)?;
        handle.begin_step();
        let now = ei(dir);
        self.write_entries(handle, &now, addr, &upper)?;
        self.write_entries(handle, &now, leaf.addr, &list)?;
        let mut index = Self::list_of(node);
        index.insert(node.slot + 1, (upper[0].hash | continued, n.0 as u32));
        self.store_node(handle, &now, node, &index)?;
        handle.end_step();
        Ok(())
    }
}
