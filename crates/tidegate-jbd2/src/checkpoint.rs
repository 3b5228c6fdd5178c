//! Checkpoints: committed blocks are written to their places, and the log gets room.
//!
//! The newest committed bytes of each block are kept here until they are on the volume. Older bytes are never
//! written, since the log that recovery would replay has the newer. A block that a committed transaction
//! freed is not written either: it may hold data by then.
//!
//! A pass takes the oldest transactions, a quarter of the log in all; writes their blocks; moves the log's
//! tail in the superblock, behind a flush and durably; and then frees their log blocks. With
//! `journal=pipelined` a thread makes passes when the log is half full, so that no handle waits; with
//! `journal=jbd2` the handle that finds the log full makes them.
//!
//! Locks: `journal->j_checkpoint_mutex` over a pass and its I/O; `journal->j_list_lock` over the blocks that
//! wait.

use crate::cache::Block;
use crate::io::Pending;
use crate::journal::{Inner, State};
use crate::stats::trace;
use crate::units::{FsBlock, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, Errno, Plug, Sector, Segment};
use tidegate_rt::{Condvar, LockClass, Mutex, clock};
use tidegate_vfs::{Error, Result};

static PASS: LockClass = LockClass::new("journal->j_checkpoint_mutex", 589);
static LIST: LockClass = LockClass::new("journal->j_list_lock", 595);

/// Committed blocks that are not in their places yet.
pub(crate) struct Checkpoints {
    pass: Mutex<()>,
    list: Mutex<List>,
    /// The end of a pass's writes.
    written: Condvar,
}

#[derive(Default)]
struct List {
    blocks: BTreeMap<FsBlock, (Tid, Block)>,
    /// Blocks that a pass is writing.
    writing: BTreeSet<FsBlock>,
}

impl Checkpoints {
    pub fn new() -> Checkpoints {
        Checkpoints {
            pass: Mutex::new(&PASS, ()),
            list: Mutex::new(&LIST, List::default()),
            written: Condvar::new(),
        }
    }

    /// Takes over the blocks of a committed transaction. When this returns, no pass writes freed blocks.
    pub fn add(&self, tid: Tid, blocks: &[(FsBlock, Block)], revokes: &[FsBlock]) {
        let mut list = self.list.lock();
        for at in revokes {
            while list.writing.contains(at) {
                self.written.wait(&mut list);
            }
            list.blocks.remove(at);
        }
        list.blocks.extend(blocks.iter().map(|(at, b)| (*at, (tid, b.clone()))));
    }

    /// Number of blocks that wait.
    pub fn blocks(&self) -> usize {
        self.list.lock().blocks.len()
    }

    /// The blocks of transactions up to `last`, which are being written from now on.
    fn take(&self, last: Tid) -> Vec<(FsBlock, Tid, Block)> {
        let mut list = self.list.lock();
        let upto =
            |(at, (tid, b)): (&FsBlock, &(Tid, Block))| last.reaches(*tid).then(|| (*at, *tid, b.clone()));
        let all: Vec<_> = list.blocks.iter().filter_map(upto).collect();
        list.writing = all.iter().map(|(at, ..)| *at).collect();
        all
    }

    /// Ends the write of a batch; `written`: the blocks are on the volume.
    fn end(&self, batch: &[(FsBlock, Tid, Block)], written: bool) {
        let mut list = self.list.lock();
        list.writing.clear();
        for (at, tid, _) in batch.iter().filter(|_| written) {
            if list.blocks.get(at).is_some_and(|(newest, _)| newest == tid) {
                list.blocks.remove(at);
            }
        }
        drop(list);
        self.written.notify_all();
    }
}

/// The checkpoint thread, with `journal=pipelined`.
pub(crate) fn run(inner: &Inner) {
    loop {
        {
            let mut state = inner.state.lock();
            loop {
                if state.dropped || state.aborted.is_some() || state.closing {
                    return;
                }
                if inner.wants_checkpoint(&state) {
                    state.wants_space = false;
                    break;
                }
                inner.waits.checkpoint.wait(&mut state);
            }
        }
        // The error aborts the journal, which ends this thread.
        let _ = inner.checkpoint();
    }
}

