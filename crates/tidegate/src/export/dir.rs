//! Makes a tree on the host.

use super::attrs::{self, Attrs};
use super::replace;
use super::sink::Sink;
use super::{Exported, Item, Piece, To};
use crate::descent::Descent;
use crate::error::{Error, Failed, Refusal, Result, Subject, path_bytes};
use crate::host;
use crate::node::Meta;
use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tidegate_block::Errno;
use tidegate_rt::channel::Receiver;
use tidegate_vfs::FileType;

/// The longest path that is given to one call.
const PATH_MAX: usize = 4000;

/// A directory being filled.
struct Level {
    /// Length of its path.
    path: usize,
    meta: Meta,
    /// Files that are made in it get its group, or an ACL.
    hands_down: bool,
    /// It existed, the caller named it, and it keeps its attributes.
    keeps: bool,
}

struct Writer {
    /// The place of the tree: an existing directory, and the name of the top in it.
    base: OwnedFd,
    top: CString,
    stack: Descent<Level>,
    /// The path of the present directory, from `base` on.
    path: Vec<u8>,
    shown: Vec<u8>,
    attrs: Attrs,
    /// The file that is being written.
    current: Option<Current>,
    /// The paths of the first names of files with several names, from `base` on.
    links: HashMap<u64, Vec<u8>>,
    /// Also set the attributes of directories that existed before.
    attributes: bool,
    /// The top is not a name that the caller gave.
    inside: bool,
    /// The depth below a directory that could not be made.
    skipped: usize,
    /// The image that is read, which no file may replace.
    image: Option<(u64, u64)>,
    failed: Failed,
}

struct Current {
    sink: Sink,
    name: CString,
    meta: Meta,
    size: u64,
    link: Option<u64>,
}

/// Makes the received files at `to`. An existing directory is filled; in a tree an existing file is replaced.
/// An item that cannot be made is reported to `failed`, and the rest is made all the same.
///
/// # Errors
/// The host's, with the path, when no more can be written.
pub fn write(to: &To, from: Receiver<Vec<Item>>, failed: Failed) -> Result<Exported> {
    let attrs = Attrs::of_process(to);
    let (attributes, inside, image, to) = (to.attributes, to.inside, to.image, to.path.as_path());
    let dir = crate::image::dir_of(to);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A path without a name of its own (`.`, `/`, `..`) is a directory and is opened as such.
    let (base, top) = match to.file_name() {
        Some(name) => (dir, name.as_encoded_bytes().to_vec()),
        None => (to, b".".to_vec()),
    };
    let fd = rustix::fs::open(base, flags, Mode::empty()).map_err(|e| Error::os(path_bytes(base), e))?;
    let mut w = Writer {
        base: fd,
        top: CString::new(top).map_err(|_| Error::os(path_bytes(to), Errno::INVAL))?,
        stack: Descent::new(),
        path: Vec::new(),
        shown: path_bytes(base).to_vec(),
        attrs,
        current: None,
        links: HashMap::new(),
        attributes,
        inside,
        skipped: 0,
        image,
        failed,
    };
    while let Some(batch) = from.recv() {
        for item in batch {
            w.apply(item)?;
        }
    }
    Ok(Exported { notes: w.attrs.notes() })
}

/// Whether all further work would fail after this error.
fn ends_all(e: Errno) -> bool {
    matches!(e, Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO)
}

impl Writer {
    /// The path that is being made.
    fn target(&self) -> Subject {
        Subject::host(&crate::paths::join(&self.shown, &self.path))
    }

    fn apply(&mut self, item: Item) -> Result<()> {
        if self.skips(&item) {
            return Ok(());
        }
        let is_dir = matches!(item, Item::Dir { .. });
        let Err(e) = self.step(item) else { return Ok(()) };
        let error = Error::os(&crate::paths::join(&self.shown, &self.path), e);
        let error = match self.give_up() {
            Some(left) => error.and(left),
            None => error,
        };
        self.skipped = is_dir as usize;
        self.ascend();
        if ends_all(e) || self.stack.is_lost() {
            return Err(error);
        }
        (self.failed)(error);
        Ok(())
    }

