//! Compares a mounted tree with the model of it.

use crate::common::posix::{Id, Model};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidegate_vfs::{Cred, ErrorKind, FileType, Ino, Inode, OpenFlags, SeekTarget, Vfs};

type Check = Result<(), String>;

/// The inodes that the walk has seen: their numbers correspond to the model's inodes one to one.
pub struct Comparison<'a> {
    vfs: &'a Arc<Vfs>,
    model: &'a Model,
    crtime: bool,
    known: HashMap<Id, Ino>,
    taken: HashMap<Ino, Id>,
}

impl<'a> Comparison<'a> {
    pub fn new(vfs: &'a Arc<Vfs>, model: &'a Model, crtime: bool) -> Self {
        Comparison { vfs, model, crtime, known: HashMap::new(), taken: HashMap::new() }
    }

    /// Compares everything from `top` down with the model's `id`.
    pub fn tree(&mut self, top: &Arc<Inode>, id: Id) -> Check {
        if !self.first_visit(top, id)? {
            return Ok(());
        }
        let at = || String::from_utf8_lossy(&self.model.path(id)).into_owned();
        self.inode(top, id).map_err(|e| format!("{}: {e}", at()))?;
        if top.is_dir() {
            self.directory(top, id).map_err(|e| format!("{}: {e}", at()))?;
        }
        Ok(())
    }

    fn first_visit(&mut self, inode: &Inode, id: Id) -> Result<bool, String> {
        let (known, taken) = (self.known.insert(id, inode.ino), self.taken.insert(inode.ino, id));
        match (known, taken) {
            (None, None) => Ok(true),
            (Some(k), Some(t)) if k == inode.ino && t == id => Ok(false),
            _ => {
                Err(format!("hard links: {id:?} is inode {} here, {known:?} and {taken:?} before", inode.ino))
            }
        }
    }

    fn directory(&mut self, dir: &Arc<Inode>, id: Id) -> Check {
        let mut dots = 0;
        let mut found: BTreeMap<Vec<u8>, (Ino, Option<FileType>)> = BTreeMap::new();
        let mut twice = None;
        let list = self.vfs.readdir(dir, 0, &mut |e| {
            match &e.name[..] {
                b"." if e.ino == dir.ino => dots += 1,
                b".." => dots += 1,
                _ => {
                    if found.insert(e.name.clone(), (e.ino, e.file_type)).is_some() {
                        twice = Some(e.name);
                    }
                }
            }
            true
        });
        list.map_err(|e| format!("readdir: {e}"))?;
        let want = &self.model.get(id).entries;
        let (a, b): (Vec<_>, Vec<_>) = (found.keys().collect(), want.keys().collect());
        if dots != 2 || twice.is_some() || a != b {
            return Err(format!("{dots} dots, twice {twice:?}; lists {} names, not {}", a.len(), b.len()));
        }
        for (name, child) in want {
            let inode = self.vfs.lookup(dir, name).map_err(|e| format!("lookup {name:?}: {e}"))?;
            let kind = self.model.get(*child).kind;
            if found[name] != (inode.ino, Some(kind)) {
                return Err(format!("{name:?} is listed as {:?}, found as {inode:?}", found[name]));
            }
            self.tree(&inode, *child)?;
        }
        Ok(())
    }

    /// Compares one inode: attributes, content, extended attributes.
    pub fn inode(&self, inode: &Arc<Inode>, id: Id) -> Check {
        self.attributes(inode, id)?;
        self.xattrs(inode, id)?;
        match self.model.get(id).kind {
            FileType::Regular => self.content(inode, id),
            FileType::Symlink => {
                let target = self.vfs.readlink(inode).map_err(|e| format!("readlink: {e}"))?;
                same("target", &target, &self.model.get(id).target)
            }
            _ => Ok(()),
        }
    }

