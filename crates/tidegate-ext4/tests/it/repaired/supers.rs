//! Superblocks with one wrong field, and copies that do not belong to them.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_block::{Errno, Fault, Faulty, Op, Rule};
use tidegate_vfs::ErrorKind;

/// Offset of the superblock, and of some of its fields.
const SUPER: usize = 1024;
const FIRST_INO: usize = SUPER + 0x54;
const INODE_SIZE: usize = SUPER + 0x58;
const COMPAT: usize = SUPER + 0x5c;
const INCOMPAT: usize = SUPER + 0x60;
const RO_COMPAT: usize = SUPER + 0x64;
const UUID: usize = SUPER + 0x68;
const LABEL: usize = SUPER + 0x78;
/// A bit of `RO_COMPAT`.
const HUGE_FILE: u8 = 0x08;
const REVISION: usize = SUPER + 0x4c;
const RESERVED: usize = SUPER + 0xce;
const MAGIC: usize = SUPER + 0x38;
const BLOCKS_PER_GROUP: usize = SUPER + 0x20;
/// Offset of the free blocks of the first group, with descriptors of 32 bytes.
const FREE: usize = SUPER + 1024 + 12;
/// The copy in group 1 of a volume of 1 KiB blocks.
const COPY: usize = 8193 * 1024;

const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"];

#[test]
fn a_copy_of_another_volume_is_not_taken() {
    if skip() {
        return;
    }
    let args = &["-t", "ext4", "-b", "1024"];
    let (dir, other) = (scratch(), scratch());
    let whole = base(dir.path(), args, "24M");
    let before = contents(&whole).unwrap();
    let stale = base(other.path(), &[args, &["-m", "7"][..]].concat(), "24M");
    for (at, word) in [(LABEL, "checksum made anew"), (UUID, "")] {
        let mut bytes = whole.clone();
        // If the volume's identity is wrong, a copy is needed.
        if at == LABEL {
            bytes[COPY..COPY + 1024].copy_from_slice(&stale[COPY..COPY + 1024]);
        }
        bytes[at] ^= 1;
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
        assert!(r.told[0].contains(word), "{:?}", r.told);
        assert_eq!(r.bytes[UUID..UUID + 16], whole[UUID..UUID + 16]);
        assert_eq!(contents(&r.bytes).unwrap().paths, before.paths);
    }
}

#[test]
fn one_wrong_bit_without_checksums_is_outvoted_by_the_copies() {
    if skip() {
        return;
    }
    let dir = scratch();
    let whole = base(dir.path(), PLAIN, "32M");
    for (at, bit) in [
        (INCOMPAT, 0x40), // extents
        (INCOMPAT, 0x02), // filetype
        (INCOMPAT, 0x80), // 64bit
        (FIRST_INO, 0x80),
        (INODE_SIZE + 1, 0x03),
        (COMPAT, 0x10),    // resize_inode
        (RO_COMPAT, 0x01), // sparse_super
        (RO_COMPAT, 0x10), // uninit_bg
        (RESERVED, 0x01),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= bit;
        let r = repair_bytes(&bytes);
        let place = at - SUPER;
        match r.report {
            Ok(report) => assert_eq!(report.outcome, Outcome::Corrected, "{place:#x}: {:?}", report.notes),
            Err(e) => panic!("{place:#x}: {e}"),
        }
        assert!(r.bytes == whole, "{place:#x}: {:?}", r.told);
    }
    // A volume without dir_index is sound: its maker may have wanted that.
    let mut bytes = whole.clone();
    bytes[COMPAT] ^= 0x20;
    let r = repair_bytes(&bytes);
    assert!(r.report.unwrap().outcome == Outcome::Clean && r.bytes == bytes);
}

