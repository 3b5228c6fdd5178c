//! Threads that write, fsync, create and remove files, and record what they were promised.

use crate::failing::rig::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::Rule;
use tidegate_rt::thread;
use tidegate_vfs::*;

const THREADS: u64 = 3;
const FILES: u64 = 5;
/// Most pages of a file.
const PAGES: u64 = 90;
/// Names in a directory that only fill it.
const NAMES: u32 = 130;
/// Failures in a row after which a thread gives up.
const PATIENCE: u32 = 4;

/// A small generator.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The state of a file: the version of each page that was promised, the last that was accepted, and the last
/// that a thread tried to write. Version 0 is no page, or zeros.
#[derive(Clone)]
pub struct Known {
    pub id: u64,
    pub acked: Vec<u32>,
    taken: Vec<u32>,
    pub latest: Vec<u32>,
    /// Whether the file was created for certain, and whether its name is promised.
    made: bool,
    named: bool,
}

/// The states of all files, by path.
#[derive(Default)]
pub struct Model {
    pub files: BTreeMap<String, Known>,
    pub dirs: Vec<String>,
    /// Errors of operations, in the order of each thread.
    pub errors: Vec<Error>,
}

impl Model {
    /// Checks that everything promised is there, and that nothing is there that was never written.
    pub fn check(&self, v: &Arc<Vfs>, what: &str) {
        for dir in &self.dirs {
            v.resolve(ROOT, dir.as_bytes(), true).unwrap_or_else(|e| panic!("{what}: {dir}: {e}"));
        }
        for (path, k) in &self.files {
            match v.open_path(ROOT, path.as_bytes(), OpenFlags::READ, 0) {
                Ok(f) => k.check(&f, &format!("{what}: {path}")),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NotFound, "{what}: {path}: {e}");
                    assert!(!k.named, "{what}: {path} is gone");
                }
            }
        }
    }

    /// Notes all content so far as promised.
    pub fn promise_all(&mut self) {
        for k in self.files.values_mut() {
            k.acked.clone_from(&k.taken);
            k.named = k.made;
        }
    }
}

impl Known {
    fn new(id: u64) -> Known {
        let none = || vec![0; PAGES as usize];
        Known { id, acked: none(), taken: none(), latest: none(), made: false, named: false }
    }

    fn check(&self, f: &File, what: &str) {
        for (i, (acked, latest)) in self.acked.iter().zip(&self.latest).enumerate() {
            let bytes = read_page(f, i as u64).unwrap_or_else(|e| panic!("{what}: page {i}: {e}"));
            let (least, most) = versions_of(self.id, i as u64, &bytes, what);
            assert!(
                *acked <= least && most <= *latest,
                "{what}: page {i}: version {least} to {most}, promised {acked}, written {latest}"
            );
        }
    }
}

struct Worker {
    vfs: Arc<Vfs>,
    t: u64,
    r: Rng,
    open: Vec<(String, File)>,
    gone: Vec<File>,
    m: Model,
    in_a_row: u32,
}

impl Worker {
    /// Notes whether an operation succeeded. Every error must be in the device's terms.
    fn saw<T>(&mut self, r: Result<T>) -> Option<T> {
        match r {
            Ok(v) => {
                self.in_a_row = 0;
                Some(v)
            }
            Err(e) => {
                let known = [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::ReadOnly];
                assert!(known.contains(&e.kind()), "{e}");
                self.in_a_row += 1;
                self.m.errors.push(e);
                None
            }
        }
    }

    fn step(&mut self, n: u64) {
        let i = self.r.below(self.open.len() as u64) as usize;
        match self.r.below(100) {
            0..50 => self.write(i),
            50..60 => self.read(i),
            60..80 => self.fsync(i),
            80..90 => self.create(n),
            90..94 => self.orphan(n),
            94..98 => self.mkdir(n),
            _ => {
                let before: Vec<_> = self.m.files.iter().map(|(p, k)| (p.clone(), k.taken.clone())).collect();
                let r = self.vfs.sync();
                if self.saw(r).is_some() {
                    for (path, taken) in before {
                        let k = self.m.files.get_mut(&path).unwrap();
                        (k.acked, k.named) = (taken, k.made);
                    }
                }
            }
        }
    }

    fn write(&mut self, i: usize) {
        let at = self.r.below(PAGES);
        let n = (self.r.below(30) + 1).min(PAGES - at);
        let (path, f) = &self.open[i];
        let k = self.m.files.get_mut(path).unwrap();
        let mut bytes = Vec::new();
        for p in at..at + n {
            k.latest[p as usize] += 1;
            bytes.extend(page(k.id, p, k.latest[p as usize]));
        }
        let r = f.write_at(at * PAGE as u64, &bytes);
        let path = path.clone();
        if self.saw(r).is_some() {
            let k = self.m.files.get_mut(&path).unwrap();
            let range = at as usize..(at + n) as usize;
            k.taken[range.clone()].copy_from_slice(&k.latest[range]);
        }
    }

