//! A bitmap that takes memory only where bits are set.

use std::ops::Range;

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

    /// The 64 bits from bit `n` on; those out of range are clear.
    fn word(&self, n: u64) -> u64 {
        let aligned = |n: u64| {
            let piece = self.pieces.get((n / PIECE) as usize).and_then(|p| p.as_deref());
            piece.map_or(0, |p| p[(n % PIECE / 64) as usize])
        };
        match n % 64 {
            0 => aligned(n),
            skip => aligned(n) >> skip | aligned(n + 64) << (64 - skip),
        }
    }

    /// The bits of a range, 64 at a time: the first one's number, the bits, and ones for those in the range.
    pub(in crate::offline) fn words(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        range.clone().step_by(64).map(move |n| {
            let mask = u64::MAX >> (64 - (range.end - n).min(64));
            (n, self.word(n) & mask, mask)
        })
    }

    /// The number of set bits in a range.
    pub(in crate::offline) fn count(&self, range: Range<u64>) -> u64 {
        self.words(range).map(|(_, bits, _)| u64::from(bits.count_ones())).sum()
    }

    /// The bits of a range that differ from those of a bitmap on the volume, whose first bit stands for the
    /// range's first.
    pub(in crate::offline) fn differences<'a>(
        &'a self,
        range: Range<u64>,
        map: &'a [u8],
    ) -> impl Iterator<Item = u64> + 'a {
        let start = range.start;
        self.words(range).flat_map(move |(n, bits, mask)| {
            let from = ((n - start) / 8) as usize;
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(map.get(from..).unwrap_or(&[])).for_each(|(to, byte)| *to = *byte);
            let differ = (u64::from_le_bytes(bytes) & mask) ^ bits;
            (0..64).take_while(move |_| differ != 0).filter(move |b| differ >> b & 1 != 0).map(move |b| n + b)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_single_bits() {
        let mut bits = Bits::new(3 * PIECE);
        let set: Vec<u64> =
            (0..3 * PIECE).filter(|n| n % 7 == 0 && n / PIECE != 1 || n % 4000 == 3).collect();
        set.iter().for_each(|n| {
            bits.set(*n);
        });
        for range in [0..1, 1..64, 5..70, 0..3 * PIECE, 4090..4300, 8000..8000, 12_200..12_288] {
            let single = range.clone().filter(|n| bits.get(*n)).count() as u64;
            assert_eq!(bits.count(range.clone()), single, "{range:?}");
            let mut map = vec![0; (range.end - range.start).div_ceil(8) as usize];
            for n in range.clone().filter(|n| bits.get(*n) != (n % 1000 == 1)) {
                map[((n - range.start) / 8) as usize] |= 1 << ((n - range.start) % 8);
            }
            let wrong: Vec<u64> = range.clone().filter(|n| n % 1000 == 1).collect();
            assert_eq!(bits.differences(range.clone(), &map).collect::<Vec<_>>(), wrong, "{range:?}");
        }
    }
}
