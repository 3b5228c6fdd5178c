//! The demands of a zoned device on a volume.

use super::layout::DeviceZones;
use super::{MkfsError, MkfsOptions};
use crate::format::raw::{BLOCK_SIZE, BLOCKS_PER_SEG, Features};
use crate::segment::zones::MIN_ACTIVE;
use tidegate_block::{Device, SECTOR_SIZE, Zone, ZoneState};

/// A device's zones.
pub(super) struct OnDevice {
    pub of_layout: DeviceZones,
    pub list: Vec<Zone>,
}

/// The options for a volume on `device`, and the device's zones. If the device has zones, the sections are
/// its zones.
pub(super) fn on_device(
    device: &dyn Device,
    options: &MkfsOptions,
) -> Result<(MkfsOptions, Option<OnDevice>), MkfsError> {
    let mut options = options.clone();
    let bytes: u64 = options.devices.iter().map(|d| d.bytes).sum();
    if !options.devices.is_empty() && bytes != device.size() {
        return Err(MkfsError::BadDevices);
    }
    let Some(zoning) = device.info().zones else { return Ok((options, None)) };
    if !options.has(Features::BLKZONED) {
        return Err(MkfsError::Zoned(device.name().into()));
    }
    if zoning.max_active < MIN_ACTIVE {
        return Err(MkfsError::FewActiveZones(zoning.max_active));
    }
    let segment = u64::from(BLOCKS_PER_SEG) * BLOCK_SIZE as u64;
    let mut list = device.report_zones().map_err(|e| MkfsError::Io {
        what: "report zones",
        block: Default::default(),
        source: e,
    })?;
    // A device may end with a partial zone: no section lies there.
    list.pop_if(|z| z.len < zoning.size);
    check_states(&list, &options)?;
    let sequential: Vec<&Zone> = list.iter().filter(|z| z.is_sequential()).collect();
    let capacity = sequential.first().map_or(zoning.size, |z| z.capacity);
    let same = sequential.iter().all(|z| z.capacity == capacity);
    let fits = zoning.size.is_multiple_of(segment)
        && capacity >= segment
        && capacity.is_multiple_of(BLOCK_SIZE as u64);
    let segs_per_sec = u32::try_from(zoning.size / segment).unwrap_or(0);
    if !fits || !same || options.segs_per_sec != 1 && options.segs_per_sec != segs_per_sec {
        return Err(MkfsError::BadDeviceZones { size: zoning.size, capacity });
    }
    options.segs_per_sec = segs_per_sec;
    let blocks = |bytes: u64| bytes / BLOCK_SIZE as u64;
    let of_layout = DeviceZones { first: blocks(zoning.first), capacity: blocks(capacity) };
    Ok((options, Some(OnDevice { of_layout, list })))
}

/// Refuses zones that no volume can have: zones that take no writes, and zones that can be written anywhere
/// behind zones that cannot.
fn check_states(list: &[Zone], options: &MkfsOptions) -> Result<(), MkfsError> {
    let place = |z: &Zone| {
        let mut start = z.start;
        for d in &options.devices {
            if start < d.bytes {
                return format!("at sector {:#x} of {}", start / SECTOR_SIZE, d.path);
            }
            start -= d.bytes;
        }
        format!("at sector {:#x}", start / SECTOR_SIZE)
    };
    if let Some(z) = list.iter().find(|z| z.state.is_dead()) {
        let state = if z.state == ZoneState::ReadOnly { "read-only" } else { "offline" };
        return Err(MkfsError::DeadZone { place: place(z), state });
    }
    let mut behind = list.iter().skip_while(|z| !z.is_sequential());
    match behind.find(|z| !z.is_sequential()) {
        Some(z) => Err(MkfsError::LateConventional(place(z))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::mkfs::mkfs;
    use std::sync::Arc;
    use tidegate_block::{
        DeviceInfo, Errno, MemoryDevice, QueueLimits, Request, RequestQueue, ZoneSpec, ZonedDevice,
    };

    /// A device that ends with half a zone.
    struct EndsShort(ZonedDevice);

    const ZONE: u64 = 4 << 20;

    impl Device for EndsShort {
        fn info(&self) -> DeviceInfo<'_> {
            let info = self.0.info();
            DeviceInfo { size: info.size + ZONE / 2, ..info }
        }

        fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
            let mut zones = self.0.report_zones()?;
            let start = self.0.size();
            let (len, state) = (ZONE / 2, ZoneState::Empty);
            zones.push(Zone { start, len, capacity: len, pointer: start, state });
            Ok(zones)
        }

        fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
            self.0.execute(rq)
        }
    }

    #[test]
    fn a_part_of_a_zone_at_the_end_is_left_out() {
        let spec = ZoneSpec { size: ZONE, capacity: ZONE, conventional: 8, max_open: 12, max_active: 12 };
        let options = MkfsOptions { features: Features::BLKZONED, ..Default::default() };
        let layout = |device: Arc<dyn Device>| {
            mkfs(&RequestQueue::new(device, QueueLimits::default()), &options).unwrap().layout
        };
        let whole = || ZonedDevice::new(Arc::new(MemoryDevice::new(40 * ZONE)), spec);
        let (short, whole) = (layout(Arc::new(EndsShort(whole()))), layout(Arc::new(whole())));
        assert_eq!((short.section_count, short.main), (whole.section_count, whole.main));
    }
}
