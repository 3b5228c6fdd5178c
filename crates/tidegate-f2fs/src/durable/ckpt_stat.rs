//! The cost of checkpoints: requests, the checkpoints that served them, and the time of each step.

use crate::durable::checkpoint::CpReason;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{Distribution, Histogram, Nanos, clock, trace::SpanPoint};
use tidegate_vfs::{CommitStats, StepStats};

/// A part of a checkpoint whose time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    GlobalSem,
    PreDirs,
    PreInodes,
    PreNodes,
    PreDrain,
    LockAll,
    Dirs,
    Inodes,
    Nodes,
    Drain,
    Nat,
    Sit,
    Meta,
    Build,
    Pack,
    Tail,
    After,
    Frozen,
    Whole,
}

const STEPS: usize = 19;

/// Each step's name in tables, its trace point, and whether operations are frozen meanwhile.
const STEP_NAMES: [(&str, &str, bool); STEPS] = [
    ("wait for cp_global_sem", "f2fs_cp_global_sem", false),
    ("directories, before the freeze", "f2fs_sync_dirty_inodes", false),
    ("inodes, before the freeze", "f2fs_sync_inode_meta", false),
    ("nodes, before the freeze", "f2fs_sync_node_pages", false),
    ("data, before the freeze", "f2fs_wait_on_all_pages", false),
    ("wait for cp_rwsem", "f2fs_lock_all", false),
    ("directories", "f2fs_sync_dirty_inodes", true),
    ("inodes", "f2fs_sync_inode_meta", true),
    ("nodes", "f2fs_sync_node_pages", true),
    ("I/O in flight", "f2fs_wait_on_all_pages", true),
    ("NAT", "f2fs_flush_nat_entries", true),
    ("SIT", "f2fs_flush_sit_entries", true),
    ("metadata area", "f2fs_sync_meta_pages", true),
    ("building the pack", "f2fs_build_cp_pack", true),
    ("writing the pack", "f2fs_write_cp_pack", true),
    ("flush and tail block", "f2fs_commit_checkpoint", true),
    ("freeing segments", "f2fs_clear_prefree_segments", true),
    ("frozen in all", "f2fs_block_operations", true),
    ("checkpoint in all", "f2fs_write_checkpoint", false),
];

static WRITE_CHECKPOINT: SpanPoint<1> = SpanPoint::timed("f2fs_write_checkpoint", ["reason"]);
static STEP_POINTS: [SpanPoint<1>; STEPS] = {
    let mut all = [const { SpanPoint::timed("", ["frozen"]) }; STEPS];
    let mut i = 0;
    while i < STEPS {
        all[i] = SpanPoint::timed(STEP_NAMES[i].1, ["frozen"]);
        i += 1;
    }
    all
};

/// Requests for checkpoints and the times of their steps. Nothing here is locked or allocated while a
/// checkpoint runs.
pub(crate) struct CkptStat {
    queued: AtomicU64,
    issued: AtomicU64,
    total: AtomicU64,
    cur_ns: AtomicU64,
    peak_ns: AtomicU64,
    steps: Vec<Histogram>,
}

impl Default for CkptStat {
    fn default() -> Self {
        let n = || AtomicU64::new(0);
        let steps = (0..STEPS).map(|_| Histogram::default()).collect();
        CkptStat { queued: n(), issued: n(), total: n(), cur_ns: n(), peak_ns: n(), steps }
    }
}

impl CkptStat {
    /// Runs `f` as `step`: timed and traced.
    pub(crate) fn time<T>(&self, step: Step, f: impl FnOnce() -> T) -> T {
        let _span = STEP_POINTS[step as usize].enter([STEP_NAMES[step as usize].2 as u64]);
        self.timed(step, f)
    }

    /// Runs `f` as a whole checkpoint.
    pub(crate) fn time_whole<T>(&self, reason: CpReason, f: impl FnOnce() -> T) -> T {
        let _span = WRITE_CHECKPOINT.enter([reason as u64]);
        self.timed(Step::Whole, f)
    }

    fn timed<T>(&self, step: Step, f: impl FnOnce() -> T) -> T {
        let start = clock::now();
        let r = f();
        self.steps[step as usize].record(clock::now().since(start).0);
        r
    }

    /// Counts a request for a checkpoint.
    pub(crate) fn asked(&self) {
        self.total.fetch_add(1, Relaxed);
        self.queued.fetch_add(1, Relaxed);
    }

    /// Counts requests made at the times `when` as answered; `written`: by a checkpoint that was written for
    /// them.
    pub(crate) fn answered(&self, when: impl ExactSizeIterator<Item = Nanos>, written: bool) {
        let (now, n) = (clock::now(), when.len() as u64);
        let waited: u64 = when.map(|t| now.since(t).0).sum();
        let mean = waited / n.max(1);
        self.queued.fetch_sub(n, Relaxed);
        self.issued.fetch_add(written as u64, Relaxed);
        self.cur_ns.store(mean, Relaxed);
        self.peak_ns.fetch_max(mean, Relaxed);
    }

    /// How long checkpoints took in all, and how long operations were frozen, in nanoseconds.
    pub(crate) fn times(&self) -> (Distribution, Distribution) {
        (self.steps[Step::Whole as usize].read(), self.steps[Step::Frozen as usize].read())
    }

    pub(crate) fn snapshot(&self, checkpoint_merge: bool) -> CommitStats {
        let ms = |ns: &AtomicU64| ns.load(Relaxed) / 1_000_000;
        let steps = self.steps.iter().zip(STEP_NAMES).enumerate().map(|(i, (h, (name, _, frozen)))| {
            let total = i == Step::Frozen as usize || i == Step::Whole as usize;
            StepStats { total, ..StepStats::of(name, frozen, &h.read()) }
        });
        CommitStats {
            merge: checkpoint_merge,
            queued: self.queued.load(Relaxed),
            issued: self.issued.load(Relaxed),
            total: self.total.load(Relaxed),
            cur_ms: ms(&self.cur_ns),
            peak_ms: ms(&self.peak_ns),
            steps: steps.collect(),
        }
    }
}
