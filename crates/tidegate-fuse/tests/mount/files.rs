//! Mappings, caches, locks and ioctls of a mount.

use crate::ops;
use crate::rig::{Rig, cannot_mount};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn fio(dir: &Path, args: &[&str]) {
    let out =
        Command::new("fio").args(args).args(["--output-format=terse"]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Calls an ioctl that takes no argument. Returns 0 or the errno. Perl is on every Debian, and needs no
/// unsafe code.
fn ioctl(path: &Path, cmd: u32) -> i32 {
    let program = "open(F,'<',$ARGV[0]) or exit 255; exit(defined(ioctl(F,$ARGV[1],0)) ? 0 : $!+0)";
    let status = Command::new("perl").args(["-e", program]).arg(path).arg(cmd.to_string()).status();
    status.unwrap().code().unwrap()
}

/// lsattr -v, mkfs and others only have room for an int.
#[test]
fn an_inode_s_version_is_an_int() {
    const FS_IOC_GETVERSION: u32 = 0x8008_7601;
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let path = rig.dir.join("f");
    std::fs::write(&path, "").unwrap();
    let program = "open(F,'<',$ARGV[0]) or exit 255; $w = pack('LL',7,7); \
                   ioctl(F,$ARGV[1],$w) or exit 254; exit((unpack('LL',$w))[1])";
    let mut perl = Command::new("perl");
    perl.args(["-e", program]).arg(&path).arg(FS_IOC_GETVERSION.to_string());
    assert_eq!(perl.status().unwrap().code(), Some(7), "what is behind it stays");
    rig.finish();
}

/// tar takes a file without blocks for a hole, and stores none of it.
#[test]
fn a_file_has_blocks_as_soon_as_it_has_data() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let (closed, open, synced) = (rig.dir.join("closed"), rig.dir.join("open"), rig.dir.join("synced"));
    std::fs::write(&closed, vec![7; 1 << 20]).unwrap();
    assert!(std::fs::metadata(&closed).unwrap().blocks() >= 2048);
    let blocks = |file: &std::fs::File| file.metadata().unwrap().blocks();
    let [mut open, mut synced] = [open, synced].map(|path| std::fs::File::create(path).unwrap());
    assert_eq!(blocks(&open), 0);
    // The kernel writes the pages when there are many.
    (0..48).for_each(|_| std::io::Write::write_all(&mut open, &vec![7; 1 << 20]).unwrap());
    let start = Instant::now();
    while blocks(&open) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "a file of 48 MiB has no blocks");
        std::thread::sleep(Duration::from_millis(100));
    }
    for n in 1..4 {
        std::io::Write::write_all(&mut synced, &vec![7; 1 << 20]).unwrap();
        synced.sync_data().unwrap();
        assert!(blocks(&synced) >= n * 2048, "{} blocks after {n} MiB", blocks(&synced));
    }
    drop((open, synced));
    rig.finish();
}

#[test]
fn shared_mappings_are_the_file() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("fio") {
        return;
    }
    let mut rig = Rig::new(256, "");
    let job = ["--name=m", "--filename=f", "--size=8m", "--bs=4k", "--rw=randwrite", "--verify=crc32c"];
    let with = |extra: &[&'static str]| [&job[..], extra].concat();
    fio(&rig.dir, &with(&["--ioengine=mmap", "--randseed=7"]));
    // read(2) and a later mount see bytes that were written through the mapping.
    fio(&rig.dir, &with(&["--ioengine=psync", "--verify_only", "--randseed=7"]));
    assert!(rig.unmount());
    rig.mount("").unwrap();
    fio(&rig.dir, &with(&["--ioengine=psync", "--verify_only", "--randseed=7"]));
    fio(&rig.dir, &with(&["--ioengine=psync", "--direct=1", "--verify_only", "--randseed=7"]));
    rig.finish();
}

