//! Random sequences of operations on a volume and on a plain model of POSIX: every answer, and at each
//! remount the whole tree, must agree, and e2fsck and our own check must find nothing.
//!
//! `PROPTEST_CASES` sets the number of sequences, and `TIDEGATE_SEED` selects them; the seed is printed.

use crate::common::rig::ops::{History, filling, history};
use crate::common::rig::{self, Rig};
use crate::common::volume;
use crate::rig::skip;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use tidegate_block::MemoryDevice;
use tidegate_rt::sim::{self, Config};
use tidegate_vfs::MemoryLimits;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases: from_env("PROPTEST_CASES").map_or(cases, |n| n as u32),
        max_shrink_iters: 4000,
        max_shrink_time: from_env("TIDEGATE_SHRINK_MS").map_or(60_000, |n| n as u32),
        verbose: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let seed = from_env("TIDEGATE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("TIDEGATE_SEED={seed} tries the same rows");
    let bytes = [seed.to_le_bytes(); 4].concat();
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The content of a fresh volume, made once for a test.
fn bytes_of(mib: u64, args: &[&str]) -> Vec<u8> {
    let device = volume::fresh(mib, args);
    let mut bytes = vec![0; (mib << 20) as usize];
    device.read_at(0, &mut bytes);
    bytes
}

fn device(bytes: &[u8]) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(bytes))
}

/// Tries sequences of operations, each on a volume with these bytes; returns the number of failures for want
/// of space, and the number of successes.
fn check(
    cases: u32,
    rows: impl Strategy<Value = History>,
    bytes: &[u8],
    crtime: bool,
    limits: MemoryLimits,
) -> (u32, u32) {
    let (no_space, done) = (Cell::new(0), Cell::new(0));
    let tried = runner(cases).run(&rows, |ops| {
        let mut rig = Rig::new(device(bytes), crtime, limits).map_err(TestCaseError::fail)?;
        rig.run(&ops.0).map_err(TestCaseError::fail)?;
        no_space.set(no_space.get() + rig.no_space);
        done.set(done.get() + rig.done);
        Ok(())
    });
    if let Err(e) = tried {
        panic!("{e}");
    }
    let (no_space, done) = (no_space.get(), done.get());
    println!("{done} operations done, {no_space} out of space");
    (no_space, done)
}

fn check_made(args: &[&str], crtime: bool, cases: u32, limits: MemoryLimits) {
    if !skip() {
        check(cases, history(1..140), &bytes_of(64, args), crtime, limits);
    }
}

#[test]
fn blocks_of_four_kib() {
    check_made(&["-t", "ext4", "-b", "4096"], true, 16, MemoryLimits::default());
}

#[test]
fn blocks_of_one_kib() {
    check_made(&["-t", "ext4", "-b", "1024"], true, 16, rig::tight());
}

#[test]
fn blocks_of_two_kib_without_checksums() {
    let args = ["-t", "ext4", "-b", "2048", "-O", "^metadata_csum,^64bit"];
    check_made(&args, true, 8, rig::tight());
}

#[test]
fn no_journal() {
    check_made(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], true, 8, MemoryLimits::default());
}

/// Files with block maps, whose blocks of numbers are made and freed by writes, truncations and holes.
#[test]
fn block_maps() {
    check_made(&["-t", "ext3", "-b", "1024", "-J", "size=1"], true, 10, rig::tight());
    check_made(&["-t", "ext2", "-b", "4096"], true, 6, MemoryLimits::default());
}

/// Other threads sync, commit and change switches, all in the simulated world. A sequence includes the seed
/// of the threads' order, so that a failure can be replayed.
#[test]
fn in_company() {
    if skip() {
        return;
    }
    let bytes = Arc::new(bytes_of(64, &["-t", "ext4", "-b", "1024", "-J", "size=1"]));
    let tried = runner(10).run(&(history(1..100), any::<u64>()), |(ops, seed)| {
        let config = Config { seed, cpus: 3, jitter: 64, ..Config::default() };
        let bytes = bytes.clone();
        let done =
            sim::run_with(&config, move || Rig::in_company(device(&bytes), true, rig::tight())?.run(&ops.0));
        done.map_err(|deadlock| TestCaseError::fail(deadlock.to_string()))?.value.map_err(TestCaseError::fail)
    });
    if let Err(e) = tried {
        panic!("{e}");
    }
}

/// Sequences on a small volume: an operation that fails for want of space fails as a whole, or is a write
/// that did its first part. Accepted content is there, and can always be written.
fn check_filling(args: &[&str], cases: u32, limits: MemoryLimits) {
    if skip() {
        return;
    }
    let (no_space, done) = check(cases, filling(40..200), &bytes_of(8, args), true, limits);
    assert!(no_space > 0 && done > no_space, "{done} operations done, {no_space} out of space");
}

#[test]
fn little_space() {
    check_filling(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], 8, MemoryLimits::default());
}

#[test]
fn little_space_for_block_maps() {
    check_filling(&["-t", "ext3", "-b", "1024", "-m", "0", "-J", "size=1"], 8, rig::tight());
}

#[test]
fn little_space_and_memory() {
    check_filling(&["-t", "ext4", "-b", "1024", "-m", "0"], 8, rig::tight());
}
