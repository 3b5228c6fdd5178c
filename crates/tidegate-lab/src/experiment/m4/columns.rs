//! The figures that are shown of each position.

use crate::experiment::setting::{Counter, count, lock_wait_ms};
use crate::result::RunResult;

pub(super) const REFUSED: &str = "writes refused by a write pointer";
const AMPLIFIED: &str = "bytes written by the device / by the files";
pub(super) const WAITED: &str = "waited for sbi->writepages, ms";
pub(super) const P9999: &str = "p99.99 of a write, ms";
pub(super) const FSYNC: &str = "mean time of an fsync, ms";
/// Bytes of each read when files are read back.
pub(super) const READ: u64 = 128 << 10;

const SPEED: Counter = ("MiB/s", mib_per_second);
const SLOWEST: Counter =
    (P9999, |r| Some(*r.ops.get("write")?.latency.percentiles.get("99.990000")? as f64 / 1e6));
const FSYNCED: Counter = (FSYNC, |r| Some(r.ops.get("fsync")?.latency.mean / 1e6));
const BIOS: Counter = ("data bios of an fsync", |r| of_an_fsync(r, "fs.data_bios"));
const STREAMS: Counter = ("streams sent for each fsync", |r| of_an_fsync(r, "fs.streams_sent"));
const PIECES: Counter = ("pieces of all files", |r| count(r, "fs.data_fragments"));
const READS: Counter =
    ("mean time of a read of 128 KiB, ms", |r| Some(r.ops.get("read")?.latency.mean / 1e6));
const PACKS: Counter = ("KiB of checkpoint packs", |r| written(r, "fs.pack_blocks"));
const SIT: Counter = ("KiB of SIT", |r| written(r, "fs.sit_blocks"));
const NAT: Counter = ("KiB of NAT", |r| written(r, "fs.nat_blocks"));
const SSA: Counter = ("KiB of SSA", |r| written(r, "fs.ssa_blocks"));
// A counter that has not moved is missing.
const REFUSALS: Counter = (REFUSED, |r| Some(count(r, "queue.zone_refused").unwrap_or(0.0)));
const RESETS: Counter = ("zones reset or finished", |r| Some(count(r, "queue.discards").unwrap_or(0.0)));
const AMPLIFIES: Counter =
    (AMPLIFIED, |r| Some(count(r, "queue.write_bytes")? / r.ops.get("write")?.bytes as f64));
const MOVED: Counter =
    ("MiB moved by cleaning", |r| Some(count(r, "fs.gc_data_blocks").unwrap_or(0.0) / 256.0));

pub(super) const COUNTERS: &[Counter] =
    &[SPEED, SLOWEST, FSYNCED, BIOS, STREAMS, PIECES, READS, PACKS, SIT, NAT, SSA];

/// On zones, the queue and the device count refused writes.
pub(super) const ZONED_COUNTERS: &[Counter] = &[
    SPEED, SLOWEST, FSYNCED, BIOS, STREAMS, READS, PACKS, SIT, NAT, SSA, REFUSALS, RESETS, AMPLIFIES, MOVED,
];

pub(super) const LOCKED_COUNTERS: &[Counter] =
    &[SPEED, FSYNCED, BIOS, STREAMS, (WAITED, |r| lock_wait_ms(r, "sbi->writepages"))];

fn mib_per_second(r: &RunResult) -> Option<f64> {
    let bytes = r.ops.get("write")?.bytes as f64;
    Some(bytes / f64::from(1 << 20) * 1e9 / r.elapsed_ns as f64)
}

fn of_an_fsync(r: &RunResult, counter: &str) -> Option<f64> {
    Some(count(r, counter)? / r.ops.get("fsync").map(|o| o.latency.count as f64)?)
}

/// A count of blocks in KiB.
fn written(r: &RunResult, blocks: &str) -> Option<f64> {
    Some(count(r, blocks).unwrap_or(0.0) * 4.0)
}
