//! The interface of a file system.

mod args;
mod wbc;

pub use args::{InodeParts, NewXattrs, ReadDone, Rename, WriteEnd};
pub use wbc::WritebackControl;

use crate::error::{ErrorKind, Result};
use crate::icache::Inodes;
use crate::inode::Inode;
use crate::mapping::chunk::PageRun;
use crate::read_only::ReadOnly;
use crate::types::*;
use std::ops::Range;
use std::sync::Arc;
use tidegate_rt::Timespec;

/// A file system: the part of a format that differs from other formats, below the operations of
/// [`Vfs`](crate::Vfs).
///
/// **Locks.** Each method names the locks that its caller holds. The format takes its own locks below them,
/// and releases them before it returns. With `i_rwsem` held it may wait for the device, but never for another
/// inode's `i_rwsem`.
///
/// **Errors.** Besides its own list of errors, each method that reads may fail with `Io` (the device) and
/// `Corrupt` (the volume breaks a rule of its format), and each method that changes something with `ReadOnly`
/// and `NoSpace`. A method that fails has changed nothing, unless its text says otherwise.
///
/// **Ranges** are in bytes, as a format's blocks may be smaller than a page; those of dirty pages begin and end at
/// pages. Attributes that a method changes are set in the inode's `attr` and are part of the same atomic change.
pub trait FileSystem: Send + Sync {
    /// Name of the format, e.g. `f2fs`.
    ///
    /// # Locks
    /// Any.
    fn name(&self) -> &'static str;

    /// The root directory.
    ///
    /// # Locks
    /// Any.
    fn root(&self) -> Ino;

    /// Whether changes are refused, and why.
    ///
    /// # Locks
    /// Any but the format's own.
    fn read_only(&self) -> Option<ReadOnly>;

    /// Capacity and use.
    ///
    /// # Locks
    /// None.
    fn statfs(&self) -> StatFs;

    /// Whether inodes can have a birth time.
    ///
    /// # Locks
    /// None.
    fn keeps_births(&self) -> bool {
        true
    }

    /// The largest size that `inode` can have, in bytes. It may depend on how the inode maps its blocks.
    ///
    /// # Locks
    /// Its `i_rwsem`, shared at least.
    fn max_file_size(&self, inode: &Inode) -> u64;

    /// The granularity in which the volume keeps times, in nanoseconds: a billion where it keeps only
    /// seconds.
    ///
    /// # Locks
    /// None.
    fn time_granularity(&self) -> u32 {
        1
    }

    /// Called once, when the volume is mounted. From now on each inode is in memory at most once, and is
    /// found through `inodes`. A file system with threads of its own starts them here.
    ///
    /// # Locks
    /// None.
    fn attach(&self, inodes: Inodes) {
        let _ = inodes;
    }

    /// Whether new inodes get the group of their directory, whatever its set-group-id bit (`grpid`).
    ///
    /// # Locks
    /// Any of the VFS's.
    fn groups_follow_directories(&self) -> bool {
        false
    }

    /// The inode flags (`FS_*_FL`) that `FS_IOC_SETFLAGS` may change beside those that every format keeps.
    ///
    /// # Locks
    /// None.
    fn own_flags(&self) -> u32 {
        0
    }

    /// Ends the work that [`FileSystem::attach`] began, before the inodes are dropped. May be called again.
    ///
    /// # Locks
    /// None.
    fn detach(&self) {}

    /// Reads an inode from the volume.
    ///
    /// # Errors
    /// `Stale` for a number that no inode has.
    ///
    /// # Locks
    /// None.
    fn read_inode(&self, ino: Ino) -> Result<InodeParts>;

    /// Finds `name` in `dir`.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem` of `dir`, shared at least.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>>;

