//! A volume's activity at one moment: `tidegate top` shows it and Prometheus collects it.
//!
//! Counters only grow. A program that needs rates takes two samples ([`Sample::since`]).
//!
//! | module | holds |
//! |---|---|
//! | `take` | a sample of a [`crate::Volume`] |
//! | `rates` | the changes between two samples |
//! | `prometheus` | a sample in the text format of Prometheus |

mod prometheus;
mod rates;
mod take;

pub use prometheus::prometheus;
pub use rates::{Rates, Step};
pub use tidegate_block::{QueueStats, SizeClass};

use serde::{Deserialize, Serialize};
use tidegate_rt::Distribution;
use tidegate_vfs::{CommitStats, VolumeStats};

/// The most files that a sample names.
pub const MAX_FILES: usize = 64;

/// A volume at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The time, on the clock of the process that has the volume open, in nanoseconds.
    pub at_ns: u64,
    /// How long the volume has been open, in seconds.
    pub up_seconds: f64,
    /// The image.
    pub image: String,
    /// Where it is mounted.
    pub mountpoint: Option<String>,
    /// Format.
    pub format: String,
    /// The reason why the volume takes no changes, if it takes none.
    pub read_only: Option<String>,
    /// Space and inodes.
    pub space: Space,
    /// The page cache.
    pub memory: Memory,
    /// The flusher's activity.
    pub flusher: Flusher,
    /// Bios and requests.
    pub io: QueueStats,
    /// The file system's writes.
    pub writes: VolumeStats,
    /// fsync.
    pub fsync: Latency,
    /// Commits. F2FS: checkpoints.
    pub commit: Latency,
    /// How long commits froze operations.
    pub frozen: Latency,
    /// Requests for commits, and the steps of commits.
    pub commits: CommitStats,
    /// Files with pages that are not on the volume yet, in descending order of pages; at most [`MAX_FILES`].
    pub files: Vec<FileSample>,
    /// Locks by class, in descending order of waiting time. Empty while lock statistics are off.
    pub locks: Vec<LockSample>,
}

/// Space and inodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
    /// Inodes in use.
    pub files: u64,
}

/// The page cache, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Bytes under write-back.
    pub writeback_bytes: u64,
    /// Cached bytes, clean or not.
    pub cached_bytes: u64,
    /// Dirty and write-back bytes above which writers wait.
    pub dirty_limit: u64,
    /// Dirty bytes above which the flusher starts by itself.
    pub background_limit: u64,
    /// Cached bytes above which clean pages are dropped.
    pub cache_limit: u64,
}

/// The flusher's activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flusher {
    /// `idle`, `writing` or `waiting` (to try again a write that failed); `none` on a volume that is not
    /// written.
    pub state: String,
    /// The reason for writing: `sync`, `background` or `periodic`.
    pub why: Option<String>,
    /// The inode that it is writing.
    pub ino: Option<u64>,
}

/// How long something took; times in nanoseconds, exact to an eighth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// Sum.
    pub sum_ns: u64,
    /// Least.
    pub min_ns: u64,
    /// The time that half did not exceed.
    pub p50_ns: u64,
    /// The time that 90 of 100 did not exceed.
    pub p90_ns: u64,
    /// The time that 99 of 100 did not exceed.
    pub p99_ns: u64,
    /// The time that 999 of 1000 did not exceed.
    pub p999_ns: u64,
    /// Most.
    pub max_ns: u64,
    /// For each bucket, its longest time and its count.
    pub buckets: Vec<(u64, u64)>,
}

/// A file with pages that are not on the volume yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSample {
    /// Inode number.
    pub ino: u64,
    /// The path, as far as names are in memory. A file of the file system's own is in brackets.
    pub path: Option<String>,
    /// Bytes to be written.
    pub dirty_bytes: u64,
    /// Bytes under write-back.
    pub writeback_bytes: u64,
    /// How long it has been dirty, in seconds.
    pub age_seconds: f64,
}

/// A class of locks; times in nanoseconds, since collecting began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockSample {
    /// Name, the kernel's where there is one.
    pub class: String,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Time waited.
    pub wait_total_ns: u64,
    /// Longest wait.
    pub wait_max_ns: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Time held.
    pub hold_total_ns: u64,
    /// Longest hold.
    pub hold_max_ns: u64,
}

impl From<Distribution> for Latency {
    fn from(d: Distribution) -> Self {
        Latency {
            count: d.count,
            sum_ns: d.sum,
            min_ns: d.min,
            p50_ns: d.percentile(50.0),
            p90_ns: d.percentile(90.0),
            p99_ns: d.percentile(99.0),
            p999_ns: d.percentile(99.9),
            max_ns: d.max,
            buckets: d.buckets,
        }
    }
}

impl Latency {
    /// The counts after `earlier`.
    pub fn since(&self, earlier: &Latency) -> Latency {
        self.distribution().since(&earlier.distribution()).into()
    }

    fn distribution(&self) -> Distribution {
        Distribution {
            count: self.count,
            sum: self.sum_ns,
            min: self.min_ns,
            max: self.max_ns,
            buckets: self.buckets.clone(),
        }
    }
}
