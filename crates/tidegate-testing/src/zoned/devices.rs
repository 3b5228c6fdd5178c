//! The devices of a volume: for a guest, and for one of our engines.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use tidegate_block::zones::Zones;
use tidegate_block::{self as block, Device, Linear, ZoneSpec, ZoneState, ZonedDevice, file};

use super::image::{Condition, Geometry, Image, Zone};
use super::machine::Machine;
use crate::golden::sparse_copy;

/// Size of a new disk before a zoned device, in bytes.
const DISK: u64 = 64 << 20;

/// The files of a volume's devices: an [`Image`] and, where the image has no conventional zones, a disk
/// before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// The first device, where that is not the zoned device.
    pub disk: Option<PathBuf>,
    /// Data of the zoned device; [`Image::open`] has its zones.
    pub zoned: PathBuf,
}

impl Devices {
    /// Makes empty devices in a directory.
    ///
    /// # Errors
    /// There can be no such device; the host's.
    pub fn create(dir: &Path, geometry: Geometry) -> Result<Devices> {
        let zoned = dir.join("zoned.img");
        Image::create(&zoned, geometry)?;
        let disk = (geometry.conventional == 0).then(|| dir.join("disk.img"));
        if let Some(disk) = &disk {
            File::create(disk).and_then(|f| f.set_len(DISK)).with_context(|| disk.display().to_string())?;
        }
        Ok(Devices { disk, zoned })
    }

    /// Copies the devices to a directory and keeps holes.
    ///
    /// # Errors
    /// The host's.
    pub fn copy_to(&self, dir: &Path) -> Result<Devices> {
        let disk = self.disk.as_ref().map(|_| dir.join("disk.img"));
        for (from, to) in self.disk.iter().zip(&disk) {
            sparse_copy(from, to)?;
        }
        let zoned = dir.join("zoned.img");
        Image::open(&self.zoned)?.copy_to(&zoned)?;
        Ok(Devices { disk, zoned })
    }

    /// A guest with these devices; the first is `$DEV`.
    pub fn machine(&self) -> Machine {
        self.disk.iter().fold(Machine::new(), Machine::disk).zoned(&self.zoned)
    }

    /// The names of the devices in a guest, and their sizes in bytes. The superblock of a volume on several
    /// devices holds these names.
    ///
    /// # Errors
    /// The host's.
    pub fn named(&self) -> Result<Vec<(&'static str, u64)>> {
        let zoned = match &self.disk {
            Some(_) => "/dev/nvme0n1",
            None => "/dev/nullb0",
        };
        let mut all = Vec::new();
        for (path, name) in self.disk.iter().map(|d| (d, "/dev/vda")).chain([(&self.zoned, zoned)]) {
            all.push((name, path.metadata().with_context(|| path.display().to_string())?.len()));
        }
        Ok(all)
    }

    /// Opens the devices as one device, with the zones as they are listed.
    ///
    /// # Errors
    /// The zones are unknown, or in a state that no device of ours is in; the host's.
    pub fn open(&self) -> Result<Opened> {
        let image = Image::open(&self.zoned)?;
        let below = file::open(&self.zoned, options()).context("the zoned device")?;
        let zoned = Arc::new(ZonedDevice::with_zones(below, zones(&image)?));
        let mut device: Arc<dyn Device> = zoned.clone();
        if let Some(disk) = &self.disk {
            let disk = file::open(disk, options()).context("the disk")?;
            let sizes = (disk.size(), zoned.size());
            let both = Linear::new(vec![(disk, sizes.0), (zoned.clone(), sizes.1)]);
            device = Arc::new(both.context("the disk is no whole number of zones")?);
        }
        Ok(Opened { device, zoned, image })
    }
}

/// Open devices. The list of their zones is not updated until [`Opened::save`].
pub struct Opened {
    /// All devices as one.
    pub device: Arc<dyn Device>,
    /// The zoned device.
    pub zoned: Arc<ZonedDevice>,
    image: Image,
}

