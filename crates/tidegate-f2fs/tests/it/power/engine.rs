//! The workers' steps on a volume of ours, and the check of its state afterwards.

use crate::common::tree::queue;
use crate::power::options;
use std::path::Path;
use std::sync::Arc;
use tidegate_f2fs::F2fs;
use tidegate_testing::power::model::{UNIT, XATTR};
use tidegate_testing::power::{Failure, Promises, Seen, Step, Store, View, content};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// Opens and mounts an image.
pub fn mount(image: &Path, list: &str) -> Result<Arc<Vfs>> {
    let o = options(list);
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue(image, o.read_only), bdi.clone(), o)?;
    Vfs::mount(fs, bdi, MountOptions::default())
}

/// The promises that are broken when we open the image.
pub fn verify(image: &Path, read_only: bool, promises: &Promises) -> Result<Vec<String>> {
    let vfs = mount(image, if read_only { "ro" } else { "" })?;
    let mut out: Vec<String> = match vfs.fs().read_only() {
        Some(why) if !read_only => vec![why.to_string()],
        _ => Vec::new(),
    };
    match promises.broken(&mut Tree::new(vfs.clone(), "")) {
        Ok(broken) => out.extend(broken),
        Err(e) => out.push(format!("{e:#}")),
    }
    vfs.unmount()?;
    Ok(out)
}

/// Takes all space but `free` bytes.
pub fn fill_up(vfs: &Arc<Vfs>, free: u64) {
    let f = vfs.open_path(ROOT, b"/filler", RW | OpenFlags::CREATE, 0o600).unwrap();
    let piece = vec![0x5a; 1 << 20];
    while f.write_at(f.size(), &piece).is_ok() {}
    f.truncate(f.size().saturating_sub(free)).unwrap();
    vfs.sync().unwrap();
}

/// A directory of a volume.
pub struct Tree {
    vfs: Arc<Vfs>,
    top: String,
}

impl Tree {
    pub fn new(vfs: Arc<Vfs>, top: &str) -> Tree {
        Tree { vfs, top: top.to_owned() }
    }

    /// Makes the directory.
    pub fn make_top(&self) {
        self.vfs.mkdir(ROOT, &self.vfs.root().unwrap(), self.top.as_bytes(), 0o755).unwrap();
    }

    fn at(&self, name: &str) -> String {
        format!("/{}/{name}", self.top)
    }

    fn open(&self, name: &str) -> Result<File> {
        self.vfs.open_path(ROOT, self.at(name).as_bytes(), RW, 0)
    }

    fn inode(&self, name: &str) -> Result<Arc<Inode>> {
        self.vfs.resolve(ROOT, self.at(name).as_bytes(), false)
    }

    /// Calls `f` with the directory and the last part of a name.
    fn with<R>(&self, name: &str, f: impl FnOnce(&Arc<Inode>, &[u8]) -> Result<R>) -> Result<R> {
        let path = self.at(name);
        let parent = self.vfs.resolve_parent(ROOT, path.as_bytes())?;
        f(&parent.dir, parent.name)
    }

    fn try_run(&self, key: u64, step: &Step) -> Result<()> {
        let vfs = &self.vfs;
        match step {
            Step::MakeDir(name) => match self.with(name, |d, n| vfs.mkdir(ROOT, d, n, 0o755)) {
                Err(e) if e.kind() == ErrorKind::Exists => Ok(()),
                r => r.map(drop),
            },
            Step::Create(name) => self.with(name, |d, n| vfs.create(ROOT, d, n, 0o644)).map(drop),
            Step::Write { name, unit, units, stamp } => {
                let bytes: Vec<u8> = (*unit..unit + units).flat_map(|u| content(key, *stamp, u)).collect();
                self.open(name)?.write_at((unit * UNIT) as u64, &bytes).map(drop)
            }
            Step::Truncate(name, units) => self.open(name)?.truncate((units * UNIT) as u64),
            Step::Punch(name, unit, units) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.open(name)?.fallocate(hole, (unit * UNIT) as u64, (units * UNIT) as u64)
            }
            Step::Xattr(name, value) => {
                let (inode, flags) = (self.inode(name)?, XattrFlags::empty());
                match vfs.setxattr(ROOT, &inode, XATTR.as_bytes(), value.as_deref(), flags) {
                    Err(e) if value.is_none() && e.kind() == ErrorKind::NoData => Ok(()),
                    r => r,
                }
            }
            Step::Chmod(name, mode) => {
                let set = SetAttr { mode: Some(*mode), ..Default::default() };
                vfs.setattr(ROOT, &self.inode(name)?, &set)
            }
            Step::Unlink(name) => match self.with(name, |d, n| vfs.unlink(ROOT, d, n)) {
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
                r => r,
            },
            Step::Rename(from, to) => self.with(from, |d, n| {
                self.with(to, |e, m| vfs.rename(ROOT, (d, n), (e, m), RenameFlags::empty()))
            }),
            Step::Link(from, to) => {
                let inode = self.inode(from)?;
                self.with(to, |d, n| vfs.link(ROOT, &inode, d, n))
            }
            Step::Sync(name, data) => self.open(name)?.fsync(*data),
        }
    }
}

impl Store for Tree {
    fn run(&mut self, key: u64, step: &Step) -> std::result::Result<(), Failure> {
        self.try_run(key, step).map_err(|e| match e.kind() {
            ErrorKind::NoSpace => Failure::NoSpace,
            _ => Failure::Other(e.to_string()),
        })
    }
}

impl Tree {
    fn find(&self, path: &str) -> Result<Option<Seen>> {
        let inode = match self.inode(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            r => r?,
        };
        let f = self.vfs.open(ROOT, &inode, OpenFlags::READ)?;
        let mut data = vec![0; f.size() as usize];
        let mut at = 0;
        while at < data.len() {
            match f.read_at(at as u64, &mut data[at..])? {
                0 => break,
                n => at += n,
            }
        }
        let xattr = match self.vfs.getxattr(ROOT, &inode, XATTR.as_bytes()) {
            Err(e) if e.kind() == ErrorKind::NoData => None,
            r => Some(r?),
        };
        let mode = inode.attr().mode;
        Ok(Some(Seen { data, mode, xattr }))
    }
}

impl View for Tree {
    fn look(&mut self, path: &str) -> std::result::Result<Option<Seen>, String> {
        self.find(path).map_err(|e| e.to_string())
    }
}
