//! One volume, two file systems: the real kernel and ours take turns on it.
//!
//! Each must find the content that the other wrote, to the last attribute, and both checkers must call the
//! volume clean.

use crate::common::edit;
use crate::common::tree;
use edit::edit_and_judge;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::file;
use tidegate_block::{QueueLimits, RequestQueue};
use tidegate_f2fs::mkfs::{MkfsOptions, SUPPORTED_FEATURES, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_rt::Timespec;
use tidegate_testing::manifest::Manifest;
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;
use tidegate_testing::uml;
use tidegate_vfs::acl::{self, Acl};
use tidegate_vfs::*;
use tree::*;

const SIZE: u64 = 512 << 20;
/// The features in the words of mkfs.f2fs.
const FEATURE_NAMES: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found";
/// Time for a guest, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub fn lacking() -> bool {
    ["linux.uml", "f2fs.ko", "mkfs.f2fs", "fsck.f2fs"].iter().any(|o| oracle::skip_or_fail(o))
}

#[test]
fn kernel_takes_over_without_features() {
    kernel_takes_over(Features::empty());
}

#[test]
fn kernel_takes_over_with_features() {
    kernel_takes_over(SUPPORTED_FEATURES);
}

#[test]
fn we_take_over_without_features() {
    we_take_over("");
}

#[test]
fn we_take_over_with_features() {
    we_take_over(FEATURE_NAMES);
}

/// We make and fill a volume; the kernel reads it, then changes it; we read the result.
fn kernel_takes_over(features: Features) {
    if lacking() {
        return;
    }
    let dir = TempDir::new("kernel-test").unwrap();
    let image = our_volume(&dir, features);
    assert_clean(&image);
    let ours = describe_image(&image);
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let guest = uml::guest(&image).timeout(PATIENCE).env("FIRST", &first).env("SECOND", &second);
    guest.run(KERNEL_CHANGES).unwrap().check().unwrap();
    assert_same("filled by us", &Manifest::load(&first).unwrap(), &ours);
    let changed = Manifest::load(&second).unwrap();
    assert_same("changed by the kernel", &changed, &describe_image(&image));
    assert_clean(&image);
    // The turns go on: ours on top of the kernel's on top of ours.
    let ours = edit_and_judge(&image, &changed);
    assert_same("changed by us again", &kernel_reads(&image, &dir), &ours);
}

/// Shell commands that create, remove, move, overwrite and truncate files of [`fill`].
const KERNEL_CHANGES: &str = "
    mount -t f2fs $DEV $MNT
    $HELPER manifest $MNT -o $FIRST
    cd $MNT
    mkdir kernel
    $HELPER guest-fill simple kernel
    rm many/name-*5
    mv many kernel/moved
    mv inline/f1 inline/f2
    ln inline/f3 kernel/hard
    rm hard-1
    rm -r deep/a
    dd if=/dev/zero of=big bs=4096 seek=300 count=50 conv=notrunc 2>&1
    truncate -s 5000000 holes
    truncate -s 100 inline/f100
    for n in $(seq 100); do echo line $n >> inline/f10; done
    chmod 600 acl
    chown 7:8 inline/f20
    ln -s elsewhere kernel/symlink
    cd /
    sync -f $MNT
    $HELPER manifest $MNT -o $SECOND
    umount $MNT
    ";

/// The kernel fills a volume of the reference tool; we change it; the kernel reads the result.
fn we_take_over(features: &str) {
    if lacking() {
        return;
    }
    let dir = TempDir::new("kernel-test").unwrap();
    let image = reference_volume(&dir, features);
    let out = dir.path().join("filled");
    let body = "mount -t f2fs $DEV $MNT; $HELPER guest-fill varied $MNT
        $HELPER manifest $MNT -o $OUT; umount $MNT";
    let guest = uml::guest(&image).timeout(PATIENCE).env("OUT", &out);
    guest.run(body).unwrap().check().unwrap();
    let filled = Manifest::load(&out).unwrap();
    assert_same("filled by the kernel", &filled, &describe_image(&image));
    let ours = edit_and_judge(&image, &filled);
    assert_same("changed by us", &kernel_reads(&image, &dir), &ours);
}

