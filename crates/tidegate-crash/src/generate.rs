//! Random runs: operations that are possible, on few files, with many syncs.

use crate::model::Model;
use crate::ops::{CrashOp, Place, SLOTS, Step, Target};
use std::ops::Range;
use tidegate_rt::rng::Rng;

/// The subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Everything, in small pieces.
    Mixed,
    /// Files are made, written, fsynced, renamed and removed, with few checkpoints.
    Names,
    /// Large files, so that segments fill, empty and are used again.
    Bulk,
    /// Everything, on an aged volume, and changes of the aged volume's files.
    Aged,
    /// An aged volume's large files are rewritten without a sync, so that logs come to the segments that the
    /// rewrites freed.
    Round,
}

impl Profile {
    /// Any profile; the cheaper profiles more often.
    pub fn any(rng: &mut Rng) -> Profile {
        match rng.below(20) {
            0..8 => Profile::Mixed,
            8..13 => Profile::Names,
            13..15 => Profile::Bulk,
            15..17 => Profile::Aged,
            _ => Profile::Round,
        }
    }

    /// Whether the run begins with an aged volume.
    pub fn is_aged(self) -> bool {
        matches!(self, Profile::Aged | Profile::Round)
    }

    /// Whether the files are small, so that a state is judged quickly.
    pub fn is_small(self) -> bool {
        matches!(self, Profile::Mixed | Profile::Names)
    }

    /// The number of operations of a run.
    pub fn count(self, rng: &mut Rng) -> usize {
        match self {
            Profile::Mixed => *rng.pick(&[8, 20, 30, 40, 60]),
            Profile::Names => *rng.pick(&[8, 16, 24, 40]),
            Profile::Bulk => 70,
            Profile::Aged => *rng.pick(&[20, 40, 60]),
            Profile::Round => *rng.pick(&[40, 70, 100]),
        }
    }

    /// One operation in this many is one of the rare operations.
    fn rarely(self) -> Option<u64> {
        match self {
            Profile::Mixed | Profile::Aged => Some(6),
            Profile::Names => Some(10),
            Profile::Bulk | Profile::Round => None,
        }
    }

    fn idea(self, rng: &mut Rng, model: &Model, last: Option<&CrashOp>) -> CrashOp {
        match self {
            Profile::Names if !rng.one_in(8) => names(rng, model),
            Profile::Bulk if !rng.one_in(8) => large(rng),
            Profile::Aged if rng.one_in(2) => filler(rng, Place::FILLERS),
            Profile::Round if !rng.one_in(24) => rewrite(rng, last),
            _ => idea(rng, model),
        }
    }
}

/// `count` operations on a volume with the tree `model`.
pub fn generate(rng: &mut Rng, count: usize, profile: Profile, mut model: Model) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut apart = rng.fork(1);
    while steps.len() < count {
        // Most operations that are drawn cannot be done to a small tree; some always can.
        let last = steps.last().map(|s| &s.op);
        let rarely = profile.rarely().is_some_and(|n| apart.one_in(n));
        let op = std::iter::repeat_with(|| match rarely {
            true => rare(&mut apart, &model),
            false => profile.idea(rng, &model, last),
        });
        let op = op.take(10_000).find(|op| model.can(op));
        let Some(op) = op else { break };
        let step = Step { serial: steps.len() as u32 + 1, op };
        model.apply(&step);
        steps.push(step);
    }
    steps
}

/// Any place except the places of aged volumes.
fn anywhere(rng: &mut Rng) -> Place {
    Place(rng.below(Place::FILES.end as u64) as u8)
}

/// One of a range of places.
fn among(rng: &mut Rng, places: Range<u8>) -> Place {
    Place(places.start + rng.below(places.len() as u64) as u8)
}

fn idea(rng: &mut Rng, model: &Model) -> CrashOp {
    use CrashOp::*;
    let any = anywhere;
    let new = |rng: &mut Rng| among(rng, Place::FILES);
    match rng.below(100) {
        0..9 => Create { at: new(rng) },
        9..13 => Mkdir { at: *rng.pick(&Place::DIRS) },
        13..15 => Symlink { at: new(rng), len: *rng.pick(&[1, 9, 60, 300, 3000, 4000]) },
        15..38 => write(rng, model),
        38..42 => Truncate { file: target(rng, model), size: position(rng) },
        42..45 => Punch { file: target(rng, model), pos: position(rng), len: 1 + rng.below(40_000) },
        45..48 => Allocate {
            file: target(rng, model),
            pos: position(rng),
            len: 1 + rng.below(40_000),
            keep: rng.one_in(2),
        },
        48..57 => Rename { from: any(rng), to: any(rng), exchange: rng.one_in(4) },
        57..60 => Link { from: any(rng), to: new(rng) },
        60..65 => Unlink { at: new(rng) },
        65..66 => Rmdir { at: *rng.pick(&Place::DIRS) },
        66..70 => {
            let len = *rng.pick(&[1, 16, 40, 180, 400, 1100]);
            SetXattr { at: any(rng), name: rng.below(3) as u8, len }
        }
        70..71 => RemoveXattr { at: any(rng), name: rng.below(3) as u8 },
        71..73 => Chmod { at: any(rng), mode: rng.below(0o1000) as u32 },
        73..83 => Fsync { file: target(rng, model) },
        83..87 => Fdatasync { file: target(rng, model) },
        87..90 => FsyncDir { at: directory(rng) },
        90..92 => Sync,
        92..94 => Hold { at: new(rng), slot: rng.below(SLOTS as u64) as u8 },
        94..95 => Release { slot: rng.below(SLOTS as u64) as u8 },
        95..98 => Writeback { file: target(rng, model) },
        98 => Clean { sync: rng.one_in(2) },
        _ if rng.one_in(2) => Trim,
        _ => Turn { seed: rng.below(1000) },
    }
}

