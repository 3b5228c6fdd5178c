//! Names: creation, links, removal, renames, path resolution.

use super::{Id, Model, ROOT, Verdict, W, X, acl};
use tidegate_vfs::{Cred, DeviceNumber, ErrorKind, FileType, RenameFlags};

const SETGID: u32 = 0o2000;

/// The result of a path resolution.
pub enum Resolved {
    Found(Id),
    /// The last name is missing in an existing directory.
    Missing(Id, Vec<u8>),
    Fails(ErrorKind),
}

impl Model {
    fn name_errors(&self, v: Verdict, name: &[u8]) -> Verdict {
        v.fails(name.len() > 255, ErrorKind::NameTooLong)
    }

    fn entry(&self, dir: Id, name: &[u8]) -> Option<Id> {
        self.get(dir).entries.get(name).copied()
    }

    /// Whether `name` may be made in `dir`.
    pub fn can_make(&self, cred: &Cred, dir: Id, name: &[u8]) -> Verdict {
        self.name_errors(Verdict::default(), name)
            .fails(self.entry(dir, name).is_some(), ErrorKind::Exists)
            .fails(!self.may(cred, dir, W | X), ErrorKind::PermissionDenied)
    }

    /// Makes an inode that [`Model::can_make`] allows.
    pub fn make(&mut self, cred: &Cred, dir: Id, name: &[u8], kind: FileType, mode: u32) -> Id {
        let (dir_mode, dir_gid) = (self.get(dir).mode, self.get(dir).gid);
        let mut node = self.blank(kind, mode & 0o7777, cred.uid, cred.gid);
        if dir_mode & SETGID != 0 {
            node.gid = dir_gid;
            if kind == FileType::Directory {
                node.mode |= SETGID;
            } else if node.mode & 0o2010 == 0o2010 && !cred.is_root() && !cred.in_group(dir_gid) {
                node.mode &= !SETGID;
            }
        }
        if kind != FileType::Symlink
            && let Some(default) = self.get(dir).xattrs.get(acl::DEFAULT)
        {
            let list = acl::inherit(&acl::decode(default), node.mode);
            node.mode = node.mode & !0o777 | acl::mode(&list);
            if !acl::is_trivial(&list) {
                node.xattrs.insert(acl::ACCESS.to_vec(), acl::encode(&list));
            }
            if kind == FileType::Directory {
                node.xattrs.insert(acl::DEFAULT.to_vec(), default.clone());
            }
        }
        node.parent = dir;
        node.links.insert((dir, name.to_vec()));
        let is_dir = kind == FileType::Directory;
        if is_dir {
            node.nlink = 2;
        }
        let id = Id(self.nodes.len());
        self.nodes.push(node);
        self.get_mut(dir).entries.insert(name.to_vec(), id);
        if is_dir {
            self.get_mut(dir).nlink += 1;
        }
        self.touch(dir, true);
        id
    }

    pub fn set_target(&mut self, id: Id, target: &[u8]) {
        let n = self.get_mut(id);
        n.target = target.to_vec();
        n.size = target.len() as u64;
        n.loose_mode = 0o7777; // the mode of a symbolic link is not compared
    }

    pub fn set_rdev(&mut self, id: Id, rdev: DeviceNumber) {
        self.get_mut(id).rdev = rdev;
    }

    pub fn can_link(&self, cred: &Cred, id: Id, dir: Id, name: &[u8]) -> Verdict {
        self.can_make(cred, dir, name)
            .fails(self.get(id).is_dir(), ErrorKind::NotPermitted)
            .fails(!self.is_linked(id), ErrorKind::NotFound)
    }

    pub fn link(&mut self, id: Id, dir: Id, name: &[u8]) {
        self.get_mut(dir).entries.insert(name.to_vec(), id);
        let n = self.get_mut(id);
        n.links.insert((dir, name.to_vec()));
        n.nlink += 1;
        self.touch(id, false);
        self.touch(dir, true);
    }

    /// Errors of removing `victim`'s name from `dir`.
    fn may_delete(&self, v: Verdict, cred: &Cred, dir: Id, victim: Id) -> Verdict {
        let sticky = self.get(dir).mode & 0o1000 != 0;
        let kept = sticky && !self.is_owner(cred, dir) && !self.is_owner(cred, victim);
        v.fails(!self.may(cred, dir, W | X), ErrorKind::PermissionDenied).fails(kept, ErrorKind::NotPermitted)
    }

