//! Handles: sets of changes of blocks that belong together.

use super::credits::Credits;
use super::state::Transaction;
use super::{Inner, Journal, JournalMode, Phase};
use crate::cache::{Block, BufferState, Touch};
use crate::stats::trace;
use crate::units::{FsBlock, Tid};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use tidegate_rt::{Nanos, clock, thread};
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{Error, ErrorKind, Result};

/// A part of the running transaction: after a power cut, all of its changes are there or none. It ends when
/// dropped. Its owner waits for no I/O except reads of blocks that it is about to change.
pub struct Handle {
    journal: Arc<Inner>,
    tx: Arc<Transaction>,
    /// Credits that are left.
    left: Credits,
    asked: u32,
    sync: bool,
    ended: bool,
    began: Nanos,
}

/// Credits for a handle that is started later, without a wait.
pub struct Reserved {
    journal: Arc<Inner>,
    blocks: u32,
    kind: u8,
}

impl Journal {
    /// Starts a handle. Waits while the running transaction is being locked or is full, or the log has no
    /// room. A thread has one handle at a time, and must start none while it holds a lock that an owner of a
    /// handle may want.
    ///
    /// # Errors
    /// `NoSpace` for more credits than a transaction has, `ReadOnly` when the journal was aborted.
    pub fn start(&self, credits: Credits) -> Result<Handle> {
        Handle::start(&self.inner, credits)
    }
}

impl Handle {
    fn start(journal: &Arc<Inner>, credits: Credits) -> Result<Handle> {
        Ok(Handle::new(journal.clone(), Inner::join_running(journal, credits)?, credits))
    }

    pub(super) fn new(journal: Arc<Inner>, tx: Arc<Transaction>, left: Credits) -> Handle {
        let asked = left.blocks;
        trace::HANDLE_START.record([tx.tid.0.into(), left.kind.into(), asked.into()]);
        tx.stats(|s| s.handles += 1);
        Handle { journal, tx, asked, left, sync: false, ended: false, began: clock::now() }
    }

    /// The transaction that the handle is part of.
    pub fn tid(&self) -> Tid {
        self.tx.tid
    }

    /// Number of blocks that the handle may still change.
    pub fn credits(&self) -> u32 {
        self.left.blocks
    }

    /// The newest bytes of a block.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the volume's end.
    pub fn get(&self, at: FsBlock) -> Result<Block> {
        self.journal.cache.get(at)
    }

    /// Lets `f` change a block; `f` must not use the journal otherwise.
    ///
    /// # Errors
    /// The device's, when the block is read; `NoSpace` when the handle has no credit left; `ReadOnly` and
    /// others when the journal was aborted. `f` was not called then.
    pub fn write<T>(&mut self, at: FsBlock, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.change(at, Touch::Read, f)
    }

