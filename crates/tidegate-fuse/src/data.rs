//! Open files: reading, writing, durability, ranges.

use crate::errno::{Result, ToErrno};
use crate::privileges::Kill;
use crate::server::{ROOT, Server};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;
use tidegate::vfs::{APPEND_ONLY, IMMUTABLE};
use tidegate::vfs::{FallocateFlags, FileType, Inode, OpenFlags, SeekTarget};
use tidegate_block::PAGE_SIZE;

/// Bytes that one copy request moves at most: the caller asks again for the rest.
const COPY_MAX: u64 = 64 << 20;
const COPY_STEP: usize = 1 << 20;

/// From how many bytes on a write is part of a stream. The kernel keeps such pages, and keeping them here, too,
/// costs more than copying them: memory that was not used before comes slowly.
const STREAM: usize = 256 << 10;
/// How far behind a stream of writes pages are looked at that may have been written, in bytes.
const BEHIND: u64 = 64 << 20;

/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Server {
    /// Opens a regular file; the number to use for it. With `kill` a truncation takes set-id bits off.
    ///
    /// # Errors
    /// `EROFS`, `EPERM` for what its flags forbid, `ESTALE`.
    pub fn open(&self, node: u64, flags: u32, kill: Kill<'_>) -> Result<u64> {
        let inode = self.inode(node)?;
        self.open_inode(&inode, flags, kill)
    }

    /// How the engine opens a file that the kernel opens with `flags`; whether for writing.
    pub(crate) fn open_flags(flags: u32) -> (OpenFlags, bool) {
        let flags = OFlags::from_bits_retain(flags);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        // The kernel fills pages around a partial write through a file that is open for writing only.
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

    /// Notes that a directory or a link is read. By relatime's rules this changes the time once a day, or
    /// once after a change; then the kernel is told to ask for it.
    pub(crate) fn accessed(&self, inode: &Arc<Inode>) {
        // A time of access that cannot be written is no reason to refuse the access.
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

    /// Reads through a file open with `flags`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EIO`, `EUCLEAN`.
    pub fn read(&self, fh: u64, pos: u64, to: &mut [u8], flags: u32) -> Result<usize> {
        let h = self.handles.get(fh)?;
        let n = h.file.read_at(pos, to).map_errno()?;
        if !OFlags::from_bits_retain(flags).contains(OFlags::DIRECT) {
            // The kernel has whole pages from here on, up to the end of the file.
            h.file.forget_pages(pos, (pos + n as u64).next_multiple_of(PAGE_SIZE as u64));
        }
        Ok(n)
    }

    /// Writes all of `data`, which the kernel `cached` before. The file's times are the kernel's to set;
    /// set-id bits go with `kill`.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EROFS`; `EPERM` for an immutable file, but for what was written before it was one.
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
        if data.len() >= STREAM {
            h.file.forget_pages(pos.saturating_sub(BEHIND), pos);
        }
        Ok(())
    }

    /// Makes a file durable. A write that failed is told once to each open file.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn fsync(&self, fh: u64, datasync: bool) -> Result<()> {
        self.handles.get(fh)?.file.fsync(datasync).map_errno()
    }

    /// Allocates, frees or zeroes a range. Set-id bits go with `kill`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a mode the format does not have, `ENOSPC`, `EFBIG`.
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

    /// Whether the kernel may hold pages of `node` that we have not seen. Then [`Server::lseek`] makes it
    /// write them, which other threads must be free to serve.
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

    /// Copies between two files, or within one; how many bytes, fewer at the end of the source.
    /// Set-id bits go with `kill`.
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
