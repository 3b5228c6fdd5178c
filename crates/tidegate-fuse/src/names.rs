//! Operations on names.

use crate::errno::{Result, ToErrno};
use crate::ioctl::{DIRSYNC, SYNC};
use crate::privileges::Kill;
use crate::server::{Caller, Entry, ROOT, Server};
use crate::walk::Listed;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate::vfs::{APPEND_ONLY, IMMUTABLE};
use tidegate::vfs::{DeviceNumber, DirEntry, ErrorKind, FileType, Inode, NewInode, OpenFlags, RenameFlags};

/// The number of directory entries that are taken at a time, so that no inode is looked up under the
/// directory's lock.
const READDIR_BATCH: usize = 64;

/// From this size on, in bytes, a directory is listed by names only, except in the first answer: its inodes are all
/// over the volume, and reading them takes longer than anything else. If the program looks names up, the attributes are
/// listed, too.
const NAMES_ALONE: u64 = 160 << 10;

/// The inode to be made, as requested by the kernel.
pub struct Make<'a> {
    /// The directory.
    pub parent: u64,
    /// The name.
    pub name: &'a [u8],
    /// Type and permission bits.
    pub mode: u32,
    /// Bits to be cleared, unless the directory has a default ACL.
    pub umask: u32,
    /// Device number, for devices.
    pub rdev: DeviceNumber,
    /// Target, for symbolic links.
    pub target: &'a [u8],
}

