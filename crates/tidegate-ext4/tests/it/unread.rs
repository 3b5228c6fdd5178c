//! Changes of names while blocks cannot be read: each is done as a whole or not at all, and the volume goes
//! on.

use crate::common::volume::{fresh, fsck};
use crate::rig::{seed, skip};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::{Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
/// Directories that the names are in.
const DIRS: usize = 3;

fn open(device: Arc<dyn tidegate_block::Device>) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    // Memory for metadata is so small that each change has to read some.
    let bdi = Bdi::new(MemoryLimits { cache: 1 << 20, ..MemoryLimits::default() });
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap()
}

/// A name so long that a directory has many blocks, which split often.
fn name(n: u64) -> Vec<u8> {
    format!("{n}-{}", "n".repeat(100 + n as usize % 90)).into_bytes()
}

/// The names of a volume, by directory, and the inode of each.
type Names = Vec<BTreeMap<Vec<u8>, Ino>>;

struct Work {
    v: Arc<Vfs>,
    faulty: Arc<Faulty>,
    /// The number of reads that fail, of a thousand in a change.
    per_mille: u64,
    dirs: Vec<Arc<Inode>>,
    /// Keeps files open that lose their last name: their removal ends when all blocks can be read again.
    held: Vec<File>,
    names: Names,
    rng: Rng,
    next: u64,
    /// For each kind of change, the numbers of successes and failures.
    met: BTreeMap<&'static str, (u32, u32)>,
}

impl Work {
    /// A volume with the directories, and a large directory that is only read.
    fn new(faulty: Arc<Faulty>, rng: Rng) -> Work {
        let v = open(faulty.clone());
        let root = v.root().unwrap();
        let dirs: Vec<_> = (0..DIRS).map(|n| v.mkdir(ROOT, &root, &name(n as u64), 0o755).unwrap()).collect();
        let ballast = v.mkdir(ROOT, &root, b"ballast", 0o755).unwrap();
        let one = v.create(ROOT, &ballast, b"one", 0o644).unwrap();
        for n in 0..1500 {
            v.link(ROOT, &one, &ballast, format!("{n}-{}", "b".repeat(220)).as_bytes()).unwrap();
        }
        let names = vec![BTreeMap::new(); DIRS];
        Work { v, faulty, per_mille: 0, dirs, held: Vec::new(), names, rng, next: 0, met: BTreeMap::new() }
    }

    /// Mounts the volume again, so that little is in memory and nothing has to stay there.
    fn remount(&mut self) {
        let v = {
            self.dirs.clear();
            self.held.clear();
            self.v.unmount().unwrap();
            open(self.faulty.clone())
        };
        let root = v.root().unwrap();
        self.dirs = (0..DIRS).map(|n| v.lookup(&root, &name(n as u64)).unwrap()).collect();
        self.v = v;
    }