fn directory(rng: &mut Rng) -> Place {
    among(rng, 0..Place::FILES.start)
}

/// Files are created, fsynced, renamed and removed.
fn names(rng: &mut Rng, model: &Model) -> CrashOp {
    use CrashOp::*;
    let new = |rng: &mut Rng| among(rng, Place::FILES);
    match rng.below(40) {
        0..10 => Create { at: new(rng) },
        10..16 => Write { file: newest(rng, model), pos: position(rng), len: 1 + rng.below(9000) as u32 },
        16..24 => Fsync { file: newest(rng, model) },
        24..26 => Fdatasync { file: newest(rng, model) },
        26..31 => Rename { from: new(rng), to: new(rng), exchange: rng.one_in(6) },
        31..35 => Unlink { at: new(rng) },
        35 => Link { from: new(rng), to: new(rng) },
        36 => Mkdir { at: *rng.pick(&Place::DIRS) },
        37 => FsyncDir { at: directory(rng) },
        38 => Sync,
        _ => Rename { from: anywhere(rng), to: anywhere(rng), exchange: rng.one_in(2) },
    }
}

/// The file that was made last, or any.
fn newest(rng: &mut Rng, model: &Model) -> Target {
    if rng.one_in(2) {
        return target(rng, model);
    }
    let files = Place::FILES.map(|n| Target::At(Place(n)));
    let last = files.max_by_key(|t| model.file(*t));
    last.unwrap_or_else(|| target(rng, model))
}

/// Files that grow large, one for each log. All of them fit on the volume.
const LARGE: [Place; 3] = [Place(4), Place(7), Place(11)];

/// Mostly rewrites of files without a sync, so that logs come to the segments that the rewrites freed.
fn large(rng: &mut Rng) -> CrashOp {
    use CrashOp::*;
    let at = *rng.pick(&LARGE);
    let file = Target::At(at);
    match rng.below(40) {
        0..5 => Create { at },
        5..24 => {
            let pos = *rng.pick(&[0, 0, 256, rng.clone().below(256)]) * 4096;
            // A write below 1 MiB; writes up to that length change the size in one step.
            Write { file, pos, len: (1 << 19) + rng.below(1 << 19) as u32 }
        }
        24..36 => Writeback { file },
        36 => Truncate { file, size: rng.below(3) << 16 },
        37 => Unlink { at },
        38 => Sync,
        _ => Fdatasync { file },
    }
}

/// A change of an aged volume's files.
fn filler(rng: &mut Rng, which: Range<u8>) -> CrashOp {
    use CrashOp::*;
    let at = among(rng, which);
    let file = Target::At(at);
    match rng.below(20) {
        0..7 => Write { file, pos: rng.below(300) << 12, len: 4096 * (1 + rng.below(16)) as u32 },
        7..12 => Writeback { file },
        12 => Truncate { file, size: rng.below(1 << 20) },
        13 => Punch { file, pos: rng.below(200) << 12, len: rng.below(100_000) + 1 },
        14 => Unlink { at },
        15 => Create { at },
        16 => Clean { sync: rng.one_in(2) },
        17 => Fsync { file },
        18 => Fdatasync { file },
        _ => Rename { from: at, to: among(rng, Place::FILLERS), exchange: rng.one_in(2) },
    }
}

/// Large writes to new places, mostly in one file; now and then something is made durable.
fn rewrite(rng: &mut Rng, last: Option<&CrashOp>) -> CrashOp {
    use CrashOp::*;
    let large = Place::FILLERS.start..Place::FILLERS.start + 3;
    let file = match last {
        Some(Write { file, .. }) if !rng.one_in(8) => return Writeback { file: *file },
        Some(Writeback { file }) if !rng.one_in(4) => *file,
        _ => Target::At(among(rng, large.clone())),
    };
    match rng.below(40) {
        0..33 => Write { file, pos: rng.below(4) << 20, len: 1 << *rng.pick(&[20, 20, 20, 19, 16]) },
        33..36 => Truncate { file, size: *rng.pick(&[0, 0, 1 << 20]) },
        36 => Unlink { at: among(rng, large) },
        37 => Create { at: among(rng, large) },
        38 => Fdatasync { file },
        _ => filler(rng, Place::FILLERS),
    }
}