/// The tree that the kernel finds when it mounts for writing; its unmount leaves a clean volume.
pub fn kernel_reads(image: &Path, dir: &TempDir) -> Manifest {
    let out = dir.path().join("read");
    let body = "mount -t f2fs $DEV $MNT; $HELPER manifest $MNT -o $OUT; umount $MNT";
    let guest = uml::guest(image).timeout(PATIENCE).env("OUT", &out);
    guest.run(body).unwrap().check().unwrap();
    assert_clean(image);
    Manifest::load(&out).unwrap()
}

fn reference_volume(dir: &TempDir, features: &str) -> PathBuf {
    let image = dir.path().join("a.img");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let mut command = Command::new(oracle::require("mkfs.f2fs").unwrap());
    command.arg("-q");
    if !features.is_empty() {
        command.args(["-O", features]);
    }
    assert!(command.arg(&image).status().unwrap().success());
    image
}

fn our_volume(dir: &TempDir, features: Features) -> PathBuf {
    let image = dir.path().join("a.img");
    let options = file::OpenOptions { create: Some(SIZE), ..Default::default() };
    let queue = RequestQueue::new(file::open(&image, options).unwrap(), QueueLimits::default());
    mkfs(&queue, &MkfsOptions { features, ..Default::default() }).unwrap();
    drop(queue);
    let v = mount(&image);
    fill(&v);
    v.unmount().unwrap();
    image
}

/// Makes one file of every kind.
fn fill(v: &Arc<Vfs>) {
    let top = v.root().unwrap();
    fill_files(v, &top);
    fill_names(v, &top);
    fill_specials(v, &top);
    fill_attributes(v, &top);
}

