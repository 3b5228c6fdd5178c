//! Options that tune2fs puts into a superblock: we report them as dumpe2fs does, and use them as Linux does.

use crate::common::volume::fsck;
use crate::rig::*;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::oracle::skip_or_fail;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

fn open(device: &Arc<MemoryDevice>, options: &[&str]) -> (Arc<Vfs>, Arc<Ext4>) {
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let mut to = Ext4Options::default();
    options.iter().for_each(|o| assert!(to.set(o).unwrap(), "{o}"));
    let fs = Ext4::open(queue, bdi.clone(), to).unwrap();
    let v = Vfs::mount(fs.clone(), bdi, MountOptions { noatime: true, ..Default::default() }).unwrap();
    (v, fs)
}

/// Whether the data of a file goes into the journal.
fn logged(image: &Path, options: &[&str]) -> bool {
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image).unwrap()));
    let (v, fs) = open(&device, options);
    let inode = v.create(ROOT, &v.root().unwrap(), b"f", 0o644).unwrap();
    let f = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
    f.write_at(0, &[1; 100_000]).unwrap();
    f.fsync(false).unwrap();
    let in_place = VolumeOps::stats(&*fs).data.bios;
    drop((f, inode));
    v.unmount().unwrap();
    drop((v, fs));
    fsck(&device).unwrap();
    in_place == 0
}

fn has_tune2fs() -> bool {
    !skip() && !["tune2fs", "dumpe2fs"].into_iter().any(skip_or_fail)
}

/// The superblock decides where data goes if no option does.
#[test]
fn data_goes_where_the_superblock_says() {
    if !has_tune2fs() {
        return;
    }
    let dir = scratch();
    for (n, kind) in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]].into_iter().enumerate() {
        let image = dir.path().join(format!("data-{n}"));
        mke2fs(&image, kind, "32M");
        for (word, logs) in
            [("journal_data_writeback", false), ("journal_data", true), ("journal_data_ordered", false)]
        {
            must("tune2fs", &["-o", word, image.to_str().unwrap()]);
            let logs = logs && n == 0;
            assert_eq!(logged(&image, &[]), logs, "{kind:?} {word}");
            assert!(!logged(&image, &["data=ordered"]), "{kind:?} {word}: an option goes before");
            if n == 0 {
                assert!(logged(&image, &["data=journal"]), "{word}");
            }
        }
        // The superblock may have further words; an unknown word is ignored.
        for (word, logs) in [("data=journal", n == 0), ("x=y", false)] {
            let words = format!("mount_opts={word}");
            must("tune2fs", &["-o", "^journal_data_ordered", "-E", &words, image.to_str().unwrap()]);
            assert_eq!(logged(&image, &[]), logs, "{kind:?} {word}");
            assert!(!logged(&image, &["data=writeback"]), "{kind:?} {word}");
        }
    }
}

/// `tidegate info` and dumpe2fs agree.
#[test]
fn defaults_are_told_as_tune2fs_names_them() {
    if !has_tune2fs() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("told");
    mke2fs(&image, &["-t", "ext4"], "16M");
    let path = image.to_str().unwrap();
    let all = [
        "debug",
        "bsdgroups",
        "^user_xattr",
        "^acl",
        "uid16",
        "journal_data",
        "nobarrier",
        "block_validity",
        "discard",
        "nodelalloc",
        "journal_data_ordered",
        "journal_data_writeback",
        "user_xattr",
        "acl",
        "^debug",
    ];
    for word in all {
        must("tune2fs", &["-o", word, path]);
        let said = must("dumpe2fs", &["-h", path]);
        let line = said.lines().find_map(|l| l.strip_prefix("Default mount options:")).unwrap().trim();
        let (v, fs) = open_with(&image, Ext4Options { read_only: true, ..Ext4Options::default() }).unwrap();
        let ours = fs.info().unwrap().default_options.join(" ");
        assert_eq!(ours, line.replace("(none)", ""), "{word}");
        drop(v);
    }
}

/// With `bsdgroups` a new inode has its directory's group, as in the kernel.
#[test]
fn groups_follow_directories_as_on_linux() {
    if !has_tune2fs() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("groups");
    mke2fs(&image, &["-t", "ext4"], "16M");
    must("tune2fs", &["-o", "bsdgroups", image.to_str().unwrap()]);
    let kernel = Mounted::new(&image, "rw").unwrap();
    let theirs = kernel.path();
    for (name, mode) in [("plain", 0o777), ("setgid", 0o2777)] {
        std::fs::create_dir(theirs.join(name)).unwrap();
        std::os::unix::fs::chown(theirs.join(name), None, Some(77)).unwrap();
        std::fs::set_permissions(theirs.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
        std::fs::write(theirs.join(name).join("theirs"), "x").unwrap();
        std::fs::create_dir(theirs.join(name).join("theirs-dir")).unwrap();
    }
    drop(kernel);
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    for (options, follows) in
        [(&[][..], true), (&["sysvgroups"], false), (&["nogrpid"], false), (&["bsdgroups"], true)]
    {
        let (v, _) = open(&device, options);
        for name in ["plain", "setgid"] {
            let at = v.lookup(&v.root().unwrap(), name.as_bytes()).unwrap();
            let of = |i: Arc<Inode>| {
                let a = i.attr().clone();
                (a.gid, a.mode & 0o2000)
            };
            let their = |name: &[u8]| of(v.lookup(&at, name).unwrap());
            let file = of(v.create(ROOT, &at, b"ours", 0o644).unwrap());
            let sub = of(v.mkdir(ROOT, &at, b"ours-dir", 0o755).unwrap());
            if follows {
                assert_eq!((file, sub.0), (their(b"theirs"), 77), "{name} {options:?}");
                assert_eq!(sub.1, their(b"theirs-dir").1, "{name} {options:?}");
            } else if name == "plain" {
                assert_eq!((file.0, sub.0), (0, 0), "{options:?}");
            } else {
                assert_eq!((file.0, sub), (77, (77, 0o2000)), "{options:?}");
            }
            v.unlink(ROOT, &at, b"ours").unwrap();
            v.rmdir(ROOT, &at, b"ours-dir").unwrap();
        }
        v.unmount().unwrap();
    }
}
