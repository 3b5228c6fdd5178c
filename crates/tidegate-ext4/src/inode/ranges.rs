//! Sets of a file's blocks, as runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs of blocks that do not touch each other: first block, and the block behind the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range; returns how many of its blocks are new.
    pub(crate) fn add(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let known = self.count(range.clone());
        let (mut start, mut end) = (range.start, range.end);
        let touching: Vec<(u64, u64)> =
            self.0.range(..=end).rev().take_while(|r| *r.1 >= start).map(|r| (*r.0, *r.1)).collect();
        for (s, e) in touching {
            self.0.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.0.insert(start, end);
        range.end - range.start - known
    }

    /// Removes a range; returns how many of its blocks were in the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> u64 {
        // An empty range, removed from the middle of a run, would leave two runs that touch.
        if range.is_empty() {
            return 0;
        }
        let hit: Vec<(u64, u64)> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|r| *r.1 > range.start)
            .map(|r| (*r.0, *r.1))
            .collect();
        let mut gone = 0;
        for (s, e) in hit {
            self.0.remove(&s);
            if s < range.start {
                self.0.insert(s, range.start);
            }
            if e > range.end {
                self.0.insert(range.end, e);
            }
            gone += e.min(range.end) - s.max(range.start);
        }
        gone
    }

    /// The runs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// The number of blocks of a range that are in the set.
    pub(crate) fn count(&self, range: Range<u64>) -> u64 {
        let hit = self.0.range(..range.end).rev().take_while(|r| *r.1 > range.start);
        hit.map(|(s, e)| (*e).min(range.end) - (*s).max(range.start)).sum()
    }

    /// The number of runs.
    pub(crate) fn parts(&self) -> usize {
        self.0.len()
    }

    /// Whether a block of a range is in the set.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        let last = self.0.range(..range.end).next_back();
        !range.is_empty() && last.is_some_and(|(_, end)| *end > range.start)
    }

    /// The first parts of a range that are in the set, at most `most`, in order.
    pub(crate) fn first_in(&self, range: Range<u64>, most: usize) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back().filter(|r| *r.1 > range.start);
        let touched = before.into_iter().chain(self.0.range(range.clone()));
        touched.take(most).map(|(s, e)| range.start.max(*s)..range.end.min(*e)).collect()
    }

    /// The parts of a range that are not in the set.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut end, mut parts) = (range.end, Vec::new());
        for (s, e) in self.0.range(..range.end).rev().take_while(|r| *r.1 > range.start) {
            parts.push(*e..end);
            end = *s;
        }
        parts.push(range.start..end);
        parts.retain(|p| p.start < p.end);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_set() {
        let (mut ranges, mut set) = (Ranges::default(), std::collections::BTreeSet::new());
        let mut n = 1_u64;
        for _ in 0..3000 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len) = (n >> 33 & 63, n >> 40 & 15);
            let all = start..start + len;
            if n >> 50 & 1 == 0 {
                let new = all.clone().filter(|b| set.insert(*b)).count() as u64;
                assert_eq!(ranges.add(all), new);
            } else {
                let gone = all.clone().filter(|b| set.remove(b)).count() as u64;
                assert_eq!(ranges.remove(all), gone);
            }
            assert_eq!(ranges.count(0..100), set.len() as u64);
            assert_eq!(ranges.touches(30..40), set.range(30..40).next().is_some());
            assert!(!ranges.touches(30..30));
            let all: Vec<u64> = ranges.first_in(20..50, 64).into_iter().flatten().collect();
            assert!(set.range(20..50).eq(&all), "{all:?}");
            let two: Vec<u64> = ranges.first_in(20..50, 2).into_iter().flatten().collect();
            let parts = all.chunk_by(|a, b| a + 1 == *b).take(2).map(<[u64]>::len);
            assert!(all.starts_with(&two) && two.len() == parts.sum::<usize>());
            let missing: u64 = ranges.missing(20..50).iter().map(|p| p.end - p.start).sum();
            assert_eq!(missing, 30 - set.range(20..50).count() as u64);
            assert!(ranges.missing(20..50).iter().all(|p| set.range(p.clone()).next().is_none()));
            assert!(ranges.0.iter().zip(ranges.0.iter().skip(1)).all(|(a, b)| a.1 < b.0), "{ranges:?}");
        }
    }
}
