//! Changes of an extent tree: runs of blocks are inserted and removed, and nodes split, empty and grow.
//!
//! A node is read whole, changed as a list, and written whole. Each index entry has the first file block of
//! the node below it, as e2fsck requires. The caller holds `ei->i_data_sem` exclusive.

use super::groups::Groups;
use super::leaf::{Piece, add_to_leaf, cut_in_two, cut_leaf, mark_in_leaf};
use super::node::{View, Way};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::Ext4Inode;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// The root of a file without blocks: magic number, no entries of four, depth 0.
pub(crate) const EMPTY_ROOT: [u8; EXTENT_ENTRY] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];

/// Most extents that one change frees.
const AT_ONCE: usize = 8;

/// A tree with at most this many levels is checked as a whole before it is freed: it has at most four times
/// as many nodes as an index has entries.
const JUDGED_WHOLE: u16 = 2;

/// Extents by which a mark in the middle of an extent makes a leaf longer.
const MARK_ADDS: usize = 2;

/// Entries that the root has room for.
const ROOT_MAX: usize = 4;

/// The entries of a node.
#[derive(Clone, Debug)]
pub(super) enum Entries {
    Leaf(Vec<Piece>),
    /// First file block below, and the node.
    Index(Vec<(u64, BlockAddr)>),
}

impl Entries {
    fn len(&self) -> usize {
        match self {
            Entries::Leaf(v) => v.len(),
            Entries::Index(v) => v.len(),
        }
    }

    fn first(&self) -> Option<u64> {
        match self {
            Entries::Leaf(v) => v.first().map(|p| p.block),
            Entries::Index(v) => v.first().map(|e| e.0),
        }
    }

