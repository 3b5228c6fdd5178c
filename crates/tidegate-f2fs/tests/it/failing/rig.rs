//! A volume on a device that fails by rule, and the states that a power cut would leave.

use std::sync::Arc;
use std::time::Duration;
use tidegate_block::*;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
pub const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
pub const PAGE: usize = 4096;
/// Every page of file data begins with these bytes.
pub const MAGIC: &[u8; 8] = b"file-dat";

static CACHE: LockClass = LockClass::new("test->cache", 989);

/// The kind of blocks in a write to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Data,
    Dir,
    Node,
    Sit,
    Nat,
    Ssa,
    /// Head, payload, orphans and summaries of a checkpoint.
    Pack,
    Tail,
    Flush,
}

/// First blocks of the areas.
#[derive(Clone, Copy)]
pub struct Areas([u32; 5]);

impl Areas {
    pub fn class(&self, rq: &Request) -> Option<Class> {
        let at = (rq.sector.bytes() / PAGE as u64) as u32;
        let area = self.0.iter().rposition(|first| at >= *first);
        Some(match (rq.op, area) {
            (Op::Flush, _) => Class::Flush,
            (Op::Write, Some(0)) if rq.flags.contains(BioFlags::FUA) => Class::Tail,
            (Op::Write, Some(n)) if n < 4 => [Class::Pack, Class::Sit, Class::Nat, Class::Ssa][n],
            (Op::Write, Some(_)) if rq.flags.contains(BioFlags::META) => Class::Node,
            (Op::Write, Some(_)) => {
                let mut data = true;
                rq.for_each_source(|s| data &= s.starts_with(MAGIC));
                if data { Class::Data } else { Class::Dir }
            }
            _ => return None,
        })
    }
}

/// A device with a cache: a power cut may lose what no flush has made durable.
struct Cached {
    memory: Arc<MemoryDevice>,
    state: Mutex<(MemoryDevice, Writes)>,
}

/// Writes: offset and bytes.
type Writes = Vec<(u64, Vec<u8>)>;

impl Cached {
    fn flush(&self) {
        let mut state = self.state.lock();
        let (durable, written) = &mut *state;
        written.drain(..).for_each(|(at, bytes)| durable.write_at(at, &bytes));
    }
}

impl Device for Cached {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo {
            name: "cached",
            size: self.memory.size(),
            read_only: false,
            backend: "memory",
            zones: None,
        }
    }

    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        if rq.op == Op::Flush || rq.flags.contains(BioFlags::PREFLUSH) {
            self.flush();
        }
        if rq.op == Op::Write {
            let mut bytes = Vec::new();
            rq.for_each_source(|s| bytes.extend_from_slice(s));
            self.state.lock().1.push((rq.sector.bytes(), bytes));
        }
        self.memory.execute(rq)?;
        if rq.flags.contains(BioFlags::FUA) {
            self.flush();
        }
        Ok(())
    }
}

/// A volume in memory and the layers below it: rules, a cache, the device.
pub struct FailingVolume {
    pub memory: Arc<MemoryDevice>,
    cached: Arc<Cached>,
    pub faulty: Arc<Faulty>,
    pub fs: Arc<F2fs>,
    pub vfs: Arc<Vfs>,
    pub areas: Areas,
}

/// Limits of memory that force pages out and back in.
pub const TIGHT: MemoryLimits =
    MemoryLimits { cache: 6 << 20, dirty: 3 << 20, background: 1 << 20, inodes: 64 };

impl FailingVolume {
    /// A device of `mib` MiB with a new volume.
    pub fn make(mib: u64, options: &MkfsOptions) -> Arc<MemoryDevice> {
        let memory = Arc::new(MemoryDevice::new(mib << 20));
        mkfs(&queue(memory.clone()), options).unwrap();
        memory
    }

    /// A new volume of `mib` MiB.
    pub fn new(mib: u64, options: &str) -> FailingVolume {
        Self::open(Self::make(mib, &MkfsOptions::default()), MemoryLimits::default(), options)
    }

