//! Maps of files, read as far as they make sense.

use super::Repair;
use super::sealed::is_sealed;
use crate::format::raw::*;
use crate::offline::node::{MAX_FILE_BLOCKS, Node, header};
use std::collections::BTreeSet;
use tidegate_vfs::{Error, Result};
use zerocopy::FromBytes;

/// Most blocks of maps that one round reads, as a multiple of the volume's blocks.
const WALKED: u64 = 16;

/// Blocks of a file that lie in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First block of the file.
    pub(super) at: u64,
    /// First block on the volume.
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) unwritten: bool,
}

impl Run {
    pub(super) fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// The blocks that a map leads to.
#[derive(Clone, Default)]
pub(super) struct Map {
    /// The runs in the order of the file.
    pub(super) runs: Vec<Run>,
    /// Blocks of the map itself.
    pub(super) nodes: Vec<u64>,
    /// Blocks of the map in which only the checksum is wrong.
    pub(super) unsealed: Vec<u64>,
    /// The parts that were left out: the map must be rebuilt.
    pub(super) wrong: Option<String>,
    /// A block of the map that belongs to another inode's map, too: this map needs blocks of its own. Each
    /// inode gets a copy of shared data.
    pub(super) shared: Option<u64>,
    /// Blocks that the map names, in order or not.
    total: u64,
}

impl Map {
    pub(super) fn end(&self) -> u64 {
        self.runs.last().map_or(0, Run::end)
    }
    pub(super) fn written_end(&self) -> u64 {
        self.runs.iter().rev().find(|r| !r.unwritten).map_or(0, Run::end)
    }
    pub(super) fn data(&self) -> u64 {
        self.runs.iter().map(|r| r.len).sum()
    }
    /// The reason why the map is rebuilt, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        let shared = || self.shared.map(|b| format!("block {b} of it is another inode's, too"));
        self.wrong.clone().or_else(shared)
    }
    fn bad(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }
}

/// A walk under way.
struct Walk<'a> {
    node: &'a Node,
    map: Map,
    /// Blocks of the map: none is entered twice.
    met: BTreeSet<u64>,
    /// The file block behind the last.
    next: u64,
}

