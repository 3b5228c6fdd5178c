//! Statistics of the writes since the volume was opened.

use crate::volume::sbi::Ext4;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_jbd2::RunStats;
use tidegate_rt::Distribution;
use tidegate_vfs::{CommitRun, CommitStats, StepStats, VolumeStats, Written};

/// Counts that only grow.
#[derive(Default)]
pub(crate) struct Stats {
    pub data_bios: AtomicU64,
    pub data_blocks: AtomicU64,
    /// Runs of blocks that data was placed in.
    pub data_fragments: AtomicU64,
    /// Searches of a group's bitmap for free blocks.
    pub bitmap_searches: AtomicU64,
    pub fsyncs: AtomicU64,
    pub fsync_commits: AtomicU64,
    pub discarded_bytes: AtomicU64,
}

fn run(r: &RunStats) -> CommitRun {
    CommitRun {
        number: r.tid.0.into(),
        requested: r.requested,
        at_ns: r.locked_at().0,
        running_ns: r.running.0,
        locked_ns: r.locked.0,
        flushing_ns: r.flushing.0,
        logging_ns: r.logging.0,
        commit_ns: r.commit.0,
        handles: r.handles.into(),
        blocks: r.blocks.into(),
    }
}

impl Ext4 {
    pub(crate) fn stats_now(&self) -> VolumeStats {
        let get = |n: &AtomicU64| n.load(Relaxed);
        let s = &self.stats;
        let journal = self.blocks.journal().map(|j| (j.stats(), j.commit_times()));
        let (j, times) = journal.unwrap_or_default();
        let (bios, blocks) = self.blocks.sent();
        VolumeStats {
            data: Written { bios: get(&s.data_bios), blocks: get(&s.data_blocks) },
            metadata: Written { bios: j.checkpointed + bios, blocks: j.checkpointed + blocks },
            log: Written { bios: j.logged.0, blocks: j.logged.1 },
            user_data_blocks: get(&s.data_blocks),
            data_fragments: get(&s.data_fragments),
            fsyncs: get(&s.fsyncs),
            fsync_commits: get(&s.fsync_commits),
            commits: j.transactions,
            commit_ns: times.commit.sum,
            discarded_bytes: get(&s.discarded_bytes),
            own: [
                ("handles", j.sums.handles.into()),
                ("log_space_waits", j.space_waits),
                ("bitmap_searches", get(&s.bitmap_searches)),
            ]
            .map(|(name, n)| (name.into(), n))
            .into(),
            ..VolumeStats::default()
        }
    }

    /// Statistics of the journal's commits, in jbd2's words.
    pub(crate) fn commit_stats_now(&self) -> CommitStats {
        let Some(journal) = self.blocks.journal() else { return CommitStats::default() };
        let (s, t) = (journal.stats(), journal.commit_times());
        CommitStats {
            // One commit serves all threads that wait for it.
            merge: true,
            issued: s.requested,
            total: self.stats.fsync_commits.load(Relaxed),
            steps: vec![
                StepStats::of("request delay", false, &t.request_delay),
                StepStats::of("locked", true, &t.locked),
                StepStats::of("flushing", false, &t.flushing),
                StepStats::of("logging", false, &t.logging),
            ],
            ..CommitStats::default()
        }
    }

    /// The last commits, one by one.
    pub(crate) fn recent_commits_now(&self) -> Vec<CommitRun> {
        let history = self.blocks.journal().map(|j| j.history()).unwrap_or_default();
        history.iter().map(run).collect()
    }

    /// Durations of commits, and the times when no handle could join.
    pub(crate) fn commit_times_now(&self) -> (Distribution, Distribution) {
        let times = self.blocks.journal().map(|j| j.commit_times()).unwrap_or_default();
        (times.commit, times.locked)
    }
}
