//! The operations that chattr +i and +a forbid, as in ext4.

use crate::rig::{Rig, cannot_mount, make_ext4, make_f2fs};
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

/// Appended bytes reach the volume with their time, also if the kernel keeps both for a while.
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

/// A program that opened the file for appending, and no longer appends, cannot replace bytes by direct writes or
/// copies.
#[test]
fn an_append_only_file_keeps_its_bytes() {
    if cannot_mount() {
        return;
    }
    for words in TRANSPORTS {
        let rig = Rig::new(256, words);
        let path = rig.dir.join("f");
        std::fs::write(&path, vec![b'a'; 8192]).unwrap();
        std::fs::write(rig.dir.join("other"), vec![b'b'; 8192]).unwrap();
        chattr("+a", &path);
        let f = std::fs::OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let other = std::fs::File::open(rig.dir.join("other")).unwrap();
        rustix::fs::fcntl_setfl(&f, rustix::fs::OFlags::empty()).unwrap();
        let copied = rustix::fs::copy_file_range(&other, Some(&mut 0), &f, Some(&mut 0), 4096);
        assert_eq!(copied, Err(Errno::PERM), "{words}");
        rustix::fs::fcntl_setfl(&f, rustix::fs::OFlags::DIRECT).unwrap();
        // Direct I/O needs aligned memory.
        let room = vec![b'c'; 8192];
        let aligned = room.as_ptr().align_offset(4096);
        let written = rustix::io::pwrite(&f, &room[aligned..aligned + 4096], 0);
        assert_eq!(written, Err(Errno::PERM), "{words}");
        drop((f, other));
        assert!(std::fs::read(&path).unwrap() == [b'a'; 8192], "{words}");
        chattr("-a", &path);
        rig.finish();
    }
}

/// Names are durable at once where the mount or the directory says so. For files the flag is refused, as the kernel
/// caches writes.
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

/// The words of `lsattr -d` for a file.
fn lsattr(path: &Path) -> String {
    let out = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    said.split_whitespace().next().unwrap_or_default().to_string()
}

/// A file of ext4 can have the flag for data in the journal, and new files inherit it from their directory.
/// Only the superuser may set it, and where there is no journal, or the format has none, no user may.
#[test]
fn data_goes_through_the_journal_by_a_flag() {
    if cannot_mount() || ["debugfs", "setpriv"].into_iter().any(tidegate_testing::oracle::skip_or_fail) {
        return;
    }
    let refused = |change: &str, path: &Path| {
        assert!(!Command::new("chattr").arg(change).arg(path).status().unwrap().success(), "{path:?}");
    };
    for words in TRANSPORTS {
        let mut rig = Rig::unmounted(64);
        make_ext4(&rig.image, 64, &["-t", "ext4"]);
        rig.mount(&format!("allow_other,{words}")).unwrap();
        let (file, dir) = (rig.dir.join("f"), rig.dir.join("d"));
        std::fs::write(&file, [1; 50_000]).unwrap();
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
        let by_owner = Command::new("setpriv")
            .args(["--reuid=1000", "--regid=1000", "--clear-groups", "chattr", "+j"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(!by_owner.status.success() && !lsattr(&file).contains('j'), "{words}");
        [&file, &dir].into_iter().for_each(|path| chattr("+j", path));
        let below = dir.join("below");
        std::fs::write(&below, [2; 50_000]).unwrap();
        for path in [&file, &dir, &below] {
            assert!(lsattr(path).contains('j'), "{words} {path:?}: {}", lsattr(path));
        }
        let f = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&f, &[3; 10_000], 20_000).unwrap();
        f.sync_all().unwrap();
        rig.kill();
        rig.mount(words).unwrap();
        let mut expected = vec![1; 50_000];
        expected[20_000..30_000].fill(3);
        assert!(std::fs::read(&file).unwrap() == expected, "{words}");
        chattr("-j", &file);
        assert!(!lsattr(&file).contains('j'), "{words}");
        std::fs::write(&file, [4; 5000]).unwrap();
        assert!(rig.unmount());
        let image = rig.image.to_str().unwrap();
        for (name, flag) in [("/f", "0x80000"), ("/d", "0x84000")] {
            let out = Command::new("debugfs").args(["-R", &format!("stat {name}"), image]).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout);
            assert!(said.contains(&format!("Flags: {flag}\n")), "{words}: {said}");
        }
        rig.mount(words).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), [4; 5000]);
        rig.finish();
    }
    let mut rig = Rig::unmounted(64);
    for format in [true, false] {
        match format {
            true => make_ext4(&rig.image, 64, &["-t", "ext4", "-O", "^has_journal"]),
            false => make_f2fs(&rig.image, 64),
        }
        rig.mount("").unwrap();
        std::fs::write(rig.dir.join("f"), "x").unwrap();
        refused("+j", &rig.dir.join("f"));
        assert!(rig.unmount());
    }
}
