//! Names of inodes: create, link, unlink, rename.
//!
//! Steps that can fail for want of space come before a name changes, and are undone if they fail; all needed
//! blocks are read before that.

use super::change::NewEntry;
use super::entry::Spot;
use crate::format::raw::*;
use crate::format::units::FileBlock;
use crate::inode::{Ext4Inode, ei, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use tidegate_rt::Timespec;
use tidegate_vfs::fs::{NewXattrs, Rename};
use tidegate_vfs::{Attr, Error, ErrorKind, FileType, Ino, Inode, InodeParts, NewInode, Result};

impl Ext4 {
    fn entry<'a>(name: &'a [u8], inode: &Inode) -> NewEntry<'a> {
        NewEntry { name, ino: inode.ino.0 as u32, file_type: inode.file_type }
    }

    fn check_name(name: &[u8]) -> Result<()> {
        if name.len() > NAME_LEN { Err(ErrorKind::NameTooLong.into()) } else { Ok(()) }
    }

    /// Makes an inode with its attributes under a name that the directory does not have yet.
    pub(crate) fn create_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts> {
        Self::check_name(name)?;
        self.op(HandleType::Dir, |handle| {
            if new.file_type == FileType::Directory {
                self.check_links(&dir.attr())?;
            }
            self.hold_inode(handle, dir.ino.0 as u32)?;
            let (attr, own) = self.make_inode(handle, dir, new, xattrs)?;
            let e = NewEntry { name, ino: own.ino, file_type: new.file_type };
            if let Err(e) = self.add_entry(handle, dir, e) {
                return take_back(handle, e, |handle| {
                    self.unmake(handle, attr, own, new.time)?;
                    self.store_inode(handle, dir)
                });
            }
            self.touch(handle, dir, new.time, i64::from(new.file_type == FileType::Directory))?;
            self.finish_new(handle, attr, own)
        })
    }

    /// Makes an inode with everything but a name; nothing is left of it when this fails.
    fn make_inode(
        &self,
        handle: &mut Handle<'_>,
        dir: &Inode,
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<(Attr, Ext4Inode)> {
        let (mut attr, mut own) = self.new_inode(handle, dir, new)?;
        let made = (|| {
            match new.file_type {
                FileType::Directory => self.make_dots(handle, &mut own, &mut attr, dir.ino.0 as u32)?,
                FileType::Symlink => self.put_target(handle, &mut own, &mut attr, new.target)?,
                _ => {}
            }
            xattrs.iter().try_for_each(|(name, value)| {
                self.change_xattr(handle, &mut own, &mut attr, name, Some(value), Default::default())
            })
        })();
        match made {
            Ok(()) => Ok((attr, own)),
            Err(e) => take_back(handle, e, |handle| self.unmake(handle, attr, own, new.time)),
        }
    }

    /// Frees all of a new inode.
    fn unmake(
        &self,
        handle: &mut Handle<'_>,
        mut attr: Attr,
        mut own: Ext4Inode,
        now: Timespec,
    ) -> Result<()> {
        self.store_as(handle, &own, &attr)?;
        self.free_content(handle, &mut own, &mut attr)?;
        self.delete_inode(handle, &own, attr.file_type, now)
    }

    /// Puts the target of a symbolic link into the inode if it fits there, otherwise into a block.
    fn put_target(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
        target: &[u8],
    ) -> Result<()> {
        if target.len() >= self.sb.block_size as usize {
            return Err(ErrorKind::NameTooLong.into());
        }
        attr.size = target.len() as u64;
        if target.len() < I_BLOCK_SIZE {
            own.block[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        if self.sb.incompat.contains(Incompat::EXTENTS) {
            own.flags |= InodeFlags::EXTENTS;
            own.block[..crate::map::EMPTY_ROOT.len()].copy_from_slice(&crate::map::EMPTY_ROOT);
        }
        let addr = self.take_block(handle, self.goal_of(own.ino))?;
        if let Err(e) = self.place_blocks(handle, own, attr, FileBlock(0), addr, 1, false) {
            self.free_blocks(handle, addr, 1)?;
            return Err(e);
        }
        handle.create(addr, |b| b[..target.len()].copy_from_slice(target))
    }

    /// Stores a directory that changed at `now` and got `subdirectories` more subdirectories.
    fn touch(&self, handle: &mut Handle<'_>, dir: &Inode, now: Timespec, subdirectories: i64) -> Result<()> {
        {
            let mut a = dir.attr();
            (a.mtime, a.ctime) = (now, now);
            // A count of 1 means more links than can be counted.
            if subdirectories != 0 && a.nlink > 1 {
                a.nlink = a.nlink.saturating_add_signed(subdirectories as i32).max(2);
            }
        }
        self.store_inode(handle, dir)
    }

    /// Makes an inode without a name.
    pub(crate) fn make_tmpfile(
        &self,
        dir: &Inode,
        new: &NewInode<'_>,
        xattrs: &NewXattrs,
    ) -> Result<InodeParts> {
        self.op(HandleType::Dir, |handle| {
            self.hold_list(handle)?;
            let (mut attr, own) = self.make_inode(handle, dir, new, xattrs)?;
            attr.nlink = 0;
            let made = self.finish_new(handle, attr, own)?;
            self.add_orphan(handle, made.ino.0 as u32)?;
            Ok(made)
        })
    }

    /// Gives an inode another name.
    pub(crate) fn link_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        inode: &Inode,
        now: Timespec,
    ) -> Result<()> {
        Self::check_name(name)?;
        self.op(HandleType::Dir, |handle| {
            self.check_links(&inode.attr())?;
            self.hold_link(handle, dir, inode)?;
            if let Err(e) = self.add_entry(handle, dir, Self::entry(name, inode)) {
                return take_back(handle, e, |handle| self.store_inode(handle, dir));
            }
            let first = {
                let mut a = inode.attr();
                a.nlink += 1;
                a.ctime = now;
                a.nlink == 1
            };
            if first {
                self.remove_orphan(handle, inode.ino.0 as u32)?;
            }
            self.store_inode(handle, inode)?;
            self.touch(handle, dir, now, 0)
        })
    }

    /// Takes a name away.
    pub(crate) fn unlink_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        inode: &Inode,
        now: Timespec,
    ) -> Result<()> {
        self.op(HandleType::Dir, |handle| {
            if inode.is_dir() && !self.dir_is_empty(inode)? {
                return Err(ErrorKind::NotEmpty.into());
            }
            let spot = self.locate(dir, name)?.ok_or(ErrorKind::NotFound)?;
            self.hold_unlink(handle, dir, spot, inode)?;
            self.remove_entry(handle, dir, spot)?;
            self.drop_link(handle, inode, now)?;
            self.touch(handle, dir, now, -i64::from(inode.is_dir()))
        })
    }

    /// Stores an inode that loses one name; a directory loses all.
    fn drop_link(&self, handle: &mut Handle<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        {
            let mut a = inode.attr();
            a.nlink = if inode.is_dir() { 0 } else { a.nlink.saturating_sub(1) };
            a.ctime = now;
        }
        self.store_inode(handle, inode)?;
        if inode.nlink() == 0 { self.add_orphan(handle, inode.ino.0 as u32) } else { Ok(()) }
    }

    /// Moves a name.
    pub(crate) fn rename_inode(&self, r: &Rename<'_>) -> Result<Option<Ino>> {
        Self::check_name(r.new_name)?;
        self.op(HandleType::Dir, |handle| {
            if r.exchange {
                return self.exchange(handle, r).map(|()| None);
            }
            if let Some(target) = r.target
                && target.is_dir()
                && !self.dir_is_empty(target)?
            {
                return Err(ErrorKind::NotEmpty.into());
            }
            let moves = !Arc::ptr_eq(r.old_dir, r.new_dir);
            let is_dir = r.inode.is_dir();
            if is_dir && moves && r.target.is_none() {
                self.check_links(&r.new_dir.attr())?;
            }
            // The damage of a directory shows before anything changes.
            let parent = if is_dir && moves { Some(self.parent_entry(r.inode)?) } else { None };
            let old = self.locate(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
            let new = match r.target {
                Some(_) => Some(self.locate(r.new_dir, r.new_name)?.ok_or(ErrorKind::NotFound)?),
                None => None,
            };
            self.hold_rename(handle, r, [Some(old), new, parent].into_iter().flatten())?;
            let blocks = self.blocks_of(r.old_dir.size());
            let whiteout = r.whiteout.map(|new| self.make_inode(handle, r.old_dir, new, &[])).transpose()?;
            if let Err(e) = self.put_new_name(handle, r, new) {
                return take_back(handle, e, |handle| {
                    if let Some((attr, own)) = whiteout {
                        self.unmake(handle, attr, own, r.now)?;
                    }
                    self.store_inode(handle, r.new_dir)
                });
            }
            let old = self.found_again(r.old_dir, r.old_name, old, blocks)?;
            let made = match whiteout {
                Some((attr, own)) => {
                    self.point_entry(handle, r.old_dir, old, own.ino, attr.file_type)?;
                    Some(self.finish_new(handle, attr, own)?.ino)
                }
                None => {
                    self.remove_entry(handle, r.old_dir, old)?;
                    None
                }
            };
            if let Some(target) = r.target {
                self.drop_link(handle, target, r.now)?;
            }
            if let Some(spot) = parent {
                self.set_parent(handle, r.inode, spot, r.new_dir)?;
            }
            r.inode.attr().ctime = r.now;
            self.store_inode(handle, r.inode)?;
            let target_is_dir = r.target.is_some_and(|t| t.is_dir());
            let come = i64::from(is_dir && moves) - i64::from(target_is_dir);
            if moves {
                self.touch(handle, r.old_dir, r.now, -i64::from(is_dir))?;
            }
            self.touch(handle, r.new_dir, r.now, come)?;
            Ok(made)
        })
    }

    /// Makes the new name lead to the moved inode.
    fn put_new_name(&self, handle: &mut Handle<'_>, r: &Rename<'_>, at: Option<Spot>) -> Result<()> {
        match at {
            None => self.add_entry(handle, r.new_dir, Self::entry(r.new_name, r.inode)),
            Some(at) => self.point_entry(handle, r.new_dir, at, r.inode.ino.0 as u32, r.inode.file_type),
        }
    }

    fn exchange(&self, handle: &mut Handle<'_>, r: &Rename<'_>) -> Result<()> {
        let target = r.target.ok_or(ErrorKind::NotFound)?;
        let old = self.locate(r.old_dir, r.old_name)?.ok_or(ErrorKind::NotFound)?;
        let new = self.locate(r.new_dir, r.new_name)?.ok_or(ErrorKind::NotFound)?;
        let moves = !Arc::ptr_eq(r.old_dir, r.new_dir);
        let parent = |inode: &Inode| match moves && inode.is_dir() {
            true => self.parent_entry(inode).map(Some),
            false => Ok(None),
        };
        let both = [(r.inode, parent(r.inode)?, r.new_dir), (target, parent(target)?, r.old_dir)];
        let parents = both.iter().filter_map(|b| b.1);
        self.hold_rename(handle, r, [old, new].into_iter().chain(parents))?;
        self.point_entry(handle, r.old_dir, old, target.ino.0 as u32, target.file_type)?;
        self.point_entry(handle, r.new_dir, new, r.inode.ino.0 as u32, r.inode.file_type)?;
        for (inode, spot, to) in both {
            if let Some(spot) = spot {
                self.set_parent(handle, inode, spot, to)?;
            }
            inode.attr().ctime = r.now;
            self.store_inode(handle, inode)?;
        }
        let come = i64::from(r.inode.is_dir()) - i64::from(target.is_dir());
        let come = if moves { come } else { 0 };
        self.touch(handle, r.old_dir, r.now, -come)?;
        self.touch(handle, r.new_dir, r.now, come)
    }

    /// The position of a directory's "..".
    fn parent_entry(&self, dir: &Inode) -> Result<Spot> {
        self.locate(dir, b"..")?.ok_or_else(|| Error::corrupt("it has no \"..\"").in_dir(dir.ino))
    }

    /// Makes a directory's "..", which is at `spot`, lead to `parent`.
    fn set_parent(&self, handle: &mut Handle<'_>, dir: &Inode, spot: Spot, parent: &Inode) -> Result<()> {
        self.point_entry(handle, dir, spot, parent.ino.0 as u32, FileType::Directory)
    }

    /// Frees an inode that has no name and no user, in steps: until the last step it stays an orphan.
    pub(crate) fn evict(&self, inode: &Inode) -> Result<()> {
        self.forget_promises(inode, 0..u64::MAX)?;
        self.judge_xattr_block(&ei(inode))?;
        if has_map(&ei(inode), &inode.attr().clone()) {
            self.cut_in_steps(inode, 0)?;
        }
        self.op(HandleType::Truncate, |handle| {
            let mut attr = inode.attr().clone();
            let mut now = Arc::unwrap_or_clone(ei(inode));
            self.hold_inode(handle, now.ino)?;
            self.hold_orphan(handle, now.ino)?;
            self.free_content(handle, &mut now, &mut attr)?;
            self.remove_orphan(handle, now.ino)?;
            self.store_as(handle, &now, &attr)?;
            self.delete_inode(handle, &now, attr.file_type, attr.ctime)?;
            *own(inode).write() = Arc::new(now);
            Ok(())
        })
    }

    /// Frees the blocks of an inode and of its attributes.
    pub(crate) fn free_content(
        &self,
        handle: &mut Handle<'_>,
        now: &mut Ext4Inode,
        attr: &mut Attr,
    ) -> Result<()> {
        if has_map(now, attr) {
            self.cut(handle, now, attr, 0..u64::MAX)?;
        }
        attr.size = 0;
        self.free_xattr_block(handle, now, attr)
    }
}

/// Whether an inode has a map. A short symbolic link has its target in the map's place.
pub(crate) fn has_map(own: &Ext4Inode, attr: &Attr) -> bool {
    let is_short = attr.size < I_BLOCK_SIZE as u64 && !own.is(InodeFlags::EXTENTS);
    match attr.file_type {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !is_short,
        _ => false,
    }
}

/// Undoes with `f` the changes before an error, so that nothing stays half done. Does nothing where the error
/// came in the middle of changes that belong together.
fn take_back<T>(
    handle: &mut Handle<'_>,
    e: Error,
    f: impl FnOnce(&mut Handle<'_>) -> Result<()>,
) -> Result<T> {
    if !handle.is_in_step() {
        f(handle)?;
        handle.set_whole();
    }
    Err(e)
}
