//! Hash maps whose keys nobody can make collide, and which a simulated run walks in the same order each time.

use crate::clock;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// A map hashed by a [`Seed`] of its own.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Seed>;
/// A set hashed by a [`Seed`] of its own.
pub type HashSet<T> = std::collections::HashSet<T, Seed>;

/// Begins every hash of one map. It is drawn with [`clock::entropy`], so an image cannot be made whose numbers
/// collide, and a simulated run draws it from its own seed.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Seed(clock::entropy())
    }
}

impl BuildHasher for Seed {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        let mut h = DefaultHasher::new();
        h.write_u64(self.0);
        h
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;

    #[test]
    fn a_simulated_map_is_walked_in_the_order_of_its_run() {
        let walk = || (0..100).map(|n| (n, ())).collect::<HashMap<u32, ()>>().into_keys().collect::<Vec<_>>();
        assert_eq!(sim::run(1, 1, walk), sim::run(1, 1, walk));
        assert_ne!(sim::run(1, 1, walk), sim::run(2, 1, walk));
        assert_ne!(walk(), walk());
    }
}
