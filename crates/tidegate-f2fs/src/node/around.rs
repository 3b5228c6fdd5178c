//! The number of nodes that are read when one is wanted.
//!
//! Nodes that were made together are mostly wanted together, so a read of one node reads a piece of its
//! segment. But lookups of a large directory's names in the order of their hashes, or in none, want nodes
//! from all over the volume. Then fifteen of the sixteen nodes of a piece are dropped unseen, and they cost
//! several times as much as the one.
//!
//! So pieces are read on credit. A node that came with another and is wanted later earns credit, and a piece
//! costs more. Nodes of any kind earn credit: the direct nodes of large files lie beside each other, too.
//! Without credit a node is read alone, and the whole piece is read when the next node of it is wanted. So a
//! reader of nodes in their order reads at most one node of each piece twice.

use crate::format::units::Nid;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The price of a piece. A node that came with another earns 1 when it is wanted. The price reflects that a
/// piece takes several times as long as a single node.
const PIECE: u32 = 4;
/// The most credit, and the credit at the start.
const MOST: u32 = 256;
/// Nodes that were read alone and are remembered.
const ALONE: usize = 512;
/// Nodes that came with others and are remembered until they are wanted.
const BROUGHT: usize = 8192;
/// No piece and no node: their numbers end far below.
const NONE: u32 = u32::MAX;

/// Records of how nodes are wanted.
pub(crate) struct Around {
    credit: AtomicU32,
    /// Pieces from which a node was read alone lately.
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
    /// Notes a node that was read together with another.
    pub(super) fn brought(&self, nid: Nid) {
        if let Some(place) = self.brought.get(nid.0 as usize % BROUGHT) {
            place.store(nid.0, Relaxed);
        }
    }

    /// Notes that a wanted node was in memory.
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

    /// An `Around` without credit left.
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

    /// A node earns once, however often it is wanted: a node that many look at says nothing about its
    /// neighbours.
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
