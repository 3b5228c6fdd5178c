//! The smallest volumes on zones, full and overwritten at random: no thread sees an error, and nothing is
//! lost.

use crate::common::volume::mount_with;
use crate::common::zoned::{Bed, MIB, ROOT, RW, spec};
use std::sync::Arc;
use tidegate_block::ZoneSpec;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::rng::Rng;
use tidegate_vfs::*;

const PAGE: u64 = 4096;
const TIGHT: MemoryLimits = MemoryLimits { cache: 8 << 20, dirty: 4 << 20, background: 1 << 20, inodes: 64 };

fn open(bed: &Bed) -> (Arc<F2fs>, Arc<Vfs>) {
    let mut o = F2fsOptions::default();
    o.parse("mode=lfs").unwrap();
    mount_with(bed.device.clone(), TIGHT, o, MountOptions::default()).unwrap()
}

fn content(file: u64, page: u64, version: u64) -> Vec<u8> {
    let word = (file << 48 ^ page << 20 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(512)
}

/// Fills a volume with `files` files and overwrites their pages `times` times, with an fsync now and then.
fn fill_and_overwrite(spec: ZoneSpec, sections: u64, files: u64, times: u64, seed: u64) {
    let what = format!("{sections} sections of {} bytes, {files} files, seed {seed}", spec.capacity);
    // The metadata takes 20 MiB.
    let bed = Bed::new(spec, 20 + sections * spec.size / MIB);
    let (fs, v) = open(&bed);
    let mut rng = Rng::new(seed);
    // Names and nodes need some of the blocks.
    let each = (v.statfs().blocks_free - 8 - files / 50) / files;
    let pages = each - 1 - if each > 900 { 2 + each / 900 } else { 0 };
    let path = |n: u64| format!("/f{n}");
    let file =
        |v: &Arc<Vfs>, n: u64| v.open_path(ROOT, path(n).as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
    let mut versions = vec![vec![0; pages as usize]; files as usize];
    for n in 0..files {
        let f = file(&v, n);
        for p in 0..pages {
            f.write_at(p * PAGE, &content(n, p, 0))
                .unwrap_or_else(|e| panic!("{what}: page {p} of file {n}: {e}"));
        }
    }
    let left = v.statfs().blocks_free;
    for w in 0..times * files * pages {
        let (n, p) = (rng.below(files), rng.below(pages));
        let f = file(&v, n);
        let version = &mut versions[n as usize][p as usize];
        *version += 1;
        f.write_at(p * PAGE, &content(n, p, *version)).unwrap_or_else(|e| panic!("{what}: write {w}: {e}"));
        if rng.one_in(50) {
            f.fsync(false).unwrap_or_else(|e| panic!("{what}: fsync after write {w}, {left} free: {e}"));
        }
    }
    println!("{what}: {} checkpoints, {} cleanings", fs.stats().commits, fs.stats().own("gc_foreground"));
    v.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!((bed.device.refused(), fs.queue_stats().zone_refused), (0, 0), "{what}");
    drop((fs, v));
    if spec.capacity == spec.size {
        bed.fsck();
    }
    let (_, v) = open(&bed);
    for (n, versions) in (0..).zip(&versions) {
        let f = file(&v, n);
        for (p, version) in (0..).zip(versions) {
            let mut bytes = vec![0; PAGE as usize];
            f.read_at(p * PAGE, &mut bytes).unwrap();
            assert!(bytes == content(n, p, *version), "{what}: page {p} of file {n}");
        }
    }
    v.unmount().unwrap();
}

#[test]
fn the_smallest_volumes_on_zones_are_overwritten_when_full() {
    for (sections, seed) in [(12, 0), (12, 1), (13, 2), (20, 3)] {
        fill_and_overwrite(spec(4 * MIB), sections, 3, 1, seed);
    }
}

/// Each page has a node of its own.
#[test]
fn small_files_on_the_smallest_volumes_on_zones_are_overwritten() {
    fill_and_overwrite(spec(4 * MIB), 12, 300, 3, 5);
    fill_and_overwrite(spec(4 * MIB), 14, 1200, 2, 1);
}

#[test]
fn zones_that_hold_less_than_their_size_are_overwritten_when_full() {
    fill_and_overwrite(spec(2 * MIB), 12, 3, 3, 6);
    fill_and_overwrite(spec(3 * MIB + 512 * 1024), 12, 3, 1, 7);
}
