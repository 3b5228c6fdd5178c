//! A change of attributes for a file and all files below it.

use crate::error::{Error, Result};
use crate::trail::{Met, Trail};
use crate::volume::Volume;
use std::sync::Arc;
use tidegate_vfs::{Cred, DirEntry, Inode, SetAttr};

/// A directory of which some entries are still to be visited.
struct Level {
    dir: Arc<Inode>,
    rest: std::vec::IntoIter<DirEntry>,
    at: Trail,
}

impl Volume {
    /// Sets attributes of the file at `path`, and with `below` of all files below it: those that `change` gives for each.
    /// A link at the end of `path` is followed when `follow` says so, and links below are not. A directory comes before
    /// its content. An obstacle is handed to `failed`, and the rest is done.
    pub fn set_each(
        &self,
        path: &[u8],
        (follow, below): (bool, bool),
        change: &dyn Fn(&Inode) -> Option<SetAttr>,
        failed: &mut dyn FnMut(Error),
    ) {
        let set = |inode: &Arc<Inode>, at: &Trail| match change(inode) {
            Some(set) => {
                self.vfs().setattr(&Cred::ROOT, inode, &set).map_err(|e| self.error_at(&at.path(), e))
            }
            None => Ok(()),
        };
        let (mut met, mut stack) = (Met::default(), Vec::new());
        let top = Trail::new(path);
        match self.resolve(path, follow) {
            Ok(inode) => {
                let _ = set(&inode, &top).map_err(&mut *failed);
                if below && inode.is_dir() {
                    stack.extend(self.enter(&mut met, inode, top).map_err(&mut *failed));
                }
            }
            Err(e) => failed(e),
        }
        while let Some(level) = stack.last_mut() {
            let Some(entry) = level.rest.next() else {
                stack.pop();
                continue;
            };
            let at = level.at.below(&entry.name);
            let inode = match self.vfs().lookup(&level.dir, &entry.name) {
                Ok(inode) => inode,
                Err(e) => {
                    failed(self.error_at(&at.path(), e));
                    continue;
                }
            };
            let _ = set(&inode, &at).map_err(&mut *failed);
            if inode.is_dir() {
                stack.extend(self.enter(&mut met, inode, at).map_err(&mut *failed));
            }
        }
    }

    fn enter(&self, met: &mut Met, dir: Arc<Inode>, at: Trail) -> Result<Level> {
        met.enter(self, &dir, &at)?;
        let entries = self.list_dir(&dir).map_err(|e| self.error_at(&at.path(), e))?;
        Ok(Level { dir, rest: entries.into_iter(), at })
    }
}
