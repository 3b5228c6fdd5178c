//! A new volume on a device model, made to measure.

use super::VolumeTarget;
use crate::error::{Error, Result};
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::{Elevator, NewVolume, OpenOptions, Volume};
use tidegate_block::{Device, Model, Preset, QueueLimits, RequestQueue};
use tidegate_vfs::MemoryLimits;

/// What the volume is made of. In simulated time, equal rigs are equal volumes.
#[derive(Clone, Debug)]
pub struct Rig {
    /// The device.
    pub preset: Preset,
    /// Its size in bytes.
    pub size: u64,
    /// The volume's format.
    pub format: Format,
    /// What decides the order of requests.
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
        Rig { preset, size, format, elevator, options: String::new(), memory }
    }

    /// Makes the device and the volume and mounts it, in the calling thread's world.
    ///
    /// # Errors
    /// Options that are none, a size that makes no volume.
    pub fn build(&self) -> Result<VolumeTarget> {
        self.on(Model::new(self.preset, self.size), self.preset.spec().queue_limits())
    }

    /// The same on another device.
    ///
    /// # Errors
    /// As [`Rig::build`]; those of the device.
    pub fn on(&self, device: Arc<dyn Device>, limits: QueueLimits) -> Result<VolumeTarget> {
        let name = device.name().to_string();
        let mut open = OpenOptions { memory: self.memory, ..OpenOptions::default() };
        open.parse(&self.options).map_err(|e| Error::spec(format!("{}: {e}", self.options)))?;
        let queue = RequestQueue::with_elevator(device, limits, self.elevator);
        let uuid = Some(*b"tidegate lab rig");
        NewVolume { format: self.format, uuid, ..NewVolume::default() }.make(&name, &queue)?;
        Ok(VolumeTarget::new(Volume::from_queue(&name, Arc::new(queue), &open)?))
    }
}
