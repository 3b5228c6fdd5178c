//! What chattr +i and +a forbid, as ext4 has it.

use crate::rig::{Rig, cannot_mount};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fallocate, utimensat,
};
use rustix::io::Errno;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const TRANSPORTS: [&str; 2] = ["", "transport=dev"];

fn chattr(change: &str, path: &Path) {
    assert!(Command::new("chattr").arg(change).arg(path).status().unwrap().success());
}

/// Sets both times: nanoseconds may be [`UTIME_NOW`] and [`UTIME_OMIT`].
fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) -> Result<(), Errno> {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    utimensat(CWD, path, &times, AtFlags::empty())
}

const NOW: (i64, i64) = (0, UTIME_NOW);
const OMIT: (i64, i64) = (0, UTIME_OMIT);
const THEN: (i64, i64) = (1_000_000_000, 5);

#[test]
fn times_are_kept_by_flags() {
    if cannot_mount() {
        return;
    }
    for words in TRANSPORTS {
        let rig = Rig::new(256, words);
        let (file, dir) = (rig.dir.join("f"), rig.dir.join("d"));
        std::fs::write(&file, "x").unwrap();
        std::fs::create_dir(&dir).unwrap();
        for path in [&file, &dir] {
            let mtime = || std::fs::metadata(path).unwrap().mtime();
            let what = |flag: &str| format!("{words} {flag} {path:?}");
            for (flag, touch) in [("+i", Err(Errno::PERM)), ("+a", Ok(()))] {
                let before = mtime();
                chattr(flag, path);
                for (a, m) in [(OMIT, THEN), (THEN, OMIT), (THEN, THEN), (THEN, NOW)] {
                    assert_eq!(set_times(path, a, m), Err(Errno::PERM), "{}", what(flag));
                }
                assert_eq!(mtime(), before, "{}", what(flag));
                assert_eq!(set_times(path, NOW, NOW), touch, "{}", what(flag));
                chattr(&flag.replace('+', "-"), path);
            }
            assert_eq!(set_times(path, OMIT, THEN), Ok(()));
            assert_eq!(mtime(), THEN.0);
        }
        rig.finish();
    }
}

/// What somebody appends reaches the volume, with its time, also if it is the kernel that keeps both for a while.
#[test]
fn an_append_only_file_only_grows() {
    if cannot_mount() {
        return;
    }
    for words in TRANSPORTS {
        let mut rig = Rig::new(256, words);
        let path = rig.dir.join("f");
        std::fs::write(&path, vec![b'a'; 10_000]).unwrap();
        assert_eq!(set_times(&path, OMIT, THEN), Ok(()));
        chattr("+a", &path);
        let mut f = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        f.write_all(b"more").unwrap();
        for (how, at) in [
            (FallocateFlags::ZERO_RANGE, 0),
            (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 0),
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096),
        ] {
            assert_eq!(fallocate(&f, how, at, 4096), Err(Errno::PERM), "{words} {how:?}");
        }
        assert_eq!(fallocate(&f, FallocateFlags::KEEP_SIZE, 0, 40_000), Ok(()));
        drop(f);
        assert!(rig.unmount());
        rig.mount(words).unwrap();
        let got = std::fs::read(&path).unwrap();
        assert!(got[..10_000].iter().all(|b| *b == b'a') && &got[10_000..] == b"more", "{words}");
        assert!(std::fs::metadata(&path).unwrap().mtime() > THEN.0, "{words}");
        rig.finish();
    }
}

/// Names are durable at once where the mount or the directory says so. Of files the kernel keeps writes to itself, so
/// that flag is refused.
#[test]
fn names_are_durable_where_that_is_wanted() {
    if cannot_mount() {
        return;
    }
    for (words, flag) in [("dirsync", None), ("sync", None), ("", Some("+D")), ("", Some("+S"))] {
        let mut rig = Rig::new(256, words);
        let dir = rig.dir.join("d");
        std::fs::create_dir(&dir).unwrap();
        if let Some(flag) = flag {
            chattr(flag, &dir);
        }
        for name in ["gone", "moved", "file"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        std::fs::rename(dir.join("moved"), rig.dir.join("top")).unwrap();
        std::fs::remove_dir(dir.join("gone")).unwrap();
        rig.kill();
        rig.mount("").unwrap();
        let names = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!((names, rig.dir.join("top").is_dir()), (vec!["file".into()], true), "{words} {flag:?}");
        rig.finish();
    }
    let rig = Rig::new(256, "");
    let file = rig.dir.join("f");
    std::fs::write(&file, "x").unwrap();
    assert!(!Command::new("chattr").arg("+S").arg(&file).status().unwrap().success());
    rig.finish();
}