/// Contents: within the inode and just too long for it, many blocks, holes, a fragmented file.
fn fill_files(v: &Arc<Vfs>, top: &Arc<Inode>) {
    let inline = v.mkdir(ROOT, top, b"inline", 0o755).unwrap();
    for n in 0..200 {
        put(v, &inline, format!("f{n}").as_bytes(), &pattern(n, n * 25));
    }
    put(v, top, b"big", &pattern(3, 30 << 20));
    let holes = put(v, top, b"holes", b"start");
    for at in [1 << 20, 1 << 30, 3 << 40] {
        write(v, &holes, at, &pattern(at as usize, 9000));
    }
    let pieces = [b"left".as_slice(), b"right"].map(|name| put(v, top, name, b""));
    for n in 0..300 {
        pieces.iter().for_each(|p| write(v, p, n * 4096, &pattern(n as usize, 4096)));
    }
    let allocated = put(v, top, b"allocated", b"x");
    let f = v.open(ROOT, &allocated, OpenFlags::WRITE).unwrap();
    f.fallocate(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    put(v, top, b"kept.mp4", &pattern(5, 100_000));
}

/// Names: many in one directory, long, odd, deep; several of one file; some removed again.
fn fill_names(v: &Arc<Vfs>, top: &Arc<Inode>) {
    let many = v.mkdir(ROOT, top, b"many", 0o700).unwrap();
    for n in 0..3000 {
        put(v, &many, format!("name-{n}").as_bytes(), b"");
    }
    for n in (0..3000).step_by(7) {
        v.unlink(ROOT, &many, format!("name-{n}").as_bytes()).unwrap();
    }
    let names = v.mkdir(ROOT, top, b"names", 0o755).unwrap();
    for c in [b'a', b'\n', 0xff, b'\\', b' '] {
        put(v, &names, &[c; 255], &[c]);
        put(v, &names, &[c; 3], &[c]);
    }
    let mut at = v.mkdir(ROOT, top, b"deep", 0o755).unwrap();
    for _ in 0..60 {
        at = v.mkdir(ROOT, &at, b"a", 0o755).unwrap();
    }
    put(v, &at, b"bottom", b"here");
    let linked = put(v, top, b"hard-0", b"by several names");
    v.link(ROOT, &linked, top, b"hard-1").unwrap();
    v.link(ROOT, &linked, &at, b"hard-2").unwrap();
    let gone = v.mkdir(ROOT, top, b"gone", 0o755).unwrap();
    put(v, &gone, b"too", b"gone");
    v.unlink(ROOT, &gone, b"too").unwrap();
    v.rmdir(ROOT, top, b"gone").unwrap();
}

/// Symbolic links, devices, pipes, sockets.
fn fill_specials(v: &Arc<Vfs>, top: &Arc<Inode>) {
    let dir = v.mkdir(ROOT, top, b"special", 0o755).unwrap();
    for len in [1, 50, 3000, 3500, 3692, 3693, 4000, 4095] {
        v.symlink(ROOT, &dir, format!("link{len}").as_bytes(), &vec![b't'; len]).unwrap();
    }
    let kinds = [FileType::CharDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
    let numbers = [(1, 3), (255, 255), (256, 0), (4095, 1_048_575)];
    for (n, kind) in kinds.into_iter().enumerate() {
        let device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let numbers = if device { &numbers[..] } else { &[(0, 0)] };
        for &(major, minor) in numbers {
            let rdev = DeviceNumber { major, minor };
            let new = NewInode { rdev, ..v.new_inode(ROOT, kind, 0o640) };
            v.make(ROOT, &dir, format!("s{n}-{major}-{minor}").as_bytes(), &new).unwrap();
        }
    }
}

/// Few and many extended attributes, ACLs, owners, modes, times.
fn fill_attributes(v: &Arc<Vfs>, top: &Arc<Inode>) {
    let set = |inode: &Arc<Inode>, name: &str, value: &[u8]| {
        v.setxattr(ROOT, inode, name.as_bytes(), Some(value), XattrFlags::empty()).unwrap();
    };
    let many = put(v, top, b"xattrs", &pattern(9, 3000));
    for n in 0..40 {
        set(&many, &format!("user.attribute-{n}"), &pattern(n, n * 2));
    }
    for n in (0..40).step_by(3) {
        v.setxattr(ROOT, &many, format!("user.attribute-{n}").as_bytes(), None, XattrFlags::empty()).unwrap();
    }
    let large = put(v, top, b"xattr-large", b"");
    set(&large, "trusted.large", &pattern(2, 3000));
    set(&large, "security.small", b"");
    let access = put(v, top, b"acl", b"guarded");
    set(&access, "system.posix_acl_access", &some_acl().to_xattr());
    let dir = v.mkdir(ROOT, top, b"acl-dir", 0o2775).unwrap();
    set(&dir, "system.posix_acl_default", &some_acl().to_xattr());
    put(v, &dir, b"inherits", b"");
    v.mkdir(ROOT, &dir, b"below", 0o777).unwrap();
    let owned = put(v, top, b"owned", b"by somebody");
    let (old, new) = (Timespec { secs: 1, nanos: 2 }, Timespec { secs: 7_000_000_000, nanos: 999_999_999 });
    let owner = SetAttr { uid: Some(70_000), gid: Some(4_000_000_000), ..Default::default() };
    v.setattr(ROOT, &owned, &owner).unwrap();
    let mode = SetAttr { mode: Some(0o6751), mtime: Some(new), atime: Some(old), ..Default::default() };
    v.setattr(ROOT, &owned, &mode).unwrap();
}

/// A named user, a named group, and the mask that they need.
fn some_acl() -> Acl {
    let entry = |tag, perm, id| acl::Entry { tag, perm, id };
    Acl(vec![
        entry(acl::USER_OBJ, 7, acl::NO_ID),
        entry(acl::USER, 5, 1234),
        entry(acl::GROUP_OBJ, 4, acl::NO_ID),
        entry(acl::GROUP, 6, 99),
        entry(acl::MASK, 5, acl::NO_ID),
        entry(acl::OTHER, 0, acl::NO_ID),
    ])
}
