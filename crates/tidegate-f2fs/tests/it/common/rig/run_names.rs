//! Operations on names.

use super::ops::{Op, Place, name};
use super::{Outcome, Rig, text};
use crate::common::posix::{Id, Verdict};
use tidegate_vfs::{Cred, DeviceNumber, ErrorKind, FileType, NewInode, RenameFlags};

/// No deeper directories are made: their paths would be too long.
const DEEPEST: usize = 7;

/// An inode that an operation makes.
struct New {
    kind: FileType,
    mode: u32,
    target: Vec<u8>,
    rdev: DeviceNumber,
}

impl Rig {
    fn new_of(&self, op: &Op, dir: Id) -> New {
        let plain = |kind, mode| New { kind, mode, target: Vec::new(), rdev: DeviceNumber::default() };
        match op {
            Op::Create { mode, .. } => plain(FileType::Regular, *mode),
            Op::Mkdir { mode, .. } => plain(FileType::Directory, *mode),
            Op::Symlink { target, .. } => {
                New { target: self.link_target(*target, dir), ..plain(FileType::Symlink, 0o777) }
            }
            Op::Mknod { kind, rdev, .. } => {
                let rdev = DeviceNumber { major: rdev.0, minor: rdev.1 };
                New { rdev, ..plain(*kind, 0o640) }
            }
            _ => unreachable!("makes nothing"),
        }
    }

    /// A target that is long or short, and exists or not.
    fn link_target(&self, n: u16, dir: Id) -> Vec<u8> {
        let all = self.model.linked();
        let some = all[n as usize % all.len()];
        match n % 7 {
            0 => vec![b'x'; 1 + n as usize % 4095],
            1 => vec![b'y'; 3480 + n as usize % 300],
            2 => name((n / 7) as u8),
            3 => [b"../", &name((n / 7) as u8)[..]].concat(),
            4 => self.model.path(dir),
            _ => self.model.path(some),
        }
    }

    pub(super) fn make(&mut self, op: &Op) -> Outcome {
        let (Op::Create { who, at, .. }
        | Op::Mkdir { who, at, .. }
        | Op::Symlink { who, at, .. }
        | Op::Mknod { who, at, .. }) = op
        else {
            unreachable!("makes nothing")
        };
        let (dir, name) = (self.dir(at.0), name(at.1));
        let new = self.new_of(op, dir);
        if new.kind == FileType::Directory && self.model.depth(dir) >= DEEPEST {
            return Ok(());
        }
        self.make_one(&who.cred(), dir, &name, new)
    }

    fn make_one(&mut self, cred: &Cred, dir: Id, name: &[u8], new: New) -> Outcome {
        let device = matches!(new.kind, FileType::CharDevice | FileType::BlockDevice);
        let mut verdict =
            self.model.can_make(cred, dir, name).might(device && !cred.is_root(), ErrorKind::NotPermitted);
        if new.kind == FileType::Symlink {
            verdict = verdict
                .fails(new.target.is_empty(), ErrorKind::NotFound)
                .fails(new.target.len() >= self.vfs.statfs().block_size as usize, ErrorKind::NameTooLong);
        }
        let inode = self.inode(dir)?;
        let free = self.free_blocks();
        let base = self.vfs.new_inode(cred, new.kind, new.mode);
        let what = NewInode { target: &new.target, rdev: new.rdev, ..base };
        let answer = match new.kind {
            FileType::Symlink => self.vfs.symlink(cred, &inode, name, &new.target),
            FileType::Directory => self.vfs.mkdir(cred, &inode, name, new.mode),
            _ => self.vfs.make(cred, &inode, name, &what),
        };
        if self.judge(verdict, 4, free, answer)?.is_some() {
            let id = self.model.make(cred, dir, name, new.kind, new.mode);
            if device {
                self.model.set_rdev(id, new.rdev);
            }
            if new.kind == FileType::Symlink {
                self.model.set_target(id, &new.target);
            }
        }
        Ok(())
    }

