//! Applies operations to a volume and to its model, and compares.

mod company;
pub mod compare;
pub mod ops;
mod run_attrs;
mod run_files;
mod run_names;

use crate::common::posix::{Id, Model, ROOT, Verdict};
use crate::common::volume;
use company::Company;
use compare::Comparison;
use ops::{Op, Remount};
use std::sync::Arc;
use tidegate_block::MemoryDevice;
use tidegate_rt::Timespec;
use tidegate_vfs::{
    Cred, Error, ErrorKind, File, FileType, Inode, MemoryLimits, OpenFlags, SetAttr, Vfs, VolumeOps,
};

pub type Outcome = Result<(), String>;

/// An open file and its inode in the model.
pub struct Handle {
    pub file: File,
    pub id: Id,
    pub flags: OpenFlags,
    pub cred: Cred,
}

/// A volume, its mount, its model.
pub struct Rig {
    pub device: Arc<MemoryDevice>,
    pub vfs: Arc<Vfs>,
    pub model: Model,
    pub handles: Vec<Handle>,
    /// Directories that are removed but still held.
    ghosts: Vec<Arc<Inode>>,
    limits: MemoryLimits,
    crtime: bool,
    /// The volume was left in use once: without a journal it stays marked so.
    was_abandoned: bool,
    mounts: i64,
    /// Other threads that are busy on the volume, if any are wanted.
    company: Option<Company>,
    /// Number of operations that failed for want of space.
    pub no_space: u32,
    /// Number of operations that were allowed to succeed and did.
    pub done: u32,
}

fn time_of(mount: i64) -> Timespec {
    Timespec { secs: 1_700_000_000 + mount * 1000, nanos: 111_111 * (mount as u32 + 1) }
}

fn text<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// Limits of memory that are small enough to involve reclaim and throttling.
pub fn tight() -> MemoryLimits {
    MemoryLimits { cache: 3 << 20, dirty: 1 << 20, background: 256 << 10, inodes: 40 }
}

impl Rig {
    /// A fresh volume, with or without times of creation, and the model of its content.
    pub fn new(device: Arc<MemoryDevice>, crtime: bool, limits: MemoryLimits) -> Result<Rig, String> {
        Self::mounted(device, crtime, limits).map(|r| r.0)
    }

    /// A fresh volume and its model, with busy threads that change no file.
    pub fn in_company(device: Arc<MemoryDevice>, crtime: bool, limits: MemoryLimits) -> Result<Rig, String> {
        let (mut rig, fs) = Self::mounted(device, crtime, limits)?;
        rig.company = Some(Company::of(&fs, &rig.vfs));
        Ok(rig)
    }

    fn mounted(
        device: Arc<MemoryDevice>,
        crtime: bool,
        limits: MemoryLimits,
    ) -> Result<(Rig, Arc<dyn VolumeOps>), String> {
        let (fs, vfs) = volume::open_rw(device.clone(), limits, time_of(0)).map_err(text("mount"))?;
        let root = vfs.root().map_err(text("root"))?;
        let mut model = Model::new(time_of(0), vfs.fs().max_file_size(&root));
        model.ahead = vfs.fs().can_preallocate(&root).is_ok();
        drop(root);
        let mut rig = Rig {
            device,
            vfs,
            model,
            handles: Vec::new(),
            ghosts: Vec::new(),
            limits,
            crtime,
            was_abandoned: false,
            mounts: 0,
            company: None,
            no_space: 0,
            done: 0,
        };
        rig.adopt()?;
        Ok((rig, fs as Arc<dyn VolumeOps>))
    }

    /// Adopts the files that mkfs made into the model.
    fn adopt(&mut self) -> Outcome {
        let root = self.vfs.root().map_err(text("root"))?;
        let open = SetAttr { mode: Some(0o777), ..Default::default() };
        self.vfs.setattr(&Cred::ROOT, &root, &open).map_err(text("chmod"))?;
        for e in self.vfs.entries(&root).map_err(text("list"))? {
            let id = self.model.make(&Cred::ROOT, ROOT, &e.name, FileType::Directory, 0o700);
            let inode = self.vfs.lookup(&root, &e.name).map_err(text("lookup"))?;
            self.adopt_attr(&inode, id);
        }
        self.adopt_attr(&root, ROOT);
        Ok(())
    }

    fn adopt_attr(&mut self, inode: &Inode, id: Id) {
        let a = inode.attr().clone();
        let n = self.model.get_mut(id);
        (n.mode, n.uid, n.gid) = (a.mode, a.uid, a.gid);
        (n.atime, n.mtime, n.ctime, n.crtime) = (Some(a.atime), Some(a.mtime), Some(a.ctime), a.crtime);
    }

    /// The inode of a model's inode that has a name.
    pub fn inode(&self, id: Id) -> Result<Arc<Inode>, String> {
        if id == ROOT {
            return self.vfs.root().map_err(text("root"));
        }
        let (dir, name) = self.model.get(id).links.first().ok_or("no name left")?;
        let dir = self.inode(*dir)?;
        self.vfs.lookup(&dir, name).map_err(|e| format!("lookup {name:?}: {e}"))
    }

