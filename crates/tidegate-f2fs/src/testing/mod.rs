//! A small new volume in memory, for unit tests that look inside.

pub(crate) mod hold;

use crate::format::raw::{BLOCKS_PER_SEG, Features};
use crate::format::units::SegNo;
use crate::offline::mkfs::{MkfsOptions, mkfs};
use crate::segment::log::Log;
use crate::{F2fs, F2fsOptions};
use std::sync::Arc;
use tidegate_block::{Device, Faulty, MemoryDevice, QueueLimits, RequestQueue, ZoneSpec, ZonedDevice};
use tidegate_vfs::{Bdi, MemoryLimits, MountOptions, Vfs};

/// An open volume and the device below it, which can be made to fail.
pub(crate) struct Open {
    pub device: Arc<Faulty>,
    pub fs: Arc<F2fs>,
    pub vfs: Arc<Vfs>,
}

/// Makes a volume of 64 MiB and opens it; nothing in it depends on the clock.
pub(crate) fn new_volume() -> Open {
    new_volume_on(Arc::new(MemoryDevice::new(64 << 20)))
}

/// A new volume on another device.
pub(crate) fn new_volume_on(below: Arc<dyn Device>) -> Open {
    new_volume_behind(below, QueueLimits::default())
}

/// A new volume behind a queue with these limits.
pub(crate) fn new_volume_behind(below: Arc<dyn Device>, limits: QueueLimits) -> Open {
    new_volume_with(below, limits, &MkfsOptions::default())
}

/// A new volume of `bytes` bytes, made with these options.
pub(crate) fn new_volume_of(bytes: u64, options: &MkfsOptions) -> Open {
    new_volume_with(Arc::new(MemoryDevice::new(bytes)), QueueLimits::default(), options)
}

/// A new volume of 160 MiB on zones of 4 MiB. The first eight zones can be written anywhere, and `max_active`
/// zones may be active.
pub(crate) fn new_volume_on_zones(max_active: usize) -> (Open, Arc<ZonedDevice>) {
    new_volume_on_zones_of(max_active, 4 << 20)
}

/// A new volume on zones with `capacity` writable bytes.
pub(crate) fn new_volume_on_zones_of(max_active: usize, capacity: u64) -> (Open, Arc<ZonedDevice>) {
    let spec = ZoneSpec { size: 4 << 20, capacity, conventional: 8, max_open: max_active, max_active };
    let device = Arc::new(ZonedDevice::new(Arc::new(MemoryDevice::new(160 << 20)), spec));
    let options = MkfsOptions { features: Features::BLKZONED, ..Default::default() };
    (new_volume_with(device.clone(), QueueLimits::default(), &options), device)
}

fn new_volume_with(below: Arc<dyn Device>, limits: QueueLimits, options: &MkfsOptions) -> Open {
    mkfs(&RequestQueue::new(below.clone(), QueueLimits::default()), options).unwrap();
    let device = Faulty::new(below, []);
    let queue = Arc::new(RequestQueue::new(device.clone(), limits));
    let bdi = Bdi::new(MemoryLimits::default());
    let options = F2fsOptions { deterministic: true, ..Default::default() };
    let fs = F2fs::open(queue, bdi.clone(), options).unwrap();
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    let vfs = Vfs::mount(fs.clone(), bdi, mount).unwrap();
    Open { device, fs, vfs }
}

/// Makes the SIT take the free segments for which `which` is true for wholly used by data.
pub(crate) fn fill_segments(fs: &F2fs, which: impl Fn(u32) -> bool) {
    let free = |n: &u32| fs.sit.with(|s| !s.is_current(*n)) && fs.sit.get(SegNo(*n)).unwrap().valid == 0;
    for segno in (0..fs.sb.main_segments).filter(|n| which(*n)).filter(free) {
        let start = fs.sit.segment_start(SegNo(segno));
        fs.sit.claim(start, Log::WarmData).unwrap();
        fs.sit.allocated(start.plus(1), BLOCKS_PER_SEG - 1, Log::WarmData).unwrap();
    }
}