    /// Lets `f` fill a new block: it is not read, and `f` gets zeros.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub fn create<T>(&mut self, at: FsBlock, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.change(at, Touch::Fresh, f)
    }

    /// Replaces all bytes of a block, which is not read. `bytes` are as many as a block has, and right by the checks that
    /// the block passed ([`Block::is_verified`]).
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub fn replace(&mut self, at: FsBlock, bytes: &[u8]) -> Result<()> {
        self.change(at, Touch::Whole, |block| block.copy_from_slice(bytes))
    }

    /// Lets `f` change a block that holds a file's data. The block stays in the cache until the device has it
    /// in its place ([`crate::Cache::peek`]).
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub fn log_data<T>(&mut self, at: FsBlock, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.change(at, Touch::Data, f)
    }

    fn change<T>(&mut self, at: FsBlock, touch: Touch, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.check_open()?;
        self.wait_for_log(at);
        let (journal, tid) = (&self.journal, self.tx.tid);
        let may_join = self.left.blocks > 0 && !journal.is_aborted.load(Acquire);
        let Some(changed) = journal.cache.change(at, tid, (touch, may_join), f)? else {
            journal.state.lock().check()?;
            return Err(self.short("change", at));
        };
        if changed.joined {
            match self.left.blocks.checked_sub(1) {
                Some(left) => self.left.blocks = left,
                // The block was part of the transaction, and another handle freed it meanwhile.
                None => journal.run(&mut journal.state.lock()).blocks += 1,
            }
            self.tx.join(at);
        }
        Ok(changed.value)
    }

    /// Whether changes may wait for the log: with `journal=jbd2`.
    pub fn waits_for_log(&self) -> bool {
        self.journal.options.mode == JournalMode::Jbd2
    }

    /// Waits while a block is on its way to the log, if a change would wait for that: for a thread that makes the change
    /// with a lock held.
    pub fn wait_for_log(&self, at: FsBlock) {
        if self.waits_for_log() {
            let state = self.journal.cache.state(at);
            if state != Some(BufferState::Running(self.tx.tid)) {
                self.journal.wait_for_shadow(state);
            }
        }
    }

    /// Frees a block of metadata: its changes are dropped, and the log's copies of it are revoked. Only when
    /// this transaction is committed may the block hold data or be freed on the device.
    ///
    /// # Errors
    /// `NoSpace` when the handle has no revoke credits left.
    pub fn forget(&mut self, at: FsBlock) -> Result<()> {
        self.check_open()?;
        self.journal.state.lock().check()?;
        if !self.tx.is_revoked(at) {
            self.left.revokes = self.left.revokes.checked_sub(1).ok_or_else(|| self.short("free", at))?;
            if !self.journal.options.planted.is(PlantedBug::MissingRevoke) {
                self.tx.revoke(at);
            }
        }
        self.journal.cache.forget(at, self.tx.tid);
        Ok(())
    }

    /// A handle whose restart failed belongs to no transaction.
    fn check_open(&self) -> Result<()> {
        match self.ended {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::ReadOnly, "a handle of the journal that ended")),
        }
    }

    fn short(&self, what: &str, at: FsBlock) -> Error {
        let text = format!("transaction {}: no credit left to {what} block {at}", self.tx.tid);
        Error::new(ErrorKind::NoSpace, text)
    }

    /// Gets more credits from the transaction, even while its commit waits for this handle; false if it has
    /// none. Never waits.
    pub fn extend(&mut self, blocks: u32, revokes: u32) -> bool {
        let journal = &self.journal;
        if self.ended {
            return false;
        }
        let mut state = journal.state.lock();
        let claimed = state.claimed(&journal.costs);
        let reserved = state.reserved;
        let Some(running) = state.running.as_mut() else { return false };
        let (b, r) = (running.blocks + blocks, running.revokes + revokes);
        let more = journal.costs.log_blocks(b, r) - journal.costs.log_blocks(running.blocks, running.revokes);
        if journal.costs.weight(b, r) + reserved > journal.costs.max
            || claimed + more > journal.costs.ring - journal.costs.margin
        {
            return false;
        }
        (running.blocks, running.revokes) = (b, r);
        running.asked += blocks;
        drop(state);
        trace::HANDLE_EXTEND.record([self.tx.tid.0.into(), self.left.blocks.into(), blocks.into()]);
        self.left.blocks += blocks;
        self.left.revokes += revokes;
        self.asked += blocks;
        true
    }

    /// Ends this part and begins another with new `credits`, in another transaction if this one has no room:
    /// the changes so far may be committed without the rest.
    ///
    /// # Errors
    /// As [`super::Journal::start`]; the handle cannot be used after an error.
    pub fn restart(&mut self, credits: Credits) -> Result<()> {
        let journal = self.journal.clone();
        self.end();
        *self = Handle::start(&journal, credits)?;
        Ok(())
    }

    /// Takes the reserved credits, for a handle of their own; `None` when none were asked for.
    pub fn reserve(&mut self) -> Option<Reserved> {
        let blocks = std::mem::take(&mut self.left.reserve);
        let kind = self.left.kind;
        (blocks > 0).then(|| Reserved { journal: self.journal.clone(), blocks, kind })
    }

    /// Notes that the caller will wait for the commit: when threads sync in turns, a sync waits a little for
    /// others to join.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }

    /// Calls `f` when the transaction is committed, or with the reason why it never will be. `f` must not
    /// wait.
    pub fn on_commit(&self, f: impl FnOnce(Result<()>) + Send + 'static) {
        self.tx.on_commit(Box::new(f));
    }

    /// Ends the handle; returns its transaction.
    pub fn stop(self) -> Tid {
        self.tx.tid
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let took = clock::now().since(self.began);
        let used = self.asked.saturating_sub(self.left.blocks);
        let kind = self.left.kind.into();
        trace::HANDLE_STATS.record([self.tx.tid.0.into(), kind, took.0, used.into()]);
        if self.sync {
            self.journal.batch(&self.tx);
        }
        let journal = &self.journal;
        let mut state = journal.state.lock();
        state.reserved -= self.left.reserve;
        if let Some(running) = &mut state.running {
            running.blocks -= self.left.blocks.min(running.blocks);
            running.revokes -= self.left.revokes.min(running.revokes);
            running.asked -= self.asked.min(running.asked);
            running.updates -= 1;
            if running.updates == 0 && running.locked {
                journal.waits.updates.notify_all();
            }
        }
        if std::mem::take(&mut state.crowded) {
            journal.waits.running.notify_all();
        }
        if self.sync {
            journal.request(&mut state, self.tx.tid);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Reserved {
    /// Blocks that the later handle may change.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// These credits for another purpose than that of the handle they come from.
    pub fn of_kind(mut self, kind: u8) -> Reserved {
        self.kind = kind;
        self
    }

    /// Starts the handle. It may join a transaction that is being locked, and never waits.
    ///
    /// # Errors
    /// When the journal was aborted.
    pub fn start(mut self) -> Result<Handle> {
        let mut state = self.journal.state.lock();
        state.check()?;
        let blocks = std::mem::take(&mut self.blocks);
        state.reserved -= blocks;
        let running = self.journal.run(&mut state);
        running.blocks += blocks;
        running.asked += blocks;
        running.updates += 1;
        let tx = running.tx.clone();
        drop(state);
        Ok(Handle::new(self.journal.clone(), tx, Credits { kind: self.kind, ..Credits::blocks(blocks) }))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.journal.state.lock().reserved -= self.blocks;
            self.journal.waits.space.notify_all();
        }
    }
}

impl Inner {
    /// With `journal=jbd2`: waits while a block is on its way to the log (`BH_Shadow`).
    fn wait_for_shadow(&self, state: Option<BufferState>) {
        let Some(BufferState::Committing(tid)) = state else { return };
        let mut span = None;
        let mut state = self.state.lock();
        let writes = |t: &Arc<Transaction>| t.tid == tid && t.phase() <= Phase::Commit;
        while state.aborted.is_none() && !state.dropped && state.pipeline.iter().any(writes) {
            span.get_or_insert_with(|| trace::WAIT_SHADOW.enter([tid.0.into()]));
            self.waits.done(tid).wait(&mut state);
        }
    }

    /// With `journal=jbd2`: a handle whose commit is waited for stays open for about as long as a commit
    /// takes, so that others join; not if the thread syncs alone.
    fn batch(&self, tx: &Transaction) {
        let o = &self.options;
        if o.mode != JournalMode::Jbd2 || o.max_batch_time.is_zero() {
            return;
        }
        let me = thread::id();
        {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.last_sync_writer, me) == me {
                return;
            }
        }
        let time = self.stats.average().duration().clamp(o.min_batch_time, o.max_batch_time);
        let age = clock::now().since(tx.stats(|s| s.began)).duration();
        if age < time {
            thread::sleep(time);
        }
    }
}
