//! Stores inodes from memory in the inode table: the fields that Tidegate knows are set, other fields stay as
//! they are.

use super::{Ext4Inode, ei, time};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::mem::offset_of;
use tidegate_rt::Timespec;
use tidegate_vfs::{Attr, FileType, Inode, Result};

/// Writes numbers into an inode's bytes.
struct Put<'a> {
    bytes: &'a mut [u8],
    /// End of the fields, in bytes.
    end: usize,
}

impl Put<'_> {
    fn u16(&mut self, at: usize, v: u32) {
        if at + 2 <= self.end {
            self.bytes[at..at + 2].copy_from_slice(&(v as u16).to_le_bytes());
        }
    }

    fn u32(&mut self, at: usize, v: u32) {
        if at + 4 <= self.end {
            self.bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
        }
    }

    fn time(&mut self, at: usize, extra: usize, t: Timespec) {
        let (seconds, more) = time::encode(t, self.end >= extra + 4);
        self.u32(at, seconds);
        self.u32(extra, more);
    }
}

impl Ext4 {
    /// Stores an inode and its attributes in the inode table.
    ///
    /// # Errors
    /// Those of reading the table; `FileTooBig` when the inode takes more blocks than can be counted.
    pub(crate) fn store_inode(&self, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        super::own(inode).note_needed(handle.tid());
        self.store_attr(handle, inode)
    }

    /// Stores an inode where no field has changed that a read of the file's data needs, as in a write to
    /// existing blocks: an fdatasync does not wait for it.
    ///
    /// # Errors
    /// As [`Ext4::store_inode`].
    pub(crate) fn store_attr(&self, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        // The lock is held from here until the table has the state: an older state must not get there after a
        // newer one.
        let _raw = super::own(inode).storing();
        let own = ei(inode);
        let attr = {
            let mut a = inode.attr();
            keep_what_fits(&mut a, own.extra);
            a.clone()
        };
        super::own(inode).note(handle.tid());
        self.store_as(handle, &own, &attr)
    }

    /// Takes an inode's block of the table into a transaction before anything is changed, so that storing the
    /// inode cannot fail for want of the block.
    ///
    /// # Errors
    /// Those of reading the table.
    pub(crate) fn hold_inode(&self, handle: &mut Handle<'_>, ino: u32) -> Result<()> {
        match handle.place_of(ino) {
            Some(_) => Ok(()),
            None => handle.hold_inode_at(ino, self.inode_address(ino)?),
        }
    }

    /// The block of the table that an inode in use is stored in, and the offset in it.
    pub(super) fn stored_at(&self, handle: &Handle<'_>, ino: u32) -> Result<(BlockAddr, usize)> {
        handle.place_of(ino).map_or_else(|| self.inode_address(ino), Ok)
    }

    /// Sets the checksum of the bytes of inode `ino`, whose fields are final.
    pub(crate) fn seal_inode(&self, ino: u32, bytes: &mut [u8]) {
        if !self.sb.has_csum() {
            return;
        }
        let generation = le32(bytes, offset_of!(RawInode, i_generation));
        let seed = crc32c(crc32c(self.sb.csum_seed, &ino.to_le_bytes()), &generation.to_le_bytes());
        let long = self.sb.inode_size > INODE_BASE as u32;
        let extra = if long { le16(bytes, INODE_BASE).into() } else { 0 };
        put_csum(bytes, seed, extra);
    }

    /// Stores an inode that is not in memory, or is being changed.
    pub(crate) fn store_as(&self, handle: &mut Handle<'_>, own: &Ext4Inode, attr: &Attr) -> Result<()> {
        if own.disk_size > i32::MAX as u64 && attr.file_type == FileType::Regular {
            self.announce_large_file(handle)?;
        }
        let (addr, at) = self.stored_at(handle, own.ino)?;
        let len = self.sb.inode_size as usize;
        handle.write(addr, |block| self.put_inode(&mut block[at..at + len], own, attr, false))
    }

    /// Writes a new inode: nothing of the old content of its place stays.
    pub(super) fn store_new(&self, handle: &mut Handle<'_>, own: &Ext4Inode, attr: &Attr) -> Result<()> {
        let (addr, at) = self.stored_at(handle, own.ino)?;
        let len = self.sb.inode_size as usize;
        handle.write(addr, |block| self.put_inode(&mut block[at..at + len], own, attr, true))
    }

