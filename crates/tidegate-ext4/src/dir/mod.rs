//! Directories: entries in blocks, a hash tree over them, or entries in the inode.
//!
//! This folder owns no lock; the caller, the VFS's glue, holds the directory's `i_rwsem`.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | the entries of a block, checked |
//! | `block` | a directory's blocks and their checksums |
//! | `htree` | lookup through the hash tree |
//! | `list` | listings, which can be continued |
//! | `change`, `grow` | changes of entries; growth of the hash tree |
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
pub(crate) mod names;
pub(crate) mod nokey;

use crate::format::raw::InodeFlags;
use crate::inode::{Ext4Inode, ei};
use crate::volume::sbi::Ext4;
pub(crate) use entry::Spot;
use tidegate_vfs::{ErrorKind, Ino, Inode, Result};

impl Ext4 {
    /// Finds `name` in a directory: through its hash tree, or by a search through every entry.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn find_entry(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let own = &*ei(dir);
        // A damaged tree must not hide names. The search through all blocks reports damaged blocks.
        if self.has_tree(own)
            && let Ok(Some(found)) = self.find_hashed(own, dir.size(), name)
        {
            return Ok(found.map(|spot| Ino(spot.ino.into())));
        }
        if !own.flags.intersects(InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA) {
            return Ok(self.search_blocks(own, dir.size(), name)?.map(|spot| Ino(spot.ino.into())));
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

    /// The position of the entry called `name`.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn locate(&self, dir: &Inode, name: &[u8]) -> Result<Option<Spot>> {
        let own = &*ei(dir);
        if self.has_tree(own) {
            match self.find_hashed(own, dir.size(), name) {
                Ok(Some(found)) => return Ok(found),
                // A name that can be found can also be removed.
                Err(e) if e.kind() != ErrorKind::Corrupt => return Err(e),
                _ => {}
            }
        }
        self.search_blocks(own, dir.size(), name)
    }

    /// The position of the entry called `name`, by a search through all blocks.
    fn search_blocks(&self, dir: &Ext4Inode, size: u64, name: &[u8]) -> Result<Option<Spot>> {
        let mut found = None;
        self.each_block(dir, 0..self.blocks_of(size), &mut |n, block| {
            found = self.find_in_block(dir, n, &block, name)?;
            Ok(found.is_none())
        })?;
        Ok(found)
    }
}
