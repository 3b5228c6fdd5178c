//! The text format that Prometheus scrapes.

use super::{Latency, Sample};
use std::fmt::Write;

/// Upper bounds of a latency's buckets, in nanoseconds.
const BOUNDS: [u64; 16] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
    100_000_000_000,
    300_000_000_000,
];

struct Text {
    out: String,
    labels: String,
}

/// `sample` as Prometheus text. Every metric begins with `tidegate_` and names the image.
pub fn prometheus(sample: &Sample) -> String {
    let mut labels = format!("image=\"{}\"", escaped(&sample.image));
    if let Some(dir) = &sample.mountpoint {
        let _ = write!(labels, ",mountpoint=\"{}\"", escaped(dir));
    }
    let mut t = Text { out: String::new(), labels };
    t.gauges(sample);
    t.counters(sample);
    t.histogram("fsync_seconds", "Time that fsync took.", &sample.fsync);
    t.histogram("commit_seconds", "Time that commits took.", &sample.commit);
    t.histogram("commit_frozen_seconds", "Time that commits froze operations.", &sample.frozen);
    t.locks(sample);
    t.out
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
    }

    fn line(&mut self, name: &str, more: &str, value: impl std::fmt::Display) {
        let (labels, comma) = (&self.labels, if more.is_empty() { "" } else { "," });
        let _ = writeln!(self.out, "tidegate_{name}{{{labels}{comma}{more}}} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }

    fn gauges(&mut self, s: &Sample) {
        let m = &s.memory;
        for (name, help, value) in [
            ("dirty_bytes", "Bytes to be written.", m.dirty_bytes),
            ("writeback_bytes", "Bytes on their way.", m.writeback_bytes),
            ("cached_bytes", "Bytes in the page cache.", m.cached_bytes),
            ("dirty_limit_bytes", "Dirty bytes at which writers wait.", m.dirty_limit),
            ("background_limit_bytes", "Dirty bytes at which the flusher starts.", m.background_limit),
            ("space_total_bytes", "Size of the volume.", s.space.total_bytes),
            ("space_available_bytes", "Bytes that may still be written.", s.space.available_bytes),
            ("files", "Inodes in use.", s.space.files),
            ("requests_in_flight", "Requests submitted and not ended.", s.io.in_flight),
            ("commit_requests_queued", "Requests for commits that wait.", s.commits.queued),
            ("read_only", "Whether nothing is written.", s.read_only.is_some() as u64),
        ] {
            self.one(name, "gauge", help, value);
        }
        self.one("up_seconds", "gauge", "Time since the volume was opened.", s.up_seconds);
        self.head("flusher_state", "gauge", "1 for what the flusher does.");
        for state in ["none", "idle", "writing", "waiting"] {
            let is = (s.flusher.state == state) as u64;
            self.line("flusher_state", &format!("state=\"{state}\""), is);
        }
    }

    fn counters(&mut self, s: &Sample) {
        let (io, w) = (&s.io, &s.writes);
        self.pairs("bios_total", "Bios.", ("op", "read", "write"), io.read_bios, io.write_bios);
        self.pairs(
            "bio_bytes_total",
            "Bytes in bios.",
            ("op", "read", "write"),
            io.read_bytes,
            io.write_bytes,
        );
        for (name, help, value) in [
            ("write_requests_total", "Requests written, after merging.", io.write_requests),
            ("flushes_total", "Flushes of the device.", io.flushes),
            ("discards_total", "Discards.", io.discards),
            ("congested_total", "Times that somebody waited for a full queue.", io.congested),
            ("split_bios_total", "Data bios that another writer ended early.", w.split_bios),
            ("discarded_bytes_total", "Bytes the device was told are free.", w.discarded_bytes),
            ("commit_requests_total", "Requests for commits.", s.commits.total),
        ] {
            self.one(name, "counter", help, value);
        }
        let kinds = ("kind", "file", "commit");
        self.pairs("fsyncs_total", "fsyncs by what they wrote.", kinds, w.fsyncs, w.fsync_commits);
        self.head("blocks_written_total", "counter", "Blocks written by kind.");
        for (kind, n) in [("data", w.data), ("metadata", w.metadata), ("log", w.log)] {
            self.line("blocks_written_total", &format!("kind=\"{kind}\""), n.blocks);
        }
        for (name, n) in &w.own {
            self.one(&format!("{name}_total"), "counter", "Counted by this format alone.", n);
        }
        self.head("bio_size_bios_total", "counter", "Bios by the power of two at or below their size.");
        for c in &io.sizes {
            for (op, n) in [("read", c.reads), ("write", c.writes)] {
                self.line("bio_size_bios_total", &format!("op=\"{op}\",bytes=\"{}\"", c.bytes), n);
            }
        }
    }

    /// A counter with two values of one label.
    fn pairs(&mut self, name: &str, help: &str, (label, a, b): (&str, &str, &str), x: u64, y: u64) {
        self.head(name, "counter", help);
        self.line(name, &format!("{label}=\"{a}\""), x);
        self.line(name, &format!("{label}=\"{b}\""), y);
    }

    fn histogram(&mut self, name: &str, help: &str, l: &Latency) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for bound in BOUNDS {
            let n: u64 = l.buckets.iter().filter(|b| b.0 <= bound).map(|b| b.1).sum();
            self.line(&bucket, &format!("le=\"{}\"", bound as f64 / 1e9), n);
        }
        self.line(&bucket, "le=\"+Inf\"", l.count);
        self.line(&format!("{name}_sum"), "", l.sum_ns as f64 / 1e9);
        self.line(&format!("{name}_count"), "", l.count);
    }

    fn locks(&mut self, s: &Sample) {
        if s.locks.is_empty() {
            return;
        }
        type Value = fn(&super::LockSample) -> f64;
        let metrics: [(&str, &str, Value); 4] = [
            ("lock_contentions_total", "Acquisitions that waited.", |l| l.contentions as f64),
            ("lock_wait_seconds_total", "Time waited.", |l| l.wait_total_ns as f64 / 1e9),
            ("lock_acquisitions_total", "Acquisitions.", |l| l.acquisitions as f64),
            ("lock_hold_seconds_total", "Time held.", |l| l.hold_total_ns as f64 / 1e9),
        ];
        for (name, help, value) in metrics {
            self.head(name, "counter", help);
            for l in &s.locks {
                self.line(name, &format!("class=\"{}\"", escaped(&l.class)), value(l));
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_names_are_escaped() {
        let fsync = Latency {
            count: 5,
            sum_ns: 2_500_000,
            buckets: vec![(9_000, 2), (1_000_000, 2), (400_000_000_000, 1)],
            ..Latency::default()
        };
        let text = prometheus(&Sample { image: "a\"b".into(), fsync, ..Sample::default() });
        for line in [
            "tidegate_fsync_seconds_bucket{image=\"a\\\"b\",le=\"0.00001\"} 2",
            "tidegate_fsync_seconds_bucket{image=\"a\\\"b\",le=\"0.001\"} 4",
            "tidegate_fsync_seconds_bucket{image=\"a\\\"b\",le=\"300\"} 4",
            "tidegate_fsync_seconds_bucket{image=\"a\\\"b\",le=\"+Inf\"} 5",
            "tidegate_fsync_seconds_sum{image=\"a\\\"b\"} 0.0025",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        let described = text.lines().filter(|l| l.starts_with("# TYPE")).count();
        assert_eq!(described, text.lines().filter(|l| l.starts_with("# HELP")).count());
    }
}
