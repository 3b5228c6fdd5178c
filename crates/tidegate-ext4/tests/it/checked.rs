//! Our check compared with e2fsck: volumes of every kind, and damaged ones.

use crate::damaged::{PIECE, damage, images, small_tree};
use crate::made::SETS;
use crate::rig::*;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::check::{CheckOptions, CheckReport, check};
use tidegate_testing::fill::Rng;
use tidegate_vfs::{ErrorKind, Result};

/// Features that the check refuses.
const REFUSED: [&str; 5] = ["bigalloc", "bigalloc-1k", "inline_data", "inline_data-1024", "ea_inode"];

const CSUM: &[&str] = &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^has_journal"];
const NO_CSUM: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"];
const EXT2: &[&str] = &["-t", "ext2", "-b", "1024", "-O", "dir_index"];

/// Checks the bytes of a volume.
pub fn check_bytes(bytes: &[u8]) -> Result<CheckReport> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    check(&queue, CheckOptions::default())
}

fn check_sets(of: usize, parts: usize) {
    if skip() {
        return;
    }
    let dir = scratch();
    let sources = [false, true].map(|small| source(dir.path(), small));
    for (name, args) in SETS.iter().skip(of).step_by(parts) {
        let image = dir.path().join(format!("{name}.img"));
        let small = !args.contains(&"4096");
        let from = ["-d", sources[usize::from(small)].to_str().unwrap()];
        mke2fs(&image, &[*args, &from].concat(), "160M");
        let (clean, said) = checked_by_e2fsck(&image);
        let found = check_bytes(&std::fs::read(&image).unwrap());
        std::fs::remove_file(&image).unwrap();
        if REFUSED.contains(name) {
            assert_eq!(found.unwrap_err().kind(), ErrorKind::Unsupported, "{name}");
            continue;
        }
        let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
        // The check does not look at the content of quota files, and mke2fs does not count the files it fills
        // in.
        assert!(clean || *name == "project", "{name}: {said}");
        let notes = if *name == "project" { "the usage that quota files record" } else { "" };
        let noted = found.notes.concat();
        assert!(found.is_clean() && noted.starts_with(notes), "{name}: {:?} {noted}", found.problems);
        assert!(found.notes.len() == usize::from(*name == "project"), "{name}: {noted}");
        assert!(found.files > 20 && found.directories > 5, "{name}: {} files", found.files);
    }
}

#[test]
fn volumes_of_every_kind_are_clean_1() {
    check_sets(0, 2);
}

#[test]
fn volumes_of_every_kind_are_clean_2() {
    check_sets(1, 2);
}

/// Pieces of the format's tables, of directories and of blocks of attributes: places for damage. Files hold
/// one repeated byte.
pub fn used_pieces(bytes: &[u8]) -> Vec<usize> {
    let varied = |p: &[u8]| p.iter().filter(|b| **b != 0).collect::<HashSet<_>>().len() > 1;
    bytes.chunks(PIECE).enumerate().filter(|(_, p)| varied(p)).map(|(n, _)| n).collect()
}

/// Compares both checks on damaged volumes of one kind.
fn compare(name: &str, args: &[&str], seed: u64) {
    if skip() {
        return;
    }
    let asked = asked_seed();
    let seeds = asked.map_or(seed..seed + images(100), |s| s..s + 1);
    let all = seeds.end - seeds.start;
    let both_bad = compare_each(name, args, seeds);
    assert!(asked.is_some() || both_bad > all / 5, "{name}: {both_bad} of {all} are damaged");
}

/// Compares both checks on a volume with the damage of each seed; returns how many both call damaged.
fn compare_each(name: &str, args: &[&str], seeds: impl IntoIterator<Item = u64>) -> u64 {
    let dir = scratch();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("x.img"));
    std::fs::create_dir(&tree).unwrap();
    small_tree(&tree);
    let from = ["-N", "256", "-d", tree.to_str().unwrap()];
    mke2fs(&image, &[args, &from].concat(), "4M");
    let base = std::fs::read(&image).unwrap();
    let used = used_pieces(&base);
    let (mut both_clean, mut both_bad, mut apart) = (0, 0, Vec::new());
    for seed in seeds {
        let mut bytes = base.clone();
        damage(&mut bytes, &used, &mut Rng::new(seed));
        let ours = check_bytes(&bytes);
        std::fs::write(&image, &bytes).unwrap();
        let (clean, said) = judge(&image);
        match (&ours, clean) {
            (Ok(r), true) if r.is_clean() => both_clean += 1,
            (Ok(r), false) if r.is_clean() => apart.push(format!("{name}, seed {seed}: only e2fsck: {said}")),
            (Ok(r), true) => apart.push(format!("{name}, seed {seed}: only ours: {:?}", r.problems)),
            (Err(e), true) => apart.push(format!("{name}, seed {seed}: only ours: {e}")),
            _ => both_bad += 1,
        }
    }
    println!("{name}: {both_clean} clean and {both_bad} damaged for both, {} apart", apart.len());
    assert!(apart.is_empty(), "{}", apart.join("\n"));
    both_bad
}

