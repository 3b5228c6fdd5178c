//! Directories of many names: the index in memory agrees with the volume.

use crate::util::{fsck, make_image, mount};
use std::collections::BTreeMap;
use tidegate_rt::hash::HashSet;
use tidegate_testing::oracle;
use tidegate_vfs::*;

/// A generator of numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

/// Names of three lengths, so that entries take one slot, a few, and many.
fn name(i: u64) -> String {
    match i % 3 {
        0 => format!("n{i}"),
        1 => format!("a name of some length, {i}"),
        _ => format!("{i}-{}", "x".repeat(100)),
    }
}

#[test]
fn names_come_go_and_move_as_in_a_map() {
    if oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("TIDEGATE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 256 << 20, "");
    let root = &Cred::ROOT;
    let mut numbers = Numbers(seed);
    let mut model: BTreeMap<String, Ino> = BTreeMap::new();
    for round in 0..3 {
        let v = mount(&path);
        let top = v.root().unwrap();
        let d = match round {
            0 => v.mkdir(root, &top, b"dir", 0o755).unwrap(),
            _ => v.resolve(root, b"/dir", true).unwrap(),
        };
        for _ in 0..12_000 {
            let (a, b) = (name(numbers.next(9000)), name(numbers.next(9000)));
            match numbers.next(8) {
                0..=4 => {
                    let made = v.create(root, &d, a.as_bytes(), 0o644);
                    assert_eq!(made.is_err(), model.contains_key(&a), "{a}");
                    if let Ok(made) = made {
                        model.insert(a, made.ino);
                    }
                }
                5 => {
                    let gone = v.unlink(root, &d, a.as_bytes());
                    assert_eq!(gone.is_ok(), model.remove(&a).is_some(), "{a}");
                }
                6 if a != b => {
                    let moved = v.rename(root, (&d, a.as_bytes()), (&d, b.as_bytes()), RenameFlags::empty());
                    assert_eq!(moved.is_ok(), model.contains_key(&a), "{a} to {b}");
                    if let Some(ino) = model.remove(&a) {
                        model.insert(b, ino);
                    }
                }
                _ => {
                    let found = v.resolve(root, format!("/dir/{a}").as_bytes(), false);
                    assert_eq!(found.ok().map(|i| i.ino), model.get(&a).copied(), "{a}");
                }
            }
        }
        let listed: HashSet<String> =
            v.entries(&d).unwrap().into_iter().map(|e| String::from_utf8(e.name).unwrap()).collect();
        assert_eq!(listed.len(), model.len());
        assert!(model.keys().all(|n| listed.contains(n)));
        v.unmount().unwrap();
        drop(v);
        fsck(&path);
    }
}

#[test]
fn levels_are_filled_before_new_ones_begin() {
    if oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 512 << 20, "");
    let root = &Cred::ROOT;
    let v = mount(&path);
    let d = v.mkdir(root, &v.root().unwrap(), b"dir", 0o755).unwrap();
    let names = 30_000u64;
    for i in 0..names {
        v.create(root, &d, format!("f{i}").as_bytes(), 0o644).unwrap();
    }
    // Each name takes one slot; a block has 214.
    let blocks = d.attr().blocks / 8;
    assert!(blocks < 2 * names / 214, "{blocks} blocks for {names} names");
    for i in 0..names {
        v.unlink(root, &d, format!("f{i}").as_bytes()).unwrap();
    }
    for i in 0..names {
        v.create(root, &d, format!("g{i}").as_bytes(), 0o644).unwrap();
    }
    let again = d.attr().blocks / 8;
    assert!(again < 2 * names / 214, "{again} blocks once names went and came");
    v.unmount().unwrap();
    drop(v);
    fsck(&path);
}
