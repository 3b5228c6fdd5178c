//! The possible results of each experiment.

use crate::experiment::comparison::Verdict::{self, No, Partly, Yes};

/// One possible result of an experiment: a comparison, figures by position, and the verdict.
pub(super) struct Way {
    pub comparison: &'static str,
    /// Position, the counter or (empty) the metric, the figure.
    pub figures: &'static [(&'static str, &'static str, f64)],
    pub verdict: Verdict,
}

const fn way(
    comparison: &'static str,
    figures: &'static [(&'static str, &'static str, f64)],
    verdict: Verdict,
) -> Way {
    Way { comparison, figures, verdict }
}

pub(super) const SPLIT: &str = "bios split by others";
pub(super) const KIB: &str = "KiB of a data bio";
pub(super) const PIECES: &str = "pieces of a file";
pub(super) const DIP: &str = "least row of files/s by its median";

pub(super) const M1: &[Way] = &[
    way("locked / submit_locked", &[("locked", "", 4.244), ("submit_locked", "", 3.822)], Yes),
    way("locked / submit_locked", &[("locked", "", 3.80), ("submit_locked", "", 3.822)], No),
    way("locked / submit_locked", &[("locked", "", 9.0), ("submit_locked", "", 3.822)], Partly),
    way("bios split with locked", &[("locked", SPLIT, 20.0)], Yes),
    way("bios split with locked", &[("locked", SPLIT, 0.0)], No),
    way("bios split with submit_locked", &[("submit_locked", SPLIT, 0.0)], Yes),
    way("bios split with submit_locked", &[("submit_locked", SPLIT, 1.0)], No),
    way("KiB of a bio, submit_locked", &[("submit_locked", KIB, 524.0)], Yes),
    way("KiB of a bio, submit_locked", &[("submit_locked", KIB, 300.0)], No),
    way("extent / submit_locked", &[("extent", "", 3.0), ("submit_locked", "", 3.8)], Yes),
    way("extent / submit_locked", &[("extent", "", 4.0), ("submit_locked", "", 3.8)], No),
    way("extent / locked", &[("extent", "", 3.0), ("locked", "", 4.2)], Yes),
    way("extent / locked", &[("extent", "", 4.3), ("locked", "", 4.2)], No),
    way("pieces, extent / submit_locked", &[("extent", PIECES, 1.0), ("submit_locked", PIECES, 1.0)], Yes),
    way("pieces, extent / submit_locked", &[("extent", PIECES, 2.0), ("submit_locked", PIECES, 1.0)], No),
];

pub(super) const THIRD: &str = "nomap_first=pipelined,journal=pipelined";
pub(super) const COMMIT_P99: &str = "p99 of a jbd2 commit, ms";
pub(super) const NAMED: &str = "named";
pub(super) const HELD: &str = "% of it with locks held that others want";