    fn split_off(&mut self, at: usize) -> Entries {
        match self {
            Entries::Leaf(v) => Entries::Leaf(v.split_off(at)),
            Entries::Index(v) => Entries::Index(v.split_off(at)),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    depth: u16,
    generation: u32,
    /// The blocks of the file that its parent's entry covers.
    range: Range<u64>,
    pub entries: Entries,
}

impl Node {
    /// The way to a child of an index; `None` where there is none.
    pub(super) fn child(&self, n: usize) -> Option<Way> {
        let Entries::Index(v) = &self.entries else { return None };
        let end = v.get(n + 1).map_or(self.range.end, |e| e.0);
        v.get(n).map(|e| Way::down(e.1, self.depth, e.0..end))
    }

    /// The way to the last child of an index.
    pub(super) fn last_child(&self) -> Option<Way> {
        self.child(self.entries.len().checked_sub(1)?)
    }

    /// The child of an index that a block belongs to.
    pub(super) fn child_of(&self, at: u64) -> usize {
        match &self.entries {
            Entries::Index(v) => v.partition_point(|e| e.0 <= at).saturating_sub(1),
            Entries::Leaf(_) => 0,
        }
    }
}

/// A change of the list of a leaf that has room for a number of entries; returns the entry that changed.
type Edit<'a> = &'a mut dyn FnMut(&mut Vec<Piece>, usize) -> Option<usize>;

/// The tree of an inode while it changes.
pub(crate) struct Tree<'a, 'h> {
    pub fs: &'a Ext4,
    pub handle: &'a mut Handle<'h>,
    pub own: &'a mut Ext4Inode,
    /// Blocks of nodes that were added, less those that were freed.
    pub nodes: i64,
    /// A goal for new nodes.
    pub goal: BlockAddr,
    /// Blocks for nodes, allocated before anything is stored: a change that finds no space fails before it
    /// begins.
    pub ahead: Vec<BlockAddr>,
}

impl Tree<'_, '_> {
    /// Adds blocks where the file has none.
    ///
    /// # Errors
    /// `NoSpace` when a node is needed and no block is free; nothing was changed then. `FileTooBig` for a
    /// full tree; `Corrupt`.
    pub(crate) fn insert(&mut self, piece: Piece) -> Result<()> {
        self.edit(piece.block, &mut |v, _| add_to_leaf(v, piece))
    }

    /// Takes the blocks of a range out of the map and returns them. They are neither freed nor forgotten.
    ///
    /// # Errors
    /// As [`Tree::insert`], as a piece that is cut in the middle makes two.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Result<Vec<Piece>> {
        if let Some(part) = self.around(&range)?.and_then(|piece| piece.part(&range)) {
            self.fs.refuse_tables(self.own.ino, part.start, part.len)?;
            self.edit(range.start, &mut |v, _| cut_in_two(v, &range))?;
            return Ok(vec![part]);
        }
        self.fs.judge_tree(self.own, &Way::ROOT, &range)?;
        let mut gone = Vec::new();
        self.remove_below(&Way::ROOT, &range, &mut gone)?;
        self.collapse()?;
        Ok(gone)
    }

    /// Marks blocks of one extent as `unwritten` or written, which they were not, and of the first of the `next` ranges
    /// those that lie in the leaf and need no more room there.
    ///
    /// # Errors
    /// As [`Tree::insert`]; `Corrupt` for blocks that are not in one extent of the other kind.
    pub(crate) fn mark(
        &mut self,
        range: Range<u64>,
        unwritten: bool,
        next: &mut dyn Iterator<Item = Range<u64>>,
    ) -> Result<()> {
        self.edit(range.start, &mut |v, room| {
            let at = mark_in_leaf(v, &range, unwritten)?;
            while v.len() + MARK_ADDS <= room
                && next.next().is_some_and(|range| mark_in_leaf(v, &range, unwritten).is_some())
            {}
            Some(at)
        })
    }

    /// Frees blocks that were allocated for nodes and are not needed.
    ///
    /// # Errors
    /// As [`Ext4::free_blocks`].
    pub(crate) fn give_back(&mut self) -> Result<()> {
        std::mem::take(&mut self.ahead).into_iter().try_for_each(|b| self.fs.free_blocks(self.handle, b, 1))
    }

    /// The first block of the last extents, as many as one change may free and at most `most` blocks: a file
    /// is cut from its end.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn tail(&self, most: u64) -> Result<u64> {
        let mut node = self.load(&Way::ROOT)?;
        loop {
            match &node.entries {
                // An empty leaf is removed by itself.
                Entries::Leaf(v) if v.is_empty() => return Ok(node.range.start),
                Entries::Leaf(v) => return Ok(first_of_last(v, most, &mut Groups::new(self.fs))),
                Entries::Index(_) => {}
            }
            node = self.below(node.last_child())?;
        }
    }

    fn bad(&self, what: &str) -> Error {
        Error::corrupt(format!("its extent tree: {what}")).in_inode(self.own.ino)
    }

    /// The node that an entry of another leads to.
    pub(super) fn below(&self, way: Option<Way>) -> Result<Node> {
        let Some(way) = way else { return Err(self.bad("an index without entries")) };
        self.load(&way)
    }

    /// Entries that a node has room for.
    fn max(&self, at: Option<BlockAddr>) -> usize {
        let tail = if self.fs.sb.has_csum() { 4 } else { 0 };
        match at {
            None => ROOT_MAX,
            Some(_) => (self.fs.sb.block_size as usize - EXTENT_ENTRY - tail) / EXTENT_ENTRY,
        }
    }

    pub(super) fn load(&self, way: &Way) -> Result<Node> {
        self.fs.load_node(self.own, way)
    }

