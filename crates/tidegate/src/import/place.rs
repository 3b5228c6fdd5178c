//! Finds the places of items: the directories of the volume that an import uses.

use super::{DirId, Place, Target};
use crate::error::Result;
use crate::node::Meta;
use crate::trail::Trail;
use crate::volume::Volume;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_vfs::{Cred, ErrorKind, FileType, Inode, NewInode, acl};

/// The most directories found by path that are kept in memory.
const CACHED_PATHS: usize = 8192;

/// A directory that things go into.
#[derive(Clone)]
pub struct Dir {
    /// The directory.
    pub inode: Arc<Inode>,
    /// Its path in the volume, for errors.
    pub at: Trail,
    /// Files that are made in it get an ACL from it.
    pub has_default_acl: bool,
}

/// A name in a directory.
pub struct Spot {
    /// The directory.
    pub dir: Dir,
    /// The name. Empty for the directory itself.
    pub name: Vec<u8>,
}

impl Spot {
    /// The path in the volume.
    pub fn at(&self) -> Trail {
        if self.name.is_empty() { self.dir.at.clone() } else { self.dir.at.below(&self.name) }
    }
}

/// The directories of the volume that an import uses.
pub struct Places<'a> {
    volume: &'a Volume,
    target: Dir,
    name: Option<Vec<u8>>,
    /// Directories of a tree that are being filled, with the attributes to set at their end.
    open: HashMap<DirId, (Dir, Meta)>,
    /// Directories of a tar, by path.
    paths: HashMap<Vec<u8>, Dir>,
    /// The user and group of directories that a tar does not name.
    owner: (u32, u32),
}

impl<'a> Places<'a> {
    /// Places below `target`. Directories that no item names belong to `owner`.
    pub fn new(volume: &'a Volume, target: Target, owner: (u32, u32)) -> Self {
        let has_default_acl = has_default_acl(volume, &target.dir);
        let dir = Dir { inode: target.dir, at: Trail::new(&target.path), has_default_acl };
        Places { volume, target: dir, name: target.name, open: HashMap::new(), paths: HashMap::new(), owner }
    }

    /// The spot of `place`. Missing directories on the way to a path are made.
    ///
    /// # Errors
    /// Something on the way is no directory.
    pub fn find(&mut self, place: Place) -> Result<Spot> {
        match place {
            Place::Root => Ok(Spot { dir: self.target.clone(), name: self.name.clone().unwrap_or_default() }),
            Place::In(id, name) => {
                Ok(Spot { dir: self.open.get(&id).expect("announced before").0.clone(), name })
            }
            Place::Path(path) => {
                let at = path.iter().rposition(|&b| b == b'/');
                let dir = self.dir_at(&path[..at.unwrap_or(0)])?;
                Ok(Spot { dir, name: path[at.map_or(0, |i| i + 1)..].to_vec() })
            }
        }
    }

    /// Begins a directory of a tree.
    pub fn enter(&mut self, id: DirId, dir: Dir, meta: Meta) {
        self.open.insert(id, (dir, meta));
    }

    /// Ends a directory of a tree.
    pub fn leave(&mut self, id: DirId) -> Option<(Dir, Meta)> {
        self.open.remove(&id)
    }

    /// The inode at a path below the target. Links in its directories are followed.
    ///
    /// # Errors
    /// It is missing.
    pub fn lookup(&mut self, path: &[u8]) -> Result<Arc<Inode>> {
        let at = path.iter().rposition(|&b| b == b'/');
        let dir = self.dir_at(&path[..at.unwrap_or(0)])?;
        let name = &path[at.map_or(0, |i| i + 1)..];
        self.volume.vfs().lookup(&dir.inode, name).map_err(|e| self.volume.error_at(path, e))
    }

    /// Forgets the directories that were found by path: one may have been replaced.
    pub fn forget(&mut self) {
        self.paths.clear();
    }

    /// The directory at a path below the target, resolved from the nearest known directory: the path may be
    /// longer than the volume resolves at once.
    fn dir_at(&mut self, path: &[u8]) -> Result<Dir> {
        if path.is_empty() {
            return Ok(self.target.clone());
        }
        if let Some(d) = self.paths.get(path) {
            return Ok(d.clone());
        }
        let ends =
            |p: &[u8]| p.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).collect::<Vec<_>>();
        let mut ends = ends(path);
        ends.push(path.len());
        let known = ends.iter().rposition(|&end| self.paths.contains_key(&path[..end]));
        let mut dir = known.map_or_else(|| self.target.clone(), |i| self.paths[&path[..ends[i]]].clone());
        let first = known.map_or(0, |i| i + 1);
        for i in first..ends.len() {
            let start = if i == 0 { 0 } else { ends[i - 1] + 1 };
            dir = self.below(&dir, &path[start..ends[i]])?;
            if self.paths.len() >= CACHED_PATHS {
                self.paths.clear();
            }
            self.paths.insert(path[..ends[i]].to_vec(), dir.clone());
        }
        Ok(dir)
    }

    /// The directory `name` in `dir`. A missing one is made, and a link is followed.
    fn below(&self, dir: &Dir, name: &[u8]) -> Result<Dir> {
        let at = dir.at.below(name);
        let inode = match self.volume.vfs().lookup(&dir.inode, name) {
            Ok(i) if i.file_type == FileType::Symlink => self.volume.resolve(&at.path(), true)?,
            Ok(i) => i,
            Err(e) if e.kind() == ErrorKind::NotFound => self.implied(dir, name, &at)?,
            Err(e) => return Err(self.volume.error_at(&at.path(), e)),
        };
        if !inode.is_dir() {
            return Err(self.volume.error_at(&at.path(), ErrorKind::NotADirectory.into()));
        }
        let has_default_acl = has_default_acl(self.volume, &inode);
        Ok(Dir { inode, at, has_default_acl })
    }

    /// Makes a directory for which the tar has (so far) no entry, but names below it.
    fn implied(&self, dir: &Dir, name: &[u8], at: &Trail) -> Result<Arc<Inode>> {
        let vfs = self.volume.vfs();
        let meta = Meta::plain_dir(vfs.now());
        let new = NewInode {
            file_type: FileType::Directory,
            mode: meta.mode,
            dir_flags: 0,
            umask: 0,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: meta.rdev,
            target: b"",
            time: meta.mtime,
        };
        vfs.make(&Cred::ROOT, &dir.inode, name, &new).map_err(|e| self.volume.error_at(&at.path(), e))
    }
}

/// Whether files that are made in `dir` get an ACL from it.
pub fn has_default_acl(volume: &Volume, dir: &Inode) -> bool {
    volume.vfs().getxattr(&Cred::ROOT, dir, acl::DEFAULT).is_ok()
}
