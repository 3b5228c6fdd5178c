//! Changes of a file's blocks: in its map, its inode and the bitmaps.

use super::leaf::Piece;
use super::numbers::Numbers;
use super::tree::Tree;
use super::{Mapped, Place};
use crate::alloc::Grower;
use crate::format::raw::InodeFlags;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{Ext4Inode, count_sectors, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_rt::RwLockWriteGuard;
use tidegate_vfs::{Attr, ErrorKind, FileType, Inode, Result};

/// Blocks that are marked in one step: fewer than an extent of unwritten blocks may have.
const MARKED_AT_ONCE: u64 = 1 << 14;

/// The blocks that fill a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Blocks that hold data, and were promised.
    Data,
    /// Blocks that read as zeros until the data is there, and were promised.
    Unwritten,
    /// Blocks that were not promised, and read as zeros.
    Ahead,
}

/// A file that gets blocks.
pub(super) struct Filling {
    now: Ext4Inode,
    attr: Attr,
    /// Its sectors before.
    before: u64,
    /// The file is open, and may grow.
    open: bool,
    /// The block behind those that it got last.
    behind: Option<BlockAddr>,
}

impl Filling {
    pub(super) fn of(inode: &Inode, data: &Arc<Ext4Inode>) -> Self {
        let attr = inode.attr().clone();
        let (now, before) = (Arc::unwrap_or_clone(data.clone()), attr.blocks);
        Filling { now, attr, before, open: inode.is_open(), behind: None }
    }
}

/// A map of either kind while it changes.
enum Map<'a, 'h> {
    Tree(Tree<'a, 'h>),
    Numbers(Numbers<'a, 'h>),
}

impl Map<'_, '_> {
    fn insert(&mut self, piece: Piece) -> Result<()> {
        match self {
            Map::Tree(t) => t.insert(piece),
            Map::Numbers(n) => n.insert(piece),
        }
    }

    fn remove(&mut self, range: Range<u64>) -> Result<Vec<Piece>> {
        match self {
            Map::Tree(t) => t.remove(range),
            Map::Numbers(n) => n.remove(range),
        }
    }

    /// A block map has no mark for unwritten blocks.
    fn mark(
        &mut self,
        range: Range<u64>,
        unwritten: bool,
        next: &mut dyn Iterator<Item = Range<u64>>,
    ) -> Result<()> {
        match self {
            Map::Tree(t) => t.mark(range, unwritten, next),
            Map::Numbers(_) => Ok(()),
        }
    }

    fn tail(&self, most: u64) -> Result<u64> {
        match self {
            Map::Tree(t) => t.tail(most),
            Map::Numbers(n) => n.tail(),
        }
    }
}

/// Ends the change of a tree; returns the result, and the number of nodes by which the tree grew.
fn ended<T>(mut tree: Tree<'_, '_>, r: Result<T>) -> (Result<T>, i64) {
    let back = tree.give_back();
    (r.and_then(|v| back.map(|()| v)), tree.nodes)
}

impl Ext4 {
    /// Changes a file's map of either kind with `f`; returns the number of blocks by which the map itself
    /// grew.
    fn with_map<T>(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        f: impl FnOnce(&mut Map<'_, '_>) -> Result<T>,
    ) -> (Result<T>, i64) {
        let goal = self.goal_of(own.ino);
        let mut map = match own.is(InodeFlags::EXTENTS) {
            true => Map::Tree(Tree { fs: self, handle, own, nodes: 0, goal, ahead: Vec::new() }),
            false => Map::Numbers(Numbers { fs: self, handle, own, nodes: 0, goal, claims: false }),
        };
        let r = f(&mut map);
        match map {
            Map::Tree(t) => ended(t, r),
            Map::Numbers(n) => (r, n.nodes),
        }
    }

