//! Changes of a directory: entries are added, removed, and pointed to other inodes. The caller holds the
//! directory's `i_rwsem` exclusive.
//!
//! Without a hash tree a new entry goes into the first block with room, else into a new one. A directory that
//! outgrows its first block gets a hash tree if the volume has the feature.

use super::block::{put_dx_csum, root_entries};
use super::entry::{Spot, type_number};
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{Ext4Inode, ei};
use crate::map::Place;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use tidegate_jbd2::Verified;
use tidegate_vfs::{Error, FileType, Inode, Result};
use zerocopy::IntoBytes;

/// An entry to be made.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub name: &'a [u8],
    pub ino: u32,
    pub file_type: FileType,
}

/// Bytes of an entry with a name of `len` bytes.
pub(super) fn entry_len(len: usize) -> usize {
    (DIRENT_HEAD + len).next_multiple_of(4)
}

fn rec_len(block: &[u8], at: usize) -> usize {
    read_at::<RawDirEntry>(block, at).map_or(0, |e| e.rec_len.get().into())
}

pub(super) fn set_rec_len(block: &mut [u8], at: usize, len: usize) {
    if let Some(head) = at_mut::<RawDirEntry>(block, at) {
        head.rec_len = (len as u16).into();
    }
}

/// Writes an entry of `len` bytes at byte `at`, where there is room for it.
pub(super) fn put_entry(block: &mut [u8], at: usize, len: usize, e: NewEntry<'_>, filetype: bool) {
    let file_type = if filetype { type_number(e.file_type) } else { 0 };
    let head = RawDirEntry {
        inode: e.ino.into(),
        rec_len: (len as u16).into(),
        name_len: e.name.len() as u8,
        file_type,
    };
    let name = at + DIRENT_HEAD;
    block[at..name].copy_from_slice(head.as_bytes());
    block[name..name + e.name.len()].copy_from_slice(e.name);
}

/// Puts an entry into the first gap of `block[..end]`; false when there is none, or where the entries are not in order.
pub(super) fn put_in_gap(block: &mut [u8], end: usize, e: NewEntry<'_>, filetype: bool) -> bool {
    let want = entry_len(e.name.len());
    let mut at = 0;
    while at < end {
        let Some(head) = read_at::<RawDirEntry>(block, at) else { return false };
        let len = usize::from(head.rec_len.get());
        if len == 0 || len > end - at {
            return false;
        }
        let used = if head.inode.get() == 0 { 0 } else { entry_len(head.name_len.into()) };
        if len >= used + want {
            if used > 0 {
                set_rec_len(block, at, used);
            }
            put_entry(block, at + used, len - used, e, filetype);
            return true;
        }
        at += len;
    }
    false
}

impl Ext4 {
    /// The end of the entries in a block: before its checksum, if it has one.
    pub(super) fn entries_end(&self) -> usize {
        self.sb.block_size as usize - if self.sb.has_csum() { DIR_TAIL } else { 0 }
    }

    pub(super) fn filetype(&self) -> bool {
        self.sb.incompat.contains(Incompat::FILETYPE)
    }

    /// Sets the checksum of a block of entries.
    pub(super) fn seal_block(&self, dir: &Ext4Inode, block: &mut [u8]) {
        if !self.sb.has_csum() {
            return;
        }
        let end = block.len() - DIR_TAIL;
        let crc = crc32c(dir.csum_seed, &block[..end]);
        block[end..].copy_from_slice(RawDirTail::new(crc).as_bytes());
    }

    /// Sets the checksum of a block that may be the root of a hash tree.
    fn seal_any(&self, dir: &Ext4Inode, n: FileBlock, block: &mut [u8]) {
        if n.0 == 0 && self.has_tree(dir) {
            let at = root_entries(block);
            if self.sb.has_csum() {
                put_dx_csum(dir.csum_seed, block, at);
            }
        } else {
            self.seal_block(dir, block);
        }
    }

