//! Volumes that the host's kernel writes: fragmented files, deep maps, large directories, attributes, holes.

use crate::rig::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_testing::fill::{Kind, Rng, fill};
use tidegate_testing::manifest::Options;
use tidegate_testing::tree::assert_same_but;

/// Lets Linux write to a new volume, and compares what both systems read.
fn compare(name: &str, args: &[&str], size: &str, write: impl FnOnce(&Path)) {
    let dir = scratch();
    let image = dir.path().join(format!("{name}.img"));
    mke2fs(&image, args, size);
    write(Mounted::new(&image, "rw").unwrap().path());
    let kernel = describe_by_kernel(&image).unwrap();
    assert_same_but(name, &kernel, &describe(&image), &Options::default());
    must_be_clean(&image);
}

/// Writes every other block of a file, so that each is an extent.
fn comb(path: &Path, blocks: u64, block: u64, seed: u64) {
    let (file, mut rng) = (File::create_new(path).unwrap(), Rng::new(seed));
    for n in 0..blocks {
        file.write_all_at(&rng.bytes(100), n * 2 * block).unwrap();
    }
}

#[test]
fn a_tree_of_everything() {
    if skip() {
        return;
    }
    compare("everything", &["-t", "ext4", "-b", "4096"], "128M", |at| fill(Kind::Varied, at).unwrap());
    compare(
        "everything-inline",
        &["-t", "ext4", "-b", "4096", "-I", "512", "-O", "inline_data,ea_inode"],
        "128M",
        |at| {
            fill(Kind::Varied, at).unwrap();
            let (path, value) = (at.join("value"), Rng::new(3).bytes(40_000));
            File::create_new(&path).unwrap();
            rustix::fs::setxattr(&path, "user.in-an-inode", &value, rustix::fs::XattrFlags::CREATE).unwrap();
            rustix::fs::setxattr(&path, "user.small", b"here", rustix::fs::XattrFlags::CREATE).unwrap();
        },
    );
    compare("everything-ext3", &["-t", "ext3", "-b", "4096"], "128M", |at| fill(Kind::Simple, at).unwrap());
}

#[test]
fn maps_of_every_depth() {
    if skip() {
        return;
    }
    // 84 extents fill a block of 1 KiB: four levels from 4 * 84 * 84 on.
    compare("extents", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], "128M", |at| {
        comb(&at.join("few"), 3, 1024, 1);
        comb(&at.join("hundred"), 100, 1024, 2);
        comb(&at.join("many"), 29_000, 1024, 3);
        fill(Kind::Sparse, at).unwrap();
    });
    // One, two and three levels of blocks of numbers end at 268 blocks, 65,804 and 16,843,020.
    compare("blocks", &["-t", "ext3", "-b", "1024"], "64M", |at| {
        let (file, mut rng) = (File::create_new(at.join("far")).unwrap(), Rng::new(4));
        for block in [0, 11, 12, 267, 268, 65_803, 65_804, 70_000, 16_000_000] {
            file.write_all_at(&rng.bytes(1024), block * 1024).unwrap();
        }
        comb(&at.join("many"), 2_000, 1024, 5);
    });
}

#[test]
fn directories_of_every_depth() {
    if skip() {
        return;
    }
    // Three names fill a block of 1 KiB, and 124 * 127 blocks two levels of the tree.
    let args = ["-t", "ext4", "-b", "1024", "-N", "60000", "-O", "large_dir"];
    compare("names", &args, "160M", |at| {
        for (dir, names, len) in [("small", 40, 20), ("one-level", 2_000, 30), ("three-levels", 45_000, 230)]
        {
            let dir = at.join(dir);
            std::fs::create_dir(&dir).unwrap();
            let first = dir.join("first");
            File::create_new(&first).unwrap();
            for n in 0..names {
                // The files have only names: an inode for each would take longer.
                let name = dir.join(format!("{n}-{}", "x".repeat(len)));
                if n % 60_000 == 1 || std::fs::hard_link(&first, &name).is_err() {
                    File::create_new(&name).unwrap();
                }
            }
        }
    });
}

/// A page that loses its end is written as a whole, but its holes need no blocks for that: a full volume has
/// none. The bytes cut off stay gone when the file grows again.
#[test]
fn a_file_with_holes_is_cut_on_a_full_volume() {
    if skip() {
        return;
    }
    use crate::common::volume::{fresh, fsck, open_rw};
    use tidegate_vfs::{Cred, ErrorKind, MemoryLimits, OpenFlags};
    let device = fresh(8, &["-t", "ext4", "-b", "1024"]);
    let open = || open_rw(device.clone(), MemoryLimits::default(), tidegate_rt::clock::realtime()).unwrap().1;
    let v = open();
    let root = v.root().unwrap();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let file = |name: &[u8]| {
        let inode = v.lookup(&root, name).or_else(|_| v.create(&Cred::ROOT, &root, name, 0o644)).unwrap();
        v.open(&Cred::ROOT, &inode, flags).unwrap()
    };
    let f = file(b"holes");
    f.write_at(0, &[1; 500]).unwrap();
    f.fsync(false).unwrap();
    f.truncate(4096).unwrap();
    f.fsync(false).unwrap();
    let all = file(b"all");
    let mut at = 0;
    for len in [65536, 1024] {
        loop {
            match all.write_at(at, &vec![7; len]) {
                Ok(_) => at += len as u64,
                Err(e) => break assert_eq!(e.kind(), ErrorKind::NoSpace),
            }
        }
    }
    f.truncate(100).unwrap();
    f.truncate(2000).unwrap();
    let mut wanted = vec![0; 2000];
    wanted[..100].fill(1);
    let mut bytes = vec![0; 4096];
    assert_eq!(f.read_at(0, &mut bytes).unwrap(), 2000);
    assert!(bytes[..2000] == wanted);
    v.sync().unwrap();
    drop((f, all, root));
    v.unmount().unwrap();
    drop(v);
    fsck(&device).unwrap();
    let v = open();
    let inode = v.lookup(&v.root().unwrap(), b"holes").unwrap();
    let f = v.open(&Cred::ROOT, &inode, flags).unwrap();
    assert_eq!(f.read_at(0, &mut bytes).unwrap(), 2000);
    assert!(bytes[..2000] == wanted);
}
