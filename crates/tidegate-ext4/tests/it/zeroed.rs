//! Ranges that read as zeros: the file keeps its blocks there, as on Linux, even where nothing is free.

use crate::changed::open_to_write;
use crate::rig::*;
use std::collections::BTreeSet;
use std::path::Path;
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const SIZE: u64 = 3 << 20;

/// The blocks of a file, as debugfs lists them, those of its extent tree included.
fn blocks(image: &Path, name: &str) -> BTreeSet<u64> {
    let listed = must("debugfs", &["-R", &format!("blocks {name}"), image.to_str().unwrap()]);
    listed.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

#[test]
fn a_zeroed_range_keeps_its_blocks_on_a_full_volume() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = scratch();
    for block in ["1024", "4096"] {
        let image = dir.path().join(format!("volume-{block}"));
        mke2fs(&image, &["-t", "ext4", "-b", block], "32M");
        let mut expected: Vec<u8> = (0..SIZE).map(|_| rng.below(255) as u8 + 1).collect();
        let open = |v: &std::sync::Arc<Vfs>, name: &str| {
            let root = v.root().unwrap();
            let inode = v.lookup(&root, name.as_bytes());
            let inode = inode.or_else(|_| v.create(ROOT, &root, name.as_bytes(), 0o644)).unwrap();
            v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap()
        };
        let v = open_to_write(&image);
        open(&v, "file").write_at(0, &expected).unwrap();
        v.unmount().unwrap();
        drop(v);
        let before = blocks(&image, "file");

        let v = open_to_write(&image);
        let (file, rest) = (open(&v, "file"), open(&v, "rest"));
        for step in [1 << 20, 1 << 16, 1 << 12, 1 << 10] {
            while rest.fallocate(FallocateFlags::empty(), rest.inode().size(), step).is_ok() {}
        }
        for n in 0..6 {
            let at = rng.below(SIZE - 1);
            let len = 1 + rng.below((SIZE - at).min(1 << 20));
            let how = [FallocateFlags::ZERO_RANGE, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE];
            file.fallocate(how[n % 2], at, len).unwrap_or_else(|e| panic!("seed {seed}: {at} {len}: {e}"));
            expected[at as usize..(at + len) as usize].fill(0);
            if n == 2 {
                file.write_at(at, b"new").unwrap();
                expected[at as usize..at as usize + 3].copy_from_slice(b"new");
            }
        }
        drop((file, rest));
        v.unmount().unwrap();
        drop(v);
        must_be_clean(&image);
        let kept = blocks(&image, "file").intersection(&before).count() as u64;
        assert!(kept >= SIZE / block.parse::<u64>().unwrap(), "seed {seed}: {kept} of {}", before.len());
        let v = open_to_write(&image);
        let mut now = vec![1; SIZE as usize];
        open(&v, "file").read_at(0, &mut now).unwrap();
        assert!(now == expected, "seed {seed}, blocks of {block}");
        v.unmount().unwrap();
    }
}