    /// Changes the map of a file that has an extent tree, as [`Ext4::with_map`].
    pub(super) fn with_tree<T>(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        f: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> (Result<T>, i64) {
        let goal = self.goal_of(own.ino);
        let mut tree = Tree { fs: self, handle, own, nodes: 0, goal, ahead: Vec::new() };
        let r = f(&mut tree);
        ended(tree, r)
    }

    pub(super) fn sectors_of(&self, blocks: i64) -> i64 {
        blocks * i64::from(self.sb.block_size / 512)
    }

    /// Gives blocks to a file where it has none. Attributes and the inode in memory are updated; the caller
    /// stores the inode.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    #[allow(clippy::too_many_arguments)] // object, place and amount need two arguments each
    pub(crate) fn place_blocks(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
        at: FileBlock,
        start: BlockAddr,
        len: u64,
        unwritten: bool,
    ) -> Result<()> {
        let piece = Piece { block: at.0, len, start, unwritten };
        let is_promised = attr.file_type == FileType::Regular;
        let (r, nodes) = self.with_map(handle, own, |map| {
            if let Map::Numbers(numbers) = map {
                numbers.claims = !is_promised;
            }
            map.insert(piece)
        });
        let data = if r.is_ok() { len as i64 } else { 0 };
        attr.blocks = attr.blocks.saturating_add_signed(self.sectors_of(nodes + data));
        r
    }

    /// Gives blocks to the holes at the beginning of a file's range, as near to the file's other blocks as
    /// possible, and to all holes if there is room; stores the inode. Returns the first block that was not
    /// reached: where the transaction has no more room, that is the start of a page. Takes `ei->i_data_sem`
    /// exclusive.
    ///
    /// # Errors
    /// `NoSpace` where no hole got a block; `Corrupt`; those of the device.
    pub(crate) fn fill_holes(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
        fill: Fill,
    ) -> Result<u64> {
        let data = own(inode).write();
        let mut new = Filling::of(inode, &data);
        let (at, r) = self.fill_range(handle, &mut new, range, fill);
        self.keep_filled(handle, inode, data, new, r).map(|()| at)
    }

    /// Puts a file's new map and blocks into memory and stores the inode. The file keeps the blocks that it got before an
    /// error `r`.
    pub(super) fn keep_filled(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        mut data: RwLockWriteGuard<'_, Arc<Ext4Inode>>,
        new: Filling,
        r: Result<()>,
    ) -> Result<()> {
        if r.is_err() && !handle.has_changed() {
            return r;
        }
        *data = Arc::new(new.now);
        count_sectors(inode, new.before, new.attr.blocks);
        drop(data);
        r.and(self.store_inode(handle, inode))
    }

    /// Fills the holes at the beginning of a range, as [`Ext4::fill_holes`] does, and stores nothing.
    fn fill_range(
        &self,
        handle: &mut Handle<'_>,
        new: &mut Filling,
        range: Range<u64>,
        fill: Fill,
    ) -> (u64, Result<()>) {
        let (mut at, mut r) = (range.start, Ok(()));
        while at < range.end && r.is_ok() {
            let low = at > range.start && handle.is_low();
            if low && self.begins_page(at) {
                break;
            }
            let end = if low { (at + 1).next_multiple_of(self.blocks.per_page()) } else { range.end };
            r = self.fill_hole(handle, new, at..end.min(range.end), fill).map(|n| at += n);
        }
        if at > range.start && r.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace) {
            r = Ok(());
        }
        (at, r)
    }

