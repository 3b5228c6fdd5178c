//! The choices of `cargo xtask bench …`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::ckpt::{self, CkptPlan};
use super::mount::dir::{self, DirPlan};
use super::mount::{self, MountPlan};
use super::{commit, fsync, gc, populate, scattered, streams, trace, writepages};
use tidegate_testing::workspace;

/// A bench.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Volumes filled from a tree, copied out, streamed into, opened.
    Populate(Plan),
    /// Sixteen threads make files and fsync each, in memory and on a disk: F2FS and ext4, by us and by the kernel.
    Fsync {
        /// The plan.
        #[command(flatten)]
        plan: Plan,
        /// Where to make the image on a disk; below the target directory unless told.
        #[arg(long)]
        disk: Option<PathBuf>,
        /// Only the devices and sizes whose names contain this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Fsyncs beside a stream of writes, and reads beside random ones, of ext4 by us, by our mount and by the kernel.
    Commit {
        /// The plan.
        #[command(flatten)]
        plan: Plan,
        /// Where to make the image; below the target directory unless told.
        #[arg(long)]
        disk: Option<PathBuf>,
    },
    /// The four positions of `writepages=`, with sixteen writers.
    Writepages(Plan),
    /// Eight writers of files of their own, with one log and with a stream for each, in memory and on a disk.
    Streams {
        /// The plan.
        #[command(flatten)]
        plan: Plan,
        /// Where to make the image on a disk; below the target directory unless told.
        #[arg(long)]
        disk: Option<PathBuf>,
    },
    /// The cost of lock statistics, traces and profiles to fs_mark.
    Trace(Plan),
    /// Random overwrites of a volume that is almost full.
    Gc(Plan),
    /// A file that is written to an ext4 volume whose free blocks lie apart, by us and by the kernel. Needs root.
    Scattered(Plan),
    /// Fsyncs of a directory beside those of a group of lesser weight, with checkpoint_merge and without.
    Ckpt(CkptPlan),
    /// Our mount beside fuse2fs and the kernel's ext4: trees, large files, fsyncs, walks. Needs root.
    Mount(MountPlan),
    /// One directory of a million files, by both transports and in ext4. Needs root.
    Dir(DirPlan),
}

/// How to run a bench.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Rounds; each case runs once in each.
    #[arg(long, default_value_t = 5)]
    pub runs: u32,
    /// Where to make the scratch directory; best in memory.
    #[arg(long, default_value = "/dev/shm/tidegate-bench")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Share of the full size, for trying out.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
}

impl Plan {
    /// A number at this plan's scale; at least 1.
    pub(super) fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.scale.clamp(0.0005, 1.0)) as u64).max(1)
    }
}

impl Task {
    /// Runs it and prints what it found.
    pub fn run(self) -> Result<()> {
        match self {
            Task::Populate(plan) => populate::populate(&plan),
            Task::Fsync { plan, disk, only } => {
                let disk = disk.unwrap_or_else(|| workspace::target_dir().join("bench"));
                fsync::run(&plan, &disk, only.as_deref())
            }
            Task::Commit { plan, disk } => {
                commit::run(&plan, &disk.unwrap_or_else(|| workspace::target_dir().join("bench")))
            }
            Task::Writepages(plan) => writepages::run(&plan),
            Task::Streams { plan, disk } => {
                streams::run(&plan, &disk.unwrap_or_else(|| workspace::target_dir().join("bench")))
            }
            Task::Trace(plan) => trace::run(&plan),
            Task::Gc(plan) => gc::run(&plan),
            Task::Scattered(plan) => scattered::run(&plan),
            Task::Ckpt(plan) => ckpt::ckpt(&plan),
            Task::Mount(plan) => mount::run(&plan),
            Task::Dir(plan) => dir::run(&plan),
        }
    }
}
