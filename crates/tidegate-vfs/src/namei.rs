//! Path walk.

use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;
use crate::perm::{self, MAY_EXEC};
use crate::types::{Cred, FileType};
use crate::vfs::Vfs;
use std::sync::Arc;

/// The most symbolic links that one walk follows.
pub(crate) const MAX_SYMLINKS: u32 = 40;
/// Longest path in bytes.
const PATH_MAX: usize = 4096;

/// The end of a walk: a directory and the last component in it.
pub struct Parent<'a> {
    /// The directory.
    pub dir: Arc<Inode>,
    /// The last component. Empty when the path names the directory itself (`/`, `.`, `..`).
    pub name: &'a [u8],
    /// The path ends with a slash: the name must be that of a directory.
    pub must_be_dir: bool,
}

impl Vfs {
    /// The inode at `path`, from the root. `follow` says whether a symbolic link at the end is followed.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, `TooManySymlinks`, `NameTooLong`.
    pub fn resolve(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Arc<Inode>> {
        let mut walk = Walk { vfs: self, cred, links: 0, follow };
        walk.follow_path(vec![self.root()?], path).map(|(i, _)| i)
    }

    /// The directory that holds the last component of `path`. Symbolic links on the way are followed.
    ///
    /// # Errors
    /// As [`Vfs::resolve`].
    pub fn resolve_parent<'a>(&self, cred: &Cred, path: &'a [u8]) -> Result<Parent<'a>> {
        check_path(path)?;
        let trimmed = path.trim_ascii_end_slashes();
        let must_be_dir = trimmed.len() < path.len();
        let at = trimmed.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
        let (head, name) = trimmed.split_at(at);
        if matches!(name, b"" | b"." | b"..") {
            return Ok(Parent { dir: self.resolve(cred, path, true)?, name: b"", must_be_dir: true });
        }
        let dir = self.resolve(cred, head, true)?;
        if !dir.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        check_name(name)?;
        Ok(Parent { dir, name, must_be_dir })
    }
}

trait TrimSlashes {
    fn trim_ascii_end_slashes(&self) -> &Self;
}
impl TrimSlashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        &self[..self.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1)]
    }
}

/// Refuses names that cannot be a path.
fn check_path(path: &[u8]) -> Result<()> {
    if path.len() >= PATH_MAX {
        return Err(Error::new(ErrorKind::NameTooLong, format!("a path of {} bytes", path.len())));
    }
    if path.contains(&0) {
        return Err(Error::new(ErrorKind::InvalidArgument, "a path with a NUL byte"));
    }
    Ok(())
}

/// Refuses names that cannot be in a directory.
///
/// # Errors
/// `NameTooLong`, `InvalidArgument`.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(Error::new(ErrorKind::NameTooLong, format!("a name of {} bytes", name.len())));
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::new(ErrorKind::InvalidArgument, "not a file name"));
    }
    Ok(())
}

struct Walk<'a> {
    vfs: &'a Vfs,
    cred: &'a Cred,
    links: u32,
    follow: bool,
}

impl Walk<'_> {
    /// Walks `path` from the last directory of `trail` (root first). ".." goes back along the trail, so no
    /// directory needs to know its parent.
    fn follow_path(
        &mut self,
        mut trail: Vec<Arc<Inode>>,
        path: &[u8],
    ) -> Result<(Arc<Inode>, Vec<Arc<Inode>>)> {
        check_path(path)?;
        if path.first() == Some(&b'/') {
            trail.truncate(1);
        }
        let want_dir = path.last() == Some(&b'/');
        let parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
        for (i, part) in parts.iter().enumerate() {
            let dir = trail[trail.len() - 1].clone();
            if !dir.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            perm::check(&*self.vfs.fs, self.cred, &dir, MAY_EXEC)?;
            if *part == b".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let last = i + 1 == parts.len();
            let inode = self.vfs.lookup(&dir, part)?;
            if inode.file_type == FileType::Symlink && (!last || self.follow || want_dir) {
                self.links += 1;
                if self.links > MAX_SYMLINKS {
                    return Err(ErrorKind::TooManySymlinks.into());
                }
                let target = self.vfs.readlink(&inode)?;
                // A link on the way is always followed; `follow` is only about the last component.
                let follow = std::mem::replace(&mut self.follow, true);
                trail = self.follow_path(trail, &target)?.1;
                self.follow = follow;
            } else {
                trail.push(inode);
            }
        }
        let inode = trail[trail.len() - 1].clone();
        if want_dir && !inode.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok((inode, trail))
    }
}
