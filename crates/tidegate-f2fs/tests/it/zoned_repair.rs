//! Damaged volumes on zones are repaired without a write that a zone refuses.

use crate::common::volume::mount_with;
use crate::common::zoned::{Bed, MIB, ROOT, content, file};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_block::{Device, QueueLimits, RequestQueue, ZoneSpec, ZoneState};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::repair::{Outcome, RepairOptions, repair};
use tidegate_f2fs::{F2fsOptions, open};
use tidegate_rt::rng::Rng;
use tidegate_vfs::*;

const BLOCK: u64 = 4096;
/// Damaged volumes for each kind of zones.
const CASES: u64 = 24;

/// Zones of 4 MiB behind 20 MiB for the metadata: the whole main area is written in order.
fn spec(capacity: u64, most: usize) -> ZoneSpec {
    ZoneSpec { size: 4 * MIB, capacity, conventional: 5, max_open: most, max_active: most }
}

fn name(n: u64) -> String {
    format!("/dir{}/file-{n}", n % 7)
}

/// Directories and files, and segments in all states.
fn filled(spec: ZoneSpec) -> Bed {
    let bed = Bed::new(spec, 160);
    let (_, v) = bed.mount("");
    for n in 0..7 {
        v.mkdir(ROOT, &v.root().unwrap(), format!("dir{n}").as_bytes(), 0o755).unwrap();
    }
    for n in 0..200u64 {
        file(&v, &name(n)).write_at(0, &content(n, 20_000)).unwrap();
        if n % 40 == 0 {
            v.sync().unwrap();
        }
    }
    v.unmount().unwrap();
    assert_eq!(bed.device.refused(), 0);
    bed
}

/// The files that can be read.
fn contents(bed: &Bed) -> BTreeMap<u64, Vec<u8>> {
    let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
    let options = F2fsOptions { read_only: true, ..Default::default() };
    let (_, v) = mount_with(bed.device.clone(), limits, options, mount).unwrap();
    let mut all = BTreeMap::new();
    for n in 0..200 {
        let mut bytes = vec![0; 20_000];
        if let Ok(f) = v.open_path(ROOT, name(n).as_bytes(), OpenFlags::READ, 0)
            && f.read_at(0, &mut bytes).is_ok()
        {
            all.insert(n, bytes);
        }
    }
    all
}

/// Blocks that are not all zero: of the tables, of the checkpoints, of the main area.
fn blocks(bed: &Bed) -> [Vec<u64>; 2] {
    let queue = RequestQueue::new(bed.device.clone(), QueueLimits::default());
    let sb = open::load_superblock(&queue).unwrap();
    let main = u64::from(sb.main_blkaddr);
    let mut buf = vec![0; BLOCK as usize];
    let mut holds = |n: u64| {
        bed.memory.read_at(n * BLOCK, &mut buf);
        buf.iter().any(|b| *b != 0)
    };
    let tables = (u64::from(sb.sit_blkaddr)..main).filter(|n| holds(*n)).collect();
    [tables, (main..bed.memory.size() / BLOCK).filter(|n| holds(*n)).collect()]
}

/// Damages some bytes of some blocks.
fn damage(bed: &Bed, blocks: &[u64], rng: &mut Rng) {
    for _ in 0..1 << rng.below(5) {
        let block = blocks[rng.below(blocks.len() as u64) as usize];
        let at = rng.below(BLOCK - 8);
        let bytes: Vec<u8> = (0..1 + rng.below(8)).map(|_| rng.below(256) as u8).collect();
        bed.memory.write_at(block * BLOCK + at, &bytes);
    }
}

/// Damages the last nodes of the main area, which a random byte seldom hits.
fn damage_nodes(bed: &Bed, blocks: &[u64], rng: &mut Rng) {
    let mut nodes = 0;
    while nodes < 3 {
        let block = blocks[rng.below(blocks.len() as u64) as usize];
        let mut footer = [0; 24];
        bed.memory.read_at(block * BLOCK + 4072, &mut footer);
        let nid = u32::from_le_bytes(footer[..4].try_into().unwrap());
        let ino = u32::from_le_bytes(footer[4..8].try_into().unwrap());
        if !(4..4000).contains(&nid) || ino != nid {
            continue;
        }
        nodes += 1;
        // The offset of i_links, i_size or i_blocks of an inode, or of the node's own number.
        let at = [12, 16, 24, 4072][rng.below(4) as usize];
        bed.memory.write_at(block * BLOCK + at, &[rng.below(256) as u8]);
    }
}

fn pointers(bed: &Bed) -> Vec<u64> {
    bed.device.report_zones().unwrap().iter().map(|z| z.pointer).collect()
}