    /// Calls `emit` for each entry from position `pos` on, including "." and "..", until it returns false.
    ///
    /// # Errors
    /// As every method that reads; entries before the fault are emitted.
    ///
    /// # Locks
    /// `i_rwsem` of `dir`, shared at least. `emit` takes no `i_rwsem`.
    fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Makes an inode with its attributes, under a name that does not exist yet. All of it is one atomic
    /// change.
    ///
    /// # Errors
    /// `NameTooLong`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of `dir`, exclusive.
    fn create(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts>;

    /// Makes an inode without a name, as it would be made in `dir`. It is freed with its last user unless it
    /// is linked.
    ///
    /// # Errors
    /// `Unsupported` where the format has no such thing.
    ///
    /// # Locks
    /// `i_rwsem` of `dir`, shared at least.
    fn tmpfile(&self, dir: &Inode, new: &NewInode<'_>, xattrs: &NewXattrs) -> Result<InodeParts> {
        let _ = (dir, new, xattrs);
        Err(crate::error::ErrorKind::Unsupported.into())
    }

    /// Gives `inode` another name. For an inode of [`FileSystem::tmpfile`] it is the first.
    ///
    /// # Errors
    /// `TooManyLinks`, `NameTooLong`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both, exclusive.
    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Removes a name. An inode with no name left stays until [`FileSystem::evict_inode`]. A directory must
    /// be empty.
    ///
    /// # Errors
    /// `NotEmpty`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both, exclusive.
    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Moves a name. Returns the whiteout, if one was asked for. `target` is the inode that has the new name
    /// now: it is replaced, or with `exchange` gets the old name. The caller has checked for cycles. All of
    /// it is one atomic change.
    ///
    /// # Errors
    /// `NotEmpty`, `TooManyLinks`, `NameTooLong`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both directories and both inodes, exclusive.
    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>>;

    /// Chooses the streams for the data of a regular file, a bit for each stream that data of its kind has, as long as
    /// its inode is in memory. 0 undoes the choice.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream that does not exist; `Unsupported` where the format has no streams.
    ///
    /// # Locks
    /// Any but the format's own.
    fn choose_streams(&self, inode: &Inode, streams: u32) -> Result<()> {
        let _ = (inode, streams);
        Err(ErrorKind::Unsupported.into())
    }

    /// The streams that were chosen for a file; 0 when none were.
    ///
    /// # Errors
    /// `Unsupported` where the format has no streams.
    ///
    /// # Locks
    /// Any.
    fn chosen_streams(&self, inode: &Inode) -> Result<u32> {
        let _ = inode;
        Err(ErrorKind::Unsupported.into())
    }

    /// Called when a file that was open for writing is closed.
    ///
    /// # Locks
    /// None.
    fn closed(&self, _inode: &Arc<Inode>) {}

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// None, or `i_rwsem`.
    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>>;

    /// Stores attributes that were set in `inode.attr`.
    ///
    /// # Errors
    /// As every method that changes something; the attributes in memory stay as they were set.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn update_inode(&self, inode: &Arc<Inode>) -> Result<()>;

    /// Stores times that were set in `inode.attr`, at the latest with the next fsync or sync.
    ///
    /// # Errors
    /// As [`FileSystem::update_inode`].
    ///
    /// # Locks
    /// None.
    fn update_times(&self, inode: &Arc<Inode>) -> Result<()> {
        let _guard = inode.rwsem.write();
        self.update_inode(inode)
    }

    /// The value of attribute `name` (with its namespace, e.g. `user.x`), in the user-space form.
    ///
    /// # Errors
    /// `NoData`, `Unsupported` for a namespace that the format does not have.
    ///
    /// # Locks
    /// None, or `i_rwsem`.
    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets (`Some`) or removes (`None`) an attribute.
    ///
    /// # Errors
    /// `NoData`, `Exists` as `flags` ask; `Range` for a name or value that is too long.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn setxattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()>;

    /// Names of all attributes.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// None, or `i_rwsem`.
    fn listxattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>>;

    /// The space that an inode takes, in units of 512 bytes, as stat(2) shows it. Not 0 for a file whose content is
    /// kept elsewhere than in blocks: a program that copies files takes a file without blocks for a hole.
    ///
    /// # Locks
    /// None, or `i_rwsem`.
    fn sectors(&self, inode: &Inode) -> u64 {
        inode.attr().blocks
    }

    /// Reads pages `index..index + pages` from the volume. Holes read as zeros. May return fewer pages.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem`, or `invalidate_lock` shared with the pages marked as being read in.
    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>>;

    /// Starts to read pages that may be needed soon. `done` gets the pages, in any thread, possibly before
    /// this returns, or an error, which may be ignored.
    ///
    /// # Locks
    /// `invalidate_lock`, shared. It may be released before `done` is called.
    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        done(self.read_pages(inode, index, pages));
    }

