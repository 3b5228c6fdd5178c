//! Pages that are not neighbours: a pass gives many of them their places in one change, before it comes to them.

use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::{Gate, skip};
use std::sync::Arc;
use tidegate_block::{BioFlags, MemoryDevice, Op};
use tidegate_rt::{Nanos, clock, sim, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const PAGE: u64 = 4096;

fn create(v: &Arc<Vfs>, name: &[u8]) -> File {
    v.open_path(ROOT, name, OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE, 0o644).unwrap()
}

/// Writes every other page of a file.
fn write_apart(file: &File, pages: u64) {
    for n in 0..pages {
        file.write_at(2 * n * PAGE, &[(n % 250) as u8 + 1; PAGE as usize]).unwrap();
    }
}

fn send(v: &Vfs, file: &File, pages: u64) {
    v.fs().writepages(file.inode(), &mut WritebackControl::background(pages)).unwrap();
}

/// The number of handles of all transactions that have committed.
fn handles(fs: &dyn VolumeOps) -> u64 {
    let own = fs.stats().own;
    own.iter().find(|(name, _)| *name == "handles").expect("it is counted").1.to_owned()
}

#[test]
fn many_pages_get_their_places_in_one_change() {
    if skip() {
        return;
    }
    for block in ["1024", "4096"] {
        let below = fresh(32, &["-t", "ext4", "-b", block]);
        let gate = Gate::new(below.clone(), |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
        let (fs, v) = open_rw(gate.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
        let (f, other) = (create(&v, b"/f"), create(&v, b"/other"));
        v.sync().unwrap();
        let before = handles(&*fs);
        write_apart(&f, 60);
        // The data stays on its way, so no change marks it written.
        send(&v, &f, u64::MAX);
        other.fsync(false).unwrap();
        v.setxattr(ROOT, other.inode(), b"user.a", Some(b"1"), XattrFlags::empty()).unwrap();
        other.fsync(false).unwrap();
        let made = handles(&*fs) - before;
        gate.let_go(Ok(()));
        // Each write changes the attributes once.
        assert!((60..80).contains(&made), "{made} handles, with {block} bytes in a block");
        f.fsync(false).unwrap();
        drop((f, other));
        v.unmount().unwrap();
        fsck(&below).unwrap();
    }
}

/// Changes a file of scattered dirty pages beside a pass over them, with many orders of the two threads' steps. The file
/// then has `pages` pages, also when they are read anew.
fn beside_a_pass(change: fn(&File), pages: &'static [u64]) {
    let bytes = Arc::new(bytes_of(&fresh(32, &["-t", "ext4", "-b", "4096"])));
    for seed in 0..30 {
        let bytes = bytes.clone();
        let config = sim::Config { seed, quantum: Nanos(0), jitter: 12, ..sim::Config::default() };
        let left = sim::run_with(&config, move || {
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let (_, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
            let f = create(&v, b"/f");
            for _ in 0..20 {
                write_apart(&f, 30);
                let (vfs, inode) = (v.clone(), f.inode().clone());
                let pass = thread::spawn("pass", move || {
                    vfs.fs().writepages(&inode, &mut WritebackControl::background(u64::MAX)).unwrap();
                });
                change(&f);
                pass.unwrap().join();
                f.fsync(false).unwrap();
                assert_eq!(f.inode().attr().blocks, pages.len() as u64 * PAGE / 512);
                f.inode().mapping.reclaim(false);
                for page in pages {
                    let mut byte = [0];
                    f.read_at(page * PAGE, &mut byte).unwrap();
                    assert_ne!(byte, [0], "page {page}");
                }
                f.truncate(0).unwrap();
            }
            drop(f);
            v.unmount().unwrap();
            bytes_of(&device)
        });
        let left = left.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        fsck(&MemoryDevice::from_bytes(&left.value)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn a_truncation_beside_a_pass_leaves_no_places_behind_the_end() {
    if skip() {
        return;
    }
    beside_a_pass(|f| f.truncate(8 * PAGE).unwrap(), &[0, 2, 4, 6]);
}

/// The pass may have used up the promise of a page that was cut off and is written again.
#[test]
fn a_page_that_is_cut_off_and_written_again_beside_a_pass_is_there() {
    if skip() {
        return;
    }
    let change = |f: &File| {
        f.truncate(4 * PAGE).unwrap();
        f.write_at(4 * PAGE, &[9; PAGE as usize]).unwrap();
        f.write_at(40 * PAGE, &[9; PAGE as usize]).unwrap();
    };
    // The four extents lie in the inode.
    beside_a_pass(change, &[0, 2, 4, 40]);
}

/// A file that takes the name of another is on the device first, also the pages with a place that a pass did not come to.
#[test]
fn a_file_that_replaces_another_is_sent_where_all_its_pages_have_places() {
    if skip() {
        return;
    }
    let device = fresh(32, &["-t", "ext4", "-b", "4096"]);
    let (_, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let (old, new) = (create(&v, b"/old"), create(&v, b"/new"));
    v.sync().unwrap();
    // The table has the size before the data.
    new.truncate(119 * PAGE).unwrap();
    write_apart(&new, 60);
    send(&v, &new, 1);
    v.bdi().submit_pending();
    new.inode().mapping.wait_writeback(0, u64::MAX);
    assert_eq!(new.inode().mapping.nr_dirty(), 59);
    let root = v.root().unwrap();
    v.rename(ROOT, (&root, b"new"), (&root, b"old"), RenameFlags::empty()).unwrap();
    old.fsync(false).unwrap();
    create(&v, b"/other").fsync(false).unwrap();

    let cut = Arc::new(device.copy());
    let (_, after) = open_rw(cut, MemoryLimits::default(), clock::realtime()).unwrap();
    let found = after.open_path(ROOT, b"/old", OpenFlags::READ, 0).unwrap();
    assert_eq!(found.inode().size(), 119 * PAGE);
    for n in 0..60 {
        let mut page = [0; PAGE as usize];
        found.read_at(2 * n * PAGE, &mut page).unwrap();
        assert!(page == [n as u8 + 1; PAGE as usize], "page {}", 2 * n);
    }
    drop((old, new, found));
    v.unmount().unwrap();
}

#[test]
fn a_preallocation_around_dirty_pages_takes_few_changes() {
    if skip() {
        return;
    }
    let device = fresh(32, &["-t", "ext4", "-b", "4096"]);
    let (fs, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    let f = create(&v, b"/f");
    v.sync().unwrap();
    let before = handles(&*fs);
    write_apart(&f, 2);
    f.fallocate(FallocateFlags::empty(), 0, 2048 * PAGE).unwrap();
    assert_eq!(f.inode().attr().blocks, 2046 * PAGE / 512);
    f.fsync(false).unwrap();
    let made = handles(&*fs) - before;
    assert!(made < 40, "{made} handles");
    assert_eq!(f.inode().attr().blocks, 2048 * PAGE / 512);
    drop(f);
    v.unmount().unwrap();
    fsck(&device).unwrap();
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; tidegate_block::Device::size(device) as usize];
    device.read_at(0, &mut all);
    all
}
