//! File capabilities: the attribute `security.capability`. A capability is valid only for the content that the file had
//! when it was set.

use crate::error::{ErrorKind, Result};
use crate::inode::Inode;
use crate::types::XattrFlags;
use crate::vfs::Vfs;
use std::sync::atomic::Ordering::Relaxed;

/// The attribute's name.
pub(crate) const NAME: &[u8] = b"security.capability";

impl Vfs {
    /// Removes the capability of a file whose content or owner is about to change, for every user (Linux's
    /// `file_remove_privs`). The caller holds `i_rwsem` exclusive.
    ///
    /// # Errors
    /// Those of a change. The file then still has the capability.
    pub(crate) fn drop_capability(&self, inode: &Inode) -> Result<()> {
        if inode.no_capability.load(Relaxed) {
            return Ok(());
        }
        match self.fs.getxattr(inode, NAME) {
            Ok(_) => self.fs.setxattr(inode, NAME, None, XattrFlags::empty(), self.now())?,
            Err(e) if matches!(e.kind(), ErrorKind::NoData | ErrorKind::Unsupported) => {}
            // Attributes that cannot be read do not prevent a write, as in Linux.
            Err(_) => return Ok(()),
        }
        inode.no_capability.store(true, Relaxed);
        Ok(())
    }

    /// Removes the capability for a program that has the file open with [`NOCMTIME`](crate::OpenFlags::NOCMTIME). False
    /// where the file is known to have had none. Takes `i_rwsem`.
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace`.
    pub fn remove_capability(&self, inode: &Inode) -> Result<bool> {
        if inode.no_capability.load(Relaxed) {
            return Ok(false);
        }
        self.begin_change()?;
        let guard = inode.rwsem.write();
        if inode.is_freed() {
            return Ok(false);
        }
        self.drop_capability(inode)?;
        drop(guard);
        self.balance();
        Ok(true)
    }
}
