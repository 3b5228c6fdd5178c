//! The parts that a repair leaves alone: tables of another group, inodes that a descriptor calls unused,
//! blocks that a damaged journal leads to, and changes without space.

use super::cases::{EXT4, damaged, mended};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_block::{Errno, Fault, Faulty, Op, Rule};

/// Byte range of the descriptors of a volume of 1 KiB blocks.
const DESCS: std::ops::Range<usize> = 2048..3072;

/// A volume whose first descriptors, and not their copies, are changed by `commands`.
fn with_descs(commands: &[&str]) -> Option<(tidegate_testing::temp::TempDir, Vec<u8>, Contents)> {
    // The UUID is fixed, as checksums depend on it.
    let args = [EXT4, &["-U", "7f3a1c52-5d0e-4b8e-9a51-0c9d8a6b2e41"]].concat();
    let (_other, descs, _) = damaged(&args, "12M", commands)?;
    let (dir, mut bytes, before) = damaged(&args, "12M", &[])?;
    bytes[DESCS].copy_from_slice(&descs[DESCS]);
    Some((dir, bytes, before))
}

#[test]
fn a_sealed_descriptor_does_not_take_the_tables_of_another() {
    let Some((_dir, bytes, _)) = damaged(EXT4, "12M", &[]) else { return };
    let table = u32::from_le_bytes(bytes[2048 + 8..2048 + 12].try_into().unwrap());
    let place = format!("set_block_group 1 inode_table {table}");
    let Some((dir, bytes, before)) = with_descs(&[&place, "set_block_group 1 checksum calc"]) else { return };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    let (_, now) = mended(&dir, &bytes);
    assert_eq!(now.paths, before.paths);
}

#[test]
fn inodes_that_were_never_used_as_their_group_has_it_are_kept_where_they_are_in_use() {
    for field in ["itable_unused 30", "flags 7"] {
        let set = format!("set_block_group 0 {field}");
        let Some((dir, bytes, before)) = with_descs(&[&set, "set_block_group 0 checksum calc"]) else {
            return;
        };
        let (r, now) = mended(&dir, &bytes);
        assert_eq!(now.paths, before.paths, "{:?}", r.told);
        assert_eq!(now.files, before.files);
    }
}

#[test]
fn nothing_is_written_where_a_damaged_journal_leads_to() {
    let args = ["-t", "ext3", "-b", "1024", "-g", "2048"];
    let Some((_dir, bytes, _)) = damaged(&args, "12M", &[]) else { return };
    let table = u32::from_le_bytes(bytes[2048 + 8..2048 + 12].try_into().unwrap());
    let to = format!("sif <8> block[0] {}", table + 1);
    let Some((dir, bytes, before)) = damaged(&args, "12M", &[&to, "ssv jnl_backup_type 0"]) else { return };
    let (r, now) = mended(&dir, &bytes);
    assert_eq!(now.paths, before.paths, "{:?}", r.told);
}

#[test]
fn a_full_volume_is_mended_but_for_what_needs_room() {
    let Some((dir, bytes, _)) = damaged(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "4M", &[])
    else {
        return;
    };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    let said = must("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let free =
        said.lines().find_map(|l| l.strip_prefix("Free blocks:")).unwrap().trim().parse::<usize>().unwrap();
    let fill = dir.path().join("fill");
    std::fs::write(&fill, vec![7; free * 1024]).unwrap();
    let write = format!("write {} fill", fill.to_str().unwrap());
    must("debugfs", &["-w", "-R", &write, image.to_str().unwrap()]);
    let full = std::fs::read(&image).unwrap();
    let before = contents(&full).unwrap();
    let free = u32::from_le_bytes(full[1024 + 12..1024 + 16].try_into().unwrap());
    assert_eq!(free, 0);
    let file = dir.path().join("commands");
    std::fs::write(&file, "unlink directory/name-9-yyyyyyyyy\nsif pieces links_count 7\n").unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
    let r = repair_bytes(&std::fs::read(&image).unwrap());
    let report = r.report.unwrap();
    assert!(report.notes.iter().any(|n| n.contains("no block is free")), "{:?}", report.notes);
    assert!(r.told.iter().any(|t| t.contains("7 links -> 1")), "{:?}", r.told);
    // With room, the file gets a name again.
    std::fs::write(&image, &r.bytes).unwrap();
    must("debugfs", &["-w", "-R", "rm fill", image.to_str().unwrap()]);
    let (_, now) = mended(&dir, &std::fs::read(&image).unwrap());
    assert_eq!(kept(&before, &now), before.files.values().sum::<usize>() - 1);
}

/// Repairs a device on which one page cannot be read until it is written.
fn repaired_without(bytes: &[u8], page: u64) -> (Result<RepairReport>, Vec<u8>) {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let bad = Arc::new(AtomicBool::new(true));
    let (seen, at) = (bad.clone(), page * 8..page * 8 + 8);
    let covers = move |rq: &tidegate_block::Request| {
        let first = rq.sector.0;
        first < at.end && rq.end().0 > at.start
    };
    let written = covers;
    let reads = move |rq: &tidegate_block::Request| bad.load(Ordering::Relaxed) && covers(rq);
    let writes = move |rq: &tidegate_block::Request| {
        if written(rq) {
            seen.store(false, Ordering::Relaxed);
        }
        false
    };
    let rules = [
        Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).when(reads),
        Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).when(writes),
    ];
    let queue = Arc::new(RequestQueue::new(Faulty::new(device.clone(), rules), QueueLimits::default()));
    let report = repair(&queue, RepairOptions { dry_run: false, now: NOW }, &mut |_| {});
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after);
    (report, after)
}

