//! Jobs beside the main one: a deep queue on one file, files without fsync, and writes beside cleaning.

use super::columns::{READ, ZONED_COUNTERS};
use super::{AS_MUCH, ONE, auto_of, gain};
use crate::experiment::Where;
use crate::experiment::comparison::{Because, Comparison, Rule};
use crate::experiment::outcome::{Position, Published};
use crate::experiment::setting::Setting;
use crate::workload::{Before, Periodic, Spec, Streams};
use tidegate_block::Preset;

/// MiB/s of four writers on a volume whose space must be cleaned: one log, spf.
const CLEANING: [f64; 2] = [383.0, 885.0];
/// MiB/s with the second published data set: one log, spf.
const SECOND: [f64; 2] = [847.0, 887.0];
/// Zones beside cleaning are this many times shorter than the device's: two segments have room in one. So there are
/// many zones, and mkfs keeps few of them back.
const SHORTER: u64 = 256;
/// Zones of that device, and the share of them, in percent, that the earlier files take: nearly all that mkfs leaves
/// to files.
const ZONES: (u64, u64) = (256, 76);
/// The two in a first look.
const FEW_ZONES: (u64, u64) = (128, 67);
/// As many logs as there are files before, as published.
const CLEANED: &[&str] = &[ONE, "stream_policy=spf,warm_streams=7", "stream_policy=auto,warm_streams=7"];

pub(super) fn settings(quick: bool, like: impl Fn() -> Setting) -> [Setting; 3] {
    let size = if quick { 16 << 20 } else { 64 << 20 };
    let job = |writers, depth, periodic| {
        Spec::Streams(Streams {
            writers,
            size,
            block: 4096,
            depth,
            periodic,
            read_back: READ,
            interval_ms: 10,
            ..Streams::default()
        })
    };
    let deep = Setting {
        name: "1 file, 32 at once".into(),
        workload: job(1, 32, Periodic::FsyncEvery(32 * 4096)),
        published: None,
        bars: deep,
        ..like()
    };
    let second = Setting {
        name: "9 files, no fsync".into(),
        workload: job(9, 1, Periodic::None),
        published: Some(published("its second data set, with sectors of 4 KiB", "9 files", SECOND)),
        bars: second,
        ..like()
    };
    [deep, second, cleaning(quick, like())]
}

fn cleaning(quick: bool, like: Setting) -> Setting {
    let (count, filled) = if quick { FEW_ZONES } else { ZONES };
    let zones = Preset::Zns.spec().with_shorter_zones(SHORTER).zones;
    let (zone, capacity) = zones.map_or((0, 0), |z| (z.size, z.capacity));
    // Seven files fill that share of the zones; the removal of four of them makes room for as many new ones.
    let file = count * capacity * filled / 100 / 7 / 4096 * 4096;
    Setting {
        name: "4 files beside cleaning, on zones".into(),
        place: Where::Zoned(Preset::Zns),
        size: count * zone,
        shorter: SHORTER,
        workload: Spec::Streams(Streams {
            writers: 4,
            size: file,
            block: 4096,
            before: Before { files: 7, size: file, removed: 4 },
            periodic: Periodic::FsyncEvery(128 * 4096),
            read_back: READ,
            interval_ms: 10,
            ..Streams::default()
        }),
        published: Some(published("gc-concurrent", "4 files beside cleaning", CLEANING)),
        positions: CLEANED,
        counters: ZONED_COUNTERS,
        bars: cleaned,
        ..like
    }
}

const LITTLE_TO_MOVE: &str = "with one log, cleaning moves a third of what is written, and with streams nothing, as a removed file \
    leaves whole zones; a fuller volume makes more of it, and how full the published one was is not known";

fn published(of: &str, files: &str, [before, after]: [f64; 2]) -> Published {
    Published {
        source: format!("msF2FS on a WD Ultrastar DC ZN540, {of}"),
        what: format!("GiB of {files}, one log and spf, s"),
        before: 1024.0 / before,
        after: 1024.0 / after,
    }
}

fn deep(p: &[Position]) -> Vec<Comparison> {
    vec![
        Comparison::ratio("spf / one log, MiB/s, 1 file, 32 at once", Rule::AtLeast(AS_MUCH), &gain(p)),
        auto_of(p, "1 file, 32 at once"),
    ]
}

fn second(p: &[Position]) -> Vec<Comparison> {
    vec![
        Comparison::ratio("spf / one log, MiB/s, 9 files, no fsync", Rule::AtLeast(AS_MUCH), &gain(p))
            .beside(SECOND[1] / SECOND[0]),
        auto_of(p, "9 files, no fsync"),
    ]
}

fn cleaned(p: &[Position]) -> Vec<Comparison> {
    let published = CLEANING[1] / CLEANING[0];
    vec![
        Comparison::reproduces(
            "spf / one log, MiB/s, beside cleaning",
            published,
            &gain(p),
            Because::default(),
        ),
        Comparison::ratio(
            "spf / one log, MiB/s, beside cleaning: of what we want",
            Rule::AtLeast(2.3),
            &gain(p),
        )
        .beside(published)
        .since(LITTLE_TO_MOVE),
        auto_of(p, "beside cleaning"),
    ]
}
