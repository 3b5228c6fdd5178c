//! Removal and insertion of ranges, compared with the host's kernel doing the same on a volume of its own.

use crate::rig::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn mount(device: &Arc<MemoryDevice>, option: &str) -> Arc<Vfs> {
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut options = Ext4Options::default();
    assert!(option.is_empty() || options.set(option).unwrap());
    let fs = Ext4::open(queue, bdi.clone(), options).unwrap();
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap()
}

fn fresh(image: &Path, args: &[&str]) -> Arc<MemoryDevice> {
    mke2fs(image, args, "48M");
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(image).unwrap()))
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut all);
    all
}

fn make(v: &Arc<Vfs>, name: &str) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
}

fn content(f: &File) -> Vec<u8> {
    let mut found = vec![0; f.size() as usize];
    assert_eq!(f.read_at(0, &mut found).unwrap(), found.len());
    found
}

/// Applies one operation to our file and to the kernel's; true if both succeeded.
fn both(ours: &File, theirs: &std::fs::File, mode: u32, at: u64, len: u64) -> (bool, String) {
    let what = format!("mode {mode:#x}, {len} bytes at {at} of {}", ours.size());
    let our = ours.fallocate(FallocateFlags::from_bits(mode).unwrap(), at, len);
    let their = rustix::fs::fallocate(theirs, rustix::fs::FallocateFlags::from_bits_retain(mode), at, len);
    assert_eq!(our.is_ok(), their.is_ok(), "{what}: {our:?}, the kernel: {their:?}");
    (our.is_ok(), what)
}

const KINDS: [(&[&str], &str, u64); 3] = [
    (&["-t", "ext4", "-b", "4096", "-J", "size=4"], "", 4096),
    (&["-t", "ext4", "-b", "1024", "-J", "size=1"], "", 1024),
    (&["-t", "ext4", "-b", "2048", "-J", "size=2"], "data=journal", 2048),
];

const COLLAPSE: u32 = 8;
const INSERT: u32 = 0x20;

#[test]
fn ranges_come_and_go_as_on_linux() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (n, (args, option, block)) in KINDS.into_iter().enumerate() {
        let (own, theirs) = (dir.path().join(format!("own-{n}")), dir.path().join(format!("kernel-{n}")));
        let device = fresh(&own, args);
        fresh(&theirs, args);
        let kernel = Mounted::new(&theirs, "rw").unwrap();
        let v = mount(&device, option);
        let mut rng = Rng::new(40 + n as u64);
        let (mut done, mut refused) = (0, 0);
        for f in 0..6 {
            let name = format!("f{f}");
            let our = make(&v, &name);
            let path = kernel.path().join(&name);
            let their = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            for step in 0..60_u64 {
                let size = our.size();
                let at = rng.below(size / block + 3) * block;
                let len = (1 + rng.below(20)) * block;
                let (ok, what) = match rng.below(6) {
                    0 | 1 => {
                        let at = rng.below(size + 20_000);
                        let data = vec![(step % 250) as u8 + 1; 1 + rng.below(30_000) as usize];
                        our.write_at(at, &data).unwrap();
                        their.write_all_at(&data, at).unwrap();
                        (true, format!("a write at {at}"))
                    }
                    2 => both(&our, &their, COLLAPSE, at, len),
                    3 => both(&our, &their, INSERT, at, len),
                    4 => {
                        let odd = (rng.below(3), rng.below(2));
                        let mode =
                            [COLLAPSE, INSERT, COLLAPSE | 1, INSERT | 2, 0x10, 3][rng.below(6) as usize];
                        both(&our, &their, mode, at + odd.0, len + odd.1)
                    }
                    _ if rng.below(3) == 0 => {
                        our.fsync(false).unwrap();
                        (true, "fsync".to_string())
                    }
                    _ => both(&our, &their, 0, at + 5, len),
                };
                done += usize::from(ok);
                refused += usize::from(!ok);
                assert_eq!(our.size(), their.metadata().unwrap().len(), "{args:?}, {name}: {what}");
                let same = content(&our) == std::fs::read(&path).unwrap();
                assert!(same, "{args:?}, {name}, step {step}: {what}");
            }
        }
        assert!(done > 200 && refused > 20, "{done} {refused}");
        v.unmount().unwrap();
        drop(v);
        std::fs::write(&own, bytes(&device)).unwrap();
        must_be_clean(&own);
        let ours = Mounted::new(&own, "ro").unwrap();
        for f in 0..6 {
            let name = format!("f{f}");
            let read = |m: &Mounted| std::fs::read(m.path().join(&name)).unwrap();
            assert!(read(&ours) == read(&kernel), "{args:?}, {name}");
        }
    }
}