pub(super) const M2: &[Way] = &[
    way("off / on", &[("off", "", 3.6), ("on", "", 0.03)], Yes),
    way("off / on", &[("off", "", 24.0), ("on", "", 9.4)], Partly),
    way("off / on", &[("off", "", 30.0), ("on", "", 0.03)], Partly),
    way("off / on", &[("off", "", 0.03), ("on", "", 0.03)], No),
    way("mean commit, on, s", &[("on", "", 0.03)], Yes),
    way("mean commit, on, s", &[("on", "", 0.11)], No),
    way("worst commit, on, s", &[("on", "worst jbd2 commit, ms", 51.0)], Yes),
    way("worst commit, on, s", &[("on", "worst jbd2 commit, ms", 700.0)], No),
    way("on / pipelined, p99 commit", &[("on", COMMIT_P99, 51.0), (THIRD, COMMIT_P99, 8.0)], Yes),
    way("on / pipelined, p99 commit", &[("on", COMMIT_P99, 51.0), (THIRD, COMMIT_P99, 18.0)], No),
    // The position in between is not the one with the bound.
    way(
        "on / pipelined, p99 commit",
        &[("on", COMMIT_P99, 51.0), ("nomap_first=pipelined", COMMIT_P99, 1.0)],
        No,
    ),
    way("explained of each commit, off, %", &[("off", NAMED, 95.1)], Yes),
    way("explained of each commit, off, %", &[("off", NAMED, 95.05)], No),
    way(
        "fdatasync, pipelined / on",
        &[("on", "fdatasync of the log, ms", 1.0), (THIRD, "fdatasync of the log, ms", 1.04)],
        Yes,
    ),
    way(
        "fdatasync, pipelined / on",
        &[("on", "fdatasync of the log, ms", 1.0), (THIRD, "fdatasync of the log, ms", 1.06)],
        No,
    ),
    way("p99 fdatasync, pipelined / on", &[("on", "p99 of it, ms", 1.0), (THIRD, "p99 of it, ms", 1.0)], Yes),
    way("p99 fdatasync, pipelined / on", &[("on", "p99 of it, ms", 1.0), (THIRD, "p99 of it, ms", 1.2)], No),
    way("write, pipelined / on", &[("on", "write, ms", 1.0), (THIRD, "write, ms", 0.9)], Yes),
    way("write, pipelined / on", &[("on", "write, ms", 1.0), (THIRD, "write, ms", 1.1)], No),
    way(
        "p99 write, pipelined / on",
        &[("on", "p99 of a write, ms", 1.0), (THIRD, "p99 of a write, ms", 1.0)],
        Yes,
    ),
    way(
        "p99 write, pipelined / on",
        &[("on", "p99 of a write, ms", 1.0), (THIRD, "p99 of a write, ms", 1.1)],
        No,
    ),
    way(
        "fsync of data, pipelined / on",
        &[("on", "fsync of the data, ms", 1.0), (THIRD, "fsync of the data, ms", 1.0)],
        Yes,
    ),
    way(
        "fsync of data, pipelined / on",
        &[("on", "fsync of the data, ms", 1.0), (THIRD, "fsync of the data, ms", 1.1)],
        No,
    ),
    way(
        "p99 read, pipelined / on",
        &[("on", "p99 of a read, ms", 1.0), (THIRD, "p99 of a read, ms", 1.0)],
        Yes,
    ),
    way(
        "p99 read, pipelined / on",
        &[("on", "p99 of a read, ms", 1.0), (THIRD, "p99 of a read, ms", 1.1)],
        No,
    ),
    way("writes/s, on / pipelined", &[("on", "writes/s", 1.0), (THIRD, "writes/s", 2.0)], Yes),
    way("writes/s, on / pipelined", &[("on", "writes/s", 1.0), (THIRD, "writes/s", 0.9)], No),
    way("reads/s, on / pipelined", &[("on", "reads/s", 1.0), (THIRD, "reads/s", 0.98)], Yes),
    way("reads/s, on / pipelined", &[("on", "reads/s", 1.0), (THIRD, "reads/s", 0.9)], No),
    way("get_request with locks, submit_locked, %", &[("submit_locked", HELD, 97.0)], Yes),
    way("get_request with locks, submit_locked, %", &[("submit_locked", HELD, 40.0)], No),
    way("get_request with locks, extent, %", &[("extent", HELD, 0.0)], Yes),
    way("get_request with locks, extent, %", &[("extent", HELD, 0.1)], No),
    way("checkpoint, submit_locked / extent", &[("submit_locked", "", 0.37), ("extent", "", 0.3)], Yes),
    way("checkpoint, submit_locked / extent", &[("submit_locked", "", 0.3), ("extent", "", 0.37)], No),
    way(
        "create or unlink, submit_locked / extent",
        &[("submit_locked", "create or unlink, ms", 2.0), ("extent", "create or unlink, ms", 1.5)],
        Yes,
    ),
    way(
        "create or unlink, submit_locked / extent",
        &[("submit_locked", "create or unlink, ms", 1.5), ("extent", "create or unlink, ms", 2.0)],
        No,
    ),
];

pub(super) const M3: &[Way] = &[
    way("flusher / caller", &[("flusher", "", 52.4), ("caller", "", 6.9)], Yes),
    way("flusher / caller", &[("flusher", "", 10.0), ("caller", "", 6.9)], Partly),
    way("flusher / caller", &[("flusher", "", 52.4), ("caller", "", 2.0)], Partly),
    way("flusher / caller", &[("flusher", "", 6.8), ("caller", "", 6.9)], No),
    way("least/median files/s, flusher", &[("flusher", DIP, 0.035)], Yes),
    way("least/median files/s, flusher", &[("flusher", DIP, 0.5)], No),
    way("least/median files/s, caller", &[("caller", DIP, 0.9)], Yes),
    way("least/median files/s, caller", &[("caller", DIP, 0.3)], No),
    way("16 syncs / one, epoch", &[("epoch", "", 1.0)], Yes),
];

