//! Data that goes through the journal, of all files or of some: the volume before a checkpoint, after it, and
//! after recovery by e2fsck and by Linux.

use crate::rig::*;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
/// `FS_JOURNAL_DATA_FL`.
pub const JOURNAL_DATA: u32 = 0x4000;

pub fn mount(device: &Arc<MemoryDevice>, options: &str, memory: MemoryLimits) -> Result<Arc<Vfs>> {
    mount_on(device.clone(), options, memory)
}

pub fn mount_on(device: Arc<dyn Device>, options: &str, memory: MemoryLimits) -> Result<Arc<Vfs>> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(memory);
    let mut all = Ext4Options::default();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        assert!(all.set(option)?, "{option}");
    }
    let fs = Ext4::open(queue, bdi.clone(), all)?;
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() })
}

pub fn fresh(dir: &Path, args: &[&str]) -> Arc<MemoryDevice> {
    let image = dir.join("fresh.img");
    mke2fs(&image, args, "24M");
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()))
}

pub fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut all);
    all
}

/// Bytes that no other file has and that differ in each block; some blocks begin like a journal's.
pub fn content(id: u32, len: usize) -> Vec<u8> {
    let block = |n: usize| {
        let mut b: Vec<u8> = (0..512).map(|i| (id as usize * 37 + n * 11 + i * 7) as u8 | 1).collect();
        if n.is_multiple_of(24) {
            b[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
        }
        b
    };
    let mut all: Vec<u8> = (0..len.div_ceil(512)).flat_map(block).collect();
    all.truncate(len);
    all
}

pub fn make(v: &Arc<Vfs>, name: &str, logged: bool, data: &[u8]) -> File {
    let root = v.root().unwrap();
    let inode = v.create(ROOT, &root, name.as_bytes(), 0o644).unwrap();
    if logged {
        set_logged(v, &inode, true);
    }
    let f = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    f.write_at(0, data).unwrap();
    f
}

pub fn set_logged(v: &Vfs, inode: &Arc<Inode>, on: bool) {
    let flags = inode.attr().flags;
    let flags = if on { flags | JOURNAL_DATA } else { flags & !JOURNAL_DATA };
    v.setattr(ROOT, inode, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
}

pub fn read(v: &Arc<Vfs>, name: &str) -> Vec<u8> {
    let inode = v.lookup(&v.root().unwrap(), name.as_bytes()).unwrap();
    let f = v.open(ROOT, &inode, OpenFlags::READ).unwrap();
    let mut found = vec![0; f.size() as usize];
    assert_eq!(f.read_at(0, &mut found).unwrap(), found.len());
    found
}

pub const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=2"],
    &["-t", "ext3", "-b", "1024", "-J", "size=2"],
];

/// Compares the results of e2fsck, of Linux and of our engine for a volume after a power cut.
fn recovered(left: &[u8], image: &Path, want: &[(&str, Vec<u8>)]) {
    let path = image.to_str().unwrap();
    std::fs::write(image, left).unwrap();
    let said = mended_by_e2fsck(path);
    must_be_clean(path);
    for (name, data) in want {
        assert!(
            bytes_of("debugfs", &["-R", &format!("cat /{name}"), path]) == *data,
            "{name}, e2fsck: {said}"
        );
    }
    std::fs::write(image, left).unwrap();
    let kernel = Mounted::new(image, "rw").expect("the kernel mounts it");
    for (name, data) in want {
        assert!(std::fs::read(kernel.path().join(name)).unwrap() == *data, "{name}, by the kernel");
    }
    drop(kernel);
    must_be_clean(path);
    let device = Arc::new(MemoryDevice::from_bytes(left));
    let v = mount(&device, "", MemoryLimits::default()).unwrap();
    for (name, data) in want {
        assert!(read(&v, name) == *data, "{name}, by us");
    }
    v.unmount().unwrap();
}

#[test]
fn what_was_fsynced_is_in_the_log_and_comes_out_of_it() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (n, kind) in KINDS.iter().enumerate() {
        let device = fresh(dir.path(), kind);
        let v = mount(&device, "data=journal", MemoryLimits::default()).unwrap();
        let (one, two) = (content(1, 70_000), content(2, 9_000));
        let f = make(&v, "one", false, &one);
        f.fsync(true).unwrap();
        let g = make(&v, "two", false, &content(3, 9_000));
        // The write covers blocks that a transaction has already, and a part of a page.
        g.write_at(0, &two[..5_000]).unwrap();
        g.write_at(5_000, &two[5_000..]).unwrap();
        g.fsync(false).unwrap();
        let left = bytes(&device);
        let image = dir.path().join(format!("logged-{n}.img"));
        recovered(&left, &image, &[("one", one.clone()), ("two", two.clone())]);
        // A name in the log and its data are in one transaction: without it there is nothing of both.
        std::fs::write(&image, &left).unwrap();
        let logged = must("debugfs", &["-R", "logdump -a", image.to_str().unwrap()]);
        let metadata_alone = logged.matches("FS block").count();
        let data = (70_000 + 2 * 9_000) / if n == 0 { 4096 } else { 1024 };
        assert!(metadata_alone > data, "{metadata_alone} blocks in the log, {data} of data: {logged}");
        drop((f, g));
        v.unmount().unwrap();
        std::fs::write(&image, bytes(&device)).unwrap();
        must_be_clean(&image);
        assert!(bytes_of("debugfs", &["-R", "cat /one", image.to_str().unwrap()]) == one);
    }
}

