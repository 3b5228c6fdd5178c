//! Sets an inode's fields as they were at the fsync.
//!
//! The map stays, as ranges have tags of their own. A directory's size and tree stay, too, as they follow
//! from its names here. Symbolic links in the inode, and device numbers, lie in the place of a map.

use super::changes::Changes;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::inode::{Ext4Inode, ei, own};
use crate::map::EMPTY_ROOT;
use std::mem::offset_of;
use std::sync::Arc;
use tidegate_jbd2::format::fc::FcInode;
use tidegate_vfs::{Attr, FileType, Inode, Result};

/// Bytes of the map.
const MAP: std::ops::Range<usize> =
    offset_of!(RawInode, i_block)..offset_of!(RawInode, i_block) + I_BLOCK_SIZE;

/// Fields that keep the volume's value, as byte ranges.
const KEPT: [std::ops::Range<usize>; 5] = [
    // The list of orphans uses this field.
    offset_of!(RawInode, i_dtime)..offset_of!(RawInode, i_dtime) + 4,
    offset_of!(RawInode, i_blocks_lo)..offset_of!(RawInode, i_blocks_lo) + 4,
    offset_of!(RawInode, i_blocks_high)..offset_of!(RawInode, i_blocks_high) + 2,
    offset_of!(RawInode, i_file_acl_lo)..offset_of!(RawInode, i_file_acl_lo) + 4,
    offset_of!(RawInode, i_file_acl_high)..offset_of!(RawInode, i_file_acl_high) + 2,
];

impl Changes<'_> {
    pub(super) fn put_inode(&mut self, ino: FcInode, raw: &[u8]) -> Result<()> {
        let n = self.number(ino)?;
        self.put_fields(n, raw).map_err(|e| e.in_inode(n))
    }

    fn put_fields(&mut self, n: u32, raw: &[u8]) -> Result<()> {
        let size = self.fs.sb.inode_size as usize;
        rule(raw.len() <= size, format_args!("{} bytes for an inode of {size}", raw.len()))?;
        let mode = u32::from(le16(raw, offset_of!(RawInode, i_mode)));
        let file_type = FileType::from_mode(mode);
        rule(file_type.is_some(), format_args!("its mode {mode:o} is no file's"))?;
        let file_type = file_type.unwrap_or(FileType::Regular);
        let flags = InodeFlags::from_bits_retain(le32(raw, offset_of!(RawInode, i_flags)));
        let odd = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::EA_INODE | InodeFlags::CASEFOLD;
        rule(!flags.intersects(odd), format_args!("flags {:#x}", flags.bits()))?;
        let before = self.before(n, raw, file_type)?;
        let (addr, at) = self.fs.inode_address(n)?;
        let now = before.as_ref().map(|b| (ei(b), b.attr().clone()));
        let mut bytes = match &now {
            Some(_) => self.fs.blocks.read(addr)?[at..at + size].to_vec(),
            None => vec![0; size],
        };
        let old = bytes.clone();
        bytes[..raw.len()].copy_from_slice(raw);
        KEPT.into_iter().for_each(|r| bytes[r.clone()].copy_from_slice(&old[r]));
        let acl = |b: &[u8]| {
            (le32(b, offset_of!(RawInode, i_file_acl_lo)), le16(b, offset_of!(RawInode, i_file_acl_high)))
        };
        rule(acl(raw) == acl(&old), "its block of attributes is another")?;
        put_map(&mut bytes, raw, &old, file_type, flags, now.is_some())?;
        // The count of blocks that is kept has its own unit.
        keep_flags(&mut bytes, &old, InodeFlags::HUGE_FILE);
        if file_type == FileType::Directory {
            keep_directory(&mut bytes, &old);
        }
        self.fs.seal_inode(n, &mut bytes);
        self.handle.write(addr, |block| block[at..at + size].copy_from_slice(&bytes))?;
        self.inodes.remove(&n);
        let inode = self.load(n)?;
        if file_type == FileType::Directory {
            self.recount.insert(n);
        }
        self.fs.store_inode(&mut self.handle, &inode)
    }

    /// The inode that the fields belong to, if it exists; another inode that had the number before is freed.
    fn before(&mut self, n: u32, raw: &[u8], file_type: FileType) -> Result<Option<Arc<Inode>>> {
        let is_dir = file_type == FileType::Directory;
        let used = self.fs.is_inode_used(n)?;
        if used {
            let inode = self.inode(FcInode(n))?;
            let same = inode.attr().generation == le32(raw, offset_of!(RawInode, i_generation))
                && inode.file_type == file_type;
            if same {
                return Ok(Some(inode));
            }
            self.free(&inode)?;
        }
        self.fs.claim_inode(&mut self.handle, n, is_dir)?;
        Ok(None)
    }

    /// Frees an inode with everything it has.
    pub(super) fn free(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let (mut now, mut attr): (Ext4Inode, Attr) = (Arc::unwrap_or_clone(ei(inode)), inode.attr().clone());
        let n = now.ino;
        if crate::dir::names::has_map(&now, &attr) {
            let gone = self.fs.remap(&mut self.handle, &mut now, &mut attr, 0..u64::MAX, None)?;
            self.lose(n, &gone);
        }
        attr.size = 0;
        self.fs.free_xattr_block(&mut self.handle, &mut now, &mut attr)?;
        (now.disk_size, attr.nlink) = (0, 0);
        self.fs.store_as(&mut self.handle, &now, &attr)?;
        self.fs.delete_inode(&mut self.handle, &now, attr.file_type, attr.ctime)?;
        *own(inode).write() = Arc::new(now);
        self.recount.remove(&n);
        self.inodes.remove(&n);
        Ok(())
    }
}

/// Sets the content in the place of the map.
fn put_map(
    bytes: &mut [u8],
    raw: &[u8],
    old: &[u8],
    file_type: FileType,
    flags: InodeFlags,
    known: bool,
) -> Result<()> {
    let has_extents = flags.contains(InodeFlags::EXTENTS);
    let short_link = file_type == FileType::Symlink
        && !has_extents
        && le32(raw, offset_of!(RawInode, i_size_lo)) < I_BLOCK_SIZE as u32;
    let mapped =
        matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink) && !short_link;
    if !mapped {
        return Ok(());
    }
    if known {
        let had = InodeFlags::from_bits_retain(le32(old, offset_of!(RawInode, i_flags)));
        rule(had.contains(InodeFlags::EXTENTS) == has_extents, "its map is of another kind")?;
        bytes[MAP].copy_from_slice(&old[MAP]);
        return Ok(());
    }
    bytes[MAP].fill(0);
    if has_extents {
        bytes[MAP][..EMPTY_ROOT.len()].copy_from_slice(&EMPTY_ROOT);
    }
    Ok(())
}

/// Keeps a directory's number of blocks and its tree.
fn keep_directory(bytes: &mut [u8], old: &[u8]) {
    for at in [offset_of!(RawInode, i_size_lo), offset_of!(RawInode, i_size_high)] {
        bytes[at..at + 4].copy_from_slice(&old[at..at + 4]);
    }
    keep_flags(bytes, old, InodeFlags::INDEX);
}

fn keep_flags(bytes: &mut [u8], old: &[u8], kept: InodeFlags) {
    let (at, kept) = (offset_of!(RawInode, i_flags), kept.bits());
    let flags = le32(bytes, at) & !kept | le32(old, at) & kept;
    bytes[at..at + 4].copy_from_slice(&flags.to_le_bytes());
}
