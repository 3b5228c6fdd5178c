//! Directories: entries in blocks, a hash tree over them, or entries in the inode.
//!
//! No lock is owned; the caller, the VFS's glue, holds the directory's `i_rwsem`.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | the entries of a block, checked |
//! | `block` | a directory's blocks and their checksums |
//! | `htree` | lookup through the hash tree |
//! | `list` | listing, which goes on where it stopped |
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
mod list;
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
        self.each_entry(dir, &mut |e| {
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

    /// Calls `emit` for each entry, in the order of bytes, until it returns false. A tree is not looked at.
    ///
    /// # Errors
    /// `Corrupt`; those of the device; entries before the fault are emitted.
    pub(crate) fn each_entry(&self, dir: &Inode, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let (own, size) = (&*ei(dir), dir.size());
        let mut emit = |e: Dirent<'_>, next: u64| emit(self.shown(own, e, next));
        match own.is(InodeFlags::INLINE_DATA) {
            true => self.list_inline(own, size, 0, &mut emit),
            false => self.list_blocks(own, size, 0, &mut emit),
        }
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
