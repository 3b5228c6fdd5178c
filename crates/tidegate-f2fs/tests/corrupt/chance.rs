//! Random changes, in many places at once.

use crate::cases::{Case, Random, orphaned, summed};
use crate::fuzz_body::{self, Sample, clean};
use crate::runner::{growth, guarded, keep_panics, report, run_all, wanted};
use tidegate_f2fs::raw::BLOCK_SIZE;

/// Up to 24 random changes of up to 16 bytes each, in `blocks`.
fn random_case(what: &str, sample: &'static Sample, blocks: &[u32], seed: u64) -> Case {
    let mut random = Random(seed);
    let mut patches = Vec::new();
    for _ in 0..=random.below(24) {
        let block = blocks[random.below(blocks.len())] as u64 * BLOCK_SIZE as u64;
        let at = random.below(BLOCK_SIZE);
        let len = (1 + random.below(16)).min(BLOCK_SIZE - at);
        let byte = [0, 0xff, 1][random.below(3)];
        let bytes = if random.below(2) == 0 { vec![byte; len] } else { random.bytes(len) };
        patches.push((block + at as u64, bytes));
    }
    Case { name: format!("{what} seed {seed}"), sample, patches, fix: true }
}

/// The number of volumes that a test damages: `usual`, or `TIDEGATE_DAMAGED`.
fn volumes(usual: usize) -> std::ops::Range<usize> {
    let told = std::env::var("TIDEGATE_DAMAGED").ok();
    0..told.map_or(usual, |n| n.parse().expect("TIDEGATE_DAMAGED is a number"))
}

#[test]
fn random_metadata() {
    let mut cases = Vec::new();
    for seed in volumes(120) {
        let (what, s) = [("metadata", clean()), ("orphaned metadata", orphaned())][seed % 2];
        let blocks = s.used(s.sb.cp_blkaddr..s.sb.main_blkaddr);
        cases.push(random_case(&format!("random {what}"), s, &blocks, seed as u64));
    }
    run_all(cases);
}

#[test]
fn random_nodes() {
    let mut cases = Vec::new();
    let samples = [("nodes", clean()), ("orphaned nodes", orphaned()), ("summed nodes", summed())];
    for seed in volumes(150) {
        let (what, s) = samples[seed % 3];
        let blocks: Vec<u32> = s.nodes.values().copied().collect();
        cases.push(random_case(&format!("random {what}"), s, &blocks, seed as u64));
    }
    run_all(cases);
}

/// Inputs in the form of the fuzz target's.
#[test]
fn fuzz_inputs() {
    keep_panics();
    growth();
    let mut failures = Vec::new();
    for seed in (0..100u64).filter(|s| wanted(&format!("fuzz input seed {s}"))) {
        let mut random = Random(seed);
        let len = random.below(400);
        let input = random.bytes(len);
        failures.extend(guarded(&format!("fuzz input seed {seed}"), move || fuzz_body::run(&input)).err());
    }
    report(&failures);
}
