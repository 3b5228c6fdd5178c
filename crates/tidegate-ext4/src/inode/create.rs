//! New inodes, and the deletion of inodes that are not used any more.

use super::store::LINK_MAX;
use super::{Ext4Inode, Own, ei};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::Timespec;
use tidegate_vfs::{Attr, DeviceNumber, ErrorKind, FileType, Ino, Inode, InodeParts, NewInode, Result};

/// Flags that a file inherits from its directory: those of chattr(1), without the flags about the directory
/// itself.
const INHERITED: u32 = 0x0000_C4CF;
/// The flags among them that any kind of file can have: `FS_NODUMP_FL` and `FS_NOATIME_FL`.
const FOR_OTHERS: u32 = 0x0000_00C0;
/// `FS_DIRSYNC_FL`, only for directories.
const FOR_DIRECTORIES: u32 = 0x0001_0000;

impl Ext4 {
    /// A new inode for a file in `dir`, allocated but not stored yet.
    pub(crate) fn new_inode(
        &self,
        handle: &mut Handle<'_>,
        dir: &Inode,
        new: &NewInode<'_>,
    ) -> Result<(Attr, Ext4Inode)> {
        let is_dir = new.file_type == FileType::Directory;
        let ino = self.take_inode(handle, dir, is_dir)?;
        let generation = self.next_generation.fetch_add(1, Relaxed);
        let seed = crc32c(crc32c(self.sb.csum_seed, &ino.to_le_bytes()), &generation.to_le_bytes());
        let flags = self.new_flags(flags_of(dir), new.file_type);
        let extra = self.new_extra_isize();
        let mut own = Ext4Inode {
            ino,
            flags,
            block: [0; I_BLOCK_SIZE],
            file_acl: None,
            behind: vec![0; (self.sb.inode_size as usize) - INODE_BASE - extra].into(),
            csum_seed: seed,
            extra,
            disk_size: 0,
            raw_atime: 0,
        };
        if own.is(InodeFlags::EXTENTS) {
            own.block[..12].copy_from_slice(&crate::map::EMPTY_ROOT);
        }
        put_device(&mut own.block, new.file_type, new.rdev);
        let crtime = extra >= offset_of!(RawInode, i_crtime) + 4 - INODE_BASE;
        let mut attr = Attr {
            file_type: new.file_type,
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink: 1 + u32::from(is_dir),
            size: 0,
            blocks: 0,
            atime: new.time,
            mtime: new.time,
            ctime: new.time,
            crtime: crtime.then_some(new.time),
            rdev: new.rdev,
            generation,
            flags: flags.bits() & FLAGS_USER_VISIBLE,
        };
        super::store::keep_what_fits(&mut attr, extra);
        Ok((attr, own))
    }

    fn new_flags(&self, parent: u32, file_type: FileType) -> InodeFlags {
        let mut bits = parent & INHERITED;
        if file_type == FileType::Directory {
            bits |= parent & FOR_DIRECTORIES;
        } else if file_type != FileType::Regular {
            bits &= FOR_OTHERS;
        }
        let mapped = matches!(file_type, FileType::Directory | FileType::Regular);
        let mut flags = InodeFlags::from_bits_retain(bits) - InodeFlags::EXTENTS;
        flags.set(InodeFlags::EXTENTS, mapped && self.sb.incompat.contains(Incompat::EXTENTS));
        flags
    }

    fn new_extra_isize(&self) -> usize {
        let room = self.sb.inode_size as usize - INODE_BASE;
        if room == 0 {
            return 0;
        }
        let own = size_of::<RawInode>() - INODE_BASE;
        let wanted = usize::from(self.sb.raw.s_want_extra_isize.get());
        let least = usize::from(self.sb.raw.s_min_extra_isize.get());
        // A wish for more than there is room for is damage.
        let asked = Some(wanted.max(least)).filter(|n| *n <= room).unwrap_or(own);
        asked.max(own).next_multiple_of(4).min(room)
    }

    /// The parts of a new inode for the VFS, once it is stored.
    pub(crate) fn finish_new(
        &self,
        handle: &mut Handle<'_>,
        attr: Attr,
        own: Ext4Inode,
    ) -> Result<InodeParts> {
        self.store_new(handle, &own, &attr)?;
        Ok(InodeParts { ino: Ino(own.ino.into()), attr, private: Own::new(&self.sb, own, handle.tid()) })
    }

    /// Marks an inode's place in the table as deleted, and frees it.
    pub(crate) fn delete_inode(
        &self,
        handle: &mut Handle<'_>,
        own: &Ext4Inode,
        file_type: FileType,
        now: Timespec,
    ) -> Result<()> {
        let (addr, at) = self.stored_at(handle, own.ino)?;
        let (dtime, links) = (offset_of!(RawInode, i_dtime), offset_of!(RawInode, i_links_count));
        let len = self.sb.inode_size as usize;
        // A lower time would be taken for an inode number, as in the list of orphans.
        let time = (now.secs as u32).max(self.sb.raw.s_inodes_count.get());
        handle.write(addr, |block| {
            let bytes = &mut block[at..at + len];
            bytes[dtime..dtime + 4].copy_from_slice(&time.to_le_bytes());
            bytes[links..links + 2].fill(0);
            if self.sb.has_csum() {
                super::store::put_csum(bytes, own.csum_seed, own.extra);
            }
        })?;
        self.free_inode(handle, own.ino, file_type == FileType::Directory)
    }

    /// Checks that one more name, or one more subdirectory, can be counted.
    pub(crate) fn check_links(&self, attr: &Attr) -> Result<()> {
        let uncounted =
            attr.file_type == FileType::Directory && self.sb.ro_compat.contains(RoCompat::DIR_NLINK);
        if attr.nlink >= LINK_MAX && !uncounted {
            return Err(ErrorKind::TooManyLinks.into());
        }
        Ok(())
    }
}

/// The flags of a directory: the newest chattr(1) flags are among its attributes.
fn flags_of(dir: &Inode) -> u32 {
    let own = ei(dir).flags.bits();
    own & !FLAGS_USER_MODIFIABLE | dir.attr().flags & FLAGS_USER_MODIFIABLE
}

/// Puts the number of a device file as Linux does: 16 bits if it fits, otherwise 32 bits in the second word.
fn put_device(block: &mut [u8], file_type: FileType, rdev: DeviceNumber) {
    if !matches!(file_type, FileType::CharDevice | FileType::BlockDevice) {
        return;
    }
    let DeviceNumber { major, minor } = rdev;
    if major < 256 && minor < 256 {
        block[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
    } else {
        let wide = minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12;
        block[4..8].copy_from_slice(&wide.to_le_bytes());
    }
}
