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

/// A file system: the part of a format that differs from others, below the operations of [`Vfs`](crate::Vfs).
///
/// **Locks.** Each method names the locks that its caller holds. The format takes its own locks below that,
/// and gives them back before it returns; with `i_rwsem` held it may wait for the device, but never for
/// another inode's `i_rwsem`.
///
/// **Errors.** Besides its own list of errors, each method that reads may fail with `Io` (the device) and
/// `Corrupt` (the volume breaks a rule of its format), each that changes something with `ReadOnly` and
/// `NoSpace`. A method that fails has changed nothing, unless it says otherwise.
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

    /// Whether any inode keeps when it was born.
    ///
    /// # Locks
    /// None.
    fn keeps_births(&self) -> bool {
        true
    }

    /// The largest size that `inode` can have, in bytes: it may depend on how the inode maps its blocks.
    ///
    /// # Locks
    /// Its `i_rwsem`, shared at least.
    fn max_file_size(&self, inode: &Inode) -> u64;

    /// The step in which the volume keeps times, in nanoseconds: a billion where it keeps seconds alone.
    ///
    /// # Locks
    /// None.
    fn time_granularity(&self) -> u32 {
        1
    }

    /// Called once, when the volume is mounted: from now on inodes are in memory once each, and found
    /// through `inodes`. A file system with threads of its own starts them here.
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

    /// Flags of inodes that `FS_IOC_SETFLAGS` may change beside those that every format keeps: `FS_*_FL`.
    ///
    /// # Locks
    /// None.
    fn own_flags(&self) -> u32 {
        0
    }

    /// Ends the work that [`FileSystem::attach`] began, before the inodes go. May be called again.
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

    /// Calls `emit` for each entry from position `pos` on, "." and ".." too, until it returns false.
    ///
    /// # Errors
    /// As every method that reads; entries before the fault are emitted.
    ///
    /// # Locks
    /// `i_rwsem` of `dir`, shared at least. `emit` takes none of these.
    fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Makes an inode with its attributes under a name that is missing. All of it is one change.
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

    /// Makes an inode without a name, of the kind that would be made in `dir`; it goes with its last user
    /// unless it is linked.
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

    /// Gives `inode` another name, or one made by [`FileSystem::tmpfile`] its first.
    ///
    /// # Errors
    /// `TooManyLinks`, `NameTooLong`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both, exclusive.
    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Takes a name away. An inode with no name left stays until [`FileSystem::evict_inode`]; a
    /// directory must be empty.
    ///
    /// # Errors
    /// `NotEmpty`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both, exclusive.
    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Moves a name; the whiteout made, if one is wanted. `target` is the inode that bears the new name now:
    /// it is replaced, or with `exchange` gets the old one. The caller has checked for cycles. All of it is
    /// one change.
    ///
    /// # Errors
    /// `NotEmpty`, `TooManyLinks`, `NameTooLong`; as every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem` of both directories and both inodes, exclusive.
    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>>;

    /// Has the data of a regular file go to these of the streams that data of its kind has, a bit each, as long
    /// as its inode is in memory; 0 takes that back.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream that there is not; `Unsupported` where the format has none.
    ///
    /// # Locks
    /// Any but the format's own.
    fn choose_streams(&self, inode: &Inode, streams: u32) -> Result<()> {
        let _ = (inode, streams);
        Err(ErrorKind::Unsupported.into())
    }

    /// The streams that were chosen for it; 0 when none were.
    ///
    /// # Errors
    /// `Unsupported` where the format has none.
    ///
    /// # Locks
    /// Any.
    fn chosen_streams(&self, inode: &Inode) -> Result<u32> {
        let _ = inode;
        Err(ErrorKind::Unsupported.into())
    }

    /// A file that was open for writing is closed.
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

    /// Takes over attributes that were set in `inode.attr`.
    ///
    /// # Errors
    /// As every method that changes something; the attributes in memory stay as they were set.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn update_inode(&self, inode: &Arc<Inode>) -> Result<()>;

    /// Takes over times that were set in `inode.attr`, at the latest with the next fsync or sync.
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

    /// The value of attribute `name` (with its namespace, e.g. `user.x`), in the form user space sees.
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

    /// The space an inode takes, in units of 512 bytes, as stat(2) shows it. Not 0 for a file with content that
    /// is kept elsewhere than in blocks: a program that copies files takes one without blocks for a hole.
    ///
    /// # Locks
    /// None, or `i_rwsem`.
    fn sectors(&self, inode: &Inode) -> u64 {
        inode.attr().blocks
    }

    /// Reads pages `index..index + pages` from the volume; holes as zeros. May return fewer.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem`, or `invalidate_lock` shared with the pages noted as being read in.
    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>>;

    /// Starts to read such pages, that may be wanted soon; `done` gets them, from any thread, possibly
    /// before this returns, or an error that nobody has to know of.
    ///
    /// # Locks
    /// `invalidate_lock`, shared; it may be released before `done` is called.
    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        done(self.read_pages(inode, index, pages));
    }

    /// Makes sure that the pages which hold `bytes` can be written out later: space is promised, nothing is
    /// placed. The change of attributes by `write`, if there is one, is made together with that; it is stored
    /// at the latest with the next fsync or sync.
    ///
    /// # Errors
    /// As every method that changes something; the attributes are as they were then, but for blocks of nodes.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn reserve(&self, inode: &Arc<Inode>, bytes: Range<u64>, write: Option<&WriteEnd>) -> Result<()>;

    /// Bytes were written to the page cache, and their pages are dirty. A format that keeps the order of data
    /// and names takes the pages over now; others leave them to [`FileSystem::writepages`].
    ///
    /// # Errors
    /// As every method that changes something; the pages stay dirty.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn wrote(&self, _inode: &Arc<Inode>, _bytes: Range<u64>) -> Result<()> {
        Ok(())
    }

    /// Writes into the inode itself if the file is kept there and stays small enough, and sets size and
    /// (with `now`) `mtime` and `ctime`; false when the page cache must take it.
    ///
    /// # Errors
    /// As every method that changes something.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn write_inline(&self, inode: &Inode, pos: u64, data: &[u8], now: Option<Timespec>) -> Result<bool>;

    /// Writes dirty pages out: takes runs ([`AddressSpace::take_dirty`](crate::AddressSpace::take_dirty)),
    /// gives them places, sends them. [`AddressSpace::end_writeback`](crate::AddressSpace::end_writeback) may
    /// be called later, from any thread, when the format's work at the end of I/O is done, too.
    ///
    /// A format that holds something first, a lock or a transaction's handle, looks for pages with
    /// [`AddressSpace::next_dirty`](crate::AddressSpace::next_dirty), which leaves them where they are. One that takes a
    /// run first knows it; [`Inode::end_writeback`] makes dirty again what cannot be sent.
    ///
    /// # Errors
    /// The first; pages that were not written are dirty again.
    ///
    /// # Locks
    /// None.
    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()>;

    /// Frees the blocks past `size` and sets it, or only sets it when the file grows. Pages past it are
    /// gone from the cache and the rest of the last page is zero. A large file may be cut in several atomic
    /// changes, from its end.
    ///
    /// # Errors
    /// As every method that changes something; the file may have been cut in part.
    ///
    /// # Locks
    /// `i_rwsem` and `invalidate_lock`, exclusive.
    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()>;

    /// How many bytes one call of [`FileSystem::punch_hole`] or [`FileSystem::preallocate`] may span: its
    /// change is bounded so, and [`FileSystem::balance`] can make room for it in between. Whole pages.
    ///
    /// # Locks
    /// Any.
    fn bytes_at_once(&self) -> u64;

    /// Frees the blocks that hold `bytes`, which are whole pages.
    ///
    /// # Errors
    /// As every method that changes something; some blocks may have been freed.
    ///
    /// # Locks
    /// `i_rwsem` and `invalidate_lock`, exclusive.
    fn punch_hole(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()>;

    /// Gives holes in the blocks that hold `bytes` blocks that read as zeros.
    ///
    /// # Errors
    /// As every method that changes something; some holes may have got blocks.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn preallocate(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()>;

    /// Whether [`FileSystem::preallocate`] can be done with a file at all; asked before any of its content changes.
    ///
    /// # Errors
    /// `Unsupported` for a file that cannot have blocks which were never written.
    ///
    /// # Locks
    /// None.
    fn can_preallocate(&self, _inode: &Inode) -> Result<()> {
        Ok(())
    }

    /// Whether blocks can be taken out of the middle of a file, by [`FileSystem::punch_hole`].
    ///
    /// # Errors
    /// `Unsupported` for a file whose blocks are to stay.
    ///
    /// # Locks
    /// None.
    fn can_punch(&self, _inode: &Inode) -> Result<()> {
        Ok(())
    }

    /// Where a hole ends that was asked for up to the byte `end` of a file of `size` bytes.
    ///
    /// # Locks
    /// `i_rwsem`, exclusive.
    fn punch_end(&self, end: u64, _size: u64) -> u64 {
        end
    }

    /// Whether [`FileSystem::shift_range`] can be done with a file at all.
    ///
    /// # Errors
    /// `Unsupported` for a format that cannot, or a file.
    ///
    /// # Locks
    /// None.
    fn can_shift(&self, _inode: &Inode) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Takes the blocks of `bytes` out of a file, so that those behind move to where they begin and the file
    /// is as much shorter; with `insert` moves those from the beginning of `bytes` on behind them, so that
    /// they are a hole and the file is as much longer. `bytes` begin and end at blocks and begin inside the
    /// file; those that are taken out end before its end. No page from the first of them on is in the cache.
    ///
    /// # Errors
    /// `Unsupported` for a format that cannot, or a file; as every method that changes something. A part may
    /// have moved.
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

    /// Whether the byte at `pos` lies in a block with data of its own: not in a hole, not in blocks that are
    /// only reserved, and not in the inode.
    ///
    /// # Errors
    /// As every method that reads.
    ///
    /// # Locks
    /// `i_rwsem`, shared at least.
    fn has_block(&self, inode: &Inode, pos: u64) -> Result<bool>;

    /// The first position in `bytes` that is data or a hole; `unwritten` tells of a position whether the cache holds
    /// data there that has no place yet.
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

    /// Makes the inode durable; its pages have been written and waited for.
    ///
    /// # Errors
    /// As every method that changes something; the volume may take no more changes then.
    ///
    /// # Locks
    /// None, or `i_rwsem` shared.
    fn fsync(&self, inode: &Inode, datasync: bool) -> Result<()>;

    /// Makes everything durable. Pages have been written and waited for.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`].
    ///
    /// # Locks
    /// None.
    fn sync_fs(&self) -> Result<()>;

    /// Frees an inode that has no name and no user. Its pages are gone from the cache.
    ///
    /// # Errors
    /// As every method that changes something; the next mount frees the inode then.
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

    /// Called by the flusher after a periodic pass: changes that have been in memory alone for long become
    /// durable.
    ///
    /// # Locks
    /// None.
    fn periodic(&self) {}

    /// Stops the volume as it is (the kernel's `FS_IOC_SHUTDOWN`): no change is taken any more.
    ///
    /// # Locks
    /// None.
    fn shutdown(&self) {}

    /// Writes the state of a clean unmount. Nothing is used afterwards.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`]; the next mount recovers then.
    ///
    /// # Locks
    /// None.
    fn unmount(&self) -> Result<()>;
}
