//! Checkpoints for many threads at once: each thread gets a checkpoint that began after its request, no
//! request is lost, and an error reaches all.

use crate::util;
use crate::util::gate;
use gate::{Bed, reopen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::IoContext;
use tidegate_f2fs::F2fsOptions;
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const THREADS: u32 = 8;
const FILES: u32 = 50;
/// After every `SAMPLE` files a thread looks at the state that a power cut would leave.
const SAMPLE: u32 = 20;

static ACKED: LockClass = LockClass::new("acked", 5);

type Acked = Arc<Mutex<Vec<String>>>;

fn options(list: &str) -> F2fsOptions {
    let mut o = F2fsOptions::default();
    o.parse(list).unwrap();
    o
}

/// Makes files, and fsyncs the directory after each. At some moments it checks that all files acknowledged by
/// then are there.
fn make_files(bed: &Bed, acked: &Acked, t: u32) {
    let v = &bed.vfs;
    let dir = v.mkdir(ROOT, &v.root().unwrap(), format!("t{t}").as_bytes(), 0o755).unwrap();
    let d = v.open(ROOT, &dir, OpenFlags::READ).unwrap();
    for n in 0..FILES {
        v.create(ROOT, &dir, format!("f{n}").as_bytes(), 0o644).unwrap();
        d.fsync(false).unwrap();
        acked.lock().push(format!("/t{t}/f{n}"));
        if n % SAMPLE == t {
            let there = acked.lock().clone();
            let after = reopen(&bed.device.image());
            for path in &there {
                after.resolve(ROOT, path.as_bytes(), true).unwrap_or_else(|e| panic!("{path}: {e}"));
            }
        }
    }
}

/// Runs all threads at once, and `beside` until they are done.
fn load(bed: &Arc<Bed>, beside: impl Fn(&Bed)) {
    let acked: Acked = Arc::new(Mutex::new(&ACKED, Vec::new()));
    let workers: Vec<_> = (0..THREADS)
        .map(|t| {
            let (bed, acked) = (bed.clone(), acked.clone());
            thread::spawn("worker", move || make_files(&bed, &acked, t)).unwrap()
        })
        .collect();
    while !workers.iter().all(|w| w.is_finished()) {
        beside(bed);
        thread::sleep(std::time::Duration::from_millis(1));
    }
    workers.into_iter().for_each(|w| w.join());
    let s = bed.fs.ckpt_stats();
    assert_eq!(s.queued, 0);
    assert!(s.total >= (THREADS * FILES) as u64, "{s:?}");
    assert!(s.issued >= 1 && s.issued <= s.total, "{s:?}");
}

/// Unmounts; the stock checker must be content and a new mount must find all files.
fn finish(bed: &Bed) {
    bed.vfs.unmount().unwrap();
    let image = bed.device.image();
    fsck(&image);
    let v = reopen(&image);
    for t in 0..THREADS {
        let dir = v.resolve(ROOT, format!("/t{t}").as_bytes(), true).unwrap();
        assert_eq!(v.entries(&dir).unwrap().len(), FILES as usize);
    }
}

fn fsck(image: &[u8]) {
    if tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    util::fsck(file.path());
}

/// Starts threads that each ask for a checkpoint while the device is held; returns when all have asked.
fn ask(bed: &Arc<Bed>, n: u64) -> Vec<thread::JoinHandle<Result<()>>> {
    let before = bed.fs.ckpt_stats().queued;
    let asking = (0..n).map(|_| {
        let fs = bed.fs.clone();
        thread::spawn("asking", move || fs.write_checkpoint(true)).unwrap()
    });
    let asking = asking.collect();
    wait_for_queued(bed, before + n);
    asking
}

fn wait_for_queued(bed: &Bed, n: u64) {
    while bed.fs.ckpt_stats().queued < n {
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn merged_requests_are_durable() {
    let bed = Arc::new(Bed::new("checkpoint_merge"));
    load(&bed, |_| ());
    finish(&bed);
}

#[test]
fn requests_alone_are_durable() {
    let bed = Arc::new(Bed::new("nocheckpoint_merge"));
    load(&bed, |_| ());
    finish(&bed);
}

#[test]
fn turning_the_switch_loses_nobody() {
    let bed = Arc::new(Bed::new(""));
    let merge = AtomicBool::new(true);
    load(&bed, |b| {
        let on = merge.fetch_xor(true, SeqCst);
        b.fs.turn(&options(if on { "nocheckpoint_merge" } else { "checkpoint_merge" }));
    });
    finish(&bed);
}

#[test]
fn who_asks_during_a_checkpoint_gets_the_next() {
    let bed = Arc::new(Bed::new(""));
    let version = || bed.fs.info().unwrap().checkpoint_version;
    let before = (version(), bed.fs.ckpt_stats());
    bed.device.hold();
    let mut asking = ask(&bed, 1);
    bed.device.wait_until_held();
    asking.extend(ask(&bed, 5));
    bed.device.release();
    asking.into_iter().for_each(|a| a.join().unwrap());
    let s = bed.fs.ckpt_stats();
    assert_eq!((s.total, s.issued), (before.1.total + 6, before.1.issued + 2));
    assert_eq!(version(), before.0 + 2);
    let whole = s.steps.iter().find(|s| s.name == "checkpoint in all").unwrap();
    assert_eq!(whole.count, 2);
    assert!(whole.min_ns <= whole.mean_ns && whole.mean_ns <= whole.max_ns && whole.p99_ns <= whole.max_ns);
}

#[test]
fn who_asks_alone_gets_one_each() {
    let bed = Arc::new(Bed::new("nocheckpoint_merge"));
    let before = bed.fs.info().unwrap().checkpoint_version;
    bed.device.hold();
    let asking = ask(&bed, 6);
    bed.device.release();
    asking.into_iter().for_each(|a| a.join().unwrap());
    assert_eq!(bed.fs.info().unwrap().checkpoint_version, before + 6);
    let s = bed.fs.ckpt_stats();
    assert_eq!((s.total, s.issued, s.queued), (6, 6, 0));
}

#[test]
fn the_thread_has_a_priority_of_its_own() {
    let bed = Bed::new("checkpoint_merge");
    let asking = IoContext { group: 7, class: 3, level: 6 };
    let written_as = |mount: &str| {
        bed.fs.turn(&options(mount));
        let _io = asking.enter();
        bed.fs.write_checkpoint(true).unwrap();
        bed.device.packs_ctx()
    };
    assert_eq!(written_as("checkpoint_merge"), IoContext { group: 0, class: 2, level: 3 });
    assert_eq!(written_as("ckpt_thread_ioprio=rt/1"), IoContext { group: 0, class: 1, level: 1 });
    assert_eq!(written_as("nocheckpoint_merge"), asking);
}

#[test]
fn a_deterministic_volume_has_no_thread() {
    let device = gate::Gate::new(64 << 20);
    let queue = tidegate_block::RequestQueue::new(device, Default::default());
    tidegate_f2fs::mkfs::mkfs(&queue, &Default::default()).unwrap();
    let o = F2fsOptions { deterministic: true, ..Default::default() };
    let fs = tidegate_f2fs::F2fs::open(Arc::new(queue), Bdi::new(Default::default()), o).unwrap();
    fs.write_checkpoint(false).unwrap();
    fs.write_checkpoint(true).unwrap();
    let s = fs.ckpt_stats();
    assert_eq!((s.merge, s.total, s.issued, s.queued), (true, 2, 1, 0));
}

#[test]
fn an_error_reaches_everybody() {
    for merge in ["checkpoint_merge", "nocheckpoint_merge"] {
        let bed = Arc::new(Bed::new(merge));
        bed.device.hold();
        let first = ask(&bed, 1);
        bed.device.wait_until_held();
        let asking = ask(&bed, 5);
        bed.device.fail_after(1);
        bed.device.release();
        first.into_iter().for_each(|a| a.join().unwrap());
        let kinds: Vec<_> = asking.into_iter().map(|a| a.join().unwrap_err().kind()).collect();
        // Without merging, one thread gets the error itself and the others find a stopped volume.
        let io = kinds.iter().filter(|k| **k == ErrorKind::Io).count();
        assert_eq!(io, if merge == "checkpoint_merge" { 5 } else { 1 }, "{kinds:?}");
        assert!(kinds.iter().all(|k| matches!(k, ErrorKind::Io | ErrorKind::ReadOnly)), "{kinds:?}");
        let why = FileSystem::read_only(&*bed.fs);
        let stopped = |e: &Error| e.places().any(|at| matches!(at, At::Part("checkpoint pack", _)));
        assert!(matches!(&why, Some(ReadOnly::Stopped(e)) if stopped(e)), "{why:?}");
        assert_eq!(bed.fs.write_checkpoint(true).unwrap_err().kind(), ErrorKind::ReadOnly);
        let _ = bed.vfs.unmount();
        fsck(&bed.device.image());
    }
}

#[test]
fn a_directory_that_cannot_be_written_fails_its_checkpoint() {
    let bed = Bed::new("");
    let v = &bed.vfs;
    let dir = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    for n in 0..400 {
        v.create(ROOT, &dir, format!("f{n}").as_bytes(), 0o644).unwrap();
    }
    let d = v.open(ROOT, &dir, OpenFlags::READ).unwrap();
    d.fsync(false).unwrap();
    v.create(ROOT, &dir, b"needle-in-there", 0o644).unwrap();
    bed.device.fail_data_with(b"needle-in-there");
    assert_eq!(bed.fs.write_checkpoint(false).unwrap_err().kind(), ErrorKind::Io);
    assert!(FileSystem::read_only(&*bed.fs).is_some());
    let v = reopen(&bed.device.image());
    assert_eq!(v.entries(&v.resolve(ROOT, b"/d", true).unwrap()).unwrap().len(), 400);
}

#[test]
fn unmounting_serves_who_waits() {
    let bed = Arc::new(Bed::new(""));
    bed.device.hold();
    let mut asking = ask(&bed, 1);
    bed.device.wait_until_held();
    asking.extend(ask(&bed, 3));
    let v = bed.vfs.clone();
    let unmounting = thread::spawn("unmounting", move || v.unmount()).unwrap();
    wait_for_queued(&bed, 5);
    bed.device.release();
    asking.into_iter().for_each(|a| a.join().unwrap());
    unmounting.join().unwrap();
    fsck(&bed.device.image());
}

#[test]
fn who_unmounts_second_hears_what_the_first_does() {
    let bed = Bed::new("");
    bed.vfs.create(ROOT, &bed.vfs.root().unwrap(), b"f", 0o644).unwrap();
    bed.device.hold();
    let unmount = || {
        let v = bed.vfs.clone();
        thread::spawn("unmounting", move || v.unmount()).unwrap()
    };
    let first = unmount();
    bed.device.wait_until_held();
    let second = unmount();
    bed.device.fail_after(0);
    bed.device.release();
    for told in [first.join(), second.join(), bed.vfs.unmount()] {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Io);
    }
}

#[test]
fn the_thread_lets_go_of_the_volume() {
    let bed = Bed::new("");
    bed.fs.write_checkpoint(true).unwrap();
    let (device, fs) = (bed.device.clone(), Arc::downgrade(&bed.fs));
    drop(bed);
    assert!(fs.upgrade().is_none());
    assert_eq!(Arc::strong_count(&device), 1);
}