/// Repairs a volume; returns whether it is sound now, and whether anything was written to zones.
fn mend(bed: &Bed, what: &str) -> (bool, bool) {
    let before = pointers(bed);
    let queue = Arc::new(RequestQueue::new(bed.device.clone(), QueueLimits::default()));
    let mut told = Vec::new();
    let report = repair(&queue, RepairOptions::default(), &mut |c| told.push(c.to_string()));
    assert_eq!(bed.device.refused(), 0, "{what}: {told:?}");
    let Ok(report) = report else { return (false, false) };
    if report.outcome == Outcome::Left {
        return (false, false);
    }
    let checked = check(&queue, CheckOptions::default()).unwrap();
    assert!(checked.is_clean(), "{what}: {:?}\n{told:#?}", checked.problems);
    drop(queue);
    let wrote = pointers(bed) != before;
    // The engine goes on where the repair left the zones, and finds no log that it must move.
    let (_, v) = bed.mount("");
    assert_eq!(v.fs().read_only(), None, "{what}");
    file(&v, "/after").write_at(0, &content(1, 3 << 20)).unwrap();
    v.sync().unwrap();
    v.unmount().unwrap();
    assert_eq!(bed.device.refused(), 0, "{what}");
    (true, wrote)
}

fn mend_damaged(spec: ZoneSpec) {
    let whole = filled(spec);
    let (before, [tables, main]) = (contents(&whole), blocks(&whole));
    assert_eq!(before.len(), 200);
    let (mut sound, mut written) = (0, 0);
    for seed in 0..CASES {
        let (bed, mut rng) = (whole.copy(), Rng::new(seed + 1));
        match seed % 3 {
            0 => damage(&bed, &tables, &mut rng),
            1 => damage(&bed, &main, &mut rng),
            _ => damage_nodes(&bed, &main, &mut rng),
        }
        let what = format!("seed {seed}, {spec:?}");
        let (is_sound, wrote) = mend(&bed, &what);
        sound += u64::from(is_sound);
        written += u64::from(wrote);
        if is_sound && spec.capacity == spec.size && seed.is_multiple_of(6) {
            bed.fsck();
        }
        // Damage to one or two nodes destroys few files.
        let kept = if is_sound { contents(&bed) } else { before.clone() };
        let same = kept.iter().filter(|(n, bytes)| before.get(n) == Some(bytes)).count();
        assert!(same >= 120, "{what}: {same} of 200 files are as they were");
    }
    assert!(sound >= CASES * 3 / 4, "{sound} of {CASES} were mended");
    assert!(written >= CASES / 6, "{written} repairs wrote to zones");
}

#[test]
fn damaged_volumes_are_mended_at_write_pointers() {
    mend_damaged(spec(4 * MIB, 9));
}

#[test]
fn damaged_volumes_on_zones_with_less_capacity_are_mended() {
    mend_damaged(spec(3 * MIB + 512 * 1024, 9));
    // Some segments have no writable block.
    mend_damaged(spec(2 * MIB, 9));
}

/// Only as many zones may be active as a volume needs: the zones that the logs have left are finished to make
/// room for others.
#[test]
fn no_more_zones_are_begun_by_a_repair_than_the_device_takes() {
    mend_damaged(spec(4 * MIB, 7));
}

/// A log whose zone was written to behind it goes elsewhere; the zone's blocks are unchanged.
#[test]
fn a_log_that_is_not_at_its_write_pointer_moves() {
    let spec = spec(4 * MIB, 9);
    let whole = filled(spec);
    let bed = whole.copy();
    let [_, main] = blocks(&bed);
    let mut rng = Rng::new(3);
    damage_nodes(&bed, &main, &mut rng);
    // Each zone that a log is in has one block more.
    for z in bed.device.report_zones().unwrap().iter().filter(|z| z.state.is_active()) {
        let queue = RequestQueue::new(bed.device.clone(), QueueLimits::default());
        let page = Arc::new(tidegate_block::PageBuf::from_slice(&[7; 4096]));
        let segment = tidegate_block::Segment { buf: page, offset: 0, len: 4096 };
        let at = tidegate_block::Sector::from_bytes(z.pointer);
        queue.submit_wait(tidegate_block::Bio::write(at, vec![segment], Default::default())).unwrap();
    }
    let (sound, wrote) = mend(&bed, "logs behind");
    assert!(sound && wrote);
    bed.fsck();
    assert!(contents(&bed).len() >= 120);
}

/// All but a few of the empty zones are dead: a repair uses those few, or none.
#[test]
fn a_repair_leaves_dead_zones_alone() {
    let whole = filled(spec(4 * MIB, 9));
    let [_, main] = blocks(&whole);
    let mut ends = BTreeMap::new();
    for seed in 0..9 {
        let (bed, mut rng) = (whole.copy(), Rng::new(seed + 1));
        damage_nodes(&bed, &main, &mut rng);
        let all = bed.device.report_zones().unwrap();
        let empty = (0..all.len()).filter(|n| all[*n].state == ZoneState::Empty);
        empty.skip(seed as usize % 3).for_each(|n| bed.device.give_up(n, ZoneState::ReadOnly));
        // The logs have no room where they are.
        let active = (0..all.len()).filter(|n| all[*n].state.is_active());
        active.for_each(|n| bed.device.give_up(n, ZoneState::ReadOnly));
        let queue = Arc::new(RequestQueue::new(bed.device.clone(), QueueLimits::default()));
        let report = repair(&queue, RepairOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(bed.device.refused(), 0, "seed {seed}");
        let is_clean = check(&queue, CheckOptions::default()).unwrap().is_clean();
        assert_eq!(is_clean, report.outcome != Outcome::Left, "seed {seed}: {:?}", report.notes);
        *ends.entry(is_clean).or_insert(0) += 1;
    }
    assert_eq!(ends.len(), 2, "{ends:?}");
}
