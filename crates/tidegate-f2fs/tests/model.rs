//! Random rows of operations on a volume and on a plain model of what POSIX says of them: every answer,
//! and at each remount the whole tree, must agree, and the reference checker must find nothing.
//!
//! `PROPTEST_CASES` sets how many rows are tried. What failed once is kept beside this file and tried
//! first from then on.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "common/posix/mod.rs"]
mod posix;
#[path = "common/rig/mod.rs"]
mod rig;
#[path = "common/rules.rs"]
mod rules;
#[path = "common/volume.rs"]
mod volume;
#[path = "common/watch.rs"]
mod watch;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use rig::Rig;
use rig::ops::{Op, history};
use tidegate_vfs::MemoryLimits;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model.proptest-regressions");

fn config(cases: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|v| v.parse().ok());
    ProptestConfig {
        cases: given.unwrap_or(cases),
        max_shrink_iters: 4000,
        max_shrink_time: 60_000,
        verbose: 0,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(KEPT))),
        ..ProptestConfig::default()
    }
}

fn try_history(mib: u64, features: &'static str, limits: MemoryLimits, ops: &[Op]) -> Result<(), String> {
    Rig::new(mib, features, limits)?.run(ops)
}

fn missing() -> bool {
    xtask::oracle::skip_or_fail("mkfs.f2fs") || xtask::oracle::skip_or_fail("fsck.f2fs")
}

fn check(mib: u64, features: &'static str, cases: u32, limits: MemoryLimits) {
    if missing() {
        return;
    }
    proptest!(config(cases), |(ops in history(1..140))| {
        let r = try_history(mib, features, limits, &ops.0);
        prop_assert!(r.is_ok(), "{}", r.unwrap_err());
    });
}

#[test]
fn default_features() {
    check(100, "", 40, MemoryLimits::default());
}

#[test]
fn every_feature() {
    check(100, volume::FEATURES, 40, MemoryLimits::default());
}

#[test]
fn little_memory() {
    check(100, volume::FEATURES, 24, rig::tight());
}
