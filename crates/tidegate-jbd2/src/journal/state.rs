//! The state under `j_state_lock`.

use super::credits::Costs;
use crate::cache::Block;
use crate::format::Superblock;
use crate::io::Pending;
use crate::stats::RunStats;
use crate::units::{FsBlock, LogBlock, Tid};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tidegate_rt::{LockClass, Mutex, Nanos, Timespec, clock};
use tidegate_vfs::{Error, Result};

static HANDLES: LockClass = LockClass::new("transaction->t_handle_lock", 594);

/// Called once when a transaction is committed, or when it never will be.
pub(crate) type OnCommit = Box<dyn FnOnce(Result<()>) + Send>;

/// The phase of a transaction, in jbd2's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Handles join.
    Running,
    /// Handles end; only reserved ones join.
    Locked,
    /// The transaction has no handles; the next one runs.
    Switch,
    /// The transaction's data is written.
    Flush,
    /// The transaction's body is written.
    Commit,
    /// The devices are flushed, and the transaction's record is written.
    Jflush,
    /// Callbacks are called.
    Callback,
    /// The transaction is finished.
    Finished,
}

/// A transaction's blocks on their way to the log.
pub(crate) struct Body {
    pub pending: Arc<Pending>,
    /// The place of its record.
    pub record: LogBlock,
    pub blocks: Vec<(FsBlock, Block)>,
    pub revokes: Vec<FsBlock>,
}

/// One transaction.
pub(crate) struct Transaction {
    pub tid: Tid,
    inner: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    /// Blocks that joined; some of them may have been freed since, or be listed twice.
    blocks: Vec<FsBlock>,
    revokes: BTreeSet<FsBlock>,
    callbacks: Vec<OnCommit>,
    /// The reason why it will never be committed.
    failed: Option<Error>,
    stats: RunStats,
    phase: Option<Phase>,
    requested: Option<Nanos>,
    body: Option<Arc<Body>>,
    /// Log blocks that are reserved for it while it has no place.
    claim: u32,
}

impl Transaction {
    pub fn new(tid: Tid) -> Arc<Transaction> {
        let stats = RunStats { tid, began: clock::now(), ..RunStats::default() };
        let contents = Contents { stats, ..Contents::default() };
        Arc::new(Transaction { tid, inner: Mutex::new(&HANDLES, contents) })
    }

    /// Adds a block. A block that was freed and is metadata again must be replayed.
    pub fn join(&self, at: FsBlock) {
        let mut inner = self.inner.lock();
        inner.revokes.remove(&at);
        inner.blocks.push(at);
    }

    pub fn revoke(&self, at: FsBlock) {
        self.inner.lock().revokes.insert(at);
    }

    pub fn is_revoked(&self, at: FsBlock) -> bool {
        self.inner.lock().revokes.contains(&at)
    }

    /// Notes a function to be called; if the transaction has failed, it is called at once.
    pub fn on_commit(&self, f: OnCommit) {
        let mut inner = self.inner.lock();
        match inner.failed.clone() {
            None => inner.callbacks.push(f),
            Some(why) => {
                drop(inner);
                f(Err(why));
            }
        }
    }

    /// Notes that it will never be committed; returns the functions to be called.
    pub fn fail(&self, why: &Error) -> Vec<OnCommit> {
        let mut inner = self.inner.lock();
        inner.failed = Some(why.clone());
        std::mem::take(&mut inner.callbacks)
    }

    /// Blocks in ascending order, each once, and revokes. There must be no handle.
    pub fn contents(&self) -> (Vec<FsBlock>, Vec<FsBlock>) {
        let mut inner = self.inner.lock();
        inner.blocks.sort_unstable();
        inner.blocks.dedup();
        (inner.blocks.clone(), inner.revokes.iter().copied().collect())
    }

    pub fn take_callbacks(&self) -> Vec<OnCommit> {
        std::mem::take(&mut self.inner.lock().callbacks)
    }

    pub fn requested_now(&self) {
        self.inner.lock().requested.get_or_insert_with(clock::now);
    }

    pub fn requested(&self) -> Option<Nanos> {
        self.inner.lock().requested
    }

    pub fn enter(&self, phase: Phase) {
        self.inner.lock().phase = Some(phase);
    }

