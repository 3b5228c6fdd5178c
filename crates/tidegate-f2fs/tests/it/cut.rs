//! A large file is truncated in steps: at each checkpoint on the way it is a good file, between old and new.

use crate::common::volume;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{BioFlags, MemoryDevice, Op, QueueLimits, Record, Recorder, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_vfs::*;
use volume::{Image, fsck, mount_with, template};

const ROOT: &Cred = &Cred::ROOT;
const PAGE: u64 = 4096;
/// Pages of a direct node.
const DNODE: u64 = 1018;
/// Direct nodes of the file, one block in each: enough for several steps.
const NODES: u64 = 4000;
const SIZE: u64 = NODES * DNODE * PAGE;
/// Tries to make a checkpoint fall between two steps.
const TRIES: u32 = 20;
/// States checked in each try.
const STATES: usize = 12;

fn at(n: u64) -> u64 {
    (n * DNODE + n * 7 % 100) * PAGE
}

fn page(n: u64) -> Vec<u8> {
    (n + 1).to_le_bytes().repeat(512)
}

fn mount(device: Arc<dyn tidegate_block::Device>) -> Arc<Vfs> {
    let mut options = F2fsOptions::default();
    options.parse("background_gc=off,nodiscard").unwrap();
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    mount_with(device, MemoryLimits::default(), options, mount).unwrap().1
}

fn open(v: &Arc<Vfs>) -> File {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    v.open_path(ROOT, b"/sparse", flags, 0o644).unwrap()
}

fn base() -> Image {
    let device = template(100, "").device();
    let v = mount(device.clone());
    let f = open(&v);
    for n in 0..NODES {
        f.write_at(at(n), &page(n)).unwrap();
    }
    f.truncate(SIZE).unwrap();
    drop(f);
    v.unmount().unwrap();
    Image::of(&device)
}

/// Runs `change` beside a thread that syncs all the time; returns the requests that reached the device.
fn record(base: &Image, change: impl FnOnce(&Arc<Vfs>)) -> Vec<Record> {
    let recorder = Arc::new(Recorder::new(base.device()));
    let v = mount(recorder.clone());
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(SeqCst) {
                v.sync().unwrap();
            }
        });
        change(&v);
        done.store(true, SeqCst);
    });
    v.sync().unwrap();
    recorder.take()
}

/// The volume after each of some checkpoints.
fn states(base: &Image, records: &[Record]) -> Vec<Arc<MemoryDevice>> {
    let is_tail = |r: &Record| r.op == Op::Write && r.flags.contains(BioFlags::FUA);
    let tails: Vec<usize> = (0..records.len()).filter(|i| is_tail(&records[*i])).collect();
    let after = |tail: &usize| {
        let device = base.device();
        for r in records[..=*tail].iter().filter(|r| r.op == Op::Write) {
            device.write_at(r.sector.0 * 512, &r.data);
        }
        device
    };
    tails.iter().step_by(tails.len().div_ceil(STATES)).chain(tails.last()).map(after).collect()
}

fn assert_clean(device: &Arc<MemoryDevice>) {
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn a_file_that_is_cut_is_good_at_each_checkpoint() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let base = base();
    let target = at(100) + 5;
    let mut between = 0;
    for _ in 0..TRIES {
        let records = record(&base, |v| open(v).truncate(target).unwrap());
        for device in states(&base, &records) {
            assert_clean(&device);
            let v = mount(device.clone());
            let f = open(&v);
            let size = f.size();
            assert!((target..=SIZE).contains(&size), "{size}");
            let cut = (0..NODES).find(|n| at(*n) >= size).unwrap_or(NODES);
            let mut b = vec![0; PAGE as usize];
            for n in (0..cut).step_by(37).chain(cut.checked_sub(2)) {
                f.read_at(at(n), &mut b).unwrap();
                assert!(b == page(n), "block {n} of a file of {size} bytes");
            }
            // Nothing behind the end may show when the file grows again.
            f.truncate(SIZE).unwrap();
            for n in (cut..NODES).step_by(37) {
                f.read_at(at(n), &mut b).unwrap();
                assert!(b.iter().all(|x| *x == 0), "block {n} of a file of {size} bytes");
            }
            drop(f);
            if size != SIZE && size != target {
                between += 1;
                v.unmount().unwrap();
                fsck(&device).unwrap();
            }
        }
        if between > 0 {
            return;
        }
    }
    panic!("no checkpoint came between two steps in {TRIES} tries");
}

/// An unlinked file that is only partly freed is still an orphan: a mount finishes the work.
#[test]
fn a_file_that_goes_is_an_orphan_until_it_is_gone() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let base = base();
    let (mut between, mut used) = (0, None);
    for _ in 0..TRIES {
        let records = record(&base, |v| v.unlink(ROOT, &v.root().unwrap(), b"sparse").unwrap());
        for device in states(&base, &records).into_iter().rev() {
            assert_clean(&device);
            let queue = RequestQueue::new(device.clone(), QueueLimits::default());
            let report = check(&queue, CheckOptions::default()).unwrap();
            between += u64::from(report.orphans == 1 && report.nodes > 100 && report.nodes < NODES);
            let v = mount(device.clone());
            if report.files == 0 {
                // In the last state, which comes first, the file is gone.
                let free = v.statfs().blocks_free;
                assert_eq!(*used.get_or_insert(free), free, "{} nodes were left", report.nodes);
            }
            v.unmount().unwrap();
            fsck(&device).unwrap();
        }
        if between > 0 {
            return;
        }
    }
    panic!("no checkpoint came between two steps in {TRIES} tries");
}
