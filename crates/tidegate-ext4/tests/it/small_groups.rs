//! Files whose blocks lie in many groups, on volumes whose transactions have room for few: each group in
//! which blocks are freed takes a bitmap and may take a block of descriptors.

use crate::changed::open_to_write;
use crate::rig::*;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const GROUPS: u64 = 250;
const PUNCH: u32 = 3;
const LEN: u64 = 45 << 20;

/// A volume of groups of 256 blocks of 1 KiB.
fn volume(kind: &[&str]) -> Option<(TempDir, PathBuf)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    let args = ["-b", "1024", "-g", "256", "-J", "size=1", "-N", "4000", "-m", "0"];
    mke2fs(&image, &[kind, &args].concat(), "63M");
    Some((dir, image))
}

fn create(v: &Arc<Vfs>, name: &[u8]) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name, 0o644).unwrap();
    v.open(ROOT, &inode, OpenFlags::WRITE).unwrap()
}

/// Makes another change, so that the transaction is not the file's alone.
fn change_others(v: &Arc<Vfs>, n: u64) {
    for i in 0..n {
        v.mkdir(ROOT, &v.root().unwrap(), format!("d{n}-{i}").as_bytes(), 0o755).unwrap();
    }
}

fn judge(image: &Path, v: Arc<Vfs>) {
    assert_eq!(v.fs().read_only(), None);
    v.sync().unwrap();
    assert_eq!(v.fs().read_only(), None);
    v.unmount().unwrap();
    drop(v);
    must_be_clean(image);
}

/// Makes each block of a file's first block of numbers, or of its first leaf of extents, lie in a group of
/// its own.
fn scatter(image: &Path, of: &str, put: impl Fn(&std::fs::File, u64, u64, u32)) {
    let said = must("debugfs", &["-R", "stat /f", image.to_str().unwrap()]);
    let rest = said.split(of).nth(1).unwrap_or_else(|| panic!("{said}"));
    let node = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap() * 1024;
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    (0..GROUPS).for_each(|n| put(&file, node, n, (1 + 256 * n + 230) as u32));
    mended_by_e2fsck(image);
    must_be_clean(image);
}

#[test]
fn numbers_in_many_groups_are_freed() {
    let Some((dir, image)) = volume(&["-t", "ext3", "-O", "^resize_inode"]) else { return };
    let v = open_to_write(&image);
    create(&v, b"f").write_at(0, &vec![1; 1024 * (12 + GROUPS as usize)]).unwrap();
    v.unmount().unwrap();
    drop(v);
    scatter(&image, "(IND):", |file, node, n, to| {
        file.write_all_at(&to.to_le_bytes(), node + 4 * n).unwrap()
    });
    for others in (0..60).step_by(6) {
        let copy = dir.path().join("copy.img");
        std::fs::copy(&image, &copy).unwrap();
        if others == 0 {
            // The file becomes a symbolic link with more blocks than any has.
            for set in ["mode 0120777", "size 1000"] {
                must("debugfs", &["-w", "-R", &format!("sif f {set}"), copy.to_str().unwrap()]);
            }
        }
        let v = open_to_write(&copy);
        let free = v.statfs().blocks_free;
        change_others(&v, others);
        v.unlink(ROOT, &v.root().unwrap(), b"f").unwrap();
        let root = v.root().unwrap().attr().blocks;
        assert!(v.statfs().blocks_free > free + GROUPS - others - root, "{others}");
        judge(&copy, v);
    }
}

/// A file has few extents, each over many groups: it is truncated, punched and removed.
#[test]
fn extents_over_many_groups_are_freed() {
    // The tables of all groups lie in the first groups.
    let Some((dir, image)) = volume(&["-t", "ext4", "-O", "^resize_inode,sparse_super2", "-G", "256"]) else {
        return;
    };
    let v = open_to_write(&image);
    let free = v.statfs().blocks_free;
    let f = create(&v, b"f");
    for n in 0..LEN >> 20 {
        f.write_at(n << 20, &vec![n as u8 + 1; 1 << 20]).unwrap();
    }
    drop(f);
    v.unmount().unwrap();
    drop(v);
    let copy = dir.path().join("copy.img");
    let with = |others: u64, f: &dyn Fn(&Arc<Vfs>, &Arc<Inode>)| {
        std::fs::copy(&image, &copy).unwrap();
        let v = open_to_write(&copy);
        change_others(&v, others);
        let inode = v.lookup(&v.root().unwrap(), b"f").unwrap();
        f(&v, &inode);
        let left = (free - v.statfs().blocks_free).saturating_sub(others);
        judge(&copy, v);
        left
    };
    for others in (0..60).step_by(6) {
        let punch = FallocateFlags::from_bits(PUNCH).unwrap();
        let left = with(others, &|v, f| v.open(ROOT, f, OpenFlags::WRITE).unwrap().truncate(2048).unwrap());
        assert!(left < 20, "{left}");
        let left = with(others, &|v, f| {
            v.open(ROOT, f, OpenFlags::WRITE).unwrap().fallocate(punch, 4096, LEN - 8192).unwrap();
        });
        assert!(left < 20, "{left}");
        let left = with(others, &|v, _| v.unlink(ROOT, &v.root().unwrap(), b"f").unwrap());
        println!("{left} of {free}");
    }
}