#[test]
fn a_superblock_or_descriptors_that_cannot_be_read_come_from_copies() {
    let (small, large): (&[&str], &[&str]) =
        (&["-t", "ext4", "-b", "1024"], &["-t", "ext4", "-b", "4096", "-g", "4096"]);
    for (page, args) in [(0, small), (1, large)] {
        let Some((_dir, bytes, before)) = damaged(args, "48M", &[]) else { return };
        let mut damaged = bytes.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0x5a);
        let (report, after) = repaired_without(&damaged, page as u64);
        let report = report.unwrap_or_else(|e| panic!("page {page}: {e}"));
        assert_eq!(report.outcome, Outcome::Corrected, "{page}: {:?}", report.notes);
        assert_eq!(contents(&after).unwrap().paths, before.paths);
    }
}

/// Stock e2fsck does not change the copies when it removes a feature, and a program that needs a feature on a
/// volume of revision 0 raises only the first superblock's revision.
#[test]
fn copies_that_stock_tools_leave_behind_are_not_believed() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let Some((dir, bytes, before)) = damaged(&args, "34M", &[]) else { return };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    must("tune2fs", &["-O", "^resize_inode", image.to_str().unwrap()]);
    mended_by_e2fsck(&image);
    assert!(judge(&image).0);
    let sound = std::fs::read(&image).unwrap();
    // `s_reserved_gdt_blocks` of the first superblock and of the copies in groups 1 and 3.
    let reserved = |block: usize| u16::from_le_bytes(sound[block * 1024 + 0xce..][..2].try_into().unwrap());
    assert!(reserved(1) == 0 && reserved(8193) > 0 && reserved(3 * 8192 + 1) > 0);
    nothing_but_links(&image, &sound, &before);
    // As a kernel raises the revision: the copies have revision 0 and no features.
    let mut raised = sound.clone();
    for block in [8193, 3 * 8192 + 1] {
        raised[block * 1024 + 0x4c..][..4].fill(0);
    }
    std::fs::write(&image, &raised).unwrap();
    nothing_but_links(&image, &raised, &before);
}

/// A repair changes nothing of a sound volume; in a volume with a wrong link count, it changes only that.
fn nothing_but_links(image: &Path, sound: &[u8], before: &Contents) {
    let r = repair_bytes(sound);
    assert!(r.told.is_empty() && r.bytes == sound, "{:?}", r.told);
    must("debugfs", &["-w", "-R", "sif pieces links_count 7", image.to_str().unwrap()]);
    let r = repair_bytes(&std::fs::read(image).unwrap());
    assert!(r.told.iter().any(|t| t.contains("7 links -> 1")), "{:?}", r.told);
    let others = |t: &&String| !t.contains("links") && !t.contains("copy in group");
    assert_eq!(r.told.iter().filter(others).collect::<Vec<_>>(), Vec::<&String>::new());
    let now = contents(&r.bytes).unwrap();
    assert_eq!((&now.paths, &now.files), (&before.paths, &before.files));
}
