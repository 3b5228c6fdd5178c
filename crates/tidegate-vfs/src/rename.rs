//! Moving names.

use crate::dir_ops::S_ISGID;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Rename;
use crate::inode::Inode;
use crate::namei::check_name;
use crate::perm::{self, MAY_EXEC, MAY_WRITE};
use crate::types::*;
use crate::vfs::Vfs;
use std::sync::Arc;
use tidegate_rt::RwLockWriteGuard;

impl Vfs {
    /// Moves a name. Takes the rename lock when the directories differ; then the `i_rwsem` of the directories, an
    /// ancestor first and else the lower number first; then those of the moved and the replaced inode, in order of
    /// their number. With `WHITEOUT`, a whiteout that belongs to `cred` stays behind.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (with `NOREPLACE`), `NotEmpty`, `IsADirectory`, `NotADirectory`,
    /// `InvalidArgument` when a directory would move into itself.
    pub fn rename(
        &self,
        cred: &Cred,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_leaving(cred, (old_dir, old_name), (new_dir, new_name), flags, (cred.uid, cred.gid))
    }

    /// Moves a name. The whiteout, if one is asked for, belongs to user and group `owner`.
    ///
    /// # Errors
    /// As [`Vfs::rename`].
    pub fn rename_leaving(
        &self,
        cred: &Cred,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
    ) -> Result<()> {
        self.begin_change()?;
        check_name(old_name)?;
        check_name(new_name)?;
        let with_exchange = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(with_exchange) {
            return Err(ErrorKind::InvalidArgument.into());
        }
        let cross = old_dir.ino != new_dir.ino;
        let rename_guard = cross.then(|| self.rename_lock.lock());
        let mut above = None;
        let replaced = loop {
            let guards = lock_dirs(old_dir, new_dir, above.as_ref());
            if guards.is_some() {
                let (old, new) = ((old_dir, old_name), (new_dir, new_name));
                if let Step::Done(replaced) =
                    self.rename_locked(cred, old, new, flags, owner, above.as_ref())?
                {
                    break replaced;
                }
            }
            drop(guards);
            above = Some(Above { old: self.above(old_dir)?, new: self.above(new_dir)? });
        };
        drop(rename_guard);
        if let Some(t) = replaced {
            self.evict_if_unused(&t);
        }
        self.balance();
        Ok(())
    }

