//! How a mount ends when it is told to: completely, and with a message about failures.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::mounted::{Mounted, cannot_mount};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn ok(program: &str, args: &[&str], at: &[&Path]) {
    assert!(Command::new(program).args(args).args(at).status().unwrap().success(), "{program} {args:?}");
}

fn terminate(pid: u32) {
    ok("kill", &["-TERM", &pid.to_string()], &[]);
}

/// Another mount, which is removed at the end.
struct Other<'a>(&'a Path);

impl Drop for Other<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A signal that only ended the one known mount would leave the others served by a process that no longer
/// reacts.
#[test]
fn a_signal_ends_a_mount_that_is_elsewhere_too() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let other = m.bench.path("other");
    fs::create_dir(&other).unwrap();
    ok("mount", &["--bind"], &[&m.dir, &other]);
    let other = Other(&other);
    fs::write(m.dir.join("f"), "content").unwrap();
    terminate(m.server().unwrap());
    m.wait_for_end();
    // The stock fsck refuses an image that the mount table names.
    drop(other);
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
    m.bench.fsck("a.img");
}

#[test]
fn a_signal_leaves_alone_what_is_mounted_over_it() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    fs::write(m.dir.join("f"), "content").unwrap();
    ok("mount", &["-t", "tmpfs", "tidegate-test"], &[&m.dir]);
    let over = Other(&m.dir);
    fs::write(m.dir.join("over"), "x").unwrap();
    terminate(m.server().unwrap());
    m.wait_for_end();
    assert!(m.dir.join("over").exists(), "what was over it is gone");
    drop((over, Other(&m.dir)));
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
    m.bench.fsck("a.img");
}

/// The file system under the image is full: the last writes fail.
struct Full {
    m: Mounted,
}

impl Full {
    fn new(foreground: bool) -> (Full, Option<Child>) {
        let m = Mounted::unmounted(|bench| {
            ok("mount", &["-t", "tmpfs", "-o", "size=12m", "tidegate-test"], &[bench.dir.path()]);
        });
        let mut child = None;
        if foreground {
            let mut c = Command::new("nohup");
            c.arg(env!("CARGO_BIN_EXE_tidegate")).args(["mount", "--foreground", "a.img", "mnt"]);
            c.current_dir(m.bench.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
            child = Some(c.stderr(Stdio::piped()).spawn().unwrap());
            let since = Instant::now();
            while !m.is_mounted() {
                assert!(since.elapsed() < Duration::from_secs(30), "it does not mount");
                std::thread::sleep(Duration::from_millis(20));
            }
        } else {
            m.mount();
        }
        fs::write(m.dir.join("f"), vec![7; 4 << 20]).unwrap();
        // The write ends when the file system is full.
        let _ = fs::write(m.bench.path("filler"), vec![1; 16 << 20]);
        (Full { m }, child)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").args([&self.m.dir, self.m.bench.dir.path()]).status();
    }
}

#[test]
fn what_fails_at_the_end_is_told_in_the_foreground() {
    if cannot_mount() {
        return;
    }
    let (full, child) = Full::new(true);
    let mut child = child.unwrap();
    // nohup makes the process ignore this signal.
    ok("kill", &["-HUP", &child.id().to_string()], &[]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none() && full.m.is_mounted());
    terminate(child.id());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.starts_with("tidegate: a.img") && said.contains("no space left"), "{said:?}");
}

/// The failure is also logged with a file open, when the end does not come from the kernel.
#[test]
fn what_fails_at_the_end_is_logged_in_the_background() {
    const LOG: &str = "/dev/log";
    if cannot_mount() || Path::new(LOG).exists() {
        println!("SKIPPED: a log is kept here");
        return;
    }
    /// Removed however the test ends: other tests skip where there is a log.
    struct Bound;
    impl Drop for Bound {
        fn drop(&mut self) {
            let _ = fs::remove_file(LOG);
        }
    }
    let log = UnixDatagram::bind(LOG).unwrap();
    let _bound = Bound;
    log.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (full, _) = Full::new(false);
    let open = fs::File::open(full.m.dir.join("f")).unwrap();
    let server = full.m.server().unwrap();
    terminate(server);
    let mut line = [0; 1000];
    // Mounts of other tests may end meanwhile.
    let ours = format!("<27>tidegate[{server}]");
    let said = loop {
        let n = log.recv(&mut line).unwrap();
        let said = String::from_utf8_lossy(&line[..n]).into_owned();
        if said.starts_with(&ours) {
            break said;
        }
    };
    assert!(said.contains("no space left"), "{said:?}");
    full.m.wait_for_end();
    drop(open);
}

#[test]
fn umount_returns_when_all_is_written() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let data = vec![9; 20 << 20];
    fs::write(m.dir.join("f"), &data).unwrap();
    let open = fs::File::open(m.dir.join("f")).unwrap();
    assert!(m.bench.fails(&["umount", "mnt"], 1).starts_with("mnt: "));
    assert!(m.is_mounted(), "it was in use");
    drop(open);
    assert_eq!(m.bench.ok(&["umount", "mnt"]), "");
    assert!(!m.is_mounted() && m.server().is_none());
    fs::copy(&m.image, m.bench.path("b.img")).unwrap();
    m.mount();
    assert!(fs::read(m.dir.join("f")).unwrap() == data);
    // As /sbin/umount.fuse.tidegate would be, called by umount(8).
    let helper = m.bench.path("umount.fuse.tidegate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &helper).unwrap();
    ok(helper.to_str().unwrap(), &["-n", "-t", "fuse.tidegate"], &[&m.dir]);
    assert!(m.server().is_none());
    for image in ["a.img", "b.img"] {
        assert_eq!(m.bench.ok(&["cat", &format!("{image}:/f")]).len(), data.len());
        m.bench.fsck(image);
    }
    assert!(m.bench.fails(&["umount", "mnt"], 1).contains("no Tidegate volume"));
}

#[test]
fn umount_tells_what_could_not_be_written() {
    if cannot_mount() {
        return;
    }
    let (full, _) = Full::new(false);
    let line = full.m.bench.fails(&["umount", "mnt"], 1);
    assert!(line.contains("no space left"), "{line}");
    assert!(!full.m.is_mounted() && full.m.server().is_none());
}
