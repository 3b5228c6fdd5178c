//! A volume made by mkfs.f2fs, filled and changed by us, and judged by fsck.f2fs.

use crate::util;
use tidegate_vfs::*;
use util::{fsck, make_image, mount};

fn fill(features: &str) {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 256 << 20, features);
    let root = &Cred::ROOT;
    let v = mount(&path);
    let top = v.root().unwrap();
    let d = v.mkdir(root, &top, b"dir", 0o755).unwrap();
    for i in 0..3000u32 {
        let name = format!("file-{i:05}");
        let inode = v.create(root, &d, name.as_bytes(), 0o644).unwrap();
        let f = v.open(root, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
        let data = vec![i as u8; (i as usize * 37) % 20_000];
        f.write_at(0, &data).unwrap();
    }
    let big = v.create(root, &top, b"big", 0o600).unwrap();
    let f = v.open(root, &big, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    for i in 0..40u64 {
        f.write_at(i << 20, &vec![i as u8 + 1; 1 << 20]).unwrap();
    }
    f.write_at(1 << 40, b"far").unwrap();
    drop(f);
    for i in (0..3000u32).step_by(3) {
        v.unlink(root, &d, format!("file-{i:05}").as_bytes()).unwrap();
    }
    v.setxattr(root, &big, b"user.long", Some(&[7; 3000]), XattrFlags::empty()).unwrap();
    v.unmount().unwrap();
    drop(v);
    fsck(&path);

    let v = mount(&path);
    let f = v.open_path(root, b"/big", OpenFlags::READ, 0).unwrap();
    let mut b = vec![0; 1 << 20];
    for i in 0..40u64 {
        assert_eq!(f.read_at(i << 20, &mut b).unwrap(), 1 << 20);
        assert!(b.iter().all(|&x| x == i as u8 + 1));
    }
    assert_eq!(f.read_at(1 << 40, &mut b).unwrap(), 3);
    let d = v.resolve(root, b"/dir", true).unwrap();
    assert_eq!(v.entries(&d).unwrap().len(), 2000);
    let f = v.open_path(root, b"/dir/file-02999", OpenFlags::READ, 0).unwrap();
    assert_eq!(f.size(), (2999 * 37) % 20_000);
    drop(f);
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}

#[test]
fn default_features() {
    fill("");
}

#[test]
fn all_features() {
    fill("extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found");
}

/// As in Linux, a truncation to the size that a file has frees blocks that were preallocated behind its end.
#[test]
fn a_truncation_frees_what_was_preallocated_behind_the_end() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let v = mount(&make_image(dir.path(), 256 << 20, ""));
    let file = v.create(&Cred::ROOT, &v.root().unwrap(), b"file", 0o644).unwrap();
    let f = v.open(&Cred::ROOT, &file, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    f.write_at(0, &[7; 10_000]).unwrap();
    let before = file.attr().blocks;
    for size in [10_000, 12_288] {
        f.truncate(size).unwrap();
        let settled = file.attr().blocks;
        f.fallocate(FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
        assert!(file.attr().blocks > settled + 10_000, "{} sectors", file.attr().blocks);
        f.truncate(size).unwrap();
        assert_eq!((file.attr().blocks, file.size()), (before, size));
    }
    v.unmount().unwrap();
}