#[test]
fn direct_and_cached_writes_agree() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let path = rig.dir.join("f");
    std::fs::write(&path, vec![1; 64 << 10]).unwrap();
    let sh = |cmd: &str| {
        let out = Command::new("sh").args(["-c", cmd]).current_dir(&rig.dir).output().unwrap();
        assert!(out.status.success(), "{cmd}: {}", String::from_utf8_lossy(&out.stderr));
    };
    sh("dd if=/dev/zero of=f bs=4096 seek=3 count=2 oflag=direct conv=notrunc 2>&1");
    let read = std::fs::read(&path).unwrap();
    assert!(read[..12288].iter().chain(&read[20480..]).all(|b| *b == 1));
    assert!(read[12288..20480].iter().all(|b| *b == 0));
    let f = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    f.write_all_at(&[7; 100], 5000).unwrap();
    sh("dd if=f of=copy bs=4096 iflag=direct 2>&1; cmp f copy");
    drop(f);
    rig.finish();
}

/// Once an asynchronous write around the page cache is reported, readers through the cache see it.
#[test]
fn asynchronous_direct_writes_are_seen_by_readers() {
    if cannot_mount() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let rig = Rig::new(256, "");
    for readers in ["1", "2", "6"] {
        let mut perl = Command::new("perl");
        perl.args(["-e", include_str!("scripts/aio.pl")]).arg(rig.dir.join("f")).args(["1000", readers]);
        let out = perl.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let stale = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(stale, "0", "of 1000 reads are stale, beside {readers} others");
    }
    rig.finish();
}

