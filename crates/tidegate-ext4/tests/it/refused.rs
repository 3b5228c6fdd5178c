//! The error names the feature for which a volume is refused or opened read-only.

use crate::rig::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_ext4::Ext4Options;
use tidegate_vfs::{At, Error, ErrorKind, FileSystem, ReadOnly, Vfs};

fn error(image: &Path) -> Error {
    open(image).map(drop).unwrap_err()
}

fn reason(image: &Path) -> ReadOnly {
    // The file is opened read-only; the engine reports its own reason.
    let v: std::sync::Arc<Vfs> = open(image).unwrap();
    let why = v.fs().read_only().unwrap();
    v.unmount().unwrap();
    why
}

/// Changes bytes of the superblock; volumes without checksums do not notice.
fn poke(image: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(bytes, 1024 + at).unwrap();
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-O", "journal_dev", "-b", "4096"], "16M");
    assert!(error(&image).what().contains("a journal of an ext4 volume, not a volume"), "{}", error(&image));

    mke2fs(&image, &["-t", "ext4", "-b", "65536"], "160M");
    assert!(error(&image).what().contains("blocks of 65536 bytes (4096 at most)"), "{}", error(&image));

    mke2fs(&image, &["-t", "ext4", "-O", "^metadata_csum"], "16M");
    let incompat = 0x60;
    for (bits, what) in [
        (0x1242_u32, "ext4 feature \"dirdata\" (incompat 0x1000)"),
        (0x4000_0242, "ext4 feature without a name (incompat 0x40000000)"),
        (0x0243, "ext4 feature \"compression\" (incompat 0x1)"),
    ] {
        poke(&image, incompat, &bits.to_le_bytes());
        assert!(error(&image).what().contains(what), "{}", error(&image));
    }
    poke(&image, incompat, &0x0242_u32.to_le_bytes());
    poke(&image, 0x64, &0x0010_0001_u32.to_le_bytes());
    open(&image).unwrap().unmount().unwrap();

    mke2fs(&image, &["-t", "ext4"], "16M");
    OpenOptions::new().write(true).open(&image).unwrap().set_len(8 << 20).unwrap();
    let told = "the volume needs 16777216 bytes, the image has 8388608";
    assert!(error(&image).what().contains(told), "{}", error(&image));

    mke2fs(&image, &["-t", "ext4"], "16M");
    poke(&image, 0x78, b"x");
    let e = error(&image);
    assert_eq!((e.kind(), e.what()), (ErrorKind::Corrupt, "the checksum does not match"), "{e}");
    assert_eq!(e.places().collect::<Vec<_>>(), [&At::The("superblock")]);
}

#[test]
fn features_that_keep_a_volume_from_being_changed_are_told() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    for (features, what) in [
        ("inline_data", "\"inline_data\" (incompat 0x8000)"),
        ("ea_inode", "\"ea_inode\" (incompat 0x400)"),
        ("bigalloc", "\"bigalloc\" (ro_compat 0x200)"),
        ("verity", "\"verity\" (ro_compat 0x8000)"),
        ("encrypt", "\"encrypt\" (incompat 0x10000)"),
        ("casefold", "\"casefold\" (incompat 0x20000)"),
        ("quota,project", "\"quota\" (ro_compat 0x100), \"project\" (ro_compat 0x2000)"),
        ("mmp", "\"mmp\" (incompat 0x100)"),
    ] {
        mke2fs(&image, &["-t", "ext4", "-O", features], "32M");
        let (v, fs) = open_with(&image, Ext4Options::default()).unwrap();
        assert_eq!(fs.info().unwrap().read_only_features, what);
        assert!(fs.read_only().is_some());
        v.unmount().unwrap();
    }
    assert_eq!(reason(&image), ReadOnly::Asked);
}

/// A log with changes was given up by removal of the feature: the volume may have changed since.
#[test]
fn a_journal_that_was_given_up_is_not_replayed() {
    if skip() {
        return;
    }
    use crate::common::volume::{fresh, open_rw};
    use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
    use tidegate_vfs::{Bdi, Cred, MemoryLimits, OpenFlags};
    let device = fresh(16, &["-t", "ext4", "-O", "^metadata_csum"]);
    let (_, v) = open_rw(device.clone(), MemoryLimits::default(), tidegate_rt::clock::realtime()).unwrap();
    let f = v.create(&Cred::ROOT, &v.root().unwrap(), b"logged", 0o644).unwrap();
    v.open(&Cred::ROOT, &f, OpenFlags::WRITE).unwrap().fsync(false).unwrap();
    let mut bytes = vec![0; Device::size(&*device) as usize];
    device.read_at(0, &mut bytes);
    assert_eq!(bytes[1024 + 0x60] & 4, 4, "needs_recovery");
    bytes[1024 + 0x60] -= 4;
    let given_up = std::sync::Arc::new(MemoryDevice::from_bytes(&bytes));
    let queue = RequestQueue::new(given_up.clone(), QueueLimits::default());
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = tidegate_ext4::Ext4::open(queue.into(), bdi, Ext4Options::default()).unwrap();
    let why = fs.read_only().map(|r| r.to_string()).unwrap_or_default();
    assert!(why.contains("its journal holds changes"), "{why}");
    drop(fs);
    let mut after = vec![0; bytes.len()];
    given_up.read_at(0, &mut after);
    assert!(after == bytes);
}

/// Linux does not mount such a volume.
#[test]
fn an_orphan_file_without_an_inode_keeps_a_volume_from_being_changed() {
    use std::sync::Arc;
    use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
    use tidegate_vfs::{Bdi, MemoryLimits, MountOptions};
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    for ino in [0_u32, 8, 100_000] {
        mke2fs(&image, &["-t", "ext4", "-O", "orphan_file,^metadata_csum"], "16M");
        poke(&image, 0x280, &ino.to_le_bytes());
        let device = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
        let queue = Arc::new(RequestQueue::new(Arc::new(device), QueueLimits::default()));
        let bdi = Bdi::new(MemoryLimits::default());
        let fs = tidegate_ext4::Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
        let v = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
        let why = fs.read_only().unwrap().to_string();
        assert!(why.contains("orphan_file") && why.contains("e2fsck"), "{ino}: {why}");
        v.unmount().unwrap();
        assert!(Mounted::new(&image, "rw").is_none(), "{ino}: Linux mounts it");
    }
}
