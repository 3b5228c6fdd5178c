//! Open files: opening, reading, seeking, durability.

use crate::error::{ErrorKind, Result};
use crate::fs::WritebackControl;
use crate::inode::Inode;
use crate::namei::MAX_SYMLINKS;
use crate::perm::{self, MAY_READ, MAY_WRITE};
use crate::readahead::{PagedIn, ReadAheadState, copy_run};
use crate::types::*;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::{clock, sim, trace::SpanPoint};

static FSYNC_RANGE: SpanPoint<2> = SpanPoint::timed("vfs_fsync_range", ["ino", "datasync"]);
static WRITE_AND_WAIT: SpanPoint<0> = SpanPoint::new("file_write_and_wait_range", []);

/// How often the pages of a file are written again after other threads gave them back for want of space.
const WRITE_TRIES: u32 = 64;
/// An access time is not updated again within this time (relatime).
const RELATIME_SECS: i64 = 24 * 3600;

/// An open file or directory. It is closed when dropped. An inode without a name is freed with its last open
/// file.
pub struct File {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) flags: OpenFlags,
    /// The superuser opened the file: its writes keep set-id bits.
    pub(crate) privileged: bool,
    errseq_seen: AtomicU32,
    pub(crate) ra: ReadAheadState,
}

impl Vfs {
    /// Opens an inode.
    ///
    /// # Errors
    /// `PermissionDenied`, `IsADirectory` for writing to one, `ReadOnly`, `Stale`.
    pub fn open(self: &Arc<Self>, cred: &Cred, inode: &Arc<Inode>, flags: OpenFlags) -> Result<File> {
        if flags.contains(OpenFlags::DIRECTORY) && !inode.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        let mut want = 0;
        if flags.contains(OpenFlags::READ) {
            want |= MAY_READ;
        }
        if flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNC) {
            want |= MAY_WRITE;
            self.check_writable()?;
            if inode.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
        }
        perm::check(&*self.fs, cred, inode, want)?;
        self.open_unchecked(cred, inode, flags)
    }

    /// Opens an inode for its creator, who may use it as the flags say, whatever its mode.
    pub(crate) fn open_unchecked(
        self: &Arc<Self>,
        cred: &Cred,
        inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<File> {
        if self.is_unmounted() || !inode.open() {
            return Err(ErrorKind::Stale.into());
        }
        let file = File {
            vfs: self.clone(),
            inode: inode.clone(),
            flags,
            privileged: cred.is_root(),
            errseq_seen: AtomicU32::new(inode.mapping.errseq()),
            ra: ReadAheadState::default(),
        };
        if flags.contains(OpenFlags::TRUNC) && inode.file_type == FileType::Regular {
            file.truncate(0)?;
        }
        Ok(file)
    }

    /// Opens the file at `path`. Creates it with `CREATE`.
    ///
    /// # Errors
    /// As [`Vfs::open`] and [`Vfs::make`].
    pub fn open_path(
        self: &Arc<Self>,
        cred: &Cred,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<File> {
        if !flags.contains(OpenFlags::CREATE) {
            let inode = self.resolve(cred, path, !flags.contains(OpenFlags::NOFOLLOW))?;
            if inode.file_type == FileType::Symlink {
                return Err(ErrorKind::TooManySymlinks.into());
            }
            return self.open(cred, &inode, flags);
        }
        self.open_or_make(cred, path, flags, mode, 0)
    }

    /// Opens with `CREATE`. A symbolic link at the end is followed to the place where the file is to be
    /// created.
    fn open_or_make(
        self: &Arc<Self>,
        cred: &Cred,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
        links: u32,
    ) -> Result<File> {
        let parent = self.resolve_parent(cred, path)?;
        if parent.name.is_empty() || parent.must_be_dir {
            return Err(ErrorKind::IsADirectory.into());
        }
        match self.create(cred, &parent.dir, parent.name, mode) {
            Ok(inode) => return self.open_unchecked(cred, &inode, flags - OpenFlags::TRUNC),
            Err(e) if e.kind() == ErrorKind::Exists && !flags.contains(OpenFlags::EXCL) => {}
            // A volume that takes no new files may already have this one.
            Err(e) if e.kind() == ErrorKind::ReadOnly && !flags.contains(OpenFlags::EXCL) => {
                if self.lookup(&parent.dir, parent.name).is_err() {
                    return Err(e);
                }
            }
            Err(e) => return Err(e),
        }
        let inode = self.lookup(&parent.dir, parent.name)?;
        match inode.file_type {
            FileType::Directory => Err(ErrorKind::IsADirectory.into()),
            FileType::Symlink if flags.contains(OpenFlags::NOFOLLOW) || links >= MAX_SYMLINKS => {
                Err(ErrorKind::TooManySymlinks.into())
            }
            FileType::Symlink => {
                let target = self.readlink(&inode)?;
                let at = path.len() - path.iter().rev().take_while(|b| **b != b'/').count();
                let next = if target.starts_with(b"/") { target } else { [&path[..at], &target].concat() };
                self.open_or_make(cred, &next, flags, mode, links + 1)
            }
            _ => self.open(cred, &inode, flags),
        }
    }
}

impl File {
    /// The inode.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.inode.size()
    }

    pub(crate) fn allow(&self, what: OpenFlags) -> Result<()> {
        if !self.flags.contains(what) {
            return Err(ErrorKind::BadFile.into());
        }
        match self.inode.file_type {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(ErrorKind::IsADirectory.into()),
            _ => Err(ErrorKind::InvalidArgument.into()),
        }
    }

    /// Reads at `pos`. Returns the number of bytes, which is smaller than asked for only at the end of the file. Takes
    /// no lock for cached pages, and `invalidate_lock` shared to read others in. A concurrent write to the range may be
    /// seen in part.
    ///
    /// # Errors
    /// `BadFile`, `IsADirectory`, those of the device, `Corrupt`.
    pub fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize> {
        sim::syscall();
        self.allow(OpenFlags::READ)?;
        let size = self.inode.read_size();
        if pos >= size {
            return Ok(0);
        }
        let len = (size - pos).min(to.len() as u64) as usize;
        let to = &mut to[..len];
        let mapping = &self.inode.mapping;
        let mut done = mapping.copy_out(pos, to);
        while done < len {
            let at = pos + done as u64;
            done += match self.page_in(at, pos, (len - done) as u64)? {
                PagedIn::Cached => mapping.copy_out(at, &mut to[done..]),
                PagedIn::Read(run) => {
                    let n = copy_run(&run, at, &mut to[done..]);
                    n + mapping.copy_out(at + n as u64, &mut to[done + n..])
                }
                PagedIn::End => break,
            };
        }
        self.read_on(pos, pos + done as u64);
        // An access time that cannot be stored is no reason to refuse what was read.
        let _ = self.touch_atime();
        self.vfs.bdi.shrink();
        Ok(done)
    }

    /// Drops the clean pages in `pos..end` (bytes), for a caller that has the bytes elsewhere. Takes
    /// `i_rwsem` shared.
    pub fn forget_pages(&self, pos: u64, end: u64) {
        // Without the lock, a page could be dropped that a writer has just read in to change it.
        let _unchanged = self.inode.rwsem.read();
        let page = PAGE_SIZE as u64;
        self.inode.mapping.reclaim_range(pos.div_ceil(page), end / page, false);
    }

    fn touch_atime(&self) -> Result<()> {
        if self.flags.contains(OpenFlags::NOATIME) {
            return Ok(());
        }
        self.vfs.touch_atime(&self.inode).map(drop)
    }

    /// Finds data or a hole at or after `pos`.
    ///
    /// # Errors
    /// `NoDeviceOrAddress` past the end, or when no data follows.
    pub fn seek(&self, pos: u64, target: SeekTarget) -> Result<u64> {
        let _guard = self.inode.rwsem.read();
        let size = self.inode.size();
        if pos >= size {
            return Err(ErrorKind::NoDeviceOrAddress.into());
        }
        let page = PAGE_SIZE as u64;
        let m = &self.inode.mapping;
        let unwritten = |at: u64| m.next_unwritten(at / page, at / page + 1).is_some();
        match self.vfs.fs.seek(&self.inode, pos..size, target, &unwritten)? {
            Some(at) => Ok(at),
            None if target == SeekTarget::Hole => Ok(size),
            None => Err(ErrorKind::NoDeviceOrAddress.into()),
        }
    }

    /// Makes the file's data durable, and its metadata (with `datasync`, only the metadata that reading the
    /// data needs). A failed write that was not yet reported to this open file is reported here.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn fsync(&self, datasync: bool) -> Result<()> {
        sim::syscall();
        self.vfs.check_mounted()?;
        let _span = FSYNC_RANGE.enter([self.inode.ino.0, datasync as u64]);
        let start = clock::now();
        let r = self.fsync_range(datasync);
        self.vfs.bdi.stats.fsync.record(clock::now().since(start).0);
        r
    }

    fn fsync_range(&self, datasync: bool) -> Result<()> {
        let wrote = self.vfs.write_and_wait(&self.inode, datasync);
        self.inode.mapping.check_error(&self.errseq_seen)?;
        wrote?;
        self.vfs.fs.fsync(&self.inode, datasync)
    }
}

