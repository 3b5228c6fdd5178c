//! Moves of names, exchanges of names, and whiteouts left at the old name.

use crate::dir::Place;
use crate::dir::namei::set_name;
use crate::durable::since_cp::Since;
use crate::format::dentry::type_to_raw;
use crate::format::raw::*;
use crate::format::units::Nid;
use crate::inode::{NodeId, fi};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::Timespec;
use tidegate_vfs::fs::Rename;
use tidegate_vfs::{Error, ErrorKind, Ino, Inode, NewInode, Result};

impl F2fs {
    /// Moves a name. Returns the whiteout that it leaves at the old name, if the caller asked for one.
    pub(crate) fn rename_inode(&self, r: &Rename<'_>) -> Result<Option<Ino>> {
        let _op = self.cp_rwsem.read();
        self.read_for_rename(r)?;
        if let Some(t) = r.target
            && !r.exchange
            && t.is_dir()
            && !self.dir_is_empty(t)?
        {
            return Err(ErrorKind::NotEmpty.into());
        }
        let replaces = r.target.is_some() && !r.exchange;
        let _place = replaces.then(|| self.acquire_orphan_inode()).transpose()?;
        // Where there is no room for the whiteout, nothing has changed yet.
        let whiteout = r.whiteout.map(|new| self.new_whiteout(r, new)).transpose()?;
        self.note_rename(r);
        if let Err(e) = self.put_new_name(r) {
            if let Some(nid) = whiteout {
                self.finish(|| self.unmake_node(nid, true))?;
            }
            return Err(e);
        }
        self.finish(|| self.follow_new_name(r, whiteout))?;
        Ok(whiteout.map(|nid| Ino(nid.0 as u64)))
    }

    /// Reads what a rename needs, except for the blocks that the search for a free slot reads.
    fn read_for_rename(&self, r: &Rename<'_>) -> Result<()> {
        self.read_inodes([r.old_dir, r.new_dir, r.inode].into_iter().chain(r.target).map(|i| &**i))?;
        let old = self.find_entry(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
        self.read_to_remove(r.old_dir, old)?;
        if r.target.is_some() {
            self.find_entry(r.new_dir, r.new_name)?;
        }
        if r.old_dir.ino != r.new_dir.ino {
            let both = Some(r.inode).into_iter().chain(r.target.filter(|_| r.exchange));
            both.filter(|i| i.is_dir()).try_for_each(|i| self.find_dotdot(i).map(drop))?;
        }
        Ok(())
    }

    /// Does the rest of the rename once the new name leads to the inode.
    fn follow_new_name(&self, r: &Rename<'_>, whiteout: Option<Nid>) -> Result<()> {
        match (r.target, whiteout) {
            (Some(t), _) if r.exchange => self.reparent(t, r.new_dir, r.old_dir, r.old_name, r.now)?,
            (_, Some(nid)) => self.leave_whiteout(r, nid)?,
            _ => self.remove_old_name(r)?,
        }
        if let Some(t) = r.target
            && !r.exchange
        {
            self.drop_link(r.new_dir, t, r.now)?;
        }
        self.reparent(r.inode, r.old_dir, r.new_dir, r.new_name, r.now)?;
        self.touch(r.old_dir, r.now)?;
        if r.new_dir.ino != r.old_dir.ino {
            self.touch(r.new_dir, r.now)?;
        }
        Ok(())
    }

    /// Notes what a later fsync must know of the rename.
    fn note_rename(&self, r: &Rename<'_>) {
        self.since_cp.note(r.inode.nid().0, Since::RENAMED);
        self.since_cp.vacate(r.old_dir, r.old_name);
        if let Some(t) = r.target {
            if r.exchange {
                self.since_cp.note(t.nid().0, Since::RENAMED);
            }
            if r.exchange || t.is_dir() || t.nlink() > 1 {
                self.since_cp.vacate(r.new_dir, r.new_name);
            }
        }
    }

    /// Makes the new name lead to the inode, and in an exchange the old name to the target.
    fn put_new_name(&self, r: &Rename<'_>) -> Result<()> {
        let (ino, kind) = (r.inode.nid().0, type_to_raw(r.inode.file_type));
        let Some(t) = r.target else { return self.add_entry(r.new_dir, r.new_name, ino, kind) };
        let new = self.find_entry(r.new_dir, r.new_name)?.ok_or(ErrorKind::NotFound)?;
        if !r.exchange {
            return self.set_entry(r.new_dir, new, ino, kind);
        }
        let old = self.find_entry(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
        self.set_entry(r.old_dir, old, t.nid().0, type_to_raw(t.file_type))?;
        self.finish(|| self.set_entry(r.new_dir, new, ino, kind))
    }

    /// Makes the inode that is to get the old name.
    fn new_whiteout(&self, r: &Rename<'_>, new: &NewInode<'_>) -> Result<Nid> {
        let f = self.new_private(r.old_dir, r.old_name, new);
        let attr = self.new_attr(new, &f);
        let nid = self.new_node(None, 0, true, |page| self.fill_inode(page, &attr, &f, r.old_name, new))?;
        self.since_cp.note(nid.0, Since::NEW);
        Ok(nid)
    }

    /// Gives the old name to the whiteout. The old name is looked up only now, as in
    /// [`F2fs::remove_old_name`].
    fn leave_whiteout(&self, r: &Rename<'_>, nid: Nid) -> Result<()> {
        let at = self.find_entry(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
        self.set_entry(r.old_dir, at, nid.0, file_type::CHRDEV)
    }

    /// Removes the old name. It is looked up only now: the insertion of the new name may have moved it.
    fn remove_old_name(&self, r: &Rename<'_>) -> Result<()> {
        let at = self.find_entry(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
        self.remove_entry(r.old_dir, at, r.old_name)
    }

    /// Sets the new parent and name of an inode. For a directory, ".." and the parents' link counts follow.
    fn reparent(
        &self,
        inode: &Arc<Inode>,
        from: &Arc<Inode>,
        to: &Arc<Inode>,
        name: &[u8],
        now: Timespec,
    ) -> Result<()> {
        if inode.is_dir() && from.ino != to.ino {
            self.set_dotdot(inode, to.ino)?;
            // The count of a damaged directory may be too low.
            let left = from.attr().nlink.saturating_sub(1);
            from.attr().nlink = left;
            to.attr().nlink += 1;
        }
        fi(inode).pino.store(to.nid().0, Relaxed);
        inode.attr().ctime = now;
        self.modify_node(inode.nid(), |page| set_name(page, name))?;
        self.store_inode(inode)
    }

    fn find_dotdot(&self, dir: &Inode) -> Result<Place> {
        let at = self.find_entry(dir, b"..")?;
        at.ok_or_else(|| Error::corrupt("has no \"..\"").in_dir(dir.ino))
    }

    fn set_dotdot(&self, dir: &Arc<Inode>, parent: Ino) -> Result<()> {
        let at = self.find_dotdot(dir)?;
        self.set_entry(dir, at, parent.0 as u32, file_type::DIR)
    }
}
