//! A new volume on a device model, made to measure.

use super::VolumeTarget;
use crate::error::{Error, Result};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::{Elevator, NewVolume, OpenOptions, Volume};
use tidegate_block::model::Spec;
use tidegate_block::{Device, Model, Preset, QueueLimits, RequestQueue};
use tidegate_vfs::MemoryLimits;

/// Bytes of a segment of F2FS.
const SEGMENT: u64 = 2 << 20;

/// The parts of a volume. In simulated time, equal rigs are equal volumes.
#[derive(Clone, Debug)]
pub struct Rig {
    /// The device.
    pub preset: Preset,
    /// Its size in bytes.
    pub size: u64,
    /// The device has its zones, which are the volume's sections. Otherwise such a device keeps its rates,
    /// and takes writes anywhere.
    pub zoned: bool,
    /// Zones and sections are this many times shorter than the device's, so that a few GiB have many zones.
    pub shorter: u64,
    /// The volume's format.
    pub format: Format,
    /// The order of requests.
    pub elevator: Elevator,
    /// Mount options, as `writepages=locked,sync_wait=caller`.
    pub options: String,
    /// Memory of the volume.
    pub memory: MemoryLimits,
}

impl Rig {
    /// A volume of `size` bytes with defaults.
    pub fn new(preset: Preset, size: u64) -> Self {
        let (elevator, memory) = (Elevator::None, MemoryLimits::default());
        let format = Format::default();
        Rig { preset, size, zoned: false, shorter: 1, format, elevator, options: String::new(), memory }
    }

    /// Makes the device and the volume and mounts it, in the calling thread's world.
    ///
    /// # Errors
    /// Invalid options, a size that makes no volume.
    pub fn build(&self) -> Result<VolumeTarget> {
        let spec = self.spec();
        let spec = Spec { zones: spec.zones.filter(|_| self.zoned), ..spec };
        self.on(Model::with_spec(self.preset.name(), spec, self.size), spec.queue_limits())
    }

    fn spec(&self) -> Spec {
        match self.shorter {
            1 => self.preset.spec(),
            by => self.preset.spec().with_shorter_zones(by),
        }
    }

    /// Segments of a section: on a device with zones, as many as a zone.
    fn section(&self) -> Option<u32> {
        let zone = self.spec().zones.filter(|_| self.format == Format::F2fs)?;
        u32::try_from(zone.size / SEGMENT).ok()
    }

    /// The volume on another device.
    ///
    /// # Errors
    /// As [`Rig::build`]; those of the device.
    pub fn on(&self, device: Arc<dyn Device>, limits: QueueLimits) -> Result<VolumeTarget> {
        let name = device.name().to_string();
        let mut open = OpenOptions { memory: self.memory, ..OpenOptions::default() };
        open.parse(&self.options).map_err(|e| Error::spec(format!("{}: {e}", self.options)))?;
        let queue = RequestQueue::with_elevator(device, limits, self.elevator);
        let uuid = Some(*b"tidegate lab rig");
        let segments_per_section = self.section();
        let zoned = self.zoned;
        NewVolume { format: self.format, uuid, segments_per_section, zoned, ..NewVolume::default() }
            .make(&name, &queue)?;
        Ok(VolumeTarget::new(Volume::from_queue(name, Arc::new(queue), &open)?))
    }
}
