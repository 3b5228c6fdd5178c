//! Volumes of revision 0, which have no features, and volumes that get a feature when it is first needed.

use crate::changed::open_to_write;
use crate::common::volume::{fresh, fsck, open_rw};
use crate::rig::*;
use std::path::Path;
use tidegate_rt::Timespec;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn clean(image: &Path) {
    must_be_clean(image);
}

fn says(image: &Path, what: &str) -> bool {
    must("dumpe2fs", &["-h", image.to_str().unwrap()]).contains(what)
}

#[test]
fn volumes_of_revision_0_are_changed() {
    if skip() {
        return;
    }
    let dir = scratch();
    for block in ["1024", "4096"] {
        let image = dir.path().join(format!("old-{block}"));
        mke2fs(&image, &["-t", "ext2", "-r", "0", "-b", block], "32M");
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let d = v.mkdir(ROOT, &root, b"directory", 0o755).unwrap();
        for n in 0..300 {
            let f = v.create(ROOT, &d, format!("name-{n}").as_bytes(), 0o644).unwrap();
            v.open(ROOT, &f, OpenFlags::WRITE).unwrap().write_at(0, &vec![n as u8; n * 40]).unwrap();
        }
        for n in 0..100 {
            v.unlink(ROOT, &d, format!("name-{}", n * 3).as_bytes()).unwrap();
        }
        let link = v.symlink(ROOT, &root, b"link", b"directory/name-1").unwrap();
        drop((d, link, root));
        v.unmount().unwrap();
        drop(v);
        assert!(says(&image, "revision #:    0"), "nothing asked for a feature");
        clean(&image);
        let kernel = Mounted::new(&image, "rw").unwrap();
        assert_eq!(std::fs::read(kernel.path().join("directory/name-200")).unwrap(), [200; 8_000]);
        std::fs::write(kernel.path().join("by-the-kernel"), [5; 9_000]).unwrap();
        drop(kernel);
        let v = open_to_write(&image);
        let f = v.lookup(&v.root().unwrap(), b"by-the-kernel").unwrap();
        let f = v.open(ROOT, &f, OpenFlags::READ | OpenFlags::WRITE).unwrap();
        let mut found = [0; 9_000];
        f.read_at(0, &mut found).unwrap();
        assert_eq!(found, [5; 9_000]);
        f.truncate(100).unwrap();
        drop(f);
        v.unmount().unwrap();
        drop(v);
        clean(&image);
    }
}

/// Without huge_file, 32 bits count the space of a file, its map included.
#[test]
fn files_without_huge_file_end_where_their_blocks_can_be_counted() {
    if skip() {
        return;
    }
    let dir = scratch();
    let kinds: [(&[&str], u64); 5] = [
        (&["-t", "ext3", "-b", "4096"], 2_196_873_666_560),
        (&["-t", "ext3", "-b", "1024"], (12 + 256 + (1 << 16) + (1 << 24)) << 10),
        (&["-t", "ext4", "-b", "4096", "-O", "^huge_file"], ((1 << 32) - 1) / 8 * 4096),
        (&["-t", "ext3", "-b", "4096", "-O", "huge_file"], (12 + 1024 + (1 << 20) + (1 << 30)) << 12),
        (&["-t", "ext4", "-b", "4096"], ((1 << 32) - 1) << 12),
    ];
    for (n, (kind, limit)) in kinds.into_iter().enumerate() {
        let image = dir.path().join(format!("limit-{n}"));
        mke2fs(&image, kind, "32M");
        let v = open_to_write(&image);
        let inode = v.create(ROOT, &v.root().unwrap(), b"f", 0o644).unwrap();
        let f = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
        assert_eq!(f.truncate(limit + 1).unwrap_err().kind(), ErrorKind::FileTooBig, "{kind:?}");
        f.truncate(limit).unwrap();
        f.write_at(limit - 4096, &[1; 4096]).unwrap();
        drop((f, inode));
        v.unmount().unwrap();
        drop(v);
        clean(&image);
        let kernel = Mounted::new(&image, "rw").unwrap();
        let f = std::fs::OpenOptions::new().write(true).open(kernel.path().join("f")).unwrap();
        assert!(f.set_len(limit + 1).is_err() && f.set_len(limit).is_ok(), "{kind:?}: as in the kernel");
    }
}

/// Attributes and files of 2 GiB need features, which the volume gets with them; a volume of revision 0
/// becomes one of revision 1.
#[test]
fn features_come_with_what_needs_them() {
    if skip() {
        return;
    }
    let dir = scratch();
    let kinds: [&[&str]; 3] = [
        &["-t", "ext2", "-r", "0", "-b", "4096"],
        &["-t", "ext2", "-I", "128", "-b", "4096", "-O", "^ext_attr,^large_file,^resize_inode"],
        &["-t", "ext3", "-I", "128", "-b", "4096", "-O", "^ext_attr,^large_file,^resize_inode"],
    ];
    for (n, kind) in kinds.iter().enumerate() {
        let image = dir.path().join(format!("feature-{n}"));
        mke2fs(&image, kind, "32M");
        assert!(!says(&image, "ext_attr") && !says(&image, "large_file"));
        let v = open_to_write(&image);
        let root = v.root().unwrap();
        let f = v.create(ROOT, &root, b"f", 0o644).unwrap();
        v.setxattr(ROOT, &f, b"user.name", Some(b"value"), XattrFlags::empty()).unwrap();
        let large = v.create(ROOT, &root, b"large", 0o644).unwrap();
        let open = v.open(ROOT, &large, OpenFlags::WRITE).unwrap();
        open.write_at(3 << 30, b"far").unwrap();
        drop((f, large, open, root));
        v.unmount().unwrap();
        drop(v);
        assert!(says(&image, "ext_attr") && says(&image, "large_file") && says(&image, "revision #:    1"));
        clean(&image);
        let kernel = Mounted::new(&image, "ro").unwrap();
        let mut value = [0; 16];
        let n = rustix::fs::getxattr(kernel.path().join("f"), "user.name", &mut value[..]).unwrap();
        assert_eq!(&value[..n], b"value");
        assert_eq!(std::fs::metadata(kernel.path().join("large")).unwrap().len(), (3 << 30) + 3);
    }
}

/// Times of deletion that could be inode numbers would look like a list of orphans. `SOURCE_DATE_EPOCH` makes
/// such a clock.
#[test]
fn a_file_that_is_removed_at_the_beginning_of_time_is_no_orphan() {
    if skip() {
        return;
    }
    for secs in [0, 300] {
        let time = Timespec { secs, nanos: 0 };
        let device = fresh(32, &["-t", "ext4"]);
        let (_, v) = open_rw(device.clone(), MemoryLimits::default(), time).unwrap();
        let root = v.root().unwrap();
        for n in 0..20 {
            v.create(ROOT, &root, format!("{n}").as_bytes(), 0o644).unwrap();
        }
        (0..10).for_each(|n| v.unlink(ROOT, &root, format!("{n}").as_bytes()).unwrap());
        drop(root);
        v.unmount().unwrap();
        fsck(&device).unwrap_or_else(|e| panic!("removed at second {secs}: {e}"));
    }
}
