//! One sample as text, for output that is no terminal.

use crate::out::Out;
use crate::units::{bytes, duration};
use tidegate::sample::{Latency, Rates};
use tidegate::{Result, Sample};

/// Prints a sample.
///
/// # Errors
/// Those of printing.
pub fn print(out: &mut Out, s: &Sample, r: &Rates) -> Result<()> {
    let m = &s.memory;
    out.line(format_args!("{}: {} at {}", s.image, s.format, s.mountpoint.as_deref().unwrap_or("-")))?;
    out.line(format_args!(
        "memory: dirty {}, write-back {}, cached {}; writers wait at {}",
        bytes(m.dirty_bytes),
        bytes(m.writeback_bytes),
        bytes(m.cached_bytes),
        bytes(m.dirty_limit)
    ))?;
    let at = s.flusher.ino.map(|i| format!(" inode {i}")).unwrap_or_default();
    let why = s.flusher.why.as_deref().map(|w| format!(" ({w})")).unwrap_or_default();
    out.line(format_args!("flusher: {}{at}{why}", s.flusher.state))?;
    out.line(format_args!(
        "device: {:.0} bios/s of {} written ({}/s), {:.0} read ({}/s), {:.0} flushes/s, {} in flight",
        r.write_bios,
        bytes(r.mean_write_bio as u64),
        bytes(r.write_bytes as u64),
        r.read_bios,
        bytes(r.read_bytes as u64),
        r.flushes,
        s.io.in_flight
    ))?;
    for c in &r.sizes {
        out.line(format_args!(
            "  {:>8} {:>8} written {:>8} read",
            format!("{}+", bytes(c.bytes)),
            c.writes,
            c.reads
        ))?;
    }
    latency(out, "fsync", &s.fsync)?;
    latency(out, "commit", &s.commit)?;
    latency(out, "  frozen", &s.frozen)?;
    for step in s.commits.steps.iter().filter(|t| !t.total && t.count > 0) {
        let name = format!("  {}{}", if step.frozen { "*" } else { " " }, step.name);
        latency(out, &name, &step.times().into())?;
    }
    for l in r.locks.iter().take(10) {
        out.line(format_args!(
            "lock: {:<28} waited {:>8} in {:>6}, held {:>8} in {:>8}",
            l.class,
            duration(l.wait_total_ns),
            l.contentions,
            duration(l.hold_total_ns),
            l.acquisitions
        ))?;
    }
    for f in &s.files {
        let name = f.path.clone().unwrap_or_else(|| format!("inode {}", f.ino));
        out.line(format_args!(
            "file: {name}: dirty {}, write-back {}, for {:.1} s",
            bytes(f.dirty_bytes),
            bytes(f.writeback_bytes),
            f.age_seconds
        ))?;
    }
    Ok(())
}

fn latency(out: &mut Out, name: &str, l: &Latency) -> Result<()> {
    if l.count == 0 {
        return out.line(format_args!("{name}: none yet"));
    }
    let [p50, p90, p99, max] = [l.p50_ns, l.p90_ns, l.p99_ns, l.max_ns].map(duration);
    out.line(format_args!("{name}: {} times, p50 {p50}, p90 {p90}, p99 {p99}, max {max}", l.count))
}
