//! F2FS as the VFS sees it: [`tidegate_vfs::FileSystem`], implemented with the engine's methods.
//!
//! This folder owns no lock, and nothing in this crate calls it. `writepages` has the passes over an inode's
//! dirty pages, with room made between them.

mod ops;
mod writepages;

use crate::format::raw::*;
use crate::inode::fi;
use crate::volume::sbi::F2fs;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::Timespec;
use tidegate_vfs::error::{Error, ErrorKind};
use tidegate_vfs::fs::{NewXattrs, Rename, WriteEnd};
use tidegate_vfs::icache::Inodes;
use tidegate_vfs::{
    DirEntry, FileSystem, FileType, Ino, Inode, InodeParts, NewInode, PageRun, ReadDone, ReadOnly, Result,
    SeekTarget, StatFs, WritebackControl, XattrFlags,
};

/// The longest time that changes wait for a checkpoint when no thread asks for one (`cp_interval`).
const CP_INTERVAL: Duration = Duration::from_secs(60);
/// Inodes and names that may change between checkpoints.
const MAX_SINCE_CP: usize = 1 << 18;
/// Most direct nodes that one operation on a range makes dirty: a fraction of the segments kept free.
const DNODES_AT_ONCE: u64 = 128;

/// The pages that hold `bytes`. A page is a block.
fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let page = BLOCK_SIZE as u64;
    bytes.start / page..bytes.end.div_ceil(page)
}

