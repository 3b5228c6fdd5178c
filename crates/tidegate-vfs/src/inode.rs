//! An inode in memory.

use crate::bdi::Bdi;
use crate::fs::InodeParts;
use crate::mapping::AddressSpace;
use crate::types::{Attr, DeviceNumber, FileType, Ino, WriteHint};
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use tidegate_rt::{LockClass, Mutex, MutexGuard, RwLock};

static I_RWSEM: LockClass = LockClass::new("inode->i_rwsem", 20);
static I_LOCK: LockClass = LockClass::new("inode->i_lock", 650);

/// An inode in memory. It is shared, and a reference keeps it in memory.
pub struct Inode {
    /// Number.
    pub ino: Ino,
    /// Type. It never changes.
    pub file_type: FileType,
    /// Serialises changes to the names in a directory, and to the pages and blocks of a file.
    pub rwsem: RwLock<()>,
    /// Cached pages.
    pub mapping: AddressSpace,
    attr: Mutex<Attr>,
    seen: Seen,
    /// The size that readers see while a write makes the file longer.
    growing_from: AtomicU64,
    private: Box<dyn Any + Send + Sync>,
    /// The number of open files. Changed under `i_lock`.
    opens: AtomicU32,
    /// The inode is freed on the volume. Changed under `i_lock`.
    freed: AtomicBool,
    /// The inode was made without a name, and may get one.
    pub(crate) linkable: AtomicBool,
    /// The inode belongs to the file system itself (nodes, metadata). It is written after the files that make
    /// it dirty.
    pub(crate) internal: bool,
    /// The lifetime of the data, as a program has set it: a [`WriteHint`].
    write_hint: AtomicU8,
    /// The inode is on one of the bdi's lists.
    pub(crate) listed: AtomicBool,
    /// When the inode was first dirtied since it was last written, on the monotonic clock.
    pub(crate) dirtied_when: AtomicU64,
    /// The inode is known to have no file capability. Changed under `i_rwsem`.
    pub(crate) no_capability: AtomicBool,
    /// The inode was used since the clock of the inode cache last passed it.
    pub(crate) referenced: AtomicBool,
}

impl Inode {
    /// Builds an inode whose pages are accounted to `bdi`.
    pub fn new(parts: InodeParts, bdi: Arc<Bdi>, shards: usize) -> Self {
        Inode {
            ino: parts.ino,
            file_type: parts.attr.file_type,
            rwsem: RwLock::new(&I_RWSEM, ()),
            mapping: AddressSpace::new(bdi, shards),
            seen: Seen::of(&parts.attr),
            attr: Mutex::new(&I_LOCK, parts.attr),
            growing_from: AtomicU64::new(u64::MAX),
            private: parts.private,
            opens: AtomicU32::new(0),
            freed: AtomicBool::new(false),
            linkable: AtomicBool::new(false),
            internal: false,
            write_hint: AtomicU8::new(0),
            listed: AtomicBool::new(false),
            dirtied_when: AtomicU64::new(0),
            no_capability: AtomicBool::new(false),
            referenced: AtomicBool::new(true),
        }
    }

    /// An inode for the file system's own pages, with any number. A write-back pass takes it last, since
    /// writing files changes its pages.
    pub fn internal(ino: Ino, bdi: Arc<Bdi>, shards: usize) -> Self {
        let attr = Attr {
            file_type: FileType::Regular,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: u64::MAX,
            blocks: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            crtime: None,
            rdev: DeviceNumber::default(),
            generation: 0,
            flags: 0,
        };
        let parts = InodeParts { ino, attr, private: Box::new(()) };
        let mut inode = Inode { internal: true, ..Self::new(parts, bdi, shards) };
        inode.mapping.in_epochs = false;
        inode
    }

