//! Removal and insertion of ranges of a file: the blocks behind the range move (`FALLOC_FL_COLLAPSE_RANGE`,
//! `FALLOC_FL_INSERT_RANGE`).
//!
//! No data moves, only extents: leaf by leaf, downwards beginning with the first and upwards beginning with
//! the last, so that extents never overlap. If one change has no room for all leaves of a tree, the move
//! takes several, as in Linux; a power cut then leaves the hole in the middle of the file.

use super::leaf::{move_pieces, split_at};
use super::node::{END, Way};
use super::tree::{Entries, Tree};
use super::{Place, truncate};
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{ei, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_rt::Timespec;
use tidegate_vfs::{Error, ErrorKind, FileType, Inode, Result};

/// The extents that a shift moves.
#[derive(Clone, Copy)]
enum Move {
    /// The extents from block `from` on move `by` blocks towards the beginning; the extents before `from` are
    /// in their places already.
    Down { from: u64, by: u64 },
    /// The extents from block `from` on and before `before` move `by` blocks away from the beginning; the
    /// later ones have moved already.
    Up { from: u64, before: u64, by: u64 },
}

impl Tree<'_, '_> {
    /// Splits the extent that crosses the start of a block.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    fn split_extent(&mut self, at: u64) -> Result<()> {
        match self.around(&(at..at))? {
            Some(_) => self.edit(at, &mut |v, _| split_at(v, at)),
            None => Ok(()),
        }
    }

    /// The first block behind the last extent.
    fn end(&self) -> Result<u64> {
        let mut node = self.load(&Way::ROOT)?;
        loop {
            if let Entries::Leaf(v) = &node.entries {
                return Ok(v.last().map_or(0, |p| p.end()));
            }
            node = self.below(node.last_child())?;
        }
    }

    /// Moves the extents of one leaf; returns the range that is left to move.
    fn move_leaf(&mut self, what: Move) -> Result<Option<Move>> {
        let (at, pick, to): (_, _, Box<dyn Fn(u64) -> u64>) = match what {
            Move::Down { from, by } => match self.first_from(from)? {
                Some(first) => (first, from..END, Box::new(move |b| b - by)),
                None => return Ok(None),
            },
            Move::Up { from, before, .. } if before <= from => return Ok(None),
            Move::Up { from, before, by } => (before - 1, from..before, Box::new(move |b| b + by)),
        };
        let Some(moved) = self.move_in_leaf(at, &pick, &*to)? else { return Ok(None) };
        Ok(Some(match what {
            Move::Down { by, .. } => Move::Down { from: moved.end, by },
            Move::Up { from, by, .. } => Move::Up { from, before: moved.start, by },
        }))
    }

    /// The first block from `at` on that has a place.
    fn first_from(&self, mut at: u64) -> Result<Option<u64>> {
        while at < END {
            let m = self.fs.map_blocks(self.own, FileBlock(at), END - at)?;
            if m.place != Place::Hole {
                return Ok(Some(at));
            }
            at += m.blocks;
        }
        Ok(None)
    }

    /// Moves the extents of a range that are in the leaf of block `at`; returns the range that they had.
    fn move_in_leaf(
        &mut self,
        at: u64,
        pick: &Range<u64>,
        to: &dyn Fn(u64) -> u64,
    ) -> Result<Option<Range<u64>>> {
        let (mut place, mut node, mut above) = (None, self.load(&Way::ROOT)?, Vec::new());
        while let Entries::Index(_) = &node.entries {
            let child = node.child_of(at);
            let way = node.child(child);
            let next = way.as_ref().and_then(|w| w.at);
            let below = self.below(way)?;
            above.push((place, std::mem::replace(&mut node, below), child));
            place = next;
        }
        let Entries::Leaf(v) = &mut node.entries else { return Ok(None) };
        let Some(moved) = move_pieces(v, pick, to) else { return Ok(None) };
        let first = v.first().map_or(0, |p| p.block);
        self.store(place, &node)?;
        for (place, mut node, child) in above.into_iter().rev() {
            if let Entries::Index(v) = &mut node.entries {
                v[child].0 = first;
            }
            self.store(place, &node)?;
            if child > 0 {
                break;
            }
        }
        Ok(Some(moved))
    }
}

impl Ext4 {
    /// Refuses files without extents.
    ///
    /// # Errors
    /// `Unsupported` for such files.
    pub(crate) fn has_extents_to_shift(&self, inode: &Inode) -> Result<()> {
        if inode.file_type == FileType::Regular && ei(inode).is(InodeFlags::EXTENTS) {
            return Ok(());
        }
        let what = "a file without extents gets no ranges in and out";
        Err(Error::new(ErrorKind::Unsupported, what).in_inode(inode.ino))
    }

