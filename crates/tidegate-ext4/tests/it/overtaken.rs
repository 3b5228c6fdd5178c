//! Data that reaches the device before data that was sent earlier: a commit meanwhile leaves a volume that
//! e2fsck calls clean, and no size is ahead of its data.

use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::{Gate, skip};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{BioFlags, Errno, MemoryDevice, Op, Request};
use tidegate_rt::{Nanos, clock, sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn send(v: &Vfs, file: &File) {
    v.fs().writepages(file.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
}

fn create(v: &Arc<Vfs>, name: &[u8]) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
}

/// The size of the file after a power cut now.
fn size_after_a_cut(device: &MemoryDevice) -> std::result::Result<u64, String> {
    content_after_a_cut(device).map(|bytes| bytes.len() as u64)
}

/// The bytes of the file after a power cut now.
fn content_after_a_cut(device: &MemoryDevice) -> std::result::Result<Vec<u8>, String> {
    let cut = Arc::new(device.copy());
    fsck(&cut)?;
    let (_, v) = open_rw(cut, MemoryLimits::default(), clock::realtime()).unwrap();
    let inode = v.lookup(&v.root().unwrap(), b"f").unwrap();
    let mut bytes = vec![0; inode.size() as usize];
    assert_eq!(v.open(ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut bytes).unwrap(), bytes.len());
    v.unmount().unwrap();
    Ok(bytes)
}

/// Writes a page that the device holds back, and one behind it that the device takes, and commits. Checks the
/// state after a power cut then, and again after the first page has arrived or is lost.
fn overtaken(block: &str, fails: bool) {
    let below = fresh(32, &["-t", "ext4", "-b", block]);
    let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
    let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let (f, other) = (create(&v, b"f"), create(&v, b"other"));
    v.sync().unwrap();
    f.write_at(0, &[1; 4096]).unwrap();
    send(&v, &f);
    f.write_at(40_960, &[2; 5000]).unwrap();
    send(&v, &f);
    // The second page gets time to be marked, if that is allowed.
    thread::sleep(Duration::from_millis(200));
    other.write_at(0, b"other").unwrap();
    other.fsync(false).unwrap();
    let size_after_a_cut = || size_after_a_cut(&below);
    let on_the_way = size_after_a_cut();
    gate.let_go(if fails { Err(Errno::IO) } else { Ok(()) });
    assert_eq!(on_the_way, Ok(0), "{block}");
    if fails {
        assert_eq!(f.fsync(false).unwrap_err().kind(), ErrorKind::Io);
    }
    f.fsync(false).unwrap();
    assert_eq!(size_after_a_cut(), Ok(45_960), "{block}");
    let mut bytes = [0; 45_960];
    assert_eq!(f.read_at(0, &mut bytes).unwrap(), 45_960);
    assert!(bytes[..4096] == [1; 4096] && bytes[40_960..] == [2; 5000]);
    drop((f, other));
    v.unmount().unwrap();
    drop(v);
    fsck(&below).unwrap();
}

#[test]
fn data_behind_data_on_its_way_is_marked_with_it() {
    if skip() {
        return;
    }
    for block in ["1024", "2048", "4096"] {
        overtaken(block, false);
    }
}

#[test]
fn data_behind_data_that_was_lost_is_marked() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        overtaken(block, true);
    }
}

#[test]
fn a_file_is_as_long_as_what_was_sent_of_it() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        let device = fresh(32, &["-t", "ext4", "-b", block]);
        let (_, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"f"), create(&v, b"other"));
        v.sync().unwrap();
        // There are two runs of pages; a pass has room for one.
        f.write_at(0, &[1; 4 * 4096]).unwrap();
        f.write_at(40_960, &[2; 5000]).unwrap();
        v.fs().writepages(f.inode(), &mut WritebackControl::background(1)).unwrap();
        v.bdi().submit_pending();
        f.inode().mapping.wait_writeback(0, u64::MAX);
        other.write_at(0, b"other").unwrap();
        other.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&device), Ok(4 * 4096), "{block}");
        drop((f, other));
        v.unmount().unwrap();
    }
}

#[test]
fn a_page_that_got_longer_on_its_way_makes_its_file_no_longer_than_it_was() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        let below = fresh(32, &["-t", "ext4", "-b", block]);
        let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
        let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"f"), create(&v, b"other"));
        v.sync().unwrap();
        f.write_at(0, &[1; 2000]).unwrap();
        send(&v, &f);
        f.write_at(2000, &[2; 1000]).unwrap();
        gate.let_go(Ok(()));
        f.inode().mapping.wait_writeback(0, u64::MAX);
        other.write_at(0, b"other").unwrap();
        other.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&below), Ok(2000), "{block}");
        f.fsync(false).unwrap();
        assert_eq!(size_after_a_cut(&below), Ok(3000), "{block}");
        drop((f, other));
        v.unmount().unwrap();
    }
}

