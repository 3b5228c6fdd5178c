//! Volumes made by the kernel and the reference tools, read and changed by us.
//!
//! Every name, attribute and byte must be what the kernel found. After our changes the volume must be clean,
//! and everything else must be unchanged.

use crate::common::edit;
use crate::common::tree;
use edit::edit_and_judge;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_block::PAGE_SIZE;
use tidegate_testing::golden::{self, Golden};
use tidegate_testing::manifest::Manifest;
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::*;
use tree::*;

/// The tools that make golden volumes and judge changed ones.
const ORACLES: &[&str] = &["linux.uml", "f2fs.ko", "mkfs.f2fs", "fsck.f2fs", "sload.f2fs", "mke2fs"];

/// Volumes that open read-only, with the feature that the reason names.
const FOREIGN: &[(&str, &str)] = &[
    ("foreign-encrypt", "encrypt"),
    ("foreign-quota", "quota"),
    ("foreign-project-quota", "project_quota"),
    ("foreign-verity", "verity"),
    ("foreign-casefold", "casefold"),
    ("foreign-compression", "compression"),
    ("foreign-readonly", "ro"),
];

/// The golden volume, unless the tools that make it are missing.
fn golden_volume(name: &str) -> Option<Golden> {
    if ORACLES.iter().any(|o| oracle::skip_or_fail(o)) {
        return None;
    }
    Some(golden::ensure(name).unwrap())
}

fn copy_of(golden: &Golden, dir: &TempDir) -> PathBuf {
    let copy = dir.path().join("copy.img");
    golden.copy_to(&copy).unwrap();
    copy
}

/// Reads a volume, then changes a copy of it.
fn read_and_change(name: &str) {
    let Some(golden) = golden_volume(name) else { return };
    let kernel = golden.load_manifest().unwrap();
    assert_same(name, &kernel, &describe_image(&golden.image));
    if name != "sload" {
        assert_check_clean(&golden.image);
    }
    let dir = TempDir::new("golden-test").unwrap();
    let copy = copy_of(&golden, &dir);
    edit_and_judge(&copy, &kernel);
}

/// A test for each of the volumes that are read, changed and checked.
macro_rules! writable {
    ($($name:ident)*) => {
        const WRITABLE: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                read_and_change(stringify!($name));
            }
        )*
    };
}

// `dirty` was cut off without fsync: it has only its last checkpoint.
writable! { default features bigdir sparse smallfiles nocompact dirty sload }

/// Files that the kernel fsynced are recovered as by the kernel's own recovery: in memory for a reader, on
/// the volume for a writer.
#[test]
fn fsynced() {
    let Some(golden) = golden_volume("fsynced") else { return };
    let mut kernel = Manifest::load(golden.recovered.as_deref().unwrap()).unwrap();
    let before = std::fs::read(&golden.image).unwrap();
    let ours = describe_image(&golden.image);
    // For the directory whose names were recovered, the kernel gives the time of recovery; we give the time
    // when the names were made.
    let top = |m: &Manifest| m.entries.iter().position(|e| e.path == ".").unwrap();
    let (k, o) = (top(&kernel), top(&ours));
    kernel.entries[k].mtime = ours.entries[o].mtime;
    assert_same("recovered in memory", &kernel, &ours);
    assert!(std::fs::read(&golden.image).unwrap() == before, "reading changed the image");
    let dir = TempDir::new("golden-test").unwrap();
    let copy = copy_of(&golden, &dir);
    edit_and_judge(&copy, &kernel);
}

#[test]
fn foreign_features() {
    for (name, feature) in FOREIGN {
        let Some(golden) = golden_volume(name) else { return };
        let kernel = golden.load_manifest().ok();
        refuses_changes(&golden, &format!("{feature:?}"), kernel.as_ref());
    }
}

/// Opens a copy for writing: it must be read-only for a reason that contains `why`, read as the kernel read
/// it, and not change by a byte.
fn refuses_changes(golden: &Golden, why: &str, kernel: Option<&Manifest>) {
    let dir = TempDir::new("golden-test").unwrap();
    let copy = copy_of(golden, &dir);
    let v = try_mount(&copy, false).unwrap();
    let reason = v.fs().read_only();
    let named = matches!(&reason, Some(ReadOnly::Features { features, .. }) if features.contains(why));
    assert!(named, "{}: read-only for {reason:?}", golden.image.display());
    let ours = describe(&v);
    assert!(ours.entries.len() > 1, "{}: nothing found", golden.image.display());
    if let Some(kernel) = kernel {
        assert_same(why, kernel, &ours);
    }
    let e = v.mkdir(ROOT, &v.root().unwrap(), b"new", 0o755).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ReadOnly);
    v.unmount().unwrap();
    drop(v);
    assert!(same_bytes(&golden.image, &copy), "{}: a byte changed", golden.image.display());
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

