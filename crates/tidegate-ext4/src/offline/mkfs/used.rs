//! The blocks in use, as runs: a new volume of any size has few runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    /// Runs by their first block, with the block behind the last; runs do not touch.
    runs: BTreeMap<u64, u64>,
    total: u64,
}

impl Used {
    /// Marks blocks; some may be marked already.
    pub fn mark(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.runs.range(..=end).next_back()
            && e >= start
        {
            self.runs.remove(&s);
            self.total -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.total += end - start;
        self.runs.insert(start, end);
    }

    /// Number of marked blocks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Marked runs that overlap `range`, cut to it, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.runs.range(..range.start).next_back().filter(|r| *r.1 > range.start);
        before
            .into_iter()
            .chain(self.runs.range(range.clone()))
            .map(move |(s, e)| (*s).max(range.start)..(*e).min(range.end))
    }

    /// Whether none of a range is marked.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.within(range).next().is_none()
    }

    /// The first run of at least `least` free blocks in `range`, in its full length.
    pub fn first_free(&self, range: Range<u64>, least: u64) -> Option<Range<u64>> {
        let mut at = range.start;
        for run in self.within(range.clone()) {
            if run.start >= at + least {
                return Some(at..run.start);
            }
            at = run.end;
        }
        (at + least <= range.end).then_some(at..range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_gaps_are_found() {
        let mut used = Used::default();
        for range in [10..20, 30..40, 20..25, 5..6, 39..41, 28..28] {
            used.mark(range);
        }
        assert_eq!(used.within(0..100).collect::<Vec<_>>(), [5..6, 10..25, 30..41]);
        assert_eq!(used.within(12..35).collect::<Vec<_>>(), [12..25, 30..35]);
        assert_eq!(used.total(), 27);
        assert!(used.is_free(25..30) && !used.is_free(24..30) && !used.is_free(40..50));
        assert_eq!(used.first_free(0..100, 5), Some(0..5));
        assert_eq!(used.first_free(10..100, 5), Some(25..30));
        assert_eq!(used.first_free(10..100, 6), Some(41..100));
        assert_eq!(used.first_free(10..45, 6), None);
        used.mark(0..100);
        assert!(used.within(0..200).eq(std::iter::once(0..100)));
    }
}