    pub fn can_remove(&self, cred: &Cred, dir: Id, name: &[u8], want_dir: bool) -> Verdict {
        let v = self.name_errors(Verdict::default(), name);
        let Some(id) = self.entry(dir, name) else {
            let closed = !self.may(cred, dir, W | X);
            return v.fails(true, ErrorKind::NotFound).might(closed, ErrorKind::PermissionDenied);
        };
        let n = self.get(id);
        self.may_delete(v, cred, dir, id)
            .fails(want_dir && !n.is_dir(), ErrorKind::NotADirectory)
            .fails(!want_dir && n.is_dir(), ErrorKind::IsADirectory)
            .fails(want_dir && !n.entries.is_empty(), ErrorKind::NotEmpty)
    }

    /// Removes a name; returns its inode.
    pub fn remove(&mut self, dir: Id, name: &[u8]) -> Id {
        let id = self.get_mut(dir).entries.remove(name).expect("the model was asked first");
        let is_dir = self.get(id).is_dir();
        let n = self.get_mut(id);
        n.links.remove(&(dir, name.to_vec()));
        n.nlink -= if is_dir { 2 } else { 1 };
        if is_dir {
            self.get_mut(dir).nlink -= 1;
        }
        self.touch(id, false);
        self.touch(dir, true);
        id
    }

    pub fn can_rename(
        &self,
        cred: &Cred,
        (old_dir, old_name): (Id, &[u8]),
        (new_dir, new_name): (Id, &[u8]),
        flags: RenameFlags,
    ) -> Verdict {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let noreplace = flags.contains(RenameFlags::NOREPLACE);
        let v = self.name_errors(self.name_errors(Verdict::default(), old_name), new_name);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let v = v.fails(exchange && (noreplace || whiteout), ErrorKind::InvalidArgument);
        let (source, target) = (self.entry(old_dir, old_name), self.entry(new_dir, new_name));
        let v = v
            .fails(source.is_none(), ErrorKind::NotFound)
            .fails(exchange && target.is_none(), ErrorKind::NotFound)
            .fails(noreplace && target.is_some(), ErrorKind::Exists);
        let Some(source) = source else {
            let closed = !self.may(cred, old_dir, W | X) || !self.may(cred, new_dir, W | X);
            return v.might(closed, ErrorKind::PermissionDenied);
        };
        let access = self.may_delete(Verdict::default(), cred, old_dir, source);
        let access = match target {
            Some(t) => self.may_delete(access, cred, new_dir, t),
            None => access.fails(!self.may(cred, new_dir, W | X), ErrorKind::PermissionDenied),
        };
        if target == Some(source) && v.is_ok() {
            // Nothing is to be done; POSIX leaves open whether permissions are checked.
            return Verdict { must: Vec::new(), may: access.must };
        }
        let mut v = v;
        v.must.extend(access.must);
        self.rename_shape(v, cred, (old_dir, source), (new_dir, target), exchange)
    }

    /// Errors that follow from the types of the two ends.
    fn rename_shape(
        &self,
        v: Verdict,
        cred: &Cred,
        (old_dir, source): (Id, Id),
        (new_dir, target): (Id, Option<Id>),
        exchange: bool,
    ) -> Verdict {
        let s = self.get(source);
        let locked = |id: Id| self.get(id).is_dir() && old_dir != new_dir && !self.may(cred, id, W);
        let into_itself = s.is_dir() && self.is_within(new_dir, source);
        let v = v
            .fails(into_itself, ErrorKind::InvalidArgument)
            .might(locked(source), ErrorKind::PermissionDenied);
        let Some(t) = target else { return v };
        let below_target = self.get(t).is_dir() && self.is_within(old_dir, t);
        if exchange {
            return v
                .fails(below_target, ErrorKind::InvalidArgument)
                .might(locked(t), ErrorKind::PermissionDenied);
        }
        let t = self.get(t);
        v.fails(s.is_dir() && !t.is_dir(), ErrorKind::NotADirectory)
            .fails(!s.is_dir() && t.is_dir(), ErrorKind::IsADirectory)
            .fails(t.is_dir() && !t.entries.is_empty(), ErrorKind::NotEmpty)
            .might(below_target, ErrorKind::NotEmpty)
    }

