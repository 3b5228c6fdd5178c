//! Truncation, holes, and preallocated blocks.

use super::Place;
use super::change::Fill;
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{ei, own};
use crate::volume::handle::HandleType;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::Timespec;
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

const PAGE: u64 = PAGE_SIZE as u64;

impl Ext4 {
    /// Truncates a file to `size`, or only sets the size. A large file is cut in several changes, from its
    /// end.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()> {
        let (size_before, disk_size) = (inode.size(), ei(inode).disk_size);
        if size < size_before {
            // Passes write nothing behind the new end from here on. The pages that they have sent must arrive
            // before their blocks are free: the next commit may give the blocks to another file.
            inode.attr().size = size;
            inode.mapping.wait_writeback(size / PAGE, u64::MAX);
            own(inode).emptied.fetch_or(size == 0, Relaxed);
        }
        // A file that gets longer keeps blocks that were allocated ahead of it, as on Linux.
        if size <= size_before {
            self.forget_promises(inode, self.blocks_of(size)..u64::MAX)?;
            self.cut_in_steps(inode, size).inspect_err(|_| {
                let now = ei(inode).disk_size;
                inode.attr().size = if now < disk_size { now.max(size) } else { size_before };
            })?;
        }
        self.op(HandleType::Truncate, |handle| {
            let sizes = set_sizes(inode, |_| size);
            let before = {
                let mut a = inode.attr();
                let before = (a.mtime, a.ctime);
                (a.mtime, a.ctime) = (now, now);
                before
            };
            let stored = self.store_inode(handle, inode);
            if stored.is_err() && !handle.has_changed() {
                put_back(inode, sizes);
                let mut a = inode.attr();
                (a.mtime, a.ctime) = before;
            }
            stored
        })
    }

    /// Frees the blocks behind `size` bytes of a file, which gets shorter with each step.
    ///
    /// # Errors
    /// `Corrupt` for a damaged map, with nothing freed; those of freeing; parts that were cut off before stay
    /// so.
    pub(crate) fn cut_in_steps(&self, inode: &Inode, size: u64) -> Result<()> {
        let (from, bs) = (self.blocks_of(size), u64::from(self.sb.block_size));
        self.judge_map(inode, &(from..u64::MAX))?;
        loop {
            let last = self.last_cut(inode)?;
            let step = last.max(from);
            self.op_freeing(inode, |handle| {
                let before = set_sizes(inode, |now| now.min(size.max(step * bs)));
                let freed = self.free_range(handle, inode, step..u64::MAX);
                if freed.is_err() && !handle.has_changed() {
                    put_back(inode, before);
                }
                freed
            })?;
            if last <= from {
                return Ok(());
            }
        }
    }

    /// Frees the blocks of a range of whole blocks. Pages that lie in it only in part are clean.
    pub(crate) fn punch(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = self.file_blocks(&bytes);
        self.judge_map(inode, &blocks)?;
        self.forget_promises(inode, blocks.clone())?;
        let mut at = blocks.start;
        while at < blocks.end {
            // One change frees a run of blocks in one piece, and skips the hole behind it.
            let m =
                self.map_shared(inode, FileBlock(at), (blocks.end - at).min(self.freed_at_once(inode)))?;
            if m.place != Place::Hole {
                self.op_freeing(inode, |handle| self.free_range(handle, inode, at..at + m.blocks))?;
            }
            at += m.blocks;
        }
        // Dirty pages that the size waited for may be gone. No thread makes new ones during this wait.
        if inode.mapping.nr_dirty() == 0 {
            inode.mapping.wait_writeback(0, u64::MAX);
        }
        self.settle_size(inode)
    }

    /// Makes a range of whole blocks read as zeros, as [`Ext4::punch`], and lets the file keep its blocks, as Linux does.
    /// Blocks that may be in the log are freed all the same: a replay would bring their content back.
    pub(crate) fn zero_blocks(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = self.file_blocks(&bytes);
        let keeps = ei(inode).is(InodeFlags::EXTENTS) && !self.logs_data(inode);
        let mut at = blocks.start;
        if keeps {
            self.judge_map(inode, &blocks)?;
            self.forget_promises(inode, blocks.clone())?;
        }
        while keeps && at < blocks.end {
            let marked =
                self.op(HandleType::Truncate, |handle| self.mark_unwritten(handle, inode, at..blocks.end));
            match marked {
                Ok(reached) => at = reached,
                // An extent that is cut in pieces needs a node, for which there is space once blocks are free.
                Err(e) if e.kind() == ErrorKind::NoSpace => break,
                Err(e) => return Err(e),
            }
        }
        let bs = u64::from(self.sb.block_size);
        self.punch(inode, at * bs..bytes.end.max(at * bs))
    }

    /// Refuses preallocation for a file without extents: a block map has no mark for unwritten blocks.
    ///
    /// # Errors
    /// `Unsupported` for such files.
    pub(crate) fn has_extents_for_ahead(&self, inode: &Inode) -> Result<()> {
        if ei(inode).is(InodeFlags::EXTENTS) {
            return Ok(());
        }
        let what = "a file without extents gets no blocks ahead";
        Err(Error::new(ErrorKind::Unsupported, what).in_inode(inode.ino))
    }

    /// Gives the holes of a range blocks that read as zeros. The file has extents.
    pub(crate) fn preallocate_range(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = self.file_blocks(&bytes);
        let mut at = blocks.start;
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            let range = at..at + m.blocks;
            // Pages that wait for a place get theirs when they are written.
            let parts =
                if m.place == Place::Hole { own(inode).delayed.lock().missing(range) } else { vec![] };
            for mut part in parts {
                while !part.is_empty() {
                    part.start = self.op(HandleType::MapBlocks, |handle| {
                        self.fill_holes(handle, inode, part.clone(), Fill::Ahead)
                    })?;
                }
            }
            at += m.blocks;
        }
        Ok(())
    }
}

/// Sets the size in the table and in memory; returns the old sizes.
pub(super) fn set_sizes(inode: &Inode, new: impl Fn(u64) -> u64) -> (u64, u64) {
    let mut data = own(inode).write();
    let mut a = inode.attr();
    let before = (data.disk_size, a.size);
    Arc::make_mut(&mut data).disk_size = new(before.0);
    a.size = new(before.1);
    before
}

/// Undoes a change of sizes that failed.
fn put_back(inode: &Inode, (disk_size, size): (u64, u64)) {
    Arc::make_mut(&mut own(inode).write()).disk_size = disk_size;
    inode.attr().size = size;
}