/// A hole is where nothing was written, also while only the kernel has the written pages.
#[test]
fn seeks_see_what_is_not_written_back() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let fd =
        rustix::fs::open(rig.dir.join("f"), OFlags::CREATE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::pwrite(&fd, b"x", 1 << 20).unwrap();
    let seek = |to| rustix::fs::seek(&fd, to);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
    rustix::io::pwrite(&fd, b"x", 8192).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(8192));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(8192)), Ok(12288));
    // Many seeks at once: each waits for the kernel to write, and a thread must be left to serve these
    // writes.
    let threads: Vec<_> = (0..24)
        .map(|i| {
            let path = rig.dir.join(format!("many{i}"));
            std::thread::spawn(move || {
                let fd = rustix::fs::open(path, OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
                for at in 1..20 {
                    rustix::io::pwrite(&fd, b"x", at * 40960).unwrap();
                    let found = rustix::fs::seek(&fd, rustix::fs::SeekFrom::Data((at - 1) * 40960 + 8192));
                    assert_eq!(found, Ok(at * 40960));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    drop(fd);
    rig.finish();
}

#[test]
fn locks_hold_between_processes() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let f = std::fs::File::create(rig.dir.join("f")).unwrap();
    rustix::fs::fcntl_lock(&f, FlockOperation::LockExclusive).unwrap();
    let posix = "sh perl -e 'use Fcntl; open(F,\"+<\",\"f\"); $l=pack(\"ssx4qqix4\",1,0,0,0,0); \
                 print fcntl(F,6,$l) ? \"got\" : \"held\"'";
    assert_eq!(ops::run(&rig.dir, posix)[0].rsplit(' ').next(), Some("held"));
    rustix::fs::fcntl_lock(&f, FlockOperation::Unlock).unwrap();
    assert_eq!(ops::run(&rig.dir, posix)[0].rsplit(' ').next(), Some("got"));
    rustix::fs::flock(&f, FlockOperation::LockExclusive).unwrap();
    let bsd = "sh flock -n f echo got || echo held";
    assert_eq!(ops::run(&rig.dir, bsd)[0].rsplit(' ').next(), Some("held"));
    // A waiting program can be killed.
    let mut waiting = Command::new("flock").arg(rig.dir.join("f")).arg("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(waiting.try_wait().unwrap().is_none());
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    drop(f);
    assert_eq!(ops::run(&rig.dir, bsd)[0].rsplit(' ').next(), Some("got"));
    rig.finish();
}

#[test]
fn ioctls_reach_the_volume() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let path = rig.dir.join("f");
    std::fs::write(&path, "x").unwrap();
    let sh = |cmd: &str| {
        let out = Command::new("sh").args(["-c", cmd]).current_dir(&rig.dir).output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    assert!(sh("chattr +i f && lsattr f | grep -q -- -i").0);
    // FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, with FS_XFLAG_IMMUTABLE and FS_XFLAG_NOATIME.
    let xflags = |cmd: u32, set: u32| {
        let program = "open(F,'<','f') or exit 255; $x = pack('Lx24',$ARGV[1]); ioctl(F,$ARGV[0],$x) or exit $!+0; \
                       print unpack('L',$x)";
        let mut perl = Command::new("perl");
        perl.args(["-e", program, &cmd.to_string(), &set.to_string()]).current_dir(&rig.dir);
        let out = perl.output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stdout).to_string())
    };
    assert_eq!(xflags(0x801c_581f, 0), (true, "8".to_string()));
    assert!(xflags(0x401c_5820, 0x8 | 0x40).0);
    assert_eq!(xflags(0x801c_581f, 0), (true, "72".to_string()));
    assert!(!xflags(0x401c_5820, 0x1000).0, "no such flag");
    let denied = |r: std::io::Result<()>| assert_eq!(r.unwrap_err().raw_os_error(), Some(1));
    denied(std::fs::write(&path, "y"));
    denied(std::fs::remove_file(&path));
    denied(std::fs::rename(&path, rig.dir.join("g")));
    denied(std::fs::hard_link(&path, rig.dir.join("g")));
    assert!(sh("chattr -i +a f && echo more >> f && ! echo new > f && ! rm -f f && chattr -a f").0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "xmore\n");
    assert!(sh("mkdir d && chattr +d d && lsattr -d d | grep -q d").0);
    assert!(sh("fstrim -v .").0);
    assert!(!sh("fstrim -l 1 .").0, "less than a block");
    // A full sync includes pages that only the kernel has.
    std::fs::write(rig.dir.join("unsynced"), vec![5; 300_000]).unwrap();
    assert_eq!(ioctl(&rig.dir, tidegate_fuse::ioctl::TIDEGATE_IOC_SYNC), 0);
    assert_eq!(ioctl(&rig.dir, 0xf507), 0, "F2FS_IOC_WRITE_CHECKPOINT");
    assert_eq!(ioctl(&rig.dir, 0xf5ff), 25, "ENOTTY");
    rig.kill();
    rig.mount("").unwrap();
    assert_eq!(std::fs::read(rig.dir.join("unsynced")).unwrap(), vec![5; 300_000]);
    // FS_IOC_SHUTDOWN: existing content is saved, and no more changes are taken.
    std::fs::write(rig.dir.join("late"), "late").unwrap();
    assert_eq!(ioctl(&rig.dir, 0x8004_587d), 0);
    assert!(std::fs::write(rig.dir.join("later"), "x").is_err());
    assert_eq!(std::fs::read_to_string(rig.dir.join("late")).unwrap(), "late");
    rig.unmount();
    rig.mount("").unwrap();
    assert_eq!(std::fs::read_to_string(rig.dir.join("late")).unwrap(), "late");
    assert!(!rig.dir.join("later").exists());
    rig.finish();
}

/// As in ext4 and F2FS, there is nothing to trim past the end of the volume, and blocks of files are not trimmed.
#[test]
fn a_trim_is_within_what_is_free() {
    const FITRIM: u32 = 0xc018_5879;
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    std::fs::write(rig.dir.join("f"), vec![5; 20 << 20]).unwrap();
    // Returns the number of bytes, or the errno.
    let trim = |dir: &Path, start: u64, least: u64| {
        let program = "open(F,'<',$ARGV[0]) or exit 255; $r = pack('QQQ',$ARGV[2],~0,$ARGV[3]); \
                       print ioctl(F,$ARGV[1],$r) ? (unpack('QQQ',$r))[1] : 'errno ' . ($!+0)";
        let mut perl = Command::new("perl");
        perl.args(["-e", program]).arg(dir).args([FITRIM.into(), start, least].map(|n: u64| n.to_string()));
        String::from_utf8_lossy(&perl.output().unwrap().stdout).into_owned()
    };
    let mut wrong = Vec::new();
    for again in [false, true] {
        // As in Linux, blocks that write-back is just allocating are counted both as reserved and as
        // allocated.
        std::fs::File::open(rig.dir.join("f")).unwrap().sync_all().unwrap();
        let free = rustix::fs::statvfs(&rig.dir).unwrap();
        let free = free.f_bfree * free.f_frsize;
        let trimmed = trim(&rig.dir, 0, 0);
        if trimmed.parse::<u64>().is_ok_and(|n| n > free) {
            wrong.push(format!("{trimmed} bytes of {free} that are free; mounted again: {again}"));
        }
        for start in [256 << 20, 1 << 40, 1 << 63, !0] {
            let answer = trim(&rig.dir, start, 0);
            if answer != "errno 22" {
                wrong.push(format!("from {start} on: {answer}"));
            }
        }
        assert!(rig.unmount());
        rig.mount("").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(std::fs::read(rig.dir.join("f")).unwrap(), vec![5; 20 << 20]);
    rig.finish();
}

/// An unlinked file takes its space until the last user is gone, and no longer.
#[test]
fn forgotten_files_give_their_space_back() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "");
    let free = || rustix::fs::statvfs(&rig.dir).unwrap().f_bfree;
    let before = free();
    let path = rig.dir.join("f");
    std::fs::write(&path, vec![9; 20 << 20]).unwrap();
    let f = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(before - free() >= 5000, "it is still open");
    let mut b = [0; 2];
    f.read_exact_at(&mut b, 15 << 20).unwrap();
    assert_eq!((b, f.metadata().unwrap().nlink()), ([9, 9], 0));
    drop(f);
    let since = Instant::now();
    while before - free() > 100 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} blocks are lost", before - free());
        std::thread::sleep(Duration::from_millis(20));
    }
    rig.finish();
}