impl Inner {
    /// Whether the thread has work.
    pub fn wants_checkpoint(&self, state: &State) -> bool {
        let oldest_done = state.ring.order.front().is_some_and(|p| p.finished);
        let wanted = state.wants_space || state.ring.used > self.costs.ring / 2;
        oldest_done && (wanted || self.is_pinned())
    }

    /// Whether blocks that wait for a checkpoint take half the cache's memory.
    fn is_pinned(&self) -> bool {
        self.checkpoints.blocks() * self.cache.block_size() > self.options.cache_bytes / 2
    }

    /// Makes one pass; true if there was anything to do.
    ///
    /// # Errors
    /// The device's; the journal is aborted then.
    pub fn checkpoint(&self) -> Result<bool> {
        let _pass = self.checkpoints.pass.lock();
        let done = self.pass();
        done.inspect_err(|e| self.abort(e.clone()))
    }

    fn pass(&self) -> Result<bool> {
        let Some(last) = self.oldest() else { return Ok(false) };
        let _span = trace::CHECKPOINT.enter([last.0.into()]);
        let began = clock::now();
        let batch = self.checkpoints.take(last);
        let written = self.write(&batch);
        self.checkpoints.end(&batch, written.is_ok());
        written.map_err(|e| Error::device(e, "writing metadata blocks to the volume"))?;
        for (at, tid, _) in &batch {
            self.cache.checkpointed(*at, *tid);
        }
        let took = clock::now().since(began).0;
        trace::CHECKPOINT_STATS.record([last.0.into(), took, batch.len() as u64]);
        self.move_tail(last)?;
        Ok(true)
    }

    /// The last of the transactions that the next pass takes.
    fn oldest(&self) -> Option<Tid> {
        let state = self.state.lock();
        let mut freed = 0;
        let mut last = None;
        for p in state.ring.order.iter().take_while(|p| p.finished) {
            if freed >= self.costs.ring / 4 {
                break;
            }
            freed += p.len;
            last = Some(p.tid);
        }
        last
    }

    fn write(&self, batch: &[(FsBlock, Tid, Block)]) -> std::result::Result<(), Errno> {
        if batch.is_empty() {
            return Ok(());
        }
        let (pending, size) = (Pending::new(), self.cache.block_size());
        {
            let mut plug = Plug::new(&self.volume);
            for (at, _, b) in batch {
                let segment = Segment { buf: b.buf().clone(), offset: 0, len: size as u32 };
                let sector = Sector::from_bytes(at.0 * size as u64);
                plug.add(pending.watch(Bio::write(sector, vec![segment], BioFlags::META)));
            }
            self.stats.checkpointed(batch.len() as u64);
        }
        pending.wait()?;
        // If log and volume are on one device, the superblock's flush is enough.
        if Arc::ptr_eq(self.log.queue(), &self.volume) { Ok(()) } else { self.volume.flush() }
    }

    /// Moves the log's tail behind `last`: first durably, then the log blocks are free.
    fn move_tail(&self, last: Tid) -> Result<()> {
        let mut first = self.first.lock();
        let mut state = self.state.lock();
        let mut freed = 0;
        while let Some(p) = state.ring.order.front().filter(|p| last.reaches(p.tid) && p.finished) {
            freed += p.len;
            state.ring.order.pop_front();
        }
        let (tail, tid) = state.ring.tail();
        drop(state);
        first.write(&self.log, tid, Some(tail))?;
        trace::UPDATE_LOG_TAIL.record([tid.0.into(), tail.0.into(), freed.into()]);
        drop(first);
        self.state.lock().ring.used -= freed;
        self.waits.space.notify_all();
        Ok(())
    }
}
