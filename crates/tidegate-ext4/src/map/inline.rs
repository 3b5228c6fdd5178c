//! Content that lies in the inode: its beginning in `i_block`, the rest in the attribute `system.data`.

use crate::format::raw::{I_BLOCK_SIZE, INDEX_SYSTEM};
use crate::inode::Ext4Inode;
use crate::volume::sbi::Ext4;
use tidegate_vfs::Result;

impl Ext4 {
    /// The content, at most `size` bytes of it. It may be less: the part of a file that was never written is
    /// zeros.
    ///
    /// # Errors
    /// `Corrupt`; those of reading an attribute.
    pub(crate) fn inline_content(&self, inode: &Ext4Inode, size: u64) -> Result<Vec<u8>> {
        let mut all = inode.block.to_vec();
        if size > I_BLOCK_SIZE as u64 {
            all.extend(self.inline_rest(inode)?);
        }
        all.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(all)
    }

    /// The part of the content in the attribute.
    ///
    /// # Errors
    /// Those of reading an attribute.
    pub(crate) fn inline_rest(&self, inode: &Ext4Inode) -> Result<Vec<u8>> {
        Ok(self.stored_xattr(inode, INDEX_SYSTEM, b"data")?.unwrap_or_default())
    }
}
