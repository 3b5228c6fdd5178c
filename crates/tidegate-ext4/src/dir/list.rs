//! Lists a directory. A listing can be interrupted and continued while names come and go.
//!
//! Names of a hashed directory are listed in the order of their hashes, as in Linux. So are the names of a
//! directory of a single block that may become hashed: when a block is split, or the tree begins, names move
//! to other blocks but keep their place in this order. A name that is there all the time is listed once. The
//! names of other directories do not move, and are listed in the order of their bytes.
//!
//! ```text
//! position of a hashed name   62        61 .. 31        30 .. 4             3 .. 0
//!                              0      major hash >> 1   minor hash >> 5      among equals
//! position in bytes                   of the block and the entry in it
//! of a damaged tree            1      likewise
//! ```
//!
//! "." and ".." are at 0 and 1. Names with equal hashes beyond the 16th share a position: where a listing is cut there, they
//! are listed again.

use super::entry::{Dirent, entries};
use super::htree::{TreeBlock, Way};
use super::nokey;
use crate::format::crc::crc32c;
use crate::format::hash::DirHash;
use crate::format::raw::{Compat, InodeFlags};
use crate::format::units::FileBlock;
use crate::inode::{Ext4Inode, ei};
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use std::collections::HashSet;
use std::ops::Range;
use tidegate_vfs::{DirEntry, Error, Ino, Inode, Result};

/// Set in positions of a directory whose tree is damaged.
const BY_BYTES: u64 = 1 << 62;
/// Number of names with equal hashes that have positions of their own.
const EQUALS: u64 = 16;
/// Bits of a position below the major hash.
const MAJOR: u32 = 31;
/// Blocks in which names of one hash are searched for together; a tree that was not made by malice needs two.
const TOGETHER: usize = 16;

/// Takes an entry and the position behind it; false ends the listing.
type Emit<'a> = dyn FnMut(Dirent<'_>, u64) -> bool + 'a;

/// The position of the first name with this name's hash. Where the hash has no minor part, another takes its place: equal
/// hashes are frequent there, and names that come and go must not move the positions of others.
fn position(hash: &DirHash, name: &[u8]) -> u64 {
    let (major, minor) = hash.of(name);
    let minor = if hash.is_legacy() { crc32c(0, name) } else { minor };
    (u64::from(major >> 1) << MAJOR | u64::from(minor >> 5) << 4).max(EQUALS)
}

/// The first position of a major hash.
fn first_of(major: u32) -> u64 {
    u64::from(major >> 1) << MAJOR
}

impl Ext4 {
    /// Calls `emit` for each entry from position `pos` on until it returns false.
    ///
    /// # Errors
    /// `Corrupt`; those of the device; entries before the fault are emitted.
    pub(crate) fn list_entries(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let (own, size) = (&*ei(dir), dir.size());
        let mut emit = |e: Dirent<'_>, next: u64| emit(self.shown(own, e, next));
        if own.is(InodeFlags::INLINE_DATA) {
            return self.list_inline(own, size, pos, &mut emit);
        }
        let hash = if pos & BY_BYTES == 0 { self.listed_by(own, size)? } else { None };
        match hash {
            Some(hash) if pos > 0 || self.tree_is_whole(own, size)? => {
                self.list_hashed(own, size, &hash, pos, &mut emit)
            }
            // A damaged tree must not hide names.
            Some(_) => self.list_blocks(own, size, 0, &mut |e, next| emit(e, next | BY_BYTES)),
            None => {
                let flag = pos & BY_BYTES;
                self.list_blocks(own, size, pos & !BY_BYTES, &mut |e, next| emit(e, next | flag))
            }
        }
    }

    /// Calls `emit` for each entry, in the order of bytes, until it returns false. The hash tree is ignored.
    ///
    /// # Errors
    /// `Corrupt`; those of the device; entries before the fault are emitted.
    pub(crate) fn each_entry(&self, dir: &Inode, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let (own, size) = (&*ei(dir), dir.size());
        let mut emit = |e: Dirent<'_>, next: u64| emit(self.shown(own, e, next));
        match own.is(InodeFlags::INLINE_DATA) {
            true => self.list_inline(own, size, 0, &mut emit),
            false => self.list_blocks(own, size, 0, &mut emit),
        }
    }

    /// An entry in the form for a listing.
    fn shown(&self, dir: &Ext4Inode, e: Dirent<'_>, next: u64) -> DirEntry {
        let name = match dir.is(InodeFlags::ENCRYPT) && !matches!(e.name, b"." | b"..") {
            true => nokey::encode(e.name),
            false => e.name.to_vec(),
        };
        DirEntry { ino: Ino(e.ino.into()), file_type: e.file_type, name, next }
    }

    /// The hash that orders the listing of a directory, if one does.
    fn listed_by(&self, dir: &Ext4Inode, size: u64) -> Result<Option<DirHash>> {
        if !self.sb.compat.contains(Compat::DIR_INDEX)
            || dir.flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
        {
            return Ok(None);
        }
        match self.has_tree(dir) {
            true => self.tree_hash(dir, size),
            // The hash that the directory's tree would have.
            false if self.blocks_of(size) == 1 => Ok(self.new_tree_hash()),
            false => Ok(None),
        }
    }

