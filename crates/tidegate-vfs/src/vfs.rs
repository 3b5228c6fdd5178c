//! A mounted file system.

use crate::bdi::Bdi;
use crate::dcache::DentryCache;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::fs::FileSystem;
use crate::icache::{InodeCache, Inodes};
use crate::inode::Inode;
use crate::switch::Switch;
use crate::sync::{self, SyncWait};
use crate::types::{Ino, StatFs};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_rt::{LockClass, Mutex, RwLock, Timespec, clock, sim, trace::EventPoint};

/// An inode without a name could not be freed. The second value is the device's error, or 0.
static EVICT_FAILED: EventPoint<2> = EventPoint::new("evict_inode_failed", ["ino", "errno"]);
static S_UMOUNT: LockClass = LockClass::new("sb->s_umount", 10);

/// How a mounted file system behaves.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Reads do not change access times. Otherwise access times follow the kernel's `relatime`.
    pub noatime: bool,
    /// Dirty pages are not written because of their age, so that only the operations decide when they are
    /// written (the kernel's `dirty_writeback_centisecs` of 0).
    pub no_periodic_writeback: bool,
    /// Every change gets this time instead of that of the clock.
    pub fixed_time: Option<Timespec>,
    /// The thread that waits in a sync.
    pub sync_wait: SyncWait,
}

/// A mounted file system: the entry point for all users. Shared by threads.
pub struct Vfs {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) bdi: Arc<Bdi>,
    pub(crate) icache: Arc<InodeCache>,
    pub(crate) dcache: DentryCache,
    pub(crate) options: MountOptions,
    /// `s_umount`, held during the whole unmount, with the flusher, which ends with the mount.
    pub(crate) flusher: RwLock<Option<Flusher>>,
    pub(crate) sync_switch: Switch<SyncWait>,
    pub(crate) sync_shared: sync::Shared,
    pub(crate) unmounted: AtomicBool,
    /// The result of unmounting. Written under `s_umount`.
    ended: OnceLock<Result<()>>,
    pub(crate) rename_lock: Mutex<()>,
}

static RENAME: LockClass = LockClass::new("s_vfs_rename_mutex", 15);

impl Vfs {
    /// Mounts `fs`, whose pages are accounted to `bdi`. A file system that can be changed gets a flusher.
    ///
    /// # Errors
    /// `OutOfMemory` when no thread can be started.
    pub fn mount(fs: Arc<dyn FileSystem>, bdi: Arc<Bdi>, options: MountOptions) -> Result<Arc<Self>> {
        let flusher = match fs.read_only() {
            Some(_) => None,
            None => Some(
                Flusher::start(fs.clone(), bdi.clone(), !options.no_periodic_writeback)
                    .map_err(|e| Error::new(ErrorKind::OutOfMemory, format!("flusher thread: {e}")))?,
            ),
        };
        let icache = Arc::new(InodeCache::new(bdi.clone()));
        fs.attach(Inodes::of(&icache));
        Ok(Arc::new(Vfs {
            icache,
            dcache: DentryCache::new(),
            fs,
            bdi,
            sync_switch: Switch::new(options.sync_wait),
            options,
            flusher: RwLock::new(&S_UMOUNT, flusher),
            sync_shared: sync::Shared::default(),
            unmounted: AtomicBool::new(false),
            ended: OnceLock::new(),
            rename_lock: Mutex::new(&RENAME, ()),
        }))
    }

    /// The file system below.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// Its write-back state.
    pub fn bdi(&self) -> &Arc<Bdi> {
        &self.bdi
    }

    /// The time for a change that is made now: that of the clock's last tick, as in Linux.
    pub fn now(&self) -> Timespec {
        self.options.fixed_time.unwrap_or_else(clock::realtime_coarse)
    }

    /// The root directory.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn root(&self) -> Result<Arc<Inode>> {
        self.iget(self.fs.root())
    }

    /// The inode with number `ino`.
    ///
    /// # Errors
    /// Those of reading the inode; `Stale` when it is free.
    pub fn iget(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.icache.get_or_read(ino, || self.fs.read_inode(ino))
    }

    /// Capacity and use.
    pub fn statfs(&self) -> StatFs {
        self.fs.statfs()
    }

    /// Begins an operation that changes something.
    pub(crate) fn begin_change(&self) -> Result<()> {
        sim::syscall();
        self.check_writable()
    }

    /// Refuses a change on a volume that is read-only or unmounted.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_mounted()?;
        match self.fs.read_only() {
            None => Ok(()),
            Some(why) => Err(Error::read_only(&why)),
        }
    }

    /// Refuses an operation on an unmounted volume.
    pub(crate) fn check_mounted(&self) -> Result<()> {
        match self.is_unmounted() {
            true => Err(Error::unmounted()),
            false => Ok(()),
        }
    }

    /// Syncs, writes the state of a clean unmount, and drops everything. Operations on open files fail
    /// afterwards. A second caller waits for the first, and gets the same result. Holds `s_umount` exclusive
    /// throughout.
    ///
    /// # Errors
    /// The first failure. The volume is unmounted all the same.
    pub fn unmount(&self) -> Result<()> {
        let mut slot = self.flusher.write();
        self.ended.get_or_init(|| self.end(&mut slot)).clone()
    }

    fn end(&self, slot: &mut Option<Flusher>) -> Result<()> {
        self.unmounted.store(true, SeqCst);
        self.fs.detach();
        let synced = slot.as_ref().map_or(Ok(()), |f| self.sync_with(f));
        *slot = None;
        self.icache.clear();
        let unmounted = self.fs.unmount();
        self.bdi.forget();
        synced.and(unmounted)
    }

    /// Whether [`Vfs::unmount`] was called.
    pub fn is_unmounted(&self) -> bool {
        self.unmounted.load(SeqCst)
    }

    /// Keeps memory and free space in bounds. Operations call this when they hold no lock. A failure is none of the
    /// operation, whose change is made: a volume that stopped tells the next change.
    pub(crate) fn balance(&self) {
        self.bdi.balance_dirty_pages();
        let _ = self.fs.balance();
    }

    /// As [`Vfs::balance`], for operations that wrote data.
    pub(crate) fn balance_written(&self) {
        self.bdi.balance_written_pages();
        let _ = self.fs.balance();
    }

    /// Frees an inode that lost its last name or its last user. The caller holds no lock. A failure undoes
    /// nothing: the name is gone, and the inode stays an orphan for the next mount.
    pub(crate) fn evict_if_unused(&self, inode: &Arc<Inode>) {
        if inode.attr().nlink != 0 {
            return;
        }
        // The inode is locked first: a file without a name may just be getting one.
        let guard = inode.rwsem.write();
        if !inode.claim_free() {
            return;
        }
        let none = inode.mapping.invalidate_lock.write();
        inode.mapping.remove(0, u64::MAX);
        let r = self.fs.evict_inode(inode);
        drop(none);
        drop(guard);
        self.icache.remove(inode);
        if let Err(e) = r {
            EVICT_FAILED.record([inode.ino.0, e.errno().map_or(0, |e| e.raw_os_error() as u64)]);
            self.bdi.stats.not_freed.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // A program that does not unmount expects only its synced files to be kept. Only the threads must
        // end.
        self.fs.detach();
        *self.flusher.write() = None;
        self.bdi.forget();
    }
}
