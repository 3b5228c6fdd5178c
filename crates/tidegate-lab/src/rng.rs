//! Numbers that look random and are the same for one seed.

/// A seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; equal seeds and numbers of the part give equal numbers.
    pub fn new(seed: u64, part: u64) -> Self {
        Rng(Rng(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93)).bits())
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills `buf`, so that nothing can compress it.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for part in buf.chunks_mut(8) {
            part.copy_from_slice(&self.bits().to_le_bytes()[..part.len()]);
        }
    }
}
