//! The tree that the operations of a run make from an empty one, with its whole history.
//!
//! State `n` is the tree after `n` operations. An object's number is that of the operation that made it; on
//! the volume, it is the owner's user id, which no operation changes.

use crate::history::History;
use crate::ops::{CrashOp, Place, SLOTS, Step, Target, xattr};
use crate::stamp::{self, PAGE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_vfs::FileType;

/// Identifies an object.
pub type Id = u32;
/// The root directory.
pub const ROOT: Id = 0;
/// A directory and a name in it.
pub type Link = (Id, Vec<u8>);
/// One page; `None` reads as zeros.
pub type Page = Option<Arc<Vec<u8>>>;

/// A file, directory or symbolic link with its history.
#[derive(Clone)]
pub struct Object {
    /// Its type.
    pub kind: FileType,
    /// Its names.
    pub names: History<BTreeSet<Link>>,
    /// Its permission bits.
    pub mode: History<u32>,
    /// Its group.
    pub gid: History<u32>,
    /// The time of its last access in seconds; `None` until it is set.
    pub atime: History<Option<i64>>,
    /// Its size.
    pub size: History<u64>,
    /// The states in which the size was set, and the size.
    pub truncated: Vec<(usize, u64)>,
    /// The states in which a range was taken out or put in, and by how many pages the pages behind the range
    /// moved.
    pub shifted: Vec<(usize, u64)>,
    /// Its pages.
    pub pages: BTreeMap<u64, History<Page>>,
    /// Its extended attributes.
    pub xattrs: BTreeMap<&'static str, History<Option<Vec<u8>>>>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

/// The tree that a run's operations make, with its history.
#[derive(Clone)]
pub struct Model {
    /// The number of operations done.
    pub state: usize,
    /// All objects that ever existed.
    pub objects: BTreeMap<Id, Object>,
    /// All names that a directory ever had.
    pub entries: BTreeMap<Id, BTreeMap<Vec<u8>, History<Option<Id>>>>,
    /// The files that are kept open.
    pub held: [Option<Id>; SLOTS],
}

impl Default for Model {
    fn default() -> Self {
        let mut m =
            Model { state: 0, objects: BTreeMap::new(), entries: BTreeMap::new(), held: [None; SLOTS] };
        m.add(ROOT, FileType::Directory, 0o755);
        m
    }
}

impl Model {
    fn add(&mut self, id: Id, kind: FileType, mode: u32) {
        let mut o = Object {
            kind,
            names: History::default(),
            mode: History::default(),
            gid: History::default(),
            atime: History::default(),
            size: History::default(),
            truncated: Vec::new(),
            shifted: Vec::new(),
            pages: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
        };
        o.mode.set(0, mode);
        self.objects.insert(id, o);
    }

    /// The tree as it is, without its history; a file without a name is left out.
    pub fn settled(mut self) -> Model {
        self.objects.retain(|id, o| *id == ROOT || !o.names.now().is_empty());
        let objects = self.objects.into_iter().map(|(id, o)| (id, o.settled())).collect();
        let mut entries = BTreeMap::new();
        for (dir, names) in self.entries {
            let names: BTreeMap<_, _> =
                names.into_iter().filter(|e| e.1.now().is_some()).map(|(n, h)| (n, h.settled())).collect();
            entries.insert(dir, names);
        }
        Model { state: 0, objects, entries, held: [None; SLOTS] }
    }

    /// The file that has a name now.
    pub fn entry(&self, dir: Id, name: &[u8]) -> Option<Id> {
        *self.entries.get(&dir)?.get(name)?.now()
    }

    /// The file at a path now.
    pub fn find(&self, at: Place) -> Option<Id> {
        at.names().try_fold(ROOT, |dir, name| self.entry(dir, name.as_bytes()))
    }

    /// The directory and the name of a path that is not the root's.
    pub fn link_of(&self, at: Place) -> Option<Link> {
        let mut names: Vec<_> = at.names().collect();
        let last = names.pop()?;
        let dir = names.into_iter().try_fold(ROOT, |dir, name| self.entry(dir, name.as_bytes()))?;
        self.is(dir, FileType::Directory).then(|| (dir, last.as_bytes().to_vec()))
    }

    /// The file that a target names.
    pub fn file(&self, t: Target) -> Option<Id> {
        let id = match t {
            Target::At(p) => self.find(p)?,
            Target::Held(n) => self.held[n as usize % SLOTS]?,
        };
        self.is(id, FileType::Regular).then_some(id)
    }

    /// The size of a file now.
    pub fn size(&self, t: Target) -> Option<u64> {
        self.file(t).map(|id| *self.objects[&id].size.now())
    }

    fn is(&self, id: Id, kind: FileType) -> bool {
        self.objects[&id].kind == kind
    }

    fn is_empty(&self, dir: Id) -> bool {
        self.entries.get(&dir).is_none_or(|e| e.values().all(|h| h.now().is_none()))
    }

    /// Whether directory `id` is `dir` or above it.
    fn is_above(&self, id: Id, mut dir: Id) -> bool {
        while dir != id && dir != ROOT {
            match self.objects[&dir].names.now().first() {
                Some((parent, _)) => dir = *parent,
                None => return false,
            }
        }
        dir == id
    }

    /// Whether an operation can be done now.
    pub fn can(&self, op: &CrashOp) -> bool {
        use CrashOp::*;
        let missing = |p: Place| self.link_of(p).is_some_and(|(d, n)| self.entry(d, &n).is_none());
        let is = |p: Place, kind| self.find(p).is_some_and(|id| self.is(id, kind));
        match op {
            Create { at } | Mkdir { at } | Symlink { at, .. } => missing(*at),
            Write { file, .. }
            | WriteSync { file, .. }
            | Truncate { file, .. }
            | Punch { file, .. }
            | Allocate { file, .. }
            | Zero { file, .. }
            | Fsync { file }
            | Fdatasync { file }
            | Writeback { file } => self.file(*file).is_some(),
            Collapse { file, pos, len } => self.size(*file).is_some_and(|size| pos + len < size),
            Insert { file, pos, .. } => self.size(*file).is_some_and(|size| *pos < size),
            Rename { from, to, exchange } => self.can_rename(*from, *to, *exchange).is_some(),
            Link { from, to } => {
                self.find(*from).is_some_and(|id| !self.is(id, FileType::Directory)) && missing(*to)
            }
            Tmpfile { slot } => self.held[*slot as usize % SLOTS].is_none(),
            LinkHeld { slot, to } => {
                self.held[*slot as usize % SLOTS].is_some_and(|id| self.can_get_a_name(id)) && missing(*to)
            }
            Unlink { at } => self.find(*at).is_some_and(|id| !self.is(id, FileType::Directory)),
            Rmdir { at } => {
                *at != Place::ROOT
                    && is(*at, FileType::Directory)
                    && self.find(*at).is_some_and(|d| self.is_empty(d))
            }
            SetXattr { at, .. } => self.find(*at).is_some_and(|id| !self.is(id, FileType::Symlink)),
            RemoveXattr { at, name } => self
                .find(*at)
                .and_then(|id| self.objects[&id].xattrs.get(xattr(*name)))
                .is_some_and(|h| h.now().is_some()),
            Chmod { at, .. } => {
                *at != Place::ROOT && self.find(*at).is_some_and(|id| !self.is(id, FileType::Symlink))
            }
            Chown { at, .. } => *at != Place::ROOT && self.find(*at).is_some(),
            // The access time of other types changes when they are read, on the way to a file or when the
            // tree is judged.
            Utimes { at, .. } => is(*at, FileType::Regular),
            FsyncDir { at } => is(*at, FileType::Directory),
            Sync | Clean { .. } | Trim | Turn { .. } => true,
            Hold { at, slot } => self.held[*slot as usize % SLOTS].is_none() && is(*at, FileType::Regular),
            Release { slot } => self.held[*slot as usize % SLOTS].is_some(),
        }
    }

    fn can_rename(&self, from: Place, to: Place, exchange: bool) -> Option<()> {
        let (old, new) = (self.link_of(from)?, self.link_of(to)?);
        let id = self.entry(old.0, &old.1)?;
        let target = self.entry(new.0, &new.1);
        let is_dir = |id| self.is(id, FileType::Directory);
        let mut fine = !(is_dir(id) && self.is_above(id, new.0)) && target != Some(id);
        match target {
            Some(t) if exchange => fine &= !(is_dir(t) && self.is_above(t, old.0)),
            Some(t) => fine &= is_dir(id) == is_dir(t) && (!is_dir(t) || self.is_empty(t)),
            None => fine &= !exchange,
        }
        fine.then_some(())
    }

    /// Whether a file has a name or never had one; a file whose last name was removed cannot get another.
    fn can_get_a_name(&self, id: Id) -> bool {
        let names = &self.objects[&id].names;
        !names.now().is_empty() || names.between(0, self.state).all(BTreeSet::is_empty)
    }

    /// Does an operation; an impossible operation changes nothing.
    pub fn apply(&mut self, step: &Step) {
        use CrashOp::*;
        let can = self.can(&step.op);
        self.state += 1;
        if !can {
            return;
        }
        let id = step.serial;
        match &step.op {
            Create { at } => self.make(*at, id, FileType::Regular, 0o644),
            Mkdir { at } => self.make(*at, id, FileType::Directory, 0o755),
            Symlink { at, len } => {
                self.make(*at, id, FileType::Symlink, 0o777);
                self.change(id, |o, now| {
                    o.target = stamp::text(id, *len as usize);
                    o.size.set(now, *len as u64);
                });
            }
            Write { file, pos, len } | WriteSync { file, pos, len } => {
                self.on_file(*file, |o, f, now| o.write(f, id, *pos, *len, now))
            }
            Truncate { file, size } => self.on_file(*file, |o, _, now| o.truncate(*size, now)),
            Punch { file, pos, len } => self.on_file(*file, |o, _, now| o.zero(*pos, pos + len, now)),
            Allocate { file, pos, len, keep } => self.on_file(*file, |o, _, now| {
                if !keep && pos + len > *o.size.now() {
                    o.size.set(now, pos + len);
                }
            }),
            Zero { file, pos, len, keep } => self.on_file(*file, |o, _, now| {
                o.zero(*pos, pos + len, now);
                if !keep && pos + len > *o.size.now() {
                    o.size.set(now, pos + len);
                }
            }),
            Collapse { file, pos, len } => self.on_file(*file, |o, _, now| o.collapse(*pos, *len, now)),
            Insert { file, pos, len } => self.on_file(*file, |o, _, now| o.insert(*pos, *len, now)),
            Rename { from, to, exchange } => self.rename(*from, *to, *exchange),
            CrashOp::Link { from, to } => {
                if let (Some(id), Some(link)) = (self.find(*from), self.link_of(*to)) {
                    self.bind(link, Some(id));
                }
            }
            Tmpfile { slot } => {
                self.add(id, FileType::Regular, 0o600);
                self.held[*slot as usize % SLOTS] = Some(id);
            }
            LinkHeld { slot, to } => {
                if let (id @ Some(_), Some(link)) = (self.held[*slot as usize % SLOTS], self.link_of(*to)) {
                    self.bind(link, id);
                }
            }
            Unlink { at } | Rmdir { at } => {
                if let Some(link) = self.link_of(*at) {
                    self.bind(link, None);
                }
            }
            SetXattr { at, name, len } => self.set_xattr(*at, *name, Some(stamp::text(id, *len as usize))),
            RemoveXattr { at, name } => self.set_xattr(*at, *name, None),
            Chmod { at, mode } => {
                if let Some(id) = self.find(*at) {
                    self.change(id, |o, now| o.mode.set(now, *mode));
                }
            }
            Chown { at, gid } => {
                if let Some(id) = self.find(*at) {
                    self.change(id, |o, now| o.gid.set(now, *gid));
                }
            }
            Utimes { at, atime } => {
                if let Some(id) = self.find(*at) {
                    self.change(id, |o, now| o.atime.set(now, Some(*atime)));
                }
            }
            Hold { at, slot } => self.held[*slot as usize % SLOTS] = self.find(*at),
            Release { slot } => self.held[*slot as usize % SLOTS] = None,
            Fsync { .. } | Fdatasync { .. } | FsyncDir { .. } | Sync => {}
            Writeback { .. } | Clean { .. } | Trim | Turn { .. } => {}
        }
    }

    fn change(&mut self, id: Id, f: impl FnOnce(&mut Object, usize)) {
        let now = self.state;
        if let Some(o) = self.objects.get_mut(&id) {
            f(o, now);
        }
    }

    fn on_file(&mut self, t: Target, f: impl FnOnce(&mut Object, Id, usize)) {
        if let Some(id) = self.file(t) {
            self.change(id, |o, now| f(o, id, now));
        }
    }

    fn make(&mut self, at: Place, id: Id, kind: FileType, mode: u32) {
        if let Some(link) = self.link_of(at) {
            self.add(id, kind, mode);
            self.bind(link, Some(id));
        }
    }

    /// Binds a name to `to`, and updates the names of both the old and the new object.
    fn bind(&mut self, link: Link, to: Option<Id>) {
        let now = self.state;
        let h = self.entries.entry(link.0).or_default().entry(link.1.clone()).or_default();
        let from = *h.now();
        h.set(now, to);
        for (id, has) in [(from, false), (to, true)] {
            let Some(id) = id else { continue };
            self.change(id, |o, now| {
                let mut names = o.names.now().clone();
                if has {
                    names.insert(link.clone())
                } else {
                    names.remove(&link)
                };
                o.names.set(now, names);
            });
        }
    }

    fn rename(&mut self, from: Place, to: Place, exchange: bool) {
        let (Some(old), Some(new)) = (self.link_of(from), self.link_of(to)) else { return };
        let (id, target) = (self.entry(old.0, &old.1), self.entry(new.0, &new.1));
        self.bind(new, id);
        self.bind(old, target.filter(|_| exchange));
        // A file that was replaced lost its name in the first step.
        for id in [id, target].into_iter().flatten() {
            self.recount(id);
        }
    }

    /// Sets an object's names to the names that the directories have for it.
    fn recount(&mut self, id: Id) {
        let mut names = BTreeSet::new();
        for (dir, entries) in &self.entries {
            names.extend(
                entries.iter().filter(|e| *e.1.now() == Some(id)).map(|(name, _)| (*dir, name.clone())),
            );
        }
        self.change(id, |o, now| o.names.set(now, names));
    }

    fn set_xattr(&mut self, at: Place, name: u8, value: Option<Vec<u8>>) {
        if let Some(id) = self.find(at) {
            self.change(id, |o, now| o.xattrs.entry(xattr(name)).or_default().set(now, value));
        }
    }
}

impl Object {
    fn settled(self) -> Object {
        let pages = self.pages.into_iter().filter(|p| p.1.now().is_some());
        Object {
            kind: self.kind,
            names: self.names.settled(),
            mode: self.mode.settled(),
            gid: self.gid.settled(),
            atime: self.atime.settled(),
            size: self.size.settled(),
            truncated: Vec::new(),
            shifted: Vec::new(),
            pages: pages.map(|(n, h)| (n, h.settled())).collect(),
            xattrs: self.xattrs.into_iter().map(|(n, h)| (n, h.settled())).collect(),
            target: self.target,
        }
    }

    fn write(&mut self, file: Id, version: u32, pos: u64, len: u32, now: usize) {
        let end = pos + len as u64;
        let mut at = pos;
        while at < end {
            let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = (PAGE - from).min((end - at) as usize);
            let h = self.pages.entry(index).or_default();
            let mut page = h.now().as_ref().map_or_else(|| vec![0; PAGE], |p| p.to_vec());
            stamp::fill(file, version, at, &mut page[from..from + n]);
            h.set(now, Some(Arc::new(page)));
            at += n as u64;
        }
        if len > 0 && end > *self.size.now() {
            self.size.set(now, end);
        }
    }

    fn truncate(&mut self, size: u64, now: usize) {
        self.zero(size, u64::MAX, now);
        self.truncated.push((now, size));
        self.size.set(now, size);
    }

    /// The numbers of the pages from `first` on that were ever written.
    fn from(&self, first: u64) -> impl Iterator<Item = u64> {
        self.pages.range(first..).map(|p| *p.0)
    }

    /// The current content of a page.
    fn page(&self, index: u64) -> Page {
        self.pages.get(&index).and_then(|h| h.now().clone())
    }

    /// Takes whole pages out. For a while before that, they may be zeros: their blocks are freed first.
    fn collapse(&mut self, pos: u64, len: u64, now: usize) {
        let (first, by) = (pos / PAGE as u64, len / PAGE as u64);
        let gone = self.from(first + by).map(|i| i - by);
        let moved: Vec<(u64, Page)> = gone.chain(self.from(first)).map(|i| (i, self.page(i + by))).collect();
        for (index, page) in moved {
            let h = self.pages.entry(index).or_default();
            if index < first + by { h.set_through(now, None, page) } else { h.set(now, page) }
        }
        self.size.set(now, self.size.now() - len);
        self.shifted.push((now, by));
    }

    /// Puts whole pages of zeros in.
    fn insert(&mut self, pos: u64, len: u64, now: usize) {
        let (first, by) = (pos / PAGE as u64, len / PAGE as u64);
        let behind = self.from(first).map(|i| i + by).chain(self.from(first));
        let page = |i| if i < first + by { None } else { self.page(i - by) };
        let moved: Vec<(u64, Page)> = behind.map(|i| (i, page(i))).collect();
        for (index, page) in moved {
            self.pages.entry(index).or_default().set(now, page);
        }
        self.size.set(now, self.size.now() + len);
        self.shifted.push((now, by));
    }

    /// Makes a range read as zeros.
    fn zero(&mut self, from: u64, to: u64, now: usize) {
        for (&index, h) in self.pages.range_mut(from / PAGE as u64..to.div_ceil(PAGE as u64)) {
            let start = index * PAGE as u64;
            let (a, b) = (from.saturating_sub(start) as usize, (to - start).min(PAGE as u64) as usize);
            let Some(old) = h.now() else { continue };
            if (a, b) == (0, PAGE) {
                h.set(now, None);
            } else {
                let mut page = old.to_vec();
                page[a..b].fill(0);
                h.set(now, Some(Arc::new(page)));
            }
        }
    }
}
