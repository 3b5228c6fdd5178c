//! Volumes made by mke2fs, mounted by the host's kernel, and opened by us.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use tidegate_block::{
    BioFlags, Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request, RequestQueue, file,
};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_rt::{Condvar, LockClass, Mutex};
use tidegate_testing::fill::{Kind, fill};
use tidegate_testing::manifest::{Manifest, walk};
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;
use tidegate_testing::tree;
use tidegate_vfs::{Bdi, MemoryLimits, MountOptions, Result, Vfs};

/// Seconds that a program may run.
const LIMIT: &str = "120";

/// Runs a program with a time limit; returns whether it succeeded, and its output.
pub fn run(name: &str, args: &[&str]) -> (bool, String) {
    let program = oracle::require(name).unwrap();
    let mut command = Command::new("timeout");
    let out = command.arg(LIMIT).arg(program).args(args).stdin(Stdio::null()).output().unwrap();
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    (out.status.success(), text)
}

/// Runs a program that must succeed; returns its output.
pub fn must(name: &str, args: &[&str]) -> String {
    let (ok, text) = run(name, args);
    assert!(ok, "{name} {args:?}: {text}");
    text
}

/// Has e2fsck repair an image, in which it must leave no fault; returns what it said.
pub fn mended_by_e2fsck(image: impl AsRef<Path>) -> String {
    tidegate_testing::ext4::mend(image.as_ref()).unwrap()
}

/// Has e2fsck check an image; returns whether it found no fault, and what it said.
pub fn checked_by_e2fsck(image: impl AsRef<Path>) -> (bool, String) {
    let (ok, said) = run("e2fsck", &["-fn", image.as_ref().to_str().unwrap()]);
    (ok && !tidegate_testing::ext4::declined(&said), said)
}

/// Has e2fsck check an image, in which it must find no fault; returns what it said.
pub fn must_be_clean(image: impl AsRef<Path>) -> String {
    let (clean, said) = checked_by_e2fsck(image);
    assert!(clean, "e2fsck -fn: {said}");
    said
}

/// The output bytes of a program that must succeed.
pub fn bytes_of(name: &str, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(oracle::require(name).unwrap()).args(args).stdin(Stdio::null());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// The seed that `TIDEGATE_SEED` asks for.
pub fn asked_seed() -> Option<u64> {
    std::env::var("TIDEGATE_SEED").ok().map(|s| s.parse().expect("TIDEGATE_SEED is a number"))
}

/// That seed, or a random one; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = asked_seed().unwrap_or_else(tidegate_rt::clock::entropy);
    println!("TIDEGATE_SEED={seed}");
    seed
}

/// Whether a test must be skipped: mke2fs is missing, or the test needs the superuser.
pub fn skip() -> bool {
    if !rustix::process::geteuid().is_root() {
        assert!(!oracle::in_ci(), "these tests need the superuser");
        println!("SKIPPED: loop mounts and device files need the superuser");
        return true;
    }
    ["mke2fs", "e2fsck", "debugfs", "losetup"].into_iter().any(oracle::skip_or_fail)
}

/// Makes a volume with mke2fs.
pub fn mke2fs(image: &Path, args: &[&str], size: &str) {
    let path = image.to_str().unwrap();
    let all = [&["-q", "-F"], args, &[path, size]].concat();
    must("mke2fs", &all);
}

/// Mounts an image with our engine, or returns the reason why not.
pub fn open(image: &Path) -> Result<Arc<Vfs>> {
    open_with(image, Ext4Options::default()).map(|(v, _)| v)
}

/// As [`open`], with options; also returns the engine.
pub fn open_with(image: &Path, options: Ext4Options) -> Result<(Arc<Vfs>, Arc<Ext4>)> {
    let how = file::OpenOptions { read_only: true, ..Default::default() };
    let queue = Arc::new(RequestQueue::new(file::open(image, how).unwrap(), QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), options)?;
    let v = Vfs::mount(fs.clone(), bdi, MountOptions { noatime: true, ..Default::default() })?;
    Ok((v, fs))
}

/// Describes an image as we read it.
pub fn describe(image: &Path) -> Manifest {
    let v = open(image).unwrap();
    let found = tree::describe(&v).unwrap();
    v.unmount().unwrap();
    found
}

/// An image mounted by the host's kernel, until this is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts `image` at a directory made for it; `None` when the kernel does not know its features.
    pub fn new(image: &Path, options: &str) -> Option<Mounted> {
        let dir = image.with_extension("mnt");
        std::fs::create_dir_all(&dir).unwrap();
        let options = format!("loop,{options}");
        let args = ["-t", "ext4", "-o", &options, image.to_str().unwrap(), dir.to_str().unwrap()];
        run("mount", &args).0.then(|| Mounted(dir))
    }

    /// The directory of the mount.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = tidegate_testing::ext4::unmount(self.0.to_str().unwrap());
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

