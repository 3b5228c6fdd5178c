//! Statistics of a journal, in jbd2's words.

use crate::journal::Journal;
use crate::units::Tid;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{Distribution, Histogram};
use tidegate_rt::{LockClass, Mutex, Nanos};

static HISTORY: LockClass = LockClass::new("journal->j_history_lock", 597);

/// Commits that are remembered one by one: as many as the fastest devices make in a second.
const HISTORY_LEN: usize = 1024;

/// Trace points, named as the kernel's.
pub(crate) mod trace {
    use tidegate_rt::trace::{EventPoint, SpanPoint};

    // Waits and work have the names of the kernel's functions, for a reader that searches for causes.
    pub static WAIT_COMMIT: SpanPoint<1> = SpanPoint::timed("jbd2_log_wait_commit", ["transaction"]);
    pub static WAIT_LOCKED: SpanPoint<0> = SpanPoint::timed("wait_transaction_locked", []);
    pub static WAIT_SPACE: SpanPoint<0> = SpanPoint::timed("jbd2_log_wait_for_space", []);
    pub static WAIT_SHADOW: SpanPoint<1> = SpanPoint::timed("wait_on_bit_io", ["transaction"]);
    pub static WAIT_UPDATES: SpanPoint<1> = SpanPoint::timed("jbd2_journal_wait_updates", ["transaction"]);
    pub static BODY: SpanPoint<1> = SpanPoint::new("jbd2_journal_commit_transaction", ["transaction"]);
    pub static RECORD: SpanPoint<1> = SpanPoint::timed("journal_submit_commit_record", ["transaction"]);
    pub static CHECKPOINT: SpanPoint<1> = SpanPoint::timed("jbd2_log_do_checkpoint", ["transaction"]);

    pub static START_COMMIT: EventPoint<1> = EventPoint::new("jbd2_start_commit", ["transaction"]);
    pub static COMMIT_LOCKING: EventPoint<1> = EventPoint::new("jbd2_commit_locking", ["transaction"]);
    pub static COMMIT_FLUSHING: EventPoint<1> = EventPoint::new("jbd2_commit_flushing", ["transaction"]);
    pub static COMMIT_LOGGING: EventPoint<1> = EventPoint::new("jbd2_commit_logging", ["transaction"]);
    pub static END_COMMIT: EventPoint<2> = EventPoint::new("jbd2_end_commit", ["transaction", "head"]);
    pub static RUN_STATS: EventPoint<4> =
        EventPoint::new("jbd2_run_stats", ["transaction", "running", "locked", "logging"]);
    pub static HANDLE_START: EventPoint<3> =
        EventPoint::new("jbd2_handle_start", ["transaction", "type", "requested_blocks"]);
    pub static HANDLE_EXTEND: EventPoint<3> =
        EventPoint::new("jbd2_handle_extend", ["transaction", "buffer_credits", "requested_blocks"]);
    // An event has only four numbers: the credits asked for are in the handle's start and its extensions.
    pub static HANDLE_STATS: EventPoint<4> =
        EventPoint::new("jbd2_handle_stats", ["transaction", "type", "interval", "dirtied_blocks"]);
    pub static CHECKPOINT_STATS: EventPoint<3> =
        EventPoint::new("jbd2_checkpoint_stats", ["transaction", "chp_time", "written"]);
    pub static UPDATE_LOG_TAIL: EventPoint<3> =
        EventPoint::new("jbd2_update_log_tail", ["first_tid", "block_nr", "freed"]);
}

/// One commit (`jbd2_run_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// The transaction.
    pub tid: Tid,
    /// A thread asked for its commit.
    pub requested: bool,
    /// The longest time that one of its handles waited for it.
    pub wait: Nanos,
    /// Time from the request until it was locked.
    pub request_delay: Nanos,
    /// Time from its first handle until it was locked.
    pub running: Nanos,
    /// Time until its handles had ended.
    pub locked: Nanos,
    /// Time for the data that must be first.
    pub flushing: Nanos,
    /// Time for body and record.
    pub logging: Nanos,
    /// Time from the lock to the record.
    pub commit: Nanos,
    /// Number of handles.
    pub handles: u32,
    /// Blocks that it changed.
    pub blocks: u32,
    /// Blocks of the log that it took.
    pub blocks_logged: u32,
    pub(crate) began: Nanos,
    pub(crate) logging_began: Nanos,
}

impl RunStats {
    /// The time when it was locked.
    pub fn locked_at(&self) -> Nanos {
        Nanos(self.began.0 + self.running.0)
    }
}

/// All commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Transactions whose commit a thread asked for.
    pub requested: u64,
    /// Sums of the parts of [`RunStats`].
    pub sums: RunStats,
    /// Times that a handle waited for room in the log.
    pub space_waits: u64,
    /// The average time of a commit; the last commit has the weight of a quarter.
    pub average_commit: Nanos,
    /// Blocks of the longest transaction.
    pub max_blocks: u32,
    /// Bios that went to the log, and blocks of it that they took.
    pub logged: (u64, u64),
    /// Blocks that checkpoints wrote to their places, each in a bio.
    pub checkpointed: u64,
}