    pub fn open(memory: Arc<MemoryDevice>, limits: MemoryLimits, options: &str) -> FailingVolume {
        let state = Mutex::new(&CACHE, (memory.copy(), Vec::new()));
        let cached = Arc::new(Cached { memory: memory.clone(), state });
        let faulty = Faulty::new(cached.clone(), []);
        let (fs, vfs) = mount(faulty.clone(), limits, options).unwrap();
        let areas = Areas(fs.info().unwrap().areas.map(|a| a.1));
        FailingVolume { memory, cached, faulty, fs, vfs, areas }
    }

    /// A rule for writes of one class.
    pub fn rule(&self, class: Class, fault: Fault) -> Rule {
        let areas = self.areas;
        Rule::new(fault).when(move |rq| areas.class(rq) == Some(class))
    }

    /// The images after a power cut now: with all writes done, and with only those that a flush made durable.
    pub fn images(&self) -> [Arc<MemoryDevice>; 2] {
        let state = self.cached.state.lock();
        [Arc::new(self.memory.copy()), Arc::new(state.0.copy())]
    }

    pub fn file(&self, path: &str) -> File {
        self.vfs.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
    }

    pub fn why_stopped(&self) -> Option<Error> {
        match FileSystem::read_only(&*self.fs)? {
            ReadOnly::Stopped(e) => Some(e),
            other => panic!("read-only, and not stopped: {other}"),
        }
    }
}

pub fn queue(device: Arc<dyn Device>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device, QueueLimits::default()))
}

pub fn mount(device: Arc<dyn Device>, limits: MemoryLimits, options: &str) -> Result<(Arc<F2fs>, Arc<Vfs>)> {
    let mut o = F2fsOptions::default();
    o.parse(options).unwrap();
    let bdi = Bdi::new(limits);
    let fs = F2fs::open(queue(device), bdi.clone(), o)?;
    let mount = MountOptions { no_periodic_writeback: true, noatime: true, ..Default::default() };
    let vfs = Vfs::mount(fs.clone(), bdi, mount)?;
    Ok((fs, vfs))
}

/// Asserts that both checkers find nothing; the stock checker runs only if `stock` is set, since it is slow.
pub fn judge(device: &Arc<MemoryDevice>, stock: bool, what: &str) {
    let report = check(&queue(device.clone()), CheckOptions::default()).unwrap();
    if !report.is_clean()
        && let Some(keep) = std::env::var_os("TIDEGATE_KEEP")
    {
        crate::common::volume::Image::of(device).save(keep.as_ref());
    }
    assert!(report.is_clean(), "{what}: {:#?}", report.problems);
    if stock && !tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
        crate::common::volume::fsck(device).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Opens the state after a power cut, calls `look`, unmounts and judges.
pub fn reopen(image: Arc<MemoryDevice>, stock: bool, what: &str, look: impl FnOnce(&Arc<Vfs>)) {
    let (fs, vfs) = mount(image.clone(), MemoryLimits::default(), "").unwrap();
    assert_eq!(FileSystem::read_only(&*fs), None);
    look(&vfs);
    vfs.unmount().unwrap();
    drop((fs, vfs));
    judge(&image, stock, what);
}

/// A page's bytes: its identity and its version.
pub fn page(file: u64, index: u64, version: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let word = (file << 48 ^ index << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version as u64;
    while out.len() < PAGE {
        out.extend(word.to_le_bytes());
    }
    out
}

/// The lowest and the highest version among the parts of a page: a page that is overwritten in place may be
/// partly new. 0 for zeros.
///
/// # Panics
/// When a part belongs to no version of this page.
pub fn versions_of(file: u64, index: u64, bytes: &[u8], what: &str) -> (u32, u32) {
    if bytes.iter().all(|b| *b == 0) {
        return (0, 0);
    }
    let versions = bytes[8..].chunks(8).map(|word| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        let version = word ^ (file << 48 ^ index << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        assert!(
            bytes.starts_with(MAGIC) && (1..1 << 20).contains(&version),
            "{what}: page {index} of file {file} holds garbage: {:02x?}",
            &bytes[..32]
        );
        version
    });
    versions.fold((u32::MAX, 0), |(a, b), v| (a.min(v), b.max(v)))
}

pub fn read_page(f: &File, index: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    let n = f.read_at(index * PAGE as u64, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The longest that a case may take before it counts as hanging.
pub const LIMIT: Duration = Duration::from_secs(120);
