//! What a file system implements.

use crate::error::Result;
use crate::icache::Inodes;
use crate::inode::Inode;
use crate::mapping::chunk::PageRun;
use crate::types::*;
use std::any::Any;
use std::sync::Arc;
use tidegate_rt::Timespec;

/// What makes an inode in memory: its attributes and the file system's own part.
pub struct InodeParts {
    /// Number.
    pub ino: Ino,
    /// Attributes.
    pub attr: Attr,
    /// The file system's part, seen again through [`Inode::private`].
    pub private: Box<dyn Any + Send + Sync>,
}

/// Takes the pages that were read, from the first on.
pub type ReadDone = Box<dyn FnOnce(Result<Vec<PageRun>>) + Send>;

/// Attributes that a new inode begins with: full name and value, as user space sees them.
pub type NewXattrs = [(&'static [u8], Vec<u8>)];

/// How a write-back pass is to go; names as the kernel's `writeback_control`.
#[derive(Clone, Debug)]
pub struct WritebackControl {
    /// Somebody waits for all of it (`WB_SYNC_ALL`): pages still under write-back are waited for.
    pub sync_all: bool,
    /// For fsync (`Some(false)`) or fdatasync (`Some(true)`) of this inode.
    pub fsync: Option<bool>,
    /// Pages left to write; a pass that is not `sync_all` ends when it is used up.
    pub nr_to_write: u64,
    /// First page of the range.
    pub start: u64,
    /// First page past the range.
    pub end: u64,
    /// Pages written by this pass.
    pub written: u64,
}

impl WritebackControl {
    /// A pass over everything that somebody waits for.
    pub fn sync() -> Self {
        WritebackControl {
            sync_all: true,
            fsync: None,
            nr_to_write: u64::MAX,
            start: 0,
            end: u64::MAX,
            written: 0,
        }
    }

    /// A pass of at most `pages` pages that nobody waits for.
    pub fn background(pages: u64) -> Self {
        WritebackControl { sync_all: false, nr_to_write: pages, ..Self::sync() }
    }
}

/// What a write does to its file's attributes.
#[derive(Clone, Copy, Debug)]
pub struct WriteEnd {
    /// The first byte after what is written; the file is at least as long then.
    pub end: u64,
    /// `mtime` and `ctime`, if they change.
    pub time: Option<Timespec>,
}

impl WriteEnd {
    /// Changes the size and the times of `a`.
    pub fn apply(&self, a: &mut Attr) {
        a.size = a.size.max(self.end);
        if let Some(time) = self.time {
            (a.mtime, a.ctime) = (time, time);
        }
    }
}

/// A file system. Methods that change a directory or a file are called with its `i_rwsem` held
/// exclusive, others with it held shared, unless they say otherwise. Attributes that a method changes
/// are set in the inode's `attr` and made part of the same atomic change.
pub trait FileSystem: Send + Sync {
    /// Name of the format, e.g. `f2fs`.
    fn name(&self) -> &'static str;

    /// The root directory.
    fn root(&self) -> Ino;

    /// Whether changes are refused, and why.
    fn read_only(&self) -> Option<String>;

    /// Capacity and use. No lock held.
    fn statfs(&self) -> StatFs;

    /// Largest file in bytes.
    fn max_file_size(&self) -> u64;

    /// Called once, when the volume is mounted: from now on inodes are in memory once each, and found
    /// through `inodes`. A file system with threads of its own starts them here.
    fn attach(&self, inodes: Inodes) {
        let _ = inodes;
    }

    /// Ends what [`FileSystem::attach`] began, before the inodes go. May be called again.
    fn detach(&self) {}

    /// Reads an inode from the volume. No lock held.
    fn read_inode(&self, ino: Ino) -> Result<InodeParts>;

    /// Finds `name` in `dir`.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>>;

    /// Calls `emit` for each entry from position `pos` on, "." and ".." too, until it returns false.
    fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Makes an inode with its attributes under a name that is missing. All of it is one change.
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
    fn tmpfile(&self, dir: &Inode, new: &NewInode<'_>, xattrs: &NewXattrs) -> Result<InodeParts> {
        let _ = (dir, new, xattrs);
        Err(crate::error::ErrorKind::Unsupported.into())
    }

    /// Gives `inode` another name, or one made by [`FileSystem::tmpfile`] its first.
    fn link(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Takes a name away. An inode with no name left stays until [`FileSystem::evict_inode`]; a
    /// directory must be empty.
    fn unlink(&self, dir: &Arc<Inode>, name: &[u8], inode: &Inode, now: Timespec) -> Result<()>;

    /// Moves a name; the whiteout made, if one is wanted. `target` is what bears the new name now: it is
    /// replaced, or with `exchange` gets the old one. Both directories and both inodes are locked; the
    /// caller has checked for cycles. All of it is one change.
    fn rename(&self, r: &Rename<'_>) -> Result<Option<Ino>>;

    /// The target of a symbolic link.
    fn readlink(&self, inode: &Inode) -> Result<Vec<u8>>;

    /// Takes over attributes that were set in `inode.attr`.
    fn update_inode(&self, inode: &Inode) -> Result<()>;

    /// Takes over times that were set in `inode.attr`, at the latest with the next fsync or sync. No lock held.
    fn update_times(&self, inode: &Arc<Inode>) -> Result<()> {
        let _guard = inode.rwsem.write();
        self.update_inode(inode)
    }

    /// The value of attribute `name` (with its namespace, e.g. `user.x`), in the form user space sees.
    fn getxattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets (`Some`) or removes (`None`) an attribute.
    fn setxattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()>;

    /// Names of all attributes.
    fn listxattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>>;

    /// The space an inode takes, in units of 512 bytes, as stat(2) shows it. Not 0 for a file with content that
    /// is kept elsewhere than in blocks: who copies files takes one without blocks for a hole.
    fn sectors(&self, inode: &Inode) -> u64 {
        inode.attr().blocks
    }

    /// Reads pages `index..index + pages` from the volume; holes as zeros. May return fewer. `i_rwsem` is held, or
    /// `invalidate_lock` shared with the pages as being read in.
    fn read_pages(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>>;

    /// Starts to read such pages, for who may want them soon; `done` gets them, from any thread, possibly
    /// before this returns, or an error that nobody has to know of. `invalidate_lock` is held shared, and may be
    /// released before.
    fn read_ahead(&self, inode: &Arc<Inode>, index: u64, pages: usize, done: ReadDone) {
        done(self.read_pages(inode, index, pages));
    }

    /// Makes sure that the pages can be written out later: space is promised, nothing is placed. What `write`
    /// does to the attributes, if there is one, is done with that; it is stored at the latest with the next fsync
    /// or sync.
    ///
    /// # Errors
    /// `NoSpace`, those of the device; the attributes are as they were then, but for blocks of nodes.
    fn reserve(&self, inode: &Arc<Inode>, index: u64, pages: u64, write: Option<&WriteEnd>) -> Result<()>;

    /// Writes into the inode itself if the file is kept there and stays small enough, and sets size and
    /// (with `now`) `mtime` and `ctime`; false when the page cache must take it.
    fn write_inline(&self, inode: &Inode, pos: u64, data: &[u8], now: Option<Timespec>) -> Result<bool>;

    /// Writes dirty pages out. No lock held.
    fn writepages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()>;

    /// Frees the blocks past `size` and sets it, or only sets it when the file grows. Pages past it are
    /// gone from the cache and the rest of the last page is zero. A large file may be cut in several atomic
    /// changes, from its end.
    fn truncate(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()>;

    /// How many pages one call of [`FileSystem::punch_hole`] or [`FileSystem::preallocate`] may span: what
    /// it changes is bounded so, and [`FileSystem::balance`] can make room for it in between.
    fn pages_at_once(&self) -> u64;

    /// Frees the blocks of whole pages.
    fn punch_hole(&self, inode: &Arc<Inode>, index: u64, pages: u64) -> Result<()>;

    /// Gives holes in the range blocks that read as zeros.
    fn preallocate(&self, inode: &Arc<Inode>, index: u64, pages: u64) -> Result<()>;

    /// Whether page `index` of a file has a block with data of its own: it is not a hole, not only reserved and
    /// not kept in the inode.
    fn has_block(&self, inode: &Inode, index: u64) -> Result<bool>;

    /// The first page at or after `index` (below `end`) that is data or a hole; `unwritten` tells where
    /// the cache holds data that has no place yet.
    fn seek(
        &self,
        inode: &Inode,
        index: u64,
        end: u64,
        target: SeekTarget,
        unwritten: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>>;

    /// Makes the inode durable; its pages have been written and waited for. Shared lock or none.
    fn fsync(&self, inode: &Inode, datasync: bool) -> Result<()>;

    /// Makes everything durable. Pages have been written and waited for; no lock held.
    fn sync_fs(&self) -> Result<()>;

    /// Frees an inode that has no name and no user. Its pages are gone from the cache.
    fn evict_inode(&self, inode: &Inode) -> Result<()>;

    /// Called between operations, with no lock held: does what keeps memory and free space in bounds.
    fn balance(&self) -> Result<()>;

    /// Called by the flusher after a periodic pass, with no lock held: what has been in memory alone for
    /// long becomes durable.
    fn periodic(&self) {}

    /// Stops the volume as it is (the kernel's `FS_IOC_SHUTDOWN`): no change is taken any more.
    fn shutdown(&self) {}

    /// Writes what a clean unmount leaves. Nothing is used afterwards.
    fn unmount(&self) -> Result<()>;
}

/// The arguments of [`FileSystem::rename`].
pub struct Rename<'a> {
    /// Where the name is.
    pub old_dir: &'a Arc<Inode>,
    /// The name.
    pub old_name: &'a [u8],
    /// What bears it.
    pub inode: &'a Arc<Inode>,
    /// Where it goes; may be `old_dir`.
    pub new_dir: &'a Arc<Inode>,
    /// The new name.
    pub new_name: &'a [u8],
    /// What bears the new name now.
    pub target: Option<&'a Arc<Inode>>,
    /// `target` gets the old name.
    pub exchange: bool,
    /// An inode made of this gets the old name; never with `exchange`.
    pub whiteout: Option<&'a NewInode<'a>>,
    /// The time of the change.
    pub now: Timespec,
}
