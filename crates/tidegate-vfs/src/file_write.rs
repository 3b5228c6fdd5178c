//! Open files: writing, truncating, allocating.

use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::fs::{WriteEnd, WritebackControl};
use crate::inode::{Growing, Inode};
use crate::mapping::Change;
use crate::mapping::chunk::PageRun;
use crate::types::*;
use crate::vfs::Vfs;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf};
use tidegate_rt::{Timespec, trace::SpanPoint};

static WRITE: SpanPoint<3> = SpanPoint::new("vfs_write", ["ino", "pos", "len"]);

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes that are written between two checks of the dirty thresholds.
const WRITE_BATCH: usize = 1 << 20;

impl File {
    /// Writes all of `data` at `pos` (with `APPEND`, at the end) into the page cache. Returns the position of the data,
    /// or of its first part. Takes `i_rwsem` for each MiB, and waits when too much is dirty. Each MiB of a longer
    /// append goes to the end that the file then has: appends of other threads may come between.
    ///
    /// # Errors
    /// `NoSpace`, with nothing of the failing part written; `FileTooBig`, `ReadOnly`, `BadFile`; `Io` when
    /// memory is full of pages that could not be written.
    pub fn write_at(&self, pos: u64, data: &[u8]) -> Result<u64> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.begin_change()?;
        let _span = WRITE.enter([self.inode.ino.0, pos, data.len() as u64]);
        let (mut done, mut first) = (0, None);
        loop {
            let part = &data[done..data.len().min(done + WRITE_BATCH)];
            self.vfs.bdi.admit()?;
            let guard = self.inode.rwsem.write();
            let at = match self.flags.contains(OpenFlags::APPEND) {
                true => self.inode.size(),
                false => pos + done as u64,
            };
            self.write_locked(at, part)?;
            first.get_or_insert(at);
            drop(guard);
            done += part.len();
            self.vfs.balance_written();
            if done == data.len() {
                break;
            }
        }
        if self.flags.contains(OpenFlags::SYNC) {
            self.fsync(true)?;
        }
        Ok(first.unwrap_or(pos))
    }

    fn write_locked(&self, pos: u64, data: &[u8]) -> Result<()> {
        let inode = &self.inode;
        if data.is_empty() {
            return Ok(()); // an empty write changes nothing, not even the size
        }
        self.before_write(pos, data.len() as u64)?;
        let now = self.change_time();
        if self.write_inline(pos, data, now)? {
            return Ok(());
        }
        let end = pos + data.len() as u64;
        let (first, last) = (pos / PAGE, (end - 1) / PAGE);
        let old = inode.size();
        self.vfs.fill_edges(inode, pos..end, old)?;
        let change = self.vfs.begin_write(inode, first..last + 1);
        self.vfs.fs.reserve(inode, pos..end, Some(&WriteEnd { end, time: now }))?;
        let copied = self.copy_in(pos, data, old);
        drop(change);
        self.vfs.bdi.mark_dirty(inode);
        if copied.is_err() && end > old {
            // The file returns to its old size, and pages past it are dropped.
            let _none = inode.mapping.invalidate_lock.write();
            inode.mapping.remove(old.div_ceil(PAGE), u64::MAX);
            inode.attr().size = old;
            let _ = self.vfs.fs.update_inode(inode);
        }
        copied.and_then(|()| self.vfs.fs.wrote(inode, pos..end))
    }

    /// Writes to a file that is kept in its inode. False when the data must go to the page cache.
    fn write_inline(&self, pos: u64, data: &[u8], now: Option<Timespec>) -> Result<bool> {
        let inode = &self.inode;
        if pos + data.len() as u64 > PAGE || inode.size() > PAGE {
            return Ok(false);
        }
        let _write = self.vfs.begin_write(inode, 0..1);
        let inline = self.vfs.fs.write_inline(inode, pos, data, now)?;
        if inline {
            inode.mapping.remove(0, 1);
        }
        Ok(inline)
    }

    /// Copies `data` into pages. Pages that it covers only in part are cached already. The file had `old` bytes.
    fn copy_in(&self, pos: u64, data: &[u8], old: u64) -> Result<()> {
        loop {
            match self.inode.mapping.write(pos, data) {
                // Memory was short, and a page that was read in was dropped: it is read in and copied again.
                Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                    self.vfs.fill_edges(&self.inode, pos..pos + data.len() as u64, old)?;
                }
                r => return r,
            }
        }
    }

    /// Writes whole pages without copying them: the file takes `buf` over. The first `bytes` bytes count, and
    /// the rest of the last page is zeroed. `pos` is a multiple of the page size, and the file has no data
    /// after the range in its last page: for filling new files from front to back.
    ///
    /// # Errors
    /// As [`File::write_at`]; `InvalidArgument` for an unaligned position.
    pub fn write_buf(&self, pos: u64, mut buf: PageBuf, bytes: usize) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.begin_change()?;
        let end = pos + bytes as u64;
        if !pos.is_multiple_of(PAGE) || bytes == 0 || bytes > buf.len() {
            return Err(Error::new(ErrorKind::InvalidArgument, "write_buf takes whole pages"));
        }
        let _span = WRITE.enter([self.inode.ino.0, pos, bytes as u64]);
        let pages = bytes.div_ceil(PAGE_SIZE);
        self.vfs.bdi.admit()?;
        let guard = self.inode.rwsem.write();
        if !end.is_multiple_of(PAGE) && self.inode.size() > end {
            drop(guard);
            return self.write_at(pos, &buf[..bytes]).map(drop);
        }
        self.before_write(pos, bytes as u64)?;
        let now = self.change_time();
        if self.write_inline(pos, &buf[..bytes], now)? {
            drop(guard);
            self.vfs.balance();
            return Ok(());
        }
        let change = self.vfs.begin_write(&self.inode, pos / PAGE..pos / PAGE + pages as u64);
        self.vfs.fs.reserve(
            &self.inode,
            pos..pos + pages as u64 * PAGE,
            Some(&WriteEnd { end, time: now }),
        )?;
        buf[bytes..pages * PAGE_SIZE].fill(0);
        self.inode.mapping.insert_dirty(pos / PAGE, &PageRun { buf: Arc::new(buf), first: 0, pages });
        drop(change);
        self.vfs.bdi.mark_dirty(&self.inode);
        self.vfs.fs.wrote(&self.inode, pos..end)?;
        drop(guard);
        self.vfs.balance_written();
        Ok(())
    }

    fn before_write(&self, pos: u64, len: u64) -> Result<()> {
        if self.inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        let max = self.vfs.fs.max_file_size(&self.inode);
        if pos.checked_add(len).is_none_or(|end| end > max) {
            return Err(Error::new(
                ErrorKind::FileTooBig,
                format!("a write at {pos}; files end at {max} bytes"),
            ));
        }
        self.drop_privileges()?;
        // Bytes between the old end and the write must read as zeros even where they share a page with the
        // old end.
        self.vfs.zero_tail(&self.inode, pos)
    }

    /// A change of content removes the file's capability. A change by an unprivileged process also removes the set-id
    /// bits.
    fn drop_privileges(&self) -> Result<()> {
        if !self.flags.contains(OpenFlags::NOCMTIME) {
            self.vfs.drop_capability(&self.inode)?;
        }
        let mode = self.inode.attr().mode;
        if !self.privileged && drop_set_id(&mut self.inode.attr()) {
            // As long as the bits are on the volume, the next write has to remove them.
            self.vfs.fs.update_inode(&self.inode).inspect_err(|_| self.inode.attr().mode = mode)?;
        }
        Ok(())
    }

    /// The time that a change of the content sets. `None` if a program that has the file open keeps its
    /// times.
    fn change_time(&self) -> Option<Timespec> {
        (!self.flags.contains(OpenFlags::NOCMTIME)).then(|| self.vfs.now())
    }

    /// Sets the size. Takes `i_rwsem`.
    ///
    /// # Errors
    /// `BadFile`, `FileTooBig`, `ReadOnly`.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.begin_change()?;
        let guard = self.inode.rwsem.write();
        self.vfs.truncate_locked(&self.inode, size, self.privileged)?;
        drop(guard);
        self.vfs.balance();
        Ok(())
    }

    /// Allocates, frees, zeroes, collapses or inserts a range. Takes `i_rwsem`, for a large range several
    /// times, and operations of other threads may come between.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty range or flags that do not go together, and for a range to collapse or
    /// insert that does not begin and end at blocks or does not lie before the end of the file; `NoSpace`,
    /// `FileTooBig`, `Unsupported`. Changes that were made before the error stay.
    pub fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.allow(OpenFlags::WRITE)?;
        self.vfs.begin_change()?;
        if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            return self.shift(flags, offset, len);
        }
        let punch = flags.contains(FallocateFlags::PUNCH_HOLE);
        let keep = flags.contains(FallocateFlags::KEEP_SIZE);
        if len == 0 || (punch && (!keep || flags.contains(FallocateFlags::ZERO_RANGE))) {
            return Err(ErrorKind::InvalidArgument.into());
        }
        if !punch {
            self.vfs.fs.can_preallocate(&self.inode)?;
        }
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            self.vfs.fs.can_punch(&self.inode)?;
        }
        let max = self.vfs.fs.max_file_size(&self.inode);
        let end = offset.checked_add(len).filter(|e| *e <= max).ok_or(ErrorKind::FileTooBig)?;
        let mut at = offset;
        while at < end {
            let step = end.min(at / PAGE * PAGE + self.vfs.fs.bytes_at_once());
            let size = (step == end && !keep).then_some(end);
            let guard = self.inode.rwsem.write();
            self.fallocate_locked(flags, at, step, size)?;
            drop(guard);
            self.vfs.balance();
            at = step;
        }
        Ok(())
    }

    /// Collapses a range of the file, or inserts one.
    fn shift(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        let inode = &self.inode;
        // This check comes first, as a refused call changes nothing.
        self.vfs.fs.can_shift(inode)?;
        let block = self.vfs.fs.block_size();
        let alone = flags == FallocateFlags::COLLAPSE_RANGE || flags == FallocateFlags::INSERT_RANGE;
        if !alone || len == 0 || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(ErrorKind::InvalidArgument.into());
        }
        let insert = flags == FallocateFlags::INSERT_RANGE;
        let end = offset.checked_add(len).ok_or(ErrorKind::FileTooBig)?;
        let guard = inode.rwsem.write();
        if inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        let size = inode.size();
        if insert && size.checked_add(len).is_none_or(|s| s > self.vfs.fs.max_file_size(inode)) {
            return Err(ErrorKind::FileTooBig.into());
        }
        if (if insert { offset } else { end }) >= size {
            return Err(ErrorKind::InvalidArgument.into());
        }
        // Pages that move are written first, as the cache does not know where a page would go. Pages before
        // them are written, too: the size on the volume reaches only as far as its data has no gap.
        let start = offset / PAGE;
        self.vfs.fs.writepages(inode, &mut WritebackControl::sync())?;
        let none = inode.mapping.invalidate_lock.write();
        // Also the pages before the range must be written: the size on the volume follows from the content
        // there.
        inode.mapping.wait_writeback(0, u64::MAX);
        if inode.mapping.next_unwritten(start, u64::MAX).is_some() {
            return Err(inode.mapping.last_error("what is to move cannot be written").in_inode(inode.ino));
        }
        self.drop_privileges()?;
        inode.mapping.remove(start, u64::MAX);
        self.vfs.fs.shift_range(inode, offset..end, insert, self.vfs.now())?;
        drop(none);
        drop(guard);
        self.vfs.balance();
        Ok(())
    }

    /// One step: bytes `at..end`, and the least size of the file afterwards.
    fn fallocate_locked(&self, flags: FallocateFlags, at: u64, end: u64, size: Option<u64>) -> Result<()> {
        let inode = &self.inode;
        if inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        self.drop_privileges()?;
        let punch = flags.contains(FallocateFlags::PUNCH_HOLE);
        let zeroed = if punch { self.vfs.fs.punch_end(end, inode.size()) } else { end };
        if at < zeroed && (punch || flags.contains(FallocateFlags::ZERO_RANGE)) {
            self.vfs.zero_range(inode, at, zeroed, punch)?;
        }
        self.vfs.zero_tail(inode, size.unwrap_or(0))?;
        if !punch {
            self.vfs.fs.preallocate(inode, at..end)?;
        }
        let time = self.change_time();
        WriteEnd { end: size.unwrap_or(0), time }.apply(&mut inode.attr());
        self.vfs.fs.update_inode(inode)
    }
}

