//! `tidegate mount`: in the background once it works, and clean when told to end.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::Bench;
use common::mounted::cannot_mount;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_rt::{LockClass, Mutex};

/// A volume and a directory, which is unmounted at the end.
struct Mount {
    bench: Bench,
    dir: PathBuf,
}

impl Mount {
    fn new() -> Mount {
        let bench = Bench::new();
        bench.ok(&["mkfs", "--size", "256M", "a.img"]);
        let dir = bench.path("mnt");
        fs::create_dir(&dir).unwrap();
        Mount { bench, dir }
    }

    /// The processes that have opened the image.
    fn servers(&self) -> Vec<u32> {
        let image = fs::canonicalize(self.bench.path("a.img")).unwrap();
        let mut found = Vec::new();
        for p in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = p.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            let fds = fs::read_dir(p.path().join("fd")).into_iter().flatten().flatten();
            if fds.into_iter().any(|f| fs::read_link(f.path()).is_ok_and(|t| t == image)) {
                found.push(pid);
            }
        }
        found
    }

    /// The lock is released last: the kernel closes the files of an io_uring after the process has ended.
    fn wait_for_end(&self) {
        use rustix::fs::{FlockOperation, flock};
        let since = Instant::now();
        let image = fs::File::open(self.bench.path("a.img")).unwrap();
        while !self.servers().iter().all(|pid| *pid == std::process::id())
            || flock(&image, FlockOperation::NonBlockingLockShared).is_err()
        {
            assert!(since.elapsed() < Duration::from_secs(30), "it still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.servers()[0].to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn mounted(&self) -> bool {
        let dir = fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone());
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} ", dir.display()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-q", "-u", "-z"]).arg(&self.dir).status();
    }
}

#[test]
fn works_when_it_returns_and_ends_when_unmounted() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    assert_eq!(m.bench.ok(&["mount", "a.img", "mnt"]), "");
    assert!(m.mounted());
    fs::write(m.dir.join("f"), "content").unwrap();
    assert_eq!(m.servers().len(), 1);
    let busy = m.bench.fails(&["ls", "a.img:/"], 1);
    assert!(busy.contains("in use"), "{busy}");
    assert!(Command::new("fusermount3").arg("-u").arg(&m.dir).status().unwrap().success());
    m.wait_for_end();
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
    m.bench.fsck("a.img");
}

#[test]
fn a_failure_is_told_in_the_foreground() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    fs::write(m.bench.path("plain"), "").unwrap();
    for (args, cause) in [
        (&["mount", "missing.img", "mnt"][..], "no such file"),
        (&["mount", "a.img", "nowhere"], "no such file"),
        (&["mount", "a.img", "plain"], "not a directory"),
        (&["mount", "a.img", "mnt", "-o", "uid=me"], "not a number"),
        (&["mount", "a.img", "mnt", "-o", "nonsense"], "unknown option"),
    ] {
        let line = m.bench.fails(args, 1);
        assert!(line.contains(cause), "{args:?}: {line}");
        assert!(!m.mounted());
    }
    m.bench.ok(&["mount", "a.img", "mnt"]);
    fs::create_dir(m.bench.path("other")).unwrap();
    let line = m.bench.fails(&["mount", "a.img", "other"], 1);
    assert!(line.contains("in use"), "{line}");
}

#[test]
fn signals_end_it_cleanly() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    for signal in ["-TERM", "-INT"] {
        m.bench.ok(&["mount", "a.img", "mnt"]);
        fs::write(m.dir.join(signal), vec![3; 3 << 20]).unwrap();
        m.signal(signal);
        m.wait_for_end();
        assert!(!m.mounted());
        m.bench.fsck("a.img");
    }
    // A file is open for writing, and only the kernel has its content.
    m.bench.ok(&["mount", "a.img", "mnt"]);
    let mut open = fs::File::create(m.dir.join("open")).unwrap();
    std::io::Write::write_all(&mut open, b"not closed yet").unwrap();
    m.signal("-TERM");
    m.wait_for_end();
    assert!(!m.mounted());
    drop(open);
    assert_eq!(m.bench.ok(&["cat", "a.img:/open"]), "not closed yet");
    for signal in ["-TERM", "-INT"] {
        assert_eq!(m.bench.ok(&["cat", &format!("a.img:/{signal}")]).len(), 3 << 20);
    }
    m.bench.fsck("a.img");
}