    /// Whether a step belongs to a directory that could not be made.
    fn skips(&mut self, item: &Item) -> bool {
        let skip = self.skipped > 0;
        match item {
            Item::Dir { .. } if skip => self.skipped += 1,
            Item::Leave if skip => self.skipped -= 1,
            _ => {}
        }
        skip
    }

    fn step(&mut self, item: Item) -> std::result::Result<(), Errno> {
        match item {
            Item::Dir { name, meta } => {
                let name = self.descend(name);
                let meta = self.attrs.kept(meta);
                self.enter(&name, meta)
            }
            Item::Leave => {
                let Some((fd, l)) = self.stack.pop()? else { return Ok(()) };
                self.path.truncate(l.path);
                let name = self.path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec();
                if !l.keeps {
                    self.attrs.set(fd.as_fd(), &name, &l.meta, None, false)?;
                }
                self.ascend();
                Ok(())
            }
            Item::Data(p) => self.current.as_mut().map_or(Ok(()), |c| c.sink.piece(&p)),
            Item::End => self.end(),
            Item::Abandon => {
                if let Some(left) = self.give_up() {
                    (self.failed)(Error::refused(Refusal::Failed, self.target(), left));
                }
                self.ascend();
                Ok(())
            }
            Item::File { name, meta, size, pieces, more, link, .. } => {
                let name = self.descend(name);
                let meta = self.attrs.kept(meta);
                self.file(name, meta, size, link)?;
                self.remember(link);
                let sink = self.current.as_mut().map(|c| &mut c.sink);
                sink.map_or(Ok(()), |s| pieces.iter().try_for_each(|p: &Piece| s.piece(p)))?;
                if more { Ok(()) } else { self.end() }
            }
            Item::Special { name, meta, target, link } => {
                let name = self.descend(name);
                let meta = self.attrs.kept(meta);
                self.special(&name, &meta, &target)?;
                self.remember(link);
                self.ascend();
                Ok(())
            }
            Item::Link { name, to, .. } => {
                let name = self.descend(name);
                if self.links.contains_key(&to) {
                    self.link(&name, to)?;
                } else {
                    (self.failed)(Error::refused(
                        Refusal::Failed,
                        self.target(),
                        "its first name could not be made",
                    ));
                }
                self.ascend();
                Ok(())
            }
        }
    }

    /// Goes down to `name`, or to the top when `name` is empty.
    fn descend(&mut self, name: Vec<u8>) -> CString {
        let name = if name.is_empty() { self.top.clone() } else { CString::new(name).unwrap_or_default() };
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        name
    }

    fn ascend(&mut self) {
        self.path.truncate(self.stack.last().map_or(0, |(_, l)| l.path));
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.stack.last().map_or(self.base.as_fd(), |(fd, _)| fd)
    }

    fn enter(&mut self, name: &CString, meta: Meta) -> std::result::Result<(), Errno> {
        let (flags, mode) = (OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::RWXU);
        let made = match rustix::fs::mkdirat(self.here(), name, mode) {
            Err(Errno::EXIST) => false,
            r => r.map(|()| true)?,
        };
        // A link may lead to the directory only where the caller named it.
        let named = self.stack.is_empty() && !self.inside;
        let flags = if named && !made { flags } else { flags | OFlags::NOFOLLOW };
        let fd = rustix::fs::openat(self.here(), name, flags, Mode::empty())?;
        let is_set = rustix::fs::fstat(&fd)?.st_mode & 0o2000 != 0;
        if made {
            // The directory may have got a set-group-id bit or ACLs from its parent.
            attrs::drop_acls(fd.as_fd());
            if is_set {
                rustix::fs::fchmod(&fd, mode)?;
            }
        }
        let hands_down = !made && (is_set || attrs::hands_acls_down(fd.as_fd()));
        let keeps = !made && self.stack.is_empty() && !self.attributes;
        self.stack.push(fd, Level { path: self.path.len(), meta, hands_down, keeps })
    }

