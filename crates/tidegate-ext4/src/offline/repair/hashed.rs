//! Rebuilds a directory in new blocks, with a hash tree if it has more than one block.

use super::Repair;
use super::disk::Stage;
use super::entries::{Entry, len_of};
use super::map::Run;
use crate::format::crc::crc32c;
use crate::format::hash::DirHash;
use crate::format::raw::*;
use crate::offline::node::{Kind, Node};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_vfs::{Error, ErrorKind, Result};

/// A new entry of a directory.
pub(super) struct NewEntry {
    pub(super) name: Vec<u8>,
    pub(super) ino: u32,
    pub(super) kind: u8,
}

/// Bytes before the list of a tree's root.
const ROOT_LIST: usize = DX_ROOT_INFO + 8;

impl Repair<'_, '_> {
    /// Rebuilds the directories that need it, with their new entries.
    pub(super) fn remake_dirs(&mut self) -> Result<()> {
        for (ino, more) in std::mem::take(&mut self.remake) {
            let mut new = Vec::new();
            let done = self.remake_dir(ino, more, &mut new);
            if done.is_err() {
                for block in new {
                    self.used.clear(block);
                    self.disk.forget(block);
                }
            }
            self.or_left(done, &format!("directory {ino}"))?;
        }
        Ok(())
    }

    /// Rebuilds one directory; adds the blocks that it takes to `new`.
    fn remake_dir(&mut self, ino: u32, more: Vec<NewEntry>, new: &mut Vec<u64>) -> Result<()> {
        let mut n = self.node(ino)?;
        if n.flags().intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD) {
            let what = format!("repair of directory {ino}, whose names are encrypted or fold case");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let before = self.map(&n, false)?;
        let mut all = self.kept_entries(&n)?;
        let mut names: BTreeSet<Vec<u8>> = all.iter().map(|e| e.name.clone()).collect();
        let mut tried = BTreeMap::new();
        for mut e in more {
            e.name = free_name(e.name, &names, &mut tried);
            names.insert(e.name.clone());
            all.push(e);
        }
        let mut flags = n.flags() - InodeFlags::INDEX;
        let blocks = match self.hashed(&n, &all) {
            Some(blocks) => {
                flags |= InodeFlags::INDEX;
                blocks
            }
            None => self.linear(&n, &all),
        };
        let mut runs: Vec<Run> = Vec::new();
        for (at, bytes) in blocks.into_iter().enumerate() {
            let block = self.alloc_block()?;
            new.push(block);
            self.disk.put(block, Stage::Fresh, bytes)?;
            match runs.last_mut() {
                Some(r) if r.start + r.len == block => r.len += 1,
                _ => runs.push(Run { at: at as u64, start: block, len: 1, unwritten: false }),
            }
        }
        n.raw.i_flags = flags.bits().into();
        let end = runs.last().map_or(0, Run::end);
        super::fields::set_size(&mut n, end * u64::from(self.sb.block_size));
        self.build_map(&mut n, &runs)?;
        let old = before.runs.iter().flat_map(|r| r.start..r.start + r.len);
        old.chain(before.nodes.iter().copied()).for_each(|b| self.used.clear(b));
        Ok(())
    }

    /// The entries of a directory, without "." and "..".
    fn kept_entries(&mut self, n: &Node) -> Result<Vec<NewEntry>> {
        let (mut all, end) = (Vec::new(), self.entries_end());
        for (at, block) in self.dir_blocks(n.ino)?.into_iter().enumerate() {
            let bytes = self.disk.block(block)?;
            let in_tree = n.has(InodeFlags::INDEX) && (is_dx_node(&bytes) || at == 0 && is_dx_root(&bytes));
            if in_tree {
                continue;
            }
            let entries = self.entries(&bytes[..end]).entries.into_iter();
            let named = entries.filter(|e| e.name != b"." && e.name != b"..");
            all.extend(named.map(|e| NewEntry { name: e.name, ino: e.ino, kind: e.kind }));
        }
        Ok(all)
    }

    fn dots(&self, n: &Node) -> [NewEntry; 2] {
        let kind = if self.has_types() { Kind::Dir as u8 } else { 0 };
        let parent = self.state(n.ino).parent;
        [
            NewEntry { name: b".".to_vec(), ino: n.ino, kind },
            NewEntry { name: b"..".to_vec(), ino: parent, kind },
        ]
    }

    /// Blocks of entries, one behind the other.
    pub(super) fn linear(&self, n: &Node, all: &[NewEntry]) -> Vec<Vec<u8>> {
        let dots = self.dots(n);
        let end = self.entries_end();
        let (mut blocks, mut now, mut at) = (Vec::new(), Vec::new(), 0);
        for e in dots.iter().chain(all) {
            if at + len_of(&e.name) > end {
                blocks.push(self.dir_block(n.seed, &now));
                (now, at) = (Vec::new(), 0);
            }
            now.push(Entry { at, ino: e.ino, name: e.name.clone(), kind: e.kind });
            at += len_of(&e.name);
        }
        blocks.push(self.dir_block(n.seed, &now));
        blocks
    }

