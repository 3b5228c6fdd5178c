//! Damage of each kind of block, one place at a time and at random: a volume may be refused, but nothing may
//! panic, hang or use unbounded memory.
//!
//! A failure names its cases; `TIDEGATE_CASE=text` runs only those whose names contain the text.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../common/fuzz_body.rs"]
mod fuzz_body;

mod cases;
mod chance;
mod contents;
mod devices;
mod metadata;
mod nodes;
mod runner;

use cases::orphaned;
use fuzz_body::{clean, exercise};
use std::sync::Arc;
use tidegate_f2fs::raw::CpFlags;
use tidegate_vfs::{Cred, ErrorKind};

/// The undamaged volume is seen whole, so the other tests really test damage.
#[test]
fn undamaged_volumes_are_seen_whole() {
    for (sample, orphans) in [(clean(), 0), (orphaned(), 1)] {
        let seen = exercise(sample.device());
        assert!(seen.mounted && seen.writable, "{seen:?}");
        assert_eq!(seen.errors.iter().filter(|k| **k != ErrorKind::NotFound).count(), 0, "{seen:?}");
        assert!(seen.entries > 200 && seen.attrs == 40 && seen.bytes > 100_000, "{seen:?}");
        let present = sample.cp.flags.contains(CpFlags::ORPHAN_PRESENT);
        assert_eq!(present, orphans == 1);
        assert!(sample.nodes.len() > 20);
    }
}

/// A volume's memory is freed when nothing can reach the volume any more.
#[test]
fn an_unmounted_volume_leaves_no_memory() {
    let v = fuzz_body::mount(clean().device()).unwrap();
    let top = v.root().unwrap();
    v.create(&Cred::ROOT, &top, b"new", 0o600).unwrap();
    drop(top);
    let (bdi, fs) = (Arc::downgrade(v.bdi()), Arc::downgrade(v.fs()));
    v.unmount().unwrap();
    drop(v);
    assert_eq!((bdi.strong_count(), fs.strong_count()), (0, 0), "something holds the volume");
}
