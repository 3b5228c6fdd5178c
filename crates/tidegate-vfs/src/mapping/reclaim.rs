//! A mapping's part in reclaim: the hand, and the turns it has on the clock (`crate::reclaim`).

use super::{AddressSpace, chunk::mask, range_mask};
use crate::reclaim::TURN;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// What a mapping has on the clock.
#[derive(Default)]
pub(super) struct Hand {
    /// Chunks there are.
    pub(super) chunks: AtomicU64,
    /// Turns on the clock, one for each [`TURN`] chunks.
    turns: AtomicU64,
    /// The chunk that the next turn begins with.
    at: AtomicU64,
    /// A thread is taking a turn: another would come by the same chunks, and find them not used since.
    turning: AtomicBool,
}

impl AddressSpace {
    /// Whether there are more pages than the turns on the clock are for.
    pub(crate) fn lacks_turns(&self) -> bool {
        self.hand.turns.load(SeqCst) * TURN < self.hand.chunks.load(SeqCst)
    }

    /// Whether the pages want another turn on the clock, which the caller then gives: each is asked for once.
    pub(crate) fn turn_wanted(&self) -> bool {
        let more = |t: u64| (t * TURN < self.hand.chunks.load(SeqCst)).then_some(t + 1);
        self.lacks_turns() && self.hand.turns.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Whether a turn that is over is wanted again.
    pub(crate) fn keeps_turn(&self) -> bool {
        let fewer = |t: u64| {
            let others = t.saturating_sub(1);
            (others * TURN >= self.hand.chunks.load(SeqCst)).then_some(others)
        };
        self.hand.turns.fetch_update(SeqCst, SeqCst, fewer).is_err()
    }

    /// Drops the clean pages of the next [`TURN`] chunks, unless another thread is at it; with `second_chance`, spares chunks used since the last time.
    pub(crate) fn reclaim_turn(&self, second_chance: bool) {
        if self.hand.turning.swap(true, SeqCst) {
            return;
        }
        let from = self.hand.at.load(SeqCst);
        let mut ids: Vec<u64> = Vec::new();
        for s in &self.shards {
            ids.extend(s.lock().chunks.range(from..).take(TURN as usize).map(|c| *c.0));
        }
        ids.sort_unstable();
        ids.truncate(TURN as usize);
        let next = if ids.len() < TURN as usize { 0 } else { ids[ids.len() - 1] + 1 };
        self.hand.at.store(next, SeqCst);
        ids.into_iter().for_each(|id| self.reclaim_chunk(id, u64::MAX, second_chance));
        self.hand.turning.store(false, SeqCst);
    }

    /// Drops clean pages; with `second_chance`, spares chunks used since the last time. How many went.
    pub fn reclaim(&self, second_chance: bool) -> u64 {
        self.reclaim_range(0, u64::MAX, second_chance)
    }

    /// Drops the clean pages of `start..end`; with `second_chance` as [`Self::reclaim`]. How many went.
    pub fn reclaim_range(&self, start: u64, end: u64, second_chance: bool) -> u64 {
        let before = self.nr_pages();
        for id in self.chunk_ids(start, end) {
            self.reclaim_chunk(id, range_mask(id, start, end), second_chance);
        }
        before.saturating_sub(self.nr_pages())
    }

    /// Drops the clean ones of a chunk's pages in `of`.
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
