//! Events that a serving process must survive, and other programs around an image.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod common;

use common::mounted::{Mounted, cannot_mount};
use common::{Bench, has};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a line of bash, in which `$0` is the program, in the scratch directory.
fn bash(b: &Bench, line: &str) -> std::process::Output {
    let mut c = Command::new("bash");
    c.args(["-c", line, env!("CARGO_BIN_EXE_tidegate")]).current_dir(b.dir.path());
    c.output().unwrap()
}

fn write(path: &Path, mib: usize) -> std::io::Result<()> {
    let mut f = fs::File::create(path)?;
    (0..mib).try_for_each(|n| f.write_all(&vec![n as u8; 1 << 20]))?;
    f.sync_all()
}

#[test]
fn a_file_size_limit_is_an_error_to_the_writer() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::unmounted(|_| ());
    // In KiB: less than the image's size, which is sparse.
    let out = bash(&m.bench, "ulimit -f 65536; exec $0 mount a.img mnt");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let error = write(&m.dir.join("large"), 150).expect_err("150 MiB went into 64");
    assert!(error.raw_os_error().is_some(), "{error}");
    let pid = m.server().expect("the server lives");
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "tidegate\n");
    assert!(fs::read_dir(&m.dir).is_ok());
}

/// The variable is for commands that make an image: under a fixed time nothing would be written back before it is synced.
#[test]
fn a_mount_goes_by_the_clock_under_a_fixed_date() {
    if cannot_mount() {
        return;
    }
    for date in ["1700000000", "no date"] {
        let m = Mounted::unmounted(|_| ());
        let out = bash(&m.bench, &format!("export SOURCE_DATE_EPOCH='{date}'; exec $0 mount a.img mnt"));
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        fs::create_dir(m.dir.join("d")).unwrap();
        // The serving process takes the time of a directory's change.
        let changed = fs::metadata(&m.dir).unwrap().mtime();
        assert!(changed > 1_700_000_000 + 86_400, "{changed}");
    }
}

#[test]
fn options_in_front_of_the_command_count() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::unmounted(|_| ());
    m.bench.ok(&["-o", "ro", "mount", "a.img", "mnt", "-o", "noexec", "-o", "nodev"]);
    let options = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = options.lines().find(|l| l.contains(&format!(" {} ", m.dir.display()))).unwrap();
    for word in ["ro", "noexec", "nodev"] {
        assert!(line.split([' ', ',']).any(|w| w == word), "{word}: {line}");
    }
    assert!(fs::write(m.dir.join("f"), "x").is_err());
}

/// A memory cgroup with a limit.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(name: &str, limit: u64) -> Option<MemoryGroup> {
        let (root, file) = match Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let dir = Path::new(root).join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = MemoryGroup(dir);
        fs::write(group.0.join(file), limit.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_memory_limit_below_the_usual_cache_is_respected() {
    if cannot_mount() {
        return;
    }
    let Some(group) = MemoryGroup::new("tidegate-test", 160 << 20) else {
        println!("SKIPPED: no control group for memory can be made here");
        return;
    };
    let m = Mounted::unmounted(|_| ());
    let procs = group.0.join("cgroup.procs");
    let out = bash(&m.bench, &format!("echo $$ >{} && exec $0 mount a.img mnt", procs.display()));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for n in 0..2 {
        let path = m.dir.join(format!("f{n}"));
        write(&path, 60).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 60 << 20);
    }
    for n in 0..2000 {
        fs::write(m.dir.join(format!("small{n}")), [1; 5000]).unwrap();
    }
    m.unmount();
    m.bench.fsck("a.img");
}

/// `file` as a block device, until it is dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let out = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
        out.status.success().then(|| Loop(String::from_utf8(out.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn an_image_is_in_use_by_its_loop_device_too() {
    if cannot_mount() {
        return;
    }
    let m = Mounted::new();
    let Some(device) = Loop::new(&m.image) else {
        println!("SKIPPED: no loop device to be had");
        return;
    };
    let line = m.bench.fails(&["mkdir", &format!("{}:/d", device.0)], 1);
    assert!(line.contains("in use") && line.contains("a.img"), "{line}");
    drop(device);
    m.unmount();
    let device = Loop::new(&m.image).unwrap();
    m.bench.ok(&["mkdir", &format!("{}:/d", device.0)]);
    m.bench.fsck("a.img");
}

/// The superuser's mount of a block device is one of the kernel's own kind: it keeps others from the device,
/// syncfs(2) reaches the volume, and umount(2) waits until it is unmounted.
#[test]
fn a_mounted_block_device_is_synced_and_unmounted_as_the_kernels_are() {
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "128M", "a.img"]);
    let (image, dir) = (b.path("a.img"), b.path("mnt"));
    fs::create_dir(&dir).unwrap();
    let Some(device) = Loop::new(&image) else {
        println!("SKIPPED: no loop device to be had");
        return;
    };
    let ran = |program: &str, args: &[&str], at: &Path| {
        Command::new(program).args(args).arg(at).output().unwrap().status.success()
    };
    b.ok(&["mount", &device.0, "mnt"]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(table.contains(&format!("{} {} fuseblk.tidegate rw", device.0, dir.display())), "{table}");
    assert!(!ran("mkfs.f2fs", &["-q", "-f"], Path::new(&device.0)), "mkfs over a mounted volume");
    fs::write(dir.join("f"), "synced").unwrap();
    assert!(ran("sync", &["-f"], &dir));
    fs::copy(&image, b.path("synced.img")).unwrap();
    fs::write(dir.join("g"), "unmounted").unwrap();
    assert!(ran("umount", &[], &dir));
    fs::copy(&image, b.path("unmounted.img")).unwrap();
    assert_eq!(b.ok(&["cat", "synced.img:/f"]), "synced");
    assert_eq!(b.ok(&["cat", "unmounted.img:/g"]), "unmounted");
    let said = |image: &str| {
        let out = b.command(&["check", image]).output().unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    };
    assert!(said("synced.img").contains("not cleanly unmounted"));
    assert!(!said("unmounted.img").contains("not cleanly unmounted"), "umount(2) did not wait");
}

/// A block device that takes no writes, until it is dropped: a loop device would stay so without a file, too.
struct Protected<'a>(&'a str);

impl<'a> Protected<'a> {
    fn new(device: &'a str) -> Self {
        assert!(Command::new("blockdev").args(["--setro", device]).status().unwrap().success());
        Protected(device)
    }
}

impl Drop for Protected<'_> {
    fn drop(&mut self) {
        let _ = Command::new("blockdev").args(["--setrw", self.0]).status();
    }
}

