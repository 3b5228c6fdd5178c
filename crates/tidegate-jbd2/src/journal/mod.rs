//! The journal of an open volume: handles change blocks in transactions, threads commit and checkpoint them.
//!
//! A handle says how many blocks it will change and joins the running transaction. The commit thread locks
//! that transaction, waits for its handles, switches it so that the next transaction runs, and writes it to
//! the log. A checkpoint writes committed blocks to their places, and frees their part of the log.
//!
//! | module | holds |
//! |---|---|
//! | `options` | [`JournalOptions`], [`JournalMode`] |
//! | `open` | recovery, features, the beginning and the end |
//! | `state` | the state under `j_state_lock`: transactions, the ring, requests |
//! | `credits` | [`Credits`], and their cost in log blocks |
//! | `start` | admission of handles |
//! | `handle` | [`Handle`], [`Reserved`] |
//!
//! Locks owned, from outside in: `journal->threads` 588, `journal->j_sb_lock` 590 (the superblock, over its
//! write), `journal->j_state_lock` 592, `transaction->t_handle_lock` 594. Neither a handle nor the last two
//! locks are held over I/O. A checkpoint takes its own `journal->j_checkpoint_mutex` 589 before the other
//! locks, and holds it over I/O. Callers: formats, through handles.

mod credits;
mod first_block;
mod handle;
mod open;
mod options;
mod start;
mod state;

pub use credits::Credits;
pub(crate) use first_block::FirstBlock;
pub use handle::{Handle, Reserved};
pub use options::{CommitHooks, JournalMode, JournalOptions};
pub use state::Phase;
pub(crate) use state::{Body, Placed, Ring, Running, State, Transaction};

use crate::cache::{Block, Cache};
use crate::checkpoint::Checkpoints;
use crate::format::{Superblock, TagLayout};
use crate::log::Log;
use crate::stats::{Stats, trace};
use crate::units::{FsBlock, Tid};
pub(crate) use credits::Costs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::time::Duration;
use tidegate_block::RequestQueue;
use tidegate_rt::thread::JoinHandle;
use tidegate_rt::{Condvar, LockClass, Mutex};
use tidegate_vfs::{Error, Result};

static STATE: LockClass = LockClass::new("journal->j_state_lock", 592);
static SUPERBLOCK: LockClass = LockClass::new("journal->j_sb_lock", 590);
static THREADS: LockClass = LockClass::new("journal->threads", 588);

/// The state that threads and handles share.
pub(crate) struct Inner {
    pub log: Arc<Log>,
    pub volume: Arc<RequestQueue>,
    pub options: JournalOptions,
    pub cache: Cache,
    pub layout: TagLayout,
    pub costs: Costs,
    /// The superblock's block in its present state; locked while it is written.
    pub first: Mutex<FirstBlock>,
    /// The fields of the superblock that do not change.
    pub sb: Superblock,
    pub state: Mutex<State>,
    pub waits: Waits,
    pub checkpoints: Checkpoints,
    pub stats: Stats,
    /// Whether the journal was aborted, as in the state, for handles that change blocks.
    pub is_aborted: AtomicBool,
}

/// The waiters that changes of the state wake.
#[derive(Default)]
pub(crate) struct Waits {
    /// A running transaction that takes handles (`j_wait_transaction_locked`).
    pub running: Condvar,
    /// The end of a handle (`j_wait_updates`).
    pub updates: Condvar,
    /// Something to commit (`j_wait_commit`).
    pub commit: Condvar,
    /// A body on its way, for the thread that writes records.
    pub body: Condvar,
    /// The end of a commit (`j_wait_done_commit`), chosen by the transaction's number, so that threads that
    /// wait for the next transaction sleep on.
    done: [Condvar; 4],
    /// Room in the log.
    pub space: Condvar,
    /// Something to bring to the volume.
    pub checkpoint: Condvar,
}

/// A journal in use, which [`Journal::close`] ends. If it is dropped without that, uncommitted changes are
/// lost, as after a power cut.
pub struct Journal {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// The newest bytes of a block of metadata.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the volume's end.
    pub fn get(&self, at: FsBlock) -> Result<Block> {
        self.inner.cache.get(at)
    }

    /// The cache of metadata blocks.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Asks for the commit of `tid`; true if it is running.
    pub fn start_commit(&self, tid: Tid) -> bool {
        let mut state = self.inner.state.lock();
        self.inner.request(&mut state, tid)
    }

