//! Writes to unwritten extents, which are marked written when their data is on the device.
//!
//! A pass fills holes with unwritten extents in a change of its own, and sends the pages when that change has
//! ended. So no handle is held during a wait for the device, and no commit waits for data. When all bios of a
//! run have succeeded, a thread marks the run's blocks written, raises the size in the table, and ends the
//! write-back. An fsync waits for the write-back, so it commits the mark with the rest. Blocks whose data
//! never arrived read as zeros.

use super::change::{Fill, Filling};
use super::places::{Placed, Stop};
use super::write::Then;
use crate::format::raw::InodeFlags;
use crate::inode::{ei, own};
use crate::volume::conversion::{Queue, Turn, Written};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{PageBuf, Plug};
use tidegate_jbd2::Reserved;
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{ErrorKind, Inode, Result};

/// Parts of a file's range that one change gives places ahead of a pass, and their bytes (Linux:
/// `MAX_WRITEPAGES_EXTENT_LEN` pages).
const PARTS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u64 = 8 << 20;

/// The progress of marking several runs: the run, and the first block without a mark.
type Reached = (usize, u64);

impl Ext4 {
    /// The queue for marking a file's blocks as written, if its blocks are unwritten until then.
    pub(super) fn conversions_of(&self, inode: &Inode) -> Option<&Arc<Queue>> {
        self.conversions.as_ref().map(|c| c.queue()).filter(|_| ei(inode).is(InodeFlags::EXTENTS))
    }

    /// Gives blocks places that read as zeros, as far as there is space; returns the places, and the work
    /// that follows when the data is there, up to byte `end` of the file. The same change gives places to blocks before
    /// byte `size` that the pass comes to next.
    ///
    /// # Errors
    /// `NoSpace` when not even the first page has a place; those of the map.
    pub(super) fn set_aside(
        &self,
        inode: &Arc<Inode>,
        blocks: &Range<u64>,
        (end, size): (u64, u64),
        queue: &Arc<Queue>,
        plug: &mut Plug<'_>,
    ) -> Result<(Placed, Then)> {
        let mut placed = self.places(inode, blocks, Stop::Unplaced)?;
        let done = placed.until;
        if done < blocks.end {
            plug.send();
            let holes = done..blocks.end;
            match self.op(HandleType::WritePage, |handle| {
                let filled = self.fill_promised(handle, inode, holes.clone(), Fill::Unwritten)?;
                if filled == holes.end {
                    self.fill_next(handle, inode, holes.end..self.blocks_of(size))?;
                }
                if self.planted.is(PlantedBug::EarlySize) {
                    self.raise_disk_size(handle, inode, end)?;
                }
                Ok(filled)
            }) {
                Ok(filled) => placed = self.places(inode, &(blocks.start..filled), Stop::Never)?,
                // Pages that have a place can be sent.
                Err(e) if e.kind() == ErrorKind::NoSpace && done >= blocks.start + self.blocks.per_page() => {
                }
                Err(e) => return Err(e),
            }
        }
        let then = self.follows(inode, placed.unwritten, end, queue);
        Ok((placed, then))
    }

    /// Gives places that read as zeros to promised blocks of a range: to its first [`PARTS_AT_ONCE`] parts, as far as
    /// there is room. Takes `ei->i_data_sem` exclusive, so that a truncation, which first takes the promises back, frees
    /// such places. Damage leaves a part as it is, for the pass that comes to it.
    ///
    /// # Errors
    /// Those of a change that is half done.
    fn fill_next(&self, handle: &mut Handle<'_>, inode: &Inode, range: Range<u64>) -> Result<()> {
        let _placing = self.space()?.placing();
        let (per_page, most) = (self.blocks.per_page(), BYTES_AT_ONCE / u64::from(self.sb.block_size));
        let data = own(inode).write();
        let parts = own(inode).delayed.lock().first_in(range, PARTS_AT_ONCE);
        let (mut new, mut filled, mut r) = (Filling::of(inode, &data), Vec::new(), Ok(()));
        let (mut blocks, mut stray) = (0, 0..0);
        for part in parts {
            blocks += part.end - part.start;
            // A part that is longer than a run would be marked in pieces, which may need more blocks of the map.
            let is_long = part.end - part.start > PageBuf::MAX_PAGES as u64 * per_page;
            if is_long || blocks > most || handle.is_low() {
                break;
            }
            let mut at = part.start;
            while at < part.end && r.is_ok() {
                let before = handle.writes();
                match self.fill_hole(handle, &mut new, at..part.end, Fill::Unwritten) {
                    Ok(n) => at += n,
                    Err(e) if e.kind() == ErrorKind::NoSpace || handle.writes() == before => break,
                    Err(e) => r = Err(e),
                }
            }
            let whole = if at < part.end { (at / per_page * per_page).max(part.start) } else { at };
            filled.push(part.start..whole);
            stray = whole..at;
            if at < part.end {
                break;
            }
        }
        if filled.is_empty() {
            return r;
        }
        own(inode).ahead.store(true, Relaxed);
        // This comes before the unlock: a block that is freed then, and written again, has a promise of its own.
        filled.into_iter().try_for_each(|part| self.forget_promises(inode, part))?;
        self.keep_filled(handle, inode, data, new, r)?;
        if stray.is_empty() { Ok(()) } else { self.free_range(handle, inode, stray) }
    }

