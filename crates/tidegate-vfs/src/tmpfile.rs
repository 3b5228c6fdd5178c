//! Files without a name.

use crate::dir_ops::S_ISGID;
use crate::error::{ErrorKind, Result};
use crate::file::File;
use crate::inode::Inode;
use crate::perm::{self, MAY_EXEC, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Vfs {
    /// Makes a regular file without a name and opens it. With `EXCL` it may never get a name. Takes `dir`'s
    /// `i_rwsem` shared.
    ///
    /// # Errors
    /// As [`Vfs::make`]; `Unsupported` where the format has no such files.
    pub fn tmpfile(
        self: &Arc<Self>,
        cred: &Cred,
        dir: &Arc<Inode>,
        new: &NewInode<'_>,
        flags: OpenFlags,
    ) -> Result<File> {
        self.begin_change()?;
        let guard = dir.rwsem.read();
        if dir.is_removed() {
            return Err(ErrorKind::NotFound.into());
        }
        perm::check(&*self.fs, cred, dir, MAY_WRITE | MAY_EXEC)?;
        let mut new = new.clone();
        let (dir_mode, dir_gid) = {
            let a = dir.attr();
            new.dir_flags = a.flags;
            (a.mode, a.gid)
        };
        if dir_mode & S_ISGID != 0 || self.fs.groups_follow_directories() {
            new.gid = dir_gid;
        }
        let inherited = self.inherit_acl(dir, &mut new)?;
        let inode = self.icache.insert(self.fs.tmpfile(dir, &new, &inherited)?);
        inode.no_capability.store(true, Relaxed);
        inode.linkable.store(!flags.contains(OpenFlags::EXCL), Relaxed);
        let file = self.open_unchecked(cred, &inode, flags - OpenFlags::TRUNC)?;
        drop(guard);
        self.balance();
        Ok(file)
    }
}
