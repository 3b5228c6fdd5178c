//! Random operations on a volume and in its model. A worker has a directory to itself, or the whole volume.

use super::*;

/// Most bytes of a file.
const LONGEST: u64 = 1 << 20;
/// Most names on a volume.
const NAMES: usize = 90;

pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap()
}

impl Worker {
    /// A worker whose directory is there already.
    pub(super) fn new(s: &Soak, rng: Rng, root: String) -> Worker {
        let (v, device) = (s.v.clone(), s.device.clone());
        let (paths, things, promises, moved) = Default::default();
        Worker { v, device, rng, unit: s.unit, root, paths, things, next: 0, promises, moved, full: 0 }
    }

    pub(super) fn get(&self, path: &str) -> Arc<Inode> {
        let mut at = self.v.root().unwrap();
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = self.v.lookup(&at, name.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        at
    }

    pub(super) fn file(&self, path: &str) -> File {
        self.v.open(ROOT, &self.get(path), OpenFlags::READ | OpenFlags::WRITE).unwrap()
    }

    /// A random path; of one kind, if that is given.
    fn some(&mut self, kind: Option<FileType>) -> Option<String> {
        let fits: Vec<&String> = self
            .paths
            .iter()
            .filter(|(_, t)| kind.is_none_or(|k| self.things[t].kind == k))
            .map(|p| p.0)
            .collect();
        let n = self.rng.below(fits.len().max(1) as u64) as usize;
        fits.get(n).map(|p| (*p).clone())
    }

    /// A random directory, which may be the root.
    pub(super) fn some_dir(&mut self) -> String {
        match self.rng.below(3) {
            0 => self.root.clone(),
            _ => self.some(Some(FileType::Directory)).unwrap_or_else(|| self.root.clone()),
        }
    }

    pub(super) fn new_path(&mut self) -> String {
        let dir = self.some_dir();
        self.next += 1;
        let long = if self.rng.below(3) == 0 { self.rng.below(200) as usize } else { 3 };
        format!("{dir}/{}-{}", self.next, "n".repeat(long))
    }

    /// Begins a change; promises of single files stay valid during changes of others.
    pub(super) fn begin_at(&mut self, paths: &[&str]) {
        let now = self.device.mark();
        let near = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
        let mut ids: Vec<usize> = paths.iter().filter_map(|p| self.paths.get(*p)).copied().collect();
        ids.dedup();
        for p in self.promises.iter_mut().filter(|p| p.until.is_none()) {
            let hit = match &p.file {
                None => true,
                Some(f) => {
                    paths.iter().any(|path| near(f, path))
                        || p.paths.get(f).is_some_and(|id| ids.contains(id))
                }
            };
            if hit {
                p.until = Some(now);
            }
        }
    }

    fn promise(&mut self, file: Option<String>) {
        let since = self.device.mark();
        let (paths, things) = (self.paths.clone(), self.things.clone());
        self.promises.push(Promise { since, until: None, paths, things, file });
    }

    fn make(&mut self) {
        if self.paths.len() >= NAMES {
            return;
        }
        let path = self.new_path();
        let (parent, name) = split(&path);
        let dir = self.get(parent);
        self.begin_at(&[&path]);
        let (r, kind, data, mode) = match self.rng.below(10) {
            0..2 => {
                let r = self.v.mkdir(ROOT, &dir, name.as_bytes(), 0o750);
                (r, FileType::Directory, Vec::new(), 0o750)
            }
            2 => {
                let len = [10, 59, 60, 300, self.unit - 1][self.rng.below(5) as usize] as usize;
                let r = self.v.symlink(ROOT, &dir, name.as_bytes(), &vec![b't'; len]);
                (r, FileType::Symlink, vec![b't'; len], 0o777)
            }
            _ => (self.v.create(ROOT, &dir, name.as_bytes(), 0o644), FileType::Regular, Vec::new(), 0o644),
        };
        if self.done(r, &path).is_none() {
            return;
        }
        self.next += 1;
        self.things.insert(self.next, Thing { kind, data, mode, xattrs: BTreeMap::new() });
        self.paths.insert(path, self.next);
    }

    fn link(&mut self) {
        let Some(old) = self.some(Some(FileType::Regular)) else { return };
        let new = self.new_path();
        let (parent, name) = split(&new);
        self.begin_at(&[&old, &new]);
        let r = self.v.link(ROOT, &self.get(&old), &self.get(parent), name.as_bytes());
        if self.done(r, &new).is_none() {
            return;
        }
        let id = self.paths[&old];
        self.moved.push(new.clone());
        self.paths.insert(new, id);
    }

    fn remove(&mut self) {
        let Some(path) = self.some(None) else { return };
        let (parent, name) = split(&path);
        let dir = self.get(parent);
        self.begin_at(&[&path]);
        let id = self.paths[&path];
        let r = match self.things[&id].kind {
            FileType::Directory => self.v.rmdir(ROOT, &dir, name.as_bytes()),
            _ => self.v.unlink(ROOT, &dir, name.as_bytes()),
        };
        let below = format!("{path}/");
        if self.paths.keys().any(|p| p.starts_with(&below)) {
            assert_eq!(r.unwrap_err().kind(), ErrorKind::NotEmpty);
            return;
        }
        r.unwrap_or_else(|e| panic!("{path}: {e}"));
        self.paths.remove(&path);
    }

    fn rename(&mut self) {
        let Some(old) = self.some(None) else { return };
        let exchange = self.rng.below(4) == 0;
        let new = match (exchange, self.rng.below(3)) {
            (true, _) | (false, 0) => self.some(None).unwrap(),
            _ => self.new_path(),
        };
        let inside = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
        if inside(&new, &old) || inside(&old, &new) || old == new {
            return;
        }
        let ((from, name), (to, new_name)) = (split(&old), split(&new));
        let (from, to) = (self.get(from), self.get(to));
        self.begin_at(&[&old, &new]);
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        let r = self.v.rename(ROOT, (&from, name.as_bytes()), (&to, new_name.as_bytes()), flags);
        let there = self.paths.get(&new).copied();
        if there == Some(self.paths[&old]) {
            return r.unwrap(); // two names of one file: nothing happens
        }
        self.moved.extend([old.clone(), new.clone()]);
        let is_dir = |id: usize| self.things[&id].kind == FileType::Directory;
        if let (Some(there), false) = (there, exchange) {
            let full = self.paths.keys().any(|p| inside(p, &new));
            let both = is_dir(there) == is_dir(self.paths[&old]);
            if !both || full {
                r.unwrap_err();
                return;
            }
        }
        if self.done(r, &format!("{old} to {new}")).is_none() {
            return;
        }
        let move_all = |paths: &BTreeMap<String, usize>, from: &str, to: &str| -> Vec<(String, usize)> {
            let mine = paths.iter().filter(|(p, _)| *p == from || inside(p, from));
            mine.map(|(p, id)| (format!("{to}{}", &p[from.len()..]), *id)).collect()
        };
        let (moved, back) = (move_all(&self.paths, &old, &new), move_all(&self.paths, &new, &old));
        self.paths.retain(|p, _| p != &old && p != &new && !inside(p, &old) && !inside(p, &new));
        self.paths.extend(moved);
        if exchange {
            self.paths.extend(back);
        }
    }

    fn write(&mut self) {
        let Some(path) = self.some(Some(FileType::Regular)) else { return };
        let id = self.paths[&path];
        let long = [100, 5000, 70_000, 300_000][self.rng.below(4) as usize];
        let len = 1 + self.rng.below(long) as usize;
        let end = self.things[&id].data.len() as u64;
        let at = match self.rng.below(3) {
            0 => end,
            1 => self.rng.below(end + 1),
            _ => self.rng.below(LONGEST / 2),
        };
        if at + len as u64 > LONGEST {
            return;
        }
        self.begin_at(&[&path]);
        let byte = 1 + self.rng.below(250) as u8;
        let mut data = self.things[&id].data.clone();
        let (from, stop) = (at as usize, at as usize + len);
        data.resize(data.len().max(stop), 0);
        data[from..stop].fill(byte);
        let r = self.file(&path).write_at(at, &vec![byte; len]);
        match self.done(r, &path) {
            Some(_) => self.things.get_mut(&id).unwrap().data = data,
            None => self.after_full(&path, &data),
        }
    }

    fn truncate(&mut self) {
        let Some(path) = self.some(Some(FileType::Regular)) else { return };
        let id = self.paths[&path];
        let size = match self.rng.below(3) {
            0 => 0,
            1 => self.rng.below(self.things[&id].data.len() as u64 + 1),
            _ => self.rng.below(LONGEST),
        };
        self.begin_at(&[&path]);
        let r = self.file(&path).truncate(size);
        // A page is written as a whole: a page that will have zeros behind the old end needs blocks for its
        // holes.
        if size as usize <= self.things[&id].data.len() {
            r.unwrap_or_else(|e| panic!("{path}: cut to {size}: {e}"));
        } else if self.done(r, &path).is_none() {
            return;
        }
        self.things.get_mut(&id).unwrap().data.resize(size as usize, 0);
    }

    fn fallocate(&mut self) {
        use FallocateFlags as F;
        let Some(path) = self.some(Some(FileType::Regular)) else { return };
        let id = self.paths[&path];
        let size = self.things[&id].data.len() as u64;
        let mode = [
            F::empty(),
            F::KEEP_SIZE,
            F::PUNCH_HOLE | F::KEEP_SIZE,
            F::ZERO_RANGE,
            F::ZERO_RANGE | F::KEEP_SIZE,
            F::COLLAPSE_RANGE,
            F::INSERT_RANGE,
        ][self.rng.below(7) as usize];
        let shifts = mode.intersects(F::COLLAPSE_RANGE | F::INSERT_RANGE);
        let mut at = self.rng.below(size + 20_000);
        let mut len = 1 + self.rng.below(100_000);
        if shifts {
            (at, len) = (at / self.unit * self.unit, len.next_multiple_of(self.unit));
            let collapse = mode == F::COLLAPSE_RANGE;
            if at >= size || collapse && at + len >= size || !collapse && size + len > LONGEST {
                return;
            }
        }
        if at + len > LONGEST {
            return;
        }
        self.begin_at(&[&path]);
        let done = match self.file(&path).fallocate(mode, at, len) {
            Err(e) if e.kind() == ErrorKind::Unsupported => return,
            r => self.done(r, &format!("{mode:?} of {len} at {at} of {size}")),
        };
        let mut data = self.things[&id].data.clone();
        let (from, to) = (at as usize, (at + len) as usize);
        let grows = !mode.intersects(F::KEEP_SIZE | F::COLLAPSE_RANGE | F::INSERT_RANGE);
        if grows && data.len() < to {
            data.resize(to, 0);
        }
        if mode.intersects(F::PUNCH_HOLE | F::ZERO_RANGE) {
            let end = to.min(data.len());
            data[from.min(end)..end].fill(0);
        } else if mode == F::COLLAPSE_RANGE {
            data.drain(from..to);
        } else if mode == F::INSERT_RANGE {
            data.splice(from..from, std::iter::repeat_n(0, to - from));
        }
        match done {
            Some(()) => self.things.get_mut(&id).unwrap().data = data,
            None => self.after_full(&path, &data),
        }
    }

    fn attributes(&mut self) {
        let Some(path) = self.some(None) else { return };
        let id = self.paths[&path];
        if self.things[&id].kind == FileType::Symlink {
            return;
        }
        let inode = self.get(&path);
        self.begin_at(&[&path]);
        if self.rng.below(4) == 0 {
            let mode = 0o700 | self.rng.below(0o100) as u32;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            self.v.setattr(ROOT, &inode, &set).unwrap();
            self.things.get_mut(&id).unwrap().mode = mode;
            return;
        }
        let name = format!("user.{}", self.rng.below(5)).into_bytes();
        let thing = self.things.get_mut(&id).unwrap();
        if self.rng.below(3) == 0 {
            let there = thing.xattrs.remove(&name).is_some();
            let r = self.v.setxattr(ROOT, &inode, &name, None, XattrFlags::empty());
            assert_eq!(r.is_ok(), there, "{path}: {r:?}");
            return;
        }
        let value = vec![self.rng.below(256) as u8; [3, 40, 150][self.rng.below(3) as usize]];
        match self.v.setxattr(ROOT, &inode, &name, Some(&value), XattrFlags::empty()) {
            Ok(()) => drop(thing.xattrs.insert(name, value)),
            Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{path}: {e}"),
        }
    }

    fn sync(&mut self) {
        if self.rng.below(4) == 0 {
            self.v.sync().unwrap();
            self.moved.clear();
            return self.promise(None);
        }
        let Some(path) = self.some(Some(FileType::Regular)) else { return };
        let datasync = self.rng.below(2) == 0;
        self.file(&path).fsync(datasync).unwrap();
        let above = |m: &String| path.starts_with(&format!("{m}/")) || datasync && *m == path;
        if !self.moved.iter().any(above) {
            self.promise(Some(path));
        }
    }

    pub(super) fn step(&mut self) {
        match self.rng.below(100) {
            0..20 => self.make(),
            20..25 => self.link(),
            25..37 => self.remove(),
            37..47 => self.rename(),
            47..70 => self.write(),
            70..77 => self.truncate(),
            77..86 => self.fallocate(),
            86..93 => self.attributes(),
            _ => self.sync(),
        }
    }
}