    /// Fills the hole at the beginning of a range, or a part of it; returns the number of blocks to move on.
    pub(super) fn fill_hole(
        &self,
        handle: &mut Handle<'_>,
        new: &mut Filling,
        range: Range<u64>,
        fill: Fill,
    ) -> Result<u64> {
        let Filling { now, attr, open, behind, .. } = new;
        let m = self.map_blocks(now, FileBlock(range.start), range.end - range.start)?;
        if m.place != Place::Hole {
            return Ok(m.blocks);
        }
        let goal = self.goal_behind(now, range.start, *behind)?;
        let want = m.blocks.min(1 << 15) as u32;
        let taken = match fill {
            Fill::Ahead => self.take_ahead(handle, goal, want),
            Fill::Data | Fill::Unwritten => self.take_growing(
                handle,
                goal,
                want,
                Grower {
                    ino: now.ino,
                    group: self.inode_group(now.ino).0,
                    at: range.start,
                    size: attr.size,
                    open: *open,
                },
            ),
        };
        let (start, len) = taken?;
        let at = FileBlock(range.start);
        if let Err(e) = self.place_blocks(handle, now, attr, at, start, len.into(), fill != Fill::Data) {
            self.free_blocks(handle, start, len.into())?;
            return Err(e);
        }
        *behind = Some(start.plus(len.into()));
        Ok(len.into())
    }

    /// The block behind the place of the block before `at`; if that has none, `last`, or else a block near the inode.
    fn goal_behind(&self, now: &Ext4Inode, at: u64, last: Option<BlockAddr>) -> Result<BlockAddr> {
        let before = match at.checked_sub(1) {
            Some(n) => self.map_blocks(now, FileBlock(n), 1)?,
            None => Mapped { place: Place::Hole, blocks: 1 },
        };
        Ok(match before.place {
            Place::Data(addr) | Place::Unwritten(addr) => addr.plus(1),
            Place::Hole => last.unwrap_or_else(|| self.goal_of(now.ino)),
        })
    }