    fn put_inode(&self, bytes: &mut [u8], own: &Ext4Inode, attr: &Attr, new: bool) {
        if new {
            bytes.fill(0);
        }
        let end = INODE_BASE + own.extra;
        let mut put = Put { bytes, end };
        put.u16(0, attr.file_type.mode_bits() | attr.mode & 0o7777);
        put.u16(offset_of!(RawInode, i_uid), attr.uid);
        put.u16(offset_of!(RawInode, i_uid_high), attr.uid >> 16);
        put.u16(offset_of!(RawInode, i_gid), attr.gid);
        put.u16(offset_of!(RawInode, i_gid_high), attr.gid >> 16);
        let size = if attr.file_type == FileType::Regular { own.disk_size } else { attr.size };
        put.u32(offset_of!(RawInode, i_size_lo), size as u32);
        let large = attr.file_type == FileType::Regular
            || attr.file_type == FileType::Directory && self.sb.incompat.contains(Incompat::LARGEDIR);
        if large {
            put.u32(offset_of!(RawInode, i_size_high), (size >> 32) as u32);
        }
        put.u16(offset_of!(RawInode, i_links_count), self.links_on_disk(attr));
        put.u32(offset_of!(RawInode, i_generation), attr.generation);
        put.time(offset_of!(RawInode, i_atime), offset_of!(RawInode, i_atime_extra), attr.atime);
        put.time(offset_of!(RawInode, i_mtime), offset_of!(RawInode, i_mtime_extra), attr.mtime);
        put.time(offset_of!(RawInode, i_ctime), offset_of!(RawInode, i_ctime_extra), attr.ctime);
        if let Some(t) = attr.crtime {
            put.time(offset_of!(RawInode, i_crtime), offset_of!(RawInode, i_crtime_extra), t);
        }
        if end > INODE_BASE {
            put.u16(offset_of!(RawInode, i_extra_isize), own.extra as u32);
        }
        let acl = own.file_acl.map_or(0, |b| b.0);
        put.u32(offset_of!(RawInode, i_file_acl_lo), acl as u32);
        if self.sb.incompat.contains(Incompat::BIT64) {
            put.u16(offset_of!(RawInode, i_file_acl_high), (acl >> 32) as u32);
        }
        let by_users = InodeFlags::from_bits_retain(FLAGS_USER_MODIFIABLE);
        let mut flags = (own.flags - by_users) | (InodeFlags::from_bits_retain(attr.flags) & by_users);
        let (blocks, in_blocks) = self.blocks_on_disk(attr.blocks);
        flags.set(InodeFlags::HUGE_FILE, in_blocks);
        put.u32(offset_of!(RawInode, i_blocks_lo), blocks as u32);
        if self.sb.ro_compat.contains(RoCompat::HUGE_FILE) {
            put.u16(offset_of!(RawInode, i_blocks_high), (blocks >> 32) as u32);
        }
        put.u32(offset_of!(RawInode, i_flags), flags.bits());
        let block = offset_of!(RawInode, i_block);
        put.bytes[block..block + I_BLOCK_SIZE].copy_from_slice(&own.block);
        let behind = &mut put.bytes[end..];
        let n = own.behind.len().min(behind.len());
        behind[..n].copy_from_slice(&own.behind[..n]);
        if self.sb.has_csum() {
            put_csum(put.bytes, own.csum_seed, own.extra);
        }
    }

    /// The link count on the volume. A directory with more subdirectories than can be counted has a link
    /// count of 1.
    fn links_on_disk(&self, attr: &Attr) -> u32 {
        if attr.file_type == FileType::Directory && attr.nlink > LINK_MAX { 1 } else { attr.nlink }
    }

    /// The value of `i_blocks`, and whether it counts blocks.
    fn blocks_on_disk(&self, sectors: u64) -> (u64, bool) {
        if !self.sb.ro_compat.contains(RoCompat::HUGE_FILE) {
            return (sectors.min(u32::MAX.into()), false); // no file gets larger
        }
        if sectors < 1 << 48 {
            (sectors, false)
        } else {
            (sectors / super::sectors(self.sb.block_size), true)
        }
    }
}

/// Cuts times to the form that inodes keep: short inodes have whole seconds, and all have a range.
pub(crate) fn keep_what_fits(attr: &mut Attr, extra: usize) {
    let fits = |end: usize| INODE_BASE + extra >= end;
    let fields = [
        (&mut attr.ctime, offset_of!(RawInode, i_mtime_extra)),
        (&mut attr.mtime, offset_of!(RawInode, i_atime_extra)),
        (&mut attr.atime, offset_of!(RawInode, i_crtime)),
    ];
    for (t, end) in fields {
        *t = time::kept(*t, fits(end));
    }
}

/// Most names of an inode.
pub(crate) const LINK_MAX: u32 = 65_000;

/// Sets the checksum of an inode's bytes.
pub(super) fn put_csum(bytes: &mut [u8], seed: u32, extra: usize) {
    let has_high = extra + INODE_BASE >= CSUM_HI_OFFSET + 2;
    bytes[CSUM_LO_OFFSET..CSUM_LO_OFFSET + 2].fill(0);
    if has_high {
        bytes[CSUM_HI_OFFSET..CSUM_HI_OFFSET + 2].fill(0);
    }
    let crc = crc32c(seed, bytes);
    bytes[CSUM_LO_OFFSET..CSUM_LO_OFFSET + 2].copy_from_slice(&(crc as u16).to_le_bytes());
    if has_high {
        bytes[CSUM_HI_OFFSET..CSUM_HI_OFFSET + 2].copy_from_slice(&((crc >> 16) as u16).to_le_bytes());
    }
}
