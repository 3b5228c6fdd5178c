//! Volumes on zones, in memory.

use crate::common::image::Image;
use crate::common::volume::mount_with;
use std::sync::Arc;
use tidegate_block::zones::Zones;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue, ZoneSpec, ZonedDevice};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::rng::Rng;
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
pub const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
pub const MIB: u64 = 1 << 20;

/// Zones of 4 MiB behind 32 MiB that can be written anywhere.
pub fn spec(capacity: u64) -> ZoneSpec {
    ZoneSpec { size: 4 * MIB, capacity, conventional: 8, max_open: 8, max_active: 8 }
}

pub struct Bed {
    pub memory: Arc<MemoryDevice>,
    pub device: Arc<ZonedDevice>,
    spec: ZoneSpec,
}

impl Bed {
    pub fn new(spec: ZoneSpec, mib: u64) -> Bed {
        let memory = Arc::new(MemoryDevice::new(mib * MIB));
        let device = Arc::new(ZonedDevice::new(memory.clone(), spec));
        let queue = RequestQueue::new(device.clone(), QueueLimits::default());
        let options = MkfsOptions { features: Features::BLKZONED, ..Default::default() };
        mkfs(&queue, &options).unwrap();
        Bed { memory, device, spec }
    }

    /// A copy of the device with its zones: the state after a power cut that loses nothing.
    pub fn copy(&self) -> Bed {
        let memory = Image::of(&self.memory).device();
        let mut zones = Zones::new(self.spec, memory.size());
        let report = self.device.report_zones().unwrap();
        for (n, z) in report.iter().enumerate().filter(|z| z.1.is_sequential()) {
            zones.set_pointer(n, z.pointer);
        }
        let device = Arc::new(ZonedDevice::with_zones(memory.clone(), zones));
        Bed { memory, device, spec: self.spec }
    }

    pub fn mount(&self, options: &str) -> (Arc<F2fs>, Arc<Vfs>) {
        let mut o = F2fsOptions::default();
        o.parse(options).unwrap();
        mount_with(self.device.clone(), MemoryLimits::default(), o, MountOptions::default()).unwrap()
    }

    pub fn fsck(&self) {
        if tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.img");
        Image::of(&self.memory).save(&path);
        tidegate_testing::golden::fsck_f2fs(&path).unwrap();
    }
}

pub fn file(v: &Arc<Vfs>, name: &str) -> File {
    v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
}

pub fn content(n: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let word = rng.bits().to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}
