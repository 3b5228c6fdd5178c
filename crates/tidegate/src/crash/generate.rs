//! Runs as chance makes them: operations that can be done, on few files, with many syncs.

use super::model::Model;
use super::ops::{CrashOp, PATHS, Place, SLOTS, Step, Target};
use super::rng::Rng;

/// `count` operations. In `bulk`, many are large, so that segments fill, empty and are used again.
pub fn generate(rng: &mut Rng, count: usize, bulk: bool) -> Vec<Step> {
    let mut model = Model::default();
    let mut steps: Vec<Step> = Vec::new();
    while steps.len() < count {
        // Most ideas cannot be done to a small tree; some always can.
        let op = std::iter::repeat_with(|| match bulk && !rng.one_in(8) {
            true => large(rng),
            false => idea(rng, &model),
        });
        let op = op.take(10_000).find(|op| model.can(op));
        let Some(op) = op else { break };
        let step = Step { serial: steps.len() as u32 + 1, op };
        model.apply(&step);
        steps.push(step);
    }
    steps
}

fn idea(rng: &mut Rng, model: &Model) -> CrashOp {
    use CrashOp::*;
    let any = |rng: &mut Rng| Place(rng.below(PATHS.len() as u64) as u8);
    let new = |rng: &mut Rng| {
        Place(Place::FIRST_FILE + rng.below(PATHS.len() as u64 - Place::FIRST_FILE as u64) as u8)
    };
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
        87..90 => FsyncDir { at: Place(rng.below(Place::FIRST_FILE as u64) as u8) },
        90..92 => Sync,
        92..94 => Hold { at: new(rng), slot: rng.below(SLOTS as u64) as u8 },
        94..95 => Release { slot: rng.below(SLOTS as u64) as u8 },
        _ => Writeback { file: target(rng, model) },
    }
}

/// Files that grow large, one for each log. All of them fit the volume.
const LARGE: [Place; 3] = [Place(4), Place(7), Place(11)];

/// Most of them rewrite files without a sync, so that logs come round to what they freed.
fn large(rng: &mut Rng) -> CrashOp {
    use CrashOp::*;
    let at = *rng.pick(&LARGE);
    let file = Target::At(at);
    match rng.below(40) {
        0..5 => Create { at },
        5..24 => {
            let pos = *rng.pick(&[0, 0, 256, rng.clone().below(256)]) * 4096;
            // A write up to 1 MiB changes the size at once.
            Write { file, pos, len: (1 << 19) + rng.below(1 << 19) as u32 }
        }
        24..36 => Writeback { file },
        36 => Truncate { file, size: rng.below(3) << 16 },
        37 => Unlink { at },
        38 => Sync,
        _ => Fdatasync { file },
    }
}

fn target(rng: &mut Rng, model: &Model) -> Target {
    if rng.one_in(6) {
        return Target::Held(rng.below(SLOTS as u64) as u8);
    }
    let at = |rng: &mut Rng| Target::At(Place(rng.below(PATHS.len() as u64) as u8));
    let tries: Vec<Target> = (0..8).map(|_| at(rng)).collect();
    tries.iter().copied().find(|t| model.file(*t).is_some()).unwrap_or(tries[0])
}

/// The first page whose address an inode does not hold itself, in volumes with all features.
const BEYOND_INODE: u64 = 914 * 4096;

/// Places where a file's layout changes, and others.
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
