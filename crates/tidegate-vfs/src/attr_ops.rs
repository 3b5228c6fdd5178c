//! Operations on attributes.

use crate::acl::{self, Acl};
use crate::capability;
use crate::dir_ops::S_ISGID;
use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;
use crate::perm::{self, MAY_READ, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// `FS_IMMUTABLE_FL`.
pub const IMMUTABLE: u32 = 0x10;
/// `FS_APPEND_FL`.
pub const APPEND_ONLY: u32 = 0x20;
/// `FS_JOURNAL_DATA_FL`.
pub const JOURNAL_DATA: u32 = 0x4000;

impl Vfs {
    /// Changes attributes. Changes of ownership and mode drop set-id bits and restrict the access ACL as POSIX
    /// requires. Changes of ownership and size drop the capability of a file. A change of size truncates or extends the
    /// file. Takes `i_rwsem`.
    ///
    /// # Errors
    /// `NotPermitted`, `PermissionDenied`, `ReadOnly`, `FileTooBig`, `IsADirectory`.
    pub fn setattr(&self, cred: &Cred, inode: &Arc<Inode>, set: &SetAttr) -> Result<()> {
        self.begin_change()?;
        let guard = inode.rwsem.write();
        // Its number may be another file's by now.
        if inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.flags.is_some() {
            perm::check_owner(cred, inode)?;
        }
        if !cred.is_root() {
            let (uid, gid, flags) = {
                let a = inode.attr();
                (a.uid, a.gid, a.flags)
            };
            // All users share the journal's space: Linux requires `CAP_SYS_RESOURCE` here.
            if set.flags.is_some_and(|f| (f ^ flags) & JOURNAL_DATA != 0) {
                return Err(ErrorKind::NotPermitted.into());
            }
            let gives_away =
                set.uid.is_some_and(|u| u != uid) || set.gid.is_some_and(|g| g != gid && !cred.in_group(g));
            if gives_away {
                return Err(ErrorKind::NotPermitted.into());
            }
        }
        if set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some() || set.crtime.is_some() {
            perm::check_owner(cred, inode)?;
        }
        if let Some(size) = set.size {
            perm::check(&*self.fs, cred, inode, MAY_WRITE)?;
            self.truncate_locked(inode, size, cred.is_root())?;
        }
        if (set.uid.is_some() || set.gid.is_some()) && !inode.is_dir() {
            self.drop_capability(inode)?;
        }
        // The ACL is read first: if it cannot be restricted, nothing is changed.
        let acl = set.mode.map(|mode| self.narrowed_acl(inode, mode)).transpose()?.flatten();
        if let (Some(flags), Some(_)) = (set.flags, &acl) {
            // The ACL is stored with the old flags: a change of flags may need other work first.
            let before = std::mem::replace(&mut inode.attr().flags, flags);
            self.fs.update_inode(inode).inspect_err(|_| inode.attr().flags = before)?;
        }
        let before = inode.attr().clone();
        self.apply(cred, inode, set);
        let stored = match acl {
            // The ACL is stored together with all attributes, so that no power cut separates the mode from
            // the ACL.
            Some(a) => {
                let ctime = inode.attr().ctime;
                self.fs.setxattr(inode, acl::ACCESS, Some(&a.to_xattr()), XattrFlags::empty(), ctime)
            }
            None => self.fs.update_inode(inode),
        };
        stored.inspect_err(|_| {
            let mut a = inode.attr();
            // Write-back may have changed size and blocks meanwhile.
            *a = Attr { size: a.size, blocks: a.blocks, ..before };
        })?;
        drop(guard);
        self.balance();
        Ok(())
    }

    fn apply(&self, cred: &Cred, inode: &Inode, set: &SetAttr) {
        let now = self.now();
        let mut a = inode.attr();
        let owner = set.uid.is_some() || set.gid.is_some();
        if owner && set.mode.is_none() && a.file_type != FileType::Directory {
            crate::file_write::drop_set_id(&mut a);
        }
        if let Some(mode) = set.mode {
            a.mode = mode & 0o7777;
            if !cred.is_root() && !cred.in_group(set.gid.unwrap_or(a.gid)) {
                a.mode &= !S_ISGID;
            }
        }
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        a.flags = set.flags.unwrap_or(a.flags);
        a.atime = set.atime.unwrap_or(a.atime);
        a.mtime = set.mtime.unwrap_or(a.mtime);
        a.ctime = set.ctime.unwrap_or(now);
        if a.crtime.is_some() && set.crtime.is_some() {
            a.crtime = set.crtime;
        }
    }

    /// The access ACL, if there is one, with the entries that mirror the mode set to `mode`.
    fn narrowed_acl(&self, inode: &Inode, mode: u32) -> Result<Option<Acl>> {
        if inode.file_type == FileType::Symlink {
            return Ok(None);
        }
        let list = match self.fs.getxattr(inode, acl::ACCESS) {
            Err(e) if matches!(e.kind(), ErrorKind::NoData | ErrorKind::Unsupported) => return Ok(None),
            r => r?,
        };
        let mut a = Acl::parse(&list)
            .ok_or_else(|| Error::corrupt("its access ACL is damaged").in_inode(inode.ino))?;
        a.restrict(mode, false);
        Ok(Some(a))
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `NoData` when it is missing, `Unsupported` for a namespace that the format does not keep.
    pub fn getxattr(&self, cred: &Cred, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(b"user.") {
            perm::check(&*self.fs, cred, inode, MAY_READ)?;
        }
        if name.starts_with(b"trusted.") && !cred.is_root() {
            return Err(ErrorKind::NoData.into());
        }
        let _guard = inode.rwsem.read();
        self.fs.getxattr(inode, name)
    }

    /// Sets an attribute, or removes it (`None`). Setting an access ACL also sets the mode that it implies.
    /// Takes `i_rwsem`.
    ///
    /// # Errors
    /// `NoData`, `Exists`, `NoSpace` or `TooBig` when it does not fit, `Range` for a long name,
    /// `NotPermitted`, `Unsupported`.
    pub fn setxattr(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.begin_change()?;
        self.check_set_xattr(cred, inode, name)?;
        if name == capability::NAME && value.is_some_and(|v| !is_capability(v)) {
            return Err(Error::new(ErrorKind::InvalidArgument, "not a file capability of version 2 or 3"));
        }
        let now = self.now();
        let guard = inode.rwsem.write();
        if inode.is_freed() {
            return Err(ErrorKind::Stale.into());
        }
        if name == acl::ACCESS || name == acl::DEFAULT {
            self.set_acl(cred, inode, name, value, now)?;
        } else {
            if name == capability::NAME {
                inode.no_capability.store(false, Relaxed);
            }
            self.fs.setxattr(inode, name, value, flags, now)?;
        }
        drop(guard);
        self.balance();
        Ok(())
    }

    fn check_set_xattr(&self, cred: &Cred, inode: &Inode, name: &[u8]) -> Result<()> {
        let plain = inode.is_dir() || inode.file_type == FileType::Regular;
        if name.starts_with(b"user.") {
            if !plain {
                return Err(ErrorKind::NotPermitted.into());
            }
            return perm::check(&*self.fs, cred, inode, MAY_WRITE);
        }
        if name.starts_with(b"system.posix_acl_") {
            return perm::check_owner(cred, inode);
        }
        if !cred.is_root() {
            return Err(ErrorKind::NotPermitted.into());
        }
        Ok(())
    }

    fn set_acl(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        now: tidegate_rt::Timespec,
    ) -> Result<()> {
        if inode.file_type == FileType::Symlink {
            return Err(ErrorKind::Unsupported.into());
        }
        if name == acl::DEFAULT && !inode.is_dir() {
            return if value.is_some() { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) };
        }
        let a = value.map(|v| Acl::parse(v).ok_or(ErrorKind::InvalidArgument)).transpose()?;
        match a.filter(|a| !a.0.is_empty()) {
            None => self.remove_acl(inode, name, now).map(drop),
            Some(a) if !a.is_valid() => Err(ErrorKind::InvalidArgument.into()),
            Some(a) if name == acl::ACCESS => self.set_access_acl(cred, inode, &a, now),
            Some(a) => self.fs.setxattr(inode, name, Some(&a.to_xattr()), XattrFlags::empty(), now),
        }
    }

    /// Sets the ACL and the mode that it implies. Both are stored together, so that no power cut separates
    /// them. An ACL that says no more than the mode is not kept.
    fn set_access_acl(
        &self,
        cred: &Cred,
        inode: &Arc<Inode>,
        a: &Acl,
        now: tidegate_rt::Timespec,
    ) -> Result<()> {
        let before = {
            let mut attr = inode.attr();
            let mut mode = attr.mode & !0o777 | a.mode();
            if !cred.is_root() && !cred.in_group(attr.gid) {
                mode &= !S_ISGID;
            }
            std::mem::replace(&mut attr.mode, mode)
        };
        let r = match a.is_trivial() {
            false => self.fs.setxattr(inode, acl::ACCESS, Some(&a.to_xattr()), XattrFlags::empty(), now),
            true => self.remove_acl(inode, acl::ACCESS, now).and_then(|removed| {
                if removed {
                    return Ok(());
                }
                inode.attr().ctime = now;
                self.fs.update_inode(inode)
            }),
        };
        if r.is_err() {
            inode.attr().mode = before;
        }
        r
    }

    /// Removes an ACL. Returns whether there was one.
    fn remove_acl(&self, inode: &Inode, name: &[u8], now: tidegate_rt::Timespec) -> Result<bool> {
        match self.fs.setxattr(inode, name, None, XattrFlags::empty(), now) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NoData => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Names of all attributes that `cred` may see.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn listxattr(&self, cred: &Cred, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let _guard = inode.rwsem.read();
        let mut v = self.fs.listxattr(inode)?;
        v.retain(|n| cred.is_root() || !n.starts_with(b"trusted."));
        Ok(v)
    }
}

/// Whether `value` is a `struct vfs_cap_data` that the kernel accepts: version 2 with 20 bytes, or version 3 with 24
/// (`cap_convert_nscap`). The version is the highest byte of the first, little-endian word.
fn is_capability(value: &[u8]) -> bool {
    matches!((value.len(), value.get(3)), (20, Some(2)) | (24, Some(3)))
}
