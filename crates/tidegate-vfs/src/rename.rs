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

impl Vfs {
    /// Moves a name. Takes the rename lock when directories differ, the directories' `i_rwsem` in order
    /// of inode number, then those of the inodes moved and replaced. With `WHITEOUT` a whiteout of `cred`'s
    /// stays behind.
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

    /// The same; the whiteout, if there is to be one, belongs to user and group `owner`.
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
        let (first, second) =
            if old_dir.ino <= new_dir.ino { (old_dir, new_dir) } else { (new_dir, old_dir) };
        let first_guard = first.rwsem.write();
        let second_guard = cross.then(|| second.rwsem.write_nested());
        let replaced = self.rename_locked(cred, (old_dir, old_name), (new_dir, new_name), flags, owner)?;
        drop((first_guard, second_guard, rename_guard));
        if let Some(t) = replaced {
            self.evict_if_unused(&t)?;
        }
        self.balance()
    }

    fn rename_locked(
        &self,
        cred: &Cred,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
    ) -> Result<Option<Arc<Inode>>> {
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
            return Ok(None); // two names of one inode: POSIX wants nothing done
        }
        if let (Some(t), false) = (&target, exchange) {
            match (inode.is_dir(), t.is_dir()) {
                (true, false) => return Err(ErrorKind::NotADirectory.into()),
                (false, true) => return Err(ErrorKind::IsADirectory.into()),
                _ => {}
            }
        }
        if old_dir.ino != new_dir.ino {
            self.check_no_cycle(&inode, new_dir)?;
            if let (Some(t), true) = (&target, exchange) {
                self.check_no_cycle(t, old_dir)?;
            }
        }
        // Directories that are both parent and child here are locked already.
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
        Ok(target.filter(|_| !exchange))
    }

    /// What stands for "nothing" in `dir`.
    fn whiteout(&self, dir: &Inode, (uid, gid): (u32, u32)) -> NewInode<'static> {
        let (dir_mode, dir_gid) = {
            let a = dir.attr();
            (a.mode, a.gid)
        };
        let gid = if dir_mode & S_ISGID != 0 { dir_gid } else { gid };
        NewInode { uid, gid, ..self.new_inode(&Cred::ROOT, FileType::CharDevice, 0) }
    }

    /// Refuses to move directory `inode` below itself. The rename lock keeps the tree's shape meanwhile.
    fn check_no_cycle(&self, inode: &Inode, new_dir: &Arc<Inode>) -> Result<()> {
        if !inode.is_dir() {
            return Ok(());
        }
        let mut at = new_dir.ino;
        let mut steps = 0u32;
        loop {
            if at == inode.ino {
                return Err(Error::new(ErrorKind::InvalidArgument, "a directory cannot move into itself"));
            }
            if at == self.fs.root() {
                return Ok(());
            }
            steps += 1;
            let dir = self.iget(at)?;
            let parent = self
                .fs
                .lookup(&dir, b"..")?
                .ok_or_else(|| Error::corrupt(format!("directory {at} has no \"..\"")))?;
            if parent == at || steps > 1 << 16 {
                return Err(Error::corrupt(format!(
                    "the parents of directory {} do not lead to the root",
                    new_dir.ino
                )));
            }
            at = parent;
        }
    }
}
