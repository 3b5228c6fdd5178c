//! Directories that move while other threads change, remove and replace the directories around them, in the
//! simulated world: the seed of a failure replays it.

use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::sim::{self, Config};
use tidegate_rt::{Nanos, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const NONE: RenameFlags = RenameFlags::empty();

fn volume() -> (Arc<RequestQueue>, Arc<Vfs>) {
    let queue = Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(64 << 20)), QueueLimits::default()));
    mkfs(&queue, &MkfsOptions::default()).unwrap();
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue.clone(), bdi.clone(), F2fsOptions::default()).unwrap();
    let options = MountOptions { no_periodic_writeback: true, ..Default::default() };
    (queue, Vfs::mount(fs, bdi, options).unwrap())
}

/// Runs `work` for each of `seeds`; the volume must be good afterwards.
fn each(seeds: std::ops::Range<u64>, work: fn(&Arc<Vfs>)) {
    for seed in seeds {
        let config = Config { seed, cpus: 3, quantum: Nanos(0), jitter: 16, ..Config::default() };
        let run = move || {
            let (queue, v) = volume();
            work(&v);
            v.unmount().unwrap();
            check(&queue, CheckOptions::default()).unwrap()
        };
        let report = sim::run_with(&config, run).unwrap_or_else(|d| panic!("seed {seed}: {d}")).value;
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.problems);
    }
}

fn beside(v: &Arc<Vfs>, f: impl FnOnce(Arc<Vfs>) + Send + 'static) -> thread::JoinHandle<()> {
    let v = v.clone();
    thread::spawn("beside", move || f(v)).unwrap()
}

/// Moves a name and fails only as `allowed`.
fn may_move(v: &Vfs, from: (&Arc<Inode>, &[u8]), to: (&Arc<Inode>, &[u8]), allowed: &[ErrorKind]) {
    if let Err(e) = v.rename(ROOT, from, to, NONE) {
        assert!(allowed.contains(&e.kind()), "{e}");
    }
}

/// A directory above the target of a move grows out of its inode meanwhile.
#[test]
fn a_directory_moves_below_one_that_grows() {
    each(0..60, |v| {
        let root = v.root().unwrap();
        let [a, b] = [b"a", b"b"].map(|n| v.mkdir(ROOT, &root, n, 0o755).unwrap());
        let c = v.mkdir(ROOT, &b, b"c", 0o755).unwrap();
        v.mkdir(ROOT, &a, b"x", 0o755).unwrap();
        let mover = beside(v, move |v| {
            for _ in 0..20 {
                v.rename(ROOT, (&a, b"x"), (&c, b"x"), NONE).unwrap();
                v.rename(ROOT, (&c, b"x"), (&a, b"x"), NONE).unwrap();
            }
        });
        for i in 0..16 {
            v.create(ROOT, &b, format!("{i:03}{}", "n".repeat(190)).as_bytes(), 0o644).unwrap();
        }
        mover.join();
    });
}

/// Two directories would each become the other's parent; one move must fail.
#[test]
fn directories_move_into_each_other() {
    each(0..60, |v| {
        let root = v.root().unwrap();
        let [a, b] = [b"a", b"b"].map(|n| v.mkdir(ROOT, &root, n, 0o755).unwrap());
        let deep = v.mkdir(ROOT, &a, b"deep", 0o755).unwrap();
        let other = {
            let (root, b, deep) = (root.clone(), b.clone(), deep.clone());
            beside(v, move |v| {
                let not = [ErrorKind::InvalidArgument, ErrorKind::NotFound];
                may_move(&v, (&root, b"b"), (&deep, b"b"), &not);
                assert!(b.attr().nlink >= 2);
            })
        };
        may_move(v, (&root, b"a"), (&b, b"a"), &[ErrorKind::InvalidArgument, ErrorKind::NotFound]);
        other.join();
        let left = v.entries(&root).unwrap().into_iter().filter(|e| e.name != b"lost+found").count();
        assert_eq!(left, 1);
    });
}

/// A directory's number is below its parent's, and a move below the parent would replace the parent's name: a
/// thread that locks a directory after one below it waits for the thread that removes that directory.
#[test]
fn moves_and_removals_do_not_wait_for_each_other() {
    each(0..300, |v| {
        let root = v.root().unwrap();
        let c = v.mkdir(ROOT, &root, b"c", 0o755).unwrap();
        let b = v.mkdir(ROOT, &root, b"b", 0o755).unwrap();
        assert!(c.ino < b.ino);
        v.rename(ROOT, (&root, b"c"), (&b, b"c"), NONE).unwrap();
        v.create(ROOT, &b, b"f", 0o644).unwrap();
        v.mkdir(ROOT, &c, b"d", 0o755).unwrap();
        let mover = {
            let (root, b, c) = (root.clone(), b.clone(), c.clone());
            beside(v, move |v| {
                for _ in 0..10 {
                    may_move(&v, (&b, b"f"), (&c, b"f"), &[ErrorKind::NotFound]);
                    may_move(&v, (&c, b"f"), (&b, b"f"), &[ErrorKind::NotFound]);
                    let not = [ErrorKind::NotEmpty, ErrorKind::NotFound];
                    may_move(&v, (&c, b"d"), (&root, b"b"), &not);
                }
            })
        };
        for _ in 0..10 {
            let full = |e: ErrorKind| matches!(e, ErrorKind::NotEmpty | ErrorKind::NotFound);
            for (dir, name) in [(&b, &b"c"[..]), (&root, b"b")] {
                let r = v.rmdir(ROOT, dir, name);
                assert!(r.as_ref().err().is_none_or(|e| full(e.kind())), "{r:?}");
            }
        }
        mover.join();
    });
}

/// An open directory lives on when it is removed, but nothing can be made in it or moved into it.
#[test]
fn nothing_comes_into_a_directory_that_is_removed_and_open() {
    let (queue, v) = volume();
    let root = v.root().unwrap();
    let gone = v.mkdir(ROOT, &root, b"gone", 0o755).unwrap();
    v.mkdir(ROOT, &root, b"x", 0o755).unwrap();
    let open = v.open(ROOT, &gone, OpenFlags::READ | OpenFlags::DIRECTORY).unwrap();
    v.rmdir(ROOT, &root, b"gone").unwrap();
    let kind = |r: Result<()>| r.unwrap_err().kind();
    assert_eq!(kind(v.create(ROOT, &gone, b"f", 0o644).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(v.rename(ROOT, (&root, b"x"), (&gone, b"x"), NONE)), ErrorKind::NotFound);
    drop(open);
    v.unmount().unwrap();
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}
