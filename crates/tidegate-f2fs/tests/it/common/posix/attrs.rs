//! Attributes: mode, owner, times, extended attributes, access control lists.

use super::{Id, Model, R, Verdict, W, acl};
use tidegate_vfs::{Cred, ErrorKind, FileType, SetAttr, XattrFlags};

/// Bytes of attributes that every inode has room for, and that no inode has room for: an xattr node, without
/// and with the area in the inode.
const SURELY_FITS: usize = 4072 - 4;
const NEVER_FITS: usize = 200 + 4072;

fn stored_size(name: &[u8], value: &[u8]) -> usize {
    let rest = match name.iter().position(|b| *b == b'.') {
        Some(dot) if !name.starts_with(b"system.") => name.len() - dot - 1,
        _ => 0,
    };
    (4 + rest + value.len()).next_multiple_of(4)
}

impl Model {
    pub fn can_setattr(&self, cred: &Cred, id: Id, set: &SetAttr) -> Verdict {
        let n = self.get(id);
        let owner = self.is_owner(cred, id);
        let gives =
            set.uid.is_some_and(|u| u != n.uid) || set.gid.is_some_and(|g| g != n.gid && !cred.in_group(g));
        let owned = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let times = set.atime.is_some() || set.mtime.is_some();
        let closed = !self.may(cred, id, W);
        let mut v = Verdict::default()
            .fails(owned && !owner, ErrorKind::NotPermitted)
            .fails(gives && !cred.is_root(), ErrorKind::NotPermitted)
            .fails(times && !owner, ErrorKind::NotPermitted)
            .might(times && !owner && closed, ErrorKind::PermissionDenied);
        if let Some(size) = set.size {
            v = v
                .fails(closed, ErrorKind::PermissionDenied)
                .fails(n.is_dir(), ErrorKind::IsADirectory)
                .fails(!n.is_dir() && n.kind != FileType::Regular, ErrorKind::InvalidArgument);
            v = self.can_reach(v, Some(size));
        }
        v
    }

    pub fn setattr(&mut self, cred: &Cred, id: Id, set: &SetAttr) {
        if let Some(size) = set.size {
            let same = self.get(id).size == size;
            self.truncate(id, cred, size);
            if same {
                // POSIX leaves open whether setting the present size counts as a change.
                self.get_mut(id).mtime = None;
            }
        }
        let now = self.now;
        let n = self.get_mut(id);
        if set.uid.is_some() || set.gid.is_some() {
            let drop = if n.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
            match n.kind {
                FileType::Regular => n.mode &= !drop,
                FileType::Directory => {}
                _ => n.loose_mode |= drop,
            }
        }
        n.uid = set.uid.unwrap_or(n.uid);
        n.gid = set.gid.unwrap_or(n.gid);
        n.atime = set.atime.or(n.atime);
        n.mtime = set.mtime.or(n.mtime);
        n.ctime = Some(now);
        if let Some(mode) = set.mode {
            self.chmod(cred, id, mode & 0o7777);
        }
    }

    fn chmod(&mut self, cred: &Cred, id: Id, mode: u32) {
        let n = self.get_mut(id);
        n.mode = mode;
        n.loose_mode = 0;
        if !cred.is_root() && !cred.in_group(n.gid) {
            // POSIX leaves directories open. Files made in a directory depend on the bit, so directories
            // follow Linux.
            n.mode &= !0o2000;
        }
        if let Some(list) = n.xattrs.get_mut(acl::ACCESS) {
            *list = acl::encode(&acl::chmod(&acl::decode(list), mode));
        }
    }

    pub fn can_get_xattr(&self, cred: &Cred, id: Id, name: &[u8]) -> Verdict {
        let user = name.starts_with(b"user.");
        let plain = matches!(self.get(id).kind, FileType::Regular | FileType::Directory);
        let hidden = name.starts_with(b"trusted.") && !cred.is_root();
        Verdict::default()
            .fails(user && !self.may(cred, id, R), ErrorKind::PermissionDenied)
            .fails(hidden || !self.get(id).xattrs.contains_key(name), ErrorKind::NoData)
            .might(user && !plain, ErrorKind::NotPermitted)
    }

