//! Adds up a directory tree of the host, in as many threads as can run at once, up to [`MAX_THREADS`].

use super::{Content, Geometry, Names, Xattrs, xattrs};
use crate::error::{About, Error, Result, path_bytes};
use crate::host;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use tidegate_block::Errno;
use tidegate_rt::{Condvar, LockClass, Mutex, thread};
use tidegate_vfs::FileType;

static WORK: LockClass = LockClass::new("measure->work", 970);
static LINKED: LockClass = LockClass::new("measure->linked", 975);

/// The longest path by which attributes are read.
const PATH_MAX: usize = 4000;
/// The most threads. More would only wait for the host's locks.
const MAX_THREADS: usize = 4;

/// A directory to be counted: below an open one, or open itself.
struct Dir {
    parent: Option<(Arc<OwnedFd>, CString)>,
    top: Option<OwnedFd>,
    path: Vec<u8>,
}

/// The directories that are not counted yet. The last one found goes first, so few are open at a time.
struct Work {
    dirs: Vec<Dir>,
    /// The number of threads that may still find more.
    busy: usize,
    failed: bool,
}

struct Shared {
    geometry: Geometry,
    skip: Option<(u64, u64)>,
    work: Mutex<Work>,
    more: Condvar,
    linked: Mutex<HashSet<(u64, u64)>>,
}

/// Measures the tree at `path`, without the file `skip` (device and inode number).
///
/// # Errors
/// The part that cannot be read.
pub fn measure(path: &Path, geometry: &Geometry, skip: Option<(u64, u64)>) -> Result<Content> {
    let path = path_bytes(path);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let top = rustix::fs::open(path, flags, Mode::empty()).about(path)?;
    let first = Dir { parent: None, top: Some(top), path: path.to_vec() };
    let shared = Arc::new(Shared {
        geometry: *geometry,
        skip,
        work: Mutex::new(&WORK, Work { dirs: vec![first], busy: 0, failed: false }),
        more: Condvar::new(),
        linked: Mutex::new(&LINKED, HashSet::new()),
    });
    let threads: Vec<_> = (1..thread::parallelism().min(MAX_THREADS))
        .filter_map(|_| {
            let s = shared.clone();
            thread::spawn("tg-measure", move || Measure::new(&s).run()).ok()
        })
        .collect();
    let mut sum = Measure::new(&shared).run();
    for t in threads {
        let part = t.join();
        sum = sum.and_then(|a| part.map(|b| a.plus(&b)));
    }
    sum
}

/// The part of one thread.
struct Measure<'a> {
    shared: &'a Shared,
    content: Content,
    path: Vec<u8>,
    names: Vec<u8>,
    few: Vec<u8>,
}

impl<'a> Measure<'a> {
    fn new(shared: &'a Shared) -> Self {
        Measure {
            shared,
            content: Content::default(),
            path: Vec::new(),
            names: Vec::new(),
            few: vec![0; 512],
        }
    }

    fn run(mut self) -> Result<Content> {
        let mut found = Vec::new();
        let mut first = true;
        loop {
            let mut w = self.shared.work.lock();
            if !first {
                w.busy -= 1;
            }
            first = false;
            w.dirs.append(&mut found);
            while w.dirs.is_empty() && w.busy > 0 && !w.failed {
                self.shared.more.notify_all();
                self.shared.more.wait(&mut w);
            }
            let next = if w.failed { None } else { w.dirs.pop() };
            self.shared.more.notify_all();
            let Some(next) = next else { return Ok(self.content) };
            w.busy += 1;
            drop(w);
            if let Err(e) = self.dir(next, &mut found) {
                let mut w = self.shared.work.lock();
                w.busy -= 1;
                w.failed = true;
                self.shared.more.notify_all();
                return Err(e);
            }
        }
    }

    fn os(&self, e: Errno) -> Error {
        Error::os(&self.path, e)
    }

    /// Counts a directory and its files. Directories in it go to `found`.
    fn dir(&mut self, dir: Dir, found: &mut Vec<Dir>) -> Result<()> {
        self.path = dir.path;
        let fd = match (dir.top, &dir.parent) {
            (Some(fd), _) => fd,
            (None, Some((parent, name))) => match host::open(parent.as_fd(), name) {
                Err(Errno::NOENT) => return Ok(()), // removed meanwhile
                r => r.map_err(|e| self.os(e))?,
            },
            (None, None) => return Ok(()),
        };
        drop(dir.parent);
        let own = host::xattrs_of(&fd).map_err(|e| self.os(e))?;
        let (entries, end) = host::list(fd.as_fd(), &mut self.names);
        end.map_err(|e| Error::os(&self.path, e))?;
        let fd = Arc::new(fd);
        let len = self.path.len();
        let mut all = Names::new(&self.shared.geometry);
        for e in entries {
            all.add(e.name.to_bytes());
            if !self.path.ends_with(b"/") {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(e.name.to_bytes());
            if e.kind == Some(FileType::Directory) || self.leaf(fd.as_fd(), &e.name)? {
                found.push(Dir { parent: Some((fd.clone(), e.name)), top: None, path: self.path.clone() });
            }
            self.path.truncate(len);
        }
        self.content.dir(&self.shared.geometry, &all, xattrs(&own));
        Ok(())
    }

    /// Counts a file that is no directory. Returns whether it is a directory after all.
    fn leaf(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
        let st = match host::stat(dir, name) {
            Err(Errno::NOENT) => return Ok(false),
            r => r.map_err(|e| self.os(e))?,
        };
        let id = host::id(&st);
        if self.shared.skip == Some(id) || st.st_nlink > 1 && !self.is_first_name(id, st.st_mode) {
            return Ok(false);
        }
        let g = &self.shared.geometry;
        let size = st.st_size as u64;
        match FileType::from_mode(st.st_mode) {
            Some(FileType::Directory) => return Ok(true),
            Some(FileType::Regular) => {
                let xattrs = self.xattrs(dir, name)?;
                let whole = vec![(0, size)];
                let ranges = if host::may_have_holes(&st) { self.ranges(dir, name, size)? } else { whole };
                self.content.file(g, size, &ranges, xattrs);
            }
            Some(FileType::Symlink) => self.content.symlink(g, size, Xattrs::default()),
            _ => self.content.special(g, Xattrs::default()),
        }
        Ok(false)
    }

    fn is_first_name(&self, id: (u64, u64), mode: u32) -> bool {
        FileType::from_mode(mode) == Some(FileType::Directory) || self.shared.linked.lock().insert(id)
    }

    /// Most files have no attributes, and one call by path is enough to tell.
    fn xattrs(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Result<Xattrs> {
        if self.path.len() < PATH_MAX
            && matches!(
                rustix::fs::llistxattr(&self.path[..], &mut self.few[..]),
                Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOENT)
            )
        {
            return Ok(Xattrs::default());
        }
        match host::xattrs_at(dir, name) {
            Ok(v) => Ok(xattrs(&v)),
            // The import will report this error better.
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(Xattrs::default()),
            Err(e) => Err(self.os(e)),
        }
    }

    fn ranges(&self, dir: BorrowedFd<'_>, name: &CStr, size: u64) -> Result<Vec<(u64, u64)>> {
        let fd = host::open(dir, name).map_err(|e| self.os(e))?;
        let mut ranges = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = host::next_data(fd.as_fd(), at, size).map_err(|e| self.os(e))? {
            ranges.push((start, end - start));
            at = end;
        }
        Ok(ranges)
    }
}
