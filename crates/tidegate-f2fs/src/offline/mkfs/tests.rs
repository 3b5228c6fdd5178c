use super::oracle::*;
use super::*;
use crate::format::raw::{
    BLOCK_SIZE, CP_CHKSUM_OFFSET, F2FS_MAGIC, Features, SUM_JOURNAL_SIZE, SUPER_OFFSET,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, Errno, Fault, Faulty, MemoryDevice, Op, Rule};

const ALL: Features = SUPPORTED_FEATURES;
const NONE: Features = Features::empty();
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

fn check_clean(bytes: u64) {
    for features in [NONE, ALL] {
        let dir = directory();
        let Some(path) = image(&dir, "image", bytes) else { return };
        make(&path, &options(features));
        assert_clean(&path);
    }
}

#[test]
fn fsck_calls_small_volumes_clean() {
    [40, 41, 46, 50, 52, 64, 256].into_iter().for_each(|n| check_clean(n * MIB));
}

#[test]
fn fsck_calls_large_volumes_clean() {
    [GIB, 100 * GIB, TIB].into_iter().for_each(check_clean);
}

#[test]
fn fsck_calls_the_largest_volume_clean() {
    check_clean(16 * TIB);
}

fn block(file: &File, at: BlockAddr) -> Vec<u8> {
    let mut b = vec![0; BLOCK_SIZE];
    file.read_exact_at(&mut b, at.0 as u64 * BLOCK_SIZE as u64).unwrap();
    b
}

/// The version text that mkfs.f2fs wrote to the superblock: the running kernel's.
fn stock_version(image: &Path) -> String {
    let b = block(&File::open(image).unwrap(), BlockAddr(0));
    let text = &b[SUPER_OFFSET + std::mem::offset_of!(crate::format::raw::RawSuperblock, version)..][..256];
    String::from_utf8_lossy(text).trim_end_matches('\0').into()
}

/// Compares mkfs.f2fs's volume with ours, except for the checkpoint's version and all that depends on it, and
/// for the NAT journal, which ours leaves empty.
fn compare_with_stock(bytes: u64, options: &MkfsOptions) {
    let Some(tool) = tool("mkfs.f2fs") else { return };
    let dir = directory();
    let (Some(ours), Some(theirs)) = (image(&dir, "ours", bytes), image(&dir, "theirs", bytes)) else {
        return;
    };
    assert!(make_stock(&tool, &theirs, options), "{} MiB", bytes / MIB);
    let options = MkfsOptions { version: stock_version(&theirs), ..options.clone() };
    make(&ours, &options);
    let l = layout(bytes, &options).unwrap();
    let (ours, theirs) = (File::open(ours).unwrap(), File::open(theirs).unwrap());
    let same = |what: &str, at: BlockAddr, range: std::ops::Range<usize>| {
        let (a, b) = (block(&ours, at), block(&theirs, at));
        let differ = range.clone().filter(|&i| a[i] != b[i]).take(8).collect::<Vec<_>>();
        assert!(differ.is_empty(), "{what} at block {at}, {} MiB, bytes {differ:?}", bytes / MIB);
    };
    SUPERBLOCKS.into_iter().for_each(|at| same("superblock", at, 0..BLOCK_SIZE));
    let pack = l.segment0;
    same("checkpoint", pack, 8..CP_CHKSUM_OFFSET);
    same("old checkpoint", pack.plus(BLOCKS_PER_SEG), 0..BLOCK_SIZE);
    let summaries = pack.plus(1 + l.cp_payload);
    same("data summaries", summaries, SUM_JOURNAL_SIZE..BLOCK_SIZE);
    (1..4).for_each(|n| same("node summaries", summaries.plus(n), 0..BLOCK_SIZE));
    same("tail", summaries.plus(4), 8..CP_CHKSUM_OFFSET);
    same("nat_bits", pack.plus(BLOCKS_PER_SEG - 1), 8..BLOCK_SIZE);
    for dir in tree::new_dirs(&l, &options) {
        same("inode", dir.node, 0..BLOCK_SIZE);
        same("entries", dir.data, 0..BLOCK_SIZE);
    }
}

#[test]
fn volumes_are_those_of_mkfs_f2fs() {
    // mkfs.f2fs makes a volume of 16 TiB that Linux does not mount; ours ends a segment earlier.
    for bytes in [64 * MIB, 256 * MIB, GIB, 100 * GIB, TIB, 4 * TIB, 16 * TIB - 2 * MIB] {
        for features in [NONE, ALL] {
            compare_with_stock(bytes, &options(features));
        }
    }
}