pub(super) const ONE_LOG: &str = "warm_streams=1";
pub(super) const SPF: &str = "stream_policy=spf,warm_streams=9";
pub(super) const SRR: &str = "stream_policy=srr,warm_streams=9";
pub(super) const AUTO: &str = "stream_policy=auto,warm_streams=9";
const SPF_OF_SEVEN: &str = "stream_policy=spf,warm_streams=7";
const AUTO_OF_SEVEN: &str = "stream_policy=auto,warm_streams=7";
pub(super) const ALL_BEHIND_ONE: &str = "stream_flush=all,stream_policy=spf,warm_streams=9";
pub(super) const LOCK_EACH: &str = "stream_flush=inode,stream_policy=spf,warm_streams=9";
pub(super) const WAITED: &str = "waited for sbi->writepages, ms";
pub(super) const REFUSED: &str = "writes refused by a write pointer";
const P9999: &str = "p99.99 of a write, ms";
pub(super) const FSYNC: &str = "mean time of an fsync, ms";

pub(super) const M4: &[Way] = &[
    way("spf / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (SPF, "", 1.01)], Yes),
    way("spf / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (SPF, "", 1.05)], No),
    way("spf / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.5), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (SPF, "", 1.1)], No),
    way("spf / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.5), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 4 files", &[(ONE_LOG, "", 5.0), (SPF, "", 1.0)], Partly),
    way("spf / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.8), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (SPF, "", 1.0)], No),
    way("spf / one log, MiB/s, 9 files: of what we want", &[(ONE_LOG, "", 1.8), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 9 files: of what we want", &[(ONE_LOG, "", 1.7), (SPF, "", 1.0)], No),
    way("one log / spf, mean time of an fsync, 9 files", &[(ONE_LOG, FSYNC, 5.0), (SPF, FSYNC, 2.8)], Yes),
    way("one log / spf, mean time of an fsync, 9 files", &[(ONE_LOG, FSYNC, 2.0), (SPF, FSYNC, 2.8)], No),
    way("srr / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.4), (SRR, "", 1.0)], Yes),
    way("srr / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (SRR, "", 1.2)], No),
    way("spf / one log, p99.99 of a write, 9 files", &[(ONE_LOG, P9999, 3.1), (SPF, P9999, 1.0)], Yes),
    way("spf / one log, p99.99 of a write, 9 files", &[(ONE_LOG, P9999, 2.0), (SPF, P9999, 1.0)], No),
    way("auto / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 1 file", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 2 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 4 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("auto / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 9 files", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("spf / one log, MiB/s, 9 files on zones", &[(ONE_LOG, "", 1.8), (SPF, "", 1.0)], Yes),
    way("spf / one log, MiB/s, 9 files on zones", &[(ONE_LOG, "", 1.0), (SPF, "", 1.0)], No),
    way(
        "spf / one log, MiB/s, 9 files on zones: of what we want",
        &[(ONE_LOG, "", 1.76), (SPF, "", 1.0)],
        Yes,
    ),
    way(
        "spf / one log, MiB/s, 9 files on zones: of what we want",
        &[(ONE_LOG, "", 1.74), (SPF, "", 1.0)],
        No,
    ),
    way(
        "one log / spf, mean time of an fsync, 9 files on zones",
        &[(ONE_LOG, FSYNC, 5.0), (SPF, FSYNC, 2.8)],
        Yes,
    ),
    way(
        "one log / spf, mean time of an fsync, 9 files on zones",
        &[(ONE_LOG, FSYNC, 2.0), (SPF, FSYNC, 2.8)],
        No,
    ),
    way("auto / one log, MiB/s, 9 files on zones", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 9 files on zones", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("writes refused by a write pointer, warm_streams=1", &[(ONE_LOG, REFUSED, 0.0)], Yes),
    way("writes refused by a write pointer, warm_streams=1", &[(ONE_LOG, REFUSED, 1.0)], No),
    way("writes refused by a write pointer, spf", &[(SPF, REFUSED, 0.0)], Yes),
    way("writes refused by a write pointer, spf", &[(SPF, REFUSED, 1.0)], No),
    way("writes refused by a write pointer, srr", &[(SRR, REFUSED, 0.0)], Yes),
    way("writes refused by a write pointer, srr", &[(SRR, REFUSED, 1.0)], No),
    way("writes refused by a write pointer, auto", &[(AUTO, REFUSED, 0.0)], Yes),
    way("writes refused by a write pointer, auto", &[(AUTO, REFUSED, 1.0)], No),
    way("auto / spf, MiB/s, 9 files", &[(SPF, "", 1.21), (AUTO, "", 1.0)], Yes),
    way("auto / spf, MiB/s, 9 files", &[(SPF, "", 1.19), (AUTO, "", 1.0)], No),
    way("streams behind one lock / one log, MiB/s", &[(ONE_LOG, "", 1.0), (ALL_BEHIND_ONE, "", 1.01)], Yes),
    way("streams behind one lock / one log, MiB/s", &[(ONE_LOG, "", 1.01), (ALL_BEHIND_ONE, "", 1.0)], No),
    way(
        "sent by file, a lock each / all sent, one lock, MiB/s",
        &[(ALL_BEHIND_ONE, "", 1.01), (LOCK_EACH, "", 1.0)],
        Yes,
    ),
    way(
        "sent by file, a lock each / all sent, one lock, MiB/s",
        &[(ALL_BEHIND_ONE, "", 1.0), (LOCK_EACH, "", 1.01)],
        No,
    ),
    way("spf / one log, MiB/s, 1 file, 32 at once", &[(ONE_LOG, "", 1.0), (SPF, "", 1.01)], Yes),
    way("spf / one log, MiB/s, 1 file, 32 at once", &[(ONE_LOG, "", 1.0), (SPF, "", 1.05)], No),
    way("auto / one log, MiB/s, 1 file, 32 at once", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 1 file, 32 at once", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("spf / one log, MiB/s, 9 files, no fsync", &[(ONE_LOG, "", 1.0), (SPF, "", 1.01)], Yes),
    way("spf / one log, MiB/s, 9 files, no fsync", &[(ONE_LOG, "", 1.0), (SPF, "", 1.05)], No),
    way("auto / one log, MiB/s, 9 files, no fsync", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.01)], Yes),
    way("auto / one log, MiB/s, 9 files, no fsync", &[(ONE_LOG, "", 1.0), (AUTO, "", 1.05)], No),
    way("spf / one log, MiB/s, beside cleaning", &[(ONE_LOG, "", 2.4), (SPF_OF_SEVEN, "", 1.0)], Yes),
    way("spf / one log, MiB/s, beside cleaning", &[(ONE_LOG, "", 1.0), (SPF_OF_SEVEN, "", 1.1)], No),
    way(
        "spf / one log, MiB/s, beside cleaning: of what we want",
        &[(ONE_LOG, "", 2.35), (SPF_OF_SEVEN, "", 1.0)],
        Yes,
    ),
    way(
        "spf / one log, MiB/s, beside cleaning: of what we want",
        &[(ONE_LOG, "", 2.2), (SPF_OF_SEVEN, "", 1.0)],
        No,
    ),
    way("auto / one log, MiB/s, beside cleaning", &[(ONE_LOG, "", 1.0), (AUTO_OF_SEVEN, "", 1.01)], Yes),
    way("auto / one log, MiB/s, beside cleaning", &[(ONE_LOG, "", 1.0), (AUTO_OF_SEVEN, "", 1.05)], No),
    way("waited for the lock of each stream, ms", &[(LOCK_EACH, WAITED, 0.0)], Yes),
    way("waited for the lock of each stream, ms", &[(LOCK_EACH, WAITED, 0.1)], No),
];

const MS_OF_FSYNC: &str = "ms of an fsync, weight 100";

pub(super) const M5: &[Way] = &[
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 68.0), ("checkpoint_merge", "", 48.0)],
        Yes,
    ),
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 68.0), ("checkpoint_merge", "", 6.0)],
        Partly,
    ),
    way(
        "without / with checkpoint_merge",
        &[("nocheckpoint_merge", "", 48.0), ("checkpoint_merge", "", 68.0)],
        No,
    ),
    way("ms of an fsync, each its own checkpoint, least", &[("nocheckpoint_merge", MS_OF_FSYNC, 37.0)], Yes),
    way("ms of an fsync, each its own checkpoint, least", &[("nocheckpoint_merge", MS_OF_FSYNC, 30.0)], No),
    way("ms of an fsync, each its own checkpoint, most", &[("nocheckpoint_merge", MS_OF_FSYNC, 37.0)], Yes),
    way("ms of an fsync, each its own checkpoint, most", &[("nocheckpoint_merge", MS_OF_FSYNC, 140.0)], No),
    way("ms of an fsync, merged, least", &[("checkpoint_merge", MS_OF_FSYNC, 29.0)], Yes),
    way("ms of an fsync, merged, least", &[("checkpoint_merge", MS_OF_FSYNC, 20.0)], No),
    way("ms of an fsync, merged, most", &[("checkpoint_merge", MS_OF_FSYNC, 29.0)], Yes),
    way("ms of an fsync, merged, most", &[("checkpoint_merge", MS_OF_FSYNC, 100.0)], No),
];
