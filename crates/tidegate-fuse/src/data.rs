//! Open files: reading, writing, durability, ranges.

use crate::errno::{Result, ToErrno};
use crate::privileges::Kill;
use crate::server::{ROOT, Server};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate::vfs::{APPEND_ONLY, IMMUTABLE};
use tidegate::vfs::{FallocateFlags, FileType, Inode, OpenFlags, SeekTarget};
use tidegate_block::PAGE_SIZE;

/// The most bytes that one copy request moves. The caller asks again for the rest.
const COPY_MAX: u64 = 64 << 20;
const COPY_STEP: usize = 1 << 20;

/// A write of at least so many bytes counts as part of a stream. The kernel caches such pages. Keeping them here, too,
/// costs more than copying them: memory that was not used before is slow to get.
const STREAM: usize = 256 << 10;
/// How far behind a stream of writes pages may have been written and can be dropped, in bytes.
const BEHIND: u64 = 64 << 20;

/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Server {
    /// Opens a regular file. Returns the file handle. A truncation removes set-id bits as `kill` says.
    ///
    /// # Errors
    /// `EROFS`, `EPERM` for access that the inode's flags forbid, `ESTALE`.
    pub fn open(&self, node: u64, flags: u32, kill: Kill<'_>) -> Result<u64> {
        let inode = self.inode(node)?;
        self.open_inode(&inode, flags, kill)
    }

    /// The engine's flags for a file that the kernel opens with `flags`, and whether it is opened for
    /// writing.
    pub(crate) fn open_flags(flags: u32) -> (OpenFlags, bool) {
        let flags = OFlags::from_bits_retain(flags);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        // Around a partial write, the kernel reads pages even through a file that is open only for writing.
        let mut how = OpenFlags::READ | OpenFlags::NOCMTIME;
        how.set(OpenFlags::WRITE, writes);
        how.set(OpenFlags::NOATIME, flags.contains(OFlags::NOATIME));
        how.set(OpenFlags::EXCL, flags.contains(OFlags::EXCL));
        (how, writes)
    }

    pub(crate) fn open_inode(&self, inode: &Arc<Inode>, flags: u32, kill: Kill<'_>) -> Result<u64> {
        let (mut how, writes) = Self::open_flags(flags);
        let flags = OFlags::from_bits_retain(flags);
        if writes {
            self.check_flags(inode, IMMUTABLE)?;
            if !flags.contains(OFlags::APPEND) {
                self.check_flags(inode, APPEND_ONLY)?;
            }
        }
        if flags.contains(OFlags::TRUNC) && writes && inode.file_type == FileType::Regular {
            how |= OpenFlags::TRUNC;
            self.kill_set_id(inode, kill)?;
        }
        let file = self.vfs().open(ROOT, inode, how).map_errno()?;
        Ok(self.handles.add(self.node(inode), file, writes))
    }

    /// Notes that a directory or a link is read. By the rules of relatime this changes the access time once a
    /// day, or once after a change. Then the kernel is told to ask for it.
    pub(crate) fn accessed(&self, inode: &Arc<Inode>) {
        // An access time that cannot be stored is no reason to refuse the access.
        if self.vfs().touch_atime(inode).is_ok_and(|changed| changed)
            && let Some(kernel) = self.kernel()
        {
            kernel.forget_attributes(self.node(inode));
        }
    }

    /// Closes an open file.
    pub fn release(self: &Arc<Self>, fh: u64) {
        if let Some(node) = self.handles.remove(fh) {
            self.forget_refused(node);
        }
    }

    /// Reads through a file that is open with `flags`. Fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub fn read(&self, fh: u64, pos: u64, to: &mut [u8], flags: u32) -> Result<usize> {
        let h = self.handles.get(fh)?;
        let n = h.file.read_at(pos, to).map_errno()?;
        if !OFlags::from_bits_retain(flags).contains(OFlags::DIRECT) {
            // The kernel caches whole pages, up to the end of the file, so they need not be kept here.
            h.file.forget_pages(pos, (pos + n as u64).next_multiple_of(PAGE_SIZE as u64));
        }
        Ok(n)
    }

    /// Writes all of `data`. `cached` says whether the kernel cached it before. The kernel sets the file's
    /// times. Set-id bits are removed as `kill` says.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EROFS`; `EPERM` for an immutable file, except for data that was written before it
    /// became immutable.
    pub fn write(&self, fh: u64, pos: u64, data: &[u8], cached: bool, kill: Kill<'_>) -> Result<()> {
        self.space.check_data(self, data.len() as u64)?;
        let h = self.handles.get(fh)?;
        self.dirty_bound.wrote(self, data.len() as u64);
        let _underway = match cached {
            true => self.take_cached(h.file.inode(), pos)?,
            false => {
                self.check_flags(h.file.inode(), IMMUTABLE)?;
                h.check_append(pos)?;
                None
            }
        };
        self.kill_set_id(h.file.inode(), kill)?;
        h.file.write_at(pos, data).map_errno()?;
        h.written.store(true, Relaxed);
        if data.len() >= STREAM {
            h.file.forget_pages(pos.saturating_sub(BEHIND), pos);
        }
        Ok(())
    }

    /// Makes a file durable. A failed write is reported once to each open file.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn fsync(&self, fh: u64, datasync: bool) -> Result<()> {
        let h = self.handles.get(fh)?;
        h.file.fsync(datasync).map_errno()?;
        if h.written.swap(false, Relaxed) {
            // With a write-back cache the kernel keeps the number of blocks until the file is closed.
            self.have_asked(self.node(h.file.inode()));
        }
        Ok(())
    }

    /// Allocates, frees or zeroes a range. Set-id bits are removed as `kill` says.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a mode that the format does not have, `ENOSPC`, `EFBIG`.
    pub fn fallocate(&self, fh: u64, mode: u32, offset: u64, len: u64, kill: Kill<'_>) -> Result<()> {
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        let h = self.handles.get(fh)?;
        if !flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE) {
            self.space.check_data(self, len)?;
        }
        if !(flags - FallocateFlags::KEEP_SIZE).is_empty() {
            self.check_flags(h.file.inode(), APPEND_ONLY)?;
        }
        self.check_flags(h.file.inode(), IMMUTABLE)?;
        self.kill_set_id(h.file.inode(), kill)?;
        h.file.fallocate(flags, offset, len).map_errno()
    }

    /// Whether the kernel may hold dirty pages of `node`. Then [`Server::lseek`] makes it write them, and
    /// other threads must be free to serve these writes.
    pub fn lseek_waits(&self, node: u64) -> bool {
        self.handles.is_written(node)
    }

    /// Finds data or a hole.
    ///
    /// # Errors
    /// `ENXIO` past the end, `EINVAL` for another `whence`.
    pub fn lseek(&self, node: u64, fh: u64, pos: u64, whence: u32) -> Result<u64> {
        let target = match whence {
            SEEK_DATA => SeekTarget::Data,
            SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Errno::INVAL),
        };
        let h = self.handles.get(fh)?;
        if self.lseek_waits(node)
            && let Some(kernel) = self.kernel()
        {
            kernel.write_back(node, pos);
        }
        h.file.seek(pos, target).map_errno()
    }

    /// Copies between two files, or within one. Returns the number of bytes, which is smaller at the end of
    /// the source. Set-id bits are removed as `kill` says.
    ///
    /// # Errors
    /// As reading and writing.
    pub fn copy_file_range(&self, from: (u64, u64), to: (u64, u64), len: u64, kill: Kill<'_>) -> Result<u64> {
        let (src, dst) = (self.handles.get(from.0)?, self.handles.get(to.0)?);
        let len = len.min(COPY_MAX);
        self.space.check_data(self, len.min(src.file.size()))?;
        self.check_flags(dst.file.inode(), IMMUTABLE)?;
        dst.check_append(to.1)?;
        self.kill_set_id(dst.file.inode(), kill)?;
        let mut buf = vec![0; COPY_STEP.min(len as usize)];
        let mut done = 0;
        while done < len {
            let want = buf.len().min((len - done) as usize);
            let part = src.file.read_at(from.1 + done, &mut buf[..want]).map_errno();
            let n = match part {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            };
            match dst.file.write_at(to.1 + done, &buf[..n]) {
                Ok(_) => done += n as u64,
                Err(e) if done == 0 => return Err(crate::errno::errno(&e)),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