impl FileSystem for F2fs {
    fn name(&self) -> &'static str {
        "f2fs"
    }

    fn root(&self) -> Ino {
        Ino(self.sb.root_ino as u64)
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.why_read_only()
    }

    fn keeps_births(&self) -> bool {
        self.sb.features.contains(Features::INODE_CRTIME)
    }

    fn statfs(&self) -> StatFs {
        let c = *self.counts.lock();
        let free = c.user_blocks.saturating_sub(c.valid_blocks);
        let nodes_free = (self.sb.max_nid - 4).saturating_sub(c.valid_nodes) as u64;
        let mut id = [0; 8];
        id.copy_from_slice(&self.sb.raw.uuid[..8]);
        StatFs {
            block_size: BLOCK_SIZE as u32,
            blocks: c.user_blocks,
            blocks_free: free,
            blocks_available: free,
            files: c.valid_inodes as u64 + nodes_free.min(free),
            files_free: nodes_free.min(free),
            name_max: F2FS_NAME_LEN as u32,
            fsid: u64::from_le_bytes(id),
        }
    }

    fn max_file_size(&self, _: &Inode) -> u64 {
        self.max_file_bytes()
    }

    fn read_inode(&self, ino: Ino) -> Result<InodeParts> {
        self.load_inode(ino)
    }

    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        Ok(self.find_entry(dir, name)?.map(|p| Ino(p.ino as u64)))
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
        self.tmpfile_inode(dir, new, xattrs)
    }

    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        self.link_inode(dir, name, inode, now)
    }

    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()> {
        self.unlink_inode(dir, name, inode, now)
    }

    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>> {
        self.rename_inode(r)
    }

    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>> {
        let size = inode.size().min(BLOCK_SIZE as u64) as usize;
        let page = self.read_data(inode, 0, 1)?;
        Ok(page.first().map_or(Vec::new(), |p| p.bytes()[..size].to_vec()))
    }

    fn update_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let _op = self.cp_rwsem.read();
        self.store_inode(inode)
    }

    fn update_times(&self, inode: &Arc<Inode>) -> Result<()> {
        self.dirty_inode(inode);
        Ok(())
    }

    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr(inode, name)
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
        self.list_xattr(inode)
    }

    fn choose_streams(&self, inode: &Inode, streams: u32) -> Result<()> {
        self.choose_streams_of(inode, streams)
    }

    fn chosen_streams(&self, inode: &Inode) -> Result<u32> {
        Ok(fi(inode).chosen.get())
    }

    fn sectors(&self, inode: &Inode) -> u64 {
        let a = inode.attr();
        let f = fi(inode);
        let in_inode = inode.file_type == FileType::Regular && f.has_inline(inline::DATA)
            || f.has_inline(inline::DENTRY);
        a.blocks + if in_inode { a.size.div_ceil(512) } else { 0 }
    }

    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        self.read_data(inode, index, pages)
    }

    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        self.start_read(inode, index, pages, done);
    }

    fn reserve(&self, inode: &Arc<Inode>, bytes: Range<u64>, write: Option<&WriteEnd>) -> Result<()> {
        let pages = pages_of(&bytes);
        self.reserve_pages(inode, pages.start, pages.end - pages.start, write)
    }

    fn write_inline(&self, inode: &Inode, pos: u64, data: &[u8], now: Option<Timespec>) -> Result<bool> {
        self.write_inline_data(inode, pos, data, now)
    }

    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        self.check_writable()?;
        self.make_room()?;
        if Arc::ptr_eq(inode, &self.node_inode) {
            return self.write_nodes(wbc);
        }
        if Arc::ptr_eq(inode, &self.meta.inode) {
            self.meta.writepages(wbc);
            return Ok(());
        }
        self.write_data(inode, wbc)
    }

    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()> {
        self.truncate_file(inode, size, now)
    }

    fn block_size(&self) -> u64 {
        BLOCK_SIZE as u64
    }

    fn bytes_at_once(&self) -> u64 {
        DNODES_AT_ONCE * ADDRS_PER_BLOCK as u64 * BLOCK_SIZE as u64
    }

    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let pages = pages_of(&bytes);
        let _op = self.cp_rwsem.read();
        if fi(inode).has_inline(inline::DATA) {
            return if pages.start == 0 { self.truncate_inline(inode, 0) } else { Ok(()) };
        }
        self.free_pages(inode, pages.start, pages.end)
    }

    /// As in Linux: a user relies on the places of a pinned file's blocks.
    fn can_punch(&self, inode: &Inode) -> Result<()> {
        if inode.file_type == FileType::Regular && fi(inode).has_inline(inline::PIN_FILE) {
            return Err(Error::new(ErrorKind::Unsupported, "is pinned").in_inode(inode.ino));
        }
        Ok(())
    }

    fn preallocate(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.reserve(inode, bytes, None)
    }

    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool> {
        let index = pos / BLOCK_SIZE as u64;
        Ok(!fi(inode).has_inline(inline::DATA) && self.map_pages(inode, index, 1)?.blk.is_data())
    }

    fn seek(
        &self,
        inode: &Inode,
        bytes: Range<u64>,
        target: SeekTarget,
        unwritten: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        let (pages, block) = (pages_of(&bytes), BLOCK_SIZE as u64);
        let unwritten = |index: u64| unwritten(index * block);
        let found = self.seek_pages(inode, pages.start, pages.end, target, &unwritten)?;
        // A page that is found may begin before the range, and a hole may end behind it.
        Ok(found.map(|index| (index * block).clamp(bytes.start, bytes.end)))
    }

    fn fsync(&self, inode: &Inode, datasync: bool) -> Result<()> {
        self.fsync_inode(inode, datasync)
    }

    fn sync_fs(&self) -> Result<()> {
        self.issue_checkpoint()
    }

    fn evict_inode(&self, inode: &Inode) -> Result<()> {
        self.evict(inode)
    }

    fn balance(&self) -> Result<()> {
        self.balance_inode_meta()?;
        self.balance_segments()?;
        // The thread that takes an id gets the errors.
        let _ = self.nat.refill(&self.meta);
        // Notes of inodes for fsync are kept until the next checkpoint.
        let many = self.since_cp.len() > MAX_SINCE_CP;
        // Pages that cannot be written now may be written later.
        let excess = || self.write_io.failed_pages.is_empty() && self.excess_dirty_nats();
        if (many || excess()) && self.why_read_only().is_none() {
            return self.issue_checkpoint();
        }
        Ok(())
    }

    fn periodic(&self) {
        let due = self.stats.since_checkpoint() >= CP_INTERVAL && self.is_dirty();
        // Pages that cannot be written now may be written later; a checkpoint would have to write them.
        if due && self.write_io.failed_pages.is_empty() && self.why_read_only().is_none() {
            // The next sync reports the failure.
            let _ = self.issue_checkpoint();
        }
    }

    fn attach(&self, inodes: Inodes) {
        self.gc.attach(inodes);
        self.start_gc_thread();
    }

    fn detach(&self) {
        self.gc.stop_thread();
    }

    fn shutdown(&self) {
        self.stop(&Error::new(ErrorKind::Io, "shut down on request"));
    }

    fn unmount(&self) -> Result<()> {
        self.ckpt_thread.close();
        if self.why_read_only().is_some() {
            return Ok(());
        }
        self.checkpoint(true)?;
        self.discard_all_freed();
        Ok(())
    }
}
