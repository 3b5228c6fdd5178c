//! Commits: a transaction is written to the log, and its record makes it valid.
//!
//! The thread `tg-jbd2` takes the running transaction when a thread wants its commit or it is old, waits for
//! its handles, and sends its body. With `journal=jbd2` it waits for the body, writes the record, and only
//! then takes the next transaction. With `journal=pipelined` another thread writes the record, so that the
//! next body is sent while the record is on its way:
//!
//! - record N is sent when body N is on the device, behind a flush, and record N−1 is durable;
//! - one flush serves all bodies that are on the device when it begins, and the record before them;
//! - at most one transaction is ahead of one that is being locked, so an fsync waits for one record of others.
//!
//! | module | holds |
//! |---|---|
//! | `body` | data that goes first, revoke blocks, descriptors, blocks |
//! | `record` | the record, and what follows it |

mod body;
mod record;

use crate::journal::{Inner, JournalMode, Phase, Running, State, Transaction};
use crate::stats::trace;
use std::sync::Arc;
use tidegate_rt::{MutexGuard, clock};
use tidegate_vfs::Result;

/// The commit thread.
pub(crate) fn run(inner: &Inner) {
    while let Some(tx) = inner.take() {
        let mut done = inner.send_body(&tx);
        if done.is_ok() && inner.options.mode == JournalMode::Jbd2 {
            done = inner.write_records(&[tx]);
        }
        if let Err(e) = done {
            inner.abort(e);
        }
    }
    inner.fail_callbacks();
}

/// The thread that writes records, with `journal=pipelined`.
pub(crate) fn run_records(inner: &Inner) {
    while let Some(batch) = inner.next_bodies() {
        if let Err(e) = batch.and_then(|txs| inner.write_records(&txs)) {
            inner.abort(e);
        }
    }
}

impl Inner {
    /// The number of transactions that may be on their way at once.
    fn depth(&self) -> usize {
        match self.options.mode {
            JournalMode::Jbd2 => 1,
            JournalMode::Pipelined => 2,
        }
    }

    /// Waits for a transaction to commit, and for the end of its handles; `None` when the thread is to end.
    fn take(&self) -> Option<Arc<Transaction>> {
        let mut state = self.state.lock();
        let mut idle = false;
        loop {
            if state.dropped || state.aborted.is_some() {
                return None;
            }
            if state.running.is_none() && state.closing {
                return None;
            }
            if self.is_wanted(&state) {
                if state.pipeline.len() < self.depth() {
                    break;
                }
                self.waits.commit.wait(&mut state);
                continue;
            }
            // A transaction that begins while this thread sleeps is not old before the thread wakes, and does
            // not wake it.
            match state.running.as_ref().map(|r| clock::now().since(r.began).duration()) {
                None if idle => {
                    state.untimed = true;
                    self.waits.commit.wait(&mut state);
                    (state.untimed, idle) = (false, false);
                }
                None => {
                    let interval = state.interval;
                    idle = !self.waits.commit.wait_for(&mut state, interval);
                }
                Some(age) => {
                    let left = state.interval.saturating_sub(age);
                    self.waits.commit.wait_for(&mut state, left);
                }
            }
        }
        self.switch(state)
    }

    /// Locks the running transaction, and switches it when its handles have ended.
    fn switch(&self, mut state: MutexGuard<'_, State>) -> Option<Arc<Transaction>> {
        let tx = state.running.as_ref()?.tx.clone();
        tx.enter(Phase::Locked);
        let (now, requested) = (clock::now(), tx.requested());
        trace::START_COMMIT.record([tx.tid.0.into()]);
        trace::COMMIT_LOCKING.record([tx.tid.0.into()]);
        tx.stats(|s| {
            s.requested = requested.is_some();
            s.request_delay = requested.map_or(Default::default(), |at| now.since(at));
            s.running = now.since(s.began);
        });
        state.running.as_mut()?.locked = true;
        let mut span = None;
        while state.running.as_ref()?.updates > 0 {
            if state.dropped || state.aborted.is_some() {
                return None;
            }
            span.get_or_insert_with(|| trace::WAIT_UPDATES.enter([tx.tid.0.into()]));
            self.waits.updates.wait(&mut state);
        }
        // The last handle may have ended because it failed half way.
        if state.aborted.is_some() {
            return None;
        }
        tx.enter(Phase::Switch);
        tx.stats(|s| s.locked = clock::now().since(now));
        let Running { blocks, revokes, .. } = state.running.take()?;
        state.unplaced += self.costs.log_blocks(blocks, revokes);
        state.pipeline.push_back(tx.clone());
        self.waits.running.notify_all();
        drop(state);
        tx.set_claim(self.costs.log_blocks(blocks, revokes));
        Some(tx)
    }

    /// Waits for bodies that are on the device, the oldest first; `None` when the thread is to end.
    fn next_bodies(&self) -> Option<Result<Vec<Arc<Transaction>>>> {
        let mut state = self.state.lock();
        let (first, body) = loop {
            if state.dropped || state.aborted.is_some() {
                return None;
            }
            if let Some(body) = state.pipeline.front().and_then(|t| Some((t.clone(), t.body()?))) {
                break body;
            }
            if state.closing && state.running.is_none() && state.pipeline.is_empty() {
                return None;
            }
            self.waits.body.wait(&mut state);
        };
        drop(state);
        if let Err(e) = body.pending.wait() {
            return Some(Err(record::failed(e, first.tid, "body")));
        }
        Some(Ok(self.state.lock().bodies().cloned().collect()))
    }

    /// Tells all threads that wait for a commit that there will be none.
    fn fail_callbacks(&self) {
        let state = self.state.lock();
        let Some(why) = state.aborted.clone() else { return };
        let running = state.running.iter().map(|r| &r.tx);
        let callbacks: Vec<_> = state.pipeline.iter().chain(running).flat_map(|t| t.fail(&why)).collect();
        drop(state);
        callbacks.into_iter().for_each(|f| f(Err(why.clone())));
    }
}
