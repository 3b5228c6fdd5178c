//! Listings that continue while names come and go, and their order.

use crate::changed::open_to_write;
use crate::rig::{Mounted, mke2fs, must, must_be_clean, scratch, skip};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_rt::rng::Rng;
use tidegate_vfs::{Cred, FileType, Vfs};

/// Names from position `pos` on, at most `most`, and the position to go on from.
fn some(v: &Arc<Vfs>, pos: u64, most: usize) -> (Vec<String>, u64) {
    let dir = v.iget(v.fs().root()).unwrap();
    let (mut names, mut next) = (Vec::new(), pos);
    v.readdir(&dir, pos, &mut |e| {
        if names.len() == most {
            return false;
        }
        names.push(String::from_utf8(e.name).unwrap());
        next = e.next;
        true
    })
    .unwrap();
    (names, next)
}

fn make_hashed(image: &Path, hash: &str) {
    let _ = std::fs::remove_file(image);
    mke2fs(image, &["-t", "ext4", "-b", "1024"], "32M");
    must("tune2fs", &["-E", &format!("hash_alg={hash}"), image.to_str().unwrap()]);
}

/// A name that is there all the time is listed once, whatever happens to others: the directory's only block
/// becomes a tree, its blocks are split, names are removed.
#[test]
fn a_name_is_listed_once_while_the_directory_grows() {
    if skip() {
        return;
    }
    let dir = scratch();
    let seed = crate::rig::seed();
    let mut rng = Rng::new(seed);
    for (hash, names) in [("half_md4", 1200), ("tea", 1200), ("legacy", 1200), ("half_md4", 20)] {
        let image = dir.path().join("a.img");
        make_hashed(&image, hash);
        let v = open_to_write(&image);
        let root = v.iget(v.fs().root()).unwrap();
        let make = |name: &str| {
            let new = v.new_inode(&Cred::ROOT, FileType::Regular, 0o644);
            v.make(&Cred::ROOT, &root, name.as_bytes(), &new).unwrap();
        };
        let old: Vec<String> = (0..names).map(|n| format!("a rather long name {n}")).collect();
        old.iter().for_each(|n| make(n));
        let (mut pos, mut seen, mut made) = (0, HashMap::new(), Vec::new());
        loop {
            let (listed, next) = some(&v, pos, 1 + rng.below(9) as usize);
            if listed.is_empty() {
                break;
            }
            for name in listed {
                *seen.entry(name).or_insert(0) += 1;
            }
            pos = next;
            let new = format!("new {} {}", "x".repeat(rng.below(60) as usize), made.len());
            if made.len() < 3 * names {
                make(&new);
                made.push(new);
            }
            if rng.below(3) == 0 {
                let gone = &made[rng.below(made.len() as u64) as usize];
                let _ = v.unlink(&Cred::ROOT, &root, gone.as_bytes());
            }
        }
        for name in old.iter().map(String::as_str).chain([".", "..", "lost+found"]) {
            assert_eq!(seen.get(name), Some(&1), "{hash} {name}, seed {seed}");
        }
        v.unmount().unwrap();
        must_be_clean(&image);
    }
}

/// The order is Linux's.
#[test]
fn names_are_listed_in_the_order_of_linux() {
    if skip() {
        return;
    }
    let dir = scratch();
    for (hash, names) in [("half_md4", 3000), ("tea", 3000), ("half_md4", 7)] {
        let image = dir.path().join("a.img");
        make_hashed(&image, hash);
        let v = open_to_write(&image);
        let root = v.iget(v.fs().root()).unwrap();
        for n in 0..names {
            let new = v.new_inode(&Cred::ROOT, FileType::Regular, 0o644);
            v.make(&Cred::ROOT, &root, format!("name {n}").as_bytes(), &new).unwrap();
        }
        let (ours, _) = some(&v, 0, usize::MAX);
        v.unmount().unwrap();
        let mounted = Mounted::new(&image, "ro").unwrap();
        let linux = std::fs::read_dir(mounted.path()).unwrap();
        let linux: Vec<String> = linux.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert!(
            ours[2..] == linux[..],
            "{hash}: {:?} is not {:?}",
            &ours[2..12.min(ours.len())],
            &linux[..10.min(linux.len())]
        );
    }
}