#[test]
fn trees_of_several_levels_move() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("large");
    let device = fresh(&image, KINDS[1].0);
    let v = mount(&device, "nomap_first=off");
    let f = make(&v, "large");
    let mut want = Vec::new();
    // Every other page is written, so each is an extent.
    for n in 0..3_000_u64 {
        f.write_at(n * 8192, &[(n % 251) as u8 + 1; 3000]).unwrap();
        want.resize(n as usize * 8192, 0);
        want.extend([(n % 251) as u8 + 1; 3000]);
    }
    f.fsync(false).unwrap();
    let judge = |want: &Vec<u8>, what: &str| {
        assert!(content(&f) == *want, "{what}");
        f.fsync(false).unwrap();
        std::fs::write(&image, bytes(&device)).unwrap();
        let path = image.to_str().unwrap();
        let said = mended_by_e2fsck(path);
        must_be_clean(path);
        assert!(bytes_of("debugfs", &["-R", "cat /large", path]) == *want, "{what}: {said}");
    };
    f.fallocate(FallocateFlags::INSERT_RANGE, 1024 * 3, 1024 * 100).unwrap();
    want.splice(1024 * 3..1024 * 3, vec![0; 1024 * 100]);
    judge(&want, "insert");
    f.fallocate(FallocateFlags::COLLAPSE_RANGE, 1024, 1024 * 5_001).unwrap();
    want.drain(1024..1024 + 1024 * 5_001);
    judge(&want, "collapse");
    f.fallocate(FallocateFlags::INSERT_RANGE, 0, 4096).unwrap();
    want.splice(0..0, vec![0; 4096]);
    judge(&want, "insert at the beginning");
    drop(f);
    v.unmount().unwrap();
}

/// The file's leaves are more than the blocks of the largest transaction.
#[test]
fn larger_trees_move_in_steps() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, from) = (dir.path().join("steps.img"), dir.path().join("from"));
    // Every other block is written, so each is an extent.
    let mut want = vec![0; 1024 * 52_001];
    for (n, block) in want.chunks_mut(1024).enumerate().step_by(2) {
        block.fill((n % 251) as u8 + 1);
    }
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("large"), &want).unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-d", from.to_str().unwrap()];
    mke2fs(&image, &args, "64M");
    let path = image.to_str().unwrap();
    let inner = must("debugfs", &["-R", "dump_extents -n /large", path]).lines().count();
    assert!(inner > 300, "{inner} inner nodes and leaves");
    for collapse in [true, false] {
        let (at, len) = (1024 * 4_001, 1024 * 37);
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
        let v = mount(&device, "");
        let inode = v.lookup(&v.root().unwrap(), b"large").unwrap();
        let f = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
        let mut now = want.clone();
        if collapse {
            f.fallocate(FallocateFlags::COLLAPSE_RANGE, at as u64, len as u64).unwrap();
            now.drain(at..at + len);
        } else {
            f.fallocate(FallocateFlags::INSERT_RANGE, at as u64, len as u64).unwrap();
            now.splice(at..at, vec![0; len]);
        }
        assert!(content(&f) == now, "collapse: {collapse}");
        drop((f, inode));
        v.unmount().unwrap();
        let moved = dir.path().join("moved.img");
        std::fs::write(&moved, bytes(&device)).unwrap();
        must_be_clean(&moved);
        assert!(bytes_of("debugfs", &["-R", "cat /large", moved.to_str().unwrap()]) == now);
    }
}

