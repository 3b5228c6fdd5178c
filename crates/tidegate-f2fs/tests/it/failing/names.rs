//! Reads that fail within a change of names: either nothing of the change was done, or the volume has stopped
//! and nothing of the change is ever written.

use crate::failing::rig::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tidegate_block::*;
use tidegate_rt::thread;
use tidegate_vfs::*;

const OPS: [&str; 10] = [
    "rename",
    "replace",
    "exchange",
    "whiteout",
    "move dir",
    "unlink",
    "unlink last",
    "link",
    "mkdir",
    "rmdir",
];
/// More reads than any of the operations does.
const READS: u64 = 12;

fn long(dir: char, n: u32) -> Vec<u8> {
    format!("{n:03}{}", dir.to_string().repeat(60)).into_bytes()
}

/// Two large directories, one with a single name in a block, and a file larger than the cache.
fn volume() -> Arc<MemoryDevice> {
    let rig = FailingVolume::open(FailingVolume::make(96, &Default::default()), TIGHT, "");
    let v = &rig.vfs;
    let root = v.root().unwrap();
    for dir in ["a", "b", "c"] {
        let d = v.mkdir(ROOT, &root, dir.as_bytes(), 0o755).unwrap();
        for i in 0..400 {
            v.create(ROOT, &d, &long(dir.chars().next().unwrap(), i), 0o644).unwrap();
        }
        v.mkdir(ROOT, &d, b"d", 0o755).unwrap();
    }
    let c = v.lookup(&root, b"c").unwrap();
    (0..399).for_each(|i| v.unlink(ROOT, &c, &long('c', i)).unwrap());
    let f = rig.file("/big");
    (0..4000).for_each(|p| _ = f.write_at(p * PAGE as u64, &page(7, p, 1)).unwrap());
    drop((f, c, root));
    rig.vfs.unmount().unwrap();
    rig.memory.clone()
}

/// Every name, with its inode and the inode's link count.
fn names(v: &Arc<Vfs>) -> BTreeMap<Vec<u8>, (Ino, u32)> {
    let mut all = BTreeMap::new();
    for dir in [&b"/"[..], b"/a", b"/b", b"/c"] {
        let d = v.resolve(ROOT, dir, true).unwrap();
        for e in v.entries(&d).unwrap() {
            let links = v.lookup(&d, &e.name).unwrap().attr().nlink;
            all.insert([dir, b"/", &e.name].concat(), (e.ino, links));
        }
    }
    all
}

/// Drops clean pages from memory.
pub fn push_out(v: &Arc<Vfs>) {
    let f = v.open_path(ROOT, b"/big", OpenFlags::READ, 0).unwrap();
    for _ in 0..3 {
        (0..4000).for_each(|p| _ = read_page(&f, p).unwrap());
    }
}

fn change(v: &Vfs, op: &str, [a, b, c]: &[Arc<Inode>; 3]) -> Result<()> {
    let (x, y) = (&long('a', 7)[..], &long('b', 7)[..]);
    match op {
        "rename" => v.rename(ROOT, (a, x), (b, b"new"), RenameFlags::empty()),
        "replace" => v.rename(ROOT, (a, x), (b, y), RenameFlags::empty()),
        "exchange" => v.rename(ROOT, (a, x), (b, y), RenameFlags::EXCHANGE),
        "whiteout" => v.rename(ROOT, (a, x), (b, b"new"), RenameFlags::WHITEOUT),
        "move dir" => v.rename(ROOT, (a, b"d"), (b, b"new"), RenameFlags::empty()),
        "unlink" => v.unlink(ROOT, a, x),
        "unlink last" => v.unlink(ROOT, c, &long('c', 399)),
        "link" => v.link(ROOT, &v.lookup(a, x)?, b, b"new"),
        "mkdir" => v.mkdir(ROOT, b, b"new", 0o755).map(drop),
        _ => v.rmdir(ROOT, a, b"d"),
    }
}

/// Runs `op` and fails reads that it needs; returns whether any read failed, and whether the volume stopped.
fn one(memory: &MemoryDevice, op: &str, rule: impl FnOnce(&FailingVolume) -> Rule) -> (bool, bool) {
    let rig = FailingVolume::open(Arc::new(memory.copy()), TIGHT, "");
    let v = &rig.vfs;
    // The names are known, but their pages are not in memory.
    let before = names(v);
    let dirs = [b"/a", b"/b", b"/c"].map(|d| v.resolve(ROOT, d, true).unwrap());
    for n in [&b"new"[..], b"d"] {
        dirs.iter().for_each(|d| _ = v.lookup(d, n));
    }
    v.sync().unwrap();
    push_out(v);
    dirs.iter().for_each(|d| _ = d.mapping.reclaim(false));
    rig.faulty.set([rule(&rig)]);
    let r = change(v, op, &dirs);
    rig.faulty.set([]);
    let stopped = rig.why_stopped().is_some();
    let synced = v.sync();
    assert_eq!(synced.is_ok(), !stopped, "{op}: {synced:?}");
    for image in rig.images() {
        reopen(image, false, op, |v| match r {
            Ok(()) => assert_ne!(names(v), before, "{op}"),
            Err(_) => assert!(names(v) == before, "{op}: {:?}, stopped: {stopped}", rig.why_stopped()),
        });
    }
    (r.is_err(), stopped)
}

/// The change needs a page that cannot be read: it is not done, and the volume goes on.
#[test]
fn a_change_of_names_is_not_done_by_half() {
    let memory = volume();
    for op in OPS {
        let mut failed = 0;
        for k in 0..READS {
            // The reads after it fail, too: of several blocks read at once, the needed one is tried again.
            let r = one(&memory, op, |_| Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).which(k..u64::MAX));
            if !r.0 {
                break;
            }
            failed += 1;
            if op != "unlink last" {
                assert!(!r.1, "{op}, read {k}: the volume stopped");
            }
        }
        assert!(failed > 1, "{op}");
    }
}

/// Memory is so short that pages read before a change of names are gone again when the change needs them.
#[test]
fn a_change_of_names_that_breaks_off_stops_the_volume() {
    let memory = volume();
    let mut stopped = 0;
    for op in OPS {
        for k in 0..READS {
            let r = one(&memory, op, |rig| {
                let (vfs, seen, within) =
                    (rig.vfs.clone(), AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
                Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).when(move |_| {
                    if within.load(SeqCst) {
                        return false;
                    }
                    let n = seen.fetch_add(1, SeqCst);
                    if n == k {
                        within.store(true, SeqCst);
                        let v = vfs.clone();
                        thread::spawn("pusher", move || push_out(&v)).unwrap().join();
                        within.store(false, SeqCst);
                    }
                    n > k
                })
            });
            stopped += r.1 as u32;
        }
    }
    assert!(stopped > 0, "nothing broke off");
}
