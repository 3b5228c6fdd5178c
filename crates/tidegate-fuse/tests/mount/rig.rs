//! An image, a process that serves it, a directory.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate::offline::{self, CheckOptions};
use tidegate_block::{QueueLimits, RequestQueue, file};
use tidegate_fuse::{MountOptions, serve};

const ASKED: &str = "TIDEGATE_TEST_SERVE";

/// The orders of a serving process: the image, the directory, and the words of `-o`.
pub fn asked() -> Option<(PathBuf, PathBuf, String)> {
    let asked = std::env::var(ASKED).ok()?;
    let mut lines = asked.lines().map(str::to_string);
    Some((lines.next()?.into(), lines.next()?.into(), lines.next().unwrap_or_default()))
}

/// Serves the mount that the environment names, and ends the process.
pub fn serve_if_asked() {
    let Some((image, dir, words)) = asked() else { return };
    let options = MountOptions::parse(&words).unwrap();
    let mut open = tidegate::OpenOptions::default();
    open.parse(&options.switches).unwrap();
    end(serve(&image, &dir, &options, open, |_| say_ready()));
}

/// Tells the parent process that the mount works.
pub fn say_ready() {
    println!("ready");
}

/// Ends a serving process.
pub fn end(served: tidegate::Result<()>) -> ! {
    if let Err(e) = &served {
        println!("failed: {e}");
    }
    std::process::exit(served.is_err() as i32);
}

/// Whether a mount is impossible here; under CI that is a failure.
pub fn cannot_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if Path::new("/dev/fuse").exists() && root {
        return tidegate_testing::oracle::skip_or_fail("fusermount3");
    }
    assert!(!tidegate_testing::oracle::in_ci(), "/dev/fuse missing, or not the superuser");
    println!("SKIPPED: /dev/fuse missing, or not the superuser");
    true
}

/// A mounted volume in a scratch directory. Unmounted and checked by [`Rig::finish`].
pub struct Rig {
    pub scratch: tempfile::TempDir,
    pub image: PathBuf,
    pub dir: PathBuf,
    child: Option<Child>,
}

impl Rig {
    /// A fresh volume of `mib` MiB, mounted with `words`.
    pub fn new(mib: u64, words: &str) -> Rig {
        let mut rig = Rig::unmounted(mib);
        rig.mount(words).unwrap();
        rig
    }

    pub fn unmounted(mib: u64) -> Rig {
        let scratch = tempfile::tempdir().unwrap();
        // Other users must be able to enter it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scratch.path(), open).unwrap();
        let (image, dir) = (scratch.path().join("a.img"), scratch.path().join("mnt"));
        std::fs::create_dir(&dir).unwrap();
        make_image(&image, mib);
        Rig { scratch, image, dir, child: None }
    }

    /// Mounts the volume. If that fails, returns the output of the process.
    pub fn mount(&mut self, words: &str) -> Result<(), String> {
        self.mount_by("serving_process", words)
    }

    /// Mounts the volume. The test called `process` serves it.
    pub fn mount_by(&mut self, process: &str, words: &str) -> Result<(), String> {
        self.child = Some(start(process, &self.image, &self.dir, words, None)?);
        Ok(())
    }

