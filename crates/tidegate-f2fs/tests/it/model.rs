//! Random sequences of operations on a volume and on a plain model of POSIX: every answer, and at each
//! remount the whole tree, must agree, and the reference checker must find nothing.
//!
//! `PROPTEST_CASES` sets the number of sequences, and `TIDEGATE_SEED` selects them; the seed is printed.
//! Sequences that failed once are kept beside this file and tried first from then on.

use crate::common::rig;
use crate::common::volume;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rig::Rig;
use rig::ops::{History, filling, history};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use tidegate_f2fs::mkfs::SUPPORTED_FEATURES;
use tidegate_f2fs::raw::Features;
use tidegate_rt::Timespec;
use tidegate_rt::sim::{self, Config};
use tidegate_vfs::{Cred, ErrorKind, MemoryLimits, OpenFlags};

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/model.proptest-regressions");

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases: from_env("PROPTEST_CASES").map_or(cases, |n| n as u32),
        max_shrink_iters: 4000,
        max_shrink_time: 60_000,
        verbose: 0,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        ..ProptestConfig::default()
    };
    let seed = from_env("TIDEGATE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("TIDEGATE_SEED={seed} tries the same rows");
    let bytes = [seed.to_le_bytes(); 4].concat();
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn missing() -> bool {
    tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") || tidegate_testing::oracle::skip_or_fail("fsck.f2fs")
}

/// Tries sequences of operations, each on a volume that `fresh` makes; returns the number of failures for
/// want of space, and the number of successes.
fn check(
    cases: u32,
    rows: impl Strategy<Value = History>,
    fresh: impl Fn() -> Result<Rig, String>,
) -> (u32, u32) {
    let (no_space, done) = (Cell::new(0), Cell::new(0));
    let tried = runner(cases).run(&rows, |ops| {
        let mut rig = fresh().map_err(TestCaseError::fail)?;
        rig.run(&ops.0).map_err(TestCaseError::fail)?;
        no_space.set(no_space.get() + rig.no_space);
        done.set(done.get() + rig.done);
        Ok(())
    });
    if let Err(e) = tried {
        panic!("{e}");
    }
    (no_space.get(), done.get())
}

fn check_stock(features: &'static str, cases: u32, limits: MemoryLimits) {
    if missing() {
        return;
    }
    let crtime = features.contains("inode_crtime");
    check(cases, history(1..140), || Rig::new(volume::template(100, features).device(), crtime, limits));
}

#[test]
fn default_features() {
    check_stock("", 40, MemoryLimits::default());
}

#[test]
fn every_feature() {
    check_stock(volume::FEATURES, 40, MemoryLimits::default());
}

#[test]
fn little_memory() {
    check_stock(volume::FEATURES, 24, rig::tight());
}

/// Other threads sync, checkpoint, clean and change switches, all in the simulated world. A sequence includes
/// the seed of the threads' order, so that a failure can be replayed.
#[test]
fn in_company() {
    if missing() {
        return;
    }
    let image = volume::template(100, volume::FEATURES);
    let tried = runner(24).run(&(history(1..100), any::<u64>()), |(ops, seed)| {
        let config = Config { seed, cpus: 3, jitter: 64, ..Config::default() };
        let image = image.clone();
        let done =
            sim::run_with(&config, move || Rig::in_company(image.device(), true, rig::tight())?.run(&ops.0));
        done.map_err(|deadlock| TestCaseError::fail(deadlock.to_string()))?.value.map_err(TestCaseError::fail)
    });
    if let Err(e) = tried {
        panic!("{e}");
    }
}

/// Sequences on the smallest volume: an operation that fails for want of space fails as a whole, or is a
/// write that did its first part. Accepted content is there, and can always be written.
fn check_filling(features: Features, cases: u32, limits: MemoryLimits) {
    if missing() {
        return;
    }
    let crtime = features.contains(Features::INODE_CRTIME);
    let (no_space, done) =
        check(cases, filling(40..200), || Rig::new(volume::smallest(features), crtime, limits));
    println!("{done} operations done, {no_space} out of space");
    assert!(no_space > 0 && done > no_space, "{done} operations done, {no_space} out of space");
}

#[test]
fn little_space() {
    check_filling(Features::empty(), 16, MemoryLimits::default());
}

#[test]
fn little_space_every_feature() {
    check_filling(SUPPORTED_FEATURES, 16, MemoryLimits::default());
}

#[test]
fn little_space_and_memory() {
    check_filling(SUPPORTED_FEATURES, 16, rig::tight());
}

/// Further writes to a full volume fail with `NoSpace`, however many there are, and with nothing worse.
#[test]
fn a_full_volume_stays_writable() {
    if missing() {
        return;
    }
    let device = volume::smallest(Features::empty());
    let v = volume::mount_rw(device.clone(), rig::tight(), Timespec::default()).unwrap();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    for n in 0..40u64 {
        let f = v.open_path(&Cred::ROOT, format!("/f{}", n % 4).as_bytes(), flags, 0o644);
        let done = f.and_then(|f| {
            if n % 4 == 0 {
                f.truncate(16_000)?;
            }
            f.write_at(14_000 + n * 1000, &vec![n as u8 + 1; 2_400_000])
        });
        let error = done.err().filter(|e| e.kind() != ErrorKind::NoSpace);
        assert!(error.is_none(), "write {n}: {}", error.unwrap());
    }
    v.unmount().unwrap();
    volume::fsck(&device).unwrap();
}
