//! Set-id bits, which a change of a file takes off unless its maker may keep them.
//!
//! The kernel leaves this to the server (`FUSE_HANDLE_KILLPRIV_V2`). With writes and truncations it says
//! whether its caller lacks the right (`CAP_FSETID`); with fallocate and copies it does not, and of the
//! caller's groups it never tells. Facts that it leaves out stand in /proc.

use crate::errno::{Result, ToErrno};
use crate::server::{Caller, ROOT, Server};
use std::sync::Arc;
use tidegate::vfs::{Cred, FileType, Inode, SetAttr};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;
/// The bit of `CAP_FSETID` in a set of capabilities.
const CAP_FSETID: u32 = 4;

/// The process that changes a file, and the kernel's word on the right to keep set-id bits.
#[derive(Clone, Copy, Debug)]
pub enum Kill<'a> {
    /// They stay.
    No,
    /// The caller lacks the right.
    By(&'a Caller),
    /// The kernel does not say.
    Unless(&'a Caller),
}

/// The lines of `/proc/PID/status` that count here.
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

impl Caller {
    fn may_keep(&self) -> bool {
        Status::of(self).map_or(self.uid == 0, |s| s.effective >> CAP_FSETID & 1 != 0)
    }

    /// Its credentials, with all its groups where the kernel tells them.
    pub(crate) fn cred(&self) -> Cred {
        let groups = Status::of(self).map_or(Vec::new(), |s| s.groups);
        Cred { uid: self.uid, gid: self.gid, groups }
    }

    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || Status::of(self).is_some_and(|s| s.groups.contains(&gid))
    }
}

impl Server {
    /// Takes set-id bits off as Linux does (`setattr_should_drop_suidgid`): set-user-id always; set-group-id
    /// where the group may execute, and from a file whose group the caller is not in. Directories keep
    /// theirs.
    ///
    /// The kernel keeps the mode that it knows, and starts programs by it: it is told to ask again before the change
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
        let has = mode & (S_ISUID | S_ISGID);
        if has == 0 || inode.file_type == FileType::Directory || !sure && by.may_keep() {
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
