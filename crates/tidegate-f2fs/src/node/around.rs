//! How many nodes are read for one that is wanted.
//!
//! Nodes that were made together are mostly wanted together, so a piece of a segment is read for one of them.
//! Names of a large directory that come in the order of their hashes, or in none, want nodes from all over
//! the volume: of sixteen that are read fifteen are dropped unseen, and cost several times what the one does.
//!
//! So pieces are read on credit. An inode that was found in memory earns some, and a piece spends more.
//! Without credit a node is read alone, and its piece with the next node that is wanted of it: a reader of
//! nodes in their order reads one of each piece twice, at most.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The price of a piece; an inode that was in memory earns 1. Several times what a single node costs in time.
const PIECE: u32 = 4;
/// The most credit there is, and that at first.
const MOST: u32 = 256;
/// Nodes that were read alone and are remembered.
const ALONE: usize = 512;
/// No piece: addresses end far below.
const NONE: u32 = u32::MAX;

/// Knowledge of how nodes are wanted.
pub(crate) struct Around {
    credit: AtomicU32,
    /// Pieces of which a node was read alone lately.
    alone: Box<[AtomicU32]>,
}

impl Default for Around {
    fn default() -> Self {
        let alone = (0..ALONE).map(|_| AtomicU32::new(NONE)).collect();
        Around { credit: AtomicU32::new(MOST), alone }
    }
}

impl Around {
    /// An inode's node was in memory.
    pub(super) fn found(&self) {
        let earn = |c: u32| (c < MOST).then_some(c + 1);
        let _ = self.credit.fetch_update(Relaxed, Relaxed, earn);
    }

    /// Whether all of `piece` is to be read for a node in it that is not in memory.
    pub(super) fn whole(&self, piece: u32) -> bool {
        let Some(place) = self.alone.get(piece as usize % ALONE) else { return true };
        if place.load(Relaxed) == piece {
            place.store(NONE, Relaxed);
            return true;
        }
        let paid = self.credit.fetch_update(Relaxed, Relaxed, |c| c.checked_sub(PIECE)).is_ok();
        if !paid {
            place.store(piece, Relaxed);
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without credit left.
    fn spent() -> Around {
        let around = Around::default();
        assert!((0..MOST / PIECE).all(|p| around.whole(p)), "at first pieces are read");
        around
    }

    #[test]
    fn nodes_wanted_in_no_order_are_read_alone() {
        let around = spent();
        let whole = (0..1000u32).filter(|i| around.whole(1000 + i.wrapping_mul(7919) % 100_000)).count();
        assert!(whole < 20, "{whole} pieces");
    }

    #[test]
    fn nodes_wanted_in_their_order_come_with_their_piece() {
        let around = spent();
        let mut reads = 0;
        for piece in 500..1500u32 {
            let mut known = false;
            for _ in 0..16 {
                if known {
                    around.found();
                } else {
                    reads += 1;
                    known = around.whole(piece);
                }
            }
        }
        assert!(reads < 1050, "{reads} reads of 1000 pieces");
    }

    #[test]
    fn credit_has_a_bound() {
        let around = spent();
        (0..10 * MOST).for_each(|_| around.found());
        assert_eq!((0..10 * MOST).take_while(|p| around.whole(p + 1000)).count() as u32, MOST / PIECE);
    }
}
