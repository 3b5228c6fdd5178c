//! Damage only to copies of the superblock and of descriptors.

use super::cases::{EXT4, damaged};
use super::killed::{cut, recorded};
use super::*;

/// A block of the copies in group 1 of a volume of 1 KiB blocks, 2048 in a group.
fn copy(block: usize) -> std::ops::Range<usize> {
    (2049 + block) * 1024..(2050 + block) * 1024
}

#[test]
fn copies_that_alone_are_damaged_become_good_ones() {
    for (block, place) in [(0, "copy in group 1"), (1, "a copy of descriptors")] {
        let Some((dir, whole, _)) = damaged(EXT4, "12M", &[]) else { return };
        let mut bytes = whole.clone();
        bytes[copy(block)].fill(0x5a);
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
        assert!(r.told.len() == 1 && r.told[0].contains(place), "{:?}", r.told);
        let dumped = |bytes: &[u8], dir: &Path| {
            let image = dir.join("x.img");
            std::fs::write(&image, bytes).unwrap();
            // e2fsck is told to use only the copy.
            let by = ["-o", "superblock=2049", "-o", "blocksize=1024", image.to_str().unwrap()];
            run("dumpe2fs", &by)
                .1
                .lines()
                .filter(|l| l.contains(" at "))
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let told = dumped(&r.bytes, dir.path());
        assert!(told.len() > 12 && told == dumped(&whole, dir.path()), "{told:?}");
        assert!(repair_bytes(&r.bytes).told.is_empty());
        let mut same = r.bytes;
        same[copy(block)].copy_from_slice(&whole[copy(block)]);
        assert!(same[2048..] == whole[2048..], "more than the copy was changed");
    }
}

#[test]
fn a_repair_that_is_killed_before_the_copies_writes_them_the_next_time() {
    let Some((_dir, whole, _)) = damaged(EXT4, "12M", &["sif pieces links_count 7"]) else { return };
    let mut bytes = whole;
    bytes[copy(0)].fill(0x5a);
    let (done, records) = recorded(&bytes);
    assert_eq!(done.report.unwrap().outcome, Outcome::Corrected);
    let mut rng = Rng::new(7);
    for n in (0..=records.len()).flat_map(|n| [n; 3]) {
        let r = repair_bytes(&cut(&bytes, &records, n, &mut rng));
        assert!(r.bytes == done.bytes, "killed after {n} of {}: {:?}", records.len(), r.told);
    }
}
