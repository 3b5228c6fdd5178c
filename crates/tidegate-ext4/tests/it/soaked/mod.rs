//! Work by chance on volumes of many kinds, with unmounts and power cuts in between. e2fsck and Linux judge
//! each state that is left, and a model in memory says what it has to hold.
//!
//! `TIDEGATE_SOAK` says for how many seconds; `TIDEGATE_TEST_SEED` begins with a certain round.

mod work;

use crate::rig::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_block::{BioFlags, MemoryDevice, Op, QueueLimits, Record, Recorder, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_vfs::{
    Bdi, Cred, ErrorKind, FallocateFlags, File, FileType, Inode, MemoryLimits, MountOptions, OpenFlags,
    RenameFlags, SetAttr, Vfs, XattrFlags,
};

const ROOT: &Cred = &Cred::ROOT;
/// Bytes of a volume.
const SIZE: &str = "64M";

/// Features, of which each round has some.
const FEATURES: [&str; 15] = [
    "^has_journal",
    "^extent,^64bit",
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "orphan_file",
    "sparse_super2",
    "meta_bg,^resize_inode",
    "large_dir",
    "^flex_bg",
    "^dir_index",
    "^huge_file",
    "metadata_csum_seed",
    "^resize_inode",
    "^64bit",
    "^sparse_super",
];

/// Something under a name.
#[derive(Clone, PartialEq)]
struct Thing {
    kind: FileType,
    data: Vec<u8>,
    mode: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The promise of a sync: the event at which it was durable, and the event until which nothing else was begun.
struct Promise {
    since: u64,
    until: Option<u64>,
    paths: BTreeMap<String, usize>,
    things: BTreeMap<usize, Thing>,
    /// Of one file, else of all.
    file: Option<String>,
}

struct Soak {
    v: Arc<Vfs>,
    device: Arc<Recorder>,
    /// The device's content when its record begins.
    base: Vec<u8>,
    records: Vec<Record>,
    rng: Rng,
    unit: u64,
    /// Paths, and what they name.
    paths: BTreeMap<String, usize>,
    things: BTreeMap<usize, Thing>,
    next: usize,
    promises: Vec<Promise>,
    /// Names since the last sync that are known to be durable only with the next: an fsync promises the
    /// file's own.
    moved: Vec<String>,
    journal: bool,
}

fn mount(device: Arc<Recorder>, how: &str) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut options = Ext4Options::default();
    for word in how.split(',').filter(|w| !w.is_empty()) {
        assert!(options.set(word).unwrap(), "{word}");
    }
    let fs = Ext4::open(queue, bdi.clone(), options).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap();
    assert_eq!(v.fs().read_only(), None, "it came up read-only");
    v
}

impl Soak {
    /// The device's content after a power cut at event `cut`: all that a flush has covered by then, and
    /// some of the rest.
    fn after_cut(&mut self, cut: u64) -> Vec<u8> {
        let mut now = self.device.take();
        self.records.append(&mut now);
        let flushes: Vec<(u64, u64)> = self
            .records
            .iter()
            .filter(|r| r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH))
            .filter_map(|r| Some((r.submitted, r.completed?)))
            .collect();
        let mut bytes = self.base.clone();
        for r in self.records.iter().filter(|r| r.op == Op::Write && r.submitted < cut) {
            let done = r.completed.is_some_and(|c| c < cut);
            let fua = r.flags.contains(BioFlags::FUA) && done;
            let flushed = r.completed.is_some_and(|c| flushes.iter().any(|f| f.0 > c && f.1 < cut));
            let at = (r.sector.0 * 512) as usize;
            if fua || flushed {
                bytes[at..at + r.data.len()].copy_from_slice(&r.data);
                continue;
            }
            // Sectors get there or do not.
            let kept = self.rng.below(3);
            for (n, sector) in r.data.chunks(512).enumerate() {
                if kept == 2 || kept == 1 && self.rng.below(2) == 0 {
                    bytes[at + n * 512..at + n * 512 + sector.len()].copy_from_slice(sector);
                }
            }
        }
        bytes
    }
}