#[test]
fn a_write_needs_no_pass_and_no_fsync_of_its_own() {
    if skip() {
        return;
    }
    let dir = scratch();
    let device = fresh(dir.path(), KINDS[0]);
    let v = mount(&device, "data=journal", MemoryLimits::default()).unwrap();
    let first = make(&v, "first", false, &content(1, 30_000));
    let second = make(&v, "second", false, &content(2, 100));
    assert_eq!(first.inode().mapping.nr_dirty() + second.inode().mapping.nr_dirty(), 0);
    // The commit that this fsync waits for includes the earlier writes.
    second.fsync(false).unwrap();
    let image = dir.path().join("order.img");
    recovered(&bytes(&device), &image, &[("first", content(1, 30_000)), ("second", content(2, 100))]);
    drop((first, second));
    v.unmount().unwrap();
}

#[test]
fn pages_that_memory_was_short_of_come_from_the_log() {
    if skip() {
        return;
    }
    let dir = scratch();
    for kind in KINDS {
        let device = fresh(dir.path(), kind);
        let memory = MemoryLimits { cache: 1 << 20, ..MemoryLimits::default() };
        let v = mount(&device, "data=journal", memory).unwrap();
        let files: Vec<_> = (0..8).map(|n| make(&v, &format!("f{n}"), false, &content(n, 400_000))).collect();
        for n in 0..8 {
            assert!(read(&v, &format!("f{n}")) == content(n, 400_000), "{kind:?}, f{n}");
        }
        drop(files);
        v.unmount().unwrap();
    }
}

#[test]
fn the_flag_turns_it_on_and_off_for_a_file() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (n, kind) in KINDS.iter().enumerate() {
        let device = fresh(dir.path(), kind);
        let v = mount(&device, "", MemoryLimits::default()).unwrap();
        let f = make(&v, "flagged", true, &content(1, 20_000));
        assert_eq!(f.inode().mapping.nr_dirty(), 0, "it is in the transaction");
        let other = make(&v, "other", false, &content(2, 20_000));
        assert!(other.inode().mapping.nr_dirty() > 0, "it waits for a pass");
        f.fsync(true).unwrap();
        other.fsync(true).unwrap();
        let image = dir.path().join(format!("flag-{n}.img"));
        recovered(&bytes(&device), &image, &[("flagged", content(1, 20_000)), ("other", content(2, 20_000))]);
        // The log must not undo bytes that are written in place from here on.
        set_logged(&v, f.inode(), false);
        f.write_at(0, &content(3, 20_000)).unwrap();
        assert!(f.inode().mapping.nr_dirty() > 0);
        f.fsync(true).unwrap();
        recovered(&bytes(&device), &image, &[("flagged", content(3, 20_000))]);
        set_logged(&v, f.inode(), true);
        f.write_at(0, &content(4, 20_000)).unwrap();
        f.fsync(true).unwrap();
        recovered(&bytes(&device), &image, &[("flagged", content(4, 20_000))]);
        drop((f, other));
        v.unmount().unwrap();
    }
}

