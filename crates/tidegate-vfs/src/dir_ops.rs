//! Operations on names.

use crate::acl::{self, Acl};
use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;
use crate::namei::check_name;
use crate::perm::{self, MAY_EXEC, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::trace::SpanPoint;

static CREATE: SpanPoint<0> = SpanPoint::new("vfs_create", []);
static UNLINK: SpanPoint<0> = SpanPoint::new("vfs_unlink", []);

pub(crate) const S_ISGID: u32 = 0o2000;
/// The largest major and minor number of a device.
const MAJORS: u32 = 0xfff;
const MINORS: u32 = 0xf_ffff;

impl Vfs {
    /// The inode with the name `name` in `dir`. Takes `dir`'s `i_rwsem` shared unless the name is cached.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`.
    pub fn lookup(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        if !dir.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        if name == b"." {
            return Ok(dir.clone());
        }
        if name.len() > 255 {
            return Err(Error::new(ErrorKind::NameTooLong, format!("a name of {} bytes", name.len())));
        }
        let _dir = dir.rwsem.read();
        match self.lookup_locked(dir, name)? {
            Some(ino) => self.iget(ino),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Looks up a name in a directory that is locked.
    pub(crate) fn lookup_locked(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        if dir.is_removed() {
            return Err(ErrorKind::NotFound.into());
        }
        // The parent of a directory changes when it is moved, so ".." is not cached.
        let is_parent = name == b"..";
        if !is_parent && let Some(known) = self.dcache.get(dir.ino, name) {
            return Ok(known);
        }
        let found = self.fs.lookup(dir, name);
        self.note_pages(dir);
        let found = found?;
        if !is_parent {
            self.dcache.set(dir.ino, name, found);
        }
        Ok(found)
    }

    /// Makes a file, directory, symbolic link or device called `name` in `dir`. Set-group-id directories
    /// and default ACLs are honoured. Takes `dir`'s `i_rwsem`.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `ReadOnly`, `PermissionDenied`, `NameTooLong`. For a symbolic link: `NameTooLong` with a
    /// target of 4096 bytes or more, `NotFound` with an empty target, `InvalidArgument` with a zero byte in it. For a
    /// device: `InvalidArgument` with a number that Linux does not have.
    pub fn make(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], new: &NewInode<'_>) -> Result<Arc<Inode>> {
        let _span = CREATE.enter([]);
        self.begin_change()?;
        check_name(name)?;
        if new.file_type == FileType::Symlink {
            check_target(new.target)?;
        }
        check_device(new)?;
        let guard = dir.rwsem.write();
        perm::check(&*self.fs, cred, dir, MAY_EXEC)?;
        if self.lookup_locked(dir, name)?.is_some() {
            return Err(ErrorKind::Exists.into());
        }
        perm::check(&*self.fs, cred, dir, MAY_WRITE)?;
        let mut new = new.clone();
        let (dir_mode, dir_gid) = {
            let a = dir.attr();
            new.dir_flags = a.flags;
            (a.mode, a.gid)
        };
        if self.fs.groups_follow_directories() {
            new.gid = dir_gid;
        } else if dir_mode & S_ISGID != 0 {
            new.gid = dir_gid;
            if new.file_type == FileType::Directory {
                new.mode |= S_ISGID;
            } else if new.mode & (S_ISGID | 0o010) == S_ISGID | 0o010
                && !cred.is_root()
                && !cred.in_group(dir_gid)
            {
                new.mode &= !S_ISGID;
            }
        }
        let inherited = self.inherit_acl(dir, &mut new)?;
        let parts = self.fs.create(dir, name, &new, &inherited)?;
        self.dcache.set(dir.ino, name, Some(parts.ino));
        let inode = self.icache.insert(parts);
        inode.no_capability.store(true, Relaxed);
        drop(guard);
        self.balance();
        Ok(inode)
    }

    /// The ACLs that a new inode inherits from its directory. Restricts `new.mode` by them.
    pub(crate) fn inherit_acl(
        &self,
        dir: &Inode,
        new: &mut NewInode<'_>,
    ) -> Result<Vec<(&'static [u8], Vec<u8>)>> {
        if new.file_type == FileType::Symlink {
            return Ok(Vec::new());
        }
        let default = match self.fs.getxattr(dir, acl::DEFAULT) {
            Ok(v) => v,
            Err(e) if matches!(e.kind(), ErrorKind::NoData | ErrorKind::Unsupported) => Vec::new(),
            Err(e) => return Err(e),
        };
        let Some(mut access) = Acl::parse(&default) else {
            new.mode &= !new.umask;
            return Ok(Vec::new());
        };
        access.restrict(new.mode, true);
        new.mode = new.mode & !0o777 | access.mode();
        let mut out = Vec::new();
        if !access.is_trivial() {
            out.push((acl::ACCESS, access.to_xattr()));
        }
        if new.file_type == FileType::Directory {
            out.push((acl::DEFAULT, default));
        }
        Ok(out)
    }

    /// Makes a regular file.
    ///
    /// # Errors
    /// As [`Vfs::make`].
    pub fn create(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], mode: u32) -> Result<Arc<Inode>> {
        self.make(cred, dir, name, &self.new_inode(cred, FileType::Regular, mode))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Vfs::make`].
    pub fn mkdir(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], mode: u32) -> Result<Arc<Inode>> {
        self.make(cred, dir, name, &self.new_inode(cred, FileType::Directory, mode))
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Vfs::make`].
    pub fn symlink(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], target: &[u8]) -> Result<Arc<Inode>> {
        let new = NewInode { target, ..self.new_inode(cred, FileType::Symlink, 0o777) };
        self.make(cred, dir, name, &new)
    }

    /// The inode that `cred` would create now.
    pub fn new_inode(&self, cred: &Cred, file_type: FileType, mode: u32) -> NewInode<'static> {
        let time = self.now();
        let mode = mode & 0o7777;
        NewInode {
            file_type,
            mode,
            umask: 0,
            uid: cred.uid,
            gid: cred.gid,
            rdev: DeviceNumber::default(),
            target: b"",
            time,
            dir_flags: 0,
        }
    }

    /// Gives `inode` another name. Takes both `i_rwsem`.
    ///
    /// # Errors
    /// `NotPermitted` for directories, `Exists`, `TooManyLinks`, `NotFound` when its last name is gone.
    pub fn link(&self, cred: &Cred, inode: &Arc<Inode>, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.begin_change()?;
        check_name(name)?;
        if inode.is_dir() {
            return Err(ErrorKind::NotPermitted.into());
        }
        let dir_guard = dir.rwsem.write();
        perm::check(&*self.fs, cred, dir, MAY_EXEC)?;
        if self.lookup_locked(dir, name)?.is_some() {
            return Err(ErrorKind::Exists.into());
        }
        perm::check(&*self.fs, cred, dir, MAY_WRITE)?;
        let guard = inode.rwsem.write_nested();
        if inode.is_freed() || (inode.attr().nlink == 0 && !inode.linkable.load(Relaxed)) {
            return Err(ErrorKind::NotFound.into());
        }
        self.fs.link(dir, name, inode, self.now())?;
        self.dcache.set(dir.ino, name, Some(inode.ino));
        drop((guard, dir_guard));
        self.balance();
        Ok(())
    }

    /// Removes a name of an inode that is not a directory.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`, `NotPermitted`.
    pub fn unlink(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let _span = UNLINK.enter([]);
        self.remove(cred, dir, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `PermissionDenied`, `NotPermitted`.
    pub fn rmdir(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.remove(cred, dir, name, true)
    }

    fn remove(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], want_dir: bool) -> Result<()> {
        self.begin_change()?;
        check_name(name)?;
        let dir_guard = dir.rwsem.write();
        perm::check(&*self.fs, cred, dir, MAY_EXEC)?;
        let ino = self.lookup_locked(dir, name)?.ok_or(ErrorKind::NotFound)?;
        let inode = self.iget(ino)?;
        perm::check_delete(&*self.fs, cred, dir, &inode)?;
        match (want_dir, inode.is_dir()) {
            (true, false) => return Err(ErrorKind::NotADirectory.into()),
            (false, true) => return Err(ErrorKind::IsADirectory.into()),
            _ => {}
        }
        let guard = inode.rwsem.write_nested();
        self.fs.unlink(dir, name, &inode, self.now())?;
        self.dcache.set(dir.ino, name, None);
        drop(guard);
        drop(dir_guard);
        self.evict_if_unused(&inode);
        self.balance();
        Ok(())
    }

    /// Calls `emit` for each entry of `dir` from position `pos` on until it returns false.
    ///
    /// # Errors
    /// `NotADirectory`, and those of reading the directory.
    pub fn readdir(&self, dir: &Inode, pos: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        if !dir.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        let _dir = dir.rwsem.read();
        let read = self.fs.readdir(dir, pos, emit);
        self.note_pages(dir);
        read
    }

    /// Lets reclaim find the pages of a directory that was read.
    fn note_pages(&self, dir: &Inode) {
        if dir.mapping.lacks_turns()
            && let Some(dir) = self.icache.get(dir.ino)
        {
            self.bdi.cached(&dir);
        }
    }

    /// All entries of `dir` but "." and "..".
    ///
    /// # Errors
    /// As [`Vfs::readdir`].
    pub fn entries(&self, dir: &Inode) -> Result<Vec<DirEntry>> {
        let mut v = Vec::new();
        self.readdir(dir, 0, &mut |e| {
            if e.name != b"." && e.name != b".." {
                v.push(e);
            }
            true
        })?;
        Ok(v)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` when the inode is no symbolic link.
    pub fn readlink(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.file_type != FileType::Symlink {
            return Err(ErrorKind::InvalidArgument.into());
        }
        self.fs.readlink(inode)
    }
}

/// Refuses the targets that symlink(2) refuses.
fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(Error::new(ErrorKind::NotFound, "a symbolic link without a target")),
        4096.. => {
            let what = format!("a symbolic link with a target of {} bytes; 4095 is the most", target.len());
            Err(Error::new(ErrorKind::NameTooLong, what))
        }
        _ if target.contains(&0) => {
            Err(Error::new(ErrorKind::InvalidArgument, "a symbolic link with a zero byte in its target"))
        }
        _ => Ok(()),
    }
}

/// Refuses device numbers with more bits than Linux, and so an inode, has for them.
fn check_device(new: &NewInode<'_>) -> Result<()> {
    let DeviceNumber { major, minor } = new.rdev;
    let device = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
    if device && (major > MAJORS || minor > MINORS) {
        let what = format!("device {major}, {minor}: numbers go to {MAJORS}, {MINORS}");
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    Ok(())
}
