//! Zoned block devices of the host: the ioctls of `linux/blkzoned.h`, in sectors of 512 bytes.

use crate::{Errno, last_errno};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A zone, as the kernel reports it (`struct blk_zone`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Zone {
    /// Its first sector.
    pub start: u64,
    /// Sectors to the next zone.
    pub len: u64,
    /// The sector where the next write must begin.
    pub pointer: u64,
    /// One of [`kind`].
    pub kind: u8,
    /// One of [`condition`].
    pub condition: u8,
    non_seq: u8,
    reset: u8,
    reserved: [u8; 4],
    /// Sectors that can be written. 0 where the kernel is older than 5.9; then the whole zone can be written.
    pub capacity: u64,
    more: [u8; 24],
}

/// Kinds of zones (`enum blk_zone_type`).
#[allow(missing_docs)] // each names it
pub mod kind {
    pub const CONVENTIONAL: u8 = 1;
    pub const SEQUENTIAL: u8 = 2;
    pub const SEQUENTIAL_PREFERRED: u8 = 3;
}

/// Conditions of zones (`enum blk_zone_cond`).
#[allow(missing_docs)] // each names it
pub mod condition {
    pub const NO_POINTER: u8 = 0;
    pub const EMPTY: u8 = 1;
    pub const OPENED_BY_WRITE: u8 = 2;
    pub const OPENED: u8 = 3;
    pub const CLOSED: u8 = 4;
    pub const READ_ONLY: u8 = 0xd;
    pub const FULL: u8 = 0xe;
    pub const OFFLINE: u8 = 0xf;
}

/// The number of zones of one report: 64 KiB.
const AT_ONCE: usize = 1023;

/// A report as the kernel fills it (`struct blk_zone_report`).
#[repr(C)]
struct Report<const N: usize> {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [Zone; N],
}

impl<const N: usize> Report<N> {
    /// Room for a report of the zones from that of `sector` on.
    fn from(sector: u64) -> Self {
        Report { sector, count: 0, flags: 0, zones: [Zone::default(); N] }
    }

    /// Asks the kernel for as many zones as there is room for.
    fn ask(&mut self, fd: RawFd) -> Result<&[Zone], Errno> {
        (self.count, self.flags) = (N as u32, 0);
        // SAFETY: the kernel writes the header and at most `count` zones, for which there is room behind the header;
        // the report outlives the call, and any bytes are a valid report.
        if unsafe { libc::ioctl(fd, REPORT as _, &raw mut *self) } != 0 {
            return Err(last_errno(Errno::IO));
        }
        self.zones.get(..self.count as usize).ok_or(Errno::IO)
    }
}

/// Consecutive zones (`struct blk_zone_range`).
#[repr(C)]
struct Range {
    sector: u64,
    sectors: u64,
}

/// The number of an ioctl of the block layer, from direction, bytes of its argument, and its index.
const fn number(direction: u32, bytes: usize, n: u32) -> u32 {
    const BLOCK: u32 = 0x12;
    direction << 30 | (bytes as u32) << 16 | BLOCK << 8 | n
}

const WRITE: u32 = 1;
const READ: u32 = 2;
/// Only the header of the report counts for the size in the number.
const REPORT: u32 = number(READ | WRITE, 16, 130);
const RESET: u32 = number(WRITE, size_of::<Range>(), 131);
const ZONE_SECTORS: u32 = number(READ, size_of::<u32>(), 132);
const OPEN: u32 = number(WRITE, size_of::<Range>(), 134);
const CLOSE: u32 = number(WRITE, size_of::<Range>(), 135);
const FINISH: u32 = number(WRITE, size_of::<Range>(), 136);

/// An operation on zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The zones become empty.
    Reset,
    /// The zones are open until they are closed, finished or reset.
    Open,
    /// The zones are no longer open, but still take writes.
    Close,
    /// The zones become full, and take no more writes.
    Finish,
}