    pub(super) fn store(&mut self, at: Option<BlockAddr>, node: &Node) -> Result<()> {
        let max = self.max(at);
        debug_assert!(node.entries.len() <= max);
        let mut bytes = vec![0; self.fs.sb.block_size as usize];
        let head = RawExtentHeader {
            eh_magic: EXTENT_MAGIC.into(),
            eh_entries: (node.entries.len() as u16).into(),
            eh_max: (max as u16).into(),
            eh_depth: node.depth.into(),
            eh_generation: node.generation.into(),
        };
        bytes[..EXTENT_ENTRY].copy_from_slice(head.as_bytes());
        let slots = bytes[EXTENT_ENTRY..].chunks_exact_mut(EXTENT_ENTRY);
        match &node.entries {
            Entries::Leaf(v) => {
                v.iter().zip(slots).for_each(|(p, to)| to.copy_from_slice(raw_of(p).as_bytes()))
            }
            Entries::Index(v) => {
                v.iter().zip(slots).for_each(|(e, to)| to.copy_from_slice(raw_index(e).as_bytes()))
            }
        }
        let Some(addr) = at else {
            self.own.block.copy_from_slice(&bytes[..I_BLOCK_SIZE]);
            return Ok(());
        };
        if self.fs.sb.has_csum() {
            let end = EXTENT_ENTRY * (1 + max);
            let crc = crc32c(self.own.csum_seed, &bytes[..end]);
            bytes[end..end + 4].copy_from_slice(RawExtentTail { et_checksum: crc.into() }.as_bytes());
        }
        self.handle.replace(addr, &bytes)
    }

    fn new_block(&mut self) -> Result<BlockAddr> {
        let addr = self.ahead.pop().ok_or_else(|| self.bad("it changed while it was locked"))?;
        self.nodes += 1;
        Ok(addr)
    }

    fn free_block(&mut self, addr: BlockAddr) -> Result<()> {
        self.handle.forget(addr)?;
        self.nodes -= 1;
        self.fs.free_blocks(self.handle, addr, 1)
    }

    /// Changes the leaf of block `at` with `f`, which returns the entry that changed, or `None` when the leaf
    /// is not as the caller expects. Nodes above the leaf are stored only if they change.
    pub(super) fn edit(&mut self, at: u64, f: Edit<'_>) -> Result<()> {
        let mut path = self.path_to(at)?;
        let Some((place, mut leaf)) = path.pop() else { return Err(self.bad("an index without entries")) };
        let mut position = self.edited(&mut leaf, self.max(place), f)?;
        for _ in 0..self.nodes_for(&path, place, &leaf)? {
            let (addr, _) = self.fs.take_promised(self.handle, self.goal, 1)?;
            self.ahead.push(addr);
        }
        let mut sibling = self.put(place, leaf, position)?;
        while let Some((place, mut node)) = path.pop() {
            let child = node.child_of(at);
            let Entries::Index(v) = &mut node.entries else { return Err(self.bad("a leaf above another")) };
            let begins_earlier = at < v[child].0;
            v[child].0 = v[child].0.min(at);
            if let Some(sibling) = sibling {
                v.insert(child + 1, sibling);
            } else if !begins_earlier {
                break;
            }
            position = child + 1;
            sibling = self.put(place, node, position)?;
        }
        Ok(())
    }

    /// The nodes from the root to the leaf that a block belongs to, and where they are.
    fn path_to(&self, at: u64) -> Result<Vec<(Option<BlockAddr>, Node)>> {
        let mut path = vec![(None, self.load(&Way::ROOT)?)];
        while let Some((_, node)) = path.last().filter(|(_, node)| node.depth > 0) {
            let way = node.child(node.child_of(at));
            let place = way.as_ref().and_then(|w| w.at);
            path.push((place, self.below(way)?));
        }
        Ok(path)
    }

    /// The number of nodes that a change adds: one for each full node on the way up from the leaf, which has changed.
    fn nodes_for(
        &self,
        above: &[(Option<BlockAddr>, Node)],
        place: Option<BlockAddr>,
        leaf: &Node,
    ) -> Result<usize> {
        if leaf.entries.len() <= self.max(place) {
            return Ok(0);
        }
        let full =
            above.iter().rev().take_while(|(place, node)| node.entries.len() >= self.max(*place)).count();
        if full == above.len() && full == usize::from(MAX_DEPTH) {
            return Err(ErrorKind::FileTooBig.into());
        }
        Ok(1 + full)
    }