impl Repair<'_, '_> {
    /// Reads the map of an inode. With `fresh`, the first time, blocks of other inodes' maps are reported.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn map(&mut self, node: &Node, fresh: bool) -> Result<Map> {
        if !node.has(InodeFlags::EXTENTS) {
            let mut w = self.walk(node);
            self.numbers(&mut w, fresh)?;
            return Ok(w.map);
        }
        let stored = header(&node.raw.i_block).map_or(0, |h| h.eh_depth.get());
        let first = self.extents_from(node, stored, fresh)?;
        if first.wrong.is_none() {
            return Ok(first);
        }
        // The depth itself may be wrong.
        for depth in (0..=MAX_DEPTH).filter(|d| *d != stored) {
            let mut other = self.extents_from(node, depth, fresh)?;
            if other.wrong.is_none() && !other.runs.is_empty() {
                other.wrong = first.wrong;
                return Ok(other);
            }
        }
        Ok(first)
    }

    fn walk<'a>(&self, node: &'a Node) -> Walk<'a> {
        Walk { node, map: Map::default(), met: BTreeSet::new(), next: 0 }
    }

    fn extents_from(&mut self, node: &Node, depth: u16, fresh: bool) -> Result<Map> {
        let mut w = self.walk(node);
        if depth > MAX_DEPTH {
            w.map.bad(|| format!("the root of its extents is at level {depth}"));
        }
        self.extents(&mut w, &node.raw.i_block, depth.min(MAX_DEPTH), true, None, fresh)?;
        Ok(w.map)
    }

    /// Enters a block of the map; true if the walk may go on below it.
    fn enter(&self, w: &mut Walk<'_>, block: u64, fresh: bool) -> bool {
        let inside = self.sb.holds(crate::format::units::BlockAddr(block), 1) && !self.meta.get(block);
        if !inside || !w.met.insert(block) {
            w.map.bad(|| format!("a block of its map is {block}"));
            return false;
        }
        if fresh && self.map_blocks.get(block) {
            w.map.shared.get_or_insert(block);
        }
        true
    }

    /// Limits the walks of maps that lead to the same blocks again and again.
    fn count_walk(&mut self) -> Result<()> {
        self.walked += 1;
        if self.walked <= WALKED * self.sb.blocks {
            return Ok(());
        }
        Err(Error::corrupt("maps lead to the same blocks again and again: nothing was changed"))
    }

    fn add_run(&self, w: &mut Walk<'_>, run: Run) {
        let inside = self.sb.holds(crate::format::units::BlockAddr(run.start), run.len);
        w.map.total += run.len;
        if !inside || w.map.total > self.sb.blocks {
            w.map.bad(|| format!("{} blocks from {} on are not on the volume", run.len, run.start));
            return;
        }
        w.next = run.end();
        w.map.runs.push(run);
    }

    /// Reads one node of an extent tree. `limit` is the first file block of what follows it.
    fn extents(
        &mut self,
        w: &mut Walk<'_>,
        bytes: &[u8],
        level: u16,
        root: bool,
        limit: Option<u64>,
        fresh: bool,
    ) -> Result<()> {
        let Some(h) = header(bytes) else { return Ok(()) };
        let room = (bytes.len() - EXTENT_ENTRY) / EXTENT_ENTRY;
        let (max, depth) = (usize::from(h.eh_max.get()), h.eh_depth.get());
        let stored = usize::from(h.eh_entries.get());
        let magic = h.eh_magic.get() == EXTENT_MAGIC;
        // The root's depth may be wrong.
        let sane = magic && max <= room && max + 2 >= room && stored <= max && (root || depth == level);
        let filled = stored > 0 || root && level == 0;
        if !sane || !filled {
            w.map.bad(|| format!("a node of its extents has {stored} entries of {max} at level {depth}"));
        }
        if !magic && !root {
            return Ok(());
        }
        let count = stored.min(room);
        for n in 0..count {
            let entry = &bytes[EXTENT_ENTRY * (n + 1)..][..EXTENT_ENTRY];
            let following = (n + 1 < count).then(|| entry_block(bytes, n + 1)).flatten();
            if level == 0 {
                self.leaf(w, entry, limit);
            } else {
                self.index(w, entry, level, following.filter(|f| *f > w.next).or(limit), fresh)?;
            }
        }
        Ok(())
    }

    fn leaf(&self, w: &mut Walk<'_>, entry: &[u8], limit: Option<u64>) {
        let Ok(e) = RawExtent::read_from_bytes(entry) else { return };
        let (at, (len, unwritten)) = (u64::from(e.ee_block.get()), e.len());
        let end = at + u64::from(len);
        if len == 0 || at < w.next || end > MAX_FILE_BLOCKS {
            w.map.bad(|| format!("an extent of {len} blocks at block {at}"));
            return;
        }
        if limit.is_some_and(|l| end > l) {
            w.map.bad(|| format!("an extent of {len} blocks at block {at} goes beyond its node"));
        }
        self.add_run(w, Run { at, start: e.start(), len: len.into(), unwritten });
    }

    fn index(
        &mut self,
        w: &mut Walk<'_>,
        entry: &[u8],
        level: u16,
        limit: Option<u64>,
        fresh: bool,
    ) -> Result<()> {
        let Ok(e) = RawExtentIndex::read_from_bytes(entry) else { return Ok(()) };
        let (at, leaf) = (u64::from(e.ei_block.get()), e.leaf());
        if !self.enter(w, leaf, fresh) {
            return Ok(());
        }
        self.count_walk()?;
        let child = self.disk.block(leaf)?;
        if at < w.next || entry_block(&child, 0) != Some(at) {
            w.map.bad(|| format!("the node for block {at} begins with another"));
        }
        let sealed = !self.sb.has_csum() || is_sealed(w.node.seed, &child);
        if !sealed && header(&child).is_none_or(|h| h.eh_magic.get() != EXTENT_MAGIC) {
            w.map.bad(|| format!("block {leaf} holds no extents"));
            return Ok(());
        }
        if !sealed && self.is_anothers_node(leaf)? {
            w.map.bad(|| format!("block {leaf} holds extents of another inode"));
            return Ok(());
        }
        if !sealed {
            w.map.unsealed.push(leaf);
        }
        w.map.nodes.push(leaf);
        self.extents(w, &child, level - 1, false, limit, fresh)
    }

    fn numbers(&mut self, w: &mut Walk<'_>, fresh: bool) -> Result<()> {
        for n in 0..12 {
            self.number(w, n as u64, w.node.word(n));
        }
        let per = u64::from(self.sb.block_size / 4);
        let (mut at, mut span) = (12, per);
        for level in 1..=3u32 {
            let block = w.node.word(11 + level as usize);
            if block != 0 {
                self.table(w, block.into(), level, at, span / per, fresh)?;
            }
            at += span;
            span *= per;
        }
        Ok(())
    }

    fn number(&self, w: &mut Walk<'_>, at: u64, block: u32) {
        if block == 0 {
            return;
        }
        let start = u64::from(block);
        let joined = w.map.runs.last().is_some_and(|r| r.end() == at && r.start + r.len == start);
        let inside = self.sb.holds(crate::format::units::BlockAddr(start), 1);
        if joined && inside && w.map.total < self.sb.blocks {
            w.map.total += 1;
            if let Some(last) = w.map.runs.last_mut() {
                last.len += 1;
            }
            return;
        }
        self.add_run(w, Run { at, start, len: 1, unwritten: false });
    }

    /// Reads a block of numbers, each of which covers `span` blocks of the file.
    fn table(
        &mut self,
        w: &mut Walk<'_>,
        block: u64,
        level: u32,
        first: u64,
        span: u64,
        fresh: bool,
    ) -> Result<()> {
        if !self.enter(w, block, fresh) {
            return Ok(());
        }
        self.count_walk()?;
        let words = self.disk.block(block)?;
        let words: Vec<u32> = words.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let inside = |w: &&u32| self.sb.holds(crate::format::units::BlockAddr((**w).into()), 1);
        let named = words.iter().filter(|w| **w != 0).count();
        // The block holds something other than numbers.
        if words.iter().filter(inside).count() * 2 < named {
            w.map.bad(|| format!("block {block} holds no numbers of blocks"));
            return Ok(());
        }
        w.map.nodes.push(block);
        for (n, to) in words.into_iter().enumerate() {
            let at = first + n as u64 * span;
            match (to, level) {
                (0, _) => {}
                (_, 1) => self.number(w, at, to),
                _ => {
                    let span = span / u64::from(self.sb.block_size / 4);
                    self.table(w, to.into(), level - 1, at, span, fresh)?;
                }
            }
        }
        Ok(())
    }
}
