//! The commits that an fdatasync waits for, and the commits that it need not wait for.

use crate::rig::{mke2fs, scratch, skip};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::{clock, sim, thread};
use tidegate_vfs::*;

fn open(device: Arc<MemoryDevice>) -> (Arc<Ext4>, Arc<Vfs>) {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut how = Ext4Options::default();
    // No commit comes by itself.
    assert!(how.set("commit=3600").unwrap());
    let fs = Ext4::open(queue, bdi.clone(), how).unwrap();
    (fs.clone(), Vfs::mount(fs, bdi, MountOptions::default()).unwrap())
}

fn new_volume() -> Arc<MemoryDevice> {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], "64M");
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()))
}

/// Waits until the clock for files' times has moved on.
fn a_tick() {
    thread::sleep(Duration::from_nanos(clock::TICK));
}

/// Number of handles in the transactions that were committed.
fn handles(fs: &Ext4) -> u64 {
    fs.stats().own["handles"]
}

#[test]
fn an_fdatasync_waits_for_no_commit_of_times_alone() {
    if skip() {
        return;
    }
    let device = new_volume();
    sim::run(1, 1, move || {
        let (fs, vfs) = open(device.clone());
        let how = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
        let f = vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
        f.write_at(0, &[1; 8192]).unwrap();
        f.fsync(false).unwrap();
        let commits = || fs.stats().commits;
        let before = commits();
        a_tick();
        f.write_at(0, &[2; 4096]).unwrap();
        f.fsync(true).unwrap();
        assert_eq!(commits(), before, "blocks that are there: times alone have changed");
        a_tick();
        f.write_at(0, &[3; 4096]).unwrap();
        f.fsync(false).unwrap();
        assert_eq!(commits(), before + 1, "an fsync is of the times, too");
        f.write_at(8192, &[4; 4096]).unwrap();
        f.fsync(true).unwrap();
        assert!(commits() > before + 1, "a longer file has a new block and another size");
        // The state after a power cut.
        let (_, again) = open(Arc::new(device.copy()));
        let f = again.open_path(&Cred::ROOT, b"/f", OpenFlags::READ, 0).unwrap();
        let mut bytes = [0; 16384];
        assert_eq!(f.read_at(0, &mut bytes).unwrap(), 12288);
        assert_eq!([bytes[0], bytes[4096], bytes[8192]], [3, 1, 4]);
    });
}

#[test]
fn what_is_overwritten_within_a_tick_of_the_clock_opens_no_handle() {
    if skip() {
        return;
    }
    let device = new_volume();
    sim::run(1, 1, move || {
        let (fs, vfs) = open(device);
        let how = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
        let f = vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
        f.write_at(0, &[1; 8192]).unwrap();
        f.fsync(false).unwrap();
        let mut byte = [0];
        let mut opened = |writes: usize, reads: usize| {
            let before = handles(&fs);
            a_tick();
            for n in 0..writes.max(reads) {
                (n < writes).then(|| f.write_at(4096, &[2; 100]).unwrap());
                (n < reads).then(|| f.read_at(0, &mut byte).unwrap());
            }
            f.fsync(false).unwrap();
            handles(&fs) - before
        };
        assert_eq!(opened(3, 0), 1, "mtime once");
        assert_eq!(opened(0, 3), 1, "relatime: later than the write");
        assert_eq!(opened(0, 3), 0, "and then it stays");
        assert_eq!(opened(3, 3), 2, "mtime once, atime once");
    });
}

/// The handles of a long commit explain it: the journal's events give the purpose of each, in Linux's
/// numbers.
#[test]
fn handles_say_what_they_are_for() {
    if skip() {
        return;
    }
    let device = new_volume();
    let config = sim::Config { trace: 1 << 14, ..sim::Config::default() };
    let ran = sim::run_with(&config, move || {
        let (_fs, vfs) = open(device);
        let how = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
        let f = vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
        f.write_at(0, &[1; 8192]).unwrap();
        f.fsync(false).unwrap();
        f.truncate(100).unwrap();
        f.fallocate(FallocateFlags::empty(), 8192, 8192).unwrap();
        vfs.setxattr(&Cred::ROOT, f.inode(), b"user.a", Some(b"1"), XattrFlags::empty()).unwrap();
        f.fsync(false).unwrap();
    });
    let events = ran.unwrap().events;
    let of = |name: &str| -> BTreeSet<u64> {
        let named = events.iter().filter(|e| e.name == name);
        named.filter_map(|e| e.args.iter().find(|a| a.0 == "type")).map(|a| a.1).collect()
    };
    let [inode, write_page, map_blocks, dir, truncate, xattr, ext_convert] = [1, 2, 3, 4, 5, 10, 11];
    let all = BTreeSet::from([inode, write_page, map_blocks, dir, truncate, xattr, ext_convert]);
    assert_eq!(of("jbd2_handle_start"), all);
    assert_eq!(of("jbd2_handle_stats"), all);
}
