//! Ext4 as the VFS sees it: [`tidegate_vfs::FileSystem`], each method in terms of the engine's.
//!
//! It owns no lock, and nothing in this crate calls it. Each change is refused with the reason why the volume is
//! read-only.

mod ops;

use crate::format::raw::{InodeFlags, ROOT_INO};
use crate::inode::ei;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_rt::Timespec;
use tidegate_vfs::fs::{NewXattrs, Rename, WriteEnd};
use tidegate_vfs::{
    DirEntry, Error, ErrorKind, FileSystem, Ino, Inode, InodeParts, NewInode, PageRun, ReadDone, Result,
    SeekTarget, StatFs, WritebackControl, XattrFlags,
};

/// Bytes that one change of a range may span, were there any.
const BYTES_AT_ONCE: u64 = 1 << 30;

impl Ext4 {
    fn refuse<T>(&self) -> Result<T> {
        Err(Error::new(ErrorKind::ReadOnly, self.read_only.clone()))
    }
}

impl FileSystem for Ext4 {
    fn name(&self) -> &'static str {
        "ext4"
    }

    fn root(&self) -> Ino {
        Ino(ROOT_INO.into())
    }

    fn read_only(&self) -> Option<String> {
        Some(self.read_only.clone())
    }

    fn statfs(&self) -> StatFs {
        self.statfs_now()
    }

    fn max_file_size(&self, inode: &Inode) -> u64 {
        self.size_limit(ei(inode))
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

    fn create(&self, _: &Arc<Inode>, _: &[u8], _: &NewInode<'_>, _: &NewXattrs) -> Result<InodeParts> {
        self.refuse()
    }

    fn tmpfile(&self, _: &Inode, _: &NewInode<'_>, _: &NewXattrs) -> Result<InodeParts> {
        self.refuse()
    }

    fn link(&self, _: &Arc<Inode>, _: &[u8], _: &Inode, _: Timespec) -> Result<()> {
        self.refuse()
    }

    fn unlink(&self, _: &Arc<Inode>, _: &[u8], _: &Inode, _: Timespec) -> Result<()> {
        self.refuse()
    }

    fn rename(&self, _: &Rename<'_>) -> Result<Option<Ino>> {
        self.refuse()
    }

    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>> {
        self.link_target(inode)
    }

    fn update_inode(&self, _: &Inode) -> Result<()> {
        self.refuse()
    }

    fn update_times(&self, _: &Arc<Inode>) -> Result<()> {
        self.refuse()
    }

    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr(ei(inode), name)
    }

    fn setxattr(&self, _: &Inode, _: &[u8], _: Option<&[u8]>, _: XattrFlags, _: Timespec) -> Result<()> {
        self.refuse()
    }

    fn listxattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        self.list_xattrs(ei(inode))
    }

    fn sectors(&self, inode: &Inode) -> u64 {
        let a = inode.attr();
        a.blocks + if ei(inode).is(InodeFlags::INLINE_DATA) { a.size.div_ceil(512) } else { 0 }
    }

    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        self.read_data(inode, index, pages)
    }

    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        self.start_read(inode, index, pages, done);
    }

    fn reserve(&self, _: &Arc<Inode>, _: Range<u64>, _: Option<&WriteEnd>) -> Result<()> {
        self.refuse()
    }

    fn write_inline(&self, _: &Inode, _: u64, _: &[u8], _: Option<Timespec>) -> Result<bool> {
        self.refuse()
    }

    fn writepages(&self, _: &Arc<Inode>, _: &mut WritebackControl) -> Result<()> {
        self.refuse()
    }

    fn truncate(&self, _: &Arc<Inode>, _: u64, _: Timespec) -> Result<()> {
        self.refuse()
    }

    fn bytes_at_once(&self) -> u64 {
        BYTES_AT_ONCE
    }

    fn punch_hole(&self, _: &Arc<Inode>, _: Range<u64>) -> Result<()> {
        self.refuse()
    }

    fn preallocate(&self, _: &Arc<Inode>, _: Range<u64>) -> Result<()> {
        self.refuse()
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

    fn fsync(&self, _: &Inode, _: bool) -> Result<()> {
        self.refuse()
    }

    fn sync_fs(&self) -> Result<()> {
        self.refuse()
    }

    /// A volume that is not changed frees nothing.
    fn evict_inode(&self, _: &Inode) -> Result<()> {
        Ok(())
    }

    fn balance(&self) -> Result<()> {
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        Ok(())
    }
}
