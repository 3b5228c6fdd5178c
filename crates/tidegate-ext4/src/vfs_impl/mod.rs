//! Ext4 as the VFS sees it: [`tidegate_vfs::FileSystem`], implemented with the engine's methods.
//!
//! This folder owns no lock, and nothing in this crate calls it.

mod ops;

use crate::format::raw::{INODE_BASE, InodeFlags, ROOT_INO};
use crate::inode::{ei, own};
use crate::volume::handle::HandleType;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::Timespec;
use tidegate_vfs::fs::{NewXattrs, Rename, WriteEnd};
use tidegate_vfs::{
    DirEntry, Error, ErrorKind, FileSystem, Ino, Inode, InodeParts, NewInode, PageRun, ReadDone, ReadOnly,
    Result, SeekTarget, StatFs, WritebackControl, XattrFlags,
};

/// Most bytes that one change of a range may span.
const BYTES_AT_ONCE: u64 = 1 << 30;

impl FileSystem for Ext4 {
    fn name(&self) -> &'static str {
        "ext4"
    }

    fn time_granularity(&self) -> u32 {
        if self.sb.inode_size > INODE_BASE as u32 { 1 } else { 1_000_000_000 }
    }

    fn root(&self) -> Ino {
        Ino(ROOT_INO.into())
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.why_no_changes()
    }

    fn keeps_births(&self) -> bool {
        self.sb.inode_size > INODE_BASE as u32
    }

    fn statfs(&self) -> StatFs {
        self.statfs_now()
    }

    fn max_file_size(&self, inode: &Inode) -> u64 {
        self.size_limit(&ei(inode))
    }

    fn groups_follow_directories(&self) -> bool {
        self.switches.grpid()
    }

    fn own_flags(&self) -> u32 {
        self.blocks.journal().map_or(0, |_| InodeFlags::JOURNAL_DATA.bits())
    }

    fn read_inode(&self, ino: Ino) -> Result<InodeParts> {
        self.load_inode(ino)
    }

    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        self.find_entry(dir, name)
    }

    fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.list_entries(dir, pos, emit)
    }

    fn create(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts> {
        self.create_inode(dir, name, new, xattrs)
    }

    fn tmpfile(&self, dir: &Inode, new: &NewInode<'_>, xattrs: &NewXattrs) -> Result<InodeParts> {
        self.make_tmpfile(dir, new, xattrs)
    }

    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        self.link_inode(dir, name, inode, now)
    }

    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        self.unlink_inode(dir, name, inode, now)
    }

    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>> {
        if r.target.is_some() && !r.exchange {
            self.write_what_replaces(r.inode);
        }
        self.rename_inode(r)
    }

    fn closed(&self, inode: &Arc<Inode>) {
        self.write_what_was_emptied(inode);
        self.preallocations.drop_of(inode.ino.0 as u32);
    }

    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>> {
        self.link_target(inode)
    }

    fn update_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.settle_logging(inode)?;
        self.settle_size(inode)?;
        self.op(HandleType::Inode, |handle| self.store_inode(handle, inode))
    }

    fn update_times(&self, inode: &Arc<Inode>) -> Result<()> {
        self.op(HandleType::Inode, |handle| self.store_attr(handle, inode))
    }

    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr(&ei(inode), name)
    }

    fn setxattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()> {
        self.set_xattr(inode, name, value, flags, now)
    }

    fn listxattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        self.list_xattrs(&ei(inode))
    }

    fn sectors(&self, inode: &Inode) -> u64 {
        // These come before the attributes: the lock of those ranks behind both.
        let inline = ei(inode).is(InodeFlags::INLINE_DATA);
        // As in Linux, promised blocks count: programs take a file without blocks for a hole.
        let promised = own(inode).delayed.lock().total() * u64::from(self.sb.block_size / 512);
        let a = inode.attr();
        a.blocks + promised + if inline { a.size.div_ceil(512) } else { 0 }
    }

    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        self.read_data(inode, index, pages)
    }

    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        self.start_read(inode, index, pages, done);
    }

    fn reserve(&self, inode: &Arc<Inode>, bytes: Range<u64>, write: Option<&WriteEnd>) -> Result<()> {
        self.promise_range(inode, bytes, write)
    }

    fn wrote(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.log_written(inode, bytes)
    }

    fn write_inline(&self, _: &Inode, _: u64, _: &[u8], _: Option<Timespec>) -> Result<bool> {
        self.check_writable().map(|()| false)
    }

    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        self.check_writable()?;
        self.write_data(inode, wbc)
    }

    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()> {
        self.set_size(inode, size, now)
    }

    fn block_size(&self) -> u64 {
        self.sb.block_size.into()
    }

    fn bytes_at_once(&self) -> u64 {
        BYTES_AT_ONCE
    }

    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.punch(inode, bytes)
    }

    fn zero_blocks(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.zero_blocks(inode, bytes)
    }

    /// As in Linux, a hole that goes beyond the end of the file takes the page with the end, and leaves the
    /// blocks that were preallocated behind it.
    fn punch_end(&self, end: u64, size: u64) -> u64 {
        if end > size { size.checked_next_multiple_of(PAGE_SIZE as u64).unwrap_or(end) } else { end }
    }

    fn preallocate(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.preallocate_range(inode, bytes)
    }

    fn can_preallocate(&self, inode: &Inode) -> Result<()> {
        self.has_extents_for_ahead(inode)
    }

    fn can_shift(&self, inode: &Inode) -> Result<()> {
        self.has_extents_to_shift(inode)
    }

    fn shift_range(&self, inode: &Arc<Inode>, bytes: Range<u64>, insert: bool, now: Timespec) -> Result<()> {
        self.shift(inode, bytes, insert, now)
    }

    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool> {
        self.is_data_at(inode, pos)
    }

    fn seek(
        &self,
        inode: &Inode,
        bytes: Range<u64>,
        target: SeekTarget,
        _: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        self.seek_blocks(inode, bytes, target)
    }

    fn fsync(&self, inode: &Inode, datasync: bool) -> Result<()> {
        self.fsync_inode(inode, datasync)
    }

    fn sync_fs(&self) -> Result<()> {
        self.check_writable()?;
        self.settle_all()?;
        self.write_all()
    }

    fn evict_inode(&self, inode: &Inode) -> Result<()> {
        // A volume that is not changed frees nothing.
        if self.space.is_none() { Ok(()) } else { self.evict(inode) }
    }

    fn balance(&self) -> Result<()> {
        Ok(())
    }

    fn periodic(&self) {
        // The commit thread of a journal has its own interval.
        if self.blocks.journal().is_none() && self.check_writable().is_ok() {
            self.write_buffers();
        }
    }

    fn shutdown(&self) {
        self.stop(&Error::new(ErrorKind::Io, "shut down on request"));
    }

    fn unmount(&self) -> Result<()> {
        if self.check_writable().is_err() { Ok(()) } else { self.leave_clean() }
    }
}