/// Pages before the range are on their way, and only a thread that waits for them sends them.
#[test]
fn pages_on_their_way_are_waited_for() {
    if skip() {
        return;
    }
    let dir = scratch();
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        let device = fresh(&dir.path().join("on-way"), KINDS[0].0);
        let v = mount(&device, "");
        let f = make(&v, "f");
        let mut want: Vec<u8> = (0..40_000).map(|n| (n / 100) as u8).collect();
        f.write_at(0, &want).unwrap();
        let some = WritebackControl { end: 2, more_follow: true, ..WritebackControl::background(u64::MAX) };
        v.fs().writepages(f.inode(), &mut { some }).unwrap();
        assert_eq!(f.inode().mapping.nr_writeback(), 2);
        f.fallocate(mode, 16_384, 8192).unwrap();
        if mode == FallocateFlags::COLLAPSE_RANGE {
            want.drain(16_384..16_384 + 8192);
        } else {
            want.splice(16_384..16_384, [0; 8192]);
        }
        assert!(content(&f) == want);
        drop(f);
        v.unmount().unwrap();
    }
}

#[test]
fn what_cannot_move_is_refused() {
    if skip() {
        return;
    }
    let dir = scratch();
    let device = fresh(&dir.path().join("ext3"), &["-t", "ext3"]);
    let v = mount(&device, "");
    let f = make(&v, "numbers");
    f.write_at(0, &[1; 20_000]).unwrap();
    f.inode().attr().mode = 0o4757;
    let by_owner = v.open(&Cred { uid: 5, gid: 5, groups: vec![] }, f.inode(), OpenFlags::WRITE);
    let dirty = f.inode().mapping.nr_dirty();
    for f in [&f, by_owner.as_ref().unwrap()] {
        let e = f.fallocate(FallocateFlags::INSERT_RANGE, 0, 4096).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
    }
    assert!(content(&f) == [1; 20_000]);
    assert_eq!((f.inode().mapping.nr_dirty(), f.inode().attr().mode), (dirty, 0o4757), "nothing is done");
    drop(by_owner);
    drop(f);
    v.unmount().unwrap();
    let device = fresh(&dir.path().join("ext4"), KINDS[0].0);
    let v = mount(&device, "");
    let f = make(&v, "far");
    f.write_at(0, &[1; 5_000]).unwrap();
    // The blocks are preallocated at the end of the possible range.
    f.fallocate(FallocateFlags::KEEP_SIZE, (u64::from(u32::MAX) - 2) * 4096, 4096).unwrap();
    let e = f.fallocate(FallocateFlags::INSERT_RANGE, 0, 1 << 20).unwrap_err();
    assert_eq!((e.kind(), f.size()), (ErrorKind::FileTooBig, 5_000));
    assert!(content(&f) == [1; 5_000]);
    drop(f);
    v.unmount().unwrap();
}

/// Ranges are removed and inserted near the end of a file of which nothing is on the volume yet.
#[test]
fn ranges_move_in_a_file_that_is_nowhere_yet() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (args, option, unit) in KINDS {
        let device = fresh(&dir.path().join("a.img"), args);
        let v = mount(&device, option);
        let f = make(&v, "f");
        let mut want: Vec<u8> = (0..386_070u32).map(|n| (n / 1000) as u8).collect();
        f.write_at(0, &want).unwrap();
        let at = 300 * 1024;
        f.fallocate(FallocateFlags::COLLAPSE_RANGE, at, 4 * unit).unwrap();
        want.drain(at as usize..(at + 4 * unit) as usize);
        f.write_at(want.len() as u64, &[9; 50_000]).unwrap();
        want.extend([9; 50_000]);
        f.fallocate(FallocateFlags::INSERT_RANGE, at, unit).unwrap();
        want.splice(at as usize..at as usize, std::iter::repeat_n(0, unit as usize));
        assert!(content(&f) == want, "{args:?}");
        drop(f);
        v.unmount().unwrap();
        let v = mount(&device, option);
        let f = v.open_path(ROOT, b"/f", OpenFlags::READ, 0).unwrap();
        assert!(content(&f) == want, "{args:?}");
        drop(f);
        v.unmount().unwrap();
        crate::common::volume::fsck(&device).unwrap();
    }
}