    /// Calls `emit` for each entry in the order of bytes.
    ///
    /// # Errors
    /// As [`Ext4::list_entries`].
    pub(super) fn list_blocks(
        &self,
        dir: &Ext4Inode,
        size: u64,
        pos: u64,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let bs = u64::from(self.sb.block_size);
        self.each_block(dir, pos / bs..size.div_ceil(bs), &mut |n, block| {
            for e in entries(&block.block, self.dir_rules(dir), n) {
                let e = e?;
                let here = n.0 * bs + e.offset as u64;
                if here >= pos && !emit(e, here + u64::from(e.rec_len)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn list_hashed(
        &self,
        dir: &Ext4Inode,
        size: u64,
        hash: &DirHash,
        pos: u64,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let first = self.tree_block(dir, size, FileBlock(0))?;
        for (n, dot) in [&b"."[..], b".."].into_iter().enumerate() {
            let found = entries(&first.block, self.dir_rules(dir), FileBlock(0))
                .take(2)
                .find_map(|e| e.ok().filter(|e| e.name == dot));
            let n = n as u64;
            if n >= pos && found.is_some_and(|e| !emit(e, n + 1)) {
                return Ok(());
            }
        }
        let pos = pos.max(EQUALS);
        if !self.has_tree(dir) {
            let whole = 0..u64::MAX;
            return self.list_group(dir, hash, &[(FileBlock(0), first.block, whole)], pos, emit).map(drop);
        }
        let Some(mut way) = self.way_at(dir, size, |_| ((pos >> MAJOR) << 1) as u32)? else { return Ok(()) };
        let mut left = self.blocks_of(size);
        loop {
            let mut group = Vec::new();
            let is_last = loop {
                left = left
                    .checked_sub(1)
                    .ok_or_else(|| Error::corrupt("its hash tree leads to a block twice").in_dir(dir.ino))?;
                let (n, range) = (way.leaf(), bounds(&way));
                group.push((n, self.tree_block(dir, size, n)?.block, range));
                let continued = way.next_hash().is_some_and(|hash| hash & 1 != 0);
                if !self.step(dir, size, &mut way.nodes)? {
                    break true;
                }
                if !continued || group.len() == TOGETHER {
                    break false;
                }
            };
            if !self.list_group(dir, hash, &group, pos, emit)? || is_last {
                return Ok(());
            }
        }
    }

    /// Lists the names of neighbouring blocks in the order of hashes, each within the bounds that the tree
    /// gives its block; true if there is more to list.
    fn list_group(
        &self,
        dir: &Ext4Inode,
        hash: &DirHash,
        blocks: &[(FileBlock, Block, Range<u64>)],
        pos: u64,
        emit: &mut Emit<'_>,
    ) -> Result<bool> {
        let (mut all, mut fault) = (Vec::new(), None);
        for (n, block, range) in blocks {
            for e in entries(block, self.dir_rules(dir), *n) {
                match e {
                    Ok(e) if matches!(e.name, b"." | b"..") => {}
                    Ok(e) => all.push((position(hash, e.name).clamp(range.start, range.end - 1), e)),
                    Err(e) => fault = fault.or(Some(e)),
                }
            }
        }
        all.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.name.cmp(y.name)));
        for equals in all.chunk_by(|a, b| a.0 == b.0) {
            for (n, (key, e)) in equals.iter().enumerate() {
                let here = key + (n as u64).min(EQUALS - 1);
                if here >= pos && !emit(*e, here + 1) {
                    return Ok(false);
                }
            }
        }
        fault.map_or(Ok(true), Err)
    }

    /// Whether the nodes of a directory's tree can be read, lead to each of its blocks at most once, and are
    /// in order. True for a directory without a tree.
    ///
    /// # Errors
    /// Those of the device.
    fn tree_is_whole(&self, dir: &Ext4Inode, size: u64) -> Result<bool> {
        if !self.has_tree(dir) {
            return Ok(true);
        }
        let look = || -> Result<bool> {
            let Some(way) = self.way_at(dir, size, |_| 0)? else { return Ok(false) };
            let (mut met, mut open) = (HashSet::from([0]), vec![(FileBlock(0), way.nodes.len(), 0)]);
            while let Some((n, levels, least)) = open.pop() {
                let block: TreeBlock = self.tree_block(dir, size, n)?;
                let node = self.any_node(dir, block, n.0 == 0)?;
                let mut before = least;
                for i in 0..node.count {
                    let (hash, child) = node.entry(i);
                    let (hash, child) = (if i == 0 { least } else { hash & !1 }, child & 0x0fff_ffff);
                    if hash < before || child >= self.blocks_of(size) || !met.insert(child) {
                        return Ok(false);
                    }
                    before = hash;
                    if levels > 1 {
                        open.push((FileBlock(child), levels - 1, hash));
                    }
                }
            }
            Ok(true)
        };
        match look() {
            Err(e) if e.kind() == tidegate_vfs::ErrorKind::Corrupt => Ok(false),
            r => r,
        }
    }
}

/// The positions of names in the block at the end of a way.
fn bounds(way: &Way) -> Range<u64> {
    let least = way.nodes.iter().map(|n| n.entry(n.slot).0 & !1).max().unwrap_or(0);
    let end = match way.next_hash() {
        None => BY_BYTES,
        // Both blocks have names of this hash.
        Some(next) if next & 1 != 0 => first_of(next) + (1 << MAJOR),
        Some(next) => first_of(next),
    };
    let from = first_of(least).max(EQUALS);
    from..end.max(from + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_hash_have_positions_of_their_own() {
        for version in 0..3 {
            let hash = DirHash::new(version, true, [1, 2, 3, 4]).unwrap();
            let mut all: Vec<u64> =
                (0..50_000).map(|n| position(&hash, format!("file{n:06}").as_bytes())).collect();
            all.sort_unstable();
            let equal = all.windows(2).filter(|w| w[1] - w[0] < EQUALS).count();
            assert_eq!(equal, 0, "version {version}");
        }
    }
}