    /// Changes a leaf in memory; returns the entry that changed.
    fn edited(&self, leaf: &mut Node, room: usize, f: Edit<'_>) -> Result<usize> {
        match &mut leaf.entries {
            Entries::Leaf(v) => f(v, room).ok_or_else(|| self.bad("blocks that are not as they were")),
            Entries::Index(_) => Err(self.bad("a depth that does not fall")),
        }
    }

    /// Stores a node that changed at `position`; returns its new sibling, if it had no room.
    fn put(
        &mut self,
        place: Option<BlockAddr>,
        node: Node,
        position: usize,
    ) -> Result<Option<(u64, BlockAddr)>> {
        if node.entries.len() <= self.max(place) {
            return self.store(place, &node).map(|()| None);
        }
        match place {
            None => self.grow(node).map(|()| None),
            Some(addr) => self.split(addr, node, position).map(Some),
        }
    }

    /// The extent that crosses both ends of a range, if there is one.
    pub(super) fn around(&self, range: &Range<u64>) -> Result<Option<Piece>> {
        let mut node = self.load(&Way::ROOT)?;
        loop {
            if let Entries::Leaf(v) = &node.entries {
                return Ok(v.iter().find(|p| p.block < range.start && p.end() > range.end).copied());
            }
            node = self.below(node.child(node.child_of(range.start)))?;
        }
    }

    /// Moves the root's entries into a node of their own; the root's only entry is that node then.
    fn grow(&mut self, node: Node) -> Result<()> {
        if node.depth == MAX_DEPTH {
            return Err(ErrorKind::FileTooBig.into());
        }
        let addr = self.new_block()?;
        let first = node.entries.first().unwrap_or(0);
        let entries = Entries::Index(vec![(first, addr)]);
        let root = Node { depth: node.depth + 1, entries, ..node.clone() };
        self.store(Some(addr), &node)?;
        self.store(None, &root)
    }

    /// Moves the upper half of a node into a new node; if the node grew at its end, only the new entry.
    fn split(&mut self, addr: BlockAddr, mut node: Node, position: usize) -> Result<(u64, BlockAddr)> {
        let last = node.entries.len() - 1;
        let middle = if position >= last { last.min(self.max(Some(addr))) } else { node.entries.len() / 2 };
        let upper = Node { entries: node.entries.split_off(middle), ..node.clone() };
        let new = self.new_block()?;
        self.store(Some(addr), &node)?;
        self.store(Some(new), &upper)?;
        Ok((upper.entries.first().unwrap_or(0), new))
    }

    /// Removes a range below a node; returns the first block that is left, if any.
    fn remove_below(&mut self, way: &Way, range: &Range<u64>, gone: &mut Vec<Piece>) -> Result<Option<u64>> {
        let mut node = self.load(way)?;
        let before = node.entries.len();
        let mut changed = false;
        if let Entries::Leaf(v) = &mut node.entries {
            let n = gone.len();
            cut_leaf(v, range, gone);
            changed = gone.len() > n;
        }
        let mut n = 0;
        while let Some(child) = node.child(n) {
            if child.range.start >= range.end || child.range.end <= range.start {
                n += 1;
                continue;
            }
            let left = self.remove_below(&child, range, gone)?;
            let Entries::Index(v) = &mut node.entries else { break };
            match left {
                Some(first) => {
                    changed |= v[n].0 != first;
                    v[n].0 = first;
                    n += 1;
                }
                None => {
                    let (_, addr) = v.remove(n);
                    self.free_block(addr)?;
                }
            }
        }
        if way.at.is_none() && node.entries.len() == 0 {
            node = Node { depth: 0, entries: Entries::Leaf(Vec::new()), ..node };
            changed = true;
        }
        if (changed || node.entries.len() != before) && (way.at.is_none() || node.entries.len() > 0) {
            self.store(way.at, &node)?;
        }
        Ok(node.entries.first())
    }