    /// Reserves space for the blocks that hold `bytes`, so that they can be written out later. Nothing gets a
    /// place yet. Without `write`, the bytes only become zero. The change of attributes by `write`, if there is
    /// one, is made together with the reservation; it is stored at the latest with the next fsync or sync.
    ///
    /// # Errors
    /// As every method that changes something. The attributes are then unchanged, except for blocks of nodes.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn reserve(&self, inode: &Arc<Inode>, bytes: Range<u64>, write: Option<&WriteEnd>) -> Result<()>;

    /// Called after bytes were written to the page cache and their pages are dirty. A format that keeps data
    /// and names in order takes the pages over now; others leave them to [`FileSystem::writepages`].
    ///
    /// # Errors
    /// As every method that changes something; the pages stay dirty.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn wrote(&self, _inode: &Arc<Inode>, _bytes: Range<u64>) -> Result<()> {
        Ok(())
    }

    /// Writes into the inode itself if the file is kept there and stays small enough, and sets size and (with
    /// `now`) `mtime` and `ctime`. False when the data must go to the page cache.
    ///
    /// # Errors
    /// As every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn write_inline(&self, inode: &Inode, pos: u64, data: &[u8], now: Option<Timespec>) -> Result<bool>;

    /// Writes dirty pages out: takes runs ([`AddressSpace::take_dirty`](crate::AddressSpace::take_dirty)),
    /// gives them places, and submits them.
    /// [`AddressSpace::end_writeback`](crate::AddressSpace::end_writeback) may be called later, from any
    /// thread, once the format's work at the end of I/O is done, too.
    ///
    /// A format that first needs a lock or a transaction's handle looks for pages with
    /// [`AddressSpace::next_dirty`](crate::AddressSpace::next_dirty), which leaves them dirty. A format may also take a
    /// run first. [`Inode::end_writeback`] makes pages dirty again that cannot be submitted.
    ///
    /// # Errors
    /// The first error. Pages that were not written are dirty again.
    ///
    /// # Locks
    /// None.
    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()>;

    /// Frees the blocks past `size` and sets the size; only sets it when the file grows. Pages past `size`
    /// were dropped from the cache, and the rest of the last page is zero. A large file may be truncated in
    /// several atomic changes, from its end.
    ///
    /// # Errors
    /// As every method that changes something. The file may have been truncated in part.
    ///
    /// # Locks
    /// `i_rwsem` and `invalidate_lock`, exclusive.
    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()>;

    /// The bytes of a block: a power of two, and at most a page.
    ///
    /// # Locks
    /// Any.
    fn block_size(&self) -> u64;

    /// How many bytes one call of [`FileSystem::punch_hole`] or [`FileSystem::preallocate`] may span: so each
    /// change is bounded, and [`FileSystem::balance`] can make room between calls. Whole pages.
    ///
    /// # Locks
    /// Any.
    fn bytes_at_once(&self) -> u64;

    /// Frees the blocks that hold `bytes`, which are whole blocks. Pages that lie in `bytes` as a whole are not in the
    /// cache; the other ones are clean and zero there.
    ///
    /// # Errors
    /// As every method that changes something; some blocks may have been freed.
    ///
    /// # Locks
    /// `i_rwsem` and `invalidate_lock`, exclusive.
    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()>;

    /// Makes `bytes` read as zeros, as [`FileSystem::punch_hole`] does; the file may keep blocks there.
    ///
    /// # Errors
    /// As [`FileSystem::punch_hole`].
    ///
    /// # Locks
    /// As [`FileSystem::punch_hole`].
    fn zero_blocks(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        self.punch_hole(inode, bytes)
    }

    /// Allocates blocks for the holes in `bytes`. They read as zeros.
    ///
    /// # Errors
    /// As every method that changes something; some holes may have got blocks.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn preallocate(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()>;

    /// Whether [`FileSystem::preallocate`] is possible for a file at all. Called before any of its content changes.
    ///
    /// # Errors
    /// `Unsupported` for a file that cannot have unwritten blocks.
    ///
    /// # Locks
    /// None.
    fn can_preallocate(&self, _inode: &Inode) -> Result<()> {
        Ok(())
    }

    /// Whether [`FileSystem::punch_hole`] can free blocks in the middle of a file.
    ///
    /// # Errors
    /// `Unsupported` for a file whose blocks are to stay.
    ///
    /// # Locks
    /// None.
    fn can_punch(&self, _inode: &Inode) -> Result<()> {
        Ok(())
    }

    /// The end of a hole that was asked for up to the byte `end`, in a file of `size` bytes.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn punch_end(&self, end: u64, _size: u64) -> u64 {
        end
    }

    /// Whether [`FileSystem::shift_range`] is possible for a file at all.
    ///
    /// # Errors
    /// `Unsupported` for a format or a file that cannot.
    ///
    /// # Locks
    /// None.
    fn can_shift(&self, _inode: &Inode) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Removes the blocks of `bytes` from a file: the blocks behind them move to the beginning of `bytes`,
    /// and the file becomes shorter by `bytes`. With `insert`, the blocks from the beginning of `bytes` on
    /// move behind `bytes`, which becomes a hole, and the file becomes longer by `bytes`. `bytes` begins and
    /// ends at blocks and begins inside the file; a range that is removed ends before the end of the file. No
    /// page from the beginning of `bytes` on is in the cache.
    ///
    /// # Errors
    /// `Unsupported` for a format or a file that cannot; as every method that changes something. Some blocks
    /// may have moved.
    ///
    /// # Locks
    /// `i_rwsem` and `invalidate_lock`, exclusive.
    fn shift_range(
        &self,
        _inode: &Arc<Inode>,
        _bytes: Range<u64>,
        _insert: bool,
        _now: Timespec,
    ) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether the byte at `pos` lies in a block with data: not in a hole, not in a block that is only
    /// reserved, and not in the inode.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem`, shared at least.
    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool>;

    /// The first position in `bytes` that is data or a hole. `unwritten` tells whether the cache holds data at a
    /// position that has no place on the volume yet.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem`, shared at least.
    fn seek(
        &self,
        inode: &Inode,
        bytes: Range<u64>,
        target: SeekTarget,
        unwritten: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>>;

    /// Makes the inode durable. The caller has written its pages and waited for them.
    ///
    /// # Errors
    /// As every method that changes something. The volume may then take no more changes.
    ///
    /// # Locks
    /// None, or `i_rwsem` shared.
    fn fsync(&self, inode: &Inode, datasync: bool) -> Result<()>;

    /// Makes everything durable. The caller has written the pages and waited for them.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`].
    ///
    /// # Locks
    /// None.
    fn sync_fs(&self) -> Result<()>;

    /// Frees an inode that has no name and no user. Its pages were dropped from the cache.
    ///
    /// # Errors
    /// As every method that changes something. The next mount then frees the inode.
    ///
    /// # Locks
    /// None.
    fn evict_inode(&self, inode: &Inode) -> Result<()>;

    /// Called between operations: keeps memory and free space in bounds.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`].
    ///
    /// # Locks
    /// None.
    fn balance(&self) -> Result<()>;

    /// Called by the flusher after a periodic pass. Makes changes durable that have been only in memory for
    /// long.
    ///
    /// # Locks
    /// None.
    fn periodic(&self) {}

    /// Stops the volume in its present state (the kernel's `FS_IOC_SHUTDOWN`): it takes no more changes.
    ///
    /// # Locks
    /// None.
    fn shutdown(&self) {}

    /// Writes the state of a clean unmount. No other method is called afterwards.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`]. The next mount then recovers the volume.
    ///
    /// # Locks
    /// None.
    fn unmount(&self) -> Result<()>;
}