#[test]
fn sizes_in_between_are_those_of_mkfs_f2fs() {
    let small = (52..140).step_by(3).map(|n| n * MIB + 512);
    let large = (1..40u64).map(|n| n * n * n * 17 * MIB + 512 * n + 300 * MIB);
    small.chain(large).for_each(|bytes| compare_with_stock(bytes, &options(NONE)));
}

#[test]
fn each_feature_is_that_of_mkfs_f2fs() {
    let one = [Features::EXTRA_ATTR, Features::SB_CHKSUM, Features::LOST_FOUND];
    let in_extra = [Features::INODE_CHKSUM, Features::FLEXIBLE_INLINE_XATTR, Features::INODE_CRTIME];
    for features in one.into_iter().chain(in_extra.map(|f| f | Features::EXTRA_ATTR)) {
        compare_with_stock(128 * MIB, &options(features));
    }
}

#[test]
fn options_do_what_they_do_in_mkfs_f2fs() {
    for percent in [1.0, 3.3, 10.0, 50.0, 95.0] {
        compare_with_stock(GIB, &MkfsOptions { overprovision_percent: Some(percent), ..options(NONE) });
    }
    // mkfs.f2fs counts segments outside whole zones as free; the sizes here are whole zones.
    for (segs_per_sec, secs_per_zone) in [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (8, 1)] {
        compare_with_stock(2 * GIB, &MkfsOptions { segs_per_sec, secs_per_zone, ..options(ALL) });
    }
    compare_with_stock(64 * MIB, &MkfsOptions { discard: true, ..options(NONE) });
}

#[test]
fn sections_of_many_segments_are_clean() {
    for (segs_per_sec, secs_per_zone, mib) in [(3, 1, 301), (1, 4, 203), (8, 1, 256), (2, 3, 511)] {
        let dir = directory();
        let Some(path) = image(&dir, "image", mib * MIB) else { return };
        make(&path, &MkfsOptions { segs_per_sec, secs_per_zone, ..options(ALL) });
        assert_clean(&path);
    }
}

#[test]
fn a_volume_too_small_says_what_it_needs() {
    let said = |bytes| layout(bytes, &options(NONE)).unwrap_err().to_string();
    assert_eq!(said(20 * MIB), "volume of 20 MiB is too small for f2fs: at least 40 MiB");
    assert_eq!(said(40 * MIB - 1), "volume of 41943039 bytes is too small for f2fs: at least 40 MiB");
    assert_eq!(said(0), "volume of 0 bytes is too small for f2fs: at least 40 MiB");
    assert_eq!(said(17 * TIB), "volume of 17825792 MiB is too large for f2fs: at most 16 TiB");
    assert_eq!(layout(40 * MIB, &options(NONE)).unwrap().user_block_count, 2048);
    for (segs_per_sec, secs_per_zone) in [(1, 1), (2, 1), (8, 1), (1, 8), (64, 4), (3, 5), (1, 1 << 19)] {
        let options = MkfsOptions { segs_per_sec, secs_per_zone, ..options(NONE) };
        let Err(MkfsError::TooSmall { need, .. }) = layout(MIB, &options) else { panic!("a size is needed") };
        assert!(layout(need, &options).is_ok());
        assert!(matches!(layout(need - 1, &options), Err(MkfsError::TooSmall { .. })));
    }
}

#[test]
fn the_largest_volume_ends_at_an_address() {
    let (whole, less) =
        (layout(16 * TIB, &options(NONE)).unwrap(), layout(16 * TIB - 2 * MIB, &options(NONE)));
    assert_eq!(whole.block_count, 1 << 32);
    assert_eq!(Layout { block_count: whole.block_count, ..less.unwrap() }, whole);
    assert!(whole.main.0.checked_add(whole.segment_count_main * BLOCKS_PER_SEG).is_some());
}