    /// Checks a file's map in a range that several changes are going to free, before the first of them. A map
    /// that is too large for that is checked in parts, each before it is freed.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn judge_map(&self, inode: &Inode, range: &Range<u64>) -> Result<()> {
        let data = own(inode).read();
        match data.is(InodeFlags::EXTENTS) {
            true => self.judge_small_tree(&data, range),
            false => self.judge_lower_numbers(&data, range),
        }
    }

    /// The first block of the part that one change may cut off a file's end.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn last_cut(&self, inode: &Inode) -> Result<u64> {
        let most = self.freed_at_once(inode);
        self.op(HandleType::Truncate, |handle| {
            // No thread marks blocks in the map meanwhile.
            let data = own(inode).read();
            let mut now = Arc::unwrap_or_clone(data.clone());
            self.with_map(handle, &mut now, |map| map.tail(most)).0
        })
    }

    /// Takes the blocks of a range from a file and frees them; stores the inode. Takes `ei->i_data_sem` exclusive.
    ///
    /// # Errors
    /// `NoSpace` where a cut in the middle needs a node; `Corrupt`; those of the device.
    pub(crate) fn free_range(&self, handle: &mut Handle<'_>, inode: &Inode, range: Range<u64>) -> Result<()> {
        let mut data = own(inode).write();
        let mut now = Arc::unwrap_or_clone(data.clone());
        let mut attr = inode.attr().clone();
        let before = attr.blocks;
        let r = self.cut(handle, &mut now, &mut attr, range);
        if r.is_err() && !handle.has_changed() {
            return r;
        }
        *data = Arc::new(now);
        count_sectors(inode, before, attr.blocks);
        drop(data);
        r.and(self.store_inode(handle, inode))
    }

    /// Takes the blocks of a range from an inode that is already part of a change, or is not in memory.
    pub(crate) fn cut(
        &self,
        handle: &mut Handle<'_>,
        now: &mut Ext4Inode,
        attr: &mut Attr,
        range: Range<u64>,
    ) -> Result<()> {
        let (gone, nodes) = self.with_map(handle, now, |map| map.remove(range));
        let gone = gone?;
        if self.logs_data_of(now) || attr.file_type != FileType::Regular {
            // The blocks may be in the log, and their next owner need not write them through it: a
            // directory's blocks are metadata.
            for p in gone.iter().filter(|p| !p.unwritten) {
                (0..p.len).try_for_each(|n| handle.forget(p.start.plus(n)))?;
            }
        }
        let blocks = gone.iter().map(|p| p.len).sum::<u64>();
        attr.blocks = attr.blocks.saturating_add_signed(self.sectors_of(nodes - blocks as i64));
        gone.iter().try_for_each(|p| self.free_blocks(handle, p.start, p.len))
    }

    /// Takes a range out of a file's map, and puts a piece there if one is given; returns the old pieces.
    /// They are not freed. Attributes and the inode in memory are updated; the caller stores the inode.
    ///
    /// # Errors
    /// As [`Tree::remove`] and [`Tree::insert`].
    pub(crate) fn remap(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
        range: Range<u64>,
        piece: Option<Piece>,
    ) -> Result<Vec<Piece>> {
        let (gone, nodes) = self.with_map(handle, own, |map| {
            let gone = map.remove(range)?;
            piece.map_or(Ok(()), |piece| map.insert(piece))?;
            Ok(gone)
        });
        let gone = gone?;
        let blocks = |all: &[Piece]| all.iter().map(|p| p.len as i64).sum::<i64>();
        let more = nodes + blocks(piece.as_slice()) - blocks(&gone);
        attr.blocks = attr.blocks.saturating_add_signed(self.sectors_of(more));
        Ok(gone)
    }

    /// Marks unwritten blocks of a range as written, as many as one change has room for; returns the first
    /// block that was not reached. `next` are ranges that the caller marks after this one: those that cost nothing more
    /// are marked with it. Takes `ei->i_data_sem` exclusive.
    ///
    /// # Errors
    /// `NoSpace` where an extent that is cut in pieces needs a node; nothing is half done then. `Corrupt`;
    /// those of the device.
    pub(crate) fn mark_written(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
        next: &mut dyn Iterator<Item = Range<u64>>,
    ) -> Result<u64> {
        self.mark_blocks(handle, inode, range, false, next)
    }

    /// Marks written blocks of a range as unwritten, so that they read as zeros, as [`Ext4::mark_written`] does the
    /// opposite. The file has extents, and none of its data is in the log.
    ///
    /// # Errors
    /// As [`Ext4::mark_written`].
    pub(crate) fn mark_unwritten(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<u64> {
        self.mark_blocks(handle, inode, range, true, &mut std::iter::empty())
    }

    fn mark_blocks(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        range: Range<u64>,
        unwritten: bool,
        next: &mut dyn Iterator<Item = Range<u64>>,
    ) -> Result<u64> {
        let mut data = own(inode).write();
        let (mut now, before) = (None, inode.attr().blocks);
        let (mut at, mut nodes, mut r) = (range.start, 0, Ok(()));
        while at < range.end && r.is_ok() {
            let known = now.as_ref().unwrap_or(&**data);
            let m = match self.map_blocks(known, FileBlock(at), (range.end - at).min(MARKED_AT_ONCE)) {
                Ok(m) => m,
                Err(e) => {
                    r = Err(e);
                    break;
                }
            };
            let other = match m.place {
                Place::Unwritten(_) => !unwritten,
                Place::Data(_) => unwritten,
                Place::Hole => false,
            };
            if other {
                if handle.has_changed() && handle.is_low() {
                    break;
                }
                let now = now.get_or_insert_with(|| Arc::unwrap_or_clone(data.clone()));
                let end = at + m.blocks;
                let (marked, more) = self.with_map(handle, now, |map| match end < range.end {
                    true => map.mark(at..end, unwritten, &mut std::iter::empty()),
                    false => map.mark(at..end, unwritten, next),
                });
                nodes += more;
                r = marked;
            }
            if r.is_ok() {
                at += m.blocks;
            }
        }
        if at > range.start && r.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace) {
            r = Ok(());
        }
        // A mark in the root is so far only in memory.
        let Some(now) = now.filter(|_| at > range.start || handle.has_changed()) else {
            return r.map(|()| at);
        };
        *data = Arc::new(now);
        count_sectors(inode, before, before.saturating_add_signed(self.sectors_of(nodes)));
        drop(data);
        r.and(self.store_inode(handle, inode)).map(|()| at)
    }
}
