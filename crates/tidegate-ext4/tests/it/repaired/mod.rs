//! Repair of damaged volumes: they are clean for us and for e2fsck, and no less is kept than e2fsck keeps.

mod cases;
mod copies;
mod hashes;
mod kept;
pub mod killed;
mod shared;
mod supers;

use crate::checked::{check_bytes, used_pieces};
use crate::damaged::{PIECE, damage, images, small_tree};
use crate::rig::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::repair::{Outcome, RepairOptions, RepairReport, repair};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::Timespec;
use tidegate_testing::fill::Rng;
use tidegate_vfs::{Bdi, Cred, FileType, MemoryLimits, MountOptions, OpenFlags, Result, Vfs};

/// The time of repairs.
pub const NOW: Timespec = Timespec { secs: 1_700_000_000, nanos: 0 };

/// A repaired volume, the reported changes, and the result.
pub struct Repaired {
    pub bytes: Vec<u8>,
    pub told: Vec<String>,
    pub report: Result<RepairReport>,
}

pub fn repair_bytes(bytes: &[u8]) -> Repaired {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let mut told = Vec::new();
    let options = RepairOptions { dry_run: false, now: NOW };
    let report = repair(&queue, options, &mut |c| told.push(c.to_string()));
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after);
    Repaired { bytes: after, told, report }
}

fn open_bytes(bytes: &[u8]) -> Result<Arc<Vfs>> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let options = Ext4Options { read_only: true, ..Default::default() };
    let fs = Ext4::open(queue, bdi.clone(), options)?;
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() })
}

/// The content of a volume: contents of files with the number of files that have them, and all paths.
pub struct Contents {
    pub files: BTreeMap<Vec<u8>, usize>,
    pub paths: BTreeMap<String, String>,
}

/// Reads everything; a file that cannot be read is an error.
pub fn contents(bytes: &[u8]) -> std::result::Result<Contents, String> {
    let v = open_bytes(bytes).map_err(|e| e.to_string())?;
    let mut all = Contents { files: BTreeMap::new(), paths: BTreeMap::new() };
    let mut dirs = vec![(String::new(), v.root().map_err(|e| e.to_string())?)];
    while let Some((path, dir)) = dirs.pop() {
        for e in v.entries(&dir).map_err(|e| format!("{path}: {e}"))? {
            if e.name == b"." || e.name == b".." {
                continue;
            }
            let path = format!("{path}/{}", String::from_utf8_lossy(&e.name));
            let inode = v.lookup(&dir, &e.name).map_err(|e| format!("{path}: {e}"))?;
            for name in v.listxattr(&Cred::ROOT, &inode).map_err(|e| format!("{path}: {e}"))? {
                v.getxattr(&Cred::ROOT, &inode, &name).map_err(|e| format!("{path}: {e}"))?;
            }
            let size = inode.attr().size;
            match inode.file_type {
                FileType::Directory => dirs.push((path.clone(), inode.clone())),
                FileType::Symlink => drop(v.readlink(&inode).map_err(|e| format!("{path}: {e}"))?),
                FileType::Regular if size < 4 << 20 => {
                    let mut content = vec![0; size as usize];
                    let f =
                        v.open(&Cred::ROOT, &inode, OpenFlags::READ).map_err(|e| format!("{path}: {e}"))?;
                    f.read_at(0, &mut content).map_err(|e| format!("{path}: {e}"))?;
                    if content.iter().any(|b| *b != 0) {
                        *all.files.entry(content).or_default() += 1;
                    }
                }
                _ => {}
            }
            all.paths.insert(path, format!("{:?}", inode.file_type));
        }
    }
    v.unmount().map_err(|e| e.to_string())?;
    Ok(all)
}

/// The number of files of `base` that are still there.
fn kept(base: &Contents, now: &Contents) -> usize {
    base.files.iter().map(|(c, n)| (*n).min(now.files.get(c).copied().unwrap_or(0))).sum()
}

fn judge(image: &Path) -> (bool, String) {
    checked_by_e2fsck(image)
}

/// A small volume with something of each kind.
pub fn base(dir: &Path, args: &[&str], size: &str) -> Vec<u8> {
    let (tree, image) = (dir.join("tree"), dir.join("x.img"));
    if !tree.exists() {
        std::fs::create_dir(&tree).unwrap();
        small_tree(&tree);
        for n in 0..6 {
            std::fs::create_dir_all(tree.join(format!("deep/{n}/below"))).unwrap();
            std::fs::write(tree.join(format!("deep/{n}/below/file")), [n + 1; 5000]).unwrap();
        }
    }
    let from = ["-N", "256", "-d", tree.to_str().unwrap()];
    mke2fs(&image, &[args, &from].concat(), size);
    std::fs::read(&image).unwrap()
}

