//! Bios of a pass over many files go out as few requests, and none is held back that a thread waits for.

use crate::rig::{mke2fs, scratch, skip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_block::{BioFlags, MemoryDevice, Op, QueueLimits, Recorder, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::trace::Event;
use tidegate_rt::{sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const FILES: usize = 200;

fn device(made_by: &[&str]) -> Arc<Recorder> {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &[&["-b", "4096"], made_by].concat(), "64M");
    Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()))))
}

/// Mounts the volume so that nothing is written unless it is asked for.
fn mount(device: &Arc<Recorder>, how: Ext4Options) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), how).unwrap();
    Vfs::mount(fs, bdi, MountOptions { no_periodic_writeback: true, ..MountOptions::default() }).unwrap()
}

/// Requests that wrote data of files since the last call.
fn data_requests(device: &Recorder) -> usize {
    let is_data = |op, flags: BioFlags| op == Op::Write && !flags.contains(BioFlags::META);
    device.take().iter().filter(|r| is_data(r.op, r.flags)).count()
}

fn make(v: &Arc<Vfs>, name: &str) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
}

/// A file of two pages that a pass has written, but of which no bio was sent.
fn kept(v: &Arc<Vfs>, device: &Recorder) -> File {
    let file = make(v, "kept");
    file.write_at(0, &[7; 8192]).unwrap();
    data_requests(device);
    let mut wbc = WritebackControl { more_follow: true, ..WritebackControl::background(u64::MAX) };
    v.fs().writepages(file.inode(), &mut wbc).unwrap();
    assert_eq!((wbc.written, file.inode().mapping.nr_writeback(), data_requests(device)), (2, 2, 0));
    file
}

fn content(device: &Arc<Recorder>, name: &str) -> Vec<u8> {
    let v = mount(device, Ext4Options { read_only: true, ..Ext4Options::default() });
    let file = v.lookup(&v.root().unwrap(), name.as_bytes()).unwrap();
    let mut bytes = vec![0; 1 << 16];
    let n = v.open(ROOT, &file, OpenFlags::READ).unwrap().read_at(0, &mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

#[test]
fn small_files_of_a_pass_go_out_together() {
    if skip() {
        return;
    }
    // Credits are kept for the ends of bios: a journal of the usual size has enough for some twenty files.
    for made_by in
        [&["-t", "ext4", "-J", "size=16"][..], &["-t", "ext4", "-O", "^has_journal"], &["-t", "ext3"]]
    {
        for how in ["filling", "nomap_first=pipelined", "nomap_first=on", "nomap_first=off"] {
            let device = device(made_by);
            let filling = how == "filling";
            let mut options = Ext4Options { filling, ..Ext4Options::default() };
            assert!(filling || options.set(how).unwrap());
            let v = mount(&device, options);
            for n in 0..FILES {
                make(&v, &format!("f{n}")).write_at(0, &[n as u8; 3000]).unwrap();
            }
            data_requests(&device);
            v.sync().unwrap();
            let requests = data_requests(&device);
            // A thread that waits for the journal sends the waiting bios.
            let most = if how.ends_with("on") || how.ends_with("off") { FILES / 2 } else { FILES / 20 };
            assert!((1..=most).contains(&requests), "{made_by:?}, {how}: {requests} requests");
            v.unmount().unwrap();
            for n in [0, 1, FILES - 1] {
                assert_eq!(content(&device, &format!("f{n}")), [n as u8; 3000], "{made_by:?}");
            }
        }
    }
}

/// A small journal may have no credits but those kept for the ends of unsent bios: a thread that needs
/// credits sends these bios.
#[test]
fn what_a_pass_keeps_holds_nobody_up() {
    if skip() {
        return;
    }
    for how in ["nomap_first=on", "nomap_first=off"] {
        let device = device(&["-t", "ext4", "-J", "size=4"]);
        let mut options = Ext4Options::default();
        assert!(options.set(how).unwrap());
        let v = mount(&device, options);
        let files: Vec<File> = (0..160).map(|n| make(&v, &format!("f{n}"))).collect();
        for f in &files {
            f.write_at(0, &[3; 3000]).unwrap();
            let mut wbc = WritebackControl { more_follow: true, ..WritebackControl::background(u64::MAX) };
            v.fs().writepages(f.inode(), &mut wbc).unwrap();
        }
        drop(files);
        v.unmount().unwrap();
        assert_eq!(content(&device, "f159"), [3; 3000]);
    }
}

/// A commit sends the data that it waits for.
#[test]
fn a_commit_does_not_wait_for_what_nobody_sends() {
    if skip() {
        return;
    }
    let device = device(&["-t", "ext3"]);
    let v = mount(&device, Ext4Options::default());
    let (other, a) = (make(&v, "other"), kept(&v, &device));
    let done = Arc::new(AtomicBool::new(false));
    let ended = done.clone();
    let syncer = thread::spawn("syncer", move || {
        other.fsync(false).unwrap();
        ended.store(true, SeqCst);
    });
    let mut patience = 3000;
    while !done.load(SeqCst) && patience > 0 {
        thread::sleep(std::time::Duration::from_millis(10));
        patience -= 1;
    }
    let before = done.load(SeqCst);
    v.bdi().submit_pending();
    syncer.unwrap().join();
    assert!(before, "the commit waits");
    assert_eq!(a.inode().mapping.nr_writeback(), 0);
    drop(a);
    v.unmount().unwrap();
}

/// An fsync sends the held bios if its own pages are in them, and otherwise lets them gather.
#[test]
fn an_fsync_sends_its_own() {
    if skip() {
        return;
    }
    let device = device(&["-t", "ext4"]);
    let v = mount(&device, Ext4Options::default());
    let (other, a) = (make(&v, "other"), kept(&v, &device));
    other.write_at(0, &[8; 100]).unwrap();
    other.fsync(false).unwrap();
    assert_eq!((data_requests(&device), a.inode().mapping.nr_writeback()), (1, 2));
    a.fsync(false).unwrap();
    assert_eq!((data_requests(&device), a.inode().mapping.nr_writeback()), (1, 0));
    drop((a, other));
    v.unmount().unwrap();
}

/// Free space in pieces of four blocks, about one in each small group: one transaction is too small to give a
/// long run of pages its places.
fn in_pieces() -> Arc<MemoryDevice> {
    let device = crate::common::volume::fresh(
        96,
        &["-t", "ext4", "-b", "1024", "-g", "256", "-J", "size=1", "-m", "0"],
    );
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options { filling: true, ..Ext4Options::default() }).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
    let fill = make(&v, "fill");
    let len = v.statfs().blocks_available * 1024 / 4096 * 4096 - (64 << 10);
    fill.fallocate(FallocateFlags::empty(), 0, len).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..len).step_by(248 << 10) {
        fill.fallocate(punch, at, 12 << 10).unwrap();
    }
    drop(fill);
    v.unmount().unwrap();
    device
}

