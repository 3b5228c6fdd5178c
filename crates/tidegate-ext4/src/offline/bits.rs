//! A bitmap that takes memory only where bits are set.

/// Bits in a piece.
const PIECE: u64 = 4096;

/// A bitmap in pieces.
pub(in crate::offline) struct Bits {
    pieces: Vec<Option<Box<[u64; PIECE as usize / 64]>>>,
}

impl Bits {
    /// `bits` clear bits.
    pub(in crate::offline) fn new(bits: u64) -> Self {
        Bits { pieces: vec![None; bits.div_ceil(PIECE) as usize] }
    }

    /// Sets bit `n`; true if it was clear before. Bits out of range count as set.
    pub(in crate::offline) fn set(&mut self, n: u64) -> bool {
        let Some(slot) = self.pieces.get_mut((n / PIECE) as usize) else { return false };
        let word =
            &mut slot.get_or_insert_with(|| Box::new([0; PIECE as usize / 64]))[(n % PIECE / 64) as usize];
        let fresh = *word >> (n % 64) & 1 == 0;
        *word |= 1 << (n % 64);
        fresh
    }

    /// Clears bit `n`.
    pub(in crate::offline) fn clear(&mut self, n: u64) {
        if let Some(Some(piece)) = self.pieces.get_mut((n / PIECE) as usize) {
            piece[(n % PIECE / 64) as usize] &= !(1 << (n % 64));
        }
    }

    /// Whether bit `n` is set.
    pub(in crate::offline) fn get(&self, n: u64) -> bool {
        let piece = self.pieces.get((n / PIECE) as usize).and_then(|p| p.as_deref());
        piece.is_some_and(|p| p[(n % PIECE / 64) as usize] >> (n % 64) & 1 != 0)
    }
}
