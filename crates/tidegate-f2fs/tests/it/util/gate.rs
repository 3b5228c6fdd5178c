//! A device in memory whose writes can be held and failed, and which can be copied at one instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use tidegate_block::*;
use tidegate_f2fs::{F2fs, F2fsOptions, mkfs};
use tidegate_rt::{LockClass, Mutex, RwLock, WaitQueue};
use tidegate_vfs::*;

static FREEZE: LockClass = LockClass::new("gate", 985);
static NEEDLE: LockClass = LockClass::new("gate->needle", 984);

pub struct Gate {
    inner: MemoryDevice,
    /// Held shared during a write, exclusive while the device is copied.
    freeze: RwLock<()>,
    /// Byte range of the checkpoint area.
    packs: (AtomicU64, AtomicU64),
    hold: AtomicBool,
    held: AtomicU32,
    moved: WaitQueue,
    /// Checkpoints that may still be written.
    packs_left: AtomicU32,
    /// A write of file or directory data that contains this fails, once.
    needle: Mutex<Option<&'static [u8]>>,
    /// The I/O context of the last write to the checkpoint area.
    packs_ctx: Mutex<IoContext>,
}

impl Gate {
    pub fn new(size: u64) -> Arc<Self> {
        Arc::new(Gate {
            inner: MemoryDevice::new(size),
            freeze: RwLock::new(&FREEZE, ()),
            packs: (AtomicU64::new(0), AtomicU64::new(0)),
            hold: AtomicBool::new(false),
            held: AtomicU32::new(0),
            moved: WaitQueue::new(),
            packs_left: AtomicU32::new(u32::MAX),
            needle: Mutex::new(&NEEDLE, None),
            packs_ctx: Mutex::new(&NEEDLE, IoContext::default()),
        })
    }

    /// Makes writers to the checkpoint area wait.
    pub fn hold(&self) {
        self.hold.store(true, SeqCst);
    }

    pub fn wait_until_held(&self) {
        self.moved.wait_until(|| self.held.load(SeqCst) > 0);
    }

    pub fn release(&self) {
        self.hold.store(false, SeqCst);
        self.moved.wake_all();
    }

    /// Makes writes to the checkpoint area fail after `n` more checkpoints.
    pub fn fail_after(&self, n: u32) {
        self.packs_left.store(n, SeqCst);
    }

    pub fn fail_data_with(&self, needle: &'static [u8]) {
        *self.needle.lock() = Some(needle);
    }

    pub fn packs_ctx(&self) -> IoContext {
        *self.packs_ctx.lock()
    }

    /// The image after a power cut at this moment, if all writes are durable.
    pub fn image(&self) -> Vec<u8> {
        let mut out = vec![0; self.inner.size() as usize];
        let _still = self.freeze.write();
        self.inner.read_at(0, &mut out);
        out
    }

    fn fails(&self, rq: &Request) -> bool {
        let at = rq.sector.bytes();
        if (self.packs.0.load(SeqCst)..self.packs.1.load(SeqCst)).contains(&at) {
            *self.packs_ctx.lock() = rq.bios[0].ctx;
            self.held.fetch_add(1, SeqCst);
            self.moved.wake_all();
            self.moved.wait_until(|| !self.hold.load(SeqCst));
            self.held.fetch_sub(1, SeqCst);
            let left = self.packs_left.load(SeqCst);
            if rq.flags.contains(BioFlags::FUA) {
                self.packs_left.store(left.saturating_sub(1), SeqCst);
            }
            return left == 0;
        }
        let mut needle = self.needle.lock();
        let Some(n) = *needle else { return false };
        let mut found = false;
        rq.for_each_source(|s| found |= s.windows(n.len()).any(|w| w == n));
        found &= !rq.flags.contains(BioFlags::META);
        if found {
            *needle = None;
        }
        found
    }
}

impl Device for Gate {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "gate", size: self.inner.size(), read_only: false, backend: "gate", zones: None }
    }

    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        if rq.op == Op::Write && self.fails(rq) {
            return Err(Errno::IO);
        }
        let _writing = self.freeze.read();
        self.inner.execute(rq)
    }
}

/// A new volume on such a device, mounted.
pub struct Bed {
    pub device: Arc<Gate>,
    pub fs: Arc<F2fs>,
    pub vfs: Arc<Vfs>,
}

impl Bed {
    pub fn new(options: &str) -> Bed {
        let device = Gate::new(96 << 20);
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        mkfs::mkfs(&queue, &mkfs::MkfsOptions::default()).unwrap();
        let (fs, vfs) = mount(queue, options);
        let areas = fs.info().unwrap().areas;
        device.packs.0.store(areas[0].1 as u64 * 4096, SeqCst);
        device.packs.1.store(areas[1].1 as u64 * 4096, SeqCst);
        Bed { device, fs, vfs }
    }
}

/// The volume as it opens from `image`.
pub fn reopen(image: &[u8]) -> Arc<Vfs> {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    mount(Arc::new(RequestQueue::new(device, QueueLimits::default())), "").1
}

fn mount(queue: Arc<RequestQueue>, options: &str) -> (Arc<F2fs>, Arc<Vfs>) {
    let mut o = F2fsOptions::default();
    o.parse(options).unwrap();
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue, bdi.clone(), o).unwrap();
    assert_eq!(FileSystem::read_only(&*fs), None);
    let vfs = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
    (fs, vfs)
}