#[test]
fn layouts_hold_together() {
    for bytes in (40..2000).chain((2000..(16 << 20)).step_by(77_777)).map(|n| n * MIB) {
        let l = layout(bytes, &options(NONE)).unwrap();
        let meta = l.segment_count_ckpt + l.segment_count_sit + l.segment_count_nat + l.segment_count_ssa;
        assert_eq!(l.segment_count, meta + l.segment_count_main);
        assert!(l.main.0 as u64 + l.segment_count_main as u64 * 512 <= l.block_count);
        assert!(l.reserved_segments <= l.free_segments);
        assert!((l.reserved_segments..l.segment_count_main).contains(&l.overprovision_segments));
        let mut logs = l.logs.map(|s| s.0);
        logs.sort_unstable();
        assert!(logs.windows(2).all(|w| w[0] < w[1]) && logs[5] < l.segment_count_main);
        let bits = l.nat_bitmap_bytes + if l.cp_payload == 0 { l.sit_bitmap_bytes } else { 0 };
        assert!(bits <= 3900);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |o: MkfsOptions| layout(GIB, &o).unwrap_err().to_string();
    let o = || options(NONE);
    assert!(refused(MkfsOptions { features: Features::INODE_CHKSUM, ..o() }).contains("need EXTRA_ATTR"));
    assert!(refused(MkfsOptions { features: Features::ENCRYPT, ..o() }).contains("ENCRYPT"));
    assert!(
        refused(MkfsOptions { features: Features::from_bits_retain(1 << 30), ..o() }).contains("features")
    );
    assert!(refused(MkfsOptions { label: "x".repeat(513), ..o() }).contains("513 UTF-16 units"));
    assert!(refused(MkfsOptions { version: "x".repeat(256), ..o() }).contains("at most 255"));
    assert!(refused(MkfsOptions { hot_extensions: vec!["database".into()], ..o() }).contains("database"));
    assert!(refused(MkfsOptions { hot_extensions: vec!["a".into(); 29], ..o() }).contains("at most 64"));
    assert!(refused(MkfsOptions { overprovision_percent: Some(0.01), ..o() }).contains("reserved"));
    for percent in [f64::NAN, f64::INFINITY, -1.0, 0.0, 100.0] {
        let said = refused(MkfsOptions { overprovision_percent: Some(percent), ..o() });
        assert!(said.contains("makes no sense"), "{said}");
    }
    for (segs_per_sec, secs_per_zone) in [(0, 1), (1, 0), (u32::MAX, u32::MAX), (1 << 20, 1)] {
        assert!(refused(MkfsOptions { segs_per_sec, secs_per_zone, ..o() }).contains("per section"));
    }
}

fn queue(device: Arc<dyn Device>) -> RequestQueue {
    RequestQueue::new(device, Default::default())
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut all = vec![0; device.size() as usize];
    device.read_at(0, &mut all);
    all
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let (blank, used) = (Arc::new(MemoryDevice::new(64 * MIB)), Arc::new(MemoryDevice::new(64 * MIB)));
    // The SSA is not cleared, so the stale bytes lie elsewhere.
    used.write_at(0, &vec![0x5a; 10 * MIB as usize]);
    let first = mkfs(&queue(blank.clone()), &options(ALL)).unwrap();
    mkfs(&queue(used.clone()), &options(ALL)).unwrap();
    used.write_at(20 * MIB, &[0x5a; 12345]);
    assert_eq!(mkfs(&queue(used.clone()), &options(ALL)).unwrap(), first);
    assert!(bytes_of(&blank) == bytes_of(&used), "stale bytes of the same volume are left");
    let random = || mkfs(&queue(blank.clone()), &MkfsOptions { uuid: None, ..options(ALL) }).unwrap();
    let (a, b) = (random(), random());
    assert!(a.uuid != b.uuid && a.checkpoint_version != b.checkpoint_version && a.layout == b.layout);
}

#[test]
fn an_attempt_cut_short_leaves_no_volume() {
    let whole = Arc::new(MemoryDevice::new(48 * MIB));
    mkfs(&queue(whole.clone()), &options(ALL)).unwrap();
    let whole = bytes_of(&whole);
    for changes in 1.. {
        let inner = Arc::new(MemoryDevice::new(48 * MIB));
        mkfs(&queue(inner.clone()), &MkfsOptions { uuid: None, ..options(NONE) }).unwrap();
        let rule = Rule::new(Fault::Fail(Errno::IO)).when(|rq| rq.op != Op::Read).which(changes..u64::MAX);
        let failing = Faulty::new(inner.clone(), [rule]);
        let made = mkfs(&queue(failing.clone()), &options(ALL));
        let now = bytes_of(&inner);
        let valid = |at: usize| now[at * BLOCK_SIZE + SUPER_OFFSET..][..4] == F2FS_MAGIC.to_le_bytes();
        // After the first change the old first superblock is gone, but not yet the second.
        let complete = now[2 * BLOCK_SIZE..] == whole[2 * BLOCK_SIZE..];
        assert!(!valid(0) || complete, "half a volume after {changes} changes");
        assert!(changes == 1 || !valid(1) || complete, "half a volume after {changes} changes");
        if made.is_ok() {
            assert!(changes > 10 && failing.failed() == 0 && now == whole);
            return;
        }
    }
}
