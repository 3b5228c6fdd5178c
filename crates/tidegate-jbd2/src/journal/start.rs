//! Admission: the transaction that a handle joins, and the time when it does.

use super::credits::Credits;
use super::state::{Running, State, Transaction};
use super::{Inner, JournalMode};
use crate::stats::trace;
use std::sync::Arc;
use tidegate_rt::{MutexGuard, clock};
use tidegate_vfs::{Error, ErrorKind, Result};

/// The event that a handle waits for.
enum Wait {
    /// Another running transaction, or the end of handles of this one.
    Running,
    /// Room in the log.
    Space,
}

impl Inner {
    /// Joins the running transaction as soon as that has room.
    pub(super) fn join_running(this: &Arc<Inner>, credits: Credits) -> Result<Arc<Transaction>> {
        let weight = this.costs.weight(credits.blocks, credits.revokes).saturating_add(credits.reserve);
        if weight > this.costs.max {
            let what = format!("a handle of {weight} blocks; a transaction has {}", this.costs.max);
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        let mut state = this.state.lock();
        let (mut came, mut told) = (None, false);
        loop {
            state.check()?;
            if state.closing {
                return Err(Error::new(ErrorKind::ReadOnly, "the journal was closed"));
            }
            let admitted = this.admit(&mut state, credits);
            if admitted.is_err() {
                came.get_or_insert_with(clock::now);
            }
            if admitted.is_err() && !told {
                told = true;
                drop(state);
                this.options.hooks.before_wait();
                state = this.state.lock();
                continue;
            }
            // Another wait is announced again: more bios may have been gathered meanwhile.
            told = false;
            match admitted {
                Ok(tx) => {
                    drop(state);
                    if let Some(at) = came {
                        let waited = clock::now().since(at);
                        tx.stats(|s| s.wait = s.wait.max(waited));
                    }
                    return Ok(tx);
                }
                Err(Wait::Running) => {
                    let _span = trace::WAIT_LOCKED.enter([]);
                    this.waits.running.wait(&mut state);
                }
                Err(Wait::Space) => state = this.wait_for_space(state),
            }
        }
    }

    /// Joins the running transaction, or returns the event to wait for.
    fn admit(&self, state: &mut State, credits: Credits) -> std::result::Result<Arc<Transaction>, Wait> {
        let mut full = None;
        if let Some(running) = &state.running {
            if running.locked {
                return Err(Wait::Running);
            }
            let have = self.costs.weight(running.blocks, running.revokes) + state.reserved;
            let want = self.costs.weight(credits.blocks, credits.revokes) + credits.reserve;
            if have + want > self.costs.max {
                // Live handles soon give back the credits that they do not use.
                let taken = have - running.asked.min(have);
                let fits = self.options.mode == JournalMode::Pipelined && taken + want <= self.costs.max;
                full = Some((running.tx.tid, fits));
            }
        }
        match full {
            Some((_, true)) => {
                state.crowded = true;
                return Err(Wait::Running);
            }
            Some((tid, false)) => {
                self.request(state, tid);
                return Err(Wait::Running);
            }
            None => {}
        }
        let (blocks, revokes) = state.running.as_ref().map_or((0, 0), |r| (r.blocks, r.revokes));
        let (blocks, revokes) = (blocks + credits.blocks, revokes + credits.revokes);
        let reserved = state.reserved + credits.reserve;
        let reserve = if reserved == 0 { 0 } else { self.costs.log_blocks(reserved, 0) };
        let claimed = state.ring.used + state.unplaced + self.costs.log_blocks(blocks, revokes) + reserve;
        if claimed > self.costs.ring - self.costs.margin {
            return Err(Wait::Space);
        }
        let running = self.run(state);
        (running.blocks, running.revokes) = (blocks, revokes);
        running.asked += credits.blocks;
        running.updates += 1;
        let tx = running.tx.clone();
        state.reserved = reserved;
        Ok(tx)
    }

    /// The running transaction; a new one if there is none.
    pub fn run<'a>(&self, state: &'a mut State) -> &'a mut Running {
        let State { running, next_tid, untimed, .. } = state;
        running.get_or_insert_with(|| {
            let tx = Transaction::new(*next_tid);
            *next_tid = next_tid.next();
            // The commit thread must wake before the transaction is old; a sleep without a deadline is the
            // only exception.
            if std::mem::take(untimed) {
                self.waits.commit.notify_all();
            }
            Running { tx, locked: false, updates: 0, blocks: 0, revokes: 0, asked: 0, began: clock::now() }
        })
    }

    /// Waits for room in the log. Blocks that hold room are checkpointed, after a commit if there are no
    /// others.
    fn wait_for_space<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.stats.waited_for_space();
        let _span = trace::WAIT_SPACE.enter([]);
        let idle = state.ring.used == 0 && state.pipeline.is_empty();
        if let Some(running) = &state.running
            && (idle || state.ring.used < self.costs.ring / 2)
        {
            let tid = running.tx.tid;
            self.request(&mut state, tid);
        }
        let oldest_done = state.ring.order.front().is_some_and(|p| p.finished);
        if self.options.mode == JournalMode::Jbd2 && oldest_done {
            drop(state);
            // An error aborts the journal, which the caller sees.
            let _ = self.checkpoint();
            return self.state.lock();
        }
        state.wants_space = true;
        self.waits.checkpoint.notify_all();
        self.waits.space.wait(&mut state);
        state
    }
}