    fn rename_locked(
        &self,
        cred: &Cred,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
        above: Option<&Above>,
    ) -> Result<Step> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        perm::check(&*self.fs, cred, old_dir, MAY_EXEC)?;
        perm::check(&*self.fs, cred, new_dir, MAY_EXEC)?;
        let inode = self.iget(self.lookup_locked(old_dir, old_name)?.ok_or(ErrorKind::NotFound)?)?;
        let target = match self.lookup_locked(new_dir, new_name)? {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(ErrorKind::Exists.into()),
            Some(ino) => Some(self.iget(ino)?),
            None if exchange => return Err(ErrorKind::NotFound.into()),
            None => None,
        };
        perm::check_delete(&*self.fs, cred, old_dir, &inode)?;
        match &target {
            Some(t) => perm::check_delete(&*self.fs, cred, new_dir, t)?,
            None => perm::check(&*self.fs, cred, new_dir, MAY_WRITE | MAY_EXEC)?,
        }
        if target.as_ref().is_some_and(|t| t.ino == inode.ino) {
            return Ok(Step::Done(None)); // two names of one inode: POSIX requires that nothing is done
        }
        if let (Some(t), false) = (&target, exchange) {
            match (inode.is_dir(), t.is_dir()) {
                (true, false) => return Err(ErrorKind::NotADirectory.into()),
                (false, true) => return Err(ErrorKind::IsADirectory.into()),
                _ => {}
            }
        }
        if old_dir.ino != new_dir.ino {
            // The directory's own ".." changes.
            let exchanged = target.iter().filter(|_| exchange);
            for dir in [&inode].into_iter().chain(exchanged).filter(|i| i.is_dir()) {
                perm::check(&*self.fs, cred, dir, MAY_WRITE)?;
            }
        }
        let moves_dir = inode.is_dir() || target.as_ref().is_some_and(|t| t.is_dir());
        if moves_dir && old_dir.ino != new_dir.ino {
            let Some(above) = above else { return Ok(Step::LookAbove) };
            above.check(&inode, target.as_deref(), exchange)?;
        }
        // An inode that is also one of the two directories is locked already.
        let locked = |i: &Inode| i.ino == old_dir.ino || i.ino == new_dir.ino;
        if target.as_ref().is_some_and(|t| locked(t)) {
            return Err(if exchange { ErrorKind::InvalidArgument } else { ErrorKind::NotEmpty }.into());
        }
        let mut both: Vec<&Arc<Inode>> = Some(&inode).into_iter().chain(&target).collect();
        both.sort_by_key(|i| i.ino);
        let guards: Vec<_> = both.into_iter().map(|i| i.rwsem.write_nested()).collect();
        let whiteout = flags.contains(RenameFlags::WHITEOUT).then(|| self.whiteout(old_dir, owner));
        let left = self.fs.rename(&Rename {
            old_dir,
            old_name,
            inode: &inode,
            new_dir,
            new_name,
            target: target.as_ref(),
            exchange,
            whiteout: whiteout.as_ref(),
            now: self.now(),
        })?;
        self.dcache.set(new_dir.ino, new_name, Some(inode.ino));
        let left = left.or(target.as_ref().filter(|_| exchange).map(|t| t.ino));
        self.dcache.set(old_dir.ino, old_name, left);
        drop(guards);
        Ok(Step::Done(target.filter(|_| !exchange)))
    }

    /// The attributes of a whiteout in `dir`.
    fn whiteout(&self, dir: &Inode, (uid, gid): (u32, u32)) -> NewInode<'static> {
        let (dir_mode, dir_gid, dir_flags) = {
            let a = dir.attr();
            (a.mode, a.gid, a.flags)
        };
        let follows = dir_mode & S_ISGID != 0 || self.fs.groups_follow_directories();
        let gid = if follows { dir_gid } else { gid };
        NewInode { uid, gid, dir_flags, ..self.new_inode(&Cred::ROOT, FileType::CharDevice, 0) }
    }

    /// `dir` and the directories above it, from `dir` on. Takes the `i_rwsem` of each shared, one at a time,
    /// as ".." may be missing while another thread changes the directory. The caller holds the rename lock,
    /// and no lock of a directory.
    ///
    /// # Errors
    /// `NotFound` when `dir` is removed, `Corrupt`, those of reading the directories.
    fn above(&self, dir: &Arc<Inode>) -> Result<Vec<Ino>> {
        let (mut at, mut passed) = (dir.clone(), Vec::new());
        loop {
            passed.push(at.ino);
            if at.ino == self.fs.root() {
                return Ok(passed);
            }
            let parent = {
                let _at = at.rwsem.read();
                if at.is_removed() {
                    return Err(ErrorKind::NotFound.into());
                }
                self.fs.lookup(&at, b"..")?
            };
            let parent = parent.ok_or_else(|| Error::corrupt("no \"..\"").in_dir(at.ino))?;
            if parent == at.ino || passed.len() > 1 << 16 {
                return Err(Error::corrupt("its parents do not lead to the root").in_dir(dir.ino));
            }
            at = match self.iget(parent) {
                Err(e) if e.kind() == ErrorKind::Stale => return Err(ErrorKind::NotFound.into()),
                r => r?,
            };
        }
    }
}

/// The result of one attempt at a rename.
enum Step {
    /// The rename is done. The inode is the replaced one.
    Done(Option<Arc<Inode>>),
    /// The directories above must be known first; finding them takes their locks.
    LookAbove,
}

/// The two directories and those above each. While the rename lock is held this stays valid, unless the
/// directory itself is removed: a directory above it is not empty and so cannot be.
struct Above {
    old: Vec<Ino>,
    new: Vec<Ino>,
}

impl Above {
    /// Refuses to move a directory below itself, or in place of a directory above it. Both parent directories
    /// are locked and not removed.
    fn check(&self, inode: &Inode, target: Option<&Inode>, exchange: bool) -> Result<()> {
        let cycle = || Error::new(ErrorKind::InvalidArgument, "a directory cannot move into itself");
        if self.new.contains(&inode.ino) {
            return Err(cycle());
        }
        match target {
            Some(t) if self.old.contains(&t.ino) => {
                Err(if exchange { cycle() } else { ErrorKind::NotEmpty.into() })
            }
            _ => Ok(()),
        }
    }
}

/// Locks both directories of a rename. An ancestor comes first: a thread that removes a directory holds the lock of its
/// parent and waits for that of the directory. Of two unrelated directories, the lower number comes first. `None` when
/// a lock cannot be had at once and it is not known which directory is above.
fn lock_dirs<'a>(
    old: &'a Inode,
    new: &'a Inode,
    above: Option<&Above>,
) -> Option<(RwLockWriteGuard<'a, ()>, Option<RwLockWriteGuard<'a, ()>>)> {
    if old.ino == new.ino {
        return Some((old.rwsem.write(), None));
    }
    let Some(above) = above else {
        let first = old.rwsem.write();
        return new.rwsem.try_write().map(|second| (first, Some(second)));
    };
    // Unrelated directories are locked in the order of their numbers, in which a rename within their parent
    // locks them.
    let is_above = (above.old.contains(&new.ino), above.new.contains(&old.ino));
    let new_first = is_above.0 || !is_above.1 && new.ino < old.ino;
    let (first, second) = if new_first { (new, old) } else { (old, new) };
    Some((first.rwsem.write(), Some(second.rwsem.write_nested())))
}