/// Removes set-user-id, and set-group-id if the group may execute the file. Returns whether one was set.
pub(crate) fn drop_set_id(a: &mut Attr) -> bool {
    let bits = a.mode & if a.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
    a.mode &= !bits;
    bits != 0
}

/// The pages of a write, and the growth of the file by it: readers see neither before the bytes are there.
struct Write<'a> {
    _growing: Growing<'a>,
    _change: Change<'a>,
}

impl Vfs {
    /// Announces a write to `pages`, which may make the file longer.
    fn begin_write<'a>(&self, inode: &'a Inode, pages: Range<u64>) -> Write<'a> {
        // Content that was kept in the inode moves to page 0.
        let start = if inode.size() <= PAGE { 0 } else { pages.start };
        Write { _change: inode.mapping.begin_change(start..pages.end), _growing: inode.grow() }
    }

    /// Reads in the first and last page of a write where the write covers them only in part. Bytes past `size`, the
    /// size before the write, are zeros.
    fn fill_edges(&self, inode: &Arc<Inode>, write: Range<u64>, size: u64) -> Result<()> {
        let Range { start: pos, end } = write;
        let edge = |index: u64, partial: bool| -> Result<()> {
            if !partial || inode.mapping.has(index) {
                return Ok(());
            }
            if index * PAGE >= size {
                let run = PageRun { buf: Arc::new(PageBuf::zeroed(1)), first: 0, pages: 1 };
                inode.mapping.insert_clean(index, &run);
                return Ok(());
            }
            self.fill(inode, index, 1).map(drop)
        };
        let (first, last) = (pos / PAGE, (end - 1) / PAGE);
        edge(first, !pos.is_multiple_of(PAGE) || (end < (first + 1) * PAGE))?;
        edge(last, !end.is_multiple_of(PAGE))
    }

    /// Zeroes the rest of the last block, which is to be written with the data, before the file of a locked inode grows
    /// up to `end`. Reads show zeros there, but the block may hold anything: bytes that were truncated, if a checkpoint
    /// came before the page was written and the power failed after it, or bytes of another implementation. A format
    /// whose journal gets the size first keeps it back until the page is written; F2FS does not, as in Linux.
    fn zero_tail(&self, inode: &Arc<Inode>, end: u64) -> Result<()> {
        let size = inode.size();
        let to = size.next_multiple_of(self.fs.block_size()).min(end);
        if size >= to || !self.fs.has_block(inode, size)? {
            return Ok(()); // every page that is to be written has zeros there
        }
        self.zero_cached(inode, size, to, false)
    }

    /// Zeroes bytes `from..to` of one page in the cache, if the page has data there.
    fn zero_in_page(&self, inode: &Arc<Inode>, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let index = from / PAGE;
        let kept = to.min(inode.size()).saturating_sub(from) as usize;
        let change = inode.mapping.begin_change(index..index + 1);
        if kept > 0 && self.fs.write_inline(inode, from, &[0; PAGE_SIZE][..kept], Some(self.now()))? {
            inode.mapping.remove(0, 1);
            return Ok(());
        }
        drop(change);
        if !inode.mapping.has(index) {
            let unwritten = |_: u64| false;
            let page = index * PAGE..(index + 1) * PAGE;
            if self.fs.seek(inode, page, SeekTarget::Data, &unwritten)?.is_none() {
                return Ok(()); // a hole is zero already
            }
        }
        self.zero_cached(inode, from, to, true)
    }

    /// Zeroes bytes `from..to` of one page in the cache and marks it dirty. With `unless_zero`, not if they
    /// are zero already.
    fn zero_cached(&self, inode: &Arc<Inode>, from: u64, to: u64, unless_zero: bool) -> Result<()> {
        let index = from / PAGE;
        let range = (from % PAGE) as usize..(to - index * PAGE) as usize;
        loop {
            if !inode.mapping.has(index) {
                self.fill(inode, index, 1)?;
            }
            // Clean pages may be dropped at any time. No space is reserved for a page that may turn out to be
            // zero.
            let Some(run) = inode.mapping.get(index, 1) else { continue };
            if unless_zero && run.bytes()[range.clone()].iter().all(|&b| b == 0) {
                return Ok(());
            }
            let _change = self.begin_write(inode, index..index + 1);
            self.fs.reserve(inode, from..to, None)?;
            if inode.mapping.modify(index, |p| p[range.clone()].fill(0)).is_some() {
                break;
            }
        }
        self.bdi.mark_dirty(inode);
        self.fs.wrote(inode, from..to)
    }

    /// Zeroes the bytes of a dirty page that a file is about to lose, where there is no space for blocks of the page
    /// that are holes. No space is needed: past the new end there are no blocks, and the tail is written before the
    /// file grows again. A clean page stays clean: writing it would take space that is promised to others.
    fn zero_unreserved(&self, inode: &Arc<Inode>, from: u64, to: u64) {
        let index = from / PAGE;
        let _change = self.begin_write(inode, index..index + 1);
        let range = (from % PAGE) as usize..(to - index * PAGE) as usize;
        if inode.mapping.is_dirty(index) && inode.mapping.modify(index, |p| p[range].fill(0)).is_some() {
            self.bdi.mark_dirty(inode);
        }
    }

    /// Zeroes a range: whole blocks are freed or, without `frees`, read as zeros in any way; the others are zeroed in part.
    fn zero_range(&self, inode: &Arc<Inode>, offset: u64, end: u64, frees: bool) -> Result<()> {
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first > last {
            self.zero_in_page(inode, offset, end)?;
        } else {
            self.zero_in_page(inode, offset, first * PAGE)?;
            self.zero_in_page(inode, last * PAGE, end)?;
        }
        let block = self.fs.block_size();
        let blocks = offset.next_multiple_of(block)..end / block * block;
        if blocks.is_empty() {
            return Ok(());
        }
        // Blocks are freed only after the write-back of their pages, so that no write goes to a freed block, and
        // only while no page-in is under way. No thread makes a page dirty meanwhile.
        for edge in [blocks.start, blocks.end] {
            if !edge.is_multiple_of(PAGE) {
                self.write_page(inode, edge / PAGE)?;
            }
        }
        let _none = inode.mapping.invalidate_lock.write();
        if first < last {
            inode.mapping.remove(first, last);
        }
        if frees { self.fs.punch_hole(inode, blocks) } else { self.fs.zero_blocks(inode, blocks) }
    }

    /// Writes a page, if it is dirty, and waits until it is on the device.
    fn write_page(&self, inode: &Arc<Inode>, index: u64) -> Result<()> {
        let unwritten = || inode.mapping.next_unwritten(index, index + 1).is_some();
        if !unwritten() {
            return Ok(());
        }
        let mut wbc = WritebackControl { start: index, end: index + 1, ..WritebackControl::sync() };
        self.fs.writepages(inode, &mut wbc)?;
        inode.mapping.wait_writeback(index, index + 1);
        match unwritten() {
            true => Err(inode.mapping.last_error("a page cannot be written").in_inode(inode.ino)),
            false => Ok(()),
        }
    }

    /// Sets the size of a locked inode. Removes its capability, and its set-id bits unless the caller is privileged.
    pub(crate) fn truncate_locked(&self, inode: &Arc<Inode>, size: u64, privileged: bool) -> Result<()> {
        match inode.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
            _ => return Err(ErrorKind::InvalidArgument.into()),
        }
        if inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        if size > self.fs.max_file_size(inode) {
            return Err(ErrorKind::FileTooBig.into());
        }
        self.drop_capability(inode)?;
        let old = inode.size();
        if size < old {
            let to = size.next_multiple_of(PAGE).min(old.next_multiple_of(PAGE));
            match self.zero_in_page(inode, size, to) {
                Err(e) if e.kind() == ErrorKind::NoSpace => self.zero_unreserved(inode, size, to),
                zeroed => zeroed?,
            }
        }
        self.zero_tail(inode, size)?;
        if !privileged {
            drop_set_id(&mut inode.attr());
        }
        let _none = inode.mapping.invalidate_lock.write();
        if size < old {
            inode.mapping.remove(size.div_ceil(PAGE), u64::MAX);
        }
        self.fs.truncate(inode, size, self.now())
    }
}
