//! Reads a tree of the host, in order of name: all other files first, then the directories.

use super::batch::{BatchSender, Gone};
use super::read_file::{self, Stop};
use super::{DirId, ImportOptions, Item, LinkTo, Place};
use crate::descent::Descent;
use crate::error::{Error, Refusal, Result, path_bytes, show};
use crate::host::{self, HostEntry};
use crate::node::Meta;
use rustix::fs::{Mode, OFlags, Stat};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use tidegate_block::Errno;
use tidegate_vfs::FileType;

/// Ends a walk: an error, or the applying thread has one.
enum End {
    Error(Error),
    Gone,
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        End::Gone
    }
}

/// A directory on the way down.
struct Level {
    id: DirId,
    /// Directories that are still to be entered, the last first.
    below: Vec<CString>,
    /// The length of the path up to and including this directory.
    path: usize,
}

struct Walker<'a> {
    options: &'a ImportOptions,
    to: BatchSender,
    /// The path of the walk's present place, for errors.
    path: Vec<u8>,
    next_id: DirId,
    /// Files with several names that were met, and how many names are still to come.
    links: HashMap<(u64, u64), u64>,
    next_link: u64,
    names: Vec<u8>,
}

/// Reads the file or tree at `path` and sends its items. With `named`, it gets a name in the target.
/// Otherwise it must be a directory, and its content goes into the target.
pub fn walk(path: &Path, named: bool, options: &ImportOptions, to: BatchSender) -> Result<()> {
    let mut w = Walker {
        options,
        to,
        path: path_bytes(path).to_vec(),
        next_id: 0,
        links: HashMap::new(),
        next_link: 0,
        names: Vec::new(),
    };
    match w.run(path, named) {
        Ok(()) | Err(End::Gone) => Ok(()),
        Err(End::Error(e)) => {
            // Items that were read before the error go in. The thread that applies them may be gone.
            let _ = w.to.send();
            Err(e)
        }
    }
}