    /// A block without entries.
    pub(super) fn empty_block(&self) -> Vec<u8> {
        let mut block = vec![0; self.sb.block_size as usize];
        set_rec_len(&mut block, 0, self.entries_end());
        block
    }

    /// Fills the first block of a new directory. The caller stores the directory.
    ///
    /// # Errors
    /// `NoSpace`; those of reading bitmaps.
    pub(crate) fn make_dots(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut tidegate_vfs::Attr,
        parent: u32,
    ) -> Result<()> {
        let addr = self.add_dir_block(handle, own, attr)?;
        let mut block = self.empty_block();
        let (end, filetype) = (self.entries_end(), self.filetype());
        let dot = |name, ino| NewEntry { name, ino, file_type: FileType::Directory };
        let first = entry_len(1);
        put_entry(&mut block, 0, first, dot(b".", own.ino), filetype);
        put_entry(&mut block, first, end - first, dot(b"..", parent), filetype);
        self.seal_block(own, &mut block);
        handle.create(addr, |b| b.copy_from_slice(&block))
    }

    /// Adds an entry with a name that the directory does not have. The caller stores the directory.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; `Corrupt`; those of the device.
    pub(crate) fn add_entry(&self, handle: &mut Handle<'_>, dir: &Inode, e: NewEntry<'_>) -> Result<()> {
        let own = ei(dir);
        if self.has_tree(&own) {
            return self.add_hashed(handle, dir, e);
        }
        let blocks = self.blocks_of(dir.size());
        for n in 0..blocks {
            if let Place::Data(addr) = self.map_blocks(&own, FileBlock(n), 1)?.place
                && self.put_in_block(handle, &own, FileBlock(n), addr, e)?
            {
                return Ok(());
            }
        }
        if blocks == 1 && self.sb.compat.contains(Compat::DIR_INDEX) && self.grow_tree(handle, dir)? {
            return self.add_hashed(handle, dir, e);
        }
        let (_, addr) = self.append_dir_block(handle, dir)?;
        let mut block = self.empty_block();
        put_in_gap(&mut block, self.entries_end(), e, self.filetype());
        self.seal_block(&ei(dir), &mut block);
        handle.begin_step();
        handle.create(addr, |b| b.copy_from_slice(&block))?;
        handle.end_step();
        Ok(())
    }

    /// Puts an entry into a block of entries if it has room.
    pub(super) fn put_in_block(
        &self,
        handle: &mut Handle<'_>,
        dir: &Ext4Inode,
        n: FileBlock,
        addr: BlockAddr,
        e: NewEntry<'_>,
    ) -> Result<bool> {
        let before = self.dir_block(dir, n, addr)?;
        // The entries are checked as by a reader, once: changes keep them in order.
        if !before.is_verified(Verified::Content) {
            super::entry::entries(&before, self.dir_rules(dir), n).try_for_each(|e| e.map(drop))?;
            self.blocks.set_verified(addr, &before, Verified::Content);
        }
        let mut block = before.to_vec();
        drop(before); // the change would copy a block that a reader holds
        if !put_in_gap(&mut block, self.entries_end(), e, self.filetype()) {
            return Ok(false);
        }
        self.seal_block(dir, &mut block);
        handle.write(addr, |b| b.copy_from_slice(&block))?;
        Ok(true)
    }