/// A pass that marks arrived runs has sent all its bios: a mark may wait for a commit.
#[test]
fn a_pass_sends_what_it_has_before_it_marks() {
    if skip() {
        return;
    }
    let device = in_pieces();
    let config = sim::Config { trace: 1 << 16, ..sim::Config::default() };
    let ran = sim::run_with(&config, move || {
        let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
        let bdi = Bdi::new(MemoryLimits::default());
        let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
        let v = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
        // The transaction has little room left.
        let root = v.root().unwrap();
        (0..60).for_each(|n| drop(v.mkdir(ROOT, &root, format!("d{n}").as_bytes(), 0o755).unwrap()));
        let f = make(&v, "f");
        f.write_at(0, &vec![5; (1 << 20) + 8192]).unwrap();
        f.fsync(false).unwrap();
        drop(f);
        v.unmount().unwrap();
    });
    let events = ran.unwrap_or_else(|deadlock| panic!("{deadlock}")).events;
    // Handles for places have type 2, for marks type 11.
    let of_type = |e: &Event, n| e.name == "jbd2_handle_start" && e.args.contains(&("type", n));
    let of_pass = |e: &&Event| e.thread == events[0].thread;
    let pass: Vec<&Event> = events.iter().filter(of_pass).collect();
    let mark = pass.iter().position(|e| of_type(e, 11)).expect("the pass marks nothing itself");
    let places: Vec<usize> = (0..mark).filter(|n| of_type(pass[*n], 2)).collect();
    assert_eq!(places.len(), 2, "one transaction has room for a whole run of pages");
    let sent = pass[places[1]..mark].iter().filter(|e| e.name == "block_rq_issue").count();
    assert!(sent > 0, "the second part of the run is still in the plug");
}

#[test]
fn an_unmount_leaves_nothing_behind() {
    if skip() {
        return;
    }
    for made_by in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"], &["-t", "ext3"]] {
        let device = device(made_by);
        let v = mount(&device, Ext4Options::default());
        drop(kept(&v, &device));
        v.unmount().unwrap();
        assert_eq!(content(&device, "kept"), [7; 8192], "{made_by:?}");
    }
}