/// Repairs one damaged volume. Returns the fault of the result, if there is one, and otherwise whether the
/// volume was repaired.
fn try_one(
    image: &Path,
    before: &Contents,
    damaged: &[u8],
    compared: bool,
) -> std::result::Result<bool, String> {
    let r = repair_bytes(damaged);
    let shown = || r.told.join("\n");
    let report = match &r.report {
        Ok(report) if report.outcome == Outcome::Left => {
            return Err(format!("left: {:?} {:?}\n{}", report.notes, report.check.problems, shown()));
        }
        Ok(report) => report,
        Err(e) => {
            println!("refused: {e}");
            if r.bytes != damaged {
                return Err(format!("refused, and written: {e}"));
            }
            return Ok(false);
        }
    };
    let check = check_bytes(&r.bytes).map_err(|e| format!("check: {e}"))?;
    if !check.is_clean() {
        return Err(format!("check: {:?}", check.problems));
    }
    std::fs::write(image, &r.bytes).unwrap();
    let (clean, said) = judge(image);
    if !clean {
        return Err(format!("e2fsck -fn: {said}\nafter\n{}\n{:?}", shown(), report.notes));
    }
    let again = repair_bytes(&r.bytes);
    if again.bytes != r.bytes || !again.told.is_empty() {
        return Err(format!("a second repair: {:?}", again.told));
    }
    let ours = contents(&r.bytes).map_err(|e| format!("reading: {e}\nafter\n{}", shown()))?;
    if compared {
        std::fs::write(image, damaged).unwrap();
        run("e2fsck", &["-fy", image.to_str().unwrap()]);
        let theirs = contents(&std::fs::read(image).unwrap());
        if let Ok(theirs) = theirs {
            let (a, b) = (kept(before, &ours), kept(before, &theirs));
            if a < b {
                return Err(format!("{a} files kept, and e2fsck keeps {b}\n{}", shown()));
            }
        }
    }
    Ok(true)
}

/// Damages whole pieces as well as words.
fn wreck(bytes: &mut [u8], used: &[usize], rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let mut piece = || used[rng.below(used.len() as u64) as usize] * PIECE;
        let (to, from) = (piece(), piece());
        match rng.below(4) {
            0 => bytes[to..to + PIECE].fill(0),
            1 => bytes[to..to + PIECE].fill(0xff),
            2 => bytes.copy_within(from..from + PIECE, to),
            _ => bytes[to..to + PIECE].iter_mut().for_each(|b| *b = rng.below(256) as u8),
        }
    }
    damage(bytes, used, rng);
}

fn survive(name: &str, args: &[&str], size: &str, seed: u64) {
    let bad = survive_of(name, args, size, seed, 20);
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

/// Damages a volume in many ways, `usual` of them by default, and repairs each; returns the faults.
fn survive_of(name: &str, args: &[&str], size: &str, seed: u64, usual: u64) -> Vec<String> {
    if skip() {
        return Vec::new();
    }
    let dir = scratch();
    let image = dir.path().join("x.img");
    let whole = base(dir.path(), args, size);
    let before = contents(&whole).unwrap();
    let used = used_pieces(&whole);
    let chosen = asked_seed();
    let seeds = chosen.map_or(seed..seed + images(usual), |s| s..s + 1);
    let (mut repaired, mut refused, mut bad) = (0, 0, Vec::new());
    for seed in seeds {
        let mut bytes = whole.clone();
        let mut rng = Rng::new(seed);
        match seed % 2 {
            0 => damage(&mut bytes, &used, &mut rng),
            _ => wreck(&mut bytes, &used, &mut rng),
        }
        match try_one(&image, &before, &bytes, chosen.is_some() || seed.is_multiple_of(3)) {
            Ok(true) => repaired += 1,
            Ok(false) => refused += 1,
            Err(e) => {
                // A failing volume is kept on request.
                if let Some(keep) = std::env::var_os("TIDEGATE_KEEP") {
                    std::fs::write(Path::new(&keep).join(format!("{name}-{seed}")), &bytes).unwrap();
                }
                bad.push(format!("{name}: TIDEGATE_SEED={seed}: {e}"));
            }
        }
    }
    println!("{name}: {repaired} repaired, {refused} refused, {} not as they should be", bad.len());
    bad
}

/// Further sets of features without a test of their own, and sizes.
const SETS: &[(&str, &[&str], &str)] = &[
    ("debian", &["-t", "ext4"], "16M"),
    ("upstream", &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file", "-b", "1024"], "12M"),
    ("2k", &["-t", "ext4", "-b", "2048", "-g", "2048"], "16M"),
    (
        "uninit_bg",
        &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^metadata_csum,uninit_bg,^64bit"],
        "12M",
    ),
    ("no-flex", &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^flex_bg"], "12M"),
    ("meta_bg", &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"], "12M"),
    (
        "sparse_super2",
        &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "sparse_super2,^resize_inode"],
        "12M",
    ),
    ("128-byte", &["-t", "ext4", "-I", "128", "-b", "1024"], "8M"),
    ("no-extents", &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"], "8M"),
    ("no-filetype", &["-t", "ext4", "-b", "1024", "-O", "^filetype,^has_journal"], "4M"),
    ("no-index", &["-t", "ext4", "-b", "1024", "-O", "^dir_index,^has_journal"], "4M"),
    ("large_dir", &["-t", "ext4", "-b", "1024", "-O", "large_dir,encrypt,verity,casefold"], "8M"),
    ("ext3", &["-t", "ext3", "-b", "1024", "-g", "2048"], "12M"),
    ("ext2-4k", &["-t", "ext2", "-b", "4096", "-I", "128"], "8M"),
    ("revision-0", &["-t", "ext2", "-r", "0", "-b", "1024"], "4M"),
];

#[test]
fn volumes_of_every_kind_are_repaired() {
    let sets = SETS.iter().enumerate();
    let bad: Vec<String> = sets
        .flat_map(|(n, (name, args, size))| survive_of(name, args, size, 10_000 * (n as u64 + 1), 6))
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

#[test]
fn volumes_with_checksums_are_repaired() {
    survive("csum", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "4M", 1000);
}

#[test]
fn volumes_with_a_journal_are_repaired() {
    survive("journal", &["-t", "ext4", "-b", "1024", "-g", "2048"], "8M", 2000);
}

#[test]
fn volumes_without_checksums_are_repaired() {
    survive("no-csum", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"], "4M", 3000);
}

#[test]
fn volumes_of_ext2_are_repaired() {
    survive("ext2", &["-t", "ext2", "-b", "1024", "-O", "dir_index"], "4M", 4000);
}