    /// The end of a run of pages. Its blocks may be `unwritten`, and it makes the file reach to byte `end`.
    pub(super) fn follows(&self, inode: &Arc<Inode>, unwritten: bool, end: u64, queue: &Arc<Queue>) -> Then {
        // A size that is ahead of the table's for any reason is stored after the last of the data.
        match unwritten || ei(inode).disk_size < inode.size() {
            true => Then::Convert(Turn::new(queue, inode, end)),
            false => Then::End,
        }
    }

    /// Marks blocks whose data is on the device, and ends the write-back of their pages.
    pub(crate) fn convert(&self, mut all: Vec<Written>) {
        all.sort_by_key(|w| (w.inode.ino.0, w.index));
        let mut all = all.into_iter().peekable();
        while let Some(mut first) = all.next() {
            // Credits that were kept for a run are only for that run.
            let later = first.turn.later.take();
            let inode = first.inode.clone();
            let mut of_one = vec![first];
            if later.is_none() {
                let joins = |w: &Written| Arc::ptr_eq(&w.inode, &inode) && w.turn.later.is_none();
                of_one.extend(std::iter::from_fn(|| all.next_if(joins)));
            }
            self.convert_all(&inode, of_one, later);
        }
    }

    /// Marks the blocks of runs of one file, and raises its size. Pages of runs that cannot be marked become
    /// dirty again.
    fn convert_all(&self, inode: &Arc<Inode>, all: Vec<Written>, mut later: Option<Reserved>) {
        let all = self.hold_back(inode, all);
        let (mut reached, mut r) = ((0, 0), Ok(()));
        while reached.0 < all.len() && r.is_ok() {
            let mark = |handle: &mut Handle<'_>| self.mark_some(handle, inode, &all, reached);
            r = self.op_later(later.take(), HandleType::ExtConvert, mark).map(|now| reached = now);
        }
        self.note_behind(inode);
        for (n, run) in all.into_iter().enumerate() {
            run.end(r.as_ref().err().filter(|_| n >= reached.0));
        }
    }

    /// Holds runs that must wait for the end of earlier ones, and returns the others. e2fsck and Linux
    /// require that the size covers a block that is marked written.
    fn hold_back(&self, inode: &Inode, all: Vec<Written>) -> Vec<Written> {
        let covered = self.blocks_of(ei(inode).disk_size);
        let mut numbers: Vec<u64> = all.iter().map(|w| w.turn.number).collect();
        numbers.sort_unstable();
        let mut sent = own(inode).sent.lock();
        let Some(before) = sent.first_but(&numbers) else { return all };
        let (goes, waits): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|w| w.turn.number < before || w.blocks.last().is_none_or(|part| part.end <= covered));
        waits.into_iter().for_each(|w| sent.hold(w.turn.number, w));
        goes
    }

    /// Marks as many blocks as one change has room for, and raises the size to cover them; returns the
    /// progress.
    fn mark_some(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        all: &[Written],
        (mut n, mut at): Reached,
    ) -> Result<Reached> {
        let (bs, mut size, begun) = (u64::from(self.sb.block_size), 0, (n, at));
        'runs: while let Some(run) = all.get(n) {
            let parts = &run.blocks[run.blocks.partition_point(|part| part.end <= at)..];
            for (i, part) in parts.iter().enumerate() {
                let mut next =
                    parts[i + 1..].iter().chain(all[n + 1..].iter().flat_map(|run| &run.blocks)).cloned();
                at = match self.mark_written(handle, inode, at.max(part.start)..part.end, &mut next) {
                    // The size covers what is marked; the next change meets the error.
                    Err(e) if e.kind() == ErrorKind::NoSpace && (n, at) != begun => {
                        size = size.max(at * bs);
                        break 'runs;
                    }
                    marked => marked?,
                };
                if at < part.end {
                    break;
                }
            }
            if parts.last().is_some_and(|last| at < last.end) {
                size = size.max(at * bs);
                break;
            }
            size = size.max(self.size_with(inode, run.turn.end));
            (n, at) = (n + 1, 0);
        }
        self.raise_disk_size(handle, inode, size)?;
        Ok((n, at))
    }
}
