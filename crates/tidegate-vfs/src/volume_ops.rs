//! The operations of every format's volume beside [`FileSystem`]: figures, commits, trimming, switches.

use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::inode::Inode;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use tidegate_rt::Distribution;

/// Bios written, and the blocks in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Bios.
    pub bios: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Figures of a volume's writes and work since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStats {
    /// File data and directories.
    pub data: Written,
    /// Inodes, and the blocks that lead from them to data. F2FS: nodes.
    pub metadata: Written,
    /// The blocks of commits. F2FS: the metadata area with its checkpoint packs. A journaling format: its
    /// log.
    pub log: Written,
    /// Data blocks written for users: `data` without the blocks that the format moves for itself.
    pub user_data_blocks: u64,
    /// Pieces that data was placed in.
    pub data_fragments: u64,
    /// Data bios that another writer's pages ended before they were full.
    pub split_bios: u64,
    /// fsyncs that needed no commit.
    pub fsyncs: u64,
    /// fsyncs that took a commit.
    pub fsync_commits: u64,
    /// Commits. F2FS: checkpoints.
    pub commits: u64,
    /// Time spent in them, in nanoseconds.
    pub commit_ns: u64,
    /// Bytes the device was told are free.
    pub discarded_bytes: u64,
    /// Figures that only this format has, by name.
    pub own: BTreeMap<Cow<'static, str>, u64>,
}

impl VolumeStats {
    /// The count that only some formats have under `name`; 0 where there is none.
    pub fn own(&self, name: &str) -> u64 {
        self.own.get(name).copied().unwrap_or(0)
    }

    /// Blocks written for each data block that users wrote; 1 when they wrote none.
    pub fn write_amplification(&self) -> f64 {
        let all = self.data.blocks + self.metadata.blocks + self.log.blocks;
        if self.user_data_blocks == 0 { 1.0 } else { all as f64 / self.user_data_blocks as f64 }
    }
}

/// Time of one step over all commits, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStats {
    /// The name of the step.
    pub name: Cow<'static, str>,
    /// Whether operations that change the volume waited meanwhile.
    pub frozen: bool,
    /// How often.
    pub count: u64,
    /// Least.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// 99 of 100 took no longer; exact to an eighth.
    pub p99_ns: u64,
    /// Most.
    pub max_ns: u64,
    /// Sum.
    #[serde(default)]
    pub sum_ns: u64,
    /// The longest time that a bucket takes, and how often that was.
    #[serde(default)]
    pub buckets: Vec<(u64, u64)>,
    /// It is the sum of other steps.
    #[serde(default)]
    pub total: bool,
}

impl StepStats {
    /// A step that took these times.
    pub fn of(name: &'static str, frozen: bool, times: &Distribution) -> StepStats {
        StepStats {
            name: name.into(),
            frozen,
            count: times.count,
            min_ns: times.min,
            mean_ns: times.mean(),
            p99_ns: times.percentile(99.0),
            max_ns: times.max,
            sum_ns: times.sum,
            buckets: times.buckets.clone(),
            total: false,
        }
    }

    /// The times that it took.
    pub fn times(&self) -> Distribution {
        Distribution {
            count: self.count,
            sum: self.sum_ns,
            min: self.min_ns,
            max: self.max_ns,
            buckets: self.buckets.clone(),
        }
    }
}

/// Requests for commits, how they were served, and the time of the steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitStats {
    /// Whether one commit serves all who wait for one now.
    pub merge: bool,
    /// Requests that wait now.
    pub queued: u64,
    /// Commits that served requests.
    pub issued: u64,
    /// Requests so far.
    pub total: u64,
    /// How long requests waited for the last commit, in milliseconds; the mean of those that it served.
    pub cur_ms: u64,
    /// The most of these means, in milliseconds.
    pub peak_ms: u64,
    /// The steps of a commit in their order. F2FS: of a checkpoint.
    pub steps: Vec<StepStats>,
}

/// One commit (`jbd2_run_stats`). Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRun {
    /// The transaction.
    pub number: u64,
    /// Somebody asked for it.
    pub requested: bool,
    /// When it was locked, on the monotonic clock.
    pub at_ns: u64,
    /// From its first handle until it was locked.
    pub running_ns: u64,
    /// Until its handles had ended.
    pub locked_ns: u64,
    /// Data that goes first.
    pub flushing_ns: u64,
    /// Body and record.
    pub logging_ns: u64,
    /// From the lock to the record.
    pub commit_ns: u64,
    /// Handles.
    pub handles: u64,
    /// Blocks that it changed.
    pub blocks: u64,
}

/// A volume of any format, open.
pub trait VolumeOps: FileSystem {
    /// Figures of the writes since it was opened.
    ///
    /// # Locks
    /// None held.
    fn stats(&self) -> VolumeStats;

    /// Makes the changes so far durable as a whole, and waits for it; with `force` also when nothing has
    /// changed.
    ///
    /// # Errors
    /// `ReadOnly`; those of the device, after which the volume takes no more changes.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn commit(&self, force: bool) -> Result<()>;

    /// Requests for commits and the steps of commits.
    ///
    /// # Locks
    /// None held.
    fn commit_stats(&self) -> CommitStats;

    /// The last commits one by one, the oldest first: as many as the format remembers, which may be none.
    ///
    /// # Locks
    /// None held.
    fn recent_commits(&self) -> Vec<CommitRun> {
        Vec::new()
    }

    /// How long commits took in all, and how long changes waited for them, in nanoseconds.
    ///
    /// # Locks
    /// None held.
    fn commit_times(&self) -> (Distribution, Distribution);

    /// Tells the device of free blocks in a range of bytes, in pieces of at least `minimum` bytes; the bytes
    /// told.
    ///
    /// # Errors
    /// `Unsupported` where the device takes no discards; `InvalidArgument` for a range that begins behind the end;
    /// `ReadOnly`; those of the device.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn trim(&self, bytes: Range<u64>, minimum: u64) -> Result<u64>;

    /// Has discards that wait for a better moment done now.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn discard_now(&self) {}

    /// Pieces that the file's blocks lie in.
    ///
    /// # Errors
    /// Those of reading where they lie.
    ///
    /// # Locks
    /// None held.
    fn fragments(&self, inode: &Inode) -> Result<u64>;

    /// Turns switches, spelled as for mount(8), while the volume is in use; others stand as they did.
    ///
    /// # Errors
    /// `InvalidArgument` naming an option that is no switch of the format or has a wrong value: nothing is turned.
    ///
    /// # Locks
    /// None held.
    fn remount(&self, options: &str) -> Result<()>;

    /// Moves valid blocks to make room for new data, if the format does such a thing; whether something
    /// moved.
    ///
    /// # Errors
    /// `Unsupported` where it does not; `ReadOnly`; those of the device.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn clean(&self, sync: bool) -> Result<bool> {
        let _ = sync;
        let what = format!("{} volumes are not cleaned", self.name());
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// How many files opening it recovered that were fsynced after the last commit.
    ///
    /// # Locks
    /// None held.
    fn recovered(&self) -> u64;
}