    /// A page must read as it was written, unless the write failed.
    fn read(&mut self, i: usize) {
        let at = self.r.below(PAGES);
        let (path, f) = &self.open[i];
        let k = &self.m.files[path];
        let (id, latest) = (k.id, k.latest[at as usize]);
        let r = read_page(f, at);
        let clean = self.m.errors.is_empty();
        let path = path.clone();
        if let Some(bytes) = self.saw(r) {
            let found = versions_of(id, at, &bytes, &path);
            let good = found == (latest, latest) || !clean && found.0 == found.1 && found.0 < latest;
            assert!(good, "{path}: {found:?} instead of {latest}");
        }
    }

    fn fsync(&mut self, i: usize) {
        let (path, f) = &self.open[i];
        let path = path.clone();
        let taken = self.m.files[&path].taken.clone();
        let r = f.fsync(taken[0].is_multiple_of(2));
        if self.saw(r).is_some() {
            let k = self.m.files.get_mut(&path).unwrap();
            (k.acked, k.named) = (taken, true);
        }
    }

    fn create(&mut self, n: u64) {
        let path = format!("/t{}/n{n}", self.t);
        let r = self.vfs.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644);
        // The file may exist although its creation was reported as failed.
        self.m.files.insert(path.clone(), Known::new(self.t * 100_000 + n));
        if let Some(f) = self.saw(r) {
            self.m.files.get_mut(&path).unwrap().made = true;
            self.open.push((path, f));
            self.write(self.open.len() - 1);
            self.fsync(self.open.len() - 1);
        }
    }

    fn orphan(&mut self, n: u64) {
        let name = format!("o{n}");
        let path = format!("/t{}/{name}", self.t);
        let r = self.vfs.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644);
        let Some(f) = self.saw(r) else { return };
        let r = f.write_at(0, &page(1, 0, 1).repeat(20));
        self.saw(r);
        let dir = self.vfs.resolve(ROOT, format!("/t{}", self.t).as_bytes(), true);
        let r = dir.and_then(|dir| self.vfs.unlink(ROOT, &dir, name.as_bytes()));
        self.saw(r);
        self.gone.push(f);
    }

    fn mkdir(&mut self, n: u64) {
        let top = self.vfs.resolve(ROOT, format!("/t{}", self.t).as_bytes(), true);
        let Some(top) = self.saw(top) else { return };
        let r = self.vfs.mkdir(ROOT, &top, format!("d{n}").as_bytes(), 0o755);
        if self.saw(r).is_some() {
            let r = self.vfs.open(ROOT, &top, OpenFlags::READ).and_then(|d| d.fsync(false));
            if self.saw(r).is_some() {
                self.m.dirs.push(format!("/t{}/d{n}", self.t));
            }
        }
    }
}

/// The tree at the start, all of it promised.
pub fn prepare(rig: &FailingVolume) -> Model {
    let mut m = Model::default();
    for t in 0..THREADS {
        rig.vfs.mkdir(ROOT, &rig.vfs.root().unwrap(), format!("t{t}").as_bytes(), 0o755).unwrap();
        m.dirs.push(format!("/t{t}"));
        // There are so many that the directory has blocks of its own.
        (0..NAMES).for_each(|n| drop(rig.file(&format!("/t{t}/just-a-name-{n}"))));
        for i in 0..FILES {
            let path = format!("/t{t}/f{i}");
            let mut k = Known { made: true, ..Known::new(t * 1000 + i) };
            let f = rig.file(&path);
            for p in 0..PAGES / 2 {
                (k.latest[p as usize], k.taken[p as usize]) = (1, 1);
                f.write_at(p * PAGE as u64, &page(k.id, p, 1)).unwrap();
            }
            m.files.insert(path, k);
        }
    }
    rig.vfs.sync().unwrap();
    m.promise_all();
    m
}

/// Runs all threads, `steps` operations each, with this `seed`, while the device follows `rules`; returns
/// what they know afterwards.
pub fn run(
    rig: &FailingVolume,
    m: Model,
    seed: u64,
    steps: u64,
    rules: impl IntoIterator<Item = Rule>,
) -> Model {
    let (mut files, dirs) = (m.files, m.dirs);
    let workers: Vec<_> = (0..THREADS)
        .map(|t| {
            let prefix = format!("/t{t}/");
            let mine: Vec<String> = files.keys().filter(|p| p.starts_with(&prefix)).cloned().collect();
            let mine: BTreeMap<_, _> = mine.into_iter().map(|p| files.remove_entry(&p).unwrap()).collect();
            let open = mine.keys().map(|p| (p.clone(), rig.file(p))).collect();
            let m = Model { files: mine, ..Model::default() };
            let r = Rng(seed * 1000 + t);
            Worker { vfs: rig.vfs.clone(), t, r, open, gone: Vec::new(), m, in_a_row: 0 }
        })
        .collect();
    rig.faulty.set(rules);
    let workers: Vec<_> = workers
        .into_iter()
        .map(|mut w| {
            let body = move || {
                for n in 0..steps {
                    w.step(seed * 1000 + n);
                    if w.in_a_row >= PATIENCE {
                        break;
                    }
                }
                w.m
            };
            thread::spawn("worker", body).unwrap()
        })
        .collect();
    let mut all = Model { dirs, ..Model::default() };
    for w in workers {
        let mut m = w.join();
        all.files.append(&mut m.files);
        all.dirs.append(&mut m.dirs);
        all.errors.append(&mut m.errors);
    }
    all
}