/// As for the first device, named or listed: mount(8) goes on with what it can do.
#[test]
fn a_second_device_that_cannot_be_written_is_mounted_read_only() {
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let b = Bench::new();
    for name in ["a.img", "b.img"] {
        fs::File::create(b.path(name)).unwrap().set_len(64 << 20).unwrap();
    }
    let loops: Option<Vec<Loop>> = ["a.img", "b.img"].iter().map(|n| Loop::new(&b.path(n))).collect();
    let Some(loops) = loops else {
        println!("SKIPPED: no loop devices to be had");
        return;
    };
    let (first, second) = (&*loops[0].0, &*loops[1].0);
    b.ok(&["mkfs", "-c", second, first, "--quiet"]);
    fs::create_dir(b.path("mnt")).unwrap();
    let _protected = Protected::new(second);
    for named in [&[][..], &["-o", &format!("device={second}")]] {
        let out = b.command(&[&["mount", first, "mnt"], named].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        assert!(said.contains(&format!("{second}: cannot be written")), "{said}");
        let e = fs::write(b.path("mnt/f"), "no").unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        b.ok(&["umount", "mnt"]);
    }
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_not_written() {
    if cannot_mount() || !has("mke2fs") {
        return;
    }
    let b = Bench::new();
    let (file, dir) = (b.path("e.img"), b.path("e"));
    fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
    assert!(Command::new("mke2fs").args(["-q", "-F"]).arg(&file).status().unwrap().success());
    fs::create_dir(&dir).unwrap();
    let mounted = Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&dir).status().unwrap();
    if !mounted.success() {
        println!("SKIPPED: no loop device to be had");
        return;
    }
    let out = b.command(&["mkfs", "--force", "--size", "64M", "e.img"]).output().unwrap();
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    let line = common::failed(&out, 1);
    assert!(line.contains("in use") && line.contains("/dev/loop"), "{line}");
}

/// A file that is a socket whose server has died.
fn dead_socket(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(Command::new("touch").args(["-d", "-1 hour"]).arg(path).status().unwrap().success());
}

#[test]
fn sockets_of_killed_mounts_go_and_foreign_directories_do_not_matter() {
    if cannot_mount() || !has("setpriv") {
        return;
    }
    const UID: u32 = 48_231;
    let foreign = PathBuf::from(format!("/tmp/tidegate-{UID}"));
    let _ = fs::create_dir(&foreign);
    let m = Mounted::unmounted(|_| ());
    for path in [m.bench.dir.path(), &m.dir, &m.image] {
        chown(path, Some(UID), Some(UID)).unwrap();
    }
    fs::set_permissions(m.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = format!("env -u XDG_RUNTIME_DIR setpriv --reuid {UID} --regid {UID} --clear-groups");
    let mounted = bash(&m.bench, &format!("{user} $0 mount a.img mnt"));
    let asked = bash(&m.bench, &format!("{user} $0 top --json mnt"));
    let _ = bash(&m.bench, &format!("{user} $0 umount mnt"));
    let own: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"]
        .iter()
        .flat_map(|d| ["", ".1", ".2"].map(|e| PathBuf::from(format!("{d}/tidegate-{UID}{e}"))))
        .filter(|d| d.metadata().is_ok_and(|s| s.uid() == UID))
        .collect();
    if let Some(dir) = own.first() {
        let dead = dir.join("dead.sock");
        dead_socket(&dead);
        chown(&dead, Some(UID), Some(UID)).unwrap();
        bash(&m.bench, &format!("{user} $0 mount a.img mnt && {user} $0 umount mnt"));
        assert!(!dead.exists());
    }
    for dir in own.iter().chain([&foreign]) {
        let _ = fs::remove_dir_all(dir);
    }
    let told = |o: &std::process::Output| String::from_utf8_lossy(&o.stderr).into_owned();
    if !mounted.status.success() && told(&mounted).contains("fusermount3") {
        println!("SKIPPED: fusermount3 lets no user mount: {}", told(&mounted));
        return;
    }
    assert!(mounted.status.success(), "{}", told(&mounted));
    assert!(asked.status.success(), "{}", told(&asked));
    assert!(!own.is_empty());
}