/// The number of sectors from one zone to the next; 0 for a device without zones.
///
/// # Errors
/// `ENOTTY` where the file is no block device, or the kernel does not support zones.
pub fn zone_sectors(device: impl AsFd) -> Result<u32, Errno> {
    let mut sectors = 0u32;
    // SAFETY: the kernel writes one u32, which outlives the call.
    let done = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), ZONE_SECTORS as _, &raw mut sectors) };
    if done == 0 { Ok(sectors) } else { Err(last_errno(Errno::NOTTY)) }
}

/// All zones of a device, by address.
///
/// # Errors
/// The kernel's: `ENOTTY` where the file is no block device, `EOPNOTSUPP` for a device without zones.
pub fn report(device: impl AsFd) -> Result<Vec<Zone>, Errno> {
    let fd = device.as_fd().as_raw_fd();
    let mut zones = Vec::new();
    let mut report = Box::new(Report::<AT_ONCE>::from(0));
    loop {
        let asked = report.sector;
        let found = report.ask(fd)?;
        let Some(last) = found.last() else { return Ok(zones) };
        // If the reported zones did not advance, the loop would never end.
        let next = last.start.checked_add(last.len).filter(|n| *n > asked).ok_or(Errno::IO)?;
        zones.extend_from_slice(found);
        report.sector = next;
    }
}

/// The zone of a sector. `None` past the end of the device.
///
/// # Errors
/// As [`report`].
pub fn report_one(device: impl AsFd, sector: u64) -> Result<Option<Zone>, Errno> {
    let mut report = Report::<1>::from(sector);
    Ok(report.ask(device.as_fd().as_raw_fd())?.first().copied())
}

/// Executes an operation on the zones in `sectors` sectors from `sector` on, and waits for it.
///
/// # Errors
/// The kernel's: `EINVAL` where the range is no whole number of zones, `EREMOTEIO` and `EIO` from the device, `EBADF`
/// where the device is open only for reading.
pub fn manage(device: impl AsFd, operation: Operation, sector: u64, sectors: u64) -> Result<(), Errno> {
    let number = match operation {
        Operation::Reset => RESET,
        Operation::Open => OPEN,
        Operation::Close => CLOSE,
        Operation::Finish => FINISH,
    };
    let range = Range { sector, sectors };
    // SAFETY: the kernel reads the range, which outlives the call.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), number as _, &raw const range) } {
        0 => Ok(()),
        _ => Err(last_errno(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Numbers and offsets, as computed by a C compiler from linux/blkzoned.h.
    #[test]
    fn structures_and_numbers_are_the_kernels() {
        assert_eq!((size_of::<Zone>(), size_of::<Range>()), (64, 16));
        assert_eq!((offset_of!(Zone, start), offset_of!(Zone, len), offset_of!(Zone, pointer)), (0, 8, 16));
        assert_eq!((offset_of!(Zone, kind), offset_of!(Zone, condition)), (24, 25));
        assert_eq!((offset_of!(Zone, reset), offset_of!(Zone, capacity)), (27, 32));
        assert_eq!(
            (offset_of!(Report<1>, count), offset_of!(Report<1>, flags), offset_of!(Report<1>, zones)),
            (8, 12, 16)
        );
        let all = [REPORT, RESET, ZONE_SECTORS, OPEN, CLOSE, FINISH];
        assert_eq!(all, [0xc010_1282, 0x4010_1283, 0x8004_1284, 0x4010_1286, 0x4010_1287, 0x4010_1288]);
    }

    #[test]
    fn a_file_has_no_zones() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(zone_sectors(&file), Err(Errno::NOTTY));
        assert_eq!(report(&file), Err(Errno::NOTTY));
        assert_eq!(report_one(&file, 0), Err(Errno::NOTTY));
        assert_eq!(manage(&file, Operation::Reset, 0, 8), Err(Errno::NOTTY));
    }
}
