//! Operations on a volume by path, as the superuser.

use crate::error::{Error, Refusal, Result};
use crate::trail::{Met, Trail};
use crate::volume::Volume;
use std::sync::Arc;
use tidegate_vfs::{Cred, DirEntry, ErrorKind, File, FileType, Inode, OpenFlags, RenameFlags};

/// Makes a file under a name in a directory.
type Make<'a> = &'a dyn Fn(&Arc<Inode>, &[u8]) -> tidegate_vfs::Result<()>;

impl Volume {
    /// The inode at `path`. A link at its end is followed when `follow` says so.
    ///
    /// # Errors
    /// The path is missing, or below something that is not a directory.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Arc<Inode>> {
        self.vfs().resolve(&Cred::ROOT, path, follow).map_err(|e| self.error_at(path, e))
    }

    /// The inode at `path`, if there is one.
    ///
    /// # Errors
    /// Any, except that the path is missing.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Option<Arc<Inode>>> {
        match self.resolve(path, follow) {
            Ok(i) => Ok(Some(i)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The entries of the directory at `path` but "." and "..", in order of name.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn list(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        let dir = self.resolve(path, true)?;
        self.list_dir(&dir).map_err(|e| self.error_at(path, e))
    }

    /// The entries of `dir` but "." and "..", in order of name.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn list_dir(&self, dir: &Inode) -> tidegate_vfs::Result<Vec<DirEntry>> {
        let mut entries = self.vfs().entries(dir)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    /// As [`Volume::resolve`]; the path leads to a directory.
    pub fn open_file(&self, path: &[u8]) -> Result<File> {
        let inode = self.resolve(path, true)?;
        let kind = match inode.file_type {
            FileType::Regular => None,
            FileType::Directory => Some(ErrorKind::IsADirectory),
            _ => Some(ErrorKind::InvalidArgument),
        };
        let open = || match kind {
            Some(k) => Err(k.into()),
            None => self.vfs().open(&Cred::ROOT, &inode, OpenFlags::READ | OpenFlags::NOATIME),
        };
        open().map_err(|e| self.error_at(path, e))
    }

    /// Makes a directory. With `parents`, also makes those above it, with mode 0755, and the directory may already exist.
    ///
    /// # Errors
    /// The directory exists, its parent is missing, or there is no space.
    pub fn mkdir(&self, path: &[u8], mode: u32, parents: bool) -> Result<()> {
        if parents {
            let mut end = 0;
            while end < path.len() {
                end = path[end + 1..].iter().position(|&b| b == b'/').map_or(path.len(), |i| end + 1 + i);
                let part = &path[..end];
                match self.find(part, true)? {
                    Some(i) if i.is_dir() => {}
                    Some(_) => return Err(self.error_at(part, ErrorKind::NotADirectory.into())),
                    None => {
                        let is_last = path[end..].iter().all(|b| *b == b'/');
                        self.mkdir(part, if is_last { mode } else { 0o755 }, false)?;
                    }
                }
            }
            return Ok(());
        }
        let make = || {
            let at = self.vfs().resolve_parent(&Cred::ROOT, path)?;
            if at.name.is_empty() {
                return Err(ErrorKind::Exists.into());
            }
            self.vfs().mkdir(&Cred::ROOT, &at.dir, at.name, mode).map(drop)
        };
        make().map_err(|e| self.error_at(path, e))
    }

    /// Removes a name. With `recursive`, a directory with all that is in it.
    ///
    /// # Errors
    /// The name is missing, or belongs to a directory that is not to be removed.
    pub fn remove(&self, path: &[u8], recursive: bool) -> Result<()> {
        let at = self.vfs().resolve_parent(&Cred::ROOT, path).map_err(|e| self.error_at(path, e))?;
        if at.name.is_empty() {
            return Err(self.nameless(path, "removed"));
        }
        let inode = self.vfs().lookup(&at.dir, at.name).map_err(|e| self.error_at(path, e))?;
        if at.must_be_dir && !inode.is_dir() {
            return Err(self.error_at(path, ErrorKind::NotADirectory.into()));
        }
        if !inode.is_dir() {
            return self.vfs().unlink(&Cred::ROOT, &at.dir, at.name).map_err(|e| self.error_at(path, e));
        }
        if !recursive {
            return Err(self.error_at(path, ErrorKind::IsADirectory.into()));
        }
        self.clear(path, &inode)?;
        self.vfs().rmdir(&Cred::ROOT, &at.dir, at.name).map_err(|e| self.error_at(path, e))
    }

    /// Makes an empty file at `path` unless there is something, and returns what is there. The last link is followed.
    ///
    /// # Errors
    /// The parent is missing, or there is no space.
    pub fn touch(&self, path: &[u8], mode: u32) -> Result<Arc<Inode>> {
        if let Some(found) = self.find(path, true)? {
            return Ok(found);
        }
        if path.ends_with(b"/") {
            return Err(self.error_at(path, ErrorKind::IsADirectory.into()));
        }
        let how = OpenFlags::WRITE | OpenFlags::CREATE;
        let made = self.vfs().open_path(&Cred::ROOT, path, how, mode);
        made.map(|file| file.inode().clone()).map_err(|e| self.error_at(path, e))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The path names no directory, or one that is not empty.
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        let at = self.vfs().resolve_parent(&Cred::ROOT, path).map_err(|e| self.error_at(path, e))?;
        if at.name.is_empty() {
            return Err(self.nameless(path, "removed"));
        }
        self.vfs().rmdir(&Cred::ROOT, &at.dir, at.name).map_err(|e| self.error_at(path, e))
    }

    /// The content of a small regular file, such as `/etc/passwd`; at most `most` bytes of it.
    ///
    /// # Errors
    /// As [`Volume::open_file`]; those of reading.
    pub fn read_small(&self, path: &[u8], most: usize) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let size = usize::try_from(file.size()).unwrap_or(usize::MAX).min(most);
        let mut bytes = vec![0; size];
        let n = file.read_at(0, &mut bytes).map_err(|e| self.error_at(path, e))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Empties a directory, from the leaves up.
    fn clear(&self, path: &[u8], dir: &Arc<Inode>) -> Result<()> {
        let mut met = Met::default();
        let mut enter = |dir: Arc<Inode>, at: Trail| {
            met.enter(self, &dir, &at)?;
            let entries = self.vfs().entries(&dir).map_err(|e| self.error_at(&at.path(), e))?;
            Ok::<_, Error>((dir, entries, at))
        };
        let mut stack = vec![enter(dir.clone(), Trail::new(path))?];
        while let Some((dir, entries, at)) = stack.last_mut() {
            let Some(entry) = entries.last() else {
                let emptied = stack.pop().map(|(_, _, at)| at);
                if let (Some(emptied), Some((dir, entries, _))) = (emptied, stack.last_mut()) {
                    let r = self.vfs().rmdir(&Cred::ROOT, dir, emptied.name());
                    r.map_err(|e| self.error_at(&emptied.path(), e))?;
                    entries.pop();
                }
                continue;
            };
            let below = at.below(&entry.name);
            let inode = self.vfs().lookup(dir, &entry.name).map_err(|e| self.error_at(&below.path(), e))?;
            if inode.is_dir() {
                let level = enter(inode, below)?;
                stack.push(level);
            } else {
                let r = self.vfs().unlink(&Cred::ROOT, dir, &entry.name);
                r.map_err(|e| self.error_at(&below.path(), e))?;
                entries.pop();
            }
        }
        Ok(())
    }

    /// Moves `from` to `to`, or into `to` when that is a directory.
    ///
    /// # Errors
    /// Those of rename.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let vfs = self.vfs();
        let old = vfs.resolve_parent(&Cred::ROOT, from).map_err(|e| self.error_at(from, e))?;
        if old.name.is_empty() {
            return Err(self.nameless(from, "moved"));
        }
        let go = || {
            let inode = vfs.lookup(&old.dir, old.name)?;
            if old.must_be_dir && !inode.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            let old_at = (&old.dir, old.name);
            match self.find(to, true) {
                Ok(Some(d)) if d.is_dir() && d.ino != inode.ino => self.move_name(old_at, (&d, old.name)),
                _ => {
                    let new = vfs.resolve_parent(&Cred::ROOT, to)?;
                    if new.must_be_dir && !inode.is_dir() {
                        return Err(ErrorKind::NotADirectory.into());
                    }
                    self.move_name(old_at, (&new.dir, new.name))
                }
            }
        };
        go().map_err(|e| self.error_at(from, e.of(format!("moving to {}", crate::error::show(to)))))
    }

    /// Moves a name. Where both names are one file's, which rename(2) leaves as they are, the first goes, as with mv(1).
    fn move_name(&self, from: (&Arc<Inode>, &[u8]), to: (&Arc<Inode>, &[u8])) -> tidegate_vfs::Result<()> {
        let is_one = (from.0.ino, from.1) == (to.0.ino, to.1);
        let there = if is_one { None } else { self.vfs().lookup(to.0, to.1).ok() };
        let inode = self.vfs().lookup(from.0, from.1)?;
        if there.is_some_and(|there| there.ino == inode.ino) && !inode.is_dir() {
            return self.vfs().unlink(&Cred::ROOT, from.0, from.1);
        }
        self.vfs().rename(&Cred::ROOT, from, to, RenameFlags::empty())
    }

    /// Gives the file at `target` another name, `path`. With `replace`, another file loses that name once the new one can
    /// have it.
    ///
    /// # Errors
    /// Those of link.
    pub fn link(&self, target: &[u8], path: &[u8], replace: bool) -> Result<()> {
        let inode = self.resolve(target, false)?;
        if inode.is_dir() {
            let what = "a directory has one name; ln -s makes a symbolic link to it";
            return Err(self.error_at(target, tidegate_vfs::Error::new(ErrorKind::NotPermitted, what)));
        }
        if replace && self.find(path, false)?.is_some_and(|old| old.ino == inode.ino) {
            return Ok(());
        }
        self.give_name(path, replace, &|dir, name| self.vfs().link(&Cred::ROOT, &inode, dir, name))
    }

    /// Makes a symbolic link at `path`. With `replace`, it takes the place of another file.
    ///
    /// # Errors
    /// Those of symlink; the link would take the place of the very file that it leads to.
    pub fn symlink(&self, target: &[u8], path: &[u8], replace: bool) -> Result<()> {
        if replace && let Some(old) = self.find(path, false)? {
            let above = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            let full =
                if target.starts_with(b"/") { target.to_vec() } else { [&path[..above], target].concat() };
            // A target that cannot be reached is none.
            let leads = self.find(&full, true).ok().flatten().is_some_and(|there| there.ino == old.ino);
            // Another name keeps the content.
            if leads && old.attr().nlink == 1 {
                let what = "the link would take the place of the file that it leads to";
                return Err(self.complain(Refusal::Argument, path, what));
            }
        }
        self.give_name(path, replace, &|dir, name| {
            self.vfs().symlink(&Cred::ROOT, dir, name, target).map(drop)
        })
    }

    /// Has a name made that is no directory's. A file that has it keeps it until the new one is there.
    fn give_name(&self, path: &[u8], replace: bool, make: Make<'_>) -> Result<()> {
        let go = || {
            let at = self.vfs().resolve_parent(&Cred::ROOT, path)?;
            if at.must_be_dir {
                return Err(ErrorKind::NotADirectory.into());
            }
            match self.vfs().lookup(&at.dir, at.name) {
                Ok(old) if replace && old.is_dir() => Err(ErrorKind::IsADirectory.into()),
                Ok(_) if replace => {
                    let beside = temporary();
                    make(&at.dir, beside.as_bytes())?;
                    let (from, to) = ((&at.dir, beside.as_bytes()), (&at.dir, at.name));
                    self.vfs().rename(&Cred::ROOT, from, to, RenameFlags::empty()).inspect_err(|_| {
                        // The volume may have stopped: the error that is told is the first.
                        let _ = self.vfs().unlink(&Cred::ROOT, &at.dir, beside.as_bytes());
                    })
                }
                Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
                _ => make(&at.dir, at.name),
            }
        };
        go().map_err(|e| self.error_at(path, e))
    }

    /// The extended attributes of an inode, by name.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn xattrs(&self, inode: &Inode) -> tidegate_vfs::Result<Vec<crate::node::Xattr>> {
        let mut names = self.vfs().listxattr(&Cred::ROOT, inode)?;
        names.sort();
        let with_value = |name: Vec<u8>| {
            let value = self.vfs().getxattr(&Cred::ROOT, inode, &name)?;
            Ok((name, value))
        };
        names.into_iter().map(with_value).collect()
    }

    /// The directory at `path`.
    ///
    /// # Errors
    /// The path leads to no directory; those of [`Volume::resolve`].
    pub fn resolve_dir(&self, path: &[u8]) -> Result<Arc<Inode>> {
        let inode = self.resolve(path, true)?;
        if inode.is_dir() { Ok(inode) } else { Err(self.error_at(path, ErrorKind::NotADirectory.into())) }
    }

    /// Refuses the root, and a path that ends in a dot.
    pub(crate) fn nameless(&self, path: &[u8], done: &str) -> Error {
        let what = match path.iter().all(|&b| b == b'/') {
            true => format!("the volume's root cannot be {done}; name what is in it"),
            false => format!("a path that ends in . or .. cannot be {done}; end it in the directory's name"),
        };
        self.complain(Refusal::Argument, path, what)
    }

    /// The reason for refusing a path in the volume.
    pub fn complain(
        &self,
        kind: Refusal,
        path: &[u8],
        what: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::refused(kind, self.subject().inside(path), what)
    }
}

/// A name that is free, for a file that is to take another's name once it is complete.
pub(crate) fn temporary() -> String {
    format!(".tidegate-{:016x}", tidegate_rt::clock::entropy())
}

/// `name` below `dir`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut p = Vec::with_capacity(dir.len() + name.len() + 1);
    p.extend_from_slice(dir);
    if !dir.is_empty() && !dir.ends_with(b"/") {
        p.push(b'/');
    }
    p.extend_from_slice(name);
    p
}