/// A file without a name keeps the name that it gets; a file that gets none is freed.
#[test]
fn unnamed_files_can_be_named() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let before = std::fs::read_dir(&rig.dir).unwrap().count();
    let make =
        || rustix::fs::open(&rig.dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
    let (named, unnamed) = (make(), make());
    for fd in [&named, &unnamed] {
        rustix::io::pwrite(fd, &[7; 10_000], 0).unwrap();
        assert_eq!(rustix::fs::fstat(fd).unwrap().st_nlink, 0);
    }
    assert_eq!(std::fs::read_dir(&rig.dir).unwrap().count(), before);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&named));
    let (here, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
    rustix::fs::linkat(here, path, here, rig.dir.join("named"), follow).unwrap();
    rustix::fs::fsync(&named).unwrap();
    rustix::fs::fsync(&unnamed).unwrap();
    rig.kill();
    drop((named, unnamed));
    rig.mount("").unwrap();
    assert_eq!(std::fs::read(rig.dir.join("named")).unwrap(), [7; 10_000]);
    assert_eq!(std::fs::read_dir(&rig.dir).unwrap().count(), before + 1);
    std::fs::remove_file(rig.dir.join("named")).unwrap();
    rig.finish();
}

/// After many unnamed files, the kernel sends many messages at the end, which are no longer read.
#[test]
fn a_mount_of_many_unnamed_files_ends_well() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    for round in 0..3 {
        let makers: Vec<_> = (0..4)
            .map(|_| {
                let dir = rig.dir.clone();
                let make = move || {
                    rustix::fs::open(&dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap()
                };
                std::thread::spawn(move || (0..5000).for_each(|_| drop(make())))
            })
            .collect();
        makers.into_iter().for_each(|t| t.join().unwrap());
        assert!(rig.unmount(), "round {round}: the serving process failed");
        rig.mount("").unwrap();
    }
    rig.finish();
}