fn judge(image: &Path) -> (bool, String) {
    checked_by_e2fsck(image)
}

#[test]
fn damaged_volumes_with_checksums_are_judged_as_by_e2fsck() {
    compare("csum", CSUM, 1000);
}

#[test]
fn damaged_volumes_without_checksums_are_judged_as_by_e2fsck() {
    compare("no-csum", NO_CSUM, 2000);
}

#[test]
fn damaged_volumes_of_ext2_are_judged_as_by_e2fsck() {
    compare("ext2", EXT2, 3000);
}

/// The volume has a size of 0 with one block, entries without a type, and attributes of the resize inode.
#[test]
fn the_check_is_no_stricter_than_e2fsck() {
    if skip() {
        return;
    }
    compare_each("ext2", EXT2, [3174, 3179, 3344]);
    compare_each("no-csum", NO_CSUM, [2338]);
}

/// Each unreadable block is the only block of its page. The wrong link count of another inode is reported all
/// the same.
#[test]
fn a_block_that_cannot_be_read_does_not_end_a_check() {
    use tidegate_block::{Errno, Fault, Faulty, Op, Rule};
    if skip() {
        return;
    }
    let dir = scratch();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("x.img"));
    std::fs::create_dir(&tree).unwrap();
    small_tree(&tree);
    mke2fs(&image, &["-t", "ext4", "-b", "4096", "-N", "256", "-d", tree.to_str().unwrap()], "16M");
    let asked = |what: &str, before: &str| {
        let said = must("debugfs", &["-R", what, image.to_str().unwrap()]);
        let at = said.split_once(before).unwrap_or_else(|| panic!("{what}: {said}")).1;
        at.split(|c: char| !c.is_ascii_digit()).find(|n| !n.is_empty()).unwrap().parse::<u64>().unwrap()
    };
    must("debugfs", &["-w", "-R", "sif short links_count 7", image.to_str().unwrap()]);
    let blocks = [
        asked(&format!("imap directory/name-50-{}", "y".repeat(50)), "at block"),
        asked("bmap directory 0", ""),
        asked("stat pieces", "(ETB0):"),
        asked("stat directory/name-7-yyyyyyy", "File ACL:"),
        asked("stats", "block bitmap at"),
    ];
    let short = asked("imap short", "at block");
    assert!(!blocks.contains(&short));
    let bytes = std::fs::read(&image).unwrap();
    for block in blocks {
        let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(block * 4096..(block + 1) * 4096);
        let faulty = Faulty::new(Arc::new(MemoryDevice::from_bytes(&bytes)), [rule]);
        let queue = Arc::new(RequestQueue::new(faulty, QueueLimits::default()));
        let found = check(&queue, CheckOptions::default()).unwrap_or_else(|e| panic!("block {block}: {e}"));
        assert_eq!(found.problems[0].rule, "unread", "{block}: {:?}", found.problems);
        assert!(found.problems[0].text.contains(&block.to_string()), "{block}: {:?}", found.problems);
        let unread = found.problems.iter().filter(|p| p.rule == "unread").count();
        let links = found.problems.iter().any(|p| p.rule == "link-count");
        assert!(unread == 1 && links, "{block}: {:?}", found.problems);
    }
    // A device on which no read succeeds is broken.
    let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read);
    let queue = Faulty::new(Arc::new(MemoryDevice::from_bytes(&bytes)), [rule]);
    let queue = Arc::new(RequestQueue::new(queue, QueueLimits::default()));
    assert_eq!(check(&queue, CheckOptions::default()).unwrap_err().kind(), ErrorKind::Io);
}