    /// Makes a change while reads fail, and most of the blocks that it needs are not in memory.
    fn with_faults<T>(&mut self, what: &'static str, f: impl FnOnce(&Vfs) -> Result<T>) -> Result<T> {
        if self.per_mille > 0 {
            let ballast = self.v.lookup(&self.v.root().unwrap(), b"ballast").unwrap();
            (0..2).for_each(|_| self.v.readdir(&ballast, 0, &mut |_| true).unwrap());
            let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read);
            self.faulty.set([rule.chance(self.per_mille, self.rng.below(1 << 40))]);
        }
        let r = f(&self.v);
        self.faulty.set([]);
        let met = self.met.entry(what).or_default();
        match &r {
            Ok(_) => met.0 += 1,
            Err(e) => {
                assert!(e.errno() == Some(Errno::IO), "{what}: {e}");
                met.1 += 1;
            }
        }
        r
    }

    fn new_name(&mut self) -> Vec<u8> {
        self.next += 1;
        name(self.next)
    }

    /// A directory, a name in it, and its inode.
    fn some(&mut self) -> Option<(usize, Vec<u8>, Arc<Inode>)> {
        let d = self.rng.below(DIRS as u64) as usize;
        let at = self.rng.below(self.names[d].len().max(1) as u64) as usize;
        let name = self.names[d].keys().nth(at)?.clone();
        let inode = self.v.lookup(&self.dirs[d], &name).ok()?;
        Some((d, name, inode))
    }

    /// Keeps an inode open while it loses a name; not one that cannot be opened.
    fn hold(&mut self, inode: &Arc<Inode>) -> bool {
        let opens = matches!(inode.file_type, FileType::Regular | FileType::Directory);
        if opens {
            self.held.push(self.v.open(ROOT, inode, OpenFlags::READ).unwrap());
        }
        opens
    }

    fn create(&mut self) {
        let d = self.rng.below(DIRS as u64) as usize;
        let (name, dir) = (self.new_name(), self.dirs[d].clone());
        let r = match self.rng.below(4) {
            0 => self.with_faults("mkdir", |v| v.mkdir(ROOT, &dir, &name, 0o755)),
            1 => self.with_faults("symlink", |v| v.symlink(ROOT, &dir, &name, &[b'x'; 300])),
            _ => self.with_faults("create", |v| v.create(ROOT, &dir, &name, 0o644)),
        };
        if let Ok(inode) = r {
            self.names[d].insert(name, inode.ino);
        }
    }

    fn link(&mut self) {
        let Some((_, _, inode)) = self.some() else { return };
        let d = self.rng.below(DIRS as u64) as usize;
        if inode.is_dir() {
            return;
        }
        let name = self.new_name();
        let dir = self.dirs[d].clone();
        let r = self.with_faults("link", |v| v.link(ROOT, &inode, &dir, &name));
        if r.is_ok() {
            self.names[d].insert(name, inode.ino);
        }
    }

    fn unlink(&mut self) {
        let Some((d, name, inode)) = self.some() else { return };
        if !self.hold(&inode) {
            return;
        }
        let dir = self.dirs[d].clone();
        let r = match inode.is_dir() {
            true => self.with_faults("rmdir", |v| v.rmdir(ROOT, &dir, &name)),
            false => self.with_faults("unlink", |v| v.unlink(ROOT, &dir, &name)),
        };
        if r.is_ok() {
            self.names[d].remove(&name);
        }
    }

    fn rename(&mut self) {
        let (Some((from, old, inode)), Some((mut to, mut new, target))) = (self.some(), self.some()) else {
            return;
        };
        let flags = match self.rng.below(4) {
            0 => RenameFlags::EXCHANGE,
            1 if inode.is_dir() == target.is_dir() => RenameFlags::empty(),
            n => {
                (to, new) = (self.rng.below(DIRS as u64) as usize, self.new_name());
                if n == 2 { RenameFlags::WHITEOUT } else { RenameFlags::empty() }
            }
        };
        let (there, here) = (self.dirs[to].clone(), self.dirs[from].clone());
        let replaces = self.names[to].contains_key(&new);
        if flags == RenameFlags::empty() && replaces && !self.hold(&target) {
            return;
        }
        let what = match flags {
            RenameFlags::EXCHANGE => "exchange",
            RenameFlags::WHITEOUT => "whiteout",
            _ if replaces => "rename over",
            _ => "rename",
        };
        let r = self.with_faults(what, |v| v.rename(ROOT, (&here, &old), (&there, &new), flags).map(drop));
        if r.is_err() || inode.ino == target.ino && replaces {
            return;
        }
        match flags {
            RenameFlags::EXCHANGE => drop(self.names[from].insert(old, target.ino)),
            RenameFlags::WHITEOUT => {
                let left = self.v.lookup(&here, &old);
                match left {
                    Ok(left) => drop(self.names[from].insert(old, left.ino)),
                    Err(_) => drop(self.names[from].remove(&old)),
                }
            }
            _ => drop(self.names[from].remove(&old)),
        }
        self.names[to].insert(new, inode.ino);
    }

    fn step(&mut self) {
        match self.rng.below(8) {
            0..3 => self.create(),
            3 => self.link(),
            4 | 5 => self.unlink(),
            _ => self.rename(),
        }
    }
}

fn listed(v: &Arc<Vfs>) -> Names {
    let root = v.root().unwrap();
    let of = |n: usize| {
        let dir = v.lookup(&root, &name(n as u64)).unwrap();
        let mut names = BTreeMap::new();
        v.readdir(&dir, 0, &mut |e| {
            if !matches!(&e.name[..], b"." | b"..") {
                names.insert(e.name, e.ino);
            }
            true
        })
        .unwrap();
        names
    };
    (0..DIRS).map(of).collect()
}

