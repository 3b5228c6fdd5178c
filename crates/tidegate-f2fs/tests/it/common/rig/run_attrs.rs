//! Operations on attributes.

use super::ops::Op;
use super::{Outcome, Rig, pattern, text};
use crate::common::posix::{Id, acl};
use crate::common::volume::{SECONDS, XATTRS};
use tidegate_rt::Timespec;
use tidegate_vfs::{Cred, ErrorKind, FileType, SetAttr, XattrFlags};

fn xattr_name(n: u8) -> Vec<u8> {
    match n % 12 {
        n @ 0..4 => format!("user.{n}").into_bytes(),
        4 => b"user.a-longer-name".to_vec(),
        5 => [b"user.", &[b'n'; 250][..]].concat(),
        6 => b"trusted.t".to_vec(),
        7 => b"security.selinux".to_vec(),
        8 => b"security.other".to_vec(),
        9 => b"user.\xff\xfe".to_vec(),
        10 => b"trusted.overlay.opaque".to_vec(),
        _ => [b"user.", &[b'm'; 256][..]].concat(),
    }
}

fn id_of(n: Option<u8>) -> Option<u32> {
    n.map(|n| [0, 1000, 1001, 2000][n as usize % 4])
}

fn stamp(t: Option<(i64, u32)>) -> Option<Timespec> {
    t.map(|(secs, nanos)| Timespec { secs: secs.clamp(*SECONDS.start(), *SECONDS.end()), nanos })
}

impl Rig {
    pub(super) fn attribute(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Chmod { who, node, mode } => {
                let set = SetAttr { mode: Some(*mode), ..Default::default() };
                self.setattr(&who.cred(), *node, &set)
            }
            Op::Chown { who, node, uid, gid } => {
                let set = SetAttr { uid: id_of(*uid), gid: id_of(*gid), ..Default::default() };
                self.setattr(&who.cred(), *node, &set)
            }
            Op::Utimens { who, node, atime, mtime } => {
                let set = SetAttr { atime: stamp(*atime), mtime: stamp(*mtime), ..Default::default() };
                self.setattr(&who.cred(), *node, &set)
            }
            Op::SetSize { who, node, size } => {
                let set = SetAttr { size: Some(*size), ..Default::default() };
                self.setattr(&who.cred(), *node, &set)
            }
            Op::SetXattr { who, node, name, len, seed, flags } => {
                let (id, name) = (self.node(*node), xattr_name(*name));
                self.set_xattr(&who.cred(), id, &name, Some(&pattern(*seed, *len as usize)), *flags)
            }
            Op::DelXattr { who, node, name } => {
                let (id, name) = (self.node(*node), xattr_name(*name));
                self.set_xattr(&who.cred(), id, &name, None, XattrFlags::empty())
            }
            Op::GetXattr { who, node, name } => self.get_xattr(&who.cred(), *node, *name),
            Op::ManyXattrs { node } => self.many_xattrs(*node),
            Op::SetAcl { who, node, default, list } => self.set_acl(&who.cred(), *node, *default, *list),
            Op::Stat { node } => {
                let id = self.node(*node);
                let inode = self.inode(id)?;
                super::Comparison::new(&self.vfs, &self.model, self.crtime).attributes(&inode, id)
            }
            _ => unreachable!("not about attributes"),
        }
    }

    fn setattr(&mut self, cred: &Cred, node: u8, set: &SetAttr) -> Outcome {
        let id = self.node(node);
        if self.model.get(id).kind == FileType::Symlink && set.mode.is_some() {
            return Ok(()); // the mode of a symbolic link is not compared
        }
        let verdict = self.model.can_setattr(cred, id, set);
        let inode = self.inode(id)?;
        let free = self.free_blocks();
        let answer = self.vfs.setattr(cred, &inode, set);
        if self.judge(verdict, 16, free, answer)?.is_some() {
            self.model.setattr(cred, id, set);
        }
        Ok(())
    }

    fn set_xattr(
        &mut self,
        cred: &Cred,
        id: Id,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Outcome {
        let n = self.model.get(id);
        let held: usize = n.xattrs.iter().map(|(n, v)| n.len() + v.len() + 24).sum();
        let crowded = held + name.len() + value.map_or(0, <[u8]>::len) + 24 > XATTRS;
        let verdict = self.model.can_set_xattr(cred, id, name, value, flags);
        let crowded = crowded && value.is_some();
        let verdict = verdict.might(crowded, ErrorKind::NoSpace).might(crowded, ErrorKind::TooBig);
        let inode = self.inode(id)?;
        let free = self.free_blocks();
        let answer = self.vfs.setxattr(cred, &inode, name, value, flags);
        if self.judge(verdict, 2, free, answer)?.is_some() {
            self.model.set_xattr(id, name, value);
        }
        Ok(())
    }

    fn get_xattr(&mut self, cred: &Cred, node: u8, name: u8) -> Outcome {
        let (id, name) = (self.node(node), xattr_name(name));
        let inode = self.inode(id)?;
        let verdict = self.model.can_get_xattr(cred, id, &name).might(name.len() > 255, ErrorKind::Range);
        let answer = self.vfs.getxattr(cred, &inode, &name);
        if let Some(value) = self.judge(verdict, 0, u64::MAX, answer)?
            && Some(&value) != self.model.get(id).xattrs.get(&name)
        {
            return Err("another value".into());
        }
        let mut names = self.vfs.listxattr(cred, &inode).map_err(text("listxattr"))?;
        names.sort();
        match names == self.model.list_xattrs(cred, id) {
            true => Ok(()),
            false => Err(format!("names {names:?}, should be {:?}", self.model.list_xattrs(cred, id))),
        }
    }

    /// Forty attributes: more than the inode's own area holds.
    fn many_xattrs(&mut self, node: u8) -> Outcome {
        let id = self.node(node);
        if !matches!(self.model.get(id).kind, FileType::Regular | FileType::Directory) {
            return Ok(());
        }
        for n in 0..40u8 {
            let name = format!("user.many-{n}");
            let value = pattern(n + 1, n as usize * 2);
            self.set_xattr(&Cred::ROOT, id, name.as_bytes(), Some(&value), XattrFlags::empty())?;
        }
        Ok(())
    }

    fn set_acl(&mut self, cred: &Cred, node: u8, default: bool, list: Option<u8>) -> Outcome {
        let id = self.node(node);
        let name = if default { acl::DEFAULT } else { acl::ACCESS };
        let value = list.map(|n| acl::encode(&acl::sample(n)));
        let held: usize = self.model.get(id).xattrs.iter().map(|(n, v)| n.len() + v.len() + 24).sum();
        let crowded = value.as_ref().is_some_and(|v| held + name.len() + v.len() + 24 > XATTRS);
        let verdict = self.model.can_set_acl(cred, id, name, value.as_deref());
        let verdict = verdict.might(crowded, ErrorKind::NoSpace).might(crowded, ErrorKind::TooBig);
        let inode = self.inode(id)?;
        let free = self.free_blocks();
        let answer = self.vfs.setxattr(cred, &inode, name, value.as_deref(), XattrFlags::empty());
        if self.judge(verdict, 2, free, answer)?.is_some() {
            self.model.set_acl(id, name, value.as_deref());
        }
        Ok(())
    }
}
