//! A transaction's body: its part of the log before the record.

use crate::cache::Block;
use crate::format::raw::{FLAG_ESCAPE, FLAG_LAST_TAG, FLAG_SAME_UUID, JBD2_MAGIC};
use crate::format::{descriptor, revokes, tag};
use crate::io::Pending;
use crate::journal::{Body, Inner, Phase, Placed, Transaction};
use crate::stats::trace;
use crate::units::{FsBlock, LogBlock, Tid};
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, RequestQueue, Sector, Segment};
use tidegate_rt::{Nanos, clock};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Most blocks of a bio.
const BIO_BLOCKS: u32 = 64;

impl Inner {
    /// Writes the data that must be first, and sends the body to the log.
    ///
    /// # Errors
    /// The device's, which abort the journal.
    pub(super) fn send_body(&self, tx: &Arc<Transaction>) -> Result<()> {
        let _span = trace::BODY.enter([tx.tid.0.into()]);
        tx.enter(Phase::Flush);
        trace::COMMIT_FLUSHING.record([tx.tid.0.into()]);
        let began = clock::now();
        self.options.hooks.flush_data(tx.tid)?;
        self.mark_in_use()?;
        tx.enter(Phase::Commit);
        trace::COMMIT_LOGGING.record([tx.tid.0.into()]);
        let now = clock::now();
        tx.stats(|s| (s.flushing, s.logging_began) = (now.since(began), now));
        let (blocks, revokes) = tx.contents();
        let frozen = |at: FsBlock| Some((at, self.cache.freeze(at, tx.tid)?));
        let blocks: Vec<_> = blocks.into_iter().filter_map(frozen).collect();
        let log_blocks = self.lay_out(tx.tid, &blocks, &revokes);
        tx.stats(|s| (s.blocks, s.blocks_logged) = (blocks.len() as u32, log_blocks.len() as u32 + 1));
        let (start, record) = self.place(tx, log_blocks.len() as u32)?;
        let pending = self.send(start, &log_blocks)?;
        tx.set_body(Body { pending, record, blocks, revokes });
        let state = self.state.lock();
        self.waits.body.notify_all();
        drop(state);
        Ok(())
    }

    /// The body's log blocks, in order.
    fn lay_out(&self, tid: Tid, blocks: &[(FsBlock, Block)], freed: &[FsBlock]) -> Vec<Block> {
        let size = self.cache.block_size();
        let (sb, layout) = (&self.sb, self.layout);
        let mut all = Vec::with_capacity(blocks.len() + blocks.len() / 16 + 2);
        for some in freed.chunks(self.costs.revokes as usize) {
            let mut b = Block::zeroed(size);
            revokes(sb, tid, some, b.change().0);
            all.push(b);
        }
        for some in blocks.chunks(self.costs.tags as usize) {
            let logged: Vec<_> = some.iter().map(|(_, b)| escape(b)).collect();
            let tags = some.iter().zip(&logged).enumerate().map(|(n, ((at, _), (bytes, escaped)))| {
                let flags =
                    [(*escaped, FLAG_ESCAPE), (n > 0, FLAG_SAME_UUID), (n + 1 == some.len(), FLAG_LAST_TAG)];
                let flags = flags.into_iter().filter(|(on, _)| *on).map(|(_, f)| f).sum();
                tag(sb, layout, tid, (*at, bytes), flags)
            });
            let mut b = Block::zeroed(size);
            descriptor(sb, layout, tid, tags, b.change().0);
            all.push(b);
            all.extend(logged.into_iter().map(|(b, _)| b));
        }
        all
    }

    /// Takes `len` blocks of the ring and one for the record; returns the first block, and the record's.
    fn place(&self, tx: &Transaction, len: u32) -> Result<(LogBlock, LogBlock)> {
        let mut state = self.state.lock();
        state.unplaced -= tx.claim();
        if state.ring.used + len + 1 > self.costs.ring {
            let text = format!("transaction {} has {len} blocks, the log has no room", tx.tid);
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        let ring = &mut state.ring;
        let start = ring.head;
        ring.order.push_back(Placed { tid: tx.tid, start, len: len + 1, finished: false });
        ring.used += len + 1;
        ring.head = self.sb.forward(start, len + 1);
        ring.next = tx.tid.next();
        Ok((start, self.sb.forward(start, len)))
    }

    /// Sends log blocks from `at` on, neighbours in one bio.
    fn send(&self, mut at: LogBlock, blocks: &[Block]) -> Result<Arc<Pending>> {
        let (pending, size) = (Pending::new(), self.cache.block_size());
        let mut rest = blocks;
        while !rest.is_empty() {
            let to_end = self.sb.ring.end - at.0;
            let most = (rest.len() as u32).min(to_end).min(BIO_BLOCKS);
            let (first, n) = self.log.place(at, most)?;
            let (some, others) = rest.split_at(n as usize);
            let segment = |b: &Block| Segment { buf: b.buf().clone(), offset: 0, len: size as u32 };
            let sector = Sector::from_bytes(first.0 * size as u64);
            let flags = BioFlags::META | BioFlags::SYNC;
            let bio = Bio::write(sector, some.iter().map(segment).collect(), flags);
            self.stats.logged(n.into());
            let queue = self.log.queue();
            // This thread has no other work that the last bio would delay.
            let send = if others.is_empty() { RequestQueue::submit_here } else { RequestQueue::submit };
            send(queue, pending.watch(bio));
            (at, rest) = (self.sb.forward(at, n), others);
        }
        Ok(pending)
    }

    /// Marks the log as in use in the superblock, before the first transaction is in the log.
    fn mark_in_use(&self) -> Result<()> {
        let mut first = self.first.lock();
        if first.sb.start.is_some() {
            return Ok(());
        }
        let (tail, tid) = self.state.lock().ring.tail();
        first.write(&self.log, tid, Some(tail))
    }
}

/// The bytes of a block for the log, and whether they differ from the block's own.
fn escape(block: &Block) -> (Block, bool) {
    let mut logged = block.clone();
    let is_magic = block.starts_with(&JBD2_MAGIC.to_be_bytes());
    if is_magic {
        logged.change().0[..4].fill(0);
    }
    (logged, is_magic)
}

/// The time from one moment to another, if both are known.
pub(super) fn span(from: Nanos, to: Nanos) -> Nanos {
    if from == Nanos(0) { Nanos(0) } else { to.since(from) }
}
