//! Hash maps in which an attacker cannot make keys collide, and over which a simulated run iterates in the
//! same order each time.

use crate::clock;
use std::hash::{BuildHasher, Hasher};

/// A map hashed by a [`Seed`] of its own.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Seed>;
/// A set hashed by a [`Seed`] of its own.
pub type HashSet<T> = std::collections::HashSet<T, Seed>;

/// The seed of the hashes of one map. It begins every hash, and is part of each step. It is drawn with
/// [`clock::entropy`], so no image can be made whose numbers collide, and a simulated run draws it from its own seed.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 2]);

impl Default for Seed {
    fn default() -> Self {
        let drawn = clock::entropy();
        // An even factor would lose bits.
        Seed([drawn, fold(drawn ^ ODD, SPREAD) | 1])
    }
}

impl BuildHasher for Seed {
    type Hasher = Folding;

    #[inline]
    fn build_hasher(&self) -> Folding {
        Folding { state: self.0[0], factor: self.0[1] }
    }
}

/// Multiplies to twice the width and combines the halves with XOR, word by word. It takes some two nanoseconds for a
/// number.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    state: u64,
    factor: u64,
}

/// A word without a pattern, so that a key of zeros changes the state: the first bits of the fraction of pi.
const ODD: u64 = 0x243f_6a88_85a3_08d3;
/// A factor that makes two numbers of one draw: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Folding {
    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.state = fold(self.state ^ n, self.factor) ^ n.rotate_left(32);
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let rest = words.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length distinguishes keys that differ only in zeros at the end.
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_left(56));
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state ^ ODD, self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;
    use std::hash::Hash;

    #[test]
    fn a_simulated_map_is_walked_in_the_order_of_its_run() {
        let walk = || (0..100).map(|n| (n, ())).collect::<HashMap<u32, ()>>().into_keys().collect::<Vec<_>>();
        assert_eq!(sim::run(1, 1, walk), sim::run(1, 1, walk));
        assert_ne!(sim::run(1, 1, walk), sim::run(2, 1, walk));
        assert_ne!(walk(), walk());
    }

    /// The share of buckets that `keys` occupy, with as many buckets as keys. For a random function it is 1 -
    /// 1/e, or 63 %.
    fn taken<K: Hash>(seed: Seed, keys: &[K], shift: u32) -> f64 {
        let buckets = keys.len() as u64;
        let all: std::collections::HashSet<u64> =
            keys.iter().map(|k| (seed.hash_one(k) >> shift) % buckets).collect();
        all.len() as f64 / buckets as f64
    }

    #[test]
    fn keys_with_a_pattern_are_spread() {
        const KEYS: u64 = 1 << 12;
        for n in 0..20 {
            let seed = sim::run(n, 1, Seed::default);
            let (low, high) = (0, 52);
            for shift in [low, high] {
                let mut all = Vec::new();
                for stride in (0..52).map(|bit| 1u64 << bit) {
                    let keys: Vec<u64> = (0..KEYS).map(|n| n.wrapping_mul(stride)).collect();
                    all.push((format!("stride {stride}"), taken(seed, &keys, shift)));
                }
                let names: Vec<(u64, Vec<u8>)> =
                    (0..KEYS).map(|n| (12, format!("file{n:06}").into())).collect();
                all.push(("names".into(), taken(seed, &names, shift)));
                let zeros: Vec<Vec<u8>> = (0..KEYS).map(|n| vec![0; n as usize]).collect();
                all.push(("zeros".into(), taken(seed, &zeros, shift)));
                for (what, share) in all {
                    assert!((0.57..0.69).contains(&share), "seed {n}, {what} from bit {shift}: {share}");
                }
            }
        }
    }
}
