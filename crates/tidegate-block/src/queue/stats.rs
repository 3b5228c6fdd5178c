//! Figures of a queue: bios by operation and size, waits, requests in flight.

use crate::bio::{Bio, BioFlags, Op};
use crate::busy::Busy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{Distribution, Histogram, sim};

/// The requests that went through a queue since it was made, and those in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Bios that read.
    pub read_bios: u64,
    /// Bytes in them.
    pub read_bytes: u64,
    /// Bios that wrote.
    pub write_bios: u64,
    /// Bytes in them.
    pub write_bytes: u64,
    /// Requests written, after merging.
    pub write_requests: u64,
    /// Flushes, PREFLUSH and FUA included.
    pub flushes: u64,
    /// Discards, and zones that were reset or finished.
    pub discards: u64,
    /// How often a submitter waited because the queue was full.
    pub congested: u64,
    /// How long they waited, all together, in nanoseconds.
    #[serde(default)]
    pub congested_ns: u64,
    /// The part of that time in which the submitter held a lock under which no thread is to wait for a device
    /// ([`tidegate_rt::device_wait`]).
    #[serde(default)]
    pub congested_holding_ns: u64,
    /// Bytes × time in flight of the requests that have ended, in KiB × µs. Its growth in a time, divided by
    /// that time, is the mean number of bytes in flight.
    #[serde(default)]
    pub kib_us: u64,
    /// Writes to zones that failed on their own account: not at the write pointer, or refused by the device.
    #[serde(default)]
    pub zone_refused: u64,
    /// Requests in flight now: submitted and not ended.
    pub in_flight: u64,
    /// Bios by size, smallest first.
    pub sizes: Vec<SizeClass>,
}

/// Bios of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The bios have at least so many bytes (a power of two), and less than twice as many.
    pub bytes: u64,
    /// Bios that read.
    pub reads: u64,
    /// Bios that wrote.
    pub writes: u64,
}

fn sizes(reads: &Distribution, writes: &Distribution) -> Vec<SizeClass> {
    let mut by_size: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let class = |largest: u64| 1 << largest.checked_ilog2().unwrap_or(0);
    for (largest, n) in &reads.buckets {
        by_size.entry(class(*largest)).or_default().0 += n;
    }
    for (largest, n) in &writes.buckets {
        by_size.entry(class(*largest)).or_default().1 += n;
    }
    by_size.into_iter().map(|(bytes, (reads, writes))| SizeClass { bytes, reads, writes }).collect()
}

#[derive(Default)]
pub(super) struct Counters {
    read_bios: AtomicU64,
    read_bytes: AtomicU64,
    write_bios: AtomicU64,
    write_bytes: AtomicU64,
    pub(super) write_requests: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    pub(super) busy: Busy,
    read_sizes: Histogram,
    write_sizes: Histogram,
}

impl Counters {
    /// Counts a bio that is submitted.
    pub(super) fn count(&self, bio: &Bio) {
        sim::bio();
        let len = bio.data.len();
        match bio.op {
            Op::Read => {
                self.read_bios.fetch_add(1, Relaxed);
                self.read_bytes.fetch_add(len, Relaxed);
                self.read_sizes.record(len);
            }
            Op::Write | Op::WriteZeroes => {
                self.write_bios.fetch_add(1, Relaxed);
                self.write_bytes.fetch_add(len, Relaxed);
                self.write_sizes.record(len);
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Relaxed);
            }
            Op::Discard | Op::ZoneReset | Op::ZoneFinish => {
                self.discards.fetch_add(1, Relaxed);
            }
        }
        if bio.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA) {
            self.flushes.fetch_add(
                bio.flags.intersection(BioFlags::PREFLUSH | BioFlags::FUA).bits().count_ones() as u64,
                Relaxed,
            );
        }
    }

    /// The counts so far. The fields that only the queue knows are 0.
    pub(super) fn read(&self) -> QueueStats {
        let [congested, congested_ns, congested_holding_ns, kib_us] = self.busy.read();
        QueueStats {
            read_bios: self.read_bios.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_bios: self.write_bios.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            write_requests: self.write_requests.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            congested,
            congested_ns,
            congested_holding_ns,
            kib_us,
            sizes: sizes(&self.read_sizes.read(), &self.write_sizes.read()),
            ..QueueStats::default()
        }
    }
}
