//! Writing to extents that say they were never written, and marking them when the data is there.
//!
//! A pass fills holes with unwritten extents in a change of its own, and sends the pages when that has ended:
//! no handle is held while the device is waited for, and no commit waits for data. When all bios of a run
//! have ended well, a thread marks its blocks written, raises the size in the table, and ends the write-back,
//! so that an fsync, which waits for that, commits the mark with the rest. Blocks whose data never came read
//! as zeros.

use super::Place;
use super::change::Fill;
use super::write::{Pieces, Then, ends_at};
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{ei, own};
use crate::volume::conversion::{Queue, Turn, Written};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::Plug;
use tidegate_vfs::{ErrorKind, Inode, Result};

/// Where the marks of several runs are: the run, and the first block of it without one.
type Reached = (usize, u64);

impl Ext4 {
    /// Where to say that blocks of a file hold data now, if they say until then that they do not.
    pub(super) fn conversions_of(&self, inode: &Inode) -> Option<&Arc<Queue>> {
        self.conversions.as_ref().map(|c| c.queue()).filter(|_| ei(inode).is(InodeFlags::EXTENTS))
    }

    /// Gives blocks places that read as zeros, as far as there is space; the work that follows when their
    /// data is there, up to byte `end` of the file.
    ///
    /// # Errors
    /// `NoSpace` when not even the first page has a place; those of the map.
    pub(super) fn set_aside(
        &self,
        inode: &Arc<Inode>,
        blocks: &Range<u64>,
        end: u64,
        queue: &Arc<Queue>,
        plug: &mut Plug<'_>,
    ) -> Result<(Pieces, Then)> {
        let (mut pieces, mut unwritten) = self.mapped(inode, blocks)?;
        let done = ends_at(&pieces, blocks.start);
        if done < blocks.end {
            plug.send();
            let holes = done..blocks.end;
            match self.op(HandleType::WritePage, |handle| {
                self.fill_promised(handle, inode, holes.clone(), Fill::Unwritten)
            }) {
                Ok(_) => {}
                // Pages that have a place can go.
                Err(e) if e.kind() == ErrorKind::NoSpace && done >= blocks.start + self.blocks.per_page() => {
                }
                Err(e) => return Err(e),
            }
            (pieces, unwritten) = self.mapped(inode, blocks)?;
        }
        Ok((pieces, self.follows(inode, unwritten, end, queue)))
    }

    /// The end of a run of pages, whose blocks may be `unwritten` and which makes the file reach to byte `end`.
    pub(super) fn follows(&self, inode: &Arc<Inode>, unwritten: bool, end: u64, queue: &Arc<Queue>) -> Then {
        // A size that is ahead of the table's for any reason follows with the last of the data.
        match unwritten || ei(inode).disk_size < inode.size() {
            true => Then::Convert(Turn::new(queue, inode, end)),
            false => Then::End,
        }
    }

    /// The blocks of a range that have a place, up to the first that has none, and whether some read as zeros.
    pub(super) fn mapped(&self, inode: &Inode, blocks: &Range<u64>) -> Result<(Pieces, bool)> {
        let (mut at, mut pieces, mut unwritten) = (blocks.start, Vec::new(), false);
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            let addr = match m.place {
                Place::Hole => break,
                Place::Data(addr) => addr,
                Place::Unwritten(addr) => {
                    unwritten = true;
                    addr
                }
            };
            pieces.push((at, addr, m.blocks));
            at += m.blocks;
        }
        Ok((pieces, unwritten))
    }

    /// Marks blocks whose data is on the device, and ends the write-back of their pages.
    pub(crate) fn convert(&self, mut all: Vec<Written>) {
        all.sort_by_key(|w| (w.inode.ino.0, w.index));
        let mut all = all.as_mut_slice();
        while let Some(first) = all.first() {
            // Credits that were kept for a run are for that alone.
            let joins = |w: &&Written| Arc::ptr_eq(&w.inode, &first.inode) && w.turn.later.is_none();
            let n = all.iter().take_while(joins).count().max(1);
            let (of_one, others) = all.split_at_mut(n);
            self.convert_all(of_one);
            all = others;
        }
    }

    /// Marks the blocks of runs of one file, and raises its size. Runs that cannot be marked are dirty again.
    fn convert_all(&self, all: &mut [Written]) {
        let Some(first) = all.first_mut() else { return };
        let (inode, mut later) = (first.inode.clone(), first.turn.later.take());
        let mut reached = (0, first.blocks.start);
        let mut r = Ok(());
        while reached.0 < all.len() && r.is_ok() {
            let mark = |handle: &mut Handle<'_>| self.mark_some(handle, &inode, all, reached);
            r = self.op_later(later.take(), HandleType::ExtConvert, mark).map(|now| reached = now);
        }
        self.note_behind(&inode);
        let (marked, others) = all.split_at_mut(reached.0);
        marked.iter_mut().for_each(|w| w.end(None));
        others.iter_mut().for_each(|w| w.end(r.as_ref().err()));
    }

    /// Marks as many blocks as a change has room for, and raises the size by the runs that are marked whole;
    /// where it is.
    fn mark_some(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        all: &[Written],
        (mut n, mut at): Reached,
    ) -> Result<Reached> {
        while let Some(run) = all.get(n) {
            at = self.mark_written(handle, inode, at..run.blocks.end)?;
            if at < run.blocks.end {
                break;
            }
            n += 1;
            at = all.get(n).map_or(0, |next| next.blocks.start);
        }
        self.raise_by(handle, inode, &all[..n])?;
        Ok((n, at))
    }

    /// Has the table say how long a file is with runs that are on the device.
    fn raise_by(&self, handle: &mut Handle<'_>, inode: &Inode, arrived: &[Written]) -> Result<()> {
        let sizes: Vec<u64> = arrived.iter().map(|w| self.size_with(inode, w.turn.end)).collect();
        {
            let mut sent = own(inode).sent.lock();
            arrived.iter().zip(sizes).for_each(|(w, size)| sent.arrived(w.turn.number, size));
        }
        // A truncation meanwhile has cut what it found, and the rest is cut here.
        let size = inode.size();
        let (due, end) = {
            let mut sent = own(inode).sent.lock();
            sent.cut(size);
            sent.due()
        };
        self.raise_disk_size(handle, inode, due)?;
        own(inode).sent.lock().forget(end);
        Ok(())
    }
}
