//! Finds where things go: the directories of the volume that an import has to do with.

use super::{DirId, Place, Target};
use crate::error::Result;
use crate::node::Meta;
use crate::paths::join;
use crate::volume::Volume;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_vfs::{Cred, ErrorKind, FileType, Inode, NewInode, acl};

/// Directories that are found by path keep so many in memory.
const CACHED_PATHS: usize = 8192;

/// A directory that things go into.
#[derive(Clone)]
pub struct Dir {
    /// The directory.
    pub inode: Arc<Inode>,
    /// Its path in the volume, for errors.
    pub path: Vec<u8>,
    /// It gives what is made in it an ACL.
    pub has_default_acl: bool,
}

/// A name in a directory.
pub struct Spot {
    /// The directory.
    pub dir: Dir,
    /// The name; empty for the directory itself.
    pub name: Vec<u8>,
}

impl Spot {
    /// Its path in the volume.
    pub fn path(&self) -> Vec<u8> {
        join(&self.dir.path, &self.name)
    }
}

/// See the module.
pub struct Places<'a> {
    volume: &'a Volume,
    target: Dir,
    name: Option<Vec<u8>>,
    /// Directories of a tree that are being filled, with what is set when they are left.
    open: HashMap<DirId, (Dir, Meta)>,
    /// Directories of a tar, by path.
    paths: HashMap<Vec<u8>, Dir>,
}

impl<'a> Places<'a> {
    /// Places below `target`.
    pub fn new(volume: &'a Volume, target: Target) -> Self {
        let has_default_acl = has_default_acl(volume, &target.dir);
        let dir = Dir { inode: target.dir, path: target.path, has_default_acl };
        Places { volume, target: dir, name: target.name, open: HashMap::new(), paths: HashMap::new() }
    }

    /// Where `place` is. Directories missing on the way to a path are made.
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

    /// A directory of a tree begins.
    pub fn enter(&mut self, id: DirId, dir: Dir, meta: Meta) {
        self.open.insert(id, (dir, meta));
    }

    /// It is full.
    pub fn leave(&mut self, id: DirId) -> Option<(Dir, Meta)> {
        self.open.remove(&id)
    }

    /// The inode at a path below the target, links in its directories followed.
    ///
    /// # Errors
    /// It is missing.
    pub fn lookup(&mut self, path: &[u8]) -> Result<Arc<Inode>> {
        self.volume.resolve(&join(&self.target.path, path), false)
    }

    /// Forgets a directory that was found by path: it may have gone.
    pub fn forget(&mut self) {
        self.paths.clear();
    }

    fn dir_at(&mut self, path: &[u8]) -> Result<Dir> {
        if path.is_empty() {
            return Ok(self.target.clone());
        }
        if let Some(d) = self.paths.get(path) {
            return Ok(d.clone());
        }
        let full = join(&self.target.path, path);
        let inode = match self.volume.find(&full, true)? {
            Some(i) => i,
            None => self.implied(path, &full)?,
        };
        if !inode.is_dir() {
            return Err(self.volume.error_at(&full, ErrorKind::NotADirectory.into()));
        }
        let has_default_acl = has_default_acl(self.volume, &inode);
        let dir = Dir { inode, path: full, has_default_acl };
        if self.paths.len() >= CACHED_PATHS {
            self.paths.clear();
        }
        self.paths.insert(path.to_vec(), dir.clone());
        Ok(dir)
    }

    /// Makes a directory that a tar has names below, but (so far) no entry for. The depth is that of a
    /// path, so going down by recursion is bounded.
    fn implied(&mut self, path: &[u8], full: &[u8]) -> Result<Arc<Inode>> {
        let at = path.iter().rposition(|&b| b == b'/');
        let parent = self.dir_at(&path[..at.unwrap_or(0)])?;
        let vfs = self.volume.vfs();
        let meta = Meta::plain_dir(vfs.now());
        let new = NewInode {
            file_type: FileType::Directory,
            mode: meta.mode,
            uid: 0,
            gid: 0,
            rdev: meta.rdev,
            target: b"",
            time: meta.mtime,
        };
        vfs.make(&Cred::ROOT, &parent.inode, &path[at.map_or(0, |i| i + 1)..], &new)
            .map_err(|e| self.volume.error_at(full, e))
    }
}

/// Whether what is made in `dir` gets an ACL from it.
pub fn has_default_acl(volume: &Volume, dir: &Inode) -> bool {
    volume.vfs().getxattr(&Cred::ROOT, dir, acl::DEFAULT).is_ok()
}
