//! Allocation on a volume whose free space is in many small pieces.

use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::skip;
use std::sync::Arc;
use tidegate_block::MemoryDevice;
use tidegate_ext4::Ext4;
use tidegate_rt::clock;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Fills the volume but for single pages, and frees those for certain.
fn scatter(v: &Vfs, file: &File) {
    let mut size = 0;
    for step in [MIB, PAGE] {
        while file.fallocate(FallocateFlags::empty(), size, step).is_ok() {
            size += step;
        }
    }
    assert!(size > 32 * MIB, "{size}");
    for at in (0..size).step_by(2 * PAGE as usize) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        file.fallocate(how, at, PAGE).unwrap();
    }
    v.sync().unwrap();
}

fn searches(fs: &dyn VolumeOps) -> u64 {
    let own = fs.stats().own;
    own.iter().find(|(name, _)| *name == "bitmap_searches").expect("it is counted").1.to_owned()
}

/// A volume with small groups, and a way to open its files.
fn volume() -> (Arc<MemoryDevice>, Arc<Ext4>, Arc<Vfs>) {
    let device = fresh(64, &["-t", "ext4", "-b", "1024", "-g", "1024", "-m", "0", "-J", "size=4"]);
    let (fs, v) = open_rw(device.clone(), MemoryLimits::default(), clock::realtime()).unwrap();
    (device, fs, v)
}

fn open(v: &Arc<Vfs>, name: &[u8]) -> File {
    v.open_path(ROOT, name, OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE, 0o644).unwrap()
}

#[test]
fn groups_without_a_long_run_are_not_searched_for_one() {
    if skip() {
        return;
    }
    let (device, fs, v) = volume();
    let (filler, file) = (open(&v, b"/filler"), open(&v, b"/file"));
    scatter(&v, &filler);
    let before = searches(&*fs);
    let data: Vec<u8> = (0..8 * MIB).map(|n| (n / 1000) as u8).collect();
    file.write_at(0, &data).unwrap();
    file.fsync(false).unwrap();
    let pieces = VolumeOps::fragments(&*fs, file.inode()).unwrap();
    let searched = searches(&*fs) - before;
    println!("{pieces} pieces, {searched} searches");
    assert!(pieces >= 2 * MIB / PAGE, "{pieces} pieces: the free space was not in small ones");
    assert!(searched <= 2 * pieces + 300, "{searched} searches for {pieces} pieces");

    // A long run that is freed is found again.
    filler.truncate(0).unwrap();
    v.sync().unwrap();
    let long = open(&v, b"/long");
    long.write_at(0, &data[..MIB as usize / 2]).unwrap();
    long.fsync(false).unwrap();
    let pieces = VolumeOps::fragments(&*fs, long.inode()).unwrap();
    assert!(pieces <= 2, "{pieces} pieces");
    let mut found = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut found).unwrap(), data.len());
    assert!(found == data);
    drop((filler, file, long));
    v.unmount().unwrap();
    fsck(&device).unwrap();
}

#[test]
fn blocks_that_a_commit_has_yet_to_free_are_found_after_it() {
    if skip() {
        return;
    }
    let (device, fs, v) = volume();
    let (old, filler) = (open(&v, b"/old"), open(&v, b"/filler"));
    old.fallocate(FallocateFlags::empty(), 0, 4 * MIB).unwrap();
    scatter(&v, &filler);
    old.truncate(0).unwrap();
    let data = vec![7; MIB as usize];
    let [before, after] = ["/before", "/after"].map(|name| open(&v, name.as_bytes()));
    before.write_at(0, &data).unwrap();
    v.fs().writepages(before.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
    v.bdi().submit_pending();
    before.inode().mapping.wait_writeback(0, u64::MAX);
    v.sync().unwrap();
    after.write_at(0, &data).unwrap();
    after.fsync(false).unwrap();
    let pieces = VolumeOps::fragments(&*fs, after.inode()).unwrap();
    assert!(pieces <= 8, "{pieces} pieces, beside four free MiB");
    drop((old, filler, before, after));
    v.unmount().unwrap();
    fsck(&device).unwrap();
}
