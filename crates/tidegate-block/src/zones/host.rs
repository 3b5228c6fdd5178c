//! Zones of the host's block devices.
//!
//! Writes to such a device go around the host's page cache, which would send them in any order.

use super::{Zone, ZoneState, Zoning};
use crate::{Errno, SECTOR_SIZE};
use rustix::fs::{FileType, Stat, major, minor};
use std::os::fd::AsFd;
use tidegate_sys::zoned::{self, Operation, condition, kind};

/// The geometry of the zones of an opened file. `None` where the file is no device with zones that are
/// written in order.
///
/// # Errors
/// The kernel's, for a device whose zones cannot be reported.
pub(crate) fn zoning(file: impl AsFd, st: &Stat) -> Result<Option<Zoning>, Errno> {
    if FileType::from_raw_mode(st.st_mode) != FileType::BlockDevice {
        return Ok(None);
    }
    // A kernel without support for zones does not know the ioctl.
    let Some(size) = zoned::zone_sectors(&file).ok().filter(|n| *n > 0) else { return Ok(None) };
    let zones = report(&file)?;
    let Some(first) = zones.iter().find(|z| z.is_sequential()) else { return Ok(None) };
    let limit = |name: &str| {
        let path = format!("/sys/dev/block/{}:{}/queue/{name}", major(st.st_rdev), minor(st.st_rdev));
        let said = std::fs::read_to_string(path).ok().and_then(|s| s.trim().parse().ok());
        // 0 means that there is no bound.
        said.filter(|n| *n > 0).unwrap_or(usize::MAX)
    };
    let (max_open, max_active) = (limit("max_open_zones"), limit("max_active_zones"));
    Ok(Some(Zoning { first: first.start, size: u64::from(size) * SECTOR_SIZE, max_open, max_active }))
}

/// All zones of a device, by address.
///
/// # Errors
/// The kernel's.
pub(crate) fn report(file: impl AsFd) -> Result<Vec<Zone>, Errno> {
    Ok(zoned::report(file)?.iter().map(zone).collect())
}

/// The zone that byte `pos` is in.
///
/// # Errors
/// The kernel's.
pub(crate) fn report_one(file: impl AsFd, pos: u64) -> Result<Option<Zone>, Errno> {
    Ok(zoned::report_one(file, pos / SECTOR_SIZE)?.as_ref().map(zone))
}

/// A zone as the kernel reports it, in bytes.
fn zone(z: &zoned::Zone) -> Zone {
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_SIZE);
    let (start, len) = (bytes(z.start), bytes(z.len));
    // A zone that merely prefers sequential writes takes writes anywhere.
    if z.kind != kind::SEQUENTIAL {
        return Zone::conventional(start, len);
    }
    let capacity = if z.capacity == 0 { len } else { bytes(z.capacity).min(len) };
    let state = match z.condition {
        condition::EMPTY => ZoneState::Empty,
        condition::OPENED_BY_WRITE | condition::OPENED => ZoneState::Open,
        condition::CLOSED => ZoneState::Closed,
        condition::FULL => ZoneState::Full,
        condition::READ_ONLY => ZoneState::ReadOnly,
        _ => ZoneState::Offline,
    };
    let pointer = match state {
        ZoneState::Empty => start,
        // The kernel reports no write pointer for these.
        ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => start + capacity,
        _ => bytes(z.pointer).clamp(start, start + capacity),
    };
    Zone { start, len, capacity, pointer, state }
}

/// Resets or finishes the zones of a range, in bytes.
///
/// # Errors
/// The kernel's.
pub(crate) fn manage(file: impl AsFd, operation: Operation, start: u64, len: u64) -> Result<(), Errno> {
    zoned::manage(file, operation, start / SECTOR_SIZE, len / SECTOR_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zones as null_blk and QEMU's nvme report them.
    #[test]
    fn a_report_is_read() {
        let of = |kind, condition, pointer, capacity| {
            let mut z = zoned::Zone::default();
            (z.start, z.len, z.capacity, z.pointer) = (0x8000, 0x8000, capacity, pointer);
            (z.kind, z.condition) = (kind, condition);
            let z = zone(&z);
            assert_eq!((z.start, z.len), (16 << 20, 16 << 20));
            (z.capacity, z.pointer, z.state)
        };
        let mib = |n: u64| n << 20;
        assert_eq!(of(1, 0, u64::MAX, 0x8000), (mib(16), mib(16), ZoneState::Conventional));
        assert_eq!(of(3, 1, 0x8000, 0x8000).2, ZoneState::Conventional);
        assert_eq!(of(2, 1, 0x8000, 0x6000), (mib(12), mib(16), ZoneState::Empty));
        assert_eq!(of(2, 2, 0x8800, 0x6000), (mib(12), mib(17), ZoneState::Open));
        assert_eq!(of(2, 3, 0x8000, 0x6000), (mib(12), mib(16), ZoneState::Open));
        assert_eq!(of(2, 4, 0x8800, 0), (mib(16), mib(17), ZoneState::Closed));
        assert_eq!(of(2, 0xe, u64::MAX, 0x6000), (mib(12), mib(28), ZoneState::Full));
        for (condition, state) in [(0xd, ZoneState::ReadOnly), (0xf, ZoneState::Offline)] {
            assert_eq!(of(2, condition, 0, 0x6000), (mib(12), mib(28), state));
        }
    }
}