#[test]
fn ext4_is_refused() {
    let Some(golden) = golden_volume("foreign-ext4") else { return };
    let e = try_mount(&golden.image, true).err().expect("an ext4 volume was opened");
    assert_eq!((e.kind(), e.what()), (ErrorKind::InvalidArgument, "no f2fs superblock"), "{e}");
}

/// Offsets of advice, flags, name and number in an inode block.
const ADVISE: usize = 2;
const FLAGS: usize = 80;
const NAME: usize = 88;
const FOOTER_INO: usize = 4072 + 4;
/// The marks of a compressed and an encrypted file.
const FS_COMPR_FL: u8 = 0x04;
const FADVISE_ENCRYPT: u8 = 0x04;

#[test]
fn compressed_files_are_refused() {
    unreadable_is_refused("extra_attr,compression", FLAGS, FS_COMPR_FL, "compressed");
}

#[test]
fn encrypted_files_are_refused() {
    unreadable_is_refused("encrypt", ADVISE, FADVISE_ENCRYPT, "encrypted");
}

/// A file whose content we cannot decode gives an error that says so; its neighbours can be read.
fn unreadable_is_refused(features: &str, at: usize, bit: u8, why: &str) {
    if oracle::skip_or_fail("mkfs.f2fs") || oracle::skip_or_fail("sload.f2fs") {
        return;
    }
    let dir = TempDir::new("golden-test").unwrap();
    let data = pattern(1, 50_000);
    let image = loaded_image(&dir, features, &["plain", "marked"], &data);
    mark_inode(&image, b"marked", at, bit);
    let v = mount_read_only(&image);
    let read = |path: &[u8], buf: &mut [u8]| {
        v.open(ROOT, &v.resolve(ROOT, path, true)?, OpenFlags::READ)?.read_at(0, buf)
    };
    let mut buf = vec![0; data.len()];
    assert_eq!(read(b"/plain", &mut buf).unwrap(), data.len());
    assert_eq!(buf, data);
    assert_eq!(v.resolve(ROOT, b"/marked", true).unwrap().size(), data.len() as u64);
    let e = read(b"/marked", &mut buf).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.what().contains(why), "{e}");
    v.unmount().unwrap();
}

/// A volume of the reference tools with files that all hold `data`.
fn loaded_image(dir: &TempDir, features: &str, files: &[&str], data: &[u8]) -> PathBuf {
    let (image, source) = (dir.path().join("a.img"), dir.path().join("source"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    std::fs::create_dir(&source).unwrap();
    files.iter().for_each(|name| std::fs::write(source.join(name), data).unwrap());
    run(Command::new(oracle::require("mkfs.f2fs").unwrap()).args(["-q", "-O", features]).arg(&image));
    let mut sload = Command::new(oracle::require("sload.f2fs").unwrap());
    run(sload.arg("-f").arg(&source).arg(&image));
    image
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stdout));
}

/// Sets a bit in every block that looks like the inode called `name`.
fn mark_inode(image: &Path, name: &[u8], at: usize, bit: u8) {
    let mut bytes = std::fs::read(image).unwrap();
    let head = [&(name.len() as u32).to_le_bytes(), name].concat();
    let is_inode = |b: &[u8]| b[NAME..].starts_with(&head) && b[FOOTER_INO..][..4] != [0; 4];
    let found: Vec<&mut [u8]> = bytes.chunks_exact_mut(PAGE_SIZE).filter(|b| is_inode(b)).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|b| b[at] |= bit);
    std::fs::write(image, bytes).unwrap();
}

/// Every golden volume is part of one of the tests above.
#[test]
fn none_left_out() {
    let done = |name: &str| {
        WRITABLE.contains(&name)
            || FOREIGN.iter().any(|(n, _)| *n == name)
            || ["fsynced", "foreign-ext4"].contains(&name)
    };
    for spec in golden::SPECS {
        assert!(done(spec.name), "{} is not tested", spec.name);
    }
}
