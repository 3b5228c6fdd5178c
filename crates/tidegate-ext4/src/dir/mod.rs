//! Directories: entries in blocks, a hash tree over them, or entries in the inode.
//!
//! No lock is owned; the caller, the VFS's glue, holds the directory's `i_rwsem`. Positions are bytes of the
//! directory, so that a listing goes on where it stopped: the first entry at or behind a position.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | the entries of a block, checked |
//! | `block` | a directory's blocks and their checksums |
//! | `htree` | lookup through the hash tree |
//! | `change`, `grow` | entries come and go; the hash tree grows |
//! | `names` | names of inodes: create, link, unlink, rename |
//! | `hold` | blocks read and held before names change |
//! | `inline` | directories in their inodes |
//! | `nokey` | encrypted names in a form that can be shown |

mod block;
pub(crate) mod change;
mod entry;
mod grow;
mod hold;
mod htree;
mod inline;
mod names;
pub(crate) mod nokey;

use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{Ext4Inode, ei};
use crate::map::Place;
use crate::volume::sbi::Ext4;
use entry::Dirent;
pub(crate) use entry::Spot;
use tidegate_vfs::{DirEntry, Ino, Inode, Result};

impl Ext4 {
    /// Finds `name` in a directory: through its hash tree, or by looking at every entry.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn find_entry(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let own = &*ei(dir);
        // A damaged tree does not hide names; damaged blocks are told by the search through all of them.
        if self.has_tree(own)
            && let Ok(Some(found)) = self.find_hashed(own, dir.size(), name)
        {
            return Ok(found.map(|spot| Ino(spot.ino.into())));
        }
        let mut found = None;
        self.list_entries(dir, 0, &mut |e| {
            if e.name == name {
                found = Some(e.ino);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Where the entry called `name` is.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn locate(&self, dir: &Inode, name: &[u8]) -> Result<Option<Spot>> {
        let own = &*ei(dir);
        if self.has_tree(own)
            && let Some(found) = self.find_hashed(own, dir.size(), name)?
        {
            return Ok(found);
        }
        for n in 0..self.blocks_of(dir.size()) {
            let Place::Data(addr) = self.map_blocks(own, FileBlock(n), 1)?.place else { continue };
            let block = htree::TreeBlock { block: self.dir_block(own, FileBlock(n), addr)?, addr };
            let found = self.find_in_block(own, FileBlock(n), &block, name)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Calls `emit` for each entry from position `pos` on until it returns false.
    ///
    /// # Errors
    /// `Corrupt`; those of the device; entries before the fault are emitted.
    pub(crate) fn list_entries(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let own = &*ei(dir);
        let mut emit = |e: Dirent<'_>, next: u64| emit(self.shown(own, e, next));
        if own.is(InodeFlags::INLINE_DATA) {
            return self.list_inline(own, dir.size(), pos, &mut emit);
        }
        let bs = u64::from(self.sb.block_size);
        let (mut at, end) = (pos / bs, dir.size().div_ceil(bs));
        while at < end {
            let m = self.map_blocks(own, FileBlock(at), end - at)?;
            let Place::Data(first) = m.place else {
                at += m.blocks;
                continue;
            };
            for n in 0..m.blocks {
                let block = self.dir_block(own, FileBlock(at + n), first.plus(n))?;
                let base = (at + n) * bs;
                let entries = entry::entries(&block, self.dir_rules(own), FileBlock(at + n));
                for e in entries {
                    let e = e?;
                    let here = base + e.offset as u64;
                    if here >= pos && !emit(e, here + u64::from(e.rec_len)) {
                        return Ok(());
                    }
                }
            }
            at += m.blocks;
        }
        Ok(())
    }

    /// An entry as it is listed.
    fn shown(&self, dir: &Ext4Inode, e: Dirent<'_>, next: u64) -> DirEntry {
        let name = match dir.is(InodeFlags::ENCRYPT) && !matches!(e.name, b"." | b"..") {
            true => nokey::encode(e.name),
            false => e.name.to_vec(),
        };
        DirEntry { ino: Ino(e.ino.into()), file_type: e.file_type, name, next }
    }
}
