//! The file system of a sparse image runs full while a tree is copied in: one line reports that, and once
//! there is space again the volume is whole and takes the tree.

use crate::common;
use crate::common::Bench;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;

/// A tmpfs of some MiB over the bench's directory.
struct Full<'a>(&'a Bench);

impl Full<'_> {
    /// `None`, with a word about it, where none can be mounted.
    fn mount(b: &Bench, mib: usize) -> Option<Full<'_>> {
        if !mount(b.dir.path(), &format!("size={mib}m")) {
            eprintln!("skipped: no tmpfs can be mounted here");
            return None;
        }
        Some(Full(b))
    }

    fn grow(&self, mib: usize) {
        assert!(mount(self.0.dir.path(), &format!("remount,size={mib}m")));
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.dir.path()).status();
    }
}

fn mount(at: &Path, options: &str) -> bool {
    let mut c = Command::new("mount");
    c.args(["-t", "tmpfs", "-o", options, "tidegate"]).arg(at);
    c.output().is_ok_and(|o| o.status.success())
}

/// 20 MiB in files of all sizes.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    for (d, len) in [("small", 900), ("middle", 60_000), ("large", 5 * MIB + 77)] {
        std::fs::create_dir_all(src.join(d)).unwrap();
        for n in 0..(10 * MIB / len).clamp(2, 400) {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 3 + n * 7 + len) as u8).collect();
            std::fs::write(src.join(d).join(format!("f{n}")), bytes).unwrap();
        }
    }
    (dir, src)
}

fn is_the_one_line(line: &str) {
    assert!(line.starts_with("a.img"), "{line}");
    assert!(line.contains("no space left where the image is kept; make room there"), "{line}");
}

/// It holds however far the copy got, and with every backend.
#[test]
fn a_copy_into_a_full_file_system() {
    let (_keep, src) = tree();
    let src = src.to_str().unwrap();
    for (mib, ring) in [(5, "use"), (9, "refuse"), (12, "use"), (15, "refuse"), (19, "use")] {
        let b = Bench::new();
        let Some(full) = Full::mount(&b, mib) else { return };
        b.ok(&["mkfs", "--size", "256M", "a.img"]);
        b.ok(&["mkdir", "a.img:/before"]);
        let out = b.command(&["cp", src, "a.img:/"]).env("TIDEGATE_IO_URING", ring).output().unwrap();
        is_the_one_line(&common::failed(&out, 1));
        // The volume can still be read.
        assert!(b.ok(&["ls", "a.img"]).contains("before"));
        full.grow(200);
        b.fsck("a.img");
        b.ok(&["cp", src, "a.img:/"]);
        b.fsck("a.img");
        let back = tempfile::tempdir().unwrap();
        b.ok(&["cp", "a.img:/src", back.path().to_str().unwrap()]);
        common::assert_same(Path::new(src), &back.path().join("src"), &Default::default());
    }
}

/// An image that is made in one go is not left behind half made.
#[test]
fn a_new_image_in_a_full_file_system() {
    let (_keep, src) = tree();
    let b = Bench::new();
    let Some(_full) = Full::mount(&b, 12) else { return };
    is_the_one_line(&b.fails(&["mkfs", "--size", "256M", "--from", src.to_str().unwrap(), "a.img"], 1));
    assert!(!b.path("a.img").exists());
}

/// Not even the metadata of a change fits.
#[test]
fn a_change_where_nothing_fits() {
    let b = Bench::new();
    let Some(full) = Full::mount(&b, 4) else { return };
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    // All remaining space is taken.
    let _ = std::fs::write(b.path("filler"), vec![1; 8 * MIB]);
    let out = b.command(&["mkdir", "a.img:/new"]).output().unwrap();
    if !out.status.success() {
        is_the_one_line(&common::failed(&out, 1));
    }
    std::fs::remove_file(b.path("filler")).unwrap();
    full.grow(20);
    b.fsck("a.img");
    assert_eq!(b.ok(&["ls", "a.img"]).contains("new"), out.status.success());
}