/// A copy and the superblock disagree: the structures that they lead to decide.
#[test]
fn the_volume_decides_between_the_superblock_and_its_only_copy() {
    if skip() {
        return;
    }
    for size in ["4M", "12M"] {
        let dir = scratch();
        let whole = base(dir.path(), PLAIN, size);
        let before = contents(&whole).unwrap();
        for (at, bit) in [(INCOMPAT, 0x40), (INCOMPAT, 0x02), (INCOMPAT, 0x42), (FIRST_INO, 0x80)] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            if size == "4M" && at == FIRST_INO {
                // There is no copy, and no sign of one: nothing is discarded.
                let r = repair_bytes(&bytes);
                assert!(r.report.is_err() || r.report.is_ok_and(|r| r.outcome == Outcome::Left), "{bit:#x}");
                assert!(r.bytes == bytes, "{bit:#x}: it was written: {:?}", r.told);
                continue;
            }
            let r = repair_bytes(&bytes);
            assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{bit:#x}");
            assert_eq!(contents(&r.bytes).unwrap().paths, before.paths, "{:?}", r.told);
            // The copy is wrong if the volume does not fit it.
            if size == "12M" {
                let mut bytes = whole.clone();
                bytes[at + COPY - SUPER] ^= bit;
                bytes[FREE] ^= 1;
                let r = repair_bytes(&bytes);
                assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{bit:#x}");
                assert_eq!(contents(&r.bytes).unwrap().paths, before.paths, "{:?}", r.told);
                assert_eq!(r.bytes[at], whole[at]);
            }
        }
    }
}

#[test]
fn a_superblock_without_its_magic_gets_it_where_all_else_is_right() {
    if skip() {
        return;
    }
    for args in [&["-t", "ext4", "-b", "1024"][..], PLAIN, &["-t", "ext2", "-b", "1024"]] {
        let dir = scratch();
        let whole = base(dir.path(), args, "4M");
        let mut bytes = whole.clone();
        bytes[MAGIC..MAGIC + 2].fill(0);
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        assert!(tidegate_ext4::repair::has_copy(&Arc::new(RequestQueue::new(
            device,
            QueueLimits::default()
        ))));
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{args:?}");
        assert!(r.bytes == whole, "{args:?}: {:?}", r.told);
        // If another field is wrong, too, nothing is left to decide by.
        bytes[BLOCKS_PER_GROUP] ^= 1;
        let r = repair_bytes(&bytes);
        assert!(r.report.is_err() && r.bytes == bytes, "{args:?}: {:?}", r.told);
    }
    // The copies are older and lack a feature: a sound volume is not compared with them.
    let dir = scratch();
    let mut whole = base(dir.path(), PLAIN, "32M");
    whole[RO_COMPAT] ^= HUGE_FILE;
    assert!(check_bytes(&whole).unwrap().is_clean());
    let mut bytes = whole.clone();
    bytes[MAGIC..MAGIC + 2].fill(0);
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
    assert!(r.bytes[SUPER..SUPER + 1024] == whole[SUPER..SUPER + 1024], "{:?}", r.told);
}

#[test]
fn copies_of_descriptors_are_made_good_while_the_first_ones_are() {
    if skip() {
        return;
    }
    // Offset, in block 0 of the copy in group 1, of the start of group 2's inode table.
    const TABLE: usize = 2 * 32 + 8;
    let dir = scratch();
    let whole = base(dir.path(), PLAIN, "32M");
    let before = contents(&whole).unwrap();
    for meta in [false, true] {
        let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal,meta_bg,^resize_inode"];
        let whole = if meta { base(dir.path(), &args, "32M") } else { whole.clone() };
        let size = if meta { 64 } else { 32 };
        // The second group of a meta group has a copy, and a copy of the superblock as well.
        let copy = COPY + 1024;
        assert_eq!(whole[copy..copy + 12], whole[SUPER + 1024..SUPER + 1024 + 12], "no copy there");
        let at = copy + TABLE / 32 * size + TABLE % 32;
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        bytes[FREE] ^= 1;
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
        assert!(r.told.iter().any(|t| t.contains("a copy of descriptors")), "{:?}", r.told);
        // The copy can replace the first now.
        let mut bytes = r.bytes;
        bytes[SUPER + 1024..SUPER + 2048].fill(0xff);
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
        assert_eq!(contents(&r.bytes).unwrap().paths, before.paths, "{:?}", r.told);
    }
}

#[test]
fn the_second_copy_of_sparse_super2_is_in_the_last_group() {
    if skip() {
        return;
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^metadata_csum,^has_journal,^resize_inode"];
    let dir = scratch();
    // The last group is neither the first nor a power of 3, 5 or 7.
    let whole = base(dir.path(), &args, "48M");
    let before = contents(&whole).unwrap();
    let mut bytes = whole.clone();
    bytes[SUPER..SUPER + 1024].fill(0);
    bytes[COPY..COPY + 1024].fill(0);
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
    assert_eq!(contents(&r.bytes).unwrap().paths, before.paths, "{:?}", r.told);
}

#[test]
fn revision_0_has_no_features() {
    if skip() {
        return;
    }
    let dir = scratch();
    let old = base(dir.path(), &["-t", "ext2", "-r", "0", "-b", "1024"], "4M");
    for (at, bit) in [(COMPAT, 0x04), (INCOMPAT, 0x02), (INCOMPAT, 0x40), (RO_COMPAT, 0x01)] {
        let mut bytes = old.clone();
        bytes[at] |= bit;
        assert!(!check_bytes(&bytes).unwrap().is_clean(), "{at:#x}");
        let r = repair_bytes(&bytes);
        assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{at:#x}");
        assert!(r.bytes == old, "{at:#x}: {:?}", r.told);
    }
    // The revision is wrong if the volume has everything that its features are for.
    let dir = scratch();
    let whole = base(dir.path(), &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"], "4M");
    let mut bytes = whole.clone();
    bytes[REVISION] = 0;
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
    assert!(r.bytes == whole, "{:?}", r.told);
    // The revision and the fields behind it are zeros: the copies are better than a reading without features.
    let dir = scratch();
    let whole = base(dir.path(), &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"], "32M");
    let mut bytes = whole.clone();
    bytes[REVISION..REVISION + 16].fill(0);
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
    assert!(r.bytes == whole, "{:?}", r.told);
}

/// Revision 1 has fields that are empty in revision 0; Linux implies values for them.
#[test]
fn a_volume_that_gets_revision_1_gets_its_fields() {
    if skip() {
        return;
    }
    let dir = scratch();
    let whole = base(dir.path(), &["-t", "ext2", "-I", "128", "-b", "1024"], "4M");
    let mut bytes = whole.clone();
    for (at, len) in [(REVISION, 4), (FIRST_INO, 4), (INODE_SIZE, 2)] {
        bytes[at..at + len].fill(0);
    }
    let r = repair_bytes(&bytes);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected, "{:?}", r.told);
    assert!(r.bytes == whole, "{:?}", r.told);
}

/// Repairs the volume on a device, and counts the device's reads of the page at a byte.
fn repair_on(bytes: &[u8], rule: Option<Rule>, page: u64) -> (Repaired, u64) {
    let memory = Arc::new(MemoryDevice::from_bytes(bytes));
    let reads = Arc::new(AtomicU64::new(0));
    let count = reads.clone();
    let counts = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(page..page + 4096);
    let counts = counts.when(move |_| {
        count.fetch_add(1, Relaxed);
        false
    });
    let faulty = Faulty::new(memory.clone(), [Some(counts), rule].into_iter().flatten());
    let queue = Arc::new(RequestQueue::new(faulty, QueueLimits::default()));
    let mut told = Vec::new();
    let options = RepairOptions { dry_run: false, now: NOW };
    let report = repair(&queue, options, &mut |c| told.push(c.to_string()));
    let mut after = vec![0; bytes.len()];
    memory.read_at(0, &mut after);
    (Repaired { bytes: after, told, report }, reads.load(Relaxed))
}

/// The page with the first block of a file of many extents, by the first entry of its inode.
fn page_of_extents(dir: &Path, bytes: &[u8]) -> u64 {
    let image = dir.join("x.img");
    std::fs::write(&image, bytes).unwrap();
    let said = must("debugfs", &["-R", "ex /pieces", image.to_str().unwrap()]);
    // The line has level, entries, logical blocks, and the node's block.
    let node = said.lines().find(|l| l.trim_start().starts_with("0/ 1")).expect("it has a node");
    let block: u64 = node.split_whitespace().nth(7).unwrap().parse().unwrap();
    block * 1024 / 4096 * 4096
}

/// A reading of the volume that fails because a block cannot be read has not found faults: it does not make
/// the other reading right.
#[test]
fn a_block_that_cannot_be_read_decides_no_tie() {
    if skip() {
        return;
    }
    let dir = scratch();
    let whole = base(dir.path(), PLAIN, "12M");
    // The copy has no extents feature, so it never leads to a node of extents.
    let mut bytes = whole.clone();
    bytes[COPY + INCOMPAT - SUPER] ^= 0x40;
    bytes[FREE] ^= 1;
    let page = page_of_extents(dir.path(), &whole);
    let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(page..page + 4096);
    let (r, reads) = repair_on(&bytes, Some(rule), page);
    let e = r.report.map(|r| r.outcome).unwrap_err();
    assert_eq!((e.kind(), e.errno()), (ErrorKind::Io, Some(Errno::IO)), "{e}: {:?}", r.told);
    assert!(reads > 0 && r.bytes == bytes, "{:?}", r.told);
    // When the block can be read, the repair succeeds.
    let (r, _) = repair_on(&bytes, None, page);
    assert_eq!(r.report.unwrap().outcome, Outcome::Corrected);
    assert!(r.bytes[INCOMPAT] == whole[INCOMPAT], "{:?}", r.told);
}

/// Two readings of the volume are enough for all fields in which a superblock and its only copy differ.
#[test]
fn many_ties_cost_no_more_than_one() {
    if skip() {
        return;
    }
    let dir = scratch();
    let whole = base(dir.path(), PLAIN, "12M");
    let page = page_of_extents(dir.path(), &whole);
    let reads = |fields: &[(usize, u8)], copy: usize| {
        let mut bytes = whole.clone();
        bytes[FREE] ^= 1;
        fields.iter().for_each(|(at, bit)| bytes[at + copy] ^= bit);
        let (r, reads) = repair_on(&bytes, None, page);
        let report = r.report.unwrap();
        assert_eq!(report.outcome, Outcome::Corrected, "{fields:?}");
        assert!(r.bytes[SUPER..SUPER + 0x100] == whole[SUPER..SUPER + 0x100], "{:?}", r.told);
        (reads, report.rounds)
    };
    let fields = [(RO_COMPAT, 0x10), (COMPAT, 0x10), (RESERVED, 0x01), (FIRST_INO, 0x80)];
    for copy in [0, COPY - SUPER] {
        let (one, rounds) = reads(&fields[..1], copy);
        let (all, all_rounds) = reads(&fields, copy);
        assert!(one > 0 && all_rounds == rounds && all <= one, "{copy}: {one} reads, and {all} for all");
    }
}

/// e2fsck complains of each of these, and of none after the repair.
#[test]
fn features_that_do_not_fit_are_mended() {
    if skip() {
        return;
    }
    let dir = scratch();
    let large = format!("ea_set / user.large {}", "x".repeat(700));
    let cases: [(&[&str], &[&str]); 18] = [
        (&["-t", "ext4", "-O", "orphan_file"], &["sif <12> links_count 0"]),
        (&["-t", "ext4", "-O", "orphan_file", "-b", "4096"], &["sif <12> size 4096"]),
        (&["-t", "ext4"], &["sif <8> size 1048588"]),
        (&["-t", "ext4"], &["sif <7> links_count 0"]),
        (&["-t", "ext4"], &["ssv want_extra_isize 500"]),
        (&["-t", "ext4"], &["ssv min_extra_isize 500"]),
        (&["-t", "ext4"], &["symlink odd target", "sif odd flags 0x10"]),
        (&["-t", "ext4"], &["sif <8> links_count 0"]),
        (&["-t", "ext4"], &["sif <8> mode 0x11a4"]),
        (&["-t", "ext4", "-b", "1024"], &["sif <8> size 0"]),
        (&["-t", "ext3"], &["set_bg 0 itable_unused 0xfff8"]),
        (&["-t", "ext4"], &["ssv usr_quota_inum 5"]),
        (&["-t", "ext4"], &["ssv prj_quota_inum 12"]),
        (&["-t", "ext4", "-I", "256"], &[&large, "feature -ext_attr"]),
        (&["-t", "ext4"], &["feature -resize_inode"]),
        (&["-t", "ext3"], &["feature -resize_inode"]),
        (&["-t", "ext4"], &["feature meta_bg", "ssv first_meta_bg 1"]),
        (&["-t", "ext4", "-O", "^has_journal"], &["feature -flex_bg"]),
    ];
    for (args, commands) in cases {
        let what = format!("{args:?} {commands:?}");
        let whole = base(dir.path(), args, "64M");
        let before = contents(&whole).unwrap();
        let image = dir.path().join("odd");
        std::fs::write(&image, &whole).unwrap();
        commands.iter().for_each(|c| drop(must("debugfs", &["-w", "-R", c, image.to_str().unwrap()])));
        let complains = || !checked_by_e2fsck(&image).0;
        assert!(complains(), "{what}");
        let odd = std::fs::read(&image).unwrap();
        assert!(!check_bytes(&odd).unwrap().is_clean(), "{what}");
        let repaired = repair_bytes(&odd);
        assert_eq!(repaired.report.unwrap().outcome, Outcome::Corrected, "{what}: {:?}", repaired.told);
        std::fs::write(&image, &repaired.bytes).unwrap();
        assert!(!complains(), "{what}: {}", checked_by_e2fsck(&image).1);
        assert!(check_bytes(&repaired.bytes).unwrap().is_clean(), "{what}");
        let now = contents(&repaired.bytes).unwrap().paths;
        assert!(before.paths.iter().all(|(path, kind)| now.get(path) == Some(kind)), "{what}");
    }
}