#[test]
fn births_are_told() {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    if cannot_mount() {
        return;
    }
    // The format keeps birth times in volumes that are made with extra attributes.
    let rig = Rig::unmounted(64);
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let made = Command::new("mkfs.f2fs")
        .args(["-q", "-f", "-O", "extra_attr,inode_crtime"])
        .arg(&rig.image)
        .status();
    assert!(made.unwrap().success());
    let mut rig = rig;
    rig.mount("").unwrap();
    let path = rig.dir.join("f");
    let birth = || {
        let s = statx(CWD, &path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        assert!(s.stx_mask & StatxFlags::BTIME.bits() != 0, "no time of birth");
        (s.stx_btime.tv_sec, s.stx_btime.tv_nsec, s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec)
    };
    std::fs::write(&path, "x").unwrap();
    let first = birth();
    assert!((first.0 - first.2).abs() <= 2);
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(&path, "y").unwrap();
    let second = birth();
    assert_eq!((first.0, first.1), (second.0, second.1));
    assert_ne!((first.2, first.3), (second.2, second.3));
    rig.finish();
}

/// Runs the script for file handles. Returns its output, line by line.
fn handles(words: &[&str], paths: &[&std::path::Path]) -> Vec<String> {
    let mut perl = Command::new("perl");
    let out = perl.args(["-e", include_str!("scripts/handles.pl")]).args(words).args(paths).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_string).collect()
}

/// An NFS server knows files by handles, and finds them even when the kernel has forgotten them. It never finds another
/// file in the place of a removed one.
#[test]
fn files_are_found_by_their_handles() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("perl") {
        return;
    }
    for words in ["", "transport=dev"] {
        let mut rig = Rig::new(256, words);
        let path = |p: &str| rig.dir.join(p);
        std::fs::create_dir_all(path("a/b/c")).unwrap();
        std::fs::create_dir(path("new")).unwrap();
        std::fs::write(path("a/b/c/f"), "content").unwrap();
        std::fs::write(path("gone"), "gone").unwrap();
        let paths = [path("a/b/c/f"), path("a/b/c"), path("gone")];
        let paths: Vec<&std::path::Path> = paths.iter().map(|p| &**p).collect();
        let known = handles(&["print"], &paths);
        std::fs::remove_file(path("gone")).unwrap();
        std::fs::write(path("another"), "another").unwrap();
        std::fs::rename(path("a/b/c"), path("new/c")).unwrap();
        assert!(rig.unmount());
        rig.mount(words).unwrap();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let dir = rig.dir.to_str().unwrap().to_string();
        let found = handles(&[&["open", &dir], &known[..]].concat(), &[]);
        assert_eq!(found, ["content", "f;c;", "Stale file handle"], "{words}");
        rig.finish();
    }
}

/// The time of a change stays equal after the kernel has forgotten the inode, also where the volume only keeps seconds.
#[test]
fn times_are_those_that_the_volume_keeps() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(64);
    for args in [&[][..], &["-I", "128"]] {
        crate::rig::make_ext4(&rig.image, 64, args);
        rig.mount("").unwrap();
        let path = rig.dir.join("f");
        std::fs::write(&path, "abc").unwrap();
        let mtime = || std::fs::metadata(&path).unwrap().modified().unwrap();
        let before = mtime();
        // A truncation that changes no byte and no size may change the time, but then for every reader.
        let f = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        f.set_len(3).unwrap();
        drop(f);
        let seen = mtime();
        assert!(rig.unmount());
        rig.mount("").unwrap();
        assert!(before <= mtime() && seen == mtime(), "{args:?}: {before:?} {seen:?} {:?}", mtime());
        assert!(rig.unmount());
    }
}

/// The flags of mount(2) also hold where `fusermount3` mounts, which does not know all of them.
#[test]
fn flags_hold_beside_auto_unmount() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(256, "auto_unmount,suid,dev,nosymfollow,noexec");
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = rig.dir.to_str().unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(1) == Some(dir)).unwrap();
    let words: Vec<&str> = line.split(' ').nth(3).unwrap().split(',').collect();
    let has = |w: &str| words.contains(&w);
    assert!(has("nosymfollow") && has("noexec") && !has("nosuid") && !has("nodev"), "{line}");
    rig.finish();
}