    /// A hash tree with its blocks; none where one block is enough, or where no tree is possible.
    fn hashed(&self, n: &Node, all: &[NewEntry]) -> Option<Vec<Vec<u8>>> {
        let total: usize = 24 + all.iter().map(|e| len_of(&e.name)).sum::<usize>();
        if total <= self.entries_end() || !self.sb.compat.contains(Compat::DIR_INDEX) {
            return None;
        }
        let raw = &self.sb.raw;
        let version = if raw.s_def_hash_version <= 2 { raw.s_def_hash_version } else { 1 };
        let unsigned = raw.s_flags.get() & FLAGS_UNSIGNED_HASH != 0;
        let hash = DirHash::new(version, unsigned, raw.s_hash_seed.map(|w| w.get()))?;
        let mut sorted: Vec<((u32, u32), &NewEntry)> = all.iter().map(|e| (hash.of(&e.name), e)).collect();
        sorted.sort_by_key(|e| e.0);
        // Block 0 is the root.
        let mut blocks = vec![Vec::new()];
        let mut level = self.leaves(n, &sorted, &mut blocks);
        let tail = if self.sb.has_csum() { DX_ENTRY } else { 0 };
        let bs = self.sb.block_size as usize;
        let in_root = (bs - ROOT_LIST - tail) / DX_ENTRY;
        let in_node = (bs - DX_NODE_ENTRIES - tail) / DX_ENTRY;
        let most = if self.sb.incompat.contains(Incompat::LARGEDIR) { DX_MAX_INDIRECT } else { 1 };
        let mut levels = 0;
        while level.len() > in_root {
            if levels == most {
                return None;
            }
            let mut above = Vec::new();
            for part in level.chunks(in_node) {
                let mut bytes = vec![0; bs];
                bytes[4..6].copy_from_slice(&(bs as u16).to_le_bytes());
                self.put_list(n, &mut bytes, DX_NODE_ENTRIES, in_node, part);
                above.push((part[0].0, blocks.len() as u32));
                blocks.push(bytes);
            }
            (level, levels) = (above, levels + 1);
        }
        let mut root = vec![0; bs];
        let dots = self.dots(n);
        for (e, (at, len)) in dots.iter().zip([(0, 12), (12, bs - 12)]) {
            let one =
                self.dir_block(n.seed, &[Entry { at: 0, ino: e.ino, name: e.name.clone(), kind: e.kind }]);
            root[at..at + 12].copy_from_slice(&one[..12]);
            root[at + 4..at + 6].copy_from_slice(&(len as u16).to_le_bytes());
        }
        root[DX_ROOT_INFO + 4] = version;
        root[DX_ROOT_INFO + 5] = 8;
        root[DX_ROOT_INFO + 6] = levels;
        self.put_list(n, &mut root, ROOT_LIST, in_root, &level);
        blocks[0] = root;
        Some(blocks)
    }

    /// Blocks of entries in the order of their hashes; for each its first hash and its number.
    fn leaves(
        &self,
        n: &Node,
        sorted: &[((u32, u32), &NewEntry)],
        blocks: &mut Vec<Vec<u8>>,
    ) -> Vec<(u32, u32)> {
        // The block keeps room for some more names.
        let end = self.entries_end() * 4 / 5;
        let (mut level, mut now, mut at, mut first, mut last) = (Vec::new(), Vec::new(), 0, 0, None);
        for ((hash, _), e) in sorted {
            if at + len_of(&e.name) > end && !now.is_empty() {
                level.push((first, blocks.len() as u32));
                blocks.push(self.dir_block(n.seed, &now));
                (now, at) = (Vec::new(), 0);
                // The lowest bit says that names of this hash began in an earlier block.
                first = hash | u32::from(last == Some(*hash));
            }
            now.push(Entry { at, ino: e.ino, name: e.name.clone(), kind: e.kind });
            at += len_of(&e.name);
            last = Some(*hash);
        }
        level.push((first, blocks.len() as u32));
        blocks.push(self.dir_block(n.seed, &now));
        level
    }

    /// Writes the list of a node: counts, the first hash of each block, and the checksum.
    fn put_list(&self, n: &Node, bytes: &mut [u8], at: usize, limit: usize, list: &[(u32, u32)]) {
        put_dx_list(bytes, at, limit as u16, list);
        let sum = crc32c(n.seed, &bytes[..at + list.len() * DX_ENTRY]);
        if self.sb.has_csum()
            && let Some(tail) = at_mut::<RawDxTail>(bytes, at + limit * DX_ENTRY)
        {
            *tail = RawDxTail { dt_reserved: 0.into(), dt_checksum: crc32c(sum, &[0; 8]).into() };
        }
    }
}

/// The name itself, or the first similar name that is free. `tried` has, for each name, the number from which on it may be.
fn free_name(name: Vec<u8>, names: &BTreeSet<Vec<u8>>, tried: &mut BTreeMap<Vec<u8>, u64>) -> Vec<u8> {
    if !names.contains(&name) {
        return name;
    }
    let next = tried.entry(name.clone()).or_default();
    loop {
        let end = format!("~{next}");
        let keep = name.len().min(NAME_LEN - end.len());
        let new = [&name[..keep], end.as_bytes()].concat();
        *next += 1;
        if !names.contains(&new) {
            return new;
        }
    }
}