    pub fn can_set_xattr(
        &self,
        cred: &Cred,
        id: Id,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Verdict {
        let n = self.get(id);
        let plain = matches!(n.kind, FileType::Regular | FileType::Directory);
        let user = name.starts_with(b"user.");
        let there = n.xattrs.contains_key(name);
        let long = name.len() > 255;
        let v = Verdict::default()
            .fails(long, ErrorKind::Range)
            .fails(user && !plain, ErrorKind::NotPermitted)
            .fails(user && plain && !self.may(cred, id, W), ErrorKind::PermissionDenied)
            .fails(!user && !cred.is_root(), ErrorKind::NotPermitted)
            .fails(value.is_none() && !there && !long, ErrorKind::NoData)
            .fails(there && flags.contains(XattrFlags::CREATE), ErrorKind::Exists)
            .fails(!there && flags.contains(XattrFlags::REPLACE), ErrorKind::NoData);
        let Some(value) = value else { return v };
        let others: usize = n.xattrs.iter().filter(|x| x.0 != name).map(|(k, v)| stored_size(k, v)).sum();
        let total = 24 + others + stored_size(name, value);
        let full = total > NEVER_FITS;
        let alone = value.len() > 4072;
        v.fails(full, ErrorKind::NoSpace)
            .fails(alone, ErrorKind::TooBig)
            .might(total > SURELY_FITS, ErrorKind::NoSpace)
            .might(total > SURELY_FITS, ErrorKind::TooBig)
    }

    pub fn set_xattr(&mut self, id: Id, name: &[u8], value: Option<&[u8]>) {
        let n = self.get_mut(id);
        match value {
            Some(v) => n.xattrs.insert(name.to_vec(), v.to_vec()),
            None => n.xattrs.remove(name),
        };
        self.touch(id, false);
    }

    pub fn can_set_acl(&self, cred: &Cred, id: Id, name: &[u8], value: Option<&[u8]>) -> Verdict {
        let n = self.get(id);
        let link = n.kind == FileType::Symlink;
        let misplaced = name == acl::DEFAULT && !n.is_dir() && !link;
        let others: usize = n.xattrs.iter().filter(|x| x.0 != name).map(|(k, v)| stored_size(k, v)).sum();
        let total = 24 + others + value.map_or(0, |v| stored_size(name, v));
        Verdict::default()
            .fails(!self.is_owner(cred, id), ErrorKind::NotPermitted)
            .fails(link, ErrorKind::Unsupported)
            .fails(misplaced && value.is_some(), ErrorKind::PermissionDenied)
            .might(total > SURELY_FITS, ErrorKind::NoSpace)
            .might(total > SURELY_FITS, ErrorKind::TooBig)
    }

    pub fn set_acl(&mut self, id: Id, name: &[u8], value: Option<&[u8]>) {
        let had = self.get(id).xattrs.contains_key(name);
        let Some(value) = value else {
            self.get_mut(id).xattrs.remove(name);
            if had {
                self.touch(id, false);
            } else {
                self.get_mut(id).ctime = None; // left open
            }
            return;
        };
        let list = acl::decode(value);
        let n = self.get_mut(id);
        let keep = if name == acl::ACCESS {
            n.mode = n.mode & !0o777 | acl::mode(&list);
            // On some systems, a caller outside the group loses the set-group-id bit.
            n.loose_mode |= 0o2000 & n.mode;
            !acl::is_trivial(&list)
        } else {
            true
        };
        if keep {
            n.xattrs.insert(name.to_vec(), value.to_vec());
        } else {
            n.xattrs.remove(name);
        }
        self.touch(id, false);
    }

    /// The attribute names that `cred` sees.
    pub fn list_xattrs(&self, cred: &Cred, id: Id) -> Vec<Vec<u8>> {
        let hidden = |n: &[u8]| n.starts_with(b"trusted.") && !cred.is_root();
        self.get(id).xattrs.keys().filter(|n| !hidden(n)).cloned().collect()
    }
}