impl Vfs {
    /// Writes an inode's pages for fsync or fdatasync and waits for them.
    fn write_and_wait(&self, inode: &Arc<Inode>, datasync: bool) -> Result<()> {
        self.write_pages(inode, Some(datasync))
    }

    /// Writes the pages of an inode and waits for them, also for pages that other threads have taken for
    /// writing. Pages that these threads give back unwritten are written once more.
    pub(crate) fn write_pages(&self, inode: &Arc<Inode>, fsync: Option<bool>) -> Result<()> {
        let _span = WRITE_AND_WAIT.enter([]);
        for _ in 0..WRITE_TRIES {
            let before = inode.mapping.redirtied();
            let mut wbc = WritebackControl { fsync, ..WritebackControl::sync() };
            let r = if inode.mapping.nr_dirty() > 0 { self.fs.writepages(inode, &mut wbc) } else { Ok(()) };
            inode.mapping.wait_writeback(0, u64::MAX);
            if r.is_err() || inode.mapping.redirtied() == before {
                return r;
            }
        }
        Err(ErrorKind::NoSpace.into())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.flags.contains(OpenFlags::WRITE) && !self.vfs.is_unmounted() {
            self.vfs.fs.closed(&self.inode);
        }
        if self.inode.close() && !self.vfs.is_unmounted() {
            self.vfs.evict_if_unused(&self.inode);
        }
    }
}

impl Vfs {
    /// Notes an access, by the rules of relatime: the access time is updated when it is older than a change, or older
    /// than a day. Returns whether it was updated.
    ///
    /// # Errors
    /// Those of storing the inode.
    pub fn touch_atime(&self, inode: &Arc<Inode>) -> Result<bool> {
        if self.options.noatime || self.fs.read_only().is_some() || inode.is_freed() {
            return Ok(false);
        }
        let now = self.now();
        let is_fresh = {
            let a = inode.attr();
            let is_newer = a.atime > a.mtime && a.atime > a.ctime;
            is_newer && now.secs - a.atime.secs < RELATIME_SECS || a.atime == now
        };
        // As long as it is open it is not freed: another inode may soon have the place of one that is.
        if is_fresh || !inode.open() {
            return Ok(false);
        }
        inode.attr().atime = now;
        let stored = self.fs.update_times(inode);
        if inode.close() {
            self.evict_if_unused(inode);
        }
        stored?;
        self.balance();
        Ok(true)
    }
}
