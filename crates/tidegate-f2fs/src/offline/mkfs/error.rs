//! Errors of mkfs.

use crate::format::raw::Features;
use crate::format::units::BlockAddr;
use crate::segment::zones::MIN_ACTIVE;
use tidegate_block::Errno;

const MIB: u64 = 1 << 20;

/// The reason why mkfs made no volume. Nothing was written unless it is [`MkfsError::Io`].
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The device has no room for the metadata areas, six logs and a reserve.
    #[error("volume of {} is too small for f2fs: at least {}", Size(*bytes), Size(*need))]
    TooSmall {
        /// Size of the device in bytes.
        bytes: u64,
        /// Smallest size that works with these options, in bytes.
        need: u64,
    },
    /// Block addresses have 32 bits.
    #[error("volume of {} is too large for f2fs: at most 16 TiB", Size(*bytes))]
    TooLarge {
        /// Size of the device in bytes.
        bytes: u64,
    },
    /// The ratio is not a percentage.
    #[error("overprovision of {0} % makes no sense: choose more than 0 and less than 100, or leave it out")]
    BadOverprovision(f64),
    /// The ratio asks for a larger reserve than the volume has free segments.
    #[error(
        "overprovision of {percent} % needs {reserved} reserved segments, the volume has {free} to give: \
         choose another ratio or a larger volume, or leave the ratio out"
    )]
    Overprovision {
        /// The ratio asked for, in percent.
        percent: f64,
        /// Segments that cleaning would need in reserve.
        reserved: u64,
        /// Segments free after the logs.
        free: u64,
    },
    /// Sections or zones have no segments, or too many to count.
    #[error(
        "{segs_per_sec} segments per section and {secs_per_zone} sections per zone: both must be at least 1, \
         a zone at most 1 TiB"
    )]
    BadZone {
        /// Segments per section asked for.
        segs_per_sec: u32,
        /// Sections per zone asked for.
        secs_per_zone: u32,
    },
    /// The device has zones, and the volume was not to have any.
    #[error("{0} has zones that are written in order: make a volume with the feature blkzoned (--zoned)")]
    Zoned(String),
    /// Sections cannot be the device's zones.
    #[error(
        "zones of {}, of which {} can be written, cannot be sections: zones of whole 2 MiB, all of one capacity of \
         at least that, can; leave the number of segments in a section out",
        Size(*size), Size(*capacity)
    )]
    BadDeviceZones {
        /// From one zone to the next, in bytes.
        size: u64,
        /// The writable bytes of a zone.
        capacity: u64,
    },
    /// The device reports a zone as dead.
    #[error("the zone {place} is {state}: no volume can be made where a zone takes no writes")]
    DeadZone {
        /// The zone's sector and, for a volume on several devices, its device.
        place: String,
        /// The zone's state: read-only or offline.
        state: &'static str,
    },
    /// A zone that can be written anywhere lies behind a zone that cannot.
    #[error(
        "the zone {0} can be written anywhere, and lies behind others that are written in order: a volume takes a \
         device, or a partition of it, where none does"
    )]
    LateConventional(String),
    /// The device allows fewer active zones than a volume has logs.
    #[error("{0} of the device's zones can be partly written at a time, a volume takes {MIN_ACTIVE}")]
    FewActiveZones(usize),
    /// Metadata is written in place, which needs zones that can be written anywhere.
    #[error(
        "the first {} can be written anywhere, metadata takes {}: a conventional device in front (-c) has room for it",
        Size(have * 4096), Size(need * 4096)
    )]
    FewConventional {
        /// Blocks in front of the first zone that is written in order.
        have: u64,
        /// Blocks in front of the main area.
        need: u64,
    },
    /// There are too many devices, or their paths do not fit, or they are not the devices of the queue.
    #[error(
        "devices: at most 8, each with a path of at most 63 bytes, that together are as long as the volume's"
    )]
    BadDevices,
    /// No segment of the volume lies on a device.
    #[error(
        "device number {0} is too short: no segment of the volume lies on it; leave it out or take a larger one"
    )]
    ShortDevice(usize),
    /// The label does not fit.
    #[error("label of {0} UTF-16 units is too long: at most 512")]
    LabelTooLong(usize),
    /// The version text does not fit.
    #[error("version text of {0} bytes is too long: at most 255")]
    VersionTooLong(usize),
    /// An extension does not fit its slot.
    #[error("file extension {0:?} cannot be listed: it must have 1 to 7 bytes and no NUL")]
    BadExtension(String),
    /// The list of extensions is full.
    #[error("{0} file extensions are too many: at most 64, cold and hot together")]
    TooManyExtensions(usize),
    /// mkfs does not make this feature.
    #[error("cannot make a volume with the features {0:?}")]
    UnsupportedFeatures(Features),
    /// These features keep something in the inode's extra attributes, so they need [`Features::EXTRA_ATTR`].
    #[error("the features {0:?} need EXTRA_ATTR: add it or leave them out")]
    NeedsExtraAttr(Features),
    /// The device was opened for reading only.
    #[error("{0} is open for reading only: open it for writing")]
    ReadOnly(String),
    /// The device failed, and holds no valid volume now.
    #[error("{what} at block {block} failed")]
    Io {
        /// The step that was under way.
        what: &'static str,
        /// The block that failed.
        block: BlockAddr,
        /// The device's errno.
        source: Errno,
    },
}

/// A size in the largest binary unit that gives a whole number, from MiB down to bytes.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            n if n > 0 && n.is_multiple_of(MIB) => write!(f, "{} MiB", n / MIB),
            n if n > 0 && n.is_multiple_of(1 << 10) => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} bytes"),
        }
    }
}
