//! The places of new inodes and of small files.

use crate::changed::open_to_write;
use crate::common::volume::{fresh, fsck};
use crate::rig::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::sim;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const CREATE: OpenFlags = OpenFlags::CREATE.union(OpenFlags::WRITE);

fn write(v: &Arc<Vfs>, path: &str, at: u64, len: usize) -> File {
    let f = v.open_path(ROOT, path.as_bytes(), CREATE, 0o644).unwrap();
    f.write_at(at, &vec![7; len]).unwrap();
    f.fsync(false).unwrap();
    f
}

/// Groups of 2,048 inodes, sixteen of them in each of two flex groups.
const TWO_FLEX_GROUPS: (u64, &[&str]) = (256, &["-t", "ext4", "-b", "1024"]);
const INODES: u64 = 2048;

#[test]
fn directories_share_as_many_groups_as_there_are_cpus() {
    if skip() {
        return;
    }
    for cpus in [1, 2, 3] {
        let device = fresh(TWO_FLEX_GROUPS.0, TWO_FLEX_GROUPS.1);
        let below = device.clone();
        let config = sim::Config { cpus, ..sim::Config::default() };
        let made = sim::run_with(&config, move || {
            let queue = Arc::new(RequestQueue::new(below, QueueLimits::default()));
            let bdi = Bdi::new(MemoryLimits::default());
            let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
            let v = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
            let root = v.root().unwrap();
            let group = |inode: &Inode| (inode.ino.0 - 1) / INODES;
            let made: Vec<_> = (0..16)
                .map(|n| {
                    let dir = v.mkdir(ROOT, &root, format!("d{n}").as_bytes(), 0o755).unwrap();
                    let below = v.mkdir(ROOT, &dir, b"below", 0o755).unwrap();
                    let file = v.create(ROOT, &below, b"file", 0o644).unwrap();
                    assert_eq!([group(&below), group(&file)], [group(&dir); 2]);
                    group(&dir)
                })
                .collect();
            v.unmount().unwrap();
            made
        });
        let groups: BTreeSet<u64> = made.unwrap().value.into_iter().collect();
        let of_flex = |n: u64| groups.iter().filter(|g| **g / 16 == n).count();
        assert_eq!([of_flex(0), of_flex(1)], [cpus; 2], "{cpus} CPUs: {groups:?}");
        fsck(&device).unwrap();
    }
}

/// Makes more files than a group has inodes for, deletes some, makes others; returns the inodes of those.
fn inodes(make: impl Fn(&str) -> u64, delete: impl Fn(&str)) -> Vec<u64> {
    let name = |n: usize| format!("f{n}");
    let mut made: Vec<_> = (0..150).map(|n| make(&name(n))).collect();
    [100, 70, 71, 3, 149].into_iter().for_each(|n| delete(&name(n)));
    made.extend((200..210).map(|n| make(&name(n))));
    made
}

#[test]
fn files_get_the_inodes_that_linux_gives_them() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (own, theirs) = (dir.path().join("own"), dir.path().join("kernel"));
    for image in [&own, &theirs] {
        mke2fs(image, &["-t", "ext4", "-b", "1024", "-N", "256"], "32M");
    }
    let v = open_to_write(&own);
    let root = v.root().unwrap();
    let ours = inodes(
        |name| v.create(ROOT, &root, name.as_bytes(), 0o644).unwrap().ino.0,
        |name| v.unlink(ROOT, &root, name.as_bytes()).unwrap(),
    );
    drop(root);
    v.unmount().unwrap();
    let kernel = Mounted::new(&theirs, "rw").unwrap();
    let at = |name: &str| kernel.path().join(name);
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let theirs = inodes(
        |name| {
            std::fs::write(at(name), b"").unwrap();
            inode(&at(name))
        },
        |name| std::fs::remove_file(at(name)).unwrap(),
    );
    assert_eq!(ours, theirs);
}

/// The blocks of a file's data.
fn blocks(image: &Path, path: &str) -> Vec<u64> {
    let said = bytes_of("debugfs", &["-R", &format!("blocks {path}"), image.to_str().unwrap()]);
    let said = String::from_utf8(said).unwrap();
    said.split_whitespace().map(|n| n.parse().unwrap_or_else(|_| panic!("{path}: {said}"))).collect()
}

/// A volume of one group, and its image.
fn volume() -> (TempDir, PathBuf, Arc<Vfs>) {
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], "64M");
    let v = open_to_write(&image);
    (dir, image, v)
}

/// A file that grows has blocks kept behind it, and small files have others: neither cuts the other in pieces.
#[test]
fn small_files_lie_together_beside_one_that_grows() {
    if skip() {
        return;
    }
    let (_dir, image, v) = volume();
    // A hole before the blocks that are kept.
    write(&v, "/gone", 0, 5000);
    write(&v, "/stays", 0, 5000);
    v.unlink(ROOT, &v.root().unwrap(), b"gone").unwrap();
    v.sync().unwrap();
    let large = write(&v, "/large", 0, 64 << 10);
    for n in 0..20 {
        write(&v, &format!("/small{n}"), 0, 5000);
        large.write_at((64 << 10) + n * 65536, &vec![8; 65536]).unwrap();
        large.fsync(false).unwrap();
    }
    drop(large);
    v.unmount().unwrap();
    must_be_clean(&image);
    let small: Vec<u64> = (0..20).flat_map(|n| blocks(&image, &format!("/small{n}"))).collect();
    assert_eq!(small, (small[0]..small[0] + 40).collect::<Vec<_>>());
}

/// A file that begins among the small ones stays whole when it grows out of them.
#[test]
fn a_file_that_is_appended_to_alone_is_one_piece() {
    if skip() {
        return;
    }
    let (_dir, image, v) = volume();
    for n in 0..60 {
        drop(write(&v, "/log", n * 4096, 4096));
    }
    let log = write(&v, "/open", 0, 4096);
    for n in 1..60 {
        log.write_at(n * 4096, &[9; 4096]).unwrap();
        log.fsync(false).unwrap();
    }
    drop(log);
    v.unmount().unwrap();
    let pieces = |path| blocks(&image, path).chunk_by(|a, b| a + 1 == *b).count();
    assert_eq!([pieces("/log"), pieces("/open")], [1, 1]);
}
