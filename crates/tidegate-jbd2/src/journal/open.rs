//! The start and the end of a journal's use, and its superblock in between.

use super::credits::Costs;
use super::first_block::FirstBlock;
use super::{Inner, Journal, JournalMode, JournalOptions, Ring, STATE, SUPERBLOCK, State, THREADS, Waits};
use crate::cache::Cache;
use crate::checkpoint::Checkpoints;
use crate::commit;
use crate::format::{Superblock, TagLayout, upgraded};
use crate::log::Log;
use crate::recover::recover;
use crate::stats::Stats;
use crate::units::LogBlock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidegate_block::RequestQueue;
use tidegate_rt::{Mutex, Timespec, thread};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Blocks of the smallest ring in which transactions can follow each other.
const MIN_RING: u32 = 16;

impl Journal {
    /// Takes a log into use for a volume of `volume_blocks` blocks behind `volume`. A log that is not clean
    /// is replayed and written out first. Nothing else is written before the first commit: between this call
    /// and its first handle, the volume must durably record that it needs recovery.
    ///
    /// # Errors
    /// Those of [`recover()`] and [`crate::Replay::write_out`]; `Unsupported` for a log of less than 16 blocks; the
    /// operating system's refusal of a thread.
    pub fn open(
        log: Arc<Log>,
        volume: Arc<RequestQueue>,
        volume_blocks: u64,
        options: JournalOptions,
    ) -> Result<Journal> {
        let replay = recover(log.clone(), volume_blocks)?;
        replay.write_out(&volume)?;
        let mut next = replay.next_tid();
        let mut block = log.read_block(LogBlock(0))?;
        let old = Superblock::parse(&block, log.block_size(), log.len())?;
        if !replay.is_clean() {
            next = old.sequence;
        }
        let raw = upgraded(&old, options.csum_v3, options.bit64);
        block[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        let sb = old.with(&raw)?;
        let (layout, size) = (TagLayout::of(&sb), sb.block_size);
        let costs = Costs::new(&sb, layout);
        if costs.ring < MIN_RING {
            let what = format!("a journal with {} blocks for transactions", costs.ring + 1);
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let state = State {
            running: None,
            pipeline: VecDeque::new(),
            unplaced: 0,
            reserved: 0,
            next_tid: next,
            request: next.prev(),
            done: next.prev(),
            flushed: next.prev(),
            ring: Ring::empty(&sb, next),
            aborted: None,
            closing: false,
            dropped: false,
            last_sync_writer: 0,
            last_time: Timespec::default(),
            untimed: false,
            crowded: false,
            wants_space: false,
            interval: options.interval,
        };
        let inner = Arc::new(Inner {
            cache: Cache::new(volume.clone(), size, volume_blocks, options.cache_bytes),
            first: Mutex::new(&SUPERBLOCK, FirstBlock { sb: sb.clone(), block }),
            state: Mutex::new(&STATE, state),
            waits: Waits::default(),
            checkpoints: Checkpoints::new(),
            stats: Stats::new(costs.max),
            log,
            volume,
            options,
            layout,
            costs,
            sb,
            is_aborted: AtomicBool::new(false),
        });
        let journal = Journal { inner, threads: Mutex::new(&THREADS, Vec::new()) };
        journal.spawn("tg-jbd2", commit::run)?;
        if journal.inner.options.mode == JournalMode::Pipelined {
            journal.spawn("tg-jbd2-rec", commit::run_records)?;
            journal.spawn("tg-jbd2-ckpt", crate::checkpoint::run)?;
        }
        Ok(journal)
    }

    fn spawn(&self, name: &str, run: fn(&Inner)) -> Result<()> {
        let inner = self.inner.clone();
        let thread = thread::spawn(name, move || run(&inner));
        let refused = |e| Error::new(ErrorKind::OutOfMemory, format!("the journal's thread: {e}"));
        self.threads.lock().push(thread.map_err(refused)?);
        Ok(())
    }

    /// Commits and checkpoints everything, and marks the log as clean. There must be no handle. The caller
    /// clears the volume's own mark that it needs recovery after this.
    ///
    /// # Errors
    /// The reason why the log is not clean; it can be recovered.
    pub fn close(&self) -> Result<()> {
        self.inner.state.lock().closing = true;
        self.join();
        self.inner.state.lock().check()?;
        while self.inner.checkpoint()? {}
        let mut first = self.inner.first.lock();
        let next = self.inner.state.lock().next_tid;
        if first.sb.start.is_some() {
            first.write(&self.inner.log, next, None)?;
        }
        Ok(())
    }

    /// Writes all blocks to their places that are committed when this begins; [`Journal::commit`] commits the
    /// others.
    ///
    /// # Errors
    /// The device's; the journal is aborted then.
    pub fn checkpoint(&self) -> Result<()> {
        while self.inner.checkpoint()? {}
        Ok(())
    }

    /// Commits and checkpoints everything, and marks the log as clean if no other handle came meanwhile; true
    /// if it did so. The journal stays in use.
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::checkpoint`].
    pub fn flush(&self) -> Result<bool> {
        self.commit()?;
        self.checkpoint()?;
        let mut first = self.inner.first.lock();
        let state = self.inner.state.lock();
        let quiet = state.running.is_none() && state.pipeline.is_empty() && state.ring.order.is_empty();
        let next = state.next_tid;
        drop(state);
        if quiet && first.sb.start.is_some() {
            // A commit that begins now marks the log as in use again, after this.
            first.write(&self.inner.log, next, None)?;
        }
        Ok(quiet)
    }

    /// An error of the volume in an earlier use that its superblock may not record: an errno, 0 for none.
    pub fn errno(&self) -> i32 {
        self.inner.first.lock().sb.errno
    }

    /// Clears that error, durably. The volume's superblock records it now.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&self) -> Result<()> {
        let mut first = self.inner.first.lock();
        if std::mem::take(&mut first.sb.errno) != 0 {
            let (sequence, start) = (first.sb.sequence, first.sb.start);
            first.write(&self.inner.log, sequence, start)?;
        }
        Ok(())
    }

    fn join(&self) {
        self.inner.waits.wake_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join();
            // A thread that waits for the end of another looks again.
            self.inner.waits.wake_all();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.inner.state.lock().dropped = true;
        self.join();
    }
}
