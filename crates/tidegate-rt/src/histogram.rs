//! Counts of values in buckets of fixed relative width, for times and sizes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Eight buckets for each power of two; values from 2^42 on share the last.
const BUCKETS: usize = 40 * 8;

/// Counts values, exact to an eighth. Recording takes no lock and allocates nothing.
pub struct Histogram {
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    buckets: Box<[AtomicU64]>,
}

/// A [`Histogram`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The minimum; 0 when nothing was counted.
    pub min: u64,
    /// The maximum.
    pub max: u64,
    /// For each bucket, its largest possible value and its count; ascending, without empty buckets.
    pub buckets: Vec<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        self.sum.fetch_add(value, Relaxed);
        self.min.fetch_min(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
        self.buckets[bucket(value)].fetch_add(1, Relaxed);
    }

    /// The counts so far. Values that are recorded meanwhile may be in one figure and not in another.
    pub fn read(&self) -> Distribution {
        let buckets: Vec<(u64, u64)> = (self.buckets.iter().enumerate())
            .map(|(i, n)| (last_of(i), n.load(Relaxed)))
            .filter(|b| b.1 > 0)
            .collect();
        let count = buckets.iter().map(|b| b.1).sum();
        let min = if count == 0 { 0 } else { self.min.load(Relaxed) };
        Distribution { count, sum: self.sum.load(Relaxed), min, max: self.max.load(Relaxed), buckets }
    }
}

impl Distribution {
    /// The mean; 0 when nothing was counted.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The least value that `percent` of 100 do not exceed, to an eighth; 0 when nothing was counted.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut below = 0;
        let at = self.buckets.iter().find(|b| {
            below += b.1;
            below >= rank
        });
        at.map_or(self.max, |b| b.0.clamp(self.min, self.max))
    }

    /// The counts after `earlier`. Their minimum and maximum are known only to the precision of buckets.
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let before = |upper: u64| {
            let at = earlier.buckets.binary_search_by_key(&upper, |b| b.0);
            at.map_or(0, |i| earlier.buckets[i].1)
        };
        let buckets: Vec<(u64, u64)> = (self.buckets.iter())
            .map(|(upper, n)| (*upper, n.saturating_sub(before(*upper))))
            .filter(|b| b.1 > 0)
            .collect();
        let ends = (buckets.first().copied(), buckets.last().copied());
        let (first, last) = (ends.0.map_or(0, |b| b.0), ends.1.map_or(0, |b| b.0));
        let min = if first == 0 { 0 } else { bucket_start(first).max(self.min) };
        Distribution {
            count: buckets.iter().map(|b| b.1).sum(),
            sum: self.sum.saturating_sub(earlier.sum),
            min,
            max: last.min(self.max),
            buckets,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < 8 {
        return value as usize;
    }
    let exp = 63 - value.leading_zeros() as usize;
    ((exp - 2) * 8 + (value >> (exp - 3) & 7) as usize).min(BUCKETS - 1)
}

/// The largest value in a bucket.
fn last_of(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let shift = bucket / 8 - 1;
    ((8 + bucket as u64 % 8 + 1) << shift) - 1
}

/// The least value of the bucket whose largest is `last`.
fn bucket_start(last: u64) -> u64 {
    match bucket(last) {
        0 => 0,
        b => last_of(b - 1) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut last = 0;
        for v in (0..5000).chain((13..40).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + (1 << (e - 1))])) {
            let b = bucket(v);
            assert!(b >= last && v <= last_of(b), "{v}");
            assert!(b == 0 || v > last_of(b - 1), "{v}");
            assert!(last_of(b) - v <= v / 8, "{v}");
            assert!(bucket_start(last_of(b)) <= v, "{v}");
            last = b;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_leaves_one_in_a_hundred_out() {
        let h = Histogram::default();
        assert_eq!((h.read().count, h.read().percentile(99.0), h.read().mean()), (0, 0, 0));
        (0..99).for_each(|_| h.record(1000));
        h.record(1_000_000);
        let d = h.read();
        assert_eq!((d.count, d.min, d.mean(), d.max), (100, 1000, 10_990, 1_000_000));
        assert!((1000..1125).contains(&d.percentile(99.0)), "{d:?}");
        h.record(1_000_000);
        assert_eq!(h.read().percentile(99.0), 1_000_000);
    }

    #[test]
    fn what_came_later_stands_alone() {
        let h = Histogram::default();
        (0..50).for_each(|_| h.record(5000));
        let before = h.read();
        (0..10).for_each(|_| h.record(70));
        let d = h.read().since(&before);
        assert_eq!((d.count, d.sum), (10, 700));
        assert!(d.min <= 70 && (70..80).contains(&d.percentile(50.0)) && d.max < 80, "{d:?}");
        assert_eq!(h.read().since(&h.read()).count, 0);
    }
}
