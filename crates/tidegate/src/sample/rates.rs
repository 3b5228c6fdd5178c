//! The changes between two samples.

use super::{Latency, LockSample, Sample, SizeClass};
use serde::Serialize;
use tidegate_vfs::StepStats;

/// The changes between two samples, for each second of the time between.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    /// The time between the samples, in seconds.
    pub seconds: f64,
    /// Bios that wrote.
    pub write_bios: f64,
    /// Bytes in them.
    pub write_bytes: f64,
    /// Their mean size in bytes.
    pub mean_write_bio: f64,
    /// Bios that read.
    pub read_bios: f64,
    /// Bytes in them.
    pub read_bytes: f64,
    /// Flushes.
    pub flushes: f64,
    /// fsyncs.
    pub fsyncs: f64,
    /// Commits.
    pub commits: f64,
    /// Bios by size: how many read and wrote between the samples (not for each second).
    pub sizes: Vec<SizeClass>,
    /// fsyncs that ended between the samples.
    pub fsync: Latency,
    /// Commits that ended between the samples.
    pub commit: Latency,
    /// Freezes that ended between the samples.
    pub frozen: Latency,
    /// The steps of these commits, in their order.
    pub steps: Vec<Step>,
    /// Locks that were taken between the samples. The longest times are those since collection began.
    pub locks: Vec<LockSample>,
}

/// A step of commits.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// The name of the operation.
    pub name: String,
    /// Whether operations that change the volume waited during the step.
    pub frozen: bool,
    /// How long it took.
    pub took: Latency,
}

impl Sample {
    /// The changes after `earlier`, a sample of the same volume.
    pub fn since(&self, earlier: &Sample) -> Rates {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let rate = |now, then| if seconds > 0.0 { grown(now, then) / seconds } else { 0.0 };
        let (io, was) = (&self.io, &earlier.io);
        let bios = grown(io.write_bios, was.write_bios);
        Rates {
            seconds,
            write_bios: rate(io.write_bios, was.write_bios),
            write_bytes: rate(io.write_bytes, was.write_bytes),
            mean_write_bio: if bios > 0.0 { grown(io.write_bytes, was.write_bytes) / bios } else { 0.0 },
            read_bios: rate(io.read_bios, was.read_bios),
            read_bytes: rate(io.read_bytes, was.read_bytes),
            flushes: rate(io.flushes, was.flushes),
            fsyncs: rate(self.fsync.count, earlier.fsync.count),
            commits: rate(self.commit.count, earlier.commit.count),
            sizes: sizes_since(&io.sizes, &was.sizes),
            fsync: self.fsync.since(&earlier.fsync),
            commit: self.commit.since(&earlier.commit),
            frozen: self.frozen.since(&earlier.frozen),
            steps: steps_since(&self.commits.steps, &earlier.commits.steps),
            locks: locks_since(&self.locks, &earlier.locks),
        }
    }
}

/// The steps that were taken, without sums of other steps.
fn steps_since(now: &[StepStats], then: &[StepStats]) -> Vec<Step> {
    let steps = now.iter().filter(|s| !s.total).map(|s| {
        let was = then.iter().find(|t| t.name == s.name).map(StepStats::times).unwrap_or_default();
        Step { name: s.name.to_string(), frozen: s.frozen, took: s.times().since(&was).into() }
    });
    steps.filter(|s| s.took.count > 0).collect()
}

fn sizes_since(now: &[SizeClass], then: &[SizeClass]) -> Vec<SizeClass> {
    let was = |bytes| then.iter().find(|c| c.bytes == bytes).cloned().unwrap_or_default();
    now.iter()
        .map(|c| SizeClass {
            bytes: c.bytes,
            reads: c.reads.saturating_sub(was(c.bytes).reads),
            writes: c.writes.saturating_sub(was(c.bytes).writes),
        })
        .filter(|c| c.reads + c.writes > 0)
        .collect()
}

fn locks_since(now: &[LockSample], then: &[LockSample]) -> Vec<LockSample> {
    let mut locks: Vec<LockSample> = (now.iter())
        .map(|l| {
            // Collection may have begun anew.
            let was = then.iter().find(|t| t.class == l.class && t.acquisitions <= l.acquisitions);
            let was = was.cloned().unwrap_or_default();
            LockSample {
                class: l.class.clone(),
                contentions: l.contentions.saturating_sub(was.contentions),
                wait_total_ns: l.wait_total_ns.saturating_sub(was.wait_total_ns),
                acquisitions: l.acquisitions - was.acquisitions,
                hold_total_ns: l.hold_total_ns.saturating_sub(was.hold_total_ns),
                ..*l
            }
        })
        .filter(|l| l.acquisitions > 0 || l.contentions > 0)
        .collect();
    locks.sort_by_key(|l| std::cmp::Reverse((l.wait_total_ns, l.hold_total_ns)));
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_for_a_second() {
        let sample = |at: u64, bios: u64, bytes: u64| {
            let mut s = Sample { at_ns: at * 1_000_000_000, ..Sample::default() };
            (s.io.write_bios, s.io.write_bytes) = (bios, bytes);
            s.io.sizes = vec![SizeClass { bytes: 4096, reads: 0, writes: bios }];
            let lock = |n| LockSample { class: "l".into(), acquisitions: n, ..LockSample::default() };
            s.locks = vec![lock(bios)];
            s
        };
        let r = sample(12, 30, 90_000).since(&sample(10, 10, 10_000));
        assert_eq!((r.seconds, r.write_bios, r.write_bytes, r.mean_write_bio), (2.0, 10.0, 40_000.0, 4000.0));
        assert_eq!((r.sizes[0].writes, r.locks[0].acquisitions), (20, 20));
        // The difference of a counter that began anew is not negative.
        let r = sample(11, 5, 10).since(&sample(11, 30, 90_000));
        assert_eq!((r.seconds, r.write_bios, r.locks[0].acquisitions), (0.0, 0.0, 5));
    }
}