/// Describes an image as the host's kernel reads it, if it can.
pub fn describe_by_kernel(image: &Path) -> Option<Manifest> {
    let mounted = Mounted::new(image, "ro")?;
    Some(walk(mounted.path()).unwrap())
}

/// A device that is slow with some file data: a thread that does not wait for the data finds it missing.
pub struct Late {
    inner: Arc<dyn Device>,
    queue: Sender<Request>,
    writes: AtomicUsize,
}

impl Late {
    /// A device over `inner` with late data.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let (queue, taken) = channel::<Request>();
        let below = inner.clone();
        std::thread::spawn(move || {
            while let Ok(rq) = taken.recv() {
                std::thread::sleep(std::time::Duration::from_millis(20));
                below.submit(rq);
            }
        });
        Late { inner, queue, writes: AtomicUsize::new(0) }
    }
}

impl Device for Late {
    fn info(&self) -> DeviceInfo<'_> {
        self.inner.info()
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        self.inner.execute(rq)
    }
    fn submit(&self, rq: Request) {
        let data = rq.op == Op::Write && !rq.flags.contains(BioFlags::META);
        if data && self.writes.fetch_add(1, Relaxed).is_multiple_of(4) {
            self.queue.send(rq).unwrap();
        } else {
            self.inner.submit(rq);
        }
    }
}

static KEPT: LockClass = LockClass::new("test->kept", 999);

/// A device that holds back the first request of a kind until [`Gate::let_go`].
pub struct Gate {
    below: Arc<MemoryDevice>,
    keeps: fn(&Request) -> bool,
    kept: Mutex<Kept>,
    goes: Condvar,
}

/// The state of that request.
enum Kept {
    Comes,
    Sent(Request),
    /// The thread that asks for it waits.
    Waits,
    Gone(std::result::Result<(), Errno>),
}

impl Gate {
    /// A device over `below` that holds back the first request for which `keeps` is true.
    pub fn new(below: Arc<MemoryDevice>, keeps: fn(&Request) -> bool) -> Arc<Self> {
        Arc::new(Gate { below, keeps, kept: Mutex::new(&KEPT, Kept::Comes), goes: Condvar::new() })
    }

    /// Whether a request is held back.
    pub fn is_kept(&self) -> bool {
        matches!(*self.kept.lock(), Kept::Sent(_) | Kept::Waits)
    }

    /// Carries out the request, or fails it.
    pub fn let_go(&self, how: std::result::Result<(), Errno>) {
        let kept = std::mem::replace(&mut *self.kept.lock(), Kept::Gone(how));
        self.goes.notify_all();
        match (kept, how) {
            (Kept::Comes | Kept::Gone(_), _) => panic!("none is kept"),
            (Kept::Sent(rq), Ok(())) => self.below.submit(rq),
            (Kept::Sent(rq), failed) => rq.complete(failed),
            (Kept::Waits, _) => {}
        }
    }
}

impl Device for Gate {
    fn info(&self) -> DeviceInfo<'_> {
        self.below.info()
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        let mut kept = self.kept.lock();
        if matches!(*kept, Kept::Comes) && (self.keeps)(rq) {
            *kept = Kept::Waits;
            while !matches!(*kept, Kept::Gone(_)) {
                self.goes.wait(&mut kept);
            }
            if let Kept::Gone(Err(e)) = *kept {
                return Err(e);
            }
        }
        drop(kept);
        self.below.execute(rq)
    }
    fn submit(&self, rq: Request) {
        let mut kept = self.kept.lock();
        if matches!(*kept, Kept::Comes) && (self.keeps)(&rq) {
            *kept = Kept::Sent(rq);
            return;
        }
        drop(kept);
        self.below.submit(rq);
    }
}

/// Makes a tree of everything that volumes with blocks of up to 4 KiB can hold, in `dir`. With `small`,
/// leaves out what is too large for blocks of 1 KiB.
pub fn source(dir: &Path, small: bool) -> PathBuf {
    let tree = dir.join(if small { "small" } else { "large" });
    std::fs::create_dir(&tree).unwrap();
    fill(Kind::Varied, &tree).unwrap();
    let large = ["xattrs/forty", "xattrs/large", "links/length-3400", "links/length-4000"];
    for name in large.iter().filter(|_| small) {
        std::fs::remove_file(tree.join(name)).unwrap();
    }
    for len in [3_480, 3_487, 3_488, 3_489, 3_600].iter().filter(|_| small) {
        std::fs::remove_file(tree.join(format!("links/length-{len}"))).unwrap();
    }
    // mke2fs makes no symbolic link as long as a block, and keeps a file without data inline where Linux
    // finds no end of it.
    for name in ["links/length-4094", "holes/all-hole"] {
        std::fs::remove_file(tree.join(name)).unwrap();
    }
    tree
}

/// A directory for images, on a disk: one in memory does not keep `trusted` attributes.
pub fn scratch() -> TempDir {
    TempDir::new_in(Path::new("/var/tmp"), "ext4").unwrap()
}