impl Opened {
    /// Lists the zones as they are now. No request may be in flight.
    ///
    /// # Errors
    /// The host's.
    pub fn save(&self) -> Result<Image> {
        let zones = self.zoned.report_zones().map_err(|e| anyhow::anyhow!("a report of zones: {e:?}"))?;
        let zones = zones.iter().map(listed).collect();
        Image::adopt(&self.image.path, self.image.geometry, zones)
    }
}

/// The page cache is not bypassed: guests go through it, too.
fn options() -> file::OpenOptions {
    file::OpenOptions { direct: false, ..Default::default() }
}

/// The zones of a list in the form of our engines.
fn zones(image: &Image) -> Result<Zones> {
    let Geometry { zone_size, capacity, conventional, max_open, max_active, .. } = image.geometry;
    let most = |n: u32| if n == 0 { usize::MAX } else { n as usize };
    let spec = ZoneSpec {
        size: zone_size,
        capacity,
        conventional: conventional as usize,
        max_open: most(max_open),
        max_active: most(max_active),
    };
    let mut zones = Zones::new(spec, image.geometry.size());
    for (n, zone) in image.zones.iter().enumerate() {
        match zone.condition {
            Condition::Conventional | Condition::Empty => {}
            Condition::Open | Condition::Closed | Condition::Full => {
                zones.set_pointer(n, zone.start + zone.written);
            }
            Condition::ReadOnly | Condition::Offline => anyhow::bail!("{zone:?} is lost"),
        }
    }
    Ok(zones)
}

fn listed(zone: &block::Zone) -> Zone {
    let (written, condition) = match zone.state {
        ZoneState::Conventional => (0, Condition::Conventional),
        ZoneState::Empty => (0, Condition::Empty),
        ZoneState::Open => (zone.pointer - zone.start, Condition::Open),
        ZoneState::Closed => (zone.pointer - zone.start, Condition::Closed),
        ZoneState::Full => (zone.capacity, Condition::Full),
        ZoneState::ReadOnly => (zone.capacity, Condition::ReadOnly),
        ZoneState::Offline => (0, Condition::Offline),
    };
    Zone { start: zone.start, capacity: zone.capacity, written, condition }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;
    use tidegate_block::{Bio, BioFlags, Op, PageBuf, QueueLimits, RequestQueue, Sector, Segment};

    fn run(queue: &RequestQueue, bio: Bio) {
        queue.submit_wait(bio).unwrap();
    }

    #[test]
    fn zones_are_kept_from_one_opening_to_the_next() {
        let dir = TempDir::new("devices").unwrap();
        let geometry = Geometry { zones: 4, capacity: 12 << 20, ..Geometry::DEFAULT };
        let devices = Devices::create(dir.path(), geometry).unwrap();
        let first = DISK;
        let page = |pos: u64| {
            let buf = Arc::new(PageBuf::from_slice(&[7; 4096]));
            let segment = Segment { buf, offset: 0, len: 4096 };
            Bio::write(Sector::from_bytes(pos), vec![segment], BioFlags::empty())
        };
        let opened = devices.open().unwrap();
        let queue = RequestQueue::new(opened.device.clone(), QueueLimits::default());
        run(&queue, page(0));
        run(&queue, page(first));
        run(&queue, page(first + (16 << 20)));
        run(
            &queue,
            Bio::range(Op::ZoneFinish, Sector::from_bytes(first + (16 << 20)), 16 << 20, BioFlags::empty()),
        );
        drop(queue);
        let saved = opened.save().unwrap();
        drop(opened);
        assert_eq!(Image::open(&devices.zoned).unwrap(), saved);
        let found: Vec<_> = saved.zones.iter().map(|z| (z.written, z.condition)).collect();
        let (open, full, empty) = (Condition::Open, Condition::Full, Condition::Empty);
        assert_eq!(found, [(4096, open), (12 << 20, full), (0, empty), (0, empty)]);

        let opened = devices.open().unwrap();
        let queue = RequestQueue::new(opened.device.clone(), QueueLimits::default());
        run(&queue, page(first + 4096));
        assert_eq!(opened.zoned.refused(), 0);
        assert_eq!(opened.save().unwrap().zones[0].written, 8192);
    }
}
