//! A volume that is mounted while a test runs.

use super::Bench;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Whether a mount is impossible here; under CI that is a failure.
pub fn cannot_mount() -> bool {
    if Path::new("/dev/fuse").exists() && super::is_root() {
        return tidegate_testing::oracle::skip_or_fail("fusermount3");
    }
    assert!(!tidegate_testing::oracle::in_ci(), "/dev/fuse missing, or not the superuser");
    println!("SKIPPED: /dev/fuse missing, or not the superuser");
    true
}

/// `a.img`, mounted at `mnt`; unmounted when dropped.
pub struct Mounted {
    pub bench: Bench,
    pub dir: PathBuf,
    pub image: PathBuf,
}

impl Mounted {
    pub fn new() -> Mounted {
        let m = Mounted::unmounted(|_| ());
        m.mount();
        m
    }

    /// A mounted volume of that format.
    #[allow(dead_code)] // not every test has use for it
    pub fn of(format: &str) -> Mounted {
        let m = Mounted::made(format, |_| ());
        m.mount();
        m
    }

    /// A volume that is not mounted yet. `prepare` is called with the empty scratch directory.
    pub fn unmounted(prepare: impl FnOnce(&Bench)) -> Mounted {
        Mounted::made("f2fs", prepare)
    }

    fn made(format: &str, prepare: impl FnOnce(&Bench)) -> Mounted {
        let bench = Bench::new();
        prepare(&bench);
        bench.ok(&["mkfs", "--format", format, "--size", "256M", "a.img", "--quiet"]);
        let (dir, image) = (bench.path("mnt"), bench.path("a.img"));
        fs::create_dir(&dir).unwrap();
        Mounted { bench, dir, image }
    }

    pub fn mount(&self) {
        self.bench.ok(&["mount", "a.img", "mnt"]);
    }

    /// The process that has the image open.
    pub fn server(&self) -> Option<u32> {
        let image = fs::canonicalize(&self.image).unwrap();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|p| p.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            fds.into_iter().any(|f| fs::read_link(f.path()).is_ok_and(|t| t == image))
        })
    }

    /// Unmounts and waits for the serving process to end. A child that another test forks holds this process's open
    /// files until it has called exec, so the mount may be busy for that long.
    pub fn unmount(&self) {
        let fusermount = || Command::new("fusermount3").arg("-u").arg(&self.dir).output().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let mut out = fusermount();
        while !out.status.success() && Instant::now() < end {
            let line = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(line.contains("busy"), "{line}");
            std::thread::sleep(Duration::from_millis(20));
            out = fusermount();
        }
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        self.wait_for_end();
    }

    /// kill -9.
    pub fn kill(&self) {
        let pid = self.server().unwrap().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        self.wait_for_end();
        wait_for_exit(&pid);
        assert!(Command::new("fusermount3").arg("-uz").arg(&self.dir).status().unwrap().success());
    }

    /// Whether anything is mounted there.
    pub fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} ", self.dir.display()))
    }

    pub fn wait_for_end(&self) {
        let since = Instant::now();
        while self.server().is_some() {
            assert!(since.elapsed() < Duration::from_secs(30), "it still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits for a process to be gone, or to be a zombie: its open files vanish from the list before they are closed.
fn wait_for_exit(pid: &str) {
    let since = Instant::now();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    };
    // The files of a process are closed with its last thread, which may end after the first.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    while state().is_some_and(|s| !"ZX".contains(s)) || threads() > 1 {
        assert!(since.elapsed() < Duration::from_secs(30), "{pid} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-q", "-u", "-z"]).arg(&self.dir).status();
    }
}