fn target(rng: &mut Rng, model: &Model) -> Target {
    if rng.one_in(6) {
        return Target::Held(rng.below(SLOTS as u64) as u8);
    }
    let tries: Vec<Target> = (0..8).map(|_| Target::At(anywhere(rng))).collect();
    tries.iter().copied().find(|t| model.file(*t).is_some()).unwrap_or(tries[0])
}

/// The first page whose address is not in the inode itself, on volumes with all features.
const BEYOND_INODE: u64 = 914 * 4096;

/// Files without a name, ranges of zeros, every level of a file's nodes, attribute lists about as long as the
/// room in an inode, other kinds of attributes, writes that are durable when they return, pages that move.
fn rare(rng: &mut Rng, model: &Model) -> CrashOp {
    use CrashOp::*;
    let slot = |rng: &mut Rng| rng.below(SLOTS as u64) as u8;
    let file = target(rng, model);
    let keep = rng.one_in(2);
    match rng.below(32) {
        24 => Chown { at: anywhere(rng), gid: rng.below(1 << 20) as u32 },
        // A time before any time that the file gets otherwise.
        25 => Utimes { at: among(rng, Place::FILES), atime: 1_000_000_000 + rng.below(1 << 20) as i64 },
        26..29 => WriteSync { file, pos: position(rng), len: 1 + rng.below(20_000) as u32 },
        29 => Collapse { file, pos: rng.below(4) * 4096, len: 4096 * (1 + rng.below(4)) },
        30 => Insert { file, pos: rng.below(4) * 4096, len: 4096 * (1 + rng.below(4)) },
        0..3 => Zero { file, pos: position(rng), len: 1 + rng.below(40_000), keep },
        3 => Zero { file, pos: far(rng), len: span(rng).min(1 << 18), keep },
        4..6 => Tmpfile { slot: slot(rng) },
        6..10 => LinkHeld { slot: slot(rng), to: among(rng, Place::FILES) },
        10..14 => Write { file, pos: far(rng), len: 1 + rng.below(20_000) as u32 },
        14..16 => Truncate { file, size: far(rng) },
        16..18 => Punch { file, pos: far(rng), len: span(rng) },
        18 => Allocate { file, pos: far(rng), len: 1 + rng.below(40_000), keep },
        19 => Fsync { file: Target::Held(slot(rng)) },
        _ => {
            let len = if keep { 120 + rng.below(80) } else { 900 + rng.below(400) };
            SetXattr { at: anywhere(rng), name: rng.below(3) as u8, len: len as u16 }
        }
    }
}

/// The pages of a direct node, and the nodes of an indirect node.
const PER_NODE: u64 = 1018;

/// A page near the place where a file continues in another node, or in a node one level deeper.
fn far(rng: &mut Rng) -> u64 {
    let tree = PER_NODE * PER_NODE;
    let nodes = [0, 1, 2, 3, 2 + PER_NODE, 2 + 2 * PER_NODE, 3 + 2 * PER_NODE, 2 + 2 * PER_NODE + tree / 512];
    BEYOND_INODE - 8192 + *rng.pick(&nodes) * PER_NODE * 4096 + rng.below(60_000)
}

/// A length from less than a page to many nodes.
fn span(rng: &mut Rng) -> u64 {
    let most = *rng.pick(&[4000, 60_000, 10 << 20, 5 << 30, 20 << 30]);
    1 + rng.below(most)
}

/// A position: often one where the layout of a file changes.
fn position(rng: &mut Rng) -> u64 {
    match rng.below(20) {
        0..5 => rng.below(3400),
        5..12 => rng.below(40_000),
        12..16 => rng.below(20) * 4096,
        16 => 3400 + rng.below(300),
        17 => rng.below(1 << 20),
        18 => 0,
        _ => BEYOND_INODE - 8192 + rng.below(60_000),
    }
}

fn write(rng: &mut Rng, model: &Model) -> CrashOp {
    let file = target(rng, model);
    let size = model.file(file).map_or(0, |id| *model.objects[&id].size.now());
    let len = match rng.below(20) {
        0..6 => 1 + rng.below(600),
        6..8 => 2000 + rng.below(2000),
        8..12 => 4096,
        12..18 => 1 + rng.below(40_000),
        18 => 4096 * (1 + rng.below(24)),
        _ => 1 + rng.below(1 << 20),
    };
    let pos = match rng.below(3) {
        0 => size.min(1 << 20),
        1 => rng.below(size.min(1 << 20) + 1) / 4096 * 4096,
        _ => position(rng),
    };
    CrashOp::Write { file, pos, len: len as u32 }
}
