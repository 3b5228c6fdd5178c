//! Fast commits that Linux left: recovered to the fsynced state, as by Linux and e2fsck.

mod areas;
mod gone;

use crate::repaired::killed::cut as cut_off;
use crate::repaired::repair_bytes;
use crate::rig::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, Recorder, RequestQueue, file};
use tidegate_ext4::check::{CheckOptions, check};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_testing::manifest::{Manifest, Options, walk};
use tidegate_testing::temp::TempDir;
use tidegate_testing::tree::{self, assert_same_but};
use tidegate_vfs::offline::Outcome;
use tidegate_vfs::{
    Bdi, Cred, ErrorKind, FileSystem, MemoryLimits, MountOptions, OpenFlags, ReadOnly, Result, Vfs,
};

/// Fast commits do not record the times of directories.
const LEFT_OUT: Options = Options {
    ignore_dir_mtime: true,
    ignore_mtime: false,
    ignore_nanoseconds: false,
    ignore_root: false,
    ignore_owner: false,
    ignore_xattrs: false,
    ignore_links: false,
    ignore_sockets: false,
    ignore_lost_found: false,
};

/// Linux sets the time of some recovered files to the moment of recovery.
const LINUX: Options = Options { ignore_mtime: true, ..LEFT_OUT };

/// Files and directories, most of them from before the last commit.
struct Work {
    rng: Rng,
    names: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    next: u32,
    /// Only changes that Linux itself recovers from.
    tame: bool,
}

impl Work {
    fn new(at: &Path, seed: u64, tame: bool) -> Work {
        Work { tame, rng: Rng::new(seed), names: Vec::new(), dirs: vec![at.to_path_buf()], next: 0 }
    }

    fn chance(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn new_name(&mut self) -> PathBuf {
        self.next += 1;
        let dir = self.chance(self.dirs.len());
        let long = "-".repeat([0, 0, 40, 200][self.chance(4)]);
        self.dirs[dir].join(format!("{}{long}", self.next))
    }

    fn some_name(&mut self) -> PathBuf {
        let n = self.chance(self.names.len());
        self.names[n].clone()
    }

    fn write(&mut self, file: &File, at: u64, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|n| (n as u32 ^ self.next) as u8).collect();
        file.write_all_at(&bytes, at).unwrap();
    }

    fn create(&mut self) -> File {
        let name = self.new_name();
        let file = File::create(&name).unwrap();
        let len = [0, 100, 5_000, 70_000][self.chance(4)];
        self.write(&file, 0, len);
        self.names.push(name);
        file
    }

    /// Makes one change; returns a file to be fsynced.
    fn change(&mut self) -> File {
        if self.names.len() < 3 {
            return self.create();
        }
        let name = self.some_name();
        let file = File::options().read(true).write(true).open(&name).unwrap();
        let size = file.metadata().unwrap().len();
        match self.chance(14) {
            0 | 1 => return self.create(),
            10 => {
                let dir = self.new_name();
                std::fs::create_dir(&dir).unwrap();
                self.dirs.push(dir);
            }
            11 => {
                // Most of them are not empty.
                let n = self.chance(self.dirs.len());
                if n > 0 && std::fs::remove_dir(&self.dirs[n]).is_ok() {
                    self.dirs.remove(n);
                }
            }
            12 => {
                let link = self.new_name();
                std::os::unix::fs::symlink("t".repeat(10 + self.chance(100)), link).unwrap();
            }
            13 => {
                let n = self.chance(self.dirs.len());
                let dir = self.dirs[n].clone();
                for _ in 0..60 {
                    self.next += 1;
                    let name = dir.join(format!("many-{}", self.next));
                    File::create(&name).unwrap();
                    self.names.push(name);
                }
            }
            2 => self.write(&file, size, 9_000),
            3 => {
                let far = 1_000_000 + 50_000 * self.chance(30) as u64;
                self.write(&file, far, 3_000);
            }
            4 => file.set_len(size / 2).unwrap(),
            5 => {
                let to = self.new_name();
                std::fs::hard_link(&name, &to).unwrap();
                self.names.push(to);
            }
            6 => {
                let to = self.new_name();
                std::fs::rename(&name, &to).unwrap();
                self.names.retain(|n| *n != name);
                self.names.push(to);
            }
            7 => {
                std::fs::remove_file(&name).unwrap();
                self.names.retain(|n| *n != name);
                // Linux does not recover from an fsync of a file without a name.
                if self.tame {
                    return self.create();
                }
            }
            8 => {
                let to = self.some_name();
                if to != name {
                    std::fs::rename(&name, &to).unwrap();
                    self.names.retain(|n| *n != name);
                }
            }
            _ => {
                let hole = self.chance(2) == 0;
                let how = if hole {
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE
                } else {
                    rustix::fs::FallocateFlags::empty()
                };
                rustix::fs::fallocate(&file, how, 4_096, 40_000).unwrap();
            }
        }
        file
    }
}

