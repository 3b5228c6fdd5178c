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

/// The options for a volume on `device`, whose zones, if it has any, are its sections; and those zones.
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
    let list = device.report_zones().map_err(|e| MkfsError::Io {
        what: "report zones",
        block: Default::default(),
        source: e,
    })?;
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

/// Refuses zones that no volume has: such as take no writes, and such as can be written anywhere behind others that
/// cannot.
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
