//! The operations of a volume of any format beside [`FileSystem`]: figures, commits, trimming, switches.

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
    /// The blocks of commits. F2FS: the metadata area with the checkpoint packs. A journaling format: its
    /// log.
    pub log: Written,
    /// Data blocks written for users: `data` without the blocks that the format moves on its own account.
    pub user_data_blocks: u64,
    /// Contiguous pieces in which data was placed.
    pub data_fragments: u64,
    /// Data bios that were sent before they were full, because pages of another writer came between.
    pub split_bios: u64,
    /// fsyncs that needed no commit.
    pub fsyncs: u64,
    /// fsyncs that needed a commit.
    pub fsync_commits: u64,
    /// Commits. F2FS: checkpoints.
    pub commits: u64,
    /// Time spent in commits, in nanoseconds.
    pub commit_ns: u64,
    /// Bytes that were discarded.
    pub discarded_bytes: u64,
    /// Figures that only this format has, by name.
    pub own: BTreeMap<Cow<'static, str>, u64>,
}

impl VolumeStats {
    /// The figure `name`, which only some formats have; 0 where there is none.
    pub fn own(&self, name: &str) -> u64 {
        self.own.get(name).copied().unwrap_or(0)
    }

    /// Blocks written for each data block that users wrote; 1 when they wrote none.
    pub fn write_amplification(&self) -> f64 {
        let all = self.data.blocks + self.metadata.blocks + self.log.blocks;
        if self.user_data_blocks == 0 { 1.0 } else { all as f64 / self.user_data_blocks as f64 }
    }
}

/// The time of one step over all commits, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStats {
    /// The name of the step.
    pub name: Cow<'static, str>,
    /// Whether operations that change the volume waited during the step.
    pub frozen: bool,
    /// How often the step ran.
    pub count: u64,
    /// Least.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// The time that 99 of 100 did not exceed, exact to an eighth.
    pub p99_ns: u64,
    /// Most.
    pub max_ns: u64,
    /// Sum.
    #[serde(default)]
    pub sum_ns: u64,
    /// For each bucket, its longest time and its count.
    #[serde(default)]
    pub buckets: Vec<(u64, u64)>,
    /// The step is the sum of other steps.
    #[serde(default)]
    pub total: bool,
}

impl StepStats {
    /// The figures of a step that took these times.
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

    /// The times that the step took.
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
    /// Whether one commit serves all threads that wait for one.
    pub merge: bool,
    /// Requests that wait now.
    pub queued: u64,
    /// Commits that served requests.
    pub issued: u64,
    /// Requests so far.
    pub total: u64,
    /// How long requests waited for the last commit, in milliseconds: the mean of the requests that it
    /// served.
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
    /// A thread asked for the commit.
    pub requested: bool,
    /// When the transaction was locked, on the monotonic clock.
    pub at_ns: u64,
    /// The time from its first handle until it was locked.
    pub running_ns: u64,
    /// The time until its handles had ended.
    pub locked_ns: u64,
    /// The time to write the data that goes first.
    pub flushing_ns: u64,
    /// The time to write body and record.
    pub logging_ns: u64,
    /// The time from the lock to the record.
    pub commit_ns: u64,
    /// The number of handles.
    pub handles: u64,
    /// The number of blocks that it changed.
    pub blocks: u64,
}

/// A volume of any format, open.
pub trait VolumeOps: FileSystem {
    /// Figures of the writes since the volume was opened.
    ///
    /// # Locks
    /// None held.
    fn stats(&self) -> VolumeStats;

    /// Commits the changes so far as a whole, and waits until they are durable. With `force` also when
    /// nothing has changed.
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

    /// How long whole commits took, and how long changes waited for them, in nanoseconds.
    ///
    /// # Locks
    /// None held.
    fn commit_times(&self) -> (Distribution, Distribution);

    /// Discards free blocks in a range of bytes, in pieces of at least `minimum` bytes. Returns the number of
    /// discarded bytes.
    ///
    /// # Errors
    /// `Unsupported` where the device takes no discards; `InvalidArgument` for a range that begins past the end;
    /// `ReadOnly`; those of the device.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn trim(&self, bytes: Range<u64>, minimum: u64) -> Result<u64>;

    /// Issues now the discards that wait for a better moment.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn discard_now(&self) {}

    /// The number of contiguous pieces in which the file's blocks lie.
    ///
    /// # Errors
    /// Those of reading the block addresses.
    ///
    /// # Locks
    /// None held.
    fn fragments(&self, inode: &Inode) -> Result<u64>;

    /// Sets switches, spelled as for mount(8), while the volume is in use. Other switches stay as they are.
    ///
    /// # Errors
    /// `InvalidArgument` names an option that is no switch of the format or has a wrong value. Nothing is changed then.
    ///
    /// # Locks
    /// None held.
    fn remount(&self, options: &str) -> Result<()>;

    /// Moves valid blocks to make room for new data, if the format does that. Returns whether a block moved.
    ///
    /// # Errors
    /// `Unsupported` where the format does not; `ReadOnly`; those of the device.
    ///
    /// # Locks
    /// None held; the format's own are taken.
    fn clean(&self, sync: bool) -> Result<bool> {
        let _ = sync;
        let what = format!("{} volumes are not cleaned", self.name());
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// The number of files that were fsynced after the last commit and recovered when the volume was opened.
    ///
    /// # Locks
    /// None held.
    fn recovered(&self) -> u64;
}