/// The tree that Linux finds below a directory, by path.
fn kernel_tree(dir: &Path) -> BTreeMap<String, Thing> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let mut found = BTreeMap::new();
    let mut pending = vec![(dir.to_path_buf(), String::new())];
    while let Some((at, path)) = pending.pop() {
        for e in std::fs::read_dir(&at).unwrap() {
            let e = e.unwrap();
            let name = format!("{path}/{}", e.file_name().to_str().unwrap());
            if name == "/lost+found" {
                assert_eq!(std::fs::read_dir(e.path()).unwrap().count(), 0, "something is lost and found");
                continue;
            }
            let meta = e.metadata().unwrap();
            let (kind, data) = match meta.file_type() {
                t if t.is_dir() => {
                    pending.push((e.path(), name.clone()));
                    (FileType::Directory, Vec::new())
                }
                t if t.is_symlink() => {
                    let to = std::fs::read_link(e.path()).unwrap();
                    (FileType::Symlink, to.as_os_str().as_bytes().to_vec())
                }
                _ => (FileType::Regular, std::fs::read(e.path()).unwrap()),
            };
            let mut xattrs = BTreeMap::new();
            if kind != FileType::Symlink {
                let mut list = vec![0; 4096];
                let n = rustix::fs::listxattr(e.path(), &mut list[..]).unwrap();
                for attr in list[..n].split(|b| *b == 0).filter(|a| !a.is_empty()) {
                    let mut value = vec![0; 4096];
                    let n = rustix::fs::getxattr(e.path(), attr, &mut value[..]).unwrap();
                    xattrs.insert(attr.to_vec(), value[..n].to_vec());
                }
            }
            let mode = meta.permissions().mode() & 0o7777;
            found.insert(name, Thing { kind, data, mode, xattrs });
        }
    }
    found
}

fn differ(path: &str, a: &Thing, b: Option<&Thing>) -> Option<String> {
    let Some(b) = b else { return Some(format!("{path} is missing")) };
    if a == b {
        return None;
    }
    let first = a.data.iter().zip(&b.data).position(|(a, b)| a != b);
    Some(format!(
        "{path}: {:?} {} bytes, {:o}, {} attributes; wanted {:?} {} bytes, {:o}, {}; first other byte {first:?}",
        b.kind,
        b.data.len(),
        b.mode,
        b.xattrs.len(),
        a.kind,
        a.data.len(),
        a.mode,
        a.xattrs.len()
    ))
}

/// Whether a volume is as the model says, by Linux; `file` alone, if one is told.
fn compare(
    found: &BTreeMap<String, Thing>,
    paths: &BTreeMap<String, usize>,
    things: &BTreeMap<usize, Thing>,
    file: Option<&str>,
) -> Result<(), String> {
    for (path, id) in paths.iter().filter(|p| file.is_none_or(|f| f == p.0)) {
        // An fdatasync promises the bytes alone.
        let mut want = things[id].clone();
        if let (Some(_), Some(now)) = (file, found.get(path)) {
            (want.mode, want.xattrs) = (now.mode, now.xattrs.clone());
        }
        if let Some(what) = differ(path, &want, found.get(path)) {
            return Err(what);
        }
    }
    match (file, found.keys().find(|p| !paths.contains_key(*p))) {
        (None, Some(more)) => Err(format!("{more} is there")),
        _ => Ok(()),
    }
}

fn fsck(image: &Path) -> Result<(), String> {
    let (clean, said) = run("e2fsck", &["-fn", image.to_str().unwrap()]);
    if clean { Ok(()) } else { Err(format!("e2fsck: {said}")) }
}

