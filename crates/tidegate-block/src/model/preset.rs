//! The devices that are known by name. [`super::figures`] has the source of each figure.
//!
//! Other figures follow from these by arithmetic: a device with k random reads a second of t each has k × t channels;
//! with c channels, reads take c / k. A device without a published write latency acknowledges a write once it is
//! programmed. Not modelled: how reads, writes and resets of zones on flash slow each other down; the lower rate on a
//! disk's inner tracks; parity; that a zone is slower with few commands (744 MiB/s were measured with 16 commands of 4
//! KiB), and that two zones together (1,706 MiB/s) are a little slower than twice one.

use super::arm::Mechanics;
use super::disk::DiskSpec;
use super::flash::{FlashSpec, ZoneRate};
use crate::QueueLimits;
use crate::zones::ZoneSpec;
use std::fmt;
use std::str::FromStr;

/// A device by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preset {
    /// Memory.
    Ramdisk,
    /// A disk with a volatile write cache.
    Hdd,
    /// Disks behind a controller whose cache survives a loss of power.
    RaidBbwc,
    /// Flash of a telephone.
    Ufs,
    /// Flash of a server.
    Nvme,
    /// Flash in zones.
    Zns,
}

/// A model in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The most commands that the device takes. More commands wait.
    pub depth: usize,
    /// The most requests in the queue in front of the device before submitters wait.
    pub nr_requests: usize,
    /// The medium.
    pub medium: Medium,
    /// Its zones, if it has any.
    pub zones: Option<ZoneSpec>,
}

/// How a device keeps data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Medium {
    /// On flash.
    Flash(FlashSpec),
    /// On disks.
    Disk(DiskSpec),
}

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// Linux's default for devices that do not ask for another (`BLKDEV_DEFAULT_RQ`).
const NR_REQUESTS: usize = 128;

impl Preset {
    /// Every preset.
    pub const ALL: [Preset; 6] =
        [Preset::Ramdisk, Preset::Hdd, Preset::RaidBbwc, Preset::Ufs, Preset::Nvme, Preset::Zns];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Ramdisk => "ramdisk",
            Preset::Hdd => "hdd",
            Preset::RaidBbwc => "raid-bbwc",
            Preset::Ufs => "ufs",
            Preset::Nvme => "nvme",
            Preset::Zns => "zns",
        }
    }

    /// Its figures.
    pub fn spec(self) -> Spec {
        let spec = |depth, nr_requests, medium| Spec { depth, nr_requests, medium, zones: None };
        match self {
            Preset::Ramdisk => spec(usize::MAX, NR_REQUESTS, Medium::Flash(MEMORY)),
            Preset::Hdd => spec(HDD.depth, NR_REQUESTS, Medium::Disk(HDD)),
            Preset::RaidBbwc => spec(RAID.disks * RAID.depth, NR_REQUESTS, Medium::Disk(RAID)),
            Preset::Ufs => spec(32, NR_REQUESTS, Medium::Flash(UFS)),
            Preset::Nvme => spec(1023, 1023, Medium::Flash(P4500)),
            Preset::Zns => Spec { zones: Some(ZONES), ..spec(1023, 1023, Medium::Flash(ZN540)) },
        }
    }
}

impl Spec {
    /// The figures with zones that are `by` times shorter, at the same rates: so much less data fills as many zones.
    /// The conventional zones stay large enough for the metadata.
    pub fn with_shorter_zones(mut self, by: u64) -> Spec {
        self.zones = self.zones.map(|z| {
            let size = z.size / by;
            let conventional = z.conventional.max((64 * MIB).div_ceil(size) as usize);
            ZoneSpec { size, capacity: z.capacity / by, conventional, ..z }
        });
        if let Medium::Flash(f) = &mut self.medium {
            f.zone = f.zone.map(|z| z.shorter(by));
        }
        self
    }

