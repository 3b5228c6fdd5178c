//! A device whose writes fail, and a serving process that is stopped.

use crate::inside::{UNLUCKY, fail, mount_inspected};
use crate::rig::{Rig, cannot_mount};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

fn fsync(f: &File) -> Result<(), Errno> {
    rustix::fs::fsync(f)
}

/// As in Linux, each file that was open when a write failed gets the error at its next fsync, once. The data is kept,
/// and written when possible.
#[test]
fn a_failed_write_is_told_once_to_each_open_file() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(256);
    mount_inspected(&mut rig, "cache=16M");
    let path = rig.dir.join("f");
    let data: Vec<u8> = UNLUCKY.iter().copied().cycle().take(600_000).collect();
    std::fs::write(&path, vec![1; 600_000]).unwrap();
    let other = File::create(rig.dir.join("other")).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (a, b, first) = (open(), open(), open());
    fsync(&a).unwrap();
    fail(&rig, true);
    a.write_all_at(&data, 0).unwrap();
    assert_eq!(fsync(&first), Err(Errno::IO), "who asks while it fails");
    // Another file is written and synced meanwhile.
    other.write_all_at(b"other", 0).unwrap();
    assert_eq!(fsync(&other), Ok(()));
    fail(&rig, false);
    assert_eq!(fsync(&a), Err(Errno::IO), "the first fsync after the failure");
    assert_eq!(fsync(&a), Ok(()), "the second");
    assert_eq!(fsync(&b), Err(Errno::IO), "another open file");
    assert_eq!(fsync(&b), Ok(()));
    assert_eq!(fsync(&first), Ok(()), "it was told");
    assert_eq!(fsync(&open()), Ok(()), "it was opened later");
    rig.kill();
    rig.mount("").unwrap();
    assert!(std::fs::read(&path).unwrap() == data, "what was synced at last is not there");
    assert_eq!(std::fs::read(rig.dir.join("other")).unwrap(), b"other");
    rig.finish();
}

/// close(2) does not report errors that fsync would, and the data is not lost from memory.
#[test]
fn a_failed_write_stays_readable() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::unmounted(256);
    mount_inspected(&mut rig, "cache=24M");
    let path = rig.dir.join("f");
    let data: Vec<u8> = UNLUCKY.iter().copied().cycle().take(3_000_000).collect();
    fail(&rig, true);
    std::fs::write(&path, &data).unwrap();
    let f = File::open(&path).unwrap();
    assert_eq!(fsync(&f), Err(Errno::IO));
    rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    fail(&rig, false);
    assert_eq!(fsync(&File::open(&path).unwrap()), Ok(()));
    drop(f);
    assert!(rig.unmount());
    rig.mount("").unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    rig.finish();
}

/// Waits for a child for a limited time. Returns whether it ended.
fn ends(child: &mut Child, patience: Duration) -> bool {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// In some kernels (6.16 to 6.19) sync(2) waits for the pages and times of a FUSE mount; in others it does not. The
/// wait must end when the stopped process is killed or continued.
#[test]
fn sync_does_not_outlast_a_stopped_process() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    for kill in [false, true] {
        let f = File::create(rig.dir.join("f")).unwrap();
        f.write_all_at(&[7; 3_000_000], 0).unwrap();
        let pid = rustix::process::Pid::from_raw(rig.pid() as i32).unwrap();
        let signal = |s: Signal| rustix::process::kill_process(pid, s).unwrap();
        signal(Signal::STOP);
        let mut sync = Command::new("sync").spawn().unwrap();
        let waited = !ends(&mut sync, Duration::from_secs(2));
        println!("sync(2) waits for a stopped process: {waited}");
        if kill {
            rig.kill();
        } else {
            signal(Signal::CONT);
        }
        let ended = ends(&mut sync, Duration::from_secs(60));
        if kill {
            rig.mount("").unwrap();
        } else {
            assert_eq!(fsync(&f), Ok(()));
        }
        assert!(ended, "sync(2) hangs; killed: {kill}");
    }
    rig.finish();
}

/// sync(2) ends among many writers, and while everything that it needs must be read from the volume.
#[test]
fn sync_ends_under_load() {
    if cannot_mount() {
        return;
    }
    let rig = Rig::new(512, "cache=8M,threads=2");
    let writers: Vec<_> = (0..4)
        .map(|t| {
            let dir = rig.dir.clone();
            std::thread::spawn(move || {
                for i in 0..25 {
                    std::fs::write(dir.join(format!("{t}-{}", i % 3)), vec![i; 700_000]).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..4 {
        let mut sync = Command::new("sync").spawn().unwrap();
        assert!(ends(&mut sync, Duration::from_secs(60)), "sync(2) hangs");
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
    rig.finish();
}
