//! Random bytes: the check never panics and always ends.

use super::volume::{ALL_FEATURES, Volume};
use crate::offline::check::CheckOptions;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    /// `count` small changes within `blocks`, each of a few bytes: random, all ones, or copied from another
    /// block.
    fn edits(&mut self, v: &Volume, blocks: &[usize], count: usize) -> Vec<(usize, Vec<u8>)> {
        let change = |_| {
            let at = blocks[self.below(blocks.len())] * 4096 + self.below(4088);
            let len = 1 + self.below(8);
            let bytes = match self.below(4) {
                0 => vec![0xff; len],
                1 => {
                    let from = blocks[self.below(blocks.len())] * 4096 + self.below(4088);
                    v.bytes[from..from + len].to_vec()
                }
                _ => (0..len).map(|_| self.below(256) as u8).collect(),
            };
            (at, bytes)
        };
        (0..count).map(change).collect()
    }
}

/// Blocks of `range` that are not all zero.
fn used(v: &Volume, range: std::ops::Range<usize>) -> Vec<usize> {
    range.filter(|n| v.bytes[n * 4096..][..4096].iter().any(|b| *b != 0)).collect()
}

fn try_seeds(v: &Volume, blocks: &[usize], seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 1 << random.below(9);
        let edits = random.edits(v, blocks, count);
        // An error is a valid answer, too.
        if let Ok(report) = v.check_with(&edits, CheckOptions { max_problems: 100, progress: None }) {
            assert!(report.problems.len() <= 100);
            assert!(report.blocks <= (v.bytes.len() / 4096) as u64);
        }
    }
}

#[test]
fn random_bytes_in_the_metadata_area() {
    let Some(v) = Volume::build("") else { return };
    try_seeds(&v, &used(&v, 0..v.sb.main_blkaddr as usize), 0..200);
    // The superblock and the checkpoints' heads are left out: their checksums would stop most cases.
    try_seeds(&v, &used(&v, v.sb.cp_blkaddr as usize + 1..v.sb.main_blkaddr as usize), 200..400);
}

#[test]
fn random_bytes_in_the_main_area() {
    for features in ["", ALL_FEATURES] {
        let Some(v) = Volume::build(features) else { return };
        let end = v.bytes.len() / 4096;
        // File content is one byte repeated; the check does not read it anyway.
        let dull = |n: &usize| v.bytes[n * 4096 + 1..][..4095].iter().any(|b| *b != v.bytes[n * 4096]);
        let blocks: Vec<usize> = used(&v, v.sb.main_blkaddr as usize..end).into_iter().filter(dull).collect();
        try_seeds(&v, &blocks, 0..100);
    }
}

#[test]
fn whole_blocks_of_garbage() {
    let Some(v) = Volume::build("") else { return };
    let blocks = used(&v, v.sb.sit_blkaddr as usize..v.sb.main_blkaddr as usize);
    for seed in 1..40 {
        let mut random = Random(seed * 77 + 1);
        let garbage = |random: &mut Random| (0..4096).map(|_| random.below(256) as u8).collect();
        let edits: Vec<_> =
            (0..4).map(|_| (blocks[random.below(blocks.len())] * 4096, garbage(&mut random))).collect();
        // The damage may hit only unused copies, so the check need not find anything.
        let _ = v.check(&edits);
    }
}
