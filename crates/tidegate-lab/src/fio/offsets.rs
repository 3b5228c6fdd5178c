//! The order of the blocks of a file.

use tidegate_rt::rng::Rng;

/// Blocks of one size in one file: from front to back, or each once in random order; then again.
pub(super) struct Offsets {
    blocks: u64,
    random: bool,
    done: u64,
    half_bits: u32,
    keys: [u64; 4],
    rng: Rng,
}

impl Offsets {
    /// The blocks of `block` bytes in a file of `bytes`.
    pub(super) fn new(bytes: u64, block: u64, random: bool, rng: Rng) -> Self {
        let blocks = (bytes / block).max(1);
        let bits = 64 - (blocks - 1).leading_zeros();
        let mut o =
            Offsets { blocks, random, done: 0, half_bits: bits.div_ceil(2).max(1), keys: [0; 4], rng };
        o.shuffle();
        o
    }

    fn shuffle(&mut self) {
        self.keys = std::array::from_fn(|_| self.rng.bits());
    }

    /// The next block's number.
    pub(super) fn next(&mut self) -> u64 {
        if self.done == self.blocks {
            self.done = 0;
            self.shuffle();
        }
        let mut n = self.done;
        self.done += 1;
        if self.random {
            // The network permutes a power of four; a number out of range is permuted again.
            loop {
                n = self.permute(n);
                if n < self.blocks {
                    break;
                }
            }
        }
        n
    }

    /// A Feistel network over numbers of twice `half_bits` bits.
    fn permute(&self, n: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (n >> self.half_bits & mask, n & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (left, right) = (right, left ^ (mixed >> 32 & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_once_in_a_round() {
        for blocks in [1, 2, 5, 64, 1000, 4097] {
            let mut o = Offsets::new(blocks * 4096 + 100, 4096, true, Rng::new(3).fork(blocks));
            let rounds: Vec<Vec<u64>> = (0..2).map(|_| (0..blocks).map(|_| o.next()).collect()).collect();
            for round in &rounds {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..blocks), "{blocks}");
            }
            assert!(blocks < 64 || rounds[0] != rounds[1], "{blocks}");
        }
        let mut s = Offsets::new(3 * 512, 512, false, Rng::new(0));
        assert_eq!((0..5).map(|_| s.next()).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    }
}