    /// The attributes, under `i_lock`.
    pub fn attr(&self) -> AttrGuard<'_> {
        AttrGuard { attr: self.attr.lock(), seen: &self.seen }
    }

    /// The size in bytes (`i_size_read`). Takes no lock.
    pub fn size(&self) -> u64 {
        self.seen.size.load(Acquire)
    }

    /// The size as readers see it, in bytes. While a write makes the file longer, it is the size before the write,
    /// until the bytes are there. Takes no lock.
    pub fn read_size(&self) -> u64 {
        // The order matters: a reader that sees the new size also sees that the file is growing, or that it
        // has grown.
        let size = self.size();
        size.min(self.growing_from.load(SeqCst))
    }

    /// Announces that the file grows from its present size, until the result is dropped. The caller holds `i_rwsem`
    /// exclusive.
    pub(crate) fn grow(&self) -> Growing<'_> {
        self.growing_from.store(self.size(), SeqCst);
        Growing(self)
    }

    /// The number of names. Takes no lock.
    pub fn nlink(&self) -> u32 {
        self.seen.nlink.load(Acquire)
    }

    /// The lifetime of data that is written to the file now. Takes no lock.
    pub fn write_hint(&self) -> WriteHint {
        WriteHint::from_number(self.write_hint.load(Relaxed)).unwrap_or_default()
    }

    /// Sets the lifetime of data that is written to the file from now on, until the inode leaves memory.
    /// Takes no lock.
    pub fn set_write_hint(&self, hint: WriteHint) {
        self.write_hint.store(hint as u8, Relaxed);
    }

    /// The file system's part.
    ///
    /// # Panics
    /// When `T` is not the type that the file system put there. Only the file system calls this.
    pub fn private<T: 'static>(&self) -> &T {
        self.private.downcast_ref().expect("an inode carries its own file system's part")
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Counts one more open file. False when the inode is freed already.
    pub fn open(&self) -> bool {
        let _lock = self.attr();
        if self.freed.load(SeqCst) {
            return false;
        }
        self.opens.fetch_add(1, SeqCst);
        true
    }

    /// Whether a file is open on it.
    pub fn is_open(&self) -> bool {
        self.opens.load(SeqCst) > 0
    }

    /// Counts one open file less. Returns whether it was the last of an inode with no name.
    pub fn close(&self) -> bool {
        let attr = self.attr();
        self.opens.fetch_sub(1, SeqCst) == 1 && attr.nlink == 0
    }

    /// Claims the right to free an inode with no name and no open file. True for one caller only.
    pub fn claim_free(&self) -> bool {
        let attr = self.attr();
        attr.nlink == 0 && self.opens.load(SeqCst) == 0 && !self.freed.swap(true, SeqCst)
    }

    /// Whether the inode is freed.
    pub fn is_freed(&self) -> bool {
        self.freed.load(SeqCst)
    }

    /// Whether the inode has no name left. In such a directory nothing can be created, though it may be open.
    pub fn is_removed(&self) -> bool {
        self.is_freed() || self.nlink() == 0
    }

    /// Whether the inode can be dropped from memory without loss.
    pub fn is_clean(&self) -> bool {
        !self.listed.load(SeqCst)
            && self.opens.load(SeqCst) == 0
            && self.mapping.nr_dirty() == 0
            && self.mapping.nr_writeback() == 0
    }
}

/// The growth of a file that has begun ([`Inode::grow`]).
pub(crate) struct Growing<'a>(&'a Inode);

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.growing_from.store(u64::MAX, SeqCst);
    }
}

/// Fields that are read without `i_lock`, since they are read so often.
struct Seen {
    size: AtomicU64,
    nlink: AtomicU32,
}

impl Seen {
    fn of(a: &Attr) -> Seen {
        Seen { size: AtomicU64::new(a.size), nlink: AtomicU32::new(a.nlink) }
    }
}

/// The attributes, locked. Fields that are read without the lock are updated when this is dropped.
pub struct AttrGuard<'a> {
    attr: MutexGuard<'a, Attr>,
    seen: &'a Seen,
}

impl Deref for AttrGuard<'_> {
    type Target = Attr;
    fn deref(&self) -> &Attr {
        &self.attr
    }
}

impl DerefMut for AttrGuard<'_> {
    fn deref_mut(&mut self) -> &mut Attr {
        &mut self.attr
    }
}

impl Drop for AttrGuard<'_> {
    fn drop(&mut self) {
        // The lock is still held, so no other thread stores here. Most callers only read, and leave the cache
        // line alone.
        if self.seen.size.load(Acquire) != self.attr.size {
            self.seen.size.store(self.attr.size, Release);
        }
        if self.seen.nlink.load(Acquire) != self.attr.nlink {
            self.seen.nlink.store(self.attr.nlink, Release);
        }
    }
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inode({} {:?})", self.ino, self.file_type)
    }
}
