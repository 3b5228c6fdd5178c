//! Changes of names. A name that is there already, or gone already, is no error: a kernel that was stopped in
//! the middle of its own replay leaves such names.

use super::changes::Changes;
use crate::dir::change::NewEntry;
use crate::format::gate::rule;
use crate::inode::{ei, own};
use std::sync::Arc;
use tidegate_jbd2::format::fc::FcName;
use tidegate_vfs::{Error, Inode, Result};

impl Changes<'_> {
    /// Gives an inode, whose fields are set, its first name.
    pub(super) fn creat(&mut self, name: &FcName) -> Result<()> {
        let inode = self.inode(name.inode)?;
        let dir = self.directory(name)?;
        if inode.is_dir() && inode.size() == 0 {
            let mut now = Arc::unwrap_or_clone(ei(&inode));
            let mut attr = inode.attr().clone();
            self.fs.make_dots(&mut self.handle, &mut now, &mut attr, name.parent.0)?;
            now.disk_size = attr.size;
            *own(&inode).write() = Arc::new(now);
            *inode.attr() = attr;
        }
        self.add_name(&dir, name, &inode)?;
        if !inode.is_dir() {
            inode.attr().nlink = 1;
        } else {
            // The links are counted at the end; for now the inode has a name.
            inode.attr().nlink = 2;
            self.recount.extend([name.parent.0, name.inode.0]);
        }
        self.fs.store_inode(&mut self.handle, &inode)
    }

    /// Leaves a new file without the name that it had in a directory that is gone: a later tag gives it another.
    pub(super) fn creat_nowhere(&mut self, name: &FcName) -> Result<()> {
        let inode = self.inode(name.inode)?;
        rule(!inode.is_dir(), "it is made in no directory").map_err(|e| e.in_inode(inode.ino))?;
        inode.attr().nlink = 0;
        self.fs.store_inode(&mut self.handle, &inode)
    }

    /// Gives a file another name.
    pub(super) fn link(&mut self, name: &FcName) -> Result<()> {
        let inode = self.inode(name.inode)?;
        let dir = self.directory(name)?;
        rule(!inode.is_dir(), "a directory gets another name").map_err(|e| e.in_inode(inode.ino))?;
        if !self.add_name(&dir, name, &inode)? {
            return Ok(());
        }
        inode.attr().nlink += 1;
        self.fs.store_inode(&mut self.handle, &inode)
    }

    pub(super) fn unlink(&mut self, name: &FcName) -> Result<()> {
        let dir = self.directory(name)?;
        let n = self.number(name.inode)?;
        let Some(spot) = self.fs.locate(&dir, &name.name)?.filter(|spot| spot.ino == n) else {
            return Ok(());
        };
        let inode = self.inode(name.inode)?;
        if inode.is_dir() {
            let empty = inode.size() == 0 || self.fs.dir_is_empty(&inode)?;
            rule(empty, "it loses its name, and is not empty").map_err(|e| e.in_inode(n))?;
            self.recount.insert(name.parent.0);
        }
        self.fs.remove_entry(&mut self.handle, &dir, spot)?;
        {
            let mut attr = inode.attr();
            attr.nlink = if inode.is_dir() { 0 } else { attr.nlink.saturating_sub(1) };
        }
        self.fs.store_inode(&mut self.handle, &inode)
    }

    /// The directory of a name, checked to be a directory.
    fn directory(&mut self, name: &FcName) -> Result<Arc<Inode>> {
        let dir = self.inode(name.parent)?;
        rule(dir.is_dir() && dir.nlink() > 0, "names are in it, and it is no directory")
            .map_err(|e| e.in_inode(dir.ino))?;
        let odd = matches!(&name.name[..], b"." | b"..") || name.name.iter().any(|b| matches!(b, 0 | b'/'));
        if odd {
            let what = format!("{:?} cannot be a name", String::from_utf8_lossy(&name.name));
            return Err(Error::corrupt(what).in_dir(dir.ino));
        }
        Ok(dir)
    }

    /// Puts a name into a directory; true if the name was missing. A name that leads elsewhere stays, as on
    /// Linux.
    fn add_name(&mut self, dir: &Arc<Inode>, name: &FcName, inode: &Inode) -> Result<bool> {
        if self.fs.find_entry(dir, &name.name)?.is_some() {
            return Ok(false);
        }
        let e = NewEntry { name: &name.name, ino: name.inode.0, file_type: inode.file_type };
        self.fs.add_entry(&mut self.handle, dir, e)?;
        self.fs.store_inode(&mut self.handle, dir)?;
        Ok(true)
    }
}
