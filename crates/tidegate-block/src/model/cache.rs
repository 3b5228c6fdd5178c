//! The bytes of a disk that are in its write cache.

use std::collections::BTreeMap;

/// Ranges that neither touch nor overlap.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<u64, u64>);

impl Cache {
    /// Adds a range. Returns how many of its bytes were not in the cache.
    pub(super) fn insert(&mut self, pos: u64, len: u64) -> u64 {
        let (mut start, mut end, mut known) = (pos, pos + len, 0);
        while let Some((&at, &n)) = self.0.range(..=end).next_back().filter(|(at, n)| **at + **n >= start) {
            let overlap = (at + n).min(pos + len).saturating_sub(at.max(pos));
            known += overlap;
            (start, end) = (start.min(at), end.max(at + n));
            self.0.remove(&at);
        }
        self.0.insert(start, end - start);
        len - known
    }

    /// Takes the first `len` bytes of the range at `pos` out.
    pub(super) fn remove(&mut self, pos: u64, len: u64) {
        if let Some(n) = self.0.remove(&pos).filter(|n| *n > len) {
            self.0.insert(pos + len, n - len);
        }
    }

    /// Whether all of a range is in the cache.
    pub(super) fn holds(&self, pos: u64, len: u64) -> bool {
        self.0.range(..=pos).next_back().is_some_and(|(at, n)| at + n >= pos + len)
    }

    /// The ranges in order from `head` on, then those before it.
    pub(super) fn behind(&self, head: u64) -> impl Iterator<Item = (u64, u64)> {
        self.0.range(head..).chain(self.0.range(..head)).map(|(p, n)| (*p, *n))
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn ranges_grow_together_and_are_counted_once() {
        let mut c = Cache::default();
        assert_eq!(c.insert(10, 10), 10);
        assert_eq!(c.insert(30, 10), 10);
        assert_eq!(c.insert(20, 5), 5);
        assert_eq!(c.insert(12, 24), 5);
        assert_eq!(c.behind(0).collect::<Vec<_>>(), [(10, 30)]);
        assert_eq!(c.insert(15, 2), 0);
        assert!(c.holds(10, 30) && !c.holds(10, 31) && !c.holds(9, 2));
        c.remove(10, 12);
        assert_eq!(c.behind(0).collect::<Vec<_>>(), [(22, 18)]);
        c.insert(0, 4);
        assert_eq!(c.behind(10).collect::<Vec<_>>(), [(22, 18), (0, 4)]);
    }
}