#[test]
fn a_directory_gives_the_flag_to_its_files() {
    if skip() {
        return;
    }
    let dir = scratch();
    let device = fresh(dir.path(), KINDS[0]);
    let v = mount(&device, "", MemoryLimits::default()).unwrap();
    let d = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    set_logged(&v, &d, true);
    let inode = v.create(ROOT, &d, b"f", 0o644).unwrap();
    assert_eq!(inode.attr().flags & JOURNAL_DATA, JOURNAL_DATA);
    let f = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
    f.write_at(0, &content(1, 5_000)).unwrap();
    assert_eq!(inode.mapping.nr_dirty(), 0);
    drop(f);
    v.unmount().unwrap();
}

/// A block that was in the log and was freed belongs now to a file whose data bypasses the log.
#[test]
fn what_was_freed_is_not_brought_back_over_others() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (n, kind) in KINDS.iter().enumerate() {
        let device = fresh(dir.path(), kind);
        let v = mount(&device, "", MemoryLimits::default()).unwrap();
        // The volume is nearly full, so that other files get the freed blocks.
        let room = || {
            let s = v.fs().statfs();
            s.blocks_available * u64::from(s.block_size)
        };
        for n in 0.. {
            if room() < 2 << 20 {
                break;
            }
            make(&v, &format!("fill{n}"), false, &content(9, 500_000)).fsync(true).unwrap();
        }
        let gone = make(&v, "gone", true, &content(1, 700_000));
        gone.fsync(true).unwrap();
        let free = v.fs().statfs().blocks_free;
        v.unlink(ROOT, &v.root().unwrap(), b"gone").unwrap();
        drop(gone);
        v.sync().unwrap();
        assert!(v.fs().statfs().blocks_free > free);
        let (mut next, mut names) = (Vec::new(), Vec::new());
        while room() > 100_000 {
            names.push(format!("next{}", names.len()));
            next.push(make(&v, names.last().unwrap(), false, &content(2, 60_000)));
            next.last().unwrap().fsync(true).unwrap();
        }
        let image = dir.path().join(format!("freed-{n}.img"));
        let want: Vec<_> = names.iter().map(|name| (name.as_str(), content(2, 60_000))).collect();
        recovered(&bytes(&device), &image, &want);
        drop(next);
        v.unmount().unwrap();
    }
}

#[test]
fn files_larger_than_a_transaction_are_cut_and_punched() {
    if skip() {
        return;
    }
    let dir = scratch();
    for kind in KINDS {
        let device = fresh(dir.path(), kind);
        let v = mount(&device, "data=journal", MemoryLimits::default()).unwrap();
        let mut want = content(5, 9 << 20);
        let f = make(&v, "large", false, &want);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        f.fallocate(flags, 100_000, 4 << 20).unwrap();
        want[100_000..100_000 + (4 << 20)].fill(0);
        f.truncate(7_000_001).unwrap();
        want.truncate(7_000_001);
        f.write_at(200_001, &content(6, 3_000)).unwrap();
        want[200_001..203_001].copy_from_slice(&content(6, 3_000));
        if kind[1] == "ext4" {
            f.fallocate(FallocateFlags::empty(), 7_000_001, 500_000).unwrap();
            want.resize(7_500_001, 0);
            f.write_at(7_100_000, b"in the middle of blocks that were never written").unwrap();
            want[7_100_000..7_100_047].copy_from_slice(b"in the middle of blocks that were never written");
        }
        assert!(read(&v, "large") == want);
        f.fsync(false).unwrap();
        let image = dir.path().join("large.img");
        recovered(&bytes(&device), &image, &[("large", want)]);
        f.truncate(0).unwrap();
        drop(f);
        v.unmount().unwrap();
        std::fs::write(&image, bytes(&device)).unwrap();
        must_be_clean(&image);
    }
}

#[test]
fn a_volume_without_a_journal_refuses() {
    if skip() {
        return;
    }
    let dir = scratch();
    let device = fresh(dir.path(), &["-t", "ext2"]);
    let e = mount(&device, "data=journal", MemoryLimits::default()).err().unwrap().to_string();
    assert!(e.contains("no journal"), "{e}");
    let device = fresh(dir.path(), KINDS[0]);
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let fs = Ext4::open(queue, Bdi::new(MemoryLimits::default()), Ext4Options::default()).unwrap();
    let e = VolumeOps::remount(&*fs, "data=journal").unwrap_err().to_string();
    assert!(e.contains("past the journal"), "{e}");
    VolumeOps::remount(&*fs, "data=writeback").unwrap();
}
