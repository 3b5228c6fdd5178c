//! Set-id bits, which a change of a file removes unless the caller may keep them.
//!
//! The kernel leaves this to the server (`FUSE_HANDLE_KILLPRIV_V2`). With writes and truncations it says
//! whether the caller lacks the right (`CAP_FSETID`). With fallocate and copies it does not, and it never
//! tells the groups of the caller. The missing facts are read from /proc.

use crate::errno::{Result, ToErrno};
use crate::server::{Caller, ROOT, Server};
use rustix::io::Errno;
use std::sync::Arc;
use tidegate::vfs::{Cred, FileType, Inode, SetAttr};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;

/// Capabilities of processes, as bit numbers in a set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capability {
    /// `CAP_FOWNER`: act as the owner of a file.
    Fowner = 3,
    /// `CAP_FSETID`: keep set-id bits.
    Fsetid = 4,
    /// `CAP_LINUX_IMMUTABLE`: change the flags that forbid changes.
    LinuxImmutable = 9,
    /// `CAP_SYS_ADMIN`: act on the volume as a whole.
    SysAdmin = 21,
}

/// Whether a change of a file removes set-id bits, and the caller.
#[derive(Clone, Copy, Debug)]
pub enum Kill<'a> {
    /// The bits stay.
    No,
    /// The caller lacks the right.
    By(&'a Caller),
    /// The kernel does not say.
    Unless(&'a Caller),
}

/// The lines of `/proc/PID/status` that are needed here.
struct Status {
    effective: u64,
    groups: Vec<u32>,
}

impl Status {
    fn of(caller: &Caller) -> Option<Status> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", caller.pid)).ok()?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name));
        let groups = field("Groups:")?.split_whitespace().filter_map(|g| g.parse().ok()).collect();
        Some(Status { effective: u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?, groups })
    }
}

/// The user map of a process. In a user namespace of its own, users map to others, and the creator of the namespace has
/// every capability there.
fn users(process: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/uid_map")).ok()
}

impl Caller {
    /// Whether the caller has a capability that is valid here. A process that /proc does not show has none.
    pub(crate) fn is_capable(&self, of: Capability) -> bool {
        let has = |s: Status| s.effective >> of as u32 & 1 != 0;
        Status::of(self).is_some_and(has) && users(&self.pid.to_string()) == users("self")
    }

    fn may_keep(&self) -> bool {
        self.is_capable(Capability::Fsetid)
    }

    /// The credentials of the caller, with all its groups where /proc shows them.
    pub(crate) fn cred(&self) -> Cred {
        let groups = Status::of(self).map_or(Vec::new(), |s| s.groups);
        Cred { uid: self.uid, gid: self.gid, groups }
    }

    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || Status::of(self).is_some_and(|s| s.groups.contains(&gid))
    }
}

/// Whether an inode has set-id bits that a change may remove. Those of a directory stay.
pub(crate) fn has_set_id(inode: &Inode) -> bool {
    inode.attr().mode & (S_ISUID | S_ISGID) != 0 && inode.file_type != FileType::Directory
}

impl Server {
    /// Whether the caller may make changes that only a file's owner may make.
    pub(crate) fn check_owner(&self, inode: &Inode, caller: &Caller) -> Result<()> {
        let owner = self.view.uid.unwrap_or(inode.attr().uid);
        if caller.uid == owner || caller.is_capable(Capability::Fowner) { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Removes set-id bits as Linux does (`setattr_should_drop_suidgid`): set-user-id always; set-group-id
    /// where the group may execute, and from a file whose group the caller is not in. Directories keep their
    /// bits.
    ///
    /// The kernel keeps the mode that it knows, and starts programs by it. So it is told to ask again before the change
    /// is answered.
    pub(crate) fn kill_set_id(&self, inode: &Arc<Inode>, kill: Kill<'_>) -> Result<()> {
        let (mode, gid) = {
            let a = inode.attr();
            (a.mode, a.gid)
        };
        let (sure, by) = match kill {
            Kill::No => return Ok(()),
            Kill::By(caller) => (true, caller),
            Kill::Unless(caller) => (false, caller),
        };
        if !has_set_id(inode) || !sure && by.may_keep() {
            return Ok(());
        }
        let group = match mode & S_IXGRP != 0 {
            true => S_ISGID,
            false if by.is_in(gid) || by.may_keep() => 0,
            false => S_ISGID,
        };
        let kept = mode & !S_ISUID & !group;
        if kept == mode {
            return Ok(());
        }
        let set = SetAttr { mode: Some(kept), ..SetAttr::default() };
        self.vfs().setattr(ROOT, inode, &set).map_errno()?;
        if let Some(kernel) = self.kernel() {
            kernel.forget_attributes(self.node(inode));
        }
        Ok(())
    }
}
