//! Volumes that our engine changes: e2fsck calls them clean, and Linux reads our writes.

use crate::rig::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate_block::{Device, Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule, file};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::ext4::recovered;
use tidegate_testing::fill::Rng;
use tidegate_testing::manifest::Options;
use tidegate_testing::tree::{self, assert_same_but};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

/// Mounts an image with our engine to change it.
pub fn open_to_write(image: &Path) -> Arc<Vfs> {
    let queue =
        RequestQueue::new(file::open(image, file::OpenOptions::default()).unwrap(), QueueLimits::default());
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(Arc::new(queue), bdi.clone(), Ext4Options::default()).unwrap();
    let v = Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() }).unwrap();
    assert_eq!(v.fs().read_only(), None);
    v
}

/// Unmounts, and lets e2fsck, Linux and our engine judge the volume.
fn judge(what: &str, image: &Path, v: Arc<Vfs>) {
    let live = tree::describe(&v).unwrap();
    v.unmount().unwrap();
    drop(v);
    let (ok, said) = checked_by_e2fsck(image);
    assert!(ok, "{what}: {said}");
    assert_same_but(what, &live, &describe(image), &Options::default());
    let kernel = describe_by_kernel(image).unwrap();
    assert_same_but(what, &kernel, &live, &Options::default());
    let v = open(image).unwrap();
    let (ours, m) = (v.statfs(), Mounted::new(image, "ro").unwrap());
    let k = rustix::fs::statvfs(m.path()).unwrap();
    assert_eq!((ours.blocks_free, ours.files_free), (k.f_bfree, k.f_ffree), "{what}");
}

fn put(v: &Arc<Vfs>, dir: &Arc<Inode>, name: &[u8], data: &[u8]) -> Arc<Inode> {
    let inode = v.create(ROOT, dir, name, 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::WRITE).unwrap().write_at(0, data).unwrap();
    inode
}

