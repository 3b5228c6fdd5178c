//! The options of a journal.

use crate::units::Tid;
use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::Timespec;
use tidegate_vfs::planted::Planted;
use tidegate_vfs::{Result, positions};

positions! {
    /// The order in which transactions reach the log (`journal=`).
    pub enum JournalMode {
        /// One after the other, as in jbd2 of Linux 6.1: a transaction is locked when the record of the last one is
        /// durable. A thread that changes a block waits until the block is in the log, and a handle that finds the
        /// log full empties it.
        Jbd2 = "jbd2",
        /// The body of a transaction goes to the log while the record of the last one is in flight. Records are
        /// written in order, each after its body is durable.
        #[default]
        Pipelined = "pipelined",
    }
}

/// The volume's part in a commit.
pub trait CommitHooks: Send + Sync {
    /// Writes data that must be on the device before the record of `tid` is (`data=ordered`). `tid` has no
    /// handles any more.
    ///
    /// # Errors
    /// The journal is aborted.
    fn flush_data(&self, tid: Tid) -> Result<()> {
        let _ = tid;
        Ok(())
    }

    /// Called when a thread is about to wait for room in a transaction or in the log, without a lock. The
    /// volume sends gathered bios, of any thread, that hold reserved credits, as Linux sends a thread's plug
    /// when the thread sleeps.
    fn before_wait(&self) {}
}

struct NoHooks;
impl CommitHooks for NoHooks {}

/// The options of a journal.
#[derive(Clone)]
pub struct JournalOptions {
    /// How transactions reach the log.
    pub mode: JournalMode,
    /// The age at which a transaction is committed by itself (`commit=`).
    pub interval: Duration,
    /// The log gets csum v3; otherwise it keeps its checksums, except v1, which is removed.
    pub csum_v3: bool,
    /// The log gets 64-bit block numbers, if it does not have them.
    pub bit64: bool,
    /// Bytes of clean metadata blocks in memory.
    pub cache_bytes: usize,
    /// The longest time that a commit waits for others to join (`max_batch_time`), with `journal=jbd2`.
    pub max_batch_time: Duration,
    /// The shortest time (`min_batch_time`).
    pub min_batch_time: Duration,
    /// The time in every record, so that equal changes make equal bytes; without it the clock's.
    pub fixed_time: Option<Timespec>,
    /// The planted bug, for tests.
    pub planted: Planted,
    /// The volume's part in a commit.
    pub hooks: Arc<dyn CommitHooks>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            mode: JournalMode::default(),
            interval: Duration::from_secs(5),
            csum_v3: true,
            bit64: true,
            cache_bytes: 64 << 20,
            max_batch_time: Duration::from_micros(15_000),
            min_batch_time: Duration::ZERO,
            fixed_time: None,
            planted: Planted::default(),
            hooks: Arc::new(NoHooks),
        }
    }
}