    /// Compares an answer with the verdict. `Some` when it succeeded as it should, `None` when it failed as
    /// it should. Want of space is allowed only where there may be fewer than `blocks` more blocks.
    fn judge<T>(
        &mut self,
        verdict: Verdict,
        blocks: u64,
        free: u64,
        answer: Result<T, Error>,
    ) -> Result<Option<T>, String> {
        match answer {
            Ok(v) if verdict.is_ok() => {
                self.done += 1;
                Ok(Some(v))
            }
            Ok(_) => Err(format!("succeeded, should fail with one of {:?}", verdict.must)),
            Err(e) if verdict.accepts(e.kind()) => Ok(None),
            Err(e) if e.kind() == ErrorKind::NoSpace && free < blocks + blocks / 4 + 64 => {
                self.no_space += 1;
                Ok(None)
            }
            Err(e) => Err(format!("{:?} ({e}), should be {:?}; {free} blocks free", e.kind(), verdict.must)),
        }
    }

    /// Free blocks of 4 KiB.
    pub fn free_blocks(&self) -> u64 {
        let s = self.vfs.statfs();
        s.blocks_available * u64::from(s.block_size) / 4096
    }

    /// Applies one operation and compares its outcome.
    pub fn step(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Mknod { .. } => self.make(op),
            Op::Link { .. } | Op::LinkOpen { .. } => self.link(op),
            Op::Unlink { who, at } => self.remove(&who.cred(), *at, false),
            Op::Rmdir { who, at } => self.remove(&who.cred(), *at, true),
            Op::Rename { who, from, to, flags } => self.rename(&who.cred(), *from, *to, *flags),
            Op::Many { at, count, long } => self.many(*at, *count, *long),
            Op::Fewer { at, step } => self.fewer(*at, *step),
            Op::InRemoved { name } => self.in_removed(*name),
            Op::List { at } => self.list(*at),
            Op::Open { who, at, flags, mode } => self.open(&who.cred(), *at, *flags, *mode),
            Op::OpenPath { who, node, flags } => self.open_node(&who.cred(), *node, *flags),
            Op::Close { .. }
            | Op::Write { .. }
            | Op::Read { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::Seek { .. }
            | Op::Fsync { .. } => self.with_handle(op),
            Op::Sync => self.vfs.sync().map_err(text("sync")),
            Op::Remount(how) => self.remount(*how),
            _ => self.attribute(op),
        }
    }

    /// Applies a sequence of operations, compares the whole tree at the end and runs the reference checker.
    pub fn run(&mut self, ops: &[Op]) -> Outcome {
        for (i, op) in ops.iter().enumerate() {
            self.step(op).map_err(|e| format!("operation {i}, {op:?}: {e}"))?;
        }
        self.compare().map_err(text("before the last unmount"))?;
        self.remount(Remount::Clean).map_err(text("at the end"))
    }

    /// Compares the whole tree, and open files without a name.
    pub fn compare(&self) -> Outcome {
        let root = self.vfs.root().map_err(text("root"))?;
        let mut comparison = Comparison::new(&self.vfs, &self.model, self.crtime);
        comparison.tree(&root, ROOT)?;
        for h in self.handles.iter().filter(|h| !self.model.is_linked(h.id)) {
            comparison.inode(h.file.inode(), h.id).map_err(text("an open file without a name"))?;
        }
        Ok(())
    }

    /// Ends the use of the volume in one of several ways, checks it, mounts it again and compares.
    pub fn remount(&mut self, how: Remount) -> Outcome {
        match how {
            Remount::Clean => {
                self.close_all();
                self.vfs.unmount().map_err(text("unmount"))?;
                // The company may commit once more.
                if !self.was_abandoned && self.company.is_none() {
                    volume::is_unmounted(&self.device)?;
                }
            }
            Remount::Busy => {
                self.vfs.unmount().map_err(text("unmount under open files"))?;
                self.close_all();
            }
            Remount::Abandoned => {
                self.was_abandoned = true;
                self.vfs.sync().map_err(text("sync"))?;
                // A machine that loses power closes no file, so the effects of closing must not count.
                self.device = volume::Image::of(&self.device).device();
            }
        }
        let company = self.company.take().is_some();
        volume::fsck(&self.device)?;
        self.mounts += 1;
        let time = time_of(self.mounts);
        let (fs, vfs) = volume::open_rw(self.device.clone(), self.limits, time).map_err(text("mount"))?;
        self.company = company.then(|| Company::of(&(fs as Arc<dyn VolumeOps>), &vfs));
        let old = std::mem::replace(&mut self.vfs, vfs);
        self.close_all();
        drop(old);
        self.model.now = time;
        self.compare().map_err(|e| format!("after a {how:?} remount: {e}"))
    }

    fn close_all(&mut self) {
        self.handles.clear();
        self.ghosts.clear();
    }

    fn dir(&self, n: u8) -> Id {
        let dirs = self.model.dirs();
        dirs[n as usize % dirs.len()]
    }

    fn node(&self, n: u8) -> Id {
        let all = self.model.linked();
        all[n as usize * 7 % all.len()]
    }
}

/// Bytes that differ from all others; every eighth seed gives zeros.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    if seed.is_multiple_of(8) {
        return vec![0; len];
    }
    let mut x = u32::from(seed).wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        (x >> 8) as u8
    };
    (0..len).map(|_| next()).collect()
}