    /// Removes levels that the root does not need.
    fn collapse(&mut self) -> Result<()> {
        loop {
            let root = self.load(&Way::ROOT)?;
            let Entries::Index(v) = &root.entries else { return Ok(()) };
            let &[(_, addr)] = &v[..] else { return Ok(()) };
            let child = self.below(root.child(0))?;
            if child.entries.len() > ROOT_MAX {
                return Ok(());
            }
            self.store(None, &child)?;
            self.free_block(addr)?;
        }
    }
}

impl Ext4 {
    /// A node as a list, to be changed.
    fn load_node(&self, own: &Ext4Inode, way: &Way) -> Result<Node> {
        self.open_node(own, way, |head, view| Node {
            depth: head.eh_depth.get(),
            generation: head.eh_generation.get(),
            range: way.range.clone(),
            entries: match view {
                View::Leaf(all) => Entries::Leaf(all.iter().map(piece_of).collect()),
                View::Index(all) => Entries::Index(
                    all.iter().map(|e| (e.ei_block.get().into(), BlockAddr(e.leaf()))).collect(),
                ),
            },
        })
    }

    /// Checks all nodes that a range of the file's blocks touches, and their places, before any is freed.
    fn judge_tree(&self, own: &Ext4Inode, way: &Way, range: &Range<u64>) -> Result<()> {
        let node = self.load_node(own, way)?;
        if let Entries::Leaf(v) = &node.entries {
            let mut gone = v.iter().filter_map(|p| p.part(range));
            return gone.try_for_each(|p| self.refuse_tables(own.ino, p.start, p.len));
        }
        let below = (0..node.entries.len()).filter_map(|n| node.child(n));
        let mut touched = below.filter(|w| w.range.start < range.end && w.range.end > range.start);
        touched.try_for_each(|w| self.judge_tree(own, &w, range))
    }

    /// Checks the part of a tree that covers a range of the file's blocks, if the tree has few nodes.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn judge_small_tree(&self, own: &Ext4Inode, range: &Range<u64>) -> Result<()> {
        match self.load_node(own, &Way::ROOT)?.depth {
            0..=JUDGED_WHOLE => self.judge_tree(own, &Way::ROOT, range),
            _ => Ok(()),
        }
    }
}

/// The first block of the last extents of a leaf that one change may free: at most `most` blocks, in groups
/// that the change has room for.
fn first_of_last(v: &[Piece], most: u64, groups: &mut Groups<'_>) -> u64 {
    let (mut left, mut first) = (most, 0);
    for p in v.iter().rev().take(AT_ONCE) {
        let want = p.len.min(left);
        let taken = groups.take_last(p.start.plus(p.len - want), want);
        first = p.end() - taken;
        if taken < p.len {
            break;
        }
        left -= taken;
    }
    first
}

fn piece_of(e: &RawExtent) -> Piece {
    let (len, unwritten) = e.len();
    Piece { block: e.ee_block.get().into(), len: len.into(), start: BlockAddr(e.start()), unwritten }
}

fn raw_of(p: &Piece) -> RawExtent {
    let len = p.len as u16 + if p.unwritten { INIT_MAX_LEN } else { 0 };
    RawExtent {
        ee_block: (p.block as u32).into(),
        ee_len: len.into(),
        ee_start_hi: ((p.start.0 >> 32) as u16).into(),
        ee_start_lo: (p.start.0 as u32).into(),
    }
}

fn raw_index(e: &(u64, BlockAddr)) -> RawExtentIndex {
    RawExtentIndex {
        ei_block: (e.0 as u32).into(),
        ei_leaf_lo: (e.1.0 as u32).into(),
        ei_leaf_hi: ((e.1.0 >> 32) as u16).into(),
        ei_unused: 0.into(),
    }
}
