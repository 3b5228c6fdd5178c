//! Times: seconds in 32 bits and, in inodes that are long enough, nanoseconds and two more bits of seconds.

use crate::format::raw::{INODE_BASE, RawInode};
use std::mem::offset_of;
use tidegate_rt::Timespec;

/// Bits of an extra field that extend the seconds.
const EPOCH_BITS: u32 = 2;
const NANOS_MAX: u32 = 999_999_999;

/// The times of an inode.
pub(super) struct Times<'a> {
    pub raw: &'a RawInode,
    /// Bytes of fields behind the first 128.
    pub extra: usize,
    /// Inodes of the volume are longer than 128 bytes.
    pub long: bool,
}

/// Seconds and nanoseconds of the two fields. The epoch counts in 2^32 seconds and is added to the signed seconds.
fn decode(seconds: u32, extra: u32) -> Timespec {
    let epoch = i64::from(extra & ((1 << EPOCH_BITS) - 1)) << 32;
    Timespec { secs: i64::from(seconds as i32) + epoch, nanos: (extra >> EPOCH_BITS).min(NANOS_MAX) }
}

/// The two fields of a time. Without the second, a time that does not fit in 32 bits becomes the nearest that
/// does.
pub(super) fn encode(t: Timespec, has_extra: bool) -> (u32, u32) {
    let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
    if !has_extra {
        return (t.secs.clamp(least, most) as i32 as u32, 0);
    }
    let secs = t.secs.clamp(least, most + (3 << 32));
    let epoch = (secs - i64::from(secs as i32)) >> 32 & 3;
    (secs as u32, epoch as u32 | t.nanos << EPOCH_BITS)
}

/// A time as it is read back after it was stored.
pub(super) fn kept(t: Timespec, has_extra: bool) -> Timespec {
    let (seconds, extra) = encode(t, has_extra);
    decode(seconds, extra)
}

impl Times<'_> {
    /// The value of a field that ends before byte `end` of the inode, if there is one.
    fn field(&self, end: usize, value: u32) -> Option<u32> {
        (self.long && INODE_BASE + self.extra >= end).then_some(value)
    }

    pub(super) fn atime(&self) -> Timespec {
        let extra = self.field(offset_of!(RawInode, i_crtime), self.raw.i_atime_extra.get());
        decode(self.raw.i_atime.get(), extra.unwrap_or(0))
    }

    pub(super) fn mtime(&self) -> Timespec {
        let extra = self.field(offset_of!(RawInode, i_atime_extra), self.raw.i_mtime_extra.get());
        decode(self.raw.i_mtime.get(), extra.unwrap_or(0))
    }

    pub(super) fn ctime(&self) -> Timespec {
        let extra = self.field(offset_of!(RawInode, i_mtime_extra), self.raw.i_ctime_extra.get());
        decode(self.raw.i_ctime.get(), extra.unwrap_or(0))
    }

    pub(super) fn crtime(&self) -> Option<Timespec> {
        let seconds = self.field(offset_of!(RawInode, i_crtime_extra), self.raw.i_crtime.get())?;
        let extra = self.field(offset_of!(RawInode, i_version_hi), self.raw.i_crtime_extra.get());
        Some(decode(seconds, extra.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_goes_on_from_the_signed_seconds() {
        // The values are from the table in the kernel's documentation of ext4 (inode timestamps).
        for (extra, seconds, want) in [
            (0, 0xffff_ffff, -1),
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff_i64),
        ] {
            let time = Timespec { secs: want, nanos: 5 };
            assert_eq!(decode(seconds, extra | 5 << 2), time);
            assert_eq!(encode(time, true), (seconds, extra | 5 << 2));
        }
        assert_eq!(decode(0, u32::MAX).nanos, NANOS_MAX);
    }
}