    /// Mounts the volume as an ordinary user, who owns the image and the directory from then on.
    pub fn mount_as(&mut self, user: u32, words: &str) -> Result<(), String> {
        for path in [&self.image, &self.dir] {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
        // In a container only the superuser may be allowed to open it.
        let (device, open) = ("/dev/fuse", std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let before = std::fs::metadata(device).unwrap().permissions();
        std::fs::set_permissions(device, open).unwrap();
        let child = start("serving_process", &self.image, &self.dir, words, Some(user));
        std::fs::set_permissions(device, before).unwrap();
        self.child = Some(child?);
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Unmounts. Returns whether the process succeeded.
    pub fn unmount(&mut self) -> bool {
        let busy = Instant::now();
        while !Command::new("fusermount3").arg("-u").arg(&self.dir).status().unwrap().success() {
            assert!(busy.elapsed() < Duration::from_secs(20), "the mount stays busy");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child.take().unwrap().wait().unwrap().success()
    }

    /// kill -9, and then what the user of the mount would do.
    pub fn kill(&mut self) {
        self.kill_then(|| ());
    }

    /// kill -9. Calls `f` while the dead mount is still there. `f` must not panic.
    pub fn kill_then<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let dead = says_it_is_dead(&self.dir);
        let r = f();
        assert!(Command::new("fusermount3").arg("-uz").arg(&self.dir).status().unwrap().success());
        assert_eq!(dead, Ok(()), "a dead mount answers at once");
        r
    }

    /// Runs `f` while the root of a fresh volume is empty: mke2fs puts a directory there, which e2fsck
    /// expects afterwards.
    pub fn with_empty_root<T>(&self, f: impl FnOnce(&Path) -> T) -> T {
        let made = self.dir.join("lost+found");
        let was_there = std::fs::remove_dir(&made).is_ok();
        let r = f(&self.dir);
        if was_there {
            std::fs::create_dir(&made).unwrap();
        }
        r
    }

    /// Unmounts, and checks the image with stock fsck and with Tidegate's own check.
    pub fn finish(mut self) {
        assert!(self.unmount(), "the serving process failed");
        fsck(&self.image);
    }
}

/// Whether each request is refused, and soon with the error of a connection that has ended. The kernel tears an
/// io_uring down in the background, after the process was waited for. Until then it ends requests as if they had been
/// in flight when the process died.
fn says_it_is_dead(dir: &Path) -> Result<(), String> {
    use rustix::io::Errno;
    let since = Instant::now();
    loop {
        match rustix::fs::statvfs(dir).map(|s| s.f_bfree) {
            Err(Errno::NOTCONN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::CANCELED) if since.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => return Err(format!("{answer:?} after {:?}", since.elapsed())),
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.dir).status();
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(process: &str, image: &Path, dir: &Path, words: &str, user: Option<u32>) -> Result<Child, String> {
    // Options for all tests, such as another transport. The test's own options take precedence.
    let given = std::env::var("TIDEGATE_MOUNT_OPTIONS").unwrap_or_default();
    let asked = format!("{}\n{}\n{given},{words}", image.display(), dir.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", process, "--nocapture"]).env(ASKED, asked);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while said.read_line(&mut line).unwrap() > 0 {
        if line.contains("ready") {
            child.stdout = Some(said.into_inner());
            return Ok(child);
        }
        if let Some((_, why)) = line.split_once("failed: ") {
            child.wait().unwrap();
            return Err(why.trim().to_string());
        }
        line.clear();
    }
    child.wait().unwrap();
    Err("the serving process ended".to_string())
}

/// Whether volumes are ext4, as the environment asks for.
pub fn is_ext4() -> bool {
    std::env::var("TIDEGATE_TEST_FORMAT").is_ok_and(|f| f == "ext4")
}

/// Bytes of a block of this test's volumes. For ext4 it is the value in the environment, or one of all sizes, which is
/// fixed for each test.
pub fn block() -> u64 {
    if !is_ext4() {
        return 4096;
    }
    const SIZES: [u64; 3] = [4096, 1024, 2048];
    /// Tests that need blocks of 4 KiB: two have targets of symlinks and attributes of that length, and the third
    /// compares where holes begin, and the kernel's cache above a mount sends whole pages.
    const PAGES: [&str; 3] = ["trees::every_corner_of_a_tree", "whole::trees_go_in_and_out", "posix::ranges"];
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    if PAGES.contains(&name) {
        return 4096;
    }
    let any = SIZES[name.bytes().map(usize::from).sum::<usize>() % SIZES.len()];
    number("TIDEGATE_TEST_BLOCK", any)
}

pub fn make_image(path: &Path, mib: u64) {
    if is_ext4() {
        let block = block();
        println!("TIDEGATE_TEST_BLOCK={block}");
        make_ext4(path, mib, &["-t", "ext4", "-b", &block.to_string()]);
    } else {
        make_f2fs(path, mib);
    }
}

/// An F2FS volume.
pub fn make_f2fs(path: &Path, mib: u64) {
    tidegate::mkfs(mkfs_request(path, mib)).unwrap();
}

pub fn mkfs_request(path: &Path, mib: u64) -> tidegate::mkfs::Request {
    tidegate::mkfs::Request {
        image: path.to_path_buf(),
        devices: Vec::new(),
        size: tidegate::mkfs::Size::Bytes(mib << 20),
        from: None,
        options: Default::default(),
        open: Default::default(),
        owner: None,
        root_owner: None,
        free: 0,
        reproducible: None,
        progress: Default::default(),
        force: true,
        unfinished: Default::default(),
    }
}

/// An ext4 volume, by mke2fs.
pub fn make_ext4(path: &Path, mib: u64, args: &[&str]) {
    let scratch = tidegate_testing::ext4::scratch("image").unwrap();
    let bytes = tidegate_testing::ext4::made(&scratch, mib << 20, args).unwrap();
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    // Zeros take no space on the disk.
    for (n, piece) in bytes.chunks(4096).enumerate().filter(|(_, piece)| piece.iter().any(|b| *b != 0)) {
        std::os::unix::fs::FileExt::write_all_at(&file, piece, n as u64 * 4096).unwrap();
    }
}

/// Panics unless Tidegate's own check and stock fsck (where it is installed) call the image clean.
pub fn fsck(image: &Path) {
    let options = file::OpenOptions { read_only: true, ..Default::default() };
    let queue = RequestQueue::new(file::open(image, options).unwrap(), QueueLimits::default());
    let found = offline::check("image", &Arc::new(queue), CheckOptions::default()).unwrap();
    assert!(found.is_clean(), "{:?}", found.problems);
    if has_ext4(image) {
        tidegate_testing::ext4::is_clean(image).unwrap();
        return;
    }
    if !tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
        tidegate_testing::golden::fsck_f2fs(image).unwrap();
    }
}

/// Whether the image has ext4's magic number.
fn has_ext4(image: &Path) -> bool {
    let mut magic = [0; 2];
    let file = std::fs::File::open(image).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 0x438).is_ok() && magic == [0x53, 0xef]
}

/// The seed of a random test: from the environment, or the clock. It is printed, so that a failure can be
/// replayed.
pub fn seed() -> u64 {
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(tidegate_rt::clock::entropy);
    println!("TIDEGATE_SEED={seed}");
    seed
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

/// A small random generator (xorshift*).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        let mut x = self.0 | 1;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}
