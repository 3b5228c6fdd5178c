//! The part of a mapping in reclaim: its hand, and its turns on the clock (`crate::reclaim`).

use super::{AddressSpace, chunk::mask, range_mask};
use crate::reclaim::TURN;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A mapping's place on the clock.
#[derive(Default)]
pub(super) struct Hand {
    /// The number of chunks.
    pub(super) chunks: AtomicU64,
    /// Turns on the clock, one for each [`TURN`] chunks.
    turns: AtomicU64,
    /// The chunk that the next turn begins with.
    at: AtomicU64,
}

impl AddressSpace {
    /// Whether the mapping has more chunks than its turns on the clock cover.
    pub(crate) fn lacks_turns(&self) -> bool {
        self.hand.turns.load(SeqCst) * TURN < self.hand.chunks.load(SeqCst)
    }

    /// Whether the mapping needs another turn on the clock, which the caller then adds. Each turn is asked
    /// for once.
    pub(crate) fn turn_wanted(&self) -> bool {
        let more = |t: u64| (t * TURN < self.hand.chunks.load(SeqCst)).then_some(t + 1);
        self.lacks_turns() && self.hand.turns.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Whether a turn that is over is needed again.
    pub(crate) fn keeps_turn(&self) -> bool {
        let fewer = |t: u64| {
            let others = t.saturating_sub(1);
            (others * TURN >= self.hand.chunks.load(SeqCst)).then_some(others)
        };
        self.hand.turns.fetch_update(SeqCst, SeqCst, fewer).is_err()
    }

    /// Drops the clean pages of the next [`TURN`] chunks. With `second_chance`, spares chunks that were used
    /// since the last time.
    pub(crate) fn reclaim_turn(&self, second_chance: bool) {
        for id in self.next_chunks() {
            self.reclaim_chunk(id, u64::MAX, second_chance);
        }
    }

    /// Returns the chunks of a turn, and moves the hand past them. So two threads do not pass the same
    /// chunks, where the second would find them unused.
    fn next_chunks(&self) -> Vec<u64> {
        let turn = TURN as usize;
        loop {
            let from = self.hand.at.load(SeqCst);
            let mut ids: Vec<u64> = Vec::new();
            for s in &self.shards {
                ids.extend(s.lock().chunks.range(from..).take(turn).map(|c| *c.0));
            }
            ids.sort_unstable();
            ids.truncate(turn);
            let next = if ids.len() < turn { 0 } else { ids[turn - 1] + 1 };
            if self.hand.at.compare_exchange(from, next, SeqCst, SeqCst).is_ok() {
                return ids;
            }
        }
    }

    /// Drops clean pages. With `second_chance`, spares chunks that were used since the last time. Returns how
    /// many were dropped.
    pub fn reclaim(&self, second_chance: bool) -> u64 {
        self.reclaim_range(0, u64::MAX, second_chance)
    }

    /// Drops the clean pages of `start..end`, with `second_chance` as in [`Self::reclaim`]. Returns how many
    /// were dropped.
    pub fn reclaim_range(&self, start: u64, end: u64, second_chance: bool) -> u64 {
        let before = self.nr_pages();
        for id in self.chunk_ids(start, end) {
            self.reclaim_chunk(id, range_mask(id, start, end), second_chance);
        }
        before.saturating_sub(self.nr_pages())
    }

    /// Drops those pages of a chunk in `of` that are clean.
    fn reclaim_chunk(&self, id: u64, of: u64, second_chance: bool) {
        self.with_chunk(id, |c| {
            if second_chance && std::mem::take(&mut c.referenced) {
                return;
            }
            let mut m = c.present() & !c.dirty & !c.writeback & of;
            while m != 0 {
                let at = m.trailing_zeros() as usize;
                let n = (m >> at).trailing_ones() as usize;
                c.remove(at, n);
                m &= !mask(at, n);
            }
        });
    }
}
