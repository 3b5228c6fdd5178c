//! Makes a tree on the host.

use super::attrs::Attrs;
use super::{Exported, Item, Piece};
use crate::error::{Error, Result, path_bytes, show};
use crate::node::Meta;
use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use tidegate_block::Errno;
use tidegate_rt::channel::Receiver;
use tidegate_vfs::FileType;

/// Longest path that one call takes.
const PATH_MAX: usize = 4000;

/// A directory being filled.
struct Level {
    fd: OwnedFd,
    /// Length of its path.
    path: usize,
    meta: Meta,
    /// Files in it get its group.
    inherits_group: bool,
}

struct Writer {
    /// Where the tree goes: an existing directory, and the top's name in it.
    base: OwnedFd,
    top: CString,
    stack: Vec<Level>,
    /// Path of where we are, from `base` on.
    path: Vec<u8>,
    shown: Vec<u8>,
    attrs: Attrs,
    /// The file that is being written, and what is left to set.
    current: Option<(OwnedFd, CString, Meta, Mode, u64)>,
    /// Where files with several names got their first, from `base` on.
    links: HashMap<u64, Vec<u8>>,
}

/// Makes at `to` what comes. An existing directory is filled, an existing file replaced.
///
/// # Errors
/// The host's, by path.
pub fn write(to: &Path, from: Receiver<Vec<Item>>) -> Result<Exported> {
    let dir = crate::image::dir_of(to);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What has no name of its own (`.`, `/`, `..`) is a directory and is opened as such.
    let (base, top) = match to.file_name() {
        Some(name) => (dir, name.as_encoded_bytes().to_vec()),
        None => (to, b".".to_vec()),
    };
    let fd = rustix::fs::open(base, flags, Mode::empty()).map_err(|e| Error::os(path_bytes(base), e))?;
    let mut w = Writer {
        base: fd,
        top: CString::new(top).map_err(|_| Error::os(path_bytes(to), Errno::INVAL))?,
        stack: Vec::new(),
        path: Vec::new(),
        shown: path_bytes(base).to_vec(),
        attrs: Attrs::of_process(),
        current: None,
        links: HashMap::new(),
    };
    while let Some(batch) = from.recv() {
        for item in batch {
            w.apply(item)?;
        }
    }
    Ok(Exported { notes: w.attrs.notes() })
}

impl Writer {
    fn apply(&mut self, item: Item) -> Result<()> {
        match item {
            Item::Dir { name, meta } => {
                let name = self.descend(name);
                self.enter(&name, meta).map_err(|e| self.os(e))
            }
            Item::Leave => match self.stack.pop() {
                Some(l) => {
                    let name = self.path[..l.path].rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec();
                    self.path.truncate(l.path);
                    let r = self.attrs.set(l.fd.as_fd(), &name, &l.meta, None, false);
                    r.map_err(|e| self.os(e)).map(|()| self.ascend())
                }
                None => Ok(()),
            },
            Item::Data(p) => match &self.current {
                Some((fd, ..)) => write_piece(fd.as_fd(), &p).map_err(|e| self.os(e)),
                None => Ok(()),
            },
            Item::End => match self.current.take() {
                Some((fd, name, meta, mode, size)) => {
                    let r = self.finish(&fd, &name, &meta, mode, size).map_err(|e| self.os(e));
                    r.map(|()| self.ascend())
                }
                None => Ok(()),
            },
            Item::File { name, meta, size, pieces, more, link, .. } => {
                let name = self.descend(name);
                self.remember(link);
                self.file(name, meta, size, &pieces, more).map_err(|e| self.os(e))?;
                if !more {
                    self.ascend();
                }
                Ok(())
            }
            Item::Special { name, meta, target, link } => {
                let name = self.descend(name);
                self.remember(link);
                let r = self.special(&name, &meta, target).map_err(|e| self.os(e));
                r.map(|()| self.ascend())
            }
            Item::Link { name, to, .. } => {
                let name = self.descend(name);
                let r = self.link(&name, to).map_err(|e| self.os(e));
                r.map(|()| self.ascend())
            }
        }
    }

    /// Goes down to `name`, or to the top when it is empty.
    fn descend(&mut self, name: Vec<u8>) -> CString {
        let name = if name.is_empty() { self.top.clone() } else { CString::new(name).unwrap_or_default() };
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        name
    }

    fn ascend(&mut self) {
        self.path.truncate(self.stack.last().map_or(0, |l| l.path));
    }

    fn os(&self, e: Errno) -> Error {
        Error::Os(show(&crate::paths::join(&self.shown, &self.path)), e.into())
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.stack.last().map_or(self.base.as_fd(), |l| l.fd.as_fd())
    }

    fn enter(&mut self, name: &CString, meta: Meta) -> std::result::Result<(), Errno> {
        let (flags, mode) = (OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::RWXU);
        let made = match rustix::fs::mkdirat(self.here(), name, mode) {
            Err(Errno::EXIST) => false,
            r => r.map(|()| true)?,
        };
        // Only at the top may a link lead to the directory: there the caller named it.
        let flags = if self.stack.is_empty() && !made { flags } else { flags | OFlags::NOFOLLOW };
        let fd = rustix::fs::openat(self.here(), name, flags, Mode::empty())?;
        // A group that goes down to what is made in it, or an ACL, comes with the directory's own parent.
        let st = rustix::fs::fstat(&fd)?;
        let inherits_group = st.st_mode & 0o2000 != 0;
        if inherits_group && made {
            rustix::fs::fchmod(&fd, mode)?;
        }
        let inherits_group = inherits_group && !made;
        self.stack.push(Level { fd, path: self.path.len(), meta, inherits_group });
        Ok(())
    }