const SETS: &[(&str, &[&str])] = &[
    ("debian-4k", &["-t", "ext4", "-b", "4096"]),
    ("debian-1k", &["-t", "ext4", "-b", "1024"]),
    ("upstream-2k", &["-t", "ext4", "-b", "2048", "-O", "metadata_csum_seed,orphan_file"]),
    ("no-csum-journal", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"]),
    ("ext3-1k", &["-t", "ext3", "-b", "1024"]),
    ("ext2-4k", &["-t", "ext2", "-b", "4096"]),
    ("ext2-1k", &["-t", "ext2", "-b", "1024", "-I", "128"]),
    ("4k", &["-t", "ext4", "-b", "4096", "-O", "^has_journal"]),
    ("1k", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
    ("2k-no-csum", &["-t", "ext4", "-b", "2048", "-O", "^has_journal,^metadata_csum,^64bit"]),
    ("1k-uninit", &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,uninit_bg", "-I", "128"]),
    // With blocks of 1 KiB there are eight groups.
    ("1k-no-flex", &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"]),
    ("1k-meta-bg", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]),
    ("1k-sparse-super2", &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"]),
    ("1k-large-dir", &["-t", "ext4", "-b", "1024", "-O", "large_dir,stable_inodes,metadata_csum_seed"]),
    ("2k-no-extents", &["-t", "ext4", "-b", "2048", "-O", "^extent,^64bit"]),
    ("4k-no-index", &["-t", "ext4", "-b", "4096", "-O", "^dir_index,^dir_nlink,^huge_file", "-I", "512"]),
];

#[test]
fn names_come_and_go() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (name, args) in SETS {
        let image = dir.path().join(format!("{name}.img"));
        mke2fs(&image, args, "64M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let sub = v.mkdir(ROOT, &root, b"sub", 0o755).unwrap();
        let file = put(&v, &sub, b"file", b"hello");
        v.link(ROOT, &file, &root, b"hard").unwrap();
        v.symlink(ROOT, &sub, b"short", b"target").unwrap();
        v.symlink(ROOT, &sub, b"long", &[b't'; 500]).unwrap();
        v.setxattr(ROOT, &file, b"user.small", Some(b"value"), XattrFlags::empty()).unwrap();
        v.setxattr(ROOT, &file, b"user.large", Some(&[7; 600]), XattrFlags::empty()).unwrap();
        let gone = v.mkdir(ROOT, &sub, b"gone", 0o700).unwrap();
        put(&v, &gone, b"x", &[1; 10_000]);
        v.unlink(ROOT, &gone, b"x").unwrap();
        v.rmdir(ROOT, &sub, b"gone").unwrap();
        drop(gone);
        let deep = v.mkdir(ROOT, &sub, b"deep", 0o755).unwrap();
        v.rename(ROOT, (&sub, b"deep"), (&root, b"moved"), RenameFlags::empty()).unwrap();
        put(&v, &deep, b"inside", &[9; 100]);
        v.rename(ROOT, (&root, b"hard"), (&deep, b"inside"), RenameFlags::empty()).unwrap();
        judge(name, &image, v);
    }
}

#[test]
fn directories_grow_trees() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (name, args) in SETS {
        let image = dir.path().join(format!("{name}.img"));
        let large = [args, &["-N", "20000"][..]].concat();
        mke2fs(&image, &large, "64M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let many = v.mkdir(ROOT, &root, b"many", 0o755).unwrap();
        let file = put(&v, &root, b"file", b"one");
        let names = if args.contains(&"1024") { 12_000 } else { 5_000 };
        let of = |n: u32| format!("{n}-{}", "x".repeat(n as usize * 7 % 120)).into_bytes();
        for n in 0..names {
            v.link(ROOT, &file, &many, &of(n)).unwrap();
        }
        for n in (0..names).step_by(3) {
            v.unlink(ROOT, &many, &of(n)).unwrap();
        }
        for n in 0..names {
            assert_eq!(v.lookup(&many, &of(n)).is_ok(), n % 3 != 0, "{name}: {n}");
        }
        judge(name, &image, v);
    }
}

#[test]
fn files_are_written_cut_and_punched() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (name, args) in SETS {
        let image = dir.path().join(format!("{name}.img"));
        mke2fs(&image, args, "64M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let (mut rng, mut model) = (Rng::new(11), BTreeMap::<u64, Vec<u8>>::new());
        for step in 0..600 {
            let id = rng.below(12);
            let file = format!("f{id}").into_bytes();
            let inode = match v.lookup(&root, &file) {
                Ok(i) => i,
                Err(_) => v.create(ROOT, &root, &file, 0o644).unwrap(),
            };
            let data = model.entry(id).or_default();
            let f = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
            let (at, len) = (rng.below(300_000), 1 + rng.below(60_000));
            match rng.below(8) {
                0..=3 => {
                    let bytes = rng.bytes(len as usize);
                    f.write_at(at, &bytes).unwrap();
                    data.resize(data.len().max((at + len) as usize), 0);
                    data[at as usize..(at + len) as usize].copy_from_slice(&bytes);
                }
                4 => {
                    f.truncate(at).unwrap();
                    data.resize(at as usize, 0);
                }
                5 => {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    f.fallocate(flags, at, len).unwrap();
                    let end = data.len().min((at + len) as usize);
                    if (at as usize) < end {
                        data[at as usize..end].fill(0);
                    }
                }
                // Files without extents get no preallocated blocks.
                6 if !name.starts_with("ext") && !name.ends_with("no-extents") => {
                    f.fallocate(FallocateFlags::empty(), at, len).unwrap();
                    data.resize(data.len().max((at + len) as usize), 0);
                }
                _ => f.fsync(false).unwrap(),
            }
            if step % 97 == 0 {
                v.unlink(ROOT, &root, &file).unwrap();
                model.remove(&id);
            }
            if step % 150 == 149 {
                v.sync().unwrap();
            }
        }
        for (id, data) in &model {
            let inode = v.lookup(&root, format!("f{id}").as_bytes()).unwrap();
            let f = v.open(ROOT, &inode, OpenFlags::READ).unwrap();
            let mut bytes = vec![0; data.len()];
            assert_eq!(
                (f.size(), f.read_at(0, &mut bytes).unwrap()),
                (data.len() as u64, data.len()),
                "{name}: f{id}"
            );
            assert!(bytes == *data, "{name}: f{id}");
        }
        judge(name, &image, v);
    }
}

#[test]
fn writers_side_by_side_do_not_hurt_each_other() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (name, args) in &SETS[..3] {
        let image = dir.path().join(format!("{name}.img"));
        // The log is small: transactions are full, and wait for room.
        mke2fs(&image, &[args, &["-J", "size=4"][..]].concat(), "96M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let shared = v.mkdir(ROOT, &root, b"shared", 0o755).unwrap();
        let worker = |n: u64| {
            let (v, root, shared) = (v.clone(), root.clone(), shared.clone());
            move || {
                let mut rng = Rng::new(n + 1);
                let own = v.mkdir(ROOT, &root, format!("w{n}").as_bytes(), 0o755).unwrap();
                for step in 0..250 {
                    let dir = if rng.below(3) == 0 { &shared } else { &own };
                    let name = format!("{n}-{step}-{}", "y".repeat(rng.below(80) as usize)).into_bytes();
                    let len = 1 + rng.below(60_000) as usize;
                    let inode = put(&v, dir, &name, &rng.bytes(len));
                    match rng.below(6) {
                        0 => v.open(ROOT, &inode, OpenFlags::WRITE).unwrap().fsync(false).unwrap(),
                        1 => v.unlink(ROOT, dir, &name).unwrap(),
                        2 => v.open(ROOT, &inode, OpenFlags::WRITE).unwrap().truncate(100).unwrap(),
                        3 => v.rename(ROOT, (dir, &name), (&own, b"same"), RenameFlags::empty()).unwrap(),
                        4 => v.setxattr(ROOT, &inode, b"user.n", Some(&name), XattrFlags::empty()).unwrap(),
                        _ if step % 50 == 0 => v.sync().unwrap(),
                        _ => {}
                    }
                }
            }
        };
        let threads: Vec<_> =
            (0..4).map(|n| tidegate_rt::thread::spawn("test-writer", worker(n)).unwrap()).collect();
        threads.into_iter().for_each(|t| t.join());
        drop((shared, root));
        judge(name, &image, v);
    }
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (name, args) in &SETS[..2] {
        let image = dir.path().join(format!("{name}.img"));
        mke2fs(&image, &[args, &["-m", "0", "-J", "size=4", "-N", "400"][..]].concat(), "16M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let mut rng = Rng::new(5);
        for round in 0..3 {
            let (mut made, mut full) = (Vec::new(), false);
            for n in 0..600 {
                let file = format!("r{round}-{n}").into_bytes();
                let bytes = rng.bytes(1 + rng_len(n));
                let done = v.create(ROOT, &root, &file, 0o644).and_then(|inode| {
                    made.push(file.clone());
                    let f = v.open(ROOT, &inode, OpenFlags::WRITE)?;
                    f.write_at(0, &bytes)?;
                    if n % 9 == 0 { f.fsync(false) } else { Ok(()) }
                });
                if let Err(e) = done {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{name}: {e}");
                    full = true;
                    break;
                }
            }
            assert!(full, "{name}: 16 MiB hold everything");
            assert_eq!(v.fs().read_only(), None, "{name}");
            v.sync().unwrap();
            for file in made.iter().step_by(2) {
                v.unlink(ROOT, &root, file).unwrap();
            }
        }
        judge(name, &image, v);
    }
}

fn rng_len(n: usize) -> usize {
    n * 7919 % 90_000
}

/// Linux keeps equal attributes of several inodes in one block. Two inodes leave it at the same time.
#[test]
fn a_shared_block_of_attributes_is_left_by_all() {
    if skip() {
        return;
    }
    const BLOCKS: usize = 300;
    let (dir, none) = (scratch(), rustix::fs::XattrFlags::empty());
    for kind in ["ext4", "ext2"] {
        let image = dir.path().join(format!("{kind}.img"));
        mke2fs(&image, &["-t", kind], "32M");
        let m = Mounted::new(&image, "").unwrap();
        let name = |block: usize, i: usize| format!("{block}-{i}");
        for (block, i) in (0..BLOCKS).flat_map(|b| (0..2).map(move |i| (b, i))) {
            let path = m.path().join(name(block, i));
            std::fs::write(&path, "").unwrap();
            let value = [block.to_le_bytes(); 40].concat();
            rustix::fs::setxattr(path, "user.same", &value, none).unwrap();
        }
        drop(m);
        let v = open_to_write(&image);
        let (before, come) = (v.statfs().blocks_free, Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let (v, root, come) = (v.clone(), v.root().unwrap(), come.clone());
                let body = move || {
                    let value = [i as u8; 300];
                    for block in 0..BLOCKS {
                        let inode = v.lookup(&root, name(block, i).as_bytes()).unwrap();
                        let value = Some(&value[..]).filter(|_| (block + i) % 3 > 0);
                        come.fetch_add(1, SeqCst);
                        while come.load(SeqCst) < 2 * (block + 1) {
                            std::hint::spin_loop();
                        }
                        v.setxattr(ROOT, &inode, b"user.same", value, XattrFlags::empty()).unwrap();
                    }
                };
                tidegate_rt::thread::spawn("leaves", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join());
        assert_eq!(v.statfs().blocks_free, before - BLOCKS as u64 / 3, "each block was shared");
        judge(kind, &image, v);
    }
}

/// Opens an image on a device that fails after `writes` writes. e2fsck finishes the work, and finds nothing
/// else.
fn cut_short(image: &Path, writes: u64, left: &Path) {
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image).unwrap()));
    let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).which(writes..u64::MAX);
    let faulty = Faulty::new(device.clone(), [rule]);
    let queue = Arc::new(RequestQueue::new(faulty, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let opened = Ext4::open(queue, bdi.clone(), Ext4Options::default());
    if let Ok(v) = opened.and_then(|fs| Vfs::mount(fs, bdi, MountOptions::default())) {
        let _ = v.unmount();
    }
    let mut bytes = vec![0; device.info().size as usize];
    device.read_at(0, &mut bytes);
    std::fs::write(left, bytes).unwrap();
    recovered(left).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
}

/// Linux crashes with open files that have no name and are noted in the orphan file.
#[test]
fn what_the_orphan_file_notes_is_freed() {
    if skip() {
        return;
    }
    let dir = scratch();
    for args in [&["-b", "4096"][..], &["-b", "1024", "-O", "^metadata_csum"]] {
        let (image, crashed) = (dir.path().join("a.img"), dir.path().join("b.img"));
        mke2fs(&image, &[&["-t", "ext4", "-O", "orphan_file"], args].concat(), "64M");
        let m = Mounted::new(&image, "").unwrap();
        std::fs::write(m.path().join("kept"), "kept").unwrap();
        let open: Vec<std::fs::File> = (0..60_usize)
            .map(|n| {
                let path = m.path().join(format!("gone{n}"));
                std::fs::write(&path, vec![7; n * 20_000]).unwrap();
                let value = vec![5; if n % 2 == 0 { 600 } else { 20 }];
                rustix::fs::setxattr(&path, "user.some", &value, rustix::fs::XattrFlags::empty()).unwrap();
                let file = std::fs::File::open(&path).unwrap();
                std::fs::remove_file(path).unwrap();
                file
            })
            .collect();
        rustix::fs::syncfs(std::fs::File::open(m.path()).unwrap()).unwrap();
        std::fs::copy(&image, &crashed).unwrap();
        drop(open);
        drop(m);
        let present =
            |image: &Path| must("dumpe2fs", &["-h", image.to_str().unwrap()]).contains("orphan_present");
        assert!(present(&crashed), "nothing was noted: {args:?}");
        for writes in [2, 5, 9, 14, 40] {
            cut_short(&crashed, writes, &dir.path().join("cut.img"));
        }
        let v = open_to_write(&crashed);
        let root = v.root().unwrap();
        put(&v, &root, b"new", b"new");
        judge(&format!("{args:?}"), &crashed, v);
        assert!(!present(&crashed));
        let (left, fresh) = (open_to_write(&crashed), open_to_write(&image));
        assert_eq!(left.statfs().files_free + 1, fresh.statfs().files_free);
        assert_eq!(left.lookup(&left.root().unwrap(), b"kept").unwrap().size(), 4);
        left.unmount().unwrap();
        fresh.unmount().unwrap();
    }
}

/// A write that finds no room for its end keeps no promise for its beginning.
#[test]
fn a_write_that_fails_keeps_no_room() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4"], "16M");
    let v = open_to_write(&image);
    let root = v.root().unwrap();
    let file = put(&v, &root, b"file", b"");
    let f = v.open(ROOT, &file, OpenFlags::WRITE).unwrap();
    // Every other 64 KiB has blocks, so that the holes between them are promised one by one.
    (0..200_u64).step_by(2).for_each(|n| f.fallocate(FallocateFlags::empty(), n << 16, 1 << 16).unwrap());
    let failed = (0..20).find_map(|n| {
        let before = v.statfs().blocks_available;
        let e = f.write_at(n << 20, &[7; 1 << 20]).err()?;
        Some((e.kind(), v.statfs().blocks_available == before))
    });
    assert_eq!(failed, Some((ErrorKind::NoSpace, true)));
    drop(f);
    judge("a write that failed", &image, v);
}
