//! Attributes of files made on the host, and those that could not be kept.

use super::To;
use crate::host::proc_path;
use crate::node::Meta;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use tidegate_block::Errno;
use tidegate_vfs::FileType;

/// Sets attributes, and counts the refusals of the host.
pub struct Attrs {
    uid: u32,
    gid: u32,
    umask: u32,
    /// Owners are kept; permissions are kept.
    owners: bool,
    permissions: bool,
    refused: BTreeMap<&'static str, (u64, String)>,
}

/// Bits that must be cleared when the owner changes.
const SET_ID: u32 = 0o6000;
/// The attribute with a file's capabilities, and the prefix of those with ACLs.
const CAPABILITY: &[u8] = b"security.capability";
const ACLS: &[u8] = b"system.posix_acl_";
const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

impl Attrs {
    /// Settings for this process and for the options in `to`.
    pub fn of_process(to: &To) -> Self {
        Attrs {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: umask().unwrap_or(0o777),
            owners: to.owners,
            permissions: to.permissions,
            refused: BTreeMap::new(),
        }
    }

    /// The refusals, one line for each kind.
    pub fn notes(&self) -> Vec<String> {
        let line = |(what, (n, first)): (&&str, &(u64, String))| match n {
            1 => format!("{what} not kept: {first}"),
            n => format!("{what} not kept for {n} files, the first: {first}"),
        };
        self.refused.iter().map(line).collect()
    }

    /// Counts a refusal that is no reason to stop. Other errors are returned.
    pub fn refuse(&mut self, what: &'static str, name: &[u8], e: Errno) -> Result<(), Errno> {
        match e {
            Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSPC | Errno::TOOBIG => {
                if what != "extended attributes" && matches!(e, Errno::NOSPC | Errno::TOOBIG) {
                    return Err(e);
                }
                let shown = crate::error::show(name);
                self.refused.entry(what).or_insert_with(|| (0, shown)).0 += 1;
                Ok(())
            }
            e => Err(e),
        }
    }

    /// The attributes without those that are not to be kept.
    pub fn kept(&self, mut meta: Meta) -> Meta {
        if !self.owners {
            (meta.uid, meta.gid) = (self.uid, self.gid);
            meta.mode &= !SET_ID;
            meta.xattrs.retain(|(name, _)| name != CAPABILITY);
        }
        if !self.permissions {
            meta.mode &= 0o777 & !self.umask;
            meta.xattrs.retain(|(name, _)| !name.starts_with(ACLS));
        }
        meta
    }

    /// The mode with which a file is created: only this process may use it until it is complete.
    pub fn create_mode(&self, meta: &Meta) -> Mode {
        let foreign = meta.uid != self.uid || meta.gid != self.gid;
        Mode::from_raw_mode(if foreign { meta.mode & 0o700 } else { meta.mode & 0o777 })
    }

    /// Sets all attributes on an open file or directory. `made` is the mode with which it was created, in a directory from
    /// which it `inherits` a group or an ACL.
    ///
    /// # Errors
    /// Errors that are no refusals.
    pub fn set(
        &mut self,
        fd: BorrowedFd<'_>,
        name: &[u8],
        meta: &Meta,
        made: Option<Mode>,
        inherits: bool,
    ) -> Result<(), Errno> {
        let foreign = meta.uid != self.uid || meta.gid != self.gid || inherits || made.is_none();
        let mut mode = meta.mode;
        if foreign && let Err(e) = std::os::unix::fs::fchown(fd, Some(meta.uid), Some(meta.gid)) {
            self.refuse("owners", name, errno(&e))?;
            mode &= !SET_ID;
        }
        if inherits {
            drop_acls(fd);
        }
        for (key, value) in &meta.xattrs {
            if let Err(e) = rustix::fs::fsetxattr(fd, &key[..], value, XattrFlags::empty()) {
                self.refuse("extended attributes", name, e)?;
            }
        }
        // The mode is already right when no other call has cleared bits since.
        let kept = made.is_some_and(|m| m.as_raw_mode() & !self.umask == mode);
        if !kept || foreign || !meta.xattrs.is_empty() {
            chmod(fd, mode)?;
        }
        rustix::fs::futimens(fd, &times(meta))
    }

    /// Sets all attributes on a name that cannot be opened, in a directory from which it `inherits` a group or an ACL.
    ///
    /// # Errors
    /// Errors that are no refusals.
    pub fn set_at(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        meta: &Meta,
        inherits: bool,
    ) -> Result<(), Errno> {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        let mut mode = meta.mode;
        if let Err(e) = rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
            self.refuse("owners", name.to_bytes(), e)?;
            mode &= !SET_ID;
        }
        let path = proc_path(dir, name);
        if inherits {
            // There may be none; an ACL that stays is narrowed by the mode.
            let _ = rustix::fs::lremovexattr(&path[..], ACCESS_ACL);
        }
        if !meta.xattrs.is_empty() {
            for (key, value) in &meta.xattrs {
                if let Err(e) = rustix::fs::lsetxattr(&path[..], &key[..], value, XattrFlags::empty()) {
                    self.refuse("extended attributes", name.to_bytes(), e)?;
                }
            }
        }
        if meta.kind != FileType::Symlink {
            rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        rustix::fs::utimensat(dir, name, &times(meta), AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Removes the ACLs that a file got from its directory. There may be none, or the host may know none.
pub fn drop_acls(fd: BorrowedFd<'_>) {
    for name in [ACCESS_ACL, DEFAULT_ACL] {
        let _ = rustix::fs::fremovexattr(fd, name);
    }
}

/// Whether files get an ACL from this directory.
pub fn hands_acls_down(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr(dir, DEFAULT_ACL, &mut [0_u8; 0][..]).is_ok()
}

/// Calls libc's function, which tools such as fakeroot wrap: rustix only has the system call.
fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let file = fd.try_clone_to_owned().map(File::from);
    file.and_then(|f| f.set_permissions(Permissions::from_mode(mode))).map_err(|e| errno(&e))
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

fn times(meta: &Meta) -> Timestamps {
    let t = |t: tidegate_rt::Timespec| Timespec { tv_sec: t.secs, tv_nsec: t.nanos as _ };
    Timestamps { last_access: t(meta.atime), last_modification: t(meta.mtime) }
}

/// The umask of the process. umask(2) would change it for a moment, also for other threads.
pub fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