    pub(super) fn link(&mut self, op: &Op) -> Outcome {
        let (cred, id, inode, at) = match op {
            Op::Link { who, node, at } => {
                let id = self.node(*node);
                (who.cred(), id, self.inode(id)?, *at)
            }
            Op::LinkOpen { file, at } => {
                let Some(h) = self.handles.get(*file as usize % self.handles.len().max(1)) else {
                    return Ok(());
                };
                (Cred::ROOT, h.id, h.file.inode().clone(), *at)
            }
            _ => unreachable!("links nothing"),
        };
        let (dir, name) = (self.dir(at.0), name(at.1));
        let verdict = self.model.can_link(&cred, id, dir, &name);
        let parent = self.inode(dir)?;
        let free = self.free_blocks();
        let answer = self.vfs.link(&cred, &inode, &parent, &name);
        if self.judge(verdict, 2, free, answer)?.is_some() {
            self.model.link(id, dir, &name);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, cred: &Cred, at: Place, want_dir: bool) -> Outcome {
        let dir = self.dir(at.0);
        self.remove_one(cred, dir, &name(at.1), want_dir)
    }

    fn remove_one(&mut self, cred: &Cred, dir: Id, name: &[u8], want_dir: bool) -> Outcome {
        let verdict = self.model.can_remove(cred, dir, name, want_dir);
        let parent = self.inode(dir)?;
        let victim = self.vfs.lookup(&parent, name).ok();
        let answer = match want_dir {
            true => self.vfs.rmdir(cred, &parent, name),
            false => self.vfs.unlink(cred, &parent, name),
        };
        // A removal must work however full the volume is.
        if self.judge(verdict, 0, u64::MAX, answer)?.is_some() {
            self.model.remove(dir, name);
            self.ghosts.extend(victim.filter(|_| want_dir));
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, cred: &Cred, from: Place, to: Place, flags: RenameFlags) -> Outcome {
        let (old, new) = ((self.dir(from.0), name(from.1)), (self.dir(to.0), name(to.1)));
        let deepens = self.model.depth(new.0) >= DEEPEST - 2;
        if deepens && old.0 != new.0 {
            return Ok(());
        }
        let verdict = self.model.can_rename(cred, (old.0, &old.1), (new.0, &new.1), flags);
        let (a, b) = (self.inode(old.0)?, self.inode(new.0)?);
        let free = self.free_blocks();
        let answer = self.vfs.rename(cred, (&a, &old.1), (&b, &new.1), flags);
        if self.judge(verdict, 4, free, answer)?.is_some() {
            self.model.rename(cred, (old.0, &old.1), (new.0, &new.1), flags);
        }
        Ok(())
    }

    /// Makes so many names that a directory grows out of its inode, and into several levels of blocks.
    pub(super) fn many(&mut self, at: u8, count: u16, long: bool) -> Outcome {
        let dir = self.dir(at);
        let pad = if long { "p".repeat(200) } else { String::new() };
        for n in 0..count {
            let name = format!("many-{n:03}{pad}");
            if self.model.get(dir).entries.contains_key(name.as_bytes()) {
                continue;
            }
            let new =
                New { kind: FileType::Fifo, mode: 0o600, target: Vec::new(), rdev: DeviceNumber::default() };
            self.make_one(&Cred::ROOT, dir, name.as_bytes(), new)?;
        }
        Ok(())
    }

    pub(super) fn fewer(&mut self, at: u8, step: u8) -> Outcome {
        let dir = self.dir(at);
        let names: Vec<Vec<u8>> = self.model.get(dir).entries.keys().cloned().collect();
        for name in names.into_iter().filter(|n| n.starts_with(b"many-")).step_by(step as usize) {
            self.remove_one(&Cred::ROOT, dir, &name, false)?;
        }
        Ok(())
    }

    /// Nothing can be made in a directory that was removed while it was held open.
    pub(super) fn in_removed(&mut self, n: u8) -> Outcome {
        let Some(ghost) = self.ghosts.get(n as usize % self.ghosts.len().max(1)).cloned() else {
            return Ok(());
        };
        let v = || {
            let long = name(n).len() > 255;
            Verdict::default().fails(true, ErrorKind::NotFound).might(long, ErrorKind::NameTooLong)
        };
        let made = self.vfs.create(&Cred::ROOT, &ghost, &name(n), 0o600);
        self.judge(v(), 0, u64::MAX, made)?;
        let found = self.vfs.lookup(&ghost, &name(n));
        self.judge(v(), 0, u64::MAX, found)?;
        Ok(())
    }

    /// Reads a directory in pieces, as getdents does.
    pub(super) fn list(&mut self, at: u8) -> Outcome {
        let dir = self.dir(at);
        let inode = self.inode(dir)?;
        let (mut pos, mut names) = (0, Vec::new());
        loop {
            let mut left = 5;
            let before = names.len();
            let list = self.vfs.readdir(&inode, pos, &mut |e| {
                pos = e.next;
                names.push(e.name);
                left -= 1;
                left > 0
            });
            list.map_err(text("readdir"))?;
            if names.len() == before {
                break;
            }
        }
        names.retain(|n| n != b"." && n != b"..");
        names.sort();
        let want: Vec<Vec<u8>> = self.model.get(dir).entries.keys().cloned().collect();
        match names == want {
            true => Ok(()),
            false => Err(format!("listed in pieces: {} names, should be {}", names.len(), want.len())),
        }
    }
}
