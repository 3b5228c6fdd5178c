//! Directories whose hash trees lead astray, and directories with as many subdirectories as can be counted.

use crate::changed::open_to_write;
use crate::rig::*;
use std::path::{Path, PathBuf};
use tidegate_testing::temp::TempDir;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
/// The first byte of `dx_root_info` in the first block of a directory with a tree.
const INFO: usize = 24;

/// A volume without checksums, with a directory `d` of 500 files; and the first byte of the directory.
fn hashed(dir: &TempDir) -> (PathBuf, usize) {
    let image = dir.path().join("volume");
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], "16M");
    let v = open_to_write(&image);
    let d = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    (0..500).for_each(|n| drop(v.create(ROOT, &d, format!("file-{n}").as_bytes(), 0o644).unwrap()));
    drop(d);
    v.unmount().unwrap();
    drop(v);
    let said = must("debugfs", &["-R", "bmap /d 0", image.to_str().unwrap()]);
    let block: usize = said.split_whitespace().next().unwrap().parse().unwrap();
    (image, block * 1024)
}

fn put(image: &Path, at: usize, bytes: &[u8]) {
    let mut all = std::fs::read(image).unwrap();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    std::fs::write(image, all).unwrap();
}

/// A new entry would be written over the index.
#[test]
fn a_tree_that_leads_back_to_its_root_takes_no_name() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, at) = hashed(&dir);
    // All entries of the root lead to the root.
    let count = u16::from_le_bytes(std::fs::read(&image).unwrap()[at + INFO + 10..][..2].try_into().unwrap());
    (0..usize::from(count)).for_each(|n| put(&image, at + INFO + 8 + 8 * n + 4, &[0; 4]));
    let before = std::fs::read(&image).unwrap()[at..at + 1024].to_vec();
    let v = open_to_write(&image);
    let d = v.lookup(&v.root().unwrap(), b"d").unwrap();
    for n in 0..20 {
        let made = v.create(ROOT, &d, format!("new-{n}").as_bytes(), 0o644);
        assert_eq!(made.map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    drop(d);
    v.unmount().unwrap();
    drop(v);
    assert!(std::fs::read(&image).unwrap()[at..at + 1024] == before, "the root of the tree changed");
}

#[test]
fn names_can_be_removed_where_the_tree_is_damaged() {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, at) = hashed(&dir);
    put(&image, at + INFO + 5, &[9]);
    let v = open_to_write(&image);
    let root = v.root().unwrap();
    let d = v.lookup(&root, b"d").unwrap();
    for n in 0..500 {
        v.unlink(ROOT, &d, format!("file-{n}").as_bytes()).unwrap();
    }
    drop(d);
    v.rmdir(ROOT, &root, b"d").unwrap();
    v.unmount().unwrap();
    drop((root, v));
    must_be_clean(&image);
}

#[test]
fn a_directory_has_as_many_subdirectories_as_can_be_counted() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("volume");
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-N", "66000", "-O", "^dir_nlink,^has_journal"], "120M");
    let v = open_to_write(&image);
    let d = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    let make = |n: u32| v.mkdir(ROOT, &d, format!("{n}").as_bytes(), 0o755).map(drop);
    (0..64_998).for_each(|n| make(n).unwrap());
    assert_eq!(make(64_998).unwrap_err().kind(), ErrorKind::TooManyLinks);
    drop(d);
    v.unmount().unwrap();
    drop(v);
    must_be_clean(&image);
    let found = crate::checked::check_bytes(&std::fs::read(&image).unwrap()).unwrap();
    assert!(found.is_clean(), "{:?}", found.problems);
    let v = open_to_write(&image);
    let d = v.lookup(&v.root().unwrap(), b"d").unwrap();
    assert_eq!(d.nlink(), 65_000);
    let more = v.mkdir(ROOT, &d, b"more", 0o755).map(drop);
    assert_eq!(more.unwrap_err().kind(), ErrorKind::TooManyLinks);
}
