//! A new volume on a device whose requests can be made late.

use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, Faulty, MemoryDevice, Op, QueueLimits, Request, RequestQueue, Rule};
use tidegate_f2fs::{F2fs, F2fsOptions, mkfs};
use tidegate_rt::{LockClass, clock, sim, thread};
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
pub const PAGE: usize = 4096;
pub const MS: Duration = Duration::from_millis(1);
/// The duration of a request that is late.
pub const LATE: Duration = Duration::from_millis(100);
const SIZE: u64 = 96 << 20;

/// Lets one test run at a time: counts of locks belong to the process.
pub static ALONE: tidegate_rt::Mutex<()> = tidegate_rt::Mutex::new(&TEST, ());
static TEST: LockClass = LockClass::new("test->alone", 1);

pub struct Bed {
    pub memory: Arc<MemoryDevice>,
    pub device: Arc<Faulty>,
    pub queue: Arc<RequestQueue>,
    pub fs: Arc<F2fs>,
    pub vfs: Arc<Vfs>,
}

/// Runs `f` on a new volume in simulated worlds with these seeds.
pub fn each_seed<R: Send + 'static>(
    seeds: std::ops::Range<u64>,
    options: &'static str,
    f: impl Fn(&Arc<Bed>) -> R + Copy + Send + 'static,
) -> Vec<R> {
    each_jittered(seeds, 0, options, f)
}

/// Runs `f` as [`each_seed`], but delays a thread for a while at one in `jitter` meetings of threads.
pub fn each_jittered<R: Send + 'static>(
    seeds: std::ops::Range<u64>,
    jitter: u32,
    options: &'static str,
    f: impl Fn(&Arc<Bed>) -> R + Copy + Send + 'static,
) -> Vec<R> {
    let run = |seed| {
        println!("seed {seed}, {options}");
        let quantum = tidegate_rt::Nanos(0);
        let config = sim::Config { seed, cpus: 4, quantum, jitter, ..Default::default() };
        sim::run_with(&config, move || f(&Arc::new(Bed::new(options)))).unwrap().value
    };
    seeds.map(run).collect()
}

impl Bed {
    fn new(options: &str) -> Bed {
        let memory = Arc::new(MemoryDevice::new(SIZE));
        let device = Faulty::new(memory.clone(), []);
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        mkfs::mkfs(&queue, &mkfs::MkfsOptions::default()).unwrap();
        let (fs, vfs) = mount(queue.clone(), options);
        Bed { memory, device, queue, fs, vfs }
    }

    /// Makes writes that `which` selects late from now on, and no other request.
    pub fn late(&self, which: impl Fn(&Request) -> bool + Send + Sync + 'static) {
        self.device.set([Rule::new(tidegate_block::Fault::Late(LATE)).op(Op::Write).when(which)]);
    }

    /// The byte range of the checkpoint packs.
    pub fn packs(&self) -> std::ops::Range<u64> {
        let areas = self.fs.info().unwrap().areas;
        u64::from(areas[0].1) * PAGE as u64..u64::from(areas[1].1) * PAGE as u64
    }

    pub fn open(&self, path: &str) -> File {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        self.vfs.open_path(ROOT, path.as_bytes(), flags, 0o644).unwrap()
    }

    /// Writes an inode's dirty pages, and waits for nothing.
    pub fn send(&self, f: &File) {
        self.vfs.fs().writepages(f.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
        self.vfs.bdi().submit_pending();
    }

    /// The volume after a power cut now, mounted.
    pub fn after_cut(&self) -> Arc<Vfs> {
        let mut bytes = vec![0; self.memory.size() as usize];
        self.memory.read_at(0, &mut bytes);
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        mount(Arc::new(RequestQueue::new(device, QueueLimits::default())), "").1
    }
}

fn mount(queue: Arc<RequestQueue>, options: &str) -> (Arc<F2fs>, Arc<Vfs>) {
    let mut o =
        F2fsOptions { background_gc: tidegate_f2fs::options::BackgroundGc::Off, ..Default::default() };
    o.parse(options).unwrap();
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open(queue, bdi.clone(), o).unwrap();
    let mount = MountOptions { no_periodic_writeback: true, noatime: true, ..Default::default() };
    let vfs = Vfs::mount(fs.clone(), bdi, mount).unwrap();
    (fs, vfs)
}

/// Virtual time that `f` takes.
pub fn took(f: impl FnOnce()) -> Duration {
    let from = clock::now();
    f();
    clock::now().since(from).duration()
}

/// Runs `f` in a thread, which has begun when this returns; its result is the time that `f` takes.
pub fn beside(bed: &Arc<Bed>, f: impl FnOnce(&Bed) + Send + 'static) -> thread::JoinHandle<Duration> {
    let b = bed.clone();
    let t = thread::spawn("beside", move || took(|| f(&b))).unwrap();
    thread::sleep(20 * MS);
    t
}