    /// Begins a file. A file that the caller named as the whole destination is overwritten, not replaced.
    fn file(
        &mut self,
        name: CString,
        meta: Meta,
        size: u64,
        link: Option<u64>,
    ) -> std::result::Result<(), Errno> {
        let mode = self.attrs.create_mode(&meta);
        let there = if self.stack.is_empty() { Sink::open(self.here(), &name)? } else { None };
        let sink = there.map_or_else(|| Sink::make(self.here(), &name, self.image, mode), Ok)?;
        self.current = Some(Current { sink, name, meta, size, link });
        Ok(())
    }

    /// Completes the current file.
    fn end(&mut self) -> std::result::Result<(), Errno> {
        let Some(c) = &mut self.current else { return Ok(()) };
        c.sink.end(c.size)?;
        let made = c.sink.made();
        if made.is_some() || self.attributes && c.sink.is_file() {
            let inherits = self.stack.last().is_none_or(|(_, l)| l.hands_down);
            self.attrs.set(c.sink.fd(), c.name.to_bytes(), &c.meta, made, inherits)?;
        }
        if let Some(c) = self.current.take() {
            let link = c.link;
            // The name then belongs to another file: no other name must be linked to it.
            c.sink.settle(self.here()).inspect_err(|_| self.forget(link))?;
        }
        self.ascend();
        Ok(())
    }

    /// Removes the incomplete current file. Returns the message about it if it stays.
    fn give_up(&mut self) -> Option<&'static str> {
        let c = self.current.take()?;
        self.forget(c.link);
        c.sink.give_up(self.here())
    }

    fn special(&mut self, name: &CString, meta: &Meta, target: &[u8]) -> std::result::Result<(), Errno> {
        let top = self.stack.is_empty();
        let inherits = self.stack.last().is_none_or(|(_, l)| l.hands_down);
        // The borrow of the directory ends before the attributes are set.
        let Writer { stack, base, attrs, path, image, .. } = self;
        let dir = stack.last().map_or(base.as_fd(), |(fd, _)| fd);
        if top && host::stat(dir, name).is_ok_and(|st| !gives_way(st.st_mode)) {
            return Err(Errno::EXIST);
        }
        let made = replace::make(dir, name, *image, |name| match meta.kind {
            FileType::Symlink => rustix::fs::symlinkat(target, dir, name),
            kind => {
                let dev = rustix::fs::makedev(meta.rdev.major, meta.rdev.minor);
                let mode = Mode::from_raw_mode(meta.mode & 0o700);
                rustix::fs::mknodat(dir, name, HostType::from_raw_mode(kind.mode_bits()), mode, dev)
            }
        });
        match made {
            Ok(((), made)) => match attrs.set_at(dir, made.at(), meta, inherits) {
                Ok(()) => made.settle(dir),
                Err(e) => {
                    made.give_up(dir);
                    Err(e)
                }
            },
            Err(e) if matches!(meta.kind, FileType::CharDevice | FileType::BlockDevice) => {
                attrs.refuse("devices", path, e)
            }
            Err(e) => Err(e),
        }
    }

    fn remember(&mut self, link: Option<u64>) {
        if let Some(n) = link {
            self.links.insert(n, self.path.clone());
        }
    }

    fn forget(&mut self, link: Option<u64>) {
        if let Some(n) = link {
            self.links.remove(&n);
        }
    }

    fn link(&mut self, name: &CString, to: u64) -> std::result::Result<(), Errno> {
        let Some(first) = self.links.get(&to) else { return Err(Errno::NOENT) };
        let link = || {
            let (dir, rest) = beneath(self.base.as_fd(), first)?;
            let dir = dir.as_ref().map_or(self.base.as_fd(), |d| d.as_fd());
            let ((), made) = replace::make(self.here(), name, self.image, |name| {
                rustix::fs::linkat(dir, rest, self.here(), name, AtFlags::empty())
            })?;
            made.settle(self.here())
        };
        match link() {
            // The first name may be missing, as of a device that could not be made.
            Err(Errno::NOENT) => self.attrs.refuse("links", &self.path.clone(), Errno::PERM),
            r => r,
        }
    }
}

/// Opens directories down a path until the rest of the path is short enough for one call.
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

/// Whether a file of this mode, which the caller named as the whole destination, may be replaced by something
/// that is no regular file.
fn gives_way(mode: u32) -> bool {
    matches!(HostType::from_raw_mode(mode), HostType::RegularFile | HostType::Symlink)
}
