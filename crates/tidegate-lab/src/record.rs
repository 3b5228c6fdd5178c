//! The measurements of one thread of a workload, and their merging with other threads'.

use crate::result::{Event, Latency, OpStats, Series};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use tidegate_rt::{Nanos, clock};

/// The percentages that fio prints.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Number of the longest operations that are kept one by one: as many as published tables have.
pub const LONGEST: usize = 5;

/// Operations of one kind.
#[derive(Clone)]
pub struct Op {
    latencies: Histogram<u64>,
    longest: Vec<u64>,
    bytes: u64,
    series: Vec<(u64, u64)>,
}

impl Default for Op {
    fn default() -> Self {
        // Three significant digits are within the histogram's range.
        let latencies = Histogram::new(3).expect("a precision of 3 digits");
        Op { latencies, longest: Vec::new(), bytes: 0, series: Vec::new() }
    }
}

impl Op {
    /// Keeps `took` if it is among the longest.
    fn keep(&mut self, took: u64) {
        let at = self.longest.partition_point(|l| *l >= took);
        if at < LONGEST {
            self.longest.insert(at, took);
            self.longest.truncate(LONGEST);
        }
    }
}

/// The measurements of one thread, or of several, added up.
#[derive(Clone)]
pub struct Recorder {
    start: Nanos,
    interval_ns: u64,
    ops: BTreeMap<&'static str, Op>,
    events: Vec<Event>,
}

impl Recorder {
    /// A recorder without measurements; times count from `start`.
    pub fn new(start: Nanos, interval_ns: u64) -> Self {
        let (ops, events) = (BTreeMap::new(), Vec::new());
        Recorder { start, interval_ns: interval_ns.max(1), ops, events }
    }

    /// Runs `f`, an operation of kind `op` that moves `bytes` bytes, and records its duration. An operation
    /// that fails is not counted.
    pub fn time<T, E>(
        &mut self,
        op: &'static str,
        bytes: u64,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let begin = clock::now();
        let r = f()?;
        self.add(op, bytes, begin, clock::now());
        Ok(r)
    }

    /// Records an operation that was timed elsewhere.
    pub fn add(&mut self, op: &'static str, bytes: u64, begin: Nanos, end: Nanos) {
        let o = self.ops.entry(op).or_default();
        // The histogram resizes itself, so it takes every value.
        o.latencies.record(end.since(begin).0).expect("a histogram that resizes itself");
        o.keep(end.since(begin).0);
        o.bytes += bytes;
        let slot = (end.since(self.start).0 / self.interval_ns) as usize;
        if o.series.len() <= slot {
            o.series.resize(slot + 1, (0, 0));
        }
        o.series[slot].0 += 1;
        o.series[slot].1 += bytes;
    }

    /// Records an event from `begin` until now.
    pub fn event(&mut self, name: &str, begin: Nanos, values: &[(&str, u64)]) {
        let took_ns = clock::now().since(begin).0;
        let values = values.iter().map(|(k, v)| (k.to_string(), *v)).collect();
        self.events.push(Event { at_ns: begin.since(self.start).0, took_ns, name: name.to_string(), values });
    }

    /// The time from which times count.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Records an event unchanged.
    pub fn add_event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Adds the measurements of another recorder.
    pub fn merge(&mut self, other: Recorder) {
        for (name, op) in other.ops {
            let mine = self.ops.entry(name).or_default();
            mine.latencies.add(&op.latencies).expect("a histogram that resizes itself");
            op.longest.iter().for_each(|took| mine.keep(*took));
            mine.bytes += op.bytes;
            mine.series.resize(mine.series.len().max(op.series.len()), (0, 0));
            for (to, from) in mine.series.iter_mut().zip(op.series) {
                *to = (to.0 + from.0, to.1 + from.1);
            }
        }
        self.events.extend(other.events);
    }

    /// All measurements in the form of a report.
    pub fn report(mut self) -> (BTreeMap<String, OpStats>, Series, Vec<Event>) {
        let mut series = Series { interval_ns: self.interval_ns, ..Series::default() };
        let mut ops = BTreeMap::new();
        for (name, op) in self.ops {
            series.ops.insert(name.to_string(), op.series);
            let histogram =
                op.latencies.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
            let latency = latency(&op.latencies, op.longest);
            ops.insert(name.to_string(), OpStats { bytes: op.bytes, latency, histogram });
        }
        self.events.sort();
        (ops, series, self.events)
    }
}

fn latency(h: &Histogram<u64>, longest: Vec<u64>) -> Latency {
    if h.is_empty() {
        return Latency::default();
    }
    Latency {
        count: h.len(),
        min: h.min(),
        max: h.max(),
        mean: h.mean(),
        stddev: h.stdev(),
        longest,
        percentiles: PERCENTILES.iter().map(|p| (format!("{p:.6}"), h.value_at_percentile(*p))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let mut a = Recorder::new(Nanos(1000), 100);
        a.add("read", 10, Nanos(1000), Nanos(1050));
        a.add("read", 10, Nanos(1050), Nanos(1250));
        let mut b = Recorder::new(Nanos(1000), 100);
        b.add("read", 5, Nanos(1000), Nanos(1060));
        b.add("fsync", 0, Nanos(1060), Nanos(1100));
        b.event("sync", Nanos(1020), &[("files", 3)]);
        a.merge(b);
        let (ops, series, events) = a.report();
        let read = &ops["read"];
        assert_eq!((read.bytes, read.latency.count, read.latency.min, read.latency.max), (25, 3, 50, 200));
        assert_eq!(read.histogram, [(50, 1), (60, 1), (200, 1)]);
        assert_eq!(read.latency.percentiles["50.000000"], 60);
        assert_eq!(read.latency.longest, [200, 60, 50]);
        assert_eq!(series.ops["read"], [(2, 15), (0, 0), (1, 10)]);
        assert_eq!(series.ops["fsync"], [(0, 0), (1, 0)]);
        let mut many = Recorder::new(Nanos(0), 100);
        [3, 9, 4, 9, 1, 5, 8].into_iter().for_each(|n| many.add("read", 0, Nanos(0), Nanos(n)));
        assert_eq!(many.report().0["read"].latency.longest, [9, 9, 8, 5, 4]);
        let mut long = Recorder::new(Nanos(0), 1 << 40);
        long.add("read", 0, Nanos(0), Nanos(3_600_000_000_000));
        let longest = long.report().0["read"].latency.max;
        assert!((3_600_000_000_000..3_604_000_000_000).contains(&longest), "{longest}");
        assert_eq!((events[0].at_ns, events[0].values["files"]), (20, 3));
    }
}