/// Durations of commits, by step.
#[derive(Clone, Debug, Default)]
pub struct CommitTimes {
    /// Time from the request until it was locked, for commits that a thread asked for.
    pub request_delay: Distribution,
    /// Time until the handles had ended; no handle joins meanwhile.
    pub locked: Distribution,
    /// Time for the data that must be first.
    pub flushing: Distribution,
    /// Time for body and record.
    pub logging: Distribution,
    /// Time from the lock to the record.
    pub commit: Distribution,
}

pub(crate) struct Stats {
    all: Mutex<(JournalStats, VecDeque<RunStats>)>,
    /// In the order of [`CommitTimes`].
    times: [Histogram; 5],
    log_bios: AtomicU64,
    checkpointed: AtomicU64,
    log_blocks: AtomicU64,
}

impl Stats {
    pub fn new(max_blocks: u32) -> Stats {
        let all = JournalStats { max_blocks, ..JournalStats::default() };
        Stats {
            all: Mutex::new(&HISTORY, (all, VecDeque::new())),
            times: Default::default(),
            log_bios: AtomicU64::new(0),
            log_blocks: AtomicU64::new(0),
            checkpointed: AtomicU64::new(0),
        }
    }

    pub fn average(&self) -> Nanos {
        self.all.lock().0.average_commit
    }

    /// Counts a bio of `blocks` blocks to the log.
    pub fn logged(&self, blocks: u64) {
        self.log_bios.fetch_add(1, Relaxed);
        self.log_blocks.fetch_add(blocks, Relaxed);
    }

    /// Counts blocks that are written to their places.
    pub fn checkpointed(&self, blocks: u64) {
        self.checkpointed.fetch_add(blocks, Relaxed);
    }

    pub fn waited_for_space(&self) {
        self.all.lock().0.space_waits += 1;
    }

    pub fn committed(&self, run: RunStats) {
        trace::RUN_STATS.record([run.tid.0.into(), run.running.0, run.locked.0, run.logging.0]);
        let delay = run.requested.then_some(run.request_delay);
        let phases = [delay, Some(run.locked), Some(run.flushing), Some(run.logging), Some(run.commit)];
        self.times.iter().zip(phases).for_each(|(h, t)| t.into_iter().for_each(|t| h.record(t.0)));
        let (all, history) = &mut *self.all.lock();
        all.transactions += 1;
        all.requested += u64::from(run.requested);
        let average = all.average_commit.0;
        all.average_commit =
            Nanos(if average == 0 { run.commit.0 } else { (run.commit.0 + 3 * average) / 4 });
        let s = &mut all.sums;
        for (sum, one) in [
            (&mut s.wait, run.wait),
            (&mut s.request_delay, run.request_delay),
            (&mut s.running, run.running),
            (&mut s.locked, run.locked),
            (&mut s.flushing, run.flushing),
            (&mut s.logging, run.logging),
            (&mut s.commit, run.commit),
        ] {
            sum.0 += one.0;
        }
        s.handles = s.handles.wrapping_add(run.handles);
        s.blocks = s.blocks.wrapping_add(run.blocks);
        s.blocks_logged = s.blocks_logged.wrapping_add(run.blocks_logged);
        if history.len() == HISTORY_LEN {
            history.pop_front();
        }
        history.push_back(run);
    }
}

impl Journal {
    /// Sums over all commits.
    pub fn stats(&self) -> JournalStats {
        let s = &self.inner.stats;
        JournalStats {
            logged: (s.log_bios.load(Relaxed), s.log_blocks.load(Relaxed)),
            checkpointed: s.checkpointed.load(Relaxed),
            ..s.all.lock().0
        }
    }

    /// Durations of commits.
    pub fn commit_times(&self) -> CommitTimes {
        let [request_delay, locked, flushing, logging, commit] = &self.inner.stats.times;
        CommitTimes {
            request_delay: request_delay.read(),
            locked: locked.read(),
            flushing: flushing.read(),
            logging: logging.read(),
            commit: commit.read(),
        }
    }

    /// The last commits, in order; at most a thousand or so.
    pub fn history(&self) -> Vec<RunStats> {
        self.inner.stats.all.lock().1.iter().copied().collect()
    }

    /// The statistics in the lines of `/proc/fs/jbd2/*/info`.
    pub fn info(&self) -> String {
        let s = self.stats();
        let n = s.transactions.max(1);
        let ms = |sum: Nanos| sum.0 / n / 1_000_000;
        let mut text = format!(
            "{} transactions ({} requested), each up to {} blocks\n",
            s.transactions, s.requested, s.max_blocks
        );
        if s.transactions == 0 {
            return text;
        }
        text += "average: \n";
        for (time, what) in [
            (s.sums.wait, "waiting for transaction"),
            (s.sums.request_delay, "request delay"),
            (s.sums.running, "running transaction"),
            (s.sums.locked, "transaction was being locked"),
            (s.sums.flushing, "flushing data (in ordered mode)"),
            (s.sums.logging, "logging transaction"),
        ] {
            text += &format!("  {}ms {what}\n", ms(time));
        }
        text += &format!("  {}us average transaction commit time\n", s.average_commit.0 / 1000);
        for (sum, what) in [
            (s.sums.handles, "handles per transaction"),
            (s.sums.blocks, "blocks per transaction"),
            (s.sums.blocks_logged, "logged blocks per transaction"),
        ] {
            text += &format!("  {} {what}\n", u64::from(sum) / n);
        }
        text
    }
}
