//! A bitmap that takes memory only where bits are set.

/// Bits in a piece. A piece has the blocks of one segment, as a SIT entry does.
const PIECE_BITS: usize = 512;
type Piece = [u64; PIECE_BITS / 64];

/// A bitmap in pieces of 512 bits.
pub(super) struct Bits {
    pieces: Vec<Option<Box<Piece>>>,
}

impl Bits {
    /// `bits` clear bits.
    pub(super) fn new(bits: u64) -> Self {
        Bits { pieces: vec![None; (bits as usize).div_ceil(PIECE_BITS)] }
    }

    /// Sets bit `n`; true if it was clear before. Bits out of range count as set.
    pub(super) fn set(&mut self, n: u32) -> bool {
        let Some(slot) = self.pieces.get_mut(n as usize / PIECE_BITS) else { return false };
        let at = n as usize % PIECE_BITS;
        let word = &mut slot.get_or_insert_default()[at / 64];
        let bit = 1u64 << (at % 64);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Clears bit `n`.
    pub(super) fn clear(&mut self, n: u32) {
        let at = n as usize % PIECE_BITS;
        if let Some(Some(piece)) = self.pieces.get_mut(n as usize / PIECE_BITS) {
            piece[at / 64] &= !(1u64 << (at % 64));
        }
    }

    /// Whether bit `n` is set.
    pub(super) fn get(&self, n: u32) -> bool {
        let at = n as usize % PIECE_BITS;
        self.piece(n as usize / PIECE_BITS).is_some_and(|p| p[at / 64] >> (at % 64) & 1 != 0)
    }

    /// Piece `n`; none when all its bits are clear.
    pub(super) fn piece(&self, n: usize) -> Option<&Piece> {
        self.pieces.get(n)?.as_deref()
    }

    /// Bits set in piece `n`.
    pub(super) fn count(&self, n: u32) -> u32 {
        self.piece(n as usize).map_or(0, |p| p.iter().map(|w| w.count_ones()).sum())
    }
}