    /// Takes whole blocks out of a file, or inserts a hole. No page from the first of these blocks on is in
    /// memory, and all are on the volume.
    ///
    /// # Errors
    /// `Unsupported` for a file without extents, `FileTooBig` where extents would lie too far; those of
    /// changing the map. The file may have a hole in its middle then.
    pub(crate) fn shift(
        &self,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
        insert: bool,
        now: Timespec,
    ) -> Result<()> {
        self.has_extents_to_shift(inode)?;
        let blocks = self.file_blocks(&bytes);
        self.settle_size(inode)?;
        if ei(inode).disk_size != inode.size() {
            return Err(
                Error::new(ErrorKind::Io, "data that is to move is not on the volume").in_inode(inode.ino)
            );
        }
        self.forget_promises(inode, blocks.start..u64::MAX)?;
        if insert {
            return self.put_in(inode, blocks, now);
        }
        self.judge_map(inode, &blocks)?;
        self.free_but_last(inode, &blocks)?;
        self.take_out(inode, blocks, now)
    }

    fn take_out(&self, inode: &Inode, blocks: Range<u64>, now: Timespec) -> Result<()> {
        let by = blocks.end - blocks.start;
        let size = inode.size() - by * u64::from(self.sb.block_size);
        let (mut begun, mut left) = (false, Move::Down { from: blocks.end, by });
        loop {
            let rest = self.op_freeing(inode, |handle| {
                if !begun {
                    // Once: the moved blocks lie there afterwards.
                    self.free_range(handle, inode, blocks.clone())?;
                    begun = true;
                }
                let rest = self.move_some(handle, inode, left)?;
                if rest.is_none() {
                    self.store_shifted(handle, inode, size, now)?;
                }
                Ok(rest)
            })?;
            match rest {
                Some(rest) => left = rest,
                None => return Ok(()),
            }
        }
    }

    fn put_in(&self, inode: &Inode, blocks: Range<u64>, now: Timespec) -> Result<()> {
        let by = blocks.end - blocks.start;
        let size = inode.size() + by * u64::from(self.sb.block_size);
        let (mut begun, mut left) = (false, Move::Up { from: blocks.start, before: END, by });
        loop {
            let rest = self.op(HandleType::Truncate, |handle| {
                if !begun {
                    self.make_way(handle, inode, blocks.start, by)?;
                    // The size comes first: no extent may lie past the file's end meanwhile.
                    self.store_shifted(handle, inode, size, now)?;
                    begun = true;
                }
                self.move_some(handle, inode, left)
            })?;
            match rest {
                Some(rest) => left = rest,
                None => return Ok(()),
            }
        }
    }

    /// Splits the extent that crosses the start of a block, from which on extents will move `by` blocks.
    fn make_way(&self, handle: &mut Handle<'_>, inode: &Inode, at: u64, by: u64) -> Result<()> {
        self.change_tree(handle, inode, |tree| {
            // The last block that a file may have is one less than the last that can be named.
            if tree.end()? + by >= END {
                return Err(ErrorKind::FileTooBig.into());
            }
            tree.split_extent(at)
        })
    }

    /// Moves extents, leaf by leaf, as many as there is room for; returns the rest.
    fn move_some(&self, handle: &mut Handle<'_>, inode: &Inode, what: Move) -> Result<Option<Move>> {
        let mut left = what;
        loop {
            match self.change_tree(handle, inode, |tree| tree.move_leaf(left))? {
                None => return Ok(None),
                Some(rest) if handle.is_low() => return Ok(Some(rest)),
                Some(rest) => left = rest,
            }
        }
    }

    /// Sets the size and the times after a shift.
    fn store_shifted(&self, handle: &mut Handle<'_>, inode: &Inode, size: u64, now: Timespec) -> Result<()> {
        truncate::set_sizes(inode, |_| size);
        {
            let mut a = inode.attr();
            (a.mtime, a.ctime) = (now, now);
        }
        self.store_inode(handle, inode)
    }

    /// Frees the blocks of a range except for its last runs, which the change that removes the range may free
    /// itself.
    fn free_but_last(&self, inode: &Arc<Inode>, blocks: &Range<u64>) -> Result<()> {
        let (mut at, mut runs) = (blocks.start, Vec::new());
        let most = self.freed_at_once(inode);
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), (blocks.end - at).min(most))?;
            if m.place != Place::Hole {
                runs.push(at..at + m.blocks);
            }
            at += m.blocks;
        }
        let mut kept = 0;
        let last = runs.iter().rev().take(RUNS_AT_ONCE).take_while(|r| {
            kept += r.end - r.start;
            kept <= most
        });
        let first = runs.len() - last.count();
        for run in runs.drain(..first) {
            self.op_freeing(inode, |handle| self.free_range(handle, inode, run.clone()))?;
        }
        Ok(())
    }

    /// Changes a file's extent tree, and stores the inode. Takes `ei->i_data_sem` exclusive.
    fn change_tree<T>(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        f: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let mut data = own(inode).write();
        let mut now = Arc::unwrap_or_clone(data.clone());
        let before = inode.attr().blocks;
        let (r, nodes) = self.with_tree(handle, &mut now, f);
        if r.is_err() && !handle.has_changed() {
            return r;
        }
        *data = Arc::new(now);
        crate::inode::count_sectors(inode, before, before.saturating_add_signed(self.sectors_of(nodes)));
        drop(data);
        let value = r?;
        self.store_inode(handle, inode)?;
        Ok(value)
    }
}

/// Most runs that the change which removes a range frees.
const RUNS_AT_ONCE: usize = 4;