impl Walker<'_> {
    fn run(&mut self, path: &Path, named: bool) -> std::result::Result<(), End> {
        // The path of the caller may be a link to a directory, as `dir/` and `.` are followed, too.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) if !named || !is_link(path) => {
                let st = rustix::fs::fstat(&fd).map_err(|e| self.os(e))?;
                self.tree(fd, &st, Place::Root)?;
            }
            Ok(_) | Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) if named => {
                let (parent, name) = split(path);
                let dir = rustix::fs::open(parent, flags, Mode::empty()).map_err(|e| self.os(e))?;
                let entry = HostEntry { name, kind: None };
                self.leaf(dir.as_fd(), &entry, Place::Root)?;
            }
            Ok(_) => return Err(self.os(Errno::NOTDIR)),
            Err(e) => return Err(self.os(e)),
        }
        Ok(self.to.send()?)
    }

    fn os(&self, e: Errno) -> End {
        End::Error(Error::os(&self.path, e))
    }

    fn tree(&mut self, fd: OwnedFd, st: &Stat, place: Place) -> std::result::Result<(), End> {
        let mut way = Descent::new();
        let top = self.enter(&fd, st, place)?;
        way.push(fd, top).map_err(|e| self.os(e))?;
        while let Some((fd, level)) = way.last_mut() {
            self.path.truncate(level.path);
            let Some(name) = level.below.pop() else {
                self.to.push(Item::Leave(level.id))?;
                way.pop().map_err(|e| self.os(e))?;
                continue;
            };
            self.descend(&name);
            let below = self.below(fd, level.id, name);
            if let Some((fd, level)) = self.or_leave_out(below)?.flatten() {
                way.push(fd, level).map_err(|e| self.os(e))?;
            }
        }
        Ok(())
    }

    /// Leaves out a part that cannot be read, and reports it, if the caller wants that.
    fn or_leave_out<T>(&self, r: std::result::Result<T, End>) -> std::result::Result<Option<T>, End> {
        match (r, &self.options.failed) {
            (Err(End::Error(e)), Some(failed)) => {
                failed(e);
                Ok(None)
            }
            (r, _) => r.map(Some),
        }
    }

    /// Enters the directory `name` of `dir`, whose number is `id`, if it is still there.
    fn below(
        &mut self,
        dir: BorrowedFd<'_>,
        id: DirId,
        name: CString,
    ) -> std::result::Result<Option<(OwnedFd, Level)>, End> {
        let fd = match host::open(dir, &name) {
            Err(Errno::NOENT) => return Ok(None),
            r => r.map_err(|e| self.os(e))?,
        };
        let st = rustix::fs::fstat(&fd).map_err(|e| self.os(e))?;
        let level = self.enter(&fd, &st, Place::In(id, name.into_bytes()))?;
        Ok(Some((fd, level)))
    }

    fn descend(&mut self, name: &CStr) {
        if !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
    }

    /// Announces a directory and sends its files, but not its directories.
    fn enter(&mut self, fd: &OwnedFd, st: &Stat, place: Place) -> std::result::Result<Level, End> {
        let id = self.next_id;
        self.next_id += 1;
        let xattrs = host::xattrs_of(fd).map_err(|e| self.os(e))?;
        // Something else may have taken its place.
        let is_dir = |m: &Meta| m.kind == FileType::Directory;
        let mut meta = host::meta(st, xattrs).filter(is_dir).ok_or_else(|| self.os(Errno::NOTDIR))?;
        self.options.adjust(&mut meta);
        self.to.push(Item::Dir { place, id, meta })?;
        let (entries, end) = host::list(fd.as_fd(), &mut self.names);
        self.or_leave_out(end.map_err(|e| self.os(e)))?;
        let path = self.path.len();
        let mut below = Vec::new();
        for entry in entries {
            if entry.kind == Some(FileType::Directory) {
                below.push(entry.name);
                continue;
            }
            self.descend(&entry.name);
            let place = Place::In(id, entry.name.to_bytes().to_vec());
            let is_dir = self.leaf(fd.as_fd(), &entry, place);
            if self.or_leave_out(is_dir)? == Some(true) {
                below.push(entry.name);
            }
            self.path.truncate(path);
        }
        below.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Level { id, below, path })
    }

    /// Sends a file that is no directory. Returns whether it turned out to be one.
    fn leaf(&mut self, dir: BorrowedFd<'_>, e: &HostEntry, place: Place) -> std::result::Result<bool, End> {
        let name = e.name.as_c_str();
        if e.kind == Some(FileType::Regular) {
            return match host::open(dir, name) {
                Ok(fd) => self.file(&fd, place).map(|()| false),
                Err(Errno::NOENT) => Ok(false),
                Err(Errno::LOOP) => self.special(dir, name, place), // a link replaced it meanwhile
                Err(e) => Err(self.os(e)),
            };
        }
        self.special(dir, name, place)
    }

    fn special(&mut self, dir: BorrowedFd<'_>, name: &CStr, place: Place) -> std::result::Result<bool, End> {
        let st = match host::stat(dir, name) {
            Err(Errno::NOENT) if self.next_id > 0 => return Ok(false),
            r => r.map_err(|e| self.os(e))?,
        };
        match FileType::from_mode(st.st_mode) {
            Some(FileType::Directory) => return Ok(true),
            Some(FileType::Regular) => {
                let fd = host::open(dir, name).map_err(|e| self.os(e))?;
                return self.file(&fd, place).map(|()| false);
            }
            _ => {}
        }
        let Some(place) = self.known(&st, place)? else { return Ok(false) };
        let xattrs = host::xattrs_at(dir, name).map_err(|e| self.os(e))?;
        let meta = self.meta(&st, xattrs)?;
        let target = match meta.kind {
            FileType::Symlink => {
                rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|e| self.os(e))?.into_bytes()
            }
            _ => Vec::new(),
        };
        let link = self.remember(&st);
        self.to.push(Item::Special { place, meta, target, link })?;
        Ok(false)
    }

    fn meta(&self, st: &Stat, xattrs: Vec<crate::node::Xattr>) -> std::result::Result<Meta, End> {
        let mut meta = host::meta(st, xattrs).ok_or_else(|| {
            End::Error(Error::refused(
                Refusal::Unsupported,
                show(&self.path),
                "neither file, link nor device",
            ))
        })?;
        self.options.adjust(&mut meta);
        Ok(meta)
    }

    fn file(&mut self, fd: &OwnedFd, place: Place) -> std::result::Result<(), End> {
        let fd = fd.as_fd();
        let st = rustix::fs::fstat(fd).map_err(|e| self.os(e))?;
        if self.options.skip.contains(&host::id(&st)) {
            let note = format!("{}: left out, it is the image being written", show(&self.path));
            return Ok(self.to.push(Item::Note(note))?);
        }
        let Some(place) = self.known(&st, place)? else { return Ok(()) };
        let xattrs = host::xattrs_of(fd).map_err(|e| self.os(e))?;
        let meta = self.meta(&st, xattrs)?;
        let size = st.st_size as u64;
        if read_file::is_small(&st) {
            let piece = read_file::whole(fd, size).map_err(|e| self.os(e))?;
            let size = piece.as_ref().map_or(0, |p| p.len as u64);
            let link = self.remember(&st);
            return Ok(self.to.push(Item::File { place, meta, size, piece, more: false, link })?);
        }
        let link = self.remember(&st);
        self.to.push(Item::File { place, meta, size, piece: None, more: true, link })?;
        let now = match read_file::pieces(fd, &st, &mut self.to) {
            Ok(now) => now,
            Err(Stop::Os(e)) => {
                // No other name must lead to half a file.
                self.links.remove(&host::id(&st));
                self.to.push(Item::Broken)?;
                return Err(self.os(e));
            }
            Err(Stop::Gone) => return Err(End::Gone),
        };
        Ok(self.to.push(Item::End((now != size).then_some(now)))?)
    }

    /// Sends another name of a file that was met before. Otherwise returns the place.
    fn known(&mut self, st: &Stat, place: Place) -> std::result::Result<Option<Place>, End> {
        if st.st_nlink > 1
            && let Some(&n) = self.links.get(&host::id(st))
        {
            self.to.push(Item::Link { place, to: LinkTo::Seen(n) })?;
            return Ok(None);
        }
        Ok(Some(place))
    }

    /// A number for a file whose other names may follow.
    fn remember(&mut self, st: &Stat) -> Option<u64> {
        if st.st_nlink < 2 {
            return None;
        }
        self.next_link += 1;
        self.links.insert(host::id(st), self.next_link);
        Some(self.next_link)
    }
}

fn is_link(path: &Path) -> bool {
    // A trailing slash or dot means the directory behind a link.
    let text = path_bytes(path);
    !text.ends_with(b"/") && !text.ends_with(b"/.") && path.is_symlink()
}

/// The directory a path lies in, and its name there.
fn split(path: &Path) -> (&Path, CString) {
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let name = path.file_name().map(|n| n.as_encoded_bytes().to_vec()).unwrap_or_default();
    (parent, CString::new(name).unwrap_or_default())
}