    fn file(
        &mut self,
        name: CString,
        meta: Meta,
        size: u64,
        pieces: &[Piece],
        more: bool,
    ) -> std::result::Result<(), Errno> {
        let mode = self.attrs.create_mode(&meta);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let create = || rustix::fs::openat(self.here(), &name, flags, mode);
        let fd = match create() {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(self.here(), &name, AtFlags::empty())?;
                create()?
            }
            r => r?,
        };
        pieces.iter().try_for_each(|p| write_piece(fd.as_fd(), p))?;
        if more {
            self.current = Some((fd, name, meta, mode, size));
            return Ok(());
        }
        let written = pieces.last().map_or(0, |p| p.pos + p.len as u64);
        self.finish_at(&fd, &name, &meta, mode, (written < size).then_some(size))
    }

    fn finish(
        &mut self,
        fd: &OwnedFd,
        name: &CString,
        meta: &Meta,
        mode: Mode,
        size: u64,
    ) -> std::result::Result<(), Errno> {
        self.finish_at(fd, name, meta, mode, Some(size))
    }

    fn finish_at(
        &mut self,
        fd: &OwnedFd,
        name: &CString,
        meta: &Meta,
        mode: Mode,
        size: Option<u64>,
    ) -> std::result::Result<(), Errno> {
        if let Some(size) = size {
            // A hole at the end.
            rustix::fs::ftruncate(fd, size)?;
        }
        let inherits = self.stack.last().is_none_or(|l| l.inherits_group);
        self.attrs.set(fd.as_fd(), name.to_bytes(), meta, Some(mode), inherits)
    }

    fn special(&mut self, name: &CString, meta: &Meta, target: Vec<u8>) -> std::result::Result<(), Errno> {
        let make = |dir: BorrowedFd<'_>| match meta.kind {
            FileType::Symlink => rustix::fs::symlinkat(&target[..], dir, name),
            kind => {
                let dev = rustix::fs::makedev(meta.rdev.major, meta.rdev.minor);
                let mode = Mode::from_raw_mode(meta.mode & 0o700);
                rustix::fs::mknodat(dir, name, HostType::from_raw_mode(kind.mode_bits()), mode, dev)
            }
        };
        let made = match make(self.here()) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(self.here(), name, AtFlags::empty())?;
                make(self.here())
            }
            r => r,
        };
        match made {
            Ok(()) => {
                // The borrow of the directory ends before the attributes are set.
                let Writer { stack, base, attrs, .. } = self;
                let dir = stack.last().map_or(base.as_fd(), |l| l.fd.as_fd());
                attrs.set_at(dir, name, meta)
            }
            Err(e) if matches!(meta.kind, FileType::CharDevice | FileType::BlockDevice) => {
                self.attrs.refuse("devices", &self.path.clone(), e)
            }
            Err(e) => Err(e),
        }
    }

    fn remember(&mut self, link: Option<u64>) {
        if let Some(n) = link {
            self.links.insert(n, self.path.clone());
        }
    }

    fn link(&mut self, name: &CString, to: u64) -> std::result::Result<(), Errno> {
        let Some(first) = self.links.get(&to) else { return Err(Errno::NOENT) };
        let link = || -> std::result::Result<(), Errno> {
            let (dir, rest) = beneath(self.base.as_fd(), first)?;
            let dir = dir.as_ref().map_or(self.base.as_fd(), |d| d.as_fd());
            rustix::fs::linkat(dir, rest, self.here(), name, AtFlags::empty())
        };
        match link() {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(self.here(), name, AtFlags::empty())?;
                link()
            }
            // A device that could not be made has no other names either.
            Err(Errno::NOENT) => self.attrs.refuse("links", &self.path.clone(), Errno::PERM),
            r => r,
        }
    }
}

/// Opens the way down a path until the rest of it is short enough for one call.
fn beneath<'a>(
    base: BorrowedFd<'_>,
    path: &'a [u8],
) -> std::result::Result<(Option<OwnedFd>, &'a [u8]), Errno> {
    let (mut dir, mut rest) = (None::<OwnedFd>, path);
    while rest.len() > PATH_MAX {
        let cut = rest[..PATH_MAX].iter().rposition(|&b| b == b'/').ok_or(Errno::NAMETOOLONG)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = dir.as_ref().map_or(base, |d| d.as_fd());
        let next = rustix::fs::openat(at, &rest[..cut], flags, Mode::empty())?;
        dir = Some(next);
        rest = &rest[cut + 1..];
    }
    Ok((dir, rest))
}

fn write_piece(fd: BorrowedFd<'_>, p: &Piece) -> std::result::Result<(), Errno> {
    let mut bytes = &p.run.bytes()[..p.len];
    let mut at = p.pos;
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = &bytes[n..];
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
