//! Attributes of inodes, extended attributes, and those of the volume.

use crate::errno::{Result, ToErrno};
use crate::privileges::{Capability, Kill, has_set_id};
use crate::server::{Caller, Entry, ROOT, Server};
use rustix::io::Errno;
use tidegate::vfs::{APPEND_ONLY, IMMUTABLE};
use tidegate::vfs::{FileType, Inode, SetAttr, StatFs, XattrFlags};

/// The prefix of names that only the superuser sees (xattr(7)).
const TRUSTED: &[u8] = b"trusted.";

/// The kind of a change of attributes, beside the new values.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A change of the values. Set-id bits are removed as `Kill` says.
    Values(Kill<'a>),
    /// Both times are set to that of the call, which an append-only file allows. Set-id bits are removed as
    /// `Kill` says.
    Touch(Kill<'a>),
    /// A chown(2) of this caller that changes no owner. It removes set-id bits, which only the owner may do.
    Owner(&'a Caller),
    /// A change without a value. For a regular file, the kernel has set-id bits removed before this caller writes. For
    /// another file it is a chown(2) that changes no owner, since the kernel gives no time with it.
    None(&'a Caller),
}

impl Server {
    /// The attributes of an inode. The kernel asks through an open file (`fh`) before it writes to that file.
    ///
    /// # Errors
    /// Those of reading the inode; errors of earlier writes to an open file, see `refused`.
    pub fn getattr(&self, node: u64, fh: Option<u64>) -> Result<Entry> {
        if let Some(fh) = fh {
            self.check_refused(node, fh)?;
        }
        self.keep_asked(node);
        let inode = self.inode(node)?;
        if inode.attr().flags & IMMUTABLE != 0 && self.handles.is_written(node) {
            // The kernel asks through an open file before it writes, and must ask again before the next write.
            if fh.is_some_and(|fh| self.handles.get(fh).is_ok_and(|h| h.writes)) {
                return Err(Errno::PERM);
            }
            self.have_asked(node);
        }
        Ok(self.entry(&inode))
    }

    /// Changes attributes. Returns the new values.
    ///
    /// # Errors
    /// `EPERM`, `EROFS`, `EFBIG`, `ENOSPC`.
    pub fn setattr(&self, node: u64, set: &SetAttr, change: Change<'_>) -> Result<Entry> {
        let inode = self.inode(node)?;
        let (kill, touch) = match change {
            Change::Values(kill) => (kill, false),
            Change::Touch(kill) => (kill, true),
            Change::None(caller) if inode.file_type == FileType::Regular => (Kill::By(caller), false),
            Change::Owner(caller) | Change::None(caller) => {
                self.check_flags(&inode, IMMUTABLE | APPEND_ONLY)?;
                // Without such bits every user may do it, and nothing changes.
                if has_set_id(&inode) {
                    self.check_owner(&inode, caller)?;
                }
                (Kill::By(caller), false)
            }
        };
        let others = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        if others || !touch && (set.atime.is_some() || self.by_user(&inode, set)) {
            self.check_flags(&inode, IMMUTABLE | APPEND_ONLY)?;
        } else if touch {
            self.check_flags(&inode, IMMUTABLE)?;
        }
        let mut set = set.clone();
        // Where the size does not change, the kernel does not change the times that it keeps.
        if set.size == Some(inode.attr().size) && set.mtime.is_none() {
            let a = inode.attr();
            (set.mtime, set.ctime) = (Some(a.mtime), set.ctime.or(Some(a.ctime)));
        }
        for (view, wanted) in [(self.view.uid, &mut set.uid), (self.view.gid, &mut set.gid)] {
            if let Some(shown) = view
                && let Some(id) = wanted.take()
                && id != shown
            {
                return Err(Errno::PERM);
            }
        }
        self.kill_set_id(&inode, kill)?;
        self.vfs().setattr(ROOT, &inode, &set).map_errno()?;
        Ok(self.entry(&inode))
    }

    /// Whether a change of `mtime` comes from a user. The kernel also sends it when it writes back cached
    /// pages: only for a regular file, and before the last writer has closed it.
    fn by_user(&self, inode: &Inode, set: &SetAttr) -> bool {
        let kept = inode.file_type == FileType::Regular && self.handles.is_written(self.node(inode));
        set.mtime.is_some_and(|t| !kept && t != inode.attr().mtime)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`.
    pub fn getxattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.vfs().getxattr(ROOT, &*self.inode(node)?, name).map_errno()
    }

    /// Sets an extended attribute, or removes it (`None`). With `kill_sgid` (an ACL is set by a user outside
    /// the file's group), also removes set-group-id.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ENOSPC`, `ERANGE`, `EPERM`.
    pub fn setxattr(
        &self,
        node: u64,
        name: &[u8],
        value: Option<&[u8]>,
        flags: u32,
        kill_sgid: bool,
    ) -> Result<()> {
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        if value.is_some() {
            self.space.check_names(self)?;
        }
        let inode = self.inode(node)?;
        self.check_flags(&inode, IMMUTABLE | APPEND_ONLY)?;
        self.vfs().setxattr(ROOT, &inode, name, value, flags).map_errno()?;
        let mode = inode.attr().mode;
        if kill_sgid && mode & 0o2000 != 0 {
            let set = SetAttr { mode: Some(mode & !0o2000), ..SetAttr::default() };
            self.vfs().setattr(ROOT, &inode, &set).map_errno()?;
        }
        Ok(())
    }

    /// The names of the extended attributes that the caller may see, each ended by a zero byte.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn listxattr(&self, caller: &Caller, node: u64) -> Result<Vec<u8>> {
        let names = self.vfs().listxattr(ROOT, &*self.inode(node)?).map_errno()?;
        // The capability is looked up only where there are such names: it must be read from /proc.
        let trusted = |n: &Vec<u8>| n.starts_with(TRUSTED);
        let hidden = names.iter().any(trusted) && !caller.is_capable(Capability::SysAdmin);
        let names = names.iter().filter(|n| !hidden || !trusted(n));
        Ok(names.flat_map(|n| n.iter().copied().chain([0])).collect())
    }

    /// Capacity and use.
    pub fn statfs(&self) -> StatFs {
        self.vfs().statfs()
    }

    /// Whether inodes of the volume can have a birth time.
    pub fn keeps_births(&self) -> bool {
        self.vfs().fs().keeps_births()
    }
}
