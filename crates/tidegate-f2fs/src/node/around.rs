//! How many nodes are read for one that is wanted.
//!
//! Nodes that were made together are mostly wanted together, so a piece of a segment is read for one of them.
//! Names of a large directory that come in the order of their hashes, or in none, want nodes from all over
//! the volume: of sixteen that are read fifteen are dropped unseen, and cost several times what the one does.
//!
//! So pieces are read on credit. A node that came with another and is wanted later earns some, and a piece
//! spends more. Nodes of any kind do: the direct nodes of large files lie beside each other, too. Without
//! credit a node is read alone, and its piece with the next node that is wanted of it: a reader of nodes in
//! their order reads one of each piece twice, at most.

use crate::format::units::Nid;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The price of a piece; a node that came with another earns 1 when it is wanted. Several times what a single
/// node costs in time.
const PIECE: u32 = 4;
/// The most credit there is, and that at first.
const MOST: u32 = 256;
/// Nodes that were read alone and are remembered.
const ALONE: usize = 512;
/// Nodes that came with others and are remembered until they are wanted.
const BROUGHT: usize = 8192;
/// No piece and no node: both end far below.
const NONE: u32 = u32::MAX;

/// Knowledge of how nodes are wanted.
pub(crate) struct Around {
    credit: AtomicU32,
    /// Pieces of which a node was read alone lately.
    alone: Box<[AtomicU32]>,
    /// Nodes that came with others and were not wanted yet.
    brought: Box<[AtomicU32]>,
}

impl Default for Around {
    fn default() -> Self {
        let none = |n: usize| (0..n).map(|_| AtomicU32::new(NONE)).collect();
        Around { credit: AtomicU32::new(MOST), alone: none(ALONE), brought: none(BROUGHT) }
    }
}

impl Around {
    /// A node came with another.
    pub(super) fn brought(&self, nid: Nid) {
        if let Some(place) = self.brought.get(nid.0 as usize % BROUGHT) {
            place.store(nid.0, Relaxed);
        }
    }

    /// A node that is wanted was in memory.
    pub(super) fn found(&self, nid: Nid) {
        let Some(place) = self.brought.get(nid.0 as usize % BROUGHT) else { return };
        if place.load(Relaxed) != nid.0 || place.swap(NONE, Relaxed) != nid.0 {
            return;
        }
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
            for i in 0..16 {
                if known {
                    around.found(Nid(piece * 16 + i));
                } else {
                    reads += 1;
                    known = around.whole(piece);
                    (0..16).filter(|n| known && *n != i).for_each(|n| around.brought(Nid(piece * 16 + n)));
                }
            }
        }
        assert!(reads < 1050, "{reads} reads of 1000 pieces");
    }

    /// However often it is wanted: one that many look at says nothing about those beside it.
    #[test]
    fn a_node_earns_once() {
        let around = spent();
        around.brought(Nid(7));
        (0..1000).for_each(|_| around.found(Nid(7)));
        (0..1000).for_each(|_| around.found(Nid(8)));
        assert!(!around.whole(999));
    }

    #[test]
    fn credit_has_a_bound() {
        let around = spent();
        (0..10 * MOST).for_each(|n| {
            around.brought(Nid(n));
            around.found(Nid(n));
        });
        assert_eq!((0..10 * MOST).take_while(|p| around.whole(p + 1000)).count() as u32, MOST / PIECE);
    }
}