/// A background pass leaves out pages that are on their way. Pages behind one that got more bytes meanwhile would make
/// the file longer by those bytes, too, so the pass leaves them to the next one.
#[test]
fn a_page_that_got_longer_on_its_way_goes_before_pages_behind_it() {
    if skip() {
        return;
    }
    for how in [&["-b", "1024"][..], &["-b", "4096"], &["-b", "4096", "-O", "^64bit,^extents"]] {
        let below = fresh(32, &[&["-t", "ext4"], how].concat());
        let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
        let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"f"), create(&v, b"other"));
        v.sync().unwrap();
        f.write_at(0, &[1; 2000]).unwrap();
        send(&v, &f);
        f.write_at(2000, &[2; 10_000]).unwrap();
        send(&v, &f); // it waits for nothing
        gate.let_go(Ok(()));
        let content = || {
            v.bdi().submit_pending();
            f.inode().mapping.wait_writeback(0, u64::MAX);
            other.write_at(other.size(), b"other").unwrap();
            other.fsync(false).unwrap();
            content_after_a_cut(&below).unwrap()
        };
        let written = [&[1; 2000][..], &[2; 10_000]].concat();
        let found = content();
        assert!(found.len() >= 2000 && written.starts_with(&found), "{how:?}: {} bytes", found.len());
        send(&v, &f);
        assert!(content() == written, "{how:?}");
        drop((f, other));
        v.unmount().unwrap();
    }
}

/// Two passes at once: one takes a page that the device holds back, the other pages behind it. In no order of their
/// steps is the file longer than the first page meanwhile.
#[test]
fn passes_make_a_file_longer_in_the_order_of_its_pages() {
    if skip() {
        return;
    }
    let made = fresh(32, &["-t", "ext4", "-b", "4096"]);
    for seed in 0..20 {
        let below = Arc::new(made.copy());
        let ours = below.clone();
        let config = sim::Config { seed, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
        let cut =
            sim::run_with(&config, move || two_passes(&ours)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(size_after_a_cut(&cut.value), Ok(0), "seed {seed}");
        assert_eq!(size_after_a_cut(&below), Ok(45_960), "seed {seed}");
    }
}

/// Returns the device as it is while the first page is held back.
fn two_passes(below: &Arc<MemoryDevice>) -> MemoryDevice {
    let first = |rq: &Request| rq.op == Op::Write && !rq.flags.contains(BioFlags::META) && rq.bytes == 4096;
    let gate = Gate::new(below.clone(), first);
    let (_, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let (f, other) = (create(&v, b"f"), create(&v, b"other"));
    v.sync().unwrap();
    f.write_at(0, &[1; 4096]).unwrap();
    f.write_at(40_960, &[2; 5000]).unwrap();
    let pass = |start| {
        let (v, inode) = (v.clone(), f.inode().clone());
        thread::spawn("pass", move || {
            let mut wbc = WritebackControl { start, ..WritebackControl::background(u64::MAX) };
            v.fs().writepages(&inode, &mut wbc).unwrap();
        })
        .unwrap()
    };
    [pass(0), pass(10)].into_iter().for_each(thread::JoinHandle::join);
    v.bdi().submit_pending();
    thread::sleep(Duration::from_millis(200));
    assert!(gate.is_kept());
    other.write_at(0, b"other").unwrap();
    other.fsync(false).unwrap();
    let cut = below.copy();
    gate.let_go(Ok(()));
    drop((f, other));
    v.unmount().unwrap();
    cut
}

/// A write appends to a file while a pass writes it. In no order of their steps does the file have bytes that are not on
/// the device.
#[test]
fn a_write_during_a_pass_makes_the_file_no_longer_than_its_data() {
    if skip() {
        return;
    }
    for how in [&["-b", "1024"][..], &["-b", "4096"], &["-b", "4096", "-O", "^64bit,^extents"]] {
        let made = fresh(32, &[&["-t", "ext4"], how].concat());
        for (seed, more) in (0..30).flat_map(|seed| [(seed, 1000), (seed, 10_000)]) {
            let below = Arc::new(made.copy());
            let ours = below.clone();
            let config = sim::Config { seed, quantum: Nanos(0), jitter: 4, ..sim::Config::default() };
            let cut = sim::run_with(&config, move || append_and_pass(&ours, more));
            let cut = cut.unwrap_or_else(|e| panic!("{how:?}, seed {seed}, {more} bytes: {e}"));
            let written = [&[1; 2000][..], &vec![2; more]].concat();
            let found = content_after_a_cut(&cut.value)
                .unwrap_or_else(|e| panic!("{how:?}, seed {seed}, {more} bytes: {e}"));
            assert!(written.starts_with(&found), "{how:?}, seed {seed}: {} bytes", found.len());
            assert_eq!(content_after_a_cut(&below), Ok(written), "{how:?}, seed {seed}, {more} bytes");
        }
    }
}

/// Returns the device after the pass and a commit.
fn append_and_pass(below: &Arc<MemoryDevice>, more: usize) -> MemoryDevice {
    let (_, v) = open_rw(below.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let (f, other) = (create(&v, b"f"), create(&v, b"other"));
    v.sync().unwrap();
    f.write_at(0, &[1; 2000]).unwrap();
    let (vfs, inode) = (v.clone(), f.inode().clone());
    let pass = thread::spawn("pass", move || {
        vfs.fs().writepages(&inode, &mut WritebackControl::background(u64::MAX)).unwrap();
    });
    f.write_at(2000, &vec![2; more]).unwrap();
    pass.unwrap().join();
    v.bdi().submit_pending();
    f.inode().mapping.wait_writeback(0, u64::MAX);
    other.write_at(0, b"other").unwrap();
    other.fsync(false).unwrap();
    let cut = below.copy();
    drop((f, other));
    v.unmount().unwrap();
    cut
}