#[test]
fn mount_8_finds_it() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    // As /sbin/mount.fuse.tidegate would be.
    let helper = m.bench.path("mount.fuse.tidegate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &helper).unwrap();
    let image = m.bench.path("a.img");
    let status = Command::new(&helper)
        .args([&image, &m.dir])
        .args(["-n", "-o", "rw,noatime,uid=12,x-systemd.automount", "-t", "fuse.tidegate"])
        .status();
    assert!(status.unwrap().success());
    fs::write(m.dir.join("f"), "x").unwrap();
    assert_eq!(rustix::fs::stat(m.dir.join("f")).unwrap().st_uid, 12);
    assert!(Command::new("umount").arg(&m.dir).status().unwrap().success());
    m.wait_for_end();
    // The call of libfuse's mount.fuse3.
    let status =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args([&image, &m.dir]).args(["-o", "ro"]).status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(m.dir.join("f")).unwrap(), "x");
    assert!(fs::write(m.dir.join("g"), "x").is_err());
}

/// `mount -f` is a dry run, which mount(8) hands on.
#[test]
fn documents_mount_as_they_say() {
    use common::tour::{blocks, documents, run};
    if cannot_mount() {
        return;
    }
    let mounts = |d: &PathBuf| blocks(d).iter().any(|b| b.info == "sh mount");
    let documents: Vec<PathBuf> = documents().into_iter().filter(mounts).collect();
    assert!(documents.len() >= 3, "{documents:?}");
    documents.iter().for_each(|d| assert!(run(d, Path::new(env!("CARGO_BIN_EXE_tidegate")), true) > 4));
}

/// A partition is named by where it begins: to mount it, in the table of mounts, and to those that ask.
#[test]
fn a_partition_is_mounted() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    let disk = [vec![0; 1 << 20], fs::read(m.bench.path("a.img")).unwrap()].concat();
    fs::write(m.bench.path("disk.img"), disk).unwrap();
    m.bench.ok(&["mount", "disk.img@1M", "mnt"]);
    fs::write(m.dir.join("f"), "content").unwrap();
    let source = format!("{}@1048576 {}", m.bench.path("disk.img").display(), m.dir.display());
    assert!(fs::read_to_string("/proc/self/mounts").unwrap().contains(&source));
    for place in ["disk.img@1M", "mnt"] {
        assert!(m.bench.ok(&["top", "--interval", "0.05", place]).contains("f2fs"));
    }
    let busy = m.bench.fails(&["ls", "disk.img@1M:/"], 1);
    assert!(busy.starts_with("disk.img@1M: in use: it is mounted at "), "{busy}");
    m.bench.ok(&["umount", "mnt"]);
    assert_eq!(m.bench.ok(&["cat", "disk.img@1M:/f"]), "content");
}

#[test]
fn a_fake_mount_mounts_nothing() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    let helper = m.bench.path("mount.fuse.tidegate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &helper).unwrap();
    // A process that mounts all the same is ended, so that the test ends.
    let fake = |words: &str| {
        let mut c = Command::new("timeout");
        c.args(["-s", "TERM", "20"]).arg(&helper).args([&m.bench.path("a.img"), &m.dir]);
        c.args(["-f", "-v", "-o", words]).status().unwrap()
    };
    assert!(fake("rw,noatime").success());
    assert!(!m.mounted() && m.servers().is_empty());
    assert_eq!(fake("rw,uid=me").code(), Some(1));
}

