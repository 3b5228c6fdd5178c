//! The record of a transaction, and the work after it is durable.

use super::body::span;
use crate::cache::Block;
use crate::format::record;
use crate::io;
use crate::journal::{Body, Inner, JournalMode, Phase, State, Transaction};
use crate::stats::trace;
use crate::units::Tid;
use std::sync::Arc;
use tidegate_block::{BioFlags, Errno};
use tidegate_rt::{Nanos, Timespec, clock};
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{Error, Result};

pub(super) fn failed(e: Errno, tid: Tid, what: &str) -> Error {
    Error::device(e, format!("writing the {what} of transaction {tid} to the journal"))
}

impl Inner {
    /// Whether the running transaction must be committed: a thread asked for that, it is old, or the journal
    /// ends.
    pub(super) fn is_wanted(&self, state: &State) -> bool {
        state.running.as_ref().is_some_and(|r| {
            let is_old = || clock::now().since(r.began).duration() >= state.interval;
            state.request.reaches(r.tx.tid) || state.closing || is_old()
        })
    }

    /// Makes transactions valid, one after the other. Their bodies have been sent, and all earlier
    /// transactions are valid.
    ///
    /// # Errors
    /// The device's, which abort the journal.
    pub(super) fn write_records(&self, txs: &[Arc<Transaction>]) -> Result<()> {
        let bodies: Vec<_> = txs.iter().filter_map(|t| Some((t, t.body()?))).collect();
        for (tx, body) in &bodies {
            body.pending.wait().map_err(|e| failed(e, tx.tid, "body"))?;
            self.body_is_there(tx);
        }
        // The journal is on a device of its own: the volume's data must be durable before the records are.
        if !Arc::ptr_eq(self.log.queue(), &self.volume) {
            self.volume.flush().map_err(|e| Error::device(e, "flushing the volume for the journal"))?;
        }
        for (tx, body) in &bodies {
            // A flush elsewhere that failed may have been for this body.
            if let Some(why) = self.state.lock().aborted.clone() {
                return Err(why);
            }
            self.write_record(tx, body)?;
            self.finish(tx, body);
        }
        Ok(())
    }

    /// Lets the body's blocks change again, with `journal=jbd2`.
    fn body_is_there(&self, tx: &Transaction) {
        tx.enter(Phase::Jflush);
        if self.options.mode == JournalMode::Jbd2 {
            let _state = self.state.lock();
            self.waits.done(tx.tid).notify_all();
        }
    }

    /// Writes a record behind the body, and makes it durable: by FUA or, where another transaction follows, by a flush. That
    /// also serves later bodies that are on the device when it begins: their records need none before them.
    fn write_record(&self, tx: &Transaction, body: &Body) -> Result<()> {
        let _span = trace::RECORD.enter([tx.tid.0.into()]);
        let mut flags = BioFlags::META | BioFlags::SYNC;
        let (is_durable, is_followed) = {
            let state = self.state.lock();
            (state.flushed.reaches(tx.tid), state.pipeline.len() > 1)
        };
        if !is_durable && !self.options.planted.is(PlantedBug::MissingFlush) {
            flags |= BioFlags::PREFLUSH;
        }
        if !is_followed {
            flags |= BioFlags::FUA;
        }
        let mut block = Block::zeroed(self.cache.block_size());
        record(&self.sb, tx.tid, self.commit_time(), block.change().0);
        let (at, _) = self.log.place(body.record, 1)?;
        let byte = at.0 * self.cache.block_size() as u64;
        let bio = io::write_bio(byte, &block, flags);
        self.stats.logged(1);
        self.log.queue().submit_wait(bio).map_err(|e| failed(e, tx.tid, "record"))?;
        if !is_followed {
            self.state.lock().flushed = tx.tid;
            return Ok(());
        }
        let there = self.state.lock().bodies().last().map_or(tx.tid, |newest| newest.tid);
        let flushing = |e| Error::device(e, format!("flushing the record of transaction {}", tx.tid));
        self.log.queue().flush().map_err(flushing)?;
        let mut state = self.state.lock();
        state.flushed = there;
        // A flush elsewhere that failed may have been for this record.
        state.check()
    }

    /// The time in a record. It never goes back: otherwise recovery would take later transactions for an
    /// older log.
    fn commit_time(&self) -> Timespec {
        let now = self.options.fixed_time.unwrap_or_else(clock::realtime);
        let mut state = self.state.lock();
        state.last_time = state.last_time.max(now);
        state.last_time
    }

    /// Finishes a transaction that is durable.
    fn finish(&self, tx: &Transaction, body: &Body) {
        tx.enter(Phase::Callback);
        for (at, _) in &body.blocks {
            self.cache.committed(*at, tx.tid);
        }
        self.checkpoints.add(tx.tid, &body.blocks, &body.revokes);
        tx.take_callbacks().into_iter().for_each(|f| f(Ok(())));
        tx.enter(Phase::Finished);
        let now = clock::now();
        let stats = tx.stats(|s| {
            s.logging = span(s.logging_began, now);
            s.commit = Nanos(span(s.began, now).0.saturating_sub(s.running.0));
            *s
        });
        self.stats.committed(stats);
        let mut state = self.state.lock();
        trace::END_COMMIT.record([tx.tid.0.into(), state.ring.tail().1.0.into()]);
        state.pipeline.pop_front();
        state.done = tx.tid;
        if let Some(placed) = state.ring.order.iter_mut().find(|p| p.tid == tx.tid) {
            placed.finished = true;
        }
        let waits = &self.waits;
        [waits.done(tx.tid), &waits.space, &waits.body].into_iter().for_each(|w| w.notify_all());
        // Threads without work are not woken.
        if self.is_wanted(&state) {
            waits.commit.notify_all();
        }
        if self.wants_checkpoint(&state) {
            waits.checkpoint.notify_all();
        }
    }
}