    /// Renames as [`Model::can_rename`] allows.
    pub fn rename(
        &mut self,
        cred: &Cred,
        (old_dir, old_name): (Id, &[u8]),
        (new_dir, new_name): (Id, &[u8]),
        flags: RenameFlags,
    ) {
        let source = self.entry(old_dir, old_name).expect("the model was asked first");
        let target = self.entry(new_dir, new_name);
        if target == Some(source) {
            return;
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if target.is_some() && !exchange {
            self.remove(new_dir, new_name);
        }
        self.detach(old_dir, old_name, source);
        if let Some(t) = target.filter(|_| exchange) {
            self.detach(new_dir, new_name, t);
            self.attach(old_dir, old_name, t, new_dir);
            self.get_mut(t).ctime = None;
        }
        self.attach(new_dir, new_name, source, old_dir);
        self.touch(source, false);
        if exchange {
            self.get_mut(source).ctime = None; // systems differ on whether an exchange counts as a change
        }
        self.touch(old_dir, true);
        self.touch(new_dir, true);
        if flags.contains(RenameFlags::WHITEOUT) {
            self.leave_whiteout(cred, old_dir, old_name);
        }
    }

    /// Makes a whiteout at a name that was just given up.
    fn leave_whiteout(&mut self, cred: &Cred, dir: Id, name: &[u8]) {
        let d = self.get(dir);
        let gid = if d.mode & SETGID != 0 { d.gid } else { cred.gid };
        let mut node = self.blank(FileType::CharDevice, 0, cred.uid, gid);
        node.parent = dir;
        node.links.insert((dir, name.to_vec()));
        let id = Id(self.nodes.len());
        self.nodes.push(node);
        self.get_mut(dir).entries.insert(name.to_vec(), id);
    }

    fn detach(&mut self, dir: Id, name: &[u8], id: Id) {
        self.get_mut(dir).entries.remove(name);
        self.get_mut(id).links.remove(&(dir, name.to_vec()));
        if self.get(id).is_dir() {
            self.get_mut(dir).nlink -= 1;
        }
    }

    fn attach(&mut self, dir: Id, name: &[u8], id: Id, from: Id) {
        self.get_mut(dir).entries.insert(name.to_vec(), id);
        let n = self.get_mut(id);
        n.links.insert((dir, name.to_vec()));
        if !n.is_dir() {
            return;
        }
        n.parent = dir;
        if from != dir {
            n.mtime = None; // ".." changed; systems differ on whether that counts
        }
        self.get_mut(dir).nlink += 1;
    }

    /// Follows an absolute path as `cred`.
    pub fn resolve(&self, cred: &Cred, path: &[u8], follow: bool) -> Resolved {
        self.walk(cred, ROOT, path, follow, &mut 0)
    }

    fn walk(&self, cred: &Cred, from: Id, path: &[u8], follow: bool, links: &mut u32) -> Resolved {
        let mut at = if path.starts_with(b"/") { ROOT } else { from };
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            if !self.get(at).is_dir() {
                return Resolved::Fails(ErrorKind::NotADirectory);
            }
            if !self.may(cred, at, X) {
                return Resolved::Fails(ErrorKind::PermissionDenied);
            }
            if *part == b"." {
                continue;
            }
            if *part == b".." {
                at = self.get(at).parent;
                continue;
            }
            if part.len() > 255 {
                return Resolved::Fails(ErrorKind::NameTooLong);
            }
            let Some(next) = self.entry(at, part) else {
                return if last {
                    Resolved::Missing(at, part.to_vec())
                } else {
                    Resolved::Fails(ErrorKind::NotFound)
                };
            };
            if self.get(next).kind != FileType::Symlink || last && !follow {
                at = next;
                continue;
            }
            *links += 1;
            if *links > 40 {
                return Resolved::Fails(ErrorKind::TooManySymlinks);
            }
            let target = self.get(next).target.clone();
            match self.walk(cred, at, &target, true, links) {
                Resolved::Found(id) => at = id,
                Resolved::Missing(..) if !last => return Resolved::Fails(ErrorKind::NotFound),
                end => return end,
            }
        }
        Resolved::Found(at)
    }
}