    /// Removes the entry at `spot`: the entry before it in the block is lengthened over it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn remove_entry(&self, handle: &mut Handle<'_>, dir: &Inode, spot: Spot) -> Result<()> {
        let own = ei(dir);
        handle.write(spot.addr, |block| {
            let (mut at, mut before) = (0, None);
            while at < spot.offset {
                before = Some(at);
                at += rec_len(block, at).max(DIRENT_HEAD);
            }
            let len = rec_len(block, spot.offset);
            block[spot.offset..spot.offset + 4].fill(0);
            if let Some(before) = before {
                let all = rec_len(block, before) + len;
                set_rec_len(block, before, all);
            }
            self.seal_any(&own, spot.block, block);
        })
    }

    /// Makes the entry at `spot` name another inode.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn point_entry(
        &self,
        handle: &mut Handle<'_>,
        dir: &Inode,
        spot: Spot,
        ino: u32,
        file_type: FileType,
    ) -> Result<()> {
        let (own, filetype) = (ei(dir), self.filetype());
        handle.write(spot.addr, |block| {
            block[spot.offset..spot.offset + 4].copy_from_slice(&ino.to_le_bytes());
            if filetype {
                block[spot.offset + 7] = type_number(file_type);
            }
            self.seal_any(&own, spot.block, block);
        })
    }

    /// Whether a directory has nothing but "." and "..".
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn dir_is_empty(&self, dir: &Inode) -> Result<bool> {
        let mut empty = true;
        self.each_entry(dir, &mut |e| {
            empty = matches!(&e.name[..], b"." | b"..");
            empty
        })?;
        Ok(empty)
    }

    /// Adds a block at the end of a directory; returns its number and its address. The caller writes its
    /// content, and stores the size in the table.
    pub(super) fn append_dir_block(
        &self,
        handle: &mut Handle<'_>,
        dir: &Inode,
    ) -> Result<(FileBlock, BlockAddr)> {
        let mut attr = dir.attr().clone();
        let n = FileBlock(self.blocks_of(attr.size));
        let mut data = crate::inode::own(dir).write();
        let added = self.add_dir_block(handle, std::sync::Arc::make_mut(&mut data), &mut attr);
        drop(data);
        // A block map that has not got all of its blocks of numbers keeps those that it got.
        let mut a = dir.attr();
        (a.size, a.blocks) = (attr.size, attr.blocks);
        added.map(|addr| (n, addr))
    }

    fn add_dir_block(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut tidegate_vfs::Attr,
    ) -> Result<BlockAddr> {
        let n = self.blocks_of(attr.size);
        // An index has 28 bits for a block.
        let most = match self.sb.incompat.contains(Incompat::LARGEDIR) {
            true => u64::from(self.sb.block_size) << 28,
            false => u32::MAX.into(),
        };
        if attr.size + u64::from(self.sb.block_size) > self.size_limit(own).min(most) {
            return Err(Error::new(tidegate_vfs::ErrorKind::DirectoryFull, "at its largest size"));
        }
        let goal = match n.checked_sub(1) {
            Some(last) => match self.map_blocks(own, FileBlock(last), 1)?.place {
                Place::Data(addr) => addr.plus(1),
                _ => self.goal_of(own.ino),
            },
            None => self.goal_of(own.ino),
        };
        let addr = self.take_block(handle, goal)?;
        if let Err(e) = self.place_blocks(handle, own, attr, FileBlock(n), addr, 1, false) {
            self.free_blocks(handle, addr, 1)?;
            return Err(e);
        }
        attr.size += u64::from(self.sb.block_size);
        Ok(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_goes_into_a_gap_and_not_behind_the_block() {
        let e = |name| NewEntry { name, ino: 12, file_type: FileType::Regular };
        let mut block = vec![0; 1024];
        put_entry(&mut block, 0, 1012, e(b"first"), true);
        assert!(put_in_gap(&mut block, 1012, e(b"second"), true));
        assert_eq!((rec_len(&block, 0), rec_len(&block, 16)), (16, 996));
        // Another use of the block has put a number over the last length.
        for len in [0, 8, 60, 0xfffc] {
            let mut wrong = vec![0; 64];
            put_entry(&mut wrong, 0, 52, e(&[b'x'; 44]), true);
            put_entry(&mut wrong, 52, len, e(b"y"), true);
            let before = wrong.clone();
            assert!(!put_in_gap(&mut wrong, 64, e(&[b'z'; 40]), true) && wrong == before, "{len}");
        }
    }
}
