//! Random bytes in the metadata area: a repair ends, and a volume that it calls clean is clean.

use super::scene::{Base, Scene};
use crate::offline::check::tests::volume::{ALL_FEATURES, Volume};
use crate::offline::repair::{Outcome, RepairOptions};

/// Damaged volumes.
const CASES: u64 = 100;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// Blocks of `range` that are not all zero.
fn used(v: &Volume, range: std::ops::Range<usize>) -> Vec<usize> {
    range.filter(|n| v.bytes[n * 4096..][..4096].iter().any(|b| *b != 0)).collect()
}

fn edits(blocks: &[usize], seed: u64) -> Vec<(usize, Vec<u8>)> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = 1 << random.below(7);
    let change = |_| {
        let block = blocks[random.below(blocks.len())] * 4096;
        let (len, whole) = (1 + random.below(8), random.below(40) == 0);
        let (at, len) = if whole { (block, 4096) } else { (block + random.below(4088), len) };
        let fill = random.below(3);
        (at, (0..len).map(|_| if fill == 0 { 0xff } else { random.below(256) as u8 }).collect())
    };
    (0..count).map(change).collect()
}

/// `TIDEGATE_SEED=n` runs one of the cases by itself, `TIDEGATE_CASES=n` that many.
fn seeds(first: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let count = number("TIDEGATE_CASES").unwrap_or(CASES);
    number("TIDEGATE_SEED").map_or((first..first + count).collect(), |n| vec![n])
}

/// One case in this many is also given to the stock checker, which is slow; every case when cases are chosen
/// by the environment.
fn judged_each() -> u64 {
    let chosen = ["TIDEGATE_SEED", "TIDEGATE_CASES"].iter().any(|n| std::env::var_os(n).is_some());
    if chosen { 1 } else { 4 }
}

fn try_seeds(v: &Volume, blocks: &[usize], first: u64, judged: bool) {
    let base = Base::of(v);
    let (mut clean, mut left, mut refused) = (0, 0, 0);
    for seed in seeds(first) {
        println!("seed {seed}");
        let mut scene = Scene::of(&base, &edits(blocks, seed));
        match scene.repair(RepairOptions::default()) {
            Ok(r) if r.outcome != Outcome::Left => {
                clean += 1;
                assert!(r.check.is_clean(), "seed {seed}");
                if judged && seed.is_multiple_of(judged_each()) {
                    let fsck = scene.judge();
                    fsck.unwrap_or_else(|e| panic!("seed {seed}: fsck.f2fs: {e}\n{}", scene.told.join("\n")));
                }
            }
            Ok(r) => {
                println!("seed {seed}: left: {:?} {:?}", r.notes, r.check.problems);
                left += 1;
            }
            Err(e) => {
                println!("seed {seed}: {e}");
                refused += 1;
            }
        }
    }
    println!("{clean} clean, {left} left, {refused} refused");
}

#[test]
fn random_bytes_in_the_metadata_area() {
    let Some(v) = Volume::build("") else { return };
    // The superblock and the pack's head and tail are left out: their checksums would stop every case.
    let tail = (v.cp.start + v.cp.raw.cp_pack_total_block_count.get() - 1) as usize;
    let mut blocks = used(&v, v.sb.cp_blkaddr as usize + 1..v.sb.main_blkaddr as usize);
    blocks.retain(|n| *n != v.cp.start as usize && *n != tail);
    try_seeds(&v, &blocks, 0, true);
}

#[test]
fn random_bytes_in_nodes_and_directories() {
    for (first, features) in [(1000, ""), (2000, ALL_FEATURES)] {
        let Some(v) = Volume::build(features) else { return };
        let end = v.bytes.len() / 4096;
        // File content is one byte repeated; the repair does not look at it anyway.
        let dull = |n: &usize| v.bytes[n * 4096 + 1..][..4095].iter().any(|b| *b != v.bytes[n * 4096]);
        let main: Vec<usize> = used(&v, v.sb.main_blkaddr as usize..end).into_iter().filter(dull).collect();
        // The stock checker has rules about fields of inodes that the check here does not have.
        try_seeds(&v, &main, first, false);
    }
}