    pub fn attributes(&self, inode: &Inode, id: Id) -> Check {
        let (a, n) = (inode.attr().clone(), self.model.get(id));
        same("type", &a.file_type, &n.kind)?;
        let mask = !n.loose_mode;
        same("mode", &format!("{:04o}", a.mode & mask), &format!("{:04o}", n.mode & mask))?;
        same("owner", &(a.uid, a.gid), &(n.uid, n.gid))?;
        same("nlink", &a.nlink, &n.nlink)?;
        if !n.is_dir() {
            same("size", &a.size, &n.size)?;
        }
        for (what, is, want) in
            [("atime", a.atime, n.atime), ("mtime", a.mtime, n.mtime), ("ctime", a.ctime, n.ctime)]
        {
            same(what, &is, &want.unwrap_or(is))?;
        }
        if self.crtime {
            same("crtime", &a.crtime, &n.crtime.or(a.crtime))?;
        }
        if matches!(n.kind, FileType::CharDevice | FileType::BlockDevice) {
            same("rdev", &a.rdev, &n.rdev)?;
        }
        Ok(())
    }

    fn xattrs(&self, inode: &Inode, id: Id) -> Check {
        let mut names = self.vfs.listxattr(&Cred::ROOT, inode).map_err(|e| format!("listxattr: {e}"))?;
        names.sort();
        let want = &self.model.get(id).xattrs;
        same("attribute names", &names, &want.keys().cloned().collect())?;
        for (name, value) in want {
            let is = self.vfs.getxattr(&Cred::ROOT, inode, name).map_err(|e| format!("{name:?}: {e}"))?;
            same(&format!("attribute {name:?}"), &is, value)?;
        }
        Ok(())
    }

    /// Compares every range that the file reports as data, and checks that none of the model's data lies
    /// outside.
    fn content(&self, inode: &Arc<Inode>, id: Id) -> Check {
        let flags = OpenFlags::READ | OpenFlags::NOATIME;
        let file = self.vfs.open(&Cred::ROOT, inode, flags).map_err(|e| format!("open: {e}"))?;
        let (size, block) = (self.model.get(id).size, self.vfs.fs().block_size());
        let mut pos = 0;
        while pos < size {
            let found = file.seek(pos, SeekTarget::Data).map_err(|e| e.kind());
            self.model.judge_seek(id, block, pos, SeekTarget::Data, found)?;
            let start = match found {
                Ok(start) => start,
                Err(ErrorKind::NoDeviceOrAddress) => break,
                Err(e) => return Err(format!("seek: {e:?}")),
            };
            let hole = file.seek(start, SeekTarget::Hole).map_err(|e| e.kind());
            self.model.judge_seek(id, block, start, SeekTarget::Hole, hole)?;
            let end = hole.map_err(|e| format!("seek: {e:?}"))?;
            self.range(&file, id, start, end)?;
            pos = end.max(start + 1);
        }
        // The ranges around the end and across holes are compared by reads, too.
        let tail = size.saturating_sub(5000);
        self.range(&file, id, tail, size)?;
        self.range(&file, id, 0, size.min(10_000))
    }

    fn range(&self, file: &tidegate_vfs::File, id: Id, start: u64, end: u64) -> Check {
        let mut at = start;
        let mut buf = vec![0; 256 << 10];
        while at < end {
            let want = ((end - at) as usize).min(buf.len());
            let n = file.read_at(at, &mut buf[..want]).map_err(|e| format!("read at {at}: {e}"))?;
            same("bytes read", &n, &want)?;
            bytes(at, &buf[..n], &self.model.read(id, at, n))?;
            at += n as u64;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, want: &T) -> Check {
    if is == want {
        return Ok(());
    }
    let short = |v: &T| format!("{v:?}").chars().take(300).collect::<String>();
    Err(format!("{what} is {}, should be {}", short(is), short(want)))
}

/// Compares content; the error gives the first difference.
pub fn bytes(pos: u64, is: &[u8], want: &[u8]) -> Check {
    if is.len() != want.len() {
        return Err(format!("{} bytes at {pos}, should be {}", is.len(), want.len()));
    }
    match is.iter().zip(want).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => {
            let until = is[i..].iter().zip(&want[i..]).take_while(|(a, b)| a != b).count();
            let at = pos + i as u64;
            Err(format!("content at {at}: {until} bytes differ: {} should be {}", is[i], want[i]))
        }
    }
}
