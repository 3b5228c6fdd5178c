//! Recovering the name of a file that no checkpoint has.

use super::RollForward;
use crate::format::raw::*;
use crate::inode::{NodeId, fi, name_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::{Error, Inode, Result};

impl RollForward<'_> {
    /// Gives `inode` the name and the directory that its node says. A file that has this name in the
    /// checkpoint was removed before `inode` was made.
    pub(super) fn recover_name(&mut self, inode: &Arc<Inode>, page: &[u8]) -> Result<()> {
        let fs = self.fs;
        let ino = inode.nid().0;
        let pino = RawInode::of(page).i_pino.get();
        let possible = |n: &&[u8]| !matches!(*n, b"" | b"." | b"..") && !n.iter().any(|b| b"/\0".contains(b));
        let name = name_of(page).filter(possible).ok_or_else(|| Error::corrupt("it has no possible name"))?;
        let dir = self.directory(pino)?;
        let now = inode.attr().ctime;
        if let Some(place) = fs.find_entry(&dir, name)? {
            if place.ino == ino {
                return Ok(());
            }
            let other = match self.dirs.get(&place.ino) {
                Some(d) => d.clone(),
                None => self.load(place.ino)?,
            };
            if other.is_dir() && !fs.dir_is_empty(&other)? {
                let what = String::from_utf8_lossy(name).into_owned();
                return Err(Error::corrupt(format!(
                    "its name \"{what}\" belongs to a directory that is not empty"
                )));
            }
            fs.remove_entry(&dir, place, name)?;
            fs.drop_link(&dir, &other, now)?;
            if other.nlink() == 0 {
                other.mapping.remove(0, u64::MAX);
                fs.evict(&other)?;
                self.dirs.remove(&place.ino);
            }
        }
        fs.add_entry(&dir, name, ino, file_type::REG_FILE)?;
        {
            let mut a = dir.attr();
            (a.mtime, a.ctime) = (now, now);
        }
        fs.store_inode(&dir)?;
        fi(inode).pino.store(pino, Relaxed);
        fs.store_inode(inode)
    }

    fn directory(&mut self, ino: u32) -> Result<Arc<Inode>> {
        if let Some(d) = self.dirs.get(&ino) {
            return Ok(d.clone());
        }
        let d = self.load(ino).map_err(|e| e.of("its directory"))?;
        if !d.is_dir() {
            return Err(Error::corrupt("no directory, but the parent of a fsynced inode").in_inode(ino));
        }
        self.dirs.insert(ino, d.clone());
        Ok(d)
    }
}