impl Server {
    /// The inode with the name `name` in `parent`. `None` is an answer that the kernel may cache. When the kernel gets
    /// a file handle, it asks by "." for a node that it has forgotten, and by ".." for its directory; that node may be
    /// a file.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, `ESTALE` for "." of an inode that is gone, and those of reading.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
        let dir = self.inode(parent)?;
        if name == b"." {
            return Ok(Some(self.remembered(&dir)));
        }
        match self.vfs().lookup(&dir, name) {
            Ok(inode) => {
                self.looked_up.store(dir.ino.0, Relaxed);
                Ok(Some(self.remembered(&inode)))
            }
            Err(e) if e.kind() == ErrorKind::NotFound && !dir.is_freed() => Ok(None),
            Err(e) => Err(crate::errno::errno(&e)),
        }
    }

    /// Makes a file, directory, link or device. Counts as a lookup.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, `EROFS`, `ENAMETOOLONG`, `EPERM` in an immutable directory.
    pub fn make(&self, caller: &Caller, m: &Make<'_>) -> Result<Entry> {
        self.make_inode(caller, m).map(|inode| self.remembered(&inode))
    }

    fn make_inode(&self, caller: &Caller, m: &Make<'_>) -> Result<Arc<Inode>> {
        self.space.check_names(self)?;
        let dir = self.inode(m.parent)?;
        self.check_dir(&dir, false)?;
        let file_type = FileType::from_mode(m.mode).ok_or(Errno::INVAL)?;
        let new = NewInode {
            dir_flags: 0,
            umask: m.umask,
            uid: caller.uid,
            gid: caller.gid,
            rdev: m.rdev,
            target: m.target,
            ..self.vfs().new_inode(ROOT, file_type, m.mode)
        };
        match (file_type, m.target.len()) {
            (FileType::Symlink, 0) => return Err(Errno::NOENT),
            (FileType::Symlink, 4096..) => return Err(Errno::NAMETOOLONG),
            _ => {}
        }
        let inode = self.vfs().make(ROOT, &dir, m.name, &new).map_errno()?;
        self.sync_names([&dir])?;
        Ok(inode)
    }

    /// Called after a change of names. Makes it durable where the mount or one of the directories asks for
    /// that.
    fn sync_names<'a>(&self, dirs: impl IntoIterator<Item = &'a Arc<Inode>>) -> Result<()> {
        let wants = |dir: &&Arc<Inode>| self.view.dirsync || dir.attr().flags & (SYNC | DIRSYNC) != 0;
        dirs.into_iter().filter(wants).try_for_each(|dir| self.sync_dir(dir, false))
    }

    fn sync_dir(&self, dir: &Arc<Inode>, datasync: bool) -> Result<()> {
        self.vfs().open(ROOT, dir, OpenFlags::READ).and_then(|f| f.fsync(datasync)).map_errno()
    }

    /// Makes a file and opens it. Opens an existing file unless `flags` has `O_EXCL`.
    ///
    /// # Errors
    /// As [`Server::make`] and [`Server::open`].
    pub fn create(&self, caller: &Caller, m: &Make<'_>, flags: u32, kill: Kill<'_>) -> Result<(Entry, u64)> {
        let excl = flags & rustix::fs::OFlags::EXCL.bits() != 0;
        let inode = match self.make_inode(caller, m) {
            Err(Errno::EXIST) if !excl => {
                let dir = self.inode(m.parent)?;
                self.vfs().lookup(&dir, m.name).map_errno()?
            }
            r => r?,
        };
        let fh = self.open_inode(&inode, flags, kill)?;
        Ok((self.remembered(&inode), fh))
    }

    /// Makes a file without a name and opens it. Counts as a lookup. The name in `m` is ignored.
    ///
    /// # Errors
    /// As [`Server::make`].
    pub fn tmpfile(&self, caller: &Caller, m: &Make<'_>, flags: u32) -> Result<(Entry, u64)> {
        self.space.check_names(self)?;
        let dir = self.inode(m.parent)?;
        self.check_dir(&dir, false)?;
        let file_type = FileType::Regular;
        let new = NewInode {
            dir_flags: 0,
            umask: m.umask,
            uid: caller.uid,
            gid: caller.gid,
            ..self.vfs().new_inode(ROOT, file_type, m.mode)
        };
        let (how, writes) = Self::open_flags(flags);
        let file = self.vfs().tmpfile(ROOT, &dir, &new, how).map_errno()?;
        let entry = self.remembered(file.inode());
        let pin = self.pin(file.inode())?;
        self.nodes.keep(entry.node, pin);
        Ok((entry.clone(), self.handles.add(entry.node, file, writes)))
    }

    /// Gives an inode another name. Counts as a lookup.
    ///
    /// # Errors
    /// `EEXIST`, `EMLINK`, `EPERM`, `ENOSPC`.
    pub fn link(&self, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        self.space.check_names(self)?;
        let (inode, dir) = (self.inode(node)?, self.inode(parent)?);
        self.check_dir(&dir, false)?;
        self.check_flags(&inode, IMMUTABLE | APPEND_ONLY)?;
        self.vfs().link(ROOT, &inode, &dir, name).map_errno()?;
        self.sync_names([&dir])?;
        Ok(self.remembered(&inode))
    }

    /// Removes a name: that of a directory with `rmdir`, that of any other inode without.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, `ENOTDIR`, `EISDIR`, `EPERM`.
    pub fn remove(&self, parent: u64, name: &[u8], rmdir: bool) -> Result<()> {
        let dir = self.inode(parent)?;
        self.check_dir(&dir, true)?;
        let inode = self.vfs().lookup(&dir, name).map_errno()?;
        self.check_flags(&inode, IMMUTABLE | APPEND_ONLY)?;
        let pin = self.pin(&inode)?;
        match rmdir {
            true => self.vfs().rmdir(ROOT, &dir, name),
            false => self.vfs().unlink(ROOT, &dir, name),
        }
        .map_errno()?;
        self.unnamed(&inode, pin);
        self.sync_names([&dir])
    }

    /// Called after an inode lost a name. If it was the last, the kernel decides how long the inode lives.
    fn unnamed(&self, inode: &Inode, pin: tidegate::vfs::File) {
        if inode.attr().nlink == 0 {
            self.nodes.keep(self.node(inode), pin);
        }
    }

    /// Moves a name. A whiteout that is left belongs to the caller.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EINVAL`, `EPERM`.
    pub fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let (old_dir, new_dir) = (self.inode(from.0)?, self.inode(to.0)?);
        self.check_dir(&old_dir, true)?;
        self.check_dir(&new_dir, false)?;
        let moved = self.vfs().lookup(&old_dir, from.1).map_errno()?;
        self.check_flags(&moved, IMMUTABLE | APPEND_ONLY)?;
        let target = match self.vfs().lookup(&new_dir, to.1) {
            Ok(t) => {
                self.check_dir(&new_dir, true)?;
                self.check_flags(&t, IMMUTABLE | APPEND_ONLY)?;
                let pin = self.pin(&t)?;
                Some((t, pin))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(crate::errno::errno(&e)),
        };
        let owner = (caller.uid, caller.gid);
        self.vfs().rename_leaving(ROOT, (&old_dir, from.1), (&new_dir, to.1), flags, owner).map_errno()?;
        if let Some((t, pin)) = target {
            self.unnamed(&t, pin);
        }
        self.sync_names([&old_dir, &new_dir])
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` when the inode is no symbolic link.
    pub fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let target = self.vfs().readlink(&inode).map_errno()?;
        self.accessed(&inode);
        Ok(target)
    }

    /// Calls `add` for each entry from position `pos` on until it returns false.
    ///
    /// # Errors
    /// `ENOTDIR`, and those of reading.
    pub fn readdir(&self, node: u64, pos: u64, add: &mut dyn FnMut(&DirEntry) -> bool) -> Result<()> {
        let dir = self.inode(node)?;
        if pos == 0 {
            self.accessed(&dir);
        }
        self.vfs().readdir(&dir, pos, &mut |e| add(&e)).map_errno()
    }

    /// Calls `add` for each entry with its attributes; in a large directory only the first entries have them.
    /// An entry that `add` takes counts as a lookup, except "." and "..". An entry whose inode cannot be read
    /// has no attributes: a lookup then returns the error, and the other entries are listed.
    ///
    /// # Errors
    /// As [`Server::readdir`].
    pub fn readdirplus(
        &self,
        node: u64,
        pos: u64,
        add: &mut dyn FnMut(&DirEntry, Option<&Entry>) -> bool,
    ) -> Result<()> {
        let dir = self.inode(node)?;
        if pos == 0 {
            self.accessed(&dir);
            let _ = self.looked_up.compare_exchange(dir.ino.0, 0, Relaxed, Relaxed);
        } else if dir.size() >= NAMES_ALONE && self.looked_up.load(Relaxed) != dir.ino.0 {
            let mut any = false;
            let listed = self.vfs().readdir(&dir, pos, &mut |e| {
                any = true;
                add(&e, None)
            });
            return listed.map_errno().or_else(|e| if any { Ok(()) } else { Err(e) });
        }
        let (mut dirs, mut inodes, mut next, mut all) = (Vec::new(), 0, pos, true);
        self.list_with_attributes(&dir, pos, &mut |e, entry| {
            let fits = add(e, entry);
            if fits {
                next = e.next;
                inodes += 1;
                let is_dir = e.file_type == Some(FileType::Directory) && e.name != b"." && e.name != b"..";
                dirs.extend(is_dir.then_some(e.ino));
            }
            all &= fits;
            fits
        })?;
        let next = (!all).then_some(next);
        self.walk.answered(&Listed { dir: dir.ino, from: pos, next, inodes, dirs: &dirs });
        Ok(())
    }

    fn list_with_attributes(
        &self,
        dir: &Inode,
        pos: u64,
        add: &mut dyn FnMut(&DirEntry, Option<&Entry>) -> bool,
    ) -> Result<()> {
        let (mut pos, mut listed) = (pos, false);
        loop {
            let mut batch = Vec::with_capacity(READDIR_BATCH);
            let read = self.vfs().readdir(dir, pos, &mut |e| {
                batch.push(e);
                batch.len() < READDIR_BATCH
            });
            let failed = read.map_errno().err();
            // Entries before a fault are listed, and those that were added count as lookups. The kernel asks again
            // from behind them, and gets the error.
            let ended = |listed: bool| failed.filter(|_| !listed).map_or(Ok(()), Err);
            let Some(last) = batch.last() else { return ended(listed) };
            pos = last.next;
            for e in &batch {
                let dots = e.name == b"." || e.name == b"..";
                let entry = match self.vfs().iget(e.ino) {
                    Ok(inode) if dots => Some(self.entry(&inode)),
                    Ok(inode) => Some(self.remembered(&inode)),
                    // The inode was removed since the directory was read.
                    Err(x) if x.kind() == ErrorKind::Stale => continue,
                    Err(_) => None,
                };
                if !add(e, entry.as_ref()) {
                    if let Some(entry) = entry.filter(|_| !dots) {
                        // The kernel has not forgotten it: it never got it.
                        self.nodes.forget(entry.node, 1);
                    }
                    return Ok(());
                }
                listed = true;
            }
            if batch.len() < READDIR_BATCH || failed.is_some() {
                return ended(listed);
            }
        }
    }

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// `EIO`, `EROFS` once the volume has stopped.
    pub fn fsyncdir(&self, node: u64, datasync: bool) -> Result<()> {
        self.sync_dir(&self.inode(node)?, datasync)
    }
}
