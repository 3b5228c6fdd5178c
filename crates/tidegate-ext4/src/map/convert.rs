//! Writing to extents that say they were never written, and marking them when the data is there.
//!
//! A pass fills holes with unwritten extents in a change of its own, and sends the pages when that has ended: no handle is
//! held while the device is waited for, and no commit waits for data. When all bios of a run have ended well, a thread marks
//! its blocks written, raises the size in the table, and ends the write-back, so that an fsync, which waits for that,
//! commits the mark with the rest. Blocks whose data never came read as zeros.

use super::Place;
use super::change::Fill;
use super::write::{Pieces, Then, ends_at};
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{ei, own};
use crate::volume::conversion::{Queue, Written};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, Plug};
use tidegate_vfs::{ErrorKind, Inode, Result};

const PAGE: u64 = PAGE_SIZE as u64;

impl Ext4 {
    /// Where to say that blocks of a file hold data now, if they say until then that they do not.
    pub(super) fn conversions_of(&self, inode: &Inode) -> Option<&Arc<Queue>> {
        self.conversions.as_ref().map(|c| c.queue()).filter(|_| ei(inode).is(InodeFlags::EXTENTS))
    }

    /// Gives blocks places that read as zeros, as far as there is room; what is to follow when their data is there.
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
            match self.op(|handle| self.fill_promised(handle, inode, holes.clone(), Fill::Unwritten)) {
                Ok(_) => {}
                // What has a place can go.
                Err(e) if e.kind() == ErrorKind::NoSpace && done >= blocks.start + self.blocks.per_page() => {
                }
                Err(e) => return Err(e),
            }
            (pieces, unwritten) = self.mapped(inode, blocks)?;
        }
        let then = match unwritten || ei(inode).disk_size < end {
            true => Then::Convert(queue.clone(), blocks.start..ends_at(&pieces, blocks.start)),
            false => Then::End,
        };
        Ok((pieces, then))
    }

    /// The blocks of a range that have a place, up to the first that has none, and whether some read as zeros.
    fn mapped(&self, inode: &Inode, blocks: &Range<u64>) -> Result<(Pieces, bool)> {
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
        for of_one in all.chunk_by(|a, b| Arc::ptr_eq(&a.inode, &b.inode)) {
            let r = self.convert_all(&of_one[0].inode, of_one);
            of_one.iter().for_each(|w| w.end(r.as_ref().err()));
        }
    }

    fn convert_all(&self, inode: &Inode, all: &[Written]) -> Result<()> {
        for w in all {
            let mut at = w.blocks.start;
            while at < w.blocks.end {
                at = self.op(|handle| self.mark_part(handle, inode, at..w.blocks.end))?;
            }
        }
        {
            let mut arrived = own(inode).arrived.lock();
            for w in all {
                arrived.add(w.index..w.index + w.pages as u64);
            }
        }
        self.raise_to(inode, self.size_arrived(inode))
    }

    /// Marks the first blocks of a range written, as many as a change has room for; the first that was not reached.
    fn mark_part(&self, handle: &mut Handle<'_>, inode: &Inode, blocks: Range<u64>) -> Result<u64> {
        let mut at = blocks.start;
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            if let Place::Unwritten(_) = m.place {
                if handle.has_changed() && handle.is_low() {
                    break;
                }
                self.mark_written(handle, inode, at..at + m.blocks)?;
            }
            at += m.blocks;
        }
        Ok(at)
    }

    /// The size up to which all data of a file is on the volume, or was once.
    fn size_arrived(&self, inode: &Inode) -> u64 {
        let disk_size = ei(inode).disk_size;
        let arrived = own(inode).arrived.lock().clone();
        let mut at = disk_size / PAGE;
        loop {
            match inode.mapping.next_unwritten(at, u64::MAX) {
                None => return inode.size(),
                Some(page) => match arrived.end_of(page) {
                    Some(end) => at = end,
                    None => return (page * PAGE).clamp(disk_size, inode.size().max(disk_size)),
                },
            }
        }
    }

    /// Before an fsync: what is written behind what is not has its place in the file, and the rest reads as zeros.
    ///
    /// # Errors
    /// Those of storing.
    pub(crate) fn cover_arrived(&self, inode: &Inode) -> Result<()> {
        let last = own(inode).arrived.lock().last();
        last.map_or(Ok(()), |page| self.raise_to(inode, (page * PAGE).min(inode.size())))
    }

    fn raise_to(&self, inode: &Inode, size: u64) -> Result<()> {
        if ei(inode).disk_size < size {
            self.op(|handle| self.raise_disk_size(handle, inode, size))?;
        }
        let whole = size >= inode.size();
        own(inode).arrived.lock().remove(0..if whole { u64::MAX } else { size / PAGE });
        Ok(())
    }
}
