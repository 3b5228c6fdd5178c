//! The sources of the figures of the devices.

use super::Preset;

/// A figure of a device, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The name of the figure.
    pub what: &'static str,
    /// The value, with its unit.
    pub value: &'static str,
    /// A data sheet or a publication.
    pub source: &'static str,
}

impl Preset {
    /// The figures of this device, each with its source.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Preset::Ramdisk => RAMDISK,
            Preset::Hdd => HDD,
            Preset::RaidBbwc => RAID,
            Preset::Ufs => UFS,
            Preset::Nvme => NVME,
            Preset::Zns => ZNS,
        }
    }
}

const fn figure(what: &'static str, value: &'static str, source: &'static str) -> Figure {
    Figure { what, value, source }
}

const RAMDISK: &[Figure] = &[figure(
    "rate",
    "15.2 GB/s each way, nothing else",
    "memory copy of one thread, DDR4-4000: tinymembench in gist sandip4n/9a63e601",
)];

const HDD: &[Figure] = &[
    figure(
        "seeks, turn",
        "7.4 and 8.2 ms on average, 0.23 and 0.32 ms to the next track (read, write), 7200 rpm",
        "Western Digital, Ultrastar DC HC310 OEM specification, 4.5.1",
    ),
    figure("rate, cache", "154 MB/s, 64 MB", "StorageReview, WD Black 4TB (WD4001FAEX), its specification"),
    figure("link, commands", "600 MB/s, 32", "SATA 6 Gb/s; native command queueing has 32 tags"),
    figure(
        "order of commands",
        "shortest seek first: twice the random reads of 32 at once",
        "Wikipedia, IOPS: enterprise SATA disks improve by nearly 100 % with deep queues",
    ),
];

const RAID: &[Figure] = &[
    figure(
        "controller",
        "60,000 commands a second, 512 MiB cache, 90 % of it for writes, 8 disks, 2,400 MiB/s to the host",
        "HP, Smart Array controllers and basic RAID performance factors: RAID-on-chip before Gen8, cache defaults, eight SAS ports, the 4 × 6 Gb/s limit of figure 6",
    ),
    figure(
        "latency",
        "186 µs for a durable write of 16 KiB, one after the other: 5,369.62 a second; the host's part is in it",
        "Percona, How many fsync / sec FusionIO can handle (March 2010): PERC 6/i, RAID 10, battery",
    ),
    figure(
        "disks, strip",
        "eight of hdd, 64 KiB",
        "ports as above; strip: ilsistemista.net, Dell PERC H700 test bed",
    ),
    figure(
        "each disk: seeks, turn",
        "7.4 and 8.2 ms on average, 0.23 and 0.32 ms to the next track (read, write), 7200 rpm",
        "Western Digital, Ultrastar DC HC310 OEM specification, 4.5.1",
    ),
    figure("each disk: rate", "154 MB/s", "StorageReview, WD Black 4TB (WD4001FAEX), its specification"),
    figure("each disk: commands", "32, shortest seek first", "as hdd"),
];

const UFS: &[Figure] = &[
    figure(
        "dies, rates",
        "8 dies, 63,000 random reads and 68,000 random writes a second, 2,100 and 410 MB/s",
        "Samsung, 512 GB eUFS 3.0 announcement (February 2019)",
    ),
    figure(
        "flush",
        "91 µs: 4 KiB random writes run at 30 MB/s with it and at 90 without",
        "Android, device/google/crosshatch e02e4813, \"fstab: use fsync_mode=nobarrier\"",
    ),
    figure("commands", "32", "UFS host controller interface: 32 transfer request slots"),
];

const NVME: &[Figure] = &[
    figure(
        "rates, latencies",
        "490,000 random reads and 38,000 random writes a second, 85 and 20 µs, 3.2 and 1.05 GB/s",
        "Lenovo product guide of the Intel P4500, 2 TB",
    ),
    figure(
        "commands",
        "1023",
        "nr_requests of NVMe disks in T. Poder, pg_test_fsync for testing low latency writes",
    ),
];

const ZNS: &[Figure] = &[
    figure(
        "commands",
        "1023",
        "nr_requests of NVMe disks in T. Poder, pg_test_fsync for testing low latency writes",
    ),
    figure(
        "zones",
        "2 GiB apart, 1077 MiB each, 14 active",
        "zbd report of a WD Ultrastar DC ZN540 in johnramsden/gczns",
    ),
    figure(
        "dies, times, buffer",
        "32 dies, 70 µs a read, 3,050 MB/s, 960 KiB for each zone",
        "parameters of NVMeVirt for the ZN540",
    ),
    figure(
        "writes",
        "200 MiB/s one after the other (of 4 KiB), 988 MiB/s in one zone with 128 at once, 2,048 MiB/s on the device",
        "fio on a ZN540, by zones and depth: nicktehrany/msF2FS-bench",
    ),
    figure(
        "resets",
        "1.59 ms of an empty zone, 5.15, 7.75, 11.25 and 15.43 of one that is written by 1/16, 1/4, 1/2 and wholly; most of them",
        "data/custom/zns-a/partial_reset/run4 of a ZN540 in Krien/NVMeBenchmarks",
    ),
    figure(
        "finishes",
        "792.5 ms of a zone that is written by 1/8, 2.57 of one with a block left; most of them, and a straight line between",
        "data/custom/zns-a/fin_dat of a ZN540 in Krien/NVMeBenchmarks",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_names_its_sources() {
        for p in Preset::ALL {
            assert!(!p.figures().is_empty(), "{p}");
            for f in p.figures() {
                assert!(![f.what, f.value, f.source].contains(&""), "{p}: {f:?}");
            }
        }
    }
}
