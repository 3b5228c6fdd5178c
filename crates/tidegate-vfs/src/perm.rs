//! Permission checks: mode bits, ACLs, sticky directories.

use crate::acl::{self, Acl};
use crate::error::{ErrorKind, Result};
use crate::fs::FileSystem;
use crate::inode::Inode;
use crate::types::Cred;

/// Read permission.
pub const MAY_READ: u32 = 4;
/// Write permission.
pub const MAY_WRITE: u32 = 2;
/// Execute, or search of a directory.
pub const MAY_EXEC: u32 = 1;

/// Checks that `cred` has the permissions `want` (a sum of `MAY_*`).
///
/// # Errors
/// `PermissionDenied`.
pub fn check(fs: &dyn FileSystem, cred: &Cred, inode: &Inode, want: u32) -> Result<()> {
    if cred.is_root() {
        let needs_x = want & MAY_EXEC != 0 && !inode.is_dir();
        return match needs_x && inode.attr().mode & 0o111 == 0 {
            true => Err(ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        };
    }
    let (mode, uid, gid) = {
        let a = inode.attr();
        (a.mode, a.uid, a.gid)
    };
    let granted = if cred.uid == uid {
        mode >> 6 & 7
    } else {
        match load_acl(fs, inode, mode)? {
            Some(a) if a.allows(cred, gid, want) => return Ok(()),
            Some(_) => return Err(ErrorKind::PermissionDenied.into()),
            None if cred.in_group(gid) => mode >> 3 & 7,
            None => mode & 7,
        }
    };
    if granted & want == want { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// An ACL matters only if the group bits, which are its mask, allow anything.
fn load_acl(fs: &dyn FileSystem, inode: &Inode, mode: u32) -> Result<Option<Acl>> {
    if mode & 0o070 == 0 {
        return Ok(None);
    }
    match fs.getxattr(inode, acl::ACCESS) {
        Ok(v) => Ok(Acl::parse(&v)),
        Err(e) if matches!(e.kind(), ErrorKind::NoData | ErrorKind::Unsupported) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Checks that `cred` owns the inode, as changes of its mode or times require.
///
/// # Errors
/// `NotPermitted`.
pub fn check_owner(cred: &Cred, inode: &Inode) -> Result<()> {
    if cred.is_root() || cred.uid == inode.attr().uid { Ok(()) } else { Err(ErrorKind::NotPermitted.into()) }
}

/// Checks that `cred` may remove `victim`'s name from `dir`. In a sticky directory only the owner of
/// `victim`, the owner of the directory and root may.
///
/// # Errors
/// `PermissionDenied`, `NotPermitted`.
pub fn check_delete(fs: &dyn FileSystem, cred: &Cred, dir: &Inode, victim: &Inode) -> Result<()> {
    check(fs, cred, dir, MAY_WRITE | MAY_EXEC)?;
    let (sticky, dir_uid) = {
        let a = dir.attr();
        (a.mode & 0o1000 != 0, a.uid)
    };
    if sticky && !cred.is_root() && cred.uid != dir_uid && cred.uid != victim.attr().uid {
        return Err(ErrorKind::NotPermitted.into());
    }
    Ok(())
}