/// A volume with work before its last commit, and fsynced work behind it: a copy of it after `steps` steps,
/// and the tree at that time.
fn cut(dir: &TempDir, args: &[&str], seed: u64, steps: usize, tame: bool) -> Option<(PathBuf, Manifest)> {
    let (image, copy) = (dir.path().join("live.img"), dir.path().join("cut.img"));
    mke2fs(&image, &[&["-t", "ext4", "-O", "fast_commit"], args].concat(), "64M");
    // No commit comes by itself.
    let mounted = Mounted::new(&image, "commit=300")?;
    let mut work = Work::new(mounted.path(), seed, tame);
    for n in 0..3 {
        let dir = mounted.path().join(format!("dir{n}"));
        std::fs::create_dir(&dir).unwrap();
        work.dirs.push(dir);
    }
    (0..30).for_each(|_| drop(work.change()));
    rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
    for _ in 0..steps {
        let file = work.change();
        file.sync_all().unwrap();
    }
    // A change that fast commits do not support, or a full area, makes the next fsync a full commit; an fsync
    // after that is a fast one, unless the kernel commits in full for a reason of its own.
    work.create().sync_all().unwrap();
    let left = (0..10).any(|_| {
        work.create().sync_all().unwrap();
        std::fs::copy(&image, &copy).unwrap();
        holds_fast_commits(&copy)
    });
    assert!(left, "{args:?}, seed {seed}, {steps} steps: no fast commits");
    let live = walk(mounted.path()).unwrap();
    Some((copy, live))
}

fn open_on(device: Arc<dyn Device>, read_only: bool) -> Result<Arc<Vfs>> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options { read_only, ..Default::default() })?;
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() })
}

/// The tree of a volume opened read-only, if it is not refused.
fn described(bytes: &[u8]) -> Result<Manifest> {
    let v = open_on(Arc::new(MemoryDevice::from_bytes(bytes)), true)?;
    let found = tree::describe(&v).unwrap();
    v.unmount().unwrap();
    Ok(found)
}

/// The tree after Linux's recovery, if it succeeds.
fn recovered_by_kernel(image: &Path) -> Option<Manifest> {
    let mounted = Mounted::new(image, "noatime")?;
    Some(walk(mounted.path()).unwrap())
}

fn holds_fast_commits(image: &Path) -> bool {
    let said = must("debugfs", &["-R", "logdump -a", image.to_str().unwrap()]);
    said.contains("Fast Commit Area") && said.contains("tag TAIL")
}

fn clean(what: &str, image: &Path) {
    let (ok, said) = checked_by_e2fsck(image);
    assert!(ok, "{what}: {said}");
}

/// Recovers a cut in each way, and compares the result with the original tree.
fn judge(what: &str, image: &Path, live: &Manifest) {
    let before = std::fs::read(image).unwrap();
    let (v, fs) = open_with(image, Default::default()).unwrap();
    assert_same_but(what, live, &tree::describe(&v).unwrap(), &LEFT_OUT);
    // Nothing is left out.
    assert_eq!(fs.read_only(), Some(ReadOnly::Asked), "{what}");
    v.unmount().unwrap();
    drop((v, fs));
    assert!(std::fs::read(image).unwrap() == before, "{what}: reading changed the image");

    let queue = file::open(image, file::OpenOptions { read_only: true, ..Default::default() }).unwrap();
    let queue = Arc::new(RequestQueue::new(queue, QueueLimits::default()));
    let found = check(&queue, CheckOptions::default()).unwrap();
    drop(queue);
    assert!(found.is_clean(), "{what}: {found:?}");

    let repaired = repair_bytes(&before);
    assert_eq!(repaired.report.unwrap().outcome, Outcome::Corrected, "{what}: {:?}", repaired.told);
    let mended = image.with_extension("repaired");
    std::fs::write(&mended, &repaired.bytes).unwrap();
    clean(what, &mended);
    assert_same_but(what, live, &describe(&mended), &LEFT_OUT);

    let v = crate::changed::open_to_write(image);
    assert_same_but(what, live, &tree::describe(&v).unwrap(), &LEFT_OUT);
    let inode = v.create(&Cred::ROOT, &v.root().unwrap(), b"later", 0o644).unwrap();
    v.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap().write_at(0, &[7; 100_000]).unwrap();
    v.unmount().unwrap();
    drop(v);
    clean(what, image);
    assert_eq!(describe_by_kernel(image).unwrap().entries.len(), live.entries.len() + 1, "{what}");
}

const KINDS: [(&str, &[&str]); 3] = [
    ("4k", &["-b", "4096"]),
    ("1k-no-csum", &["-b", "1024", "-O", "^metadata_csum"]),
    ("1k", &["-b", "1024", "-J", "size=4"]),
];

#[test]
fn what_was_fsynced_is_there() {
    if skip() {
        return;
    }
    let seed = seed();
    for round in 0..6 {
        let (name, args) = KINDS[round % KINDS.len()];
        let dir = scratch();
        let steps = [1, 5, 40][round % 3] + round;
        let Some((image, live)) = cut(&dir, args, seed.wrapping_add(round as u64), steps, false) else {
            println!("SKIPPED: the kernel has no fast commits");
            return;
        };
        let what = format!("{name}, seed {seed}, round {round}");
        judge(&what, &image, &live);
    }
}

/// A power cut at any moment while a volume is opened for changes.
#[test]
fn a_cut_recovery_is_done_again() {
    if skip() {
        return;
    }
    let seed = seed();
    let dir = scratch();
    let Some((image, live)) = cut(&dir, &["-b", "1024"], seed, 12, true) else { return };
    let before = std::fs::read(&image).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&before))));
    open_on(recorder.clone(), false).unwrap().unmount().unwrap();
    let records = recorder.take();
    assert!(records.len() > 8, "{} requests", records.len());
    let mut rng = Rng::new(seed);
    for done in 0..=records.len() {
        let left = cut_off(&before, &records, done, &mut rng);
        let what = format!("seed {seed}, {done} of {} requests", records.len());
        let ours = described(&left).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same_but(&what, &live, &ours, &LEFT_OUT);
        if done % 8 == 0 {
            std::fs::write(&image, &left).unwrap();
            let theirs = recovered_by_kernel(&image).unwrap_or_else(|| panic!("{what}: Linux refuses it"));
            assert_same_but(&what, &live, &theirs, &LINUX);
        }
    }
}
