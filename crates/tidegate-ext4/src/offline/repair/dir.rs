//! Directories: from the root on, each with its parent.

use super::Repair;
use super::disk::Stage;
use super::entries::Entry;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::node::{Kind, Node};
use std::collections::BTreeMap;
use tidegate_vfs::{Error, Result};

/// The current directory.
pub(super) struct Dir {
    pub(super) ino: u32,
    pub(super) parent: u32,
    /// Its names and their inodes.
    pub(super) names: BTreeMap<Vec<u8>, u32>,
    /// Directories that were first reached through this one.
    pub(super) below: Vec<u32>,
    pub(super) encrypted: bool,
    pub(super) hashed: bool,
    /// The directory is rebuilt.
    pub(super) remake: bool,
}

impl Repair<'_, '_> {
    /// Repairs directory `top` in `parent`, and everything below it.
    pub(super) fn mend_tree(&mut self, top: u32, parent: u32) -> Result<()> {
        let mut stack = vec![(top, parent)];
        self.state_mut(top).reached = true;
        while let Some((ino, parent)) = stack.pop() {
            let below = self.mend_dir(ino, parent)?;
            stack.extend(below.into_iter().map(|b| (b, ino)));
        }
        Ok(())
    }

    /// Repairs one directory; returns the directories in it.
    fn mend_dir(&mut self, ino: u32, parent: u32) -> Result<Vec<u32>> {
        let n = self.node(ino)?;
        let hashed = n.has(InodeFlags::INDEX);
        let mut dir = Dir {
            ino,
            parent,
            names: BTreeMap::new(),
            below: Vec::new(),
            hashed,
            encrypted: n.has(InodeFlags::ENCRYPT),
            remake: hashed && self.bad_trees.contains(&ino),
        };
        self.state_mut(ino).parent = parent;
        for (at, block) in self.dir_blocks(ino)?.into_iter().enumerate() {
            let bytes = self.disk.block(block)?;
            if hashed && at > 0 && is_dx_node(&bytes) {
                continue;
            }
            if hashed && at == 0 && is_dx_root(&bytes) {
                self.mend_tree_root(&n, &mut dir, &bytes);
                continue;
            }
            // A hashed directory has its root in the first block.
            dir.remake |= hashed && at == 0;
            self.mend_block(&n, &mut dir, at, block, &bytes)?;
        }
        if !self.doubted.is_empty() {
            // This ends the round before anything is removed because of it.
            return Err(Error::corrupt("inodes that were never used, as their groups have it, are in use"));
        }
        if dir.remake {
            self.tell("directory", ino, "damaged", "made anew");
            self.remake.entry(ino).or_default();
        }
        Ok(dir.below)
    }

    /// Repairs the two entries that every directory begins with, in a tree's root.
    fn mend_tree_root(&mut self, n: &Node, dir: &mut Dir, bytes: &[u8]) {
        let dots = [self.entry(bytes, 0), self.entry(bytes, 12)];
        let is_right = |e: Entry, at| e == self.dot(n, dir, at) && ends_with_nul(bytes, e.at, &e.name);
        let right = dots.into_iter().enumerate().all(|(at, e)| e.is_some_and(|(e, _)| is_right(e, at)));
        if !right {
            self.tell("entry", format!("directory {}", dir.ino), "\".\" or \"..\" is wrong", "right");
            dir.remake = true;
        }
    }

    /// The correct entry "." or "..".
    pub(super) fn dot(&self, n: &Node, dir: &Dir, number: usize) -> Entry {
        let kind = if self.has_types() { Kind::Dir as u8 } else { 0 };
        match number {
            0 => Entry { at: 0, ino: n.ino, name: b".".to_vec(), kind },
            _ => Entry { at: 12, ino: dir.parent, name: b"..".to_vec(), kind },
        }
    }

    fn mend_block(&mut self, n: &Node, dir: &mut Dir, at: usize, block: u64, bytes: &[u8]) -> Result<()> {
        let end = self.entries_end();
        let mut found = self.entries(&bytes[..end]);
        let place = format!("directory {}, block {at}", dir.ino);
        let changes = self.changes;
        if !found.whole {
            let kept = format!("{} entries kept", found.entries.len());
            self.tell("directory", &place, "entries do not fill the block", kept);
        }
        let mut kept = Vec::new();
        if at == 0 {
            let is_dot = |e: Option<&Entry>, at, name: &[u8]| e.is_some_and(|e| e.at == at && e.name == name);
            let e = &found.entries;
            let named = is_dot(e.first(), 0, b".") && is_dot(e.get(1), 12, b"..");
            if named {
                let before = found.entries.drain(..2).collect::<Vec<_>>();
                kept = vec![self.dot(n, dir, 0), self.dot(n, dir, 1)];
                for (from, to) in before.iter().zip(kept.clone()).filter(|(from, to)| **from != *to) {
                    let name = String::from_utf8_lossy(&to.name).into_owned();
                    let place = format!("directory {}, {name:?}", dir.ino);
                    self.tell(
                        "entry",
                        place,
                        format!("inode {}, type {}", from.ino, from.kind),
                        format!("inode {}, type {}", to.ino, to.kind),
                    );
                }
                for e in before.iter().filter(|e| !ends_with_nul(bytes, e.at, &e.name)) {
                    let place = format!("directory {}, {:?}", dir.ino, String::from_utf8_lossy(&e.name));
                    self.tell("entry", place, "no zero byte behind the name", "one");
                }
            } else {
                dir.remake = true;
            }
        }
        for e in found.entries {
            kept.extend(self.mend_entry(dir, e));
        }
        let hashes = n.flags().contains(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
        let new = self.dir_block_over(n.seed, &kept, hashes.then_some(bytes));
        // A block without a fault stays as it is, whatever lies behind its names.
        let sealed = !self.sb.has_csum() || self.is_sealed(n, bytes);
        if self.changes != changes || !sealed {
            if self.changes == changes {
                self.tell("directory", &place, "checksum wrong", "right");
            }
            self.disk.put(block, Stage::InPlace, new)?;
        }
        Ok(())
    }

    fn is_sealed(&self, n: &Node, bytes: &[u8]) -> bool {
        let end = self.entries_end();
        let sum = crc32c(n.seed, &bytes[..end]);
        read_at::<RawDirTail>(bytes, end).is_some_and(|t| t.is_tail() && t.det_checksum.get() == sum)
    }
}