    pub fn phase(&self) -> Phase {
        self.inner.lock().phase.unwrap_or(Phase::Running)
    }

    pub fn stats<T>(&self, f: impl FnOnce(&mut RunStats) -> T) -> T {
        f(&mut self.inner.lock().stats)
    }

    pub fn set_claim(&self, log_blocks: u32) {
        self.inner.lock().claim = log_blocks;
    }

    pub fn claim(&self) -> u32 {
        self.inner.lock().claim
    }

    pub fn set_body(&self, body: Body) {
        self.inner.lock().body = Some(Arc::new(body));
    }

    pub fn body(&self) -> Option<Arc<Body>> {
        self.inner.lock().body.clone()
    }
}

/// The transaction that handles join.
pub(crate) struct Running {
    pub tx: Arc<Transaction>,
    pub locked: bool,
    /// Number of handles.
    pub updates: u32,
    /// Blocks that joined or may join: credits that are not given back.
    pub blocks: u32,
    /// Revokes, counted in the same way.
    pub revokes: u32,
    /// The part of `blocks` that handles asked for which have not ended.
    pub asked: u32,
    pub began: Nanos,
}

/// A transaction in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub tid: Tid,
    pub start: LogBlock,
    pub len: u32,
    /// The transaction is committed.
    pub finished: bool,
}

/// The blocks of the ring that are in use.
pub(crate) struct Ring {
    /// The block that is written next.
    pub head: LogBlock,
    /// The transaction that is written next.
    pub next: Tid,
    pub used: u32,
    /// The transactions in the log that recovery would need, in order.
    pub order: VecDeque<Placed>,
}

impl Ring {
    pub fn empty(sb: &Superblock, next: Tid) -> Ring {
        Ring { head: LogBlock(sb.ring.start), next, used: 0, order: VecDeque::new() }
    }

    /// The place where recovery begins, and its first transaction.
    pub fn tail(&self) -> (LogBlock, Tid) {
        self.order.front().map_or((self.head, self.next), |p| (p.start, p.tid))
    }
}

pub(crate) struct State {
    pub running: Option<Running>,
    /// Transactions that are switched and not finished, in order.
    pub pipeline: VecDeque<Arc<Transaction>>,
    /// Log blocks for transactions that are switched and have no place yet.
    pub unplaced: u32,
    /// Blocks that reserved handles may change.
    pub reserved: u32,
    pub next_tid: Tid,
    /// The newest transaction whose commit a thread wants (`j_commit_request`).
    pub request: Tid,
    /// The newest transaction that is committed (`j_commit_sequence`).
    pub done: Tid,
    /// The newest transaction whose body is durable, as far as the thread that writes records knows.
    pub flushed: Tid,
    pub ring: Ring,
    pub aborted: Option<Error>,
    /// Threads end when they have no work.
    pub closing: bool,
    /// Threads end now.
    pub dropped: bool,
    /// The thread whose handle last asked for its commit.
    pub last_sync_writer: u32,
    /// The time in the last record.
    pub last_time: Timespec,
    /// A handle waits for the end of others.
    pub crowded: bool,
    /// A handle waits for room in the log.
    pub wants_space: bool,
    /// The commit thread sleeps without a deadline: the next transaction wakes it.
    pub untimed: bool,
    /// The age at which a transaction is committed by itself.
    pub interval: Duration,
}

impl State {
    /// The newest transaction.
    pub fn newest(&self) -> Tid {
        self.next_tid.prev()
    }

    /// The transactions, from the oldest that is not committed on, whose bodies are on the device.
    pub fn bodies(&self) -> impl Iterator<Item = &Arc<Transaction>> {
        self.pipeline.iter().take_while(|t| t.body().is_some_and(|b| b.pending.is_done()))
    }

    pub fn check(&self) -> Result<()> {
        self.aborted.clone().map_or(Ok(()), Err)
    }

    /// Log blocks that are in use or reserved.
    pub fn claimed(&self, costs: &Costs) -> u32 {
        let running = self.running.as_ref().map_or(0, |r| costs.log_blocks(r.blocks, r.revokes));
        let reserved = if self.reserved == 0 { 0 } else { costs.log_blocks(self.reserved, 0) };
        self.ring.used + self.unplaced + running + reserved
    }
}