    /// Waits until `tid` is committed, and asks for the commit if no thread has.
    ///
    /// # Errors
    /// The reason why it was not committed.
    pub fn wait_commit(&self, tid: Tid) -> Result<()> {
        self.inner.wait_commit(tid)
    }

    /// Commits the running transaction, and waits for it and all earlier ones.
    ///
    /// # Errors
    /// The reason why they were not committed.
    pub fn commit(&self) -> Result<()> {
        let newest = self.inner.state.lock().newest();
        self.inner.wait_commit(newest)
    }

    /// The newest transaction that a handle may be part of by now.
    pub fn newest(&self) -> Tid {
        self.inner.state.lock().newest()
    }

    /// The running transaction, or the one that would run next.
    pub fn tid(&self) -> Tid {
        let state = self.inner.state.lock();
        state.running.as_ref().map_or(state.next_tid, |r| r.tx.tid)
    }

    /// The last transaction that is committed with all earlier ones.
    pub fn committed(&self) -> Tid {
        self.inner.state.lock().done
    }

    /// Refuses all changes from now on, because of `why`; uncommitted changes are lost. The log records that
    /// the volume had an error.
    pub fn abort(&self, why: Error) {
        self.inner.abort(why);
    }

    /// Most blocks of a transaction, and so most credits of a handle.
    pub fn most_credits(&self) -> u32 {
        self.inner.costs.max
    }

    /// Bytes of metadata blocks that are in memory because the volume does not have them.
    pub fn pinned_bytes(&self) -> usize {
        self.inner.cache.stats().pinned * self.inner.cache.block_size()
    }

    /// Sets the age at which a transaction is committed by itself (`commit=`).
    pub fn set_interval(&self, interval: Duration) {
        self.inner.state.lock().interval = interval;
        self.inner.waits.commit.notify_all();
    }

    /// The way transactions reach the log.
    pub fn mode(&self) -> JournalMode {
        self.inner.options.mode
    }

    /// The reason why changes are refused, if they are.
    pub fn aborted(&self) -> Option<Error> {
        self.inner.state.lock().aborted.clone()
    }
}

impl Inner {
    /// Asks for the commit of `tid`; true if it is running. A repeated request counts once.
    pub fn request(&self, state: &mut State, tid: Tid) -> bool {
        let Some(running) = state.running.as_ref().filter(|r| r.tx.tid == tid) else { return false };
        if !state.request.reaches(tid) {
            state.request = tid;
            running.tx.requested_now();
            self.waits.commit.notify_all();
        }
        true
    }

    pub fn wait_commit(&self, tid: Tid) -> Result<()> {
        let mut span = None;
        let mut state = self.state.lock();
        loop {
            if state.done.reaches(tid) || tid.is_after(state.newest()) {
                return Ok(());
            }
            if let Some(why) = &state.aborted {
                return Err(why.clone());
            }
            self.request(&mut state, tid);
            span.get_or_insert_with(|| trace::WAIT_COMMIT.enter([tid.0.into()]));
            self.waits.done(tid).wait(&mut state);
        }
    }

    /// The first reason is kept.
    pub fn abort(&self, why: Error) {
        let errno = why.errno().map_or(tidegate_block::Errno::IO, |e| e).raw_os_error();
        {
            let mut state = self.state.lock();
            if state.aborted.is_some() {
                return;
            }
            state.aborted = Some(why.of("the journal was aborted"));
            self.is_aborted.store(true, Release);
            self.waits.wake_all();
        }
        let mut first = self.first.lock();
        if first.sb.errno == 0 {
            first.sb.errno = -errno;
            let (sequence, start) = (first.sb.sequence, first.sb.start);
            // The device may have failed for good; the reason is reported either way.
            let _ = first.write(&self.log, sequence, start);
        }
    }
}

impl Waits {
    /// The condition for the end of the commit of `tid`.
    pub fn done(&self, tid: Tid) -> &Condvar {
        &self.done[tid.0 as usize % self.done.len()]
    }

    pub fn wake_all(&self) {
        let all = [&self.running, &self.updates, &self.commit, &self.body, &self.space, &self.checkpoint];
        all.into_iter().chain(&self.done).for_each(Condvar::notify_all);
    }
}