/// mount(8) finds the helper in /sbin, which a mount namespace of this test's own has with the helper in it.
#[test]
fn mount_finds_the_helper_in_sbin() {
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let m = Mount::new();
    let real = m.bench.path("sbin");
    fs::create_dir(&real).unwrap();
    let script = r#"set -eu
        mount --bind /sbin/ "$1" && mount -t tmpfs tidegate-test /sbin/
        ln -s "$1"/* /sbin/ && ln -s "$2" /sbin/mount.fuse.tidegate
        mount -t fuse.tidegate -o suid,dev "$3" "$4" && echo content > "$4/f"
        grep " $4 " /proc/self/mounts
        umount "$4""#;
    let mut c = Command::new("unshare");
    c.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    c.arg(&real).arg(env!("CARGO_BIN_EXE_tidegate")).arg(m.bench.path("a.img")).arg(&m.dir);
    let out = c.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let flags = said.split(' ').nth(3).unwrap();
    assert!(!flags.contains("nosuid") && !flags.contains("nodev"), "{said}");
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content\n");
}

/// Through mount(8)'s helper the superuser's mount has set-id bits and devices, unless it says not to, and can be
/// mounted anew, read-only and back.
#[test]
fn the_superuser_mounts_as_fstab_says() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    let helper = m.bench.path("mount.fuse.tidegate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &helper).unwrap();
    let mount = |words: &str| {
        let mut c = Command::new(&helper);
        c.args([&m.bench.path("a.img"), &m.dir]).args(["-o", words]).stdin(Stdio::null());
        let out = c.output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stderr).to_string())
    };
    let flags = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|l| l.contains(&*m.dir.to_string_lossy())).unwrap().to_string();
        let words = line.split(' ').nth(3).unwrap().split(',');
        words.filter(|w| ["rw", "ro", "nosuid", "nodev"].contains(w)).collect::<Vec<_>>().join(",")
    };
    assert!(mount("rw,_netdev,nofail,noauto,x-systemd.automount,iversion,helper=x").0);
    assert_eq!(flags(), "rw");
    fs::write(m.dir.join("f"), "kept").unwrap();
    let open = fs::File::create(m.dir.join("g")).unwrap();
    assert!(mount("ro,remount").1.contains("busy"), "a file is open for writing");
    drop(open);
    // The kernel sends the message of a close after close(2) has returned.
    let mut done = mount("ro,remount,nosuid,user_id=0,group_id=0,default_permissions");
    for _ in 0..100 {
        if !done.1.contains("busy") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        done = mount("ro,remount,nosuid,user_id=0,group_id=0,default_permissions");
    }
    assert_eq!((done, flags().as_str()), ((true, String::new()), "ro,nosuid"));
    assert!(fs::write(m.dir.join("f"), "").is_err());
    assert!(mount("rw,remount").0);
    fs::write(m.dir.join("f"), "more").unwrap();
    assert_eq!(mount("rw,remount,fsync_mode=strict"), (true, String::new()));
    assert_eq!(mount("remount,noexec"), (true, String::new()));
    let line = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.lines().find(|l| l.contains(&*m.dir.to_string_lossy())).unwrap().to_string()
    };
    let before = line();
    assert_eq!(mount("remount,fsync_mode=posix"), (true, String::new()));
    assert_eq!(line(), before);
    assert!(before.contains("noexec"), "{before}");
    let (done, said) = mount("rw,remount,fsync_mode=nosuch");
    assert!(!done && said.contains("fsync_mode"), "{said}");
    let (done, said) = mount("rw,remount,noatime,uid=7");
    assert!(done && said.contains("noatime, uid: stays as it was mounted"), "{said}");
    m.bench.ok(&["umount", "mnt"]);
    assert!(mount("ro,nodev").0);
    assert_eq!(flags(), "ro,nodev");
    assert!(mount("rw,remount").1.contains("opened read-only"));
    assert_eq!(flags(), "ro");
    m.bench.ok(&["umount", "mnt"]);
    m.bench.fsck("a.img");
}

/// Where the kernel could carry requests by io_uring and does not, a mount that is to be verbose says how.
#[test]
fn io_uring_that_is_off_is_told_of() {
    if cannot_mount() {
        return;
    }
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    let off = fs::read_to_string(parameter).is_ok_and(|s| s.trim() == "N");
    let m = Mount::new();
    for (words, told) in
        [(&["-v"][..], off), (&[], false), (&["-v", "--json"], false), (&["-v", "-q"], false)]
    {
        let mut c = Command::new(m.bench.program());
        c.args(["mount", "a.img", "mnt"]).args(words).current_dir(m.bench.dir.path()).stdin(Stdio::null());
        let out = c.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).to_string();
        assert!(out.status.success(), "{said}");
        assert_eq!(said.matches(parameter).count(), told as usize, "{words:?}: {said}");
        m.bench.ok(&["umount", "mnt"]);
    }
}

#[test]
fn a_missing_device_is_named() {
    if cannot_mount() || tidegate_testing::oracle::skip_or_fail("unshare") {
        return;
    }
    let m = Mount::new();
    // A /dev without it, but with what any program opens.
    let script = "mount -t tmpfs none /dev && : > /dev/null && exec \"$@\"";
    let mut c = Command::new("unshare");
    c.args(["-m", "sh", "-c", script, "sh"]).arg(m.bench.program()).args(["mount", "a.img", "mnt"]);
    let out = c.current_dir(m.bench.dir.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("/dev/fuse") && said.contains("modprobe fuse"), "{said}");
}

/// Calls `f` while every user may open /dev/fuse: in a container only the superuser may be allowed to.
fn with_open_device<R>(f: impl FnOnce() -> R) -> R {
    static CLASS: LockClass = LockClass::new("test->device", 1);
    static TURN: Mutex<()> = Mutex::new(&CLASS, ());
    let _turn = TURN.lock();
    let before = fs::metadata("/dev/fuse").unwrap().permissions();
    fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).unwrap();
    let done = f();
    fs::set_permissions("/dev/fuse", before).unwrap();
    done
}

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    let user = 65534;
    fs::set_permissions(m.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for path in [m.bench.path("a.img"), m.dir.clone()] {
        chown(path, Some(user), Some(user)).unwrap();
    }
    let program = m.bench.program();
    let as_user = |program: &Path, args: &[&str]| {
        let mut c = Command::new(program);
        c.args(args).current_dir(m.bench.dir.path()).uid(user).gid(user).stdin(Stdio::null());
        c.output().unwrap()
    };
    let out = with_open_device(|| as_user(&program, &["mount", "a.img", "mnt", "-o", "uid=65534,gid=65534"]));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let sh = |cmd: &str| as_user(Path::new("/bin/sh"), &["-ec", cmd]);
    assert!(
        sh("echo mine > mnt/f; mkdir mnt/d; cp /bin/true mnt/d/; cmp /bin/true mnt/d/true").status.success()
    );
    // Writes that the kernel sends on its own account also arrive: times are kept.
    assert!(sh("touch -d 2001-02-03 mnt/f; sync -f mnt/f").status.success());
    let out = sh("fusermount3 -u mnt");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    m.wait_for_end();
    assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "mine\n");
    m.bench.fsck("a.img");
}

/// The mount of a user is closed to the superuser, who is told its owner, and may unmount or detach it.
#[test]
fn the_superuser_hears_whose_a_mount_is() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    fs::set_permissions(m.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = m.bench.program();
    for path in [m.bench.dir.path(), &m.dir, &m.bench.path("a.img")] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for end in [&["umount", "mnt"][..], &["umount", "--lazy", "mnt"]] {
        let mut mount = Command::new(&program);
        mount.args(["mount", "a.img", "mnt"]).current_dir(m.bench.dir.path()).uid(NOBODY).gid(NOBODY);
        let out = with_open_device(|| mount.output().unwrap());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(rustix::fs::stat(&m.dir).unwrap_err(), rustix::io::Errno::ACCESS);
        for args in [&["sync", "mnt"][..], &["top", "--json", "mnt"], &["trace", "-s", "0.05", "mnt"]] {
            let line = m.bench.fails(args, 1);
            assert!(
                line.contains("mounted by user 65534") && line.contains("umount --lazy"),
                "{args:?}: {line}"
            );
        }
        m.bench.ok(end);
        m.wait_for_end();
        m.bench.fsck("a.img");
    }
}

#[test]
fn what_cannot_be_unmounted_is_said_why() {
    if cannot_mount() {
        return;
    }
    let m = Mount::new();
    let line = m.bench.fails(&["umount", "nowhere"], 1);
    assert_eq!(line, "nowhere: no such file or directory");
    assert!(m.bench.fails(&["umount", "mnt"], 1).contains("no Tidegate volume is mounted here"));
    for value in ["allow_other=no", "cache=1", "cache=1M"] {
        let line = m.bench.fails(&["mount", "-o", value, "a.img", "mnt"], 1);
        assert!(line.contains(&format!("\"{value}\"")), "{line}");
    }
    m.bench.ok(&["mount", "a.img", "mnt"]);
    fs::create_dir(m.dir.join("sub")).unwrap();
    let line = m.bench.fails(&["umount", "mnt/sub"], 1);
    let at = fs::canonicalize(&m.dir).unwrap();
    assert_eq!(line, format!("mnt/sub: not a mount point; the volume is mounted at {}", at.display()));
    let line = m.bench.fails(&["df", "a.img"], 1);
    assert!(line.contains(&format!("in use: it is mounted at {}", at.display())), "{line}");
    assert!(m.bench.fails(&["trim", "mnt"], 1).contains("fstrim"));
    let file = fs::File::create(m.dir.join("f")).unwrap();
    let line = m.bench.fails(&["umount", "mnt"], 1);
    assert!(line.starts_with("mnt: busy: ") && line.contains("--lazy"), "{line}");
    drop(file);
    m.bench.ok(&["umount", "mnt"]);
    let image = fs::File::open(m.bench.path("a.img")).unwrap();
    rustix::fs::flock(&image, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let line = m.bench.fails(&["df", "a.img"], 1);
    assert!(line.contains(&format!("process {} (", std::process::id())), "{line}");
}

/// The parts of a mount that are bound to another place too: the whole, a directory, a file.
const BOUND: [(&str, &str); 3] = [("mnt", "other"), ("mnt/sub", "other"), ("mnt/f", "file")];

/// A mount of which `what` is bound to `to`, a path; unbound when dropped.
fn bound(what: &str, to: &str) -> (Mount, Bound) {
    let m = Mount::new();
    fs::create_dir(m.bench.path("other")).unwrap();
    fs::write(m.bench.path("file"), "").unwrap();
    m.bench.ok(&["mount", "a.img", "mnt"]);
    fs::create_dir(m.dir.join("sub")).unwrap();
    fs::write(m.dir.join("f"), "content").unwrap();
    let to = m.bench.path(to);
    let status = Command::new("mount").arg("--bind").args([&m.bench.path(what), &to]).status();
    assert!(status.unwrap().success());
    (m, Bound(to))
}

struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.0).status();
    }
}

/// Unmounts one of the two places. Returns its message. It must take less time than a wait for a volume's end, as there
/// is nothing to wait for.
fn unmount_soon(m: &Mount, dir: &str) -> Result<String, String> {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let mut c = Command::new("timeout");
    c.args(["3", program, "umount", dir]).current_dir(m.bench.dir.path());
    let out = c.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
    if out.status.success() { Ok(said) } else { Err(format!("{dir}: {:?}: {said}", out.status.code())) }
}

/// The volume then stays in use, which the command prints, and there is nothing to wait for.
#[test]
fn what_is_bound_elsewhere_is_unmounted_at_once() {
    if cannot_mount() {
        return;
    }
    let mut wrong = Vec::new();
    for (what, to) in BOUND {
        let (m, _bound) = bound(what, to);
        match unmount_soon(&m, "mnt") {
            Ok(said) if said.contains("mounted elsewhere") => {}
            answer => wrong.push(format!("{what} is bound: {answer:?}")),
        }
        assert!(!m.mounted());
        assert_eq!(m.servers().len(), 1);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The bound copy, which may be a file, is unmounted; the original mount stays.
#[test]
fn what_is_bound_is_unmounted_by_its_own_name() {
    if cannot_mount() {
        return;
    }
    let mut wrong = Vec::new();
    for (what, to) in BOUND {
        let (m, _bound) = bound(what, to);
        match unmount_soon(&m, to) {
            Ok(said) if said.contains("mounted elsewhere") => {}
            answer => wrong.push(format!("{what} is bound, and of that: {answer:?}")),
        }
        assert!(m.mounted());
        assert_eq!(fs::read_to_string(m.dir.join("f")).unwrap(), "content");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The unmount of the last place waits for the volume, whichever place that is.
#[test]
fn the_last_place_of_a_volume_is_waited_for() {
    if cannot_mount() {
        return;
    }
    let mut wrong = Vec::new();
    for (what, to) in BOUND {
        let (m, _bound) = bound(what, to);
        assert!(Command::new("umount").arg(&m.dir).status().unwrap().success());
        let out = m.bench.command(&["umount", to]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        if !out.status.success() || !said.is_empty() || !m.servers().is_empty() {
            wrong.push(format!("{what} is bound, and left: {:?}: {said}", out.status.code()));
            continue;
        }
        assert_eq!(m.bench.ok(&["cat", "a.img:/f"]), "content");
        m.bench.fsck("a.img");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_image_that_cannot_be_written_is_mounted_read_only() {
    if cannot_mount() || !common::has("chattr") {
        return;
    }
    let m = Mount::new();
    let chattr = |flag: &str| {
        Command::new("chattr").arg(flag).arg(m.bench.path("a.img")).status().is_ok_and(|s| s.success())
    };
    if !chattr("+i") {
        println!("SKIPPED: the scratch directory has no immutable files");
        return;
    }
    let out = m.bench.command(&["mount", "a.img", "mnt"]).output().unwrap();
    let write = fs::write(m.dir.join("f"), "x");
    let _ = m.bench.command(&["umount", "mnt"]).status();
    assert!(chattr("-i"));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && told.contains("a.img") && told.contains("read-only"), "{told}");
    assert_eq!(write.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}