    /// The bounds of a queue in front of such a device.
    pub fn queue_limits(&self) -> QueueLimits {
        let limits = QueueLimits::default();
        let max_inflight_bytes = self.nr_requests as u64 * limits.max_bytes;
        QueueLimits { nr_requests: self.nr_requests, max_inflight_bytes, ..limits }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no device model is called {0:?}; there are ramdisk, hdd, raid-bbwc, ufs, nvme and zns")]
pub struct UnknownPreset(pub String);

impl FromStr for Preset {
    type Err = UnknownPreset;
    fn from_str(s: &str) -> Result<Self, UnknownPreset> {
        Preset::ALL.into_iter().find(|p| p.name() == s).ok_or_else(|| UnknownPreset(s.to_string()))
    }
}

/// Flash for which only the rates count.
const PLAIN: FlashSpec = FlashSpec {
    channels: 0,
    read_ns: 0,
    read_rate: 0,
    write_ns: 0,
    write_rate: 0,
    zone: None,
    random_writes: 0,
    buffer: 0,
    volatile: false,
    flush_ns: 0,
};

const MEMORY: FlashSpec = FlashSpec { read_rate: 15_200 * MB, write_rate: 15_200 * MB, ..PLAIN };

const UFS: FlashSpec = FlashSpec {
    channels: 8,
    read_ns: 8_000_000_000_000 / 63_000 / 1000,
    read_rate: 2_100 * MB,
    write_rate: 410 * MB,
    random_writes: 68_000,
    volatile: true,
    flush_ns: 4096 * 1000 / 30 - 4096 * 1000 / 90,
    ..PLAIN
};

const P4500: FlashSpec = FlashSpec {
    channels: 490_000 * 85 / MB as usize + 1,
    read_ns: 85_000,
    read_rate: 3_200 * MB,
    write_ns: 20_000,
    write_rate: 1_050 * MB,
    random_writes: 38_000,
    ..PLAIN
};

const ZN540: FlashSpec = FlashSpec {
    channels: 32,
    read_ns: 70_000,
    read_rate: 3_050 * MB,
    write_ns: 4096 * 1_000_000_000 / (200 * MIB),
    write_rate: 2_048 * MIB,
    zone: Some(ZoneRate {
        size: ZONES.size,
        write_rate: 988 * MIB,
        resets: [
            (0, 1_590_000),
            (ZONES.capacity / 16, 5_150_000),
            (ZONES.capacity / 4, 7_750_000),
            (ZONES.capacity / 2, 11_250_000),
            (ZONES.capacity, 15_430_000),
        ],
        finish_ns: 2_570_000,
        // The remaining seven eighths of a zone that is written to an eighth.
        finish_rate: ZONES.capacity / 8 * 7 * 1000 / (792_500 - 2_570) * 1000,
    }),
    buffer: 960 << 10,
    volatile: true,
    ..PLAIN
};

const ZONES: ZoneSpec =
    ZoneSpec { size: 2048 * MIB, capacity: 1077 * MIB, conventional: 2, max_open: 14, max_active: 14 };

const HDD: DiskSpec = DiskSpec {
    mechanics: Mechanics {
        revolution: 60_000_000_000 / 7200,
        track_seek: [230_000, 320_000],
        average_seek: [7_400_000, 8_200_000],
        rate: 154 * MB,
    },
    disks: 1,
    strip: 0,
    depth: 32,
    command_ns: 0,
    latency_ns: 0,
    link_rate: 600 * MB,
    cache: 64 * MB,
    volatile: true,
};

/// The time of a controller for a command, its rate to the host, and the time of each of consecutive durable
/// writes of 16 KiB.
const RAID_COMMAND: u64 = 1_000_000_000 / 60_000;
const RAID_LINK: u64 = 2_400 * MIB;
const RAID_WRITE: u64 = 1_000_000_000 / 5_370;

const RAID: DiskSpec = DiskSpec {
    disks: 8,
    strip: 64 << 10,
    command_ns: RAID_COMMAND,
    latency_ns: RAID_WRITE - RAID_COMMAND - 16 * 1024 * 1_000_000_000 / RAID_LINK,
    link_rate: RAID_LINK,
    cache: 512 * MIB / 10 * 9,
    volatile: false,
    ..HDD
};