/// Names are made, removed and moved while some of the reads fail. No failure stops the volume, and none
/// leaves a change half done.
#[test]
fn blocks_that_cannot_be_read_leave_names_as_they_were() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    for kind in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-O", "^has_journal"]] {
        let what = format!("seed {seed} {kind:?}");
        let args = [kind, &["-b", "1024", "-N", "8192", "-g", "1024"]].concat();
        let device: Arc<MemoryDevice> = fresh(64, &args);
        let faulty = Faulty::new(device.clone(), []);
        let mut work = Work::new(faulty, Rng::new(rng.below(u64::MAX)));
        (0..900).for_each(|_| work.step());
        for round in 0..20 {
            work.remount();
            work.per_mille = 30 + 150 * (round % 4);
            (0..25).for_each(|_| work.step());
            assert_eq!(work.v.fs().read_only(), None, "{what}: {:?}", work.met);
            work.per_mille = 0;
            work.held.clear();
            assert_eq!(listed(&work.v), work.names, "{what}");
        }
        println!("{what}: {:?}", work.met);
        // Without a journal, all metadata of so small a volume stays in memory once it was read.
        let all = ["create", "mkdir", "link", "unlink", "rmdir", "rename", "rename over", "exchange"];
        let met = if kind.contains(&"^has_journal") { &all[..3] } else { &all[..] };
        for kind in met {
            assert!(work.met[kind].1 > 0, "{what}: no {kind} failed: {:?}", work.met);
        }
        work.remount();
        drop(work);
        fsck(&device).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// The byte offset of the first group's inode table.
fn first_table(device: &MemoryDevice, block: u64) -> u64 {
    let mut desc = [0; 64];
    device.read_at(if block == 1024 { 2048 } else { block }, &mut desc);
    u64::from(u32::from_le_bytes(desc[8..12].try_into().unwrap())) * block
}

/// An unreadable block of an inode table makes only its own inodes unusable: later inodes are used, and the
/// block is read once.
#[test]
fn inodes_behind_a_block_that_cannot_be_read_are_given() {
    if skip() {
        return;
    }
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let device = fresh(16, &[kind, &["-b", "4096"]].concat());
        let table = first_table(&device, 4096);
        let faulty = Faulty::new(device.clone(), []);
        let v = open(faulty.clone());
        let root = v.root().unwrap();
        let make = |n: u64| v.create(ROOT, &root, &name(n), 0o644).unwrap().ino.0;
        assert_eq!(make(0), 12, "{kind:?}");
        let free = v.statfs().files_free;
        // A block has sixteen inodes, and the first is number 1.
        let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read);
        faulty.set([rule.within(table + 4096..table + 8192)]);
        let made: Vec<u64> = (1..8).map(make).collect();
        assert_eq!(made, [13, 14, 15, 16, 33, 34, 35], "{kind:?}");
        let asked = faulty.failed();
        assert_eq!(make(8), 36, "{kind:?}");
        assert_eq!(faulty.failed(), asked, "{kind:?}");
        // Eight inodes were taken, and sixteen are unusable.
        assert_eq!(free - v.statfs().files_free, 24, "{kind:?}");
        faulty.set([]);
        v.unmount().unwrap();
        fsck(&device).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
}

/// Without a journal there is no list of orphans: nothing is read for it.
#[test]
fn a_file_without_a_name_needs_no_superblock_where_nothing_lists_it() {
    if skip() {
        return;
    }
    let device = fresh(16, &["-t", "ext4", "-b", "4096", "-O", "^has_journal"]);
    let faulty = Faulty::new(device.clone(), []);
    let v = open(faulty.clone());
    v.create(ROOT, &v.root().unwrap(), b"first", 0o644).unwrap();
    faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(0..4096)]);
    let new = NewInode {
        file_type: FileType::Regular,
        mode: 0o644,
        dir_flags: 0,
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: b"",
        time: tidegate_rt::clock::realtime(),
    };
    let file = v.tmpfile(ROOT, &v.root().unwrap(), &new, OpenFlags::WRITE);
    faulty.set([]);
    drop(file.unwrap());
    v.unmount().unwrap();
    fsck(&device).unwrap();
}