/// One round: a volume, work, unmounts and power cuts.
fn round(dir: &Path, seed: u64, until: Instant) -> Result<String, String> {
    let mut rng = Rng::new(seed);
    let block = [1024, 2048, 4096][rng.below(3) as usize];
    let mut features: Vec<&str> = (0..rng.below(4)).map(|_| FEATURES[rng.below(15) as usize]).collect();
    features.sort_unstable();
    features.dedup();
    let kind = ["ext4", "ext4", "ext4", "ext3", "ext2"][rng.below(5) as usize];
    let small_inodes = rng.below(4) == 0;
    if features.contains(&"^has_journal") || kind != "ext4" {
        features.retain(|f| !matches!(*f, "orphan_file" | "metadata_csum_seed"));
    }
    let (size, joined) = (block.to_string(), features.join(","));
    let mut args = vec!["-t", kind, "-b", &size];
    if !joined.is_empty() {
        args.extend(["-O", &joined]);
    }
    args.extend(["-I", if small_inodes { "128" } else { "256" }]);
    let how = ["", "data=writeback", "journal=jbd2", "nomap_first=on", "data=journal", "nomap_first=off"];
    let image = dir.join("soak.img");
    let path = image.to_str().unwrap();
    let _ = std::fs::remove_file(&image);
    let (made, said) = run("mke2fs", &[&["-q", "-F"], &args[..], &[path, SIZE]].concat());
    if !made {
        return Ok(format!("{args:?} not made: {}", said.lines().next().unwrap_or_default()));
    }
    if Mounted::new(&image, "ro").is_none() {
        return Ok(format!("{args:?} not mounted by Linux"));
    }
    let journal = kind != "ext2" && !joined.contains("^has_journal");
    let how = if journal { how[rng.below(6) as usize] } else { "" };
    let what = format!("seed {seed} {args:?} {how}");
    println!("{what}");
    let bytes = std::fs::read(&image).unwrap();
    let mut s = Soak::new(bytes, Rng::new(rng.below(u64::MAX)), block, journal, how);
    for _ in 0..4 {
        if Instant::now() > until {
            break;
        }
        let steps = 30 + s.rng.below(250);
        (0..steps).for_each(|_| s.step());
        // A power cut somewhere in what was done since the last unmount; the volume goes on without it.
        if s.journal {
            for _ in 0..2 {
                let from = s.promises.first().map_or(1, |p| p.since);
                let to = s.device.position();
                let cut = from + s.rng.below(to - from + 1);
                let state = s.after_cut(cut);
                std::fs::write(&image, &state).unwrap();
                let tell = |e| {
                    std::fs::write(dir.join("cut.img"), &state).unwrap();
                    format!("{what}: cut at {cut} of {to}: {e}")
                };
                judge_cut(&s, &image, cut).map_err(tell)?;
            }
        }
        s.v.unmount().map_err(|e| format!("{what}: unmount: {e}"))?;
        let mut bytes = s.base.clone();
        s.records.append(&mut s.device.take());
        for r in s.records.iter().filter(|r| r.op == Op::Write) {
            let at = (r.sector.0 * 512) as usize;
            bytes[at..at + r.data.len()].copy_from_slice(&r.data);
        }
        std::fs::write(&image, &bytes).unwrap();
        let tell = |e| format!("{what}: unmounted: {e}");
        fsck(&image).map_err(tell)?;
        let found = kernel_tree(Mounted::new(&image, "rw").ok_or("no mount")?.path());
        compare(&found, &s.paths, &s.things, None).map_err(tell)?;
        fsck(&image).map_err(|e| format!("{what}: after Linux: {e}"))?;
        // The next round goes on with the volume that Linux left.
        s.base = std::fs::read(&image).unwrap();
        s.device = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&s.base))));
        (s.records, s.promises, s.moved) = Default::default();
        s.v = mount(s.device.clone(), how);
        for (path, id) in s.paths.iter().filter(|(_, id)| s.things[*id].kind == FileType::Regular) {
            let mut bytes = vec![0; s.things[id].data.len() + 1];
            let n = s.file(path).read_at(0, &mut bytes).unwrap();
            if bytes[..n] != s.things[id].data {
                return Err(format!("{what}: {path} reads otherwise here"));
            }
        }
    }
    Ok(what)
}

fn judge_cut(s: &Soak, image: &Path, cut: u64) -> Result<(), String> {
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).unwrap();
    // Linux recovers one copy, and we the other.
    let found = kernel_tree(Mounted::new(&copy, "rw").ok_or("Linux does not mount it")?.path());
    fsck(&copy).map_err(|e| format!("recovered by Linux: {e}"))?;
    let bytes = std::fs::read(image).unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let recorder = Arc::new(Recorder::new(memory.clone()));
    mount(recorder, "").unmount().map_err(|e| e.to_string())?;
    let mut bytes = vec![0; bytes.len()];
    memory.read_at(0, &mut bytes);
    std::fs::write(&copy, &bytes).unwrap();
    fsck(&copy).map_err(|e| format!("recovered by us: {e}"))?;
    let ours = kernel_tree(Mounted::new(&copy, "ro").ok_or("no mount")?.path());
    for (path, thing) in &found {
        if let Some(e) = differ(path, thing, ours.get(path)) {
            return Err(format!("we recover it otherwise than Linux: {e}"));
        }
    }
    if ours.len() != found.len() {
        return Err("we recover more than Linux".into());
    }
    std::fs::copy(image, &copy).unwrap();
    run("e2fsck", &["-fy", copy.to_str().unwrap()]);
    fsck(&copy).map_err(|e| format!("recovered by e2fsck: {e}"))?;
    let theirs = kernel_tree(Mounted::new(&copy, "ro").ok_or("no mount")?.path());
    for p in s.promises.iter().filter(|p| p.since <= cut && p.until.is_none_or(|u| cut <= u)) {
        for (who, tree) in [("Linux", &found), ("e2fsck", &theirs)] {
            compare(tree, &p.paths, &p.things, p.file.as_deref())
                .map_err(|e| format!("promised at {}, recovered by {who}: {e}", p.since))?;
        }
    }
    Ok(())
}

#[test]
fn volumes_of_many_kinds_outlive_work_by_chance() {
    if skip() {
        return;
    }
    let seconds = std::env::var("TIDEGATE_SOAK").map_or(8, |s| s.parse().expect("TIDEGATE_SOAK is a number"));
    let dir = scratch();
    let begin = seed();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut bad) = (0, Vec::new());
    while Instant::now() < until && bad.len() < 5 {
        let kept = || {
            if let Some(keep) = std::env::var_os("TIDEGATE_KEEP") {
                let _ = std::fs::copy(dir.path().join("cut.img"), keep);
            }
        };
        bad.extend(round(dir.path(), begin.wrapping_add(rounds), until).inspect_err(|_| kept()).err());
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}
