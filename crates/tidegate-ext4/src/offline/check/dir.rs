//! Directories: their entries, and the inodes that the entries name.

use super::{Checker, rules};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::node::{Kind, Node};
use std::collections::HashSet;
use tidegate_vfs::Result;

/// An entry of a block.
struct Entry<'a> {
    ino: u32,
    name: &'a [u8],
    kind: u8,
}

impl Checker<'_> {
    /// Every directory whose blocks can be found.
    pub(super) fn check_dirs(&mut self) -> Result<()> {
        for ino in 1..=self.sb.raw.s_inodes_count.get() {
            let state = self.state(ino);
            if state.kind == Some(Kind::Dir)
                && state.sound
                && let Some(node) = self.node(ino)?
            {
                let trees = self.found.trees;
                self.check_dir(&node)?;
                if self.found.trees != trees {
                    self.bad_trees.insert(ino);
                }
            }
        }
        Ok(())
    }

    fn check_dir(&mut self, node: &Node) -> Result<()> {
        let blocks = self.blocks_of(node)?;
        let holes = blocks.iter().enumerate().any(|(n, b)| b.0 != n as u64);
        self.found.require(!holes, rules::DIR_HOLE, || format!("directory {} has a hole", node.ino));
        let mut names = HashSet::new();
        let tree = if node.has(InodeFlags::INDEX) && !holes { self.htree(node, &blocks)? } else { None };
        for (at, block) in blocks {
            if tree.as_ref().is_some_and(|t| t.nodes.contains(&at)) {
                continue;
            }
            let bytes = self.block(block)?;
            self.check_dir_block(node, at, &bytes, &mut names, tree.as_ref().and_then(|t| t.range(at)))?;
        }
        if tree.is_some() {
            // The root of the tree has the two entries that every directory begins with.
            let root = self.blocks_of(node)?[0].1;
            let bytes = self.block(root)?;
            let dots = [entry(&bytes, 0, self.has_types()), entry(&bytes, 12, self.has_types())];
            for (n, (e, at)) in dots.into_iter().zip([0, 12]).enumerate() {
                if let Some((e, _)) = e {
                    self.check_dot(node, n, &e, ends_with_nul(&bytes, at, e.name));
                }
            }
        }
        Ok(())
    }

    fn has_types(&self) -> bool {
        self.sb.incompat.contains(Incompat::FILETYPE)
    }

    fn check_dir_block(
        &mut self,
        node: &Node,
        at: u64,
        bytes: &[u8],
        names: &mut HashSet<Vec<u8>>,
        range: Option<super::htree::Range>,
    ) -> Result<()> {
        let csum = self.sb.has_csum();
        let end = bytes.len() - if csum { DIR_TAIL } else { 0 };
        let dir = node.ino;
        if csum {
            let sum = crc32c(node.seed, &bytes[..end]);
            let tail = read_at::<RawDirTail>(bytes, end);
            let matches = tail.is_some_and(|t| t.is_tail() && t.det_checksum.get() == sum);
            self.found.require(matches, rules::DIR_TAIL, || format!("directory {dir}, block {at}"));
        }
        let (mut offset, mut number) = (0, 0);
        while offset < end {
            let found = entry(&bytes[..end], offset, self.has_types());
            let Some((e, len)) = found else {
                let text = || format!("directory {dir}, block {at}: the entry at byte {offset} does not fit");
                self.found.add(rules::DIR_ENTRY, text);
                return Ok(());
            };
            if at == 0 && number < 2 {
                self.check_dot(node, number, &e, ends_with_nul(bytes, offset, e.name));
            } else if e.ino != 0 {
                self.check_entry(node, &e, names);
                if let Some(range) = &range {
                    self.check_place(node, at, e.name, range);
                }
            }
            offset += len;
            number += 1;
        }
        self.found
            .require(at != 0 || number >= 2, rules::DIR_DOTS, || format!("directory {dir} has no \"..\""));
        Ok(())
    }

    fn check_dot(&mut self, node: &Node, number: usize, e: &Entry<'_>, ends: bool) {
        let expected: &[u8] = if number == 0 { b"." } else { b".." };
        let right = e.name == expected && (number == 1 || e.ino == node.ino);
        self.found.require(right, rules::DIR_DOTS, || {
            format!("directory {}: entry {number} names inode {} and is no dot", node.ino, e.ino)
        });
        self.found.require(ends || !right, rules::DIR_DOTS, || {
            format!("directory {}: the name of entry {number} has no zero byte behind it", node.ino)
        });
        let typed = !self.has_types() || e.kind == 2;
        self.found.require(typed, rules::DIR_TYPE, || {
            format!("directory {}: entry {number} has type {}", node.ino, e.kind)
        });
        if number == 1 {
            self.change_state(node.ino, |s| s.dotdot = e.ino);
        }
    }

    fn check_entry(&mut self, node: &Node, e: &Entry<'_>, names: &mut HashSet<Vec<u8>>) {
        let (dir, ino) = (node.ino, e.ino);
        let shown = || String::from_utf8_lossy(e.name).into_owned();
        let opaque = node.has(InodeFlags::ENCRYPT);
        let bad = e.name.is_empty() || (!opaque && e.name.iter().any(|b| matches!(b, 0 | b'/')));
        let bad = bad || e.name == b"." || e.name == b"..";
        self.found
            .require(!bad, rules::DIR_ENTRY, || format!("directory {dir} holds the name {:?}", shown()));
        if !names.insert(e.name.to_vec()) {
            self.found.add(rules::DIR_DUPLICATE, || format!("directory {dir} holds {:?} twice", shown()));
        }
        let state = self.state(ino);
        let usable = self.used_inodes.get(ino.into()) && !state.special && ino != ROOT_INO;
        if !self.found.require(usable, rules::DIR_INODE, || {
            format!("directory {dir}: {:?} names inode {ino}, which is free or the format's own", shown())
        }) {
            return;
        }
        let expected = state.kind.map_or(0, |k| k as u8);
        // A type of 0 is unknown, and allowed for any inode.
        let typed = e.kind == 0 || self.has_types() && e.kind == expected;
        self.found.require(typed, rules::DIR_TYPE, || {
            format!("directory {dir}: {:?} has type {}, and inode {ino} has {expected}", shown(), e.kind)
        });
        if state.kind == Some(Kind::Dir) {
            self.change_state(dir, |s| s.subdirs += 1);
            if state.names > 0 {
                self.found
                    .add(rules::DIR_LINKED_TWICE, || format!("directory {ino} has another name in {dir}"));
            }
            self.change_state(ino, |s| s.parent = dir);
        }
        self.change_state(ino, |s| s.names = s.names.saturating_add(1));
    }

    /// Compares names with link counts, and searches a way from the root to each directory.
    pub(super) fn check_links(&mut self) {
        let mut reached = crate::offline::bits::Bits::new(u64::from(self.sb.raw.s_inodes_count.get()) + 1);
        reached.set(ROOT_INO.into());
        let root = self.state(ROOT_INO);
        self.found.require(root.kind == Some(Kind::Dir), rules::DIR_UNREACHED, || "there is no root".into());
        for ino in 1..=self.sb.raw.s_inodes_count.get() {
            let s = self.state(ino);
            if s.special || !self.used_inodes.get(ino.into()) || self.orphans.contains(&ino) {
                continue;
            }
            if s.kind != Some(Kind::Dir) {
                self.found.require(s.links == s.names, rules::LINK_COUNT, || {
                    format!("inode {ino} counts {} links, and has {} names", s.links, s.names)
                });
                continue;
            }
            let many = s.links == 1 && s.subdirs > 64_998 && self.sb.ro_compat.contains(RoCompat::DIR_NLINK);
            self.found.require(s.links == s.subdirs + 2 || many, rules::LINK_COUNT, || {
                format!("directory {ino} counts {} links, and has {} directories", s.links, s.subdirs)
            });
            let parent = if ino == ROOT_INO { ROOT_INO } else { s.parent };
            self.found.require(s.dotdot == parent || !s.sound, rules::DIR_DOTS, || {
                format!("directory {ino}: \"..\" names {}, and it lies in {parent}", s.dotdot)
            });
            self.reach(ino, &mut reached);
        }
    }

    /// Goes up from a directory to one that was already reached.
    fn reach(&mut self, ino: u32, reached: &mut crate::offline::bits::Bits) {
        let mut way = vec![ino];
        let mut seen = HashSet::from([ino]);
        let mut at = ino;
        while !reached.get(at.into()) {
            at = self.state(at).parent;
            if at == 0 || !seen.insert(at) {
                self.found
                    .add(rules::DIR_UNREACHED, || format!("no way leads from the root to directory {ino}"));
                break;
            }
            way.push(at);
        }
        // There is one report for each way: the directories on it are not reported again.
        for i in way {
            reached.set(i.into());
        }
    }
}

/// The entry at byte `at`, and its length; none where it does not fit.
fn entry(bytes: &[u8], at: usize, types: bool) -> Option<(Entry<'_>, usize)> {
    let head = read_at::<RawDirEntry>(bytes, at)?;
    let (len, (name_len, kind)) = (head.stride(), head.name_and_type(types));
    let sane = len >= DIRENT_HEAD + name_len.max(1) && len.is_multiple_of(4) && at + len <= bytes.len();
    let needs = (DIRENT_HEAD + name_len).next_multiple_of(4);
    if !sane || needs > len {
        return None;
    }
    let name = bytes.get(at + DIRENT_HEAD..at + DIRENT_HEAD + name_len)?;
    Some((Entry { ino: head.inode.get(), name, kind }, len))
}
