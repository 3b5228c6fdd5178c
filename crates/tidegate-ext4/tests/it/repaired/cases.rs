//! Damage made with debugfs, and the exact result of its repair.

use super::*;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::ErrorKind;

/// A volume that `commands` of debugfs damaged, with its content before.
pub fn damaged(args: &[&str], size: &str, commands: &[&str]) -> Option<(TempDir, Vec<u8>, Contents)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let before = contents(&base(dir.path(), args, size)).unwrap();
    let image = dir.path().join("x.img");
    let file = dir.path().join("commands");
    std::fs::write(&file, commands.join("\n")).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
    let bytes = std::fs::read(&image).unwrap();
    Some((dir, bytes, before))
}

/// Repairs the volume, has it judged, and returns its content.
pub fn mended(dir: &TempDir, bytes: &[u8]) -> (Repaired, Contents) {
    let r = repair_bytes(bytes);
    let report = r.report.as_ref().unwrap();
    assert_eq!(
        report.outcome,
        Outcome::Corrected,
        "{:?} {:?} {:?}",
        report.notes,
        report.check.problems,
        r.told
    );
    let image = dir.path().join("x.img");
    std::fs::write(&image, &r.bytes).unwrap();
    let (clean, said) = judge(&image);
    assert!(clean, "{said}\n{}", r.told.join("\n"));
    assert!(Mounted::new(&image, "rw").is_some(), "Linux does not mount it");
    let now = contents(&r.bytes).unwrap();
    (r, now)
}

/// The number that a program's output begins with.
pub fn first_number(said: &str) -> usize {
    said.split_whitespace().next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
}

pub const EXT4: &[&str] = &["-t", "ext4", "-b", "1024", "-g", "2048"];

#[test]
fn a_lost_root_is_made_anew_and_all_is_in_lost_and_found() {
    let Some((dir, bytes, before)) = damaged(EXT4, "12M", &["clri <2>"]) else { return };
    let (_, now) = mended(&dir, &bytes);
    assert_eq!(kept(&before, &now), before.files.values().sum::<usize>());
    let dirs =
        now.paths.keys().filter(|p| p.starts_with("/lost+found/#") && p.ends_with("/name-7-yyyyyyy")).count();
    assert_eq!(dirs, 1, "{:?}", now.paths);
}

#[test]
fn dots_end_with_a_zero_byte() {
    let args = ["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^metadata_csum"];
    let Some((dir, bytes, before)) = damaged(&args, "12M", &[]) else { return };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    // The directory has one block, or a tree.
    for (name, place) in [("<2>", "directory 2"), ("directory", "directory")] {
        let block =
            first_number(&must("debugfs", &["-R", &format!("bmap {name} 0"), image.to_str().unwrap()]));
        for at in [9, 22] {
            let mut hurt = bytes.clone();
            hurt[block * 1024 + at] = b'x';
            let found = check_bytes(&hurt).unwrap();
            assert_eq!(
                found.problems.iter().map(|p| p.rule).collect::<Vec<_>>(),
                ["dir-dots"],
                "{name}, {at}"
            );
            std::fs::write(&image, &hurt).unwrap();
            assert!(!judge(&image).0, "{name}, {at}");
            let (r, now) = mended(&dir, &hurt);
            assert!(r.told.iter().any(|t| t.contains(place)), "{:?}", r.told);
            assert_eq!(now.paths, before.paths);
            std::fs::write(&image, &bytes).unwrap();
        }
    }
}

#[test]
fn a_lost_journal_is_found_by_its_copy_or_made_anew() {
    for (commands, word) in [
        (&["clri <8>"][..], "as the superblock has it"),
        (&["clri <8>", "ssv jnl_backup_type 0"], "a new one of 1024 blocks"),
        (&["zap_block -f <8> 0"], "made anew; it is empty"),
    ] {
        let Some((dir, bytes, before)) = damaged(EXT4, "12M", commands) else { return };
        let (r, now) = mended(&dir, &bytes);
        assert!(r.told.iter().any(|t| t.contains(word)), "{word}: {:?}", r.told);
        assert_eq!(now.paths, before.paths);
    }
}

#[test]
fn what_the_journal_holds_is_replayed_first() {
    let Some((dir, _, before)) = damaged(EXT4, "12M", &[]) else { return };
    let image = dir.path().join("x.img");
    // The directory's inode goes to the journal unchanged, and is cleared in its place.
    let file = dir.path().join("block");
    let said = must("debugfs", &["-R", "imap directory", image.to_str().unwrap()]);
    let block: usize =
        said.split("at block ").nth(1).unwrap().split(',').next().unwrap().trim().parse().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    std::fs::write(&file, &bytes[block * 1024..(block + 1) * 1024]).unwrap();
    let commands = dir.path().join("commands");
    let write = format!("jw -b {block} {}", file.to_str().unwrap());
    std::fs::write(&commands, ["jo", &write, "jc", "clri directory"].join("\n")).unwrap();
    must("debugfs", &["-w", "-f", commands.to_str().unwrap(), image.to_str().unwrap()]);
    let bytes = std::fs::read(&image).unwrap();
    let (r, now) = mended(&dir, &bytes);
    assert_eq!(r.told, ["journal: log: 1 transactions -> replayed"]);
    assert_eq!(now.paths, before.paths);
}

#[test]
fn files_without_a_name_come_to_lost_and_found() {
    let commands = ["unlink directory/name-9-yyyyyyyyy", "unlink deep", "unlink lost+found"];
    let Some((dir, bytes, before)) = damaged(EXT4, "12M", &commands) else { return };
    let (_, now) = mended(&dir, &bytes);
    assert_eq!(kept(&before, &now), before.files.values().sum::<usize>());
    assert!(now.paths.keys().any(|p| p.starts_with("/lost+found/#") && p.ends_with("/5/below/file")));
}

#[test]
fn orphans_are_freed_and_cut() {
    let commands = [
        "sif directory/name-5-yyyyy links_count 0",
        "sif pieces size 100000",
        "sif pieces dtime 0",
        "unlink directory/name-5-yyyyy",
    ];
    let Some((dir, _, _)) = damaged(EXT4, "12M", &commands) else { return };
    let image = dir.path().join("x.img");
    let number = |name: &str| {
        let said = must("debugfs", &["-R", &format!("stat {name}"), image.to_str().unwrap()]);
        said.split("Inode: ").nth(1).unwrap().split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    let pieces = number("pieces");
    // The nameless file is the first of the list; behind it comes the file that is truncated.
    let all = must("debugfs", &["-R", "stat directory/name-4-yyyy", image.to_str().unwrap()]);
    drop(all);
    let gone = number("directory/name-4-yyyy") + 1;
    let gone = (gone..gone + 200).chain(12..gone).find(|i| {
        let said = must("debugfs", &["-R", &format!("stat <{i}>"), image.to_str().unwrap()]);
        said.contains("Links: 0") && said.contains("Size: 15\n")
    });
    let gone = gone.unwrap();
    let file = dir.path().join("commands");
    std::fs::write(&file, format!("sif <{gone}> dtime {pieces}\nssv last_orphan {gone}\n")).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
    let bytes = std::fs::read(&image).unwrap();
    let (r, now) = mended(&dir, &bytes);
    assert!(
        r.told.iter().any(|t| t == &format!("orphan: inode {gone}: without a name, or being cut -> freed")),
        "{:?}",
        r.told
    );
    assert!(now.files.keys().any(|c| c.len() == 100_000));
    assert!(!now.paths.keys().any(|p| p.starts_with("/lost+found/")), "{:?}", r.told);
}

#[test]
fn a_block_with_two_owners_is_copied() {
    let commands = ["sif deep/0/below/file block[1] 0", "sif deep/1/below/file block[1] 0"];
    let args = ["-t", "ext2", "-b", "1024"];
    let Some((dir, _, before)) = damaged(&args, "8M", &commands[..0]) else { return };
    let image = dir.path().join("x.img");
    let block = first_number(&must("debugfs", &["-R", "bmap deep/0/below/file 1", image.to_str().unwrap()]));
    let file = dir.path().join("commands");
    std::fs::write(&file, format!("sif deep/1/below/file block[1] {block}\n")).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
    let (r, now) = mended(&dir, &std::fs::read(&image).unwrap());
    assert!(r.told.iter().any(|t| t.contains("1 blocks have another owner -> 1 copied")), "{:?}", r.told);
    // The other file has bytes of the first, as it had before the repair; the first is intact.
    assert_eq!(kept(&before, &now), before.files.values().sum::<usize>() - 1);
    assert_eq!(now.paths, before.paths);
}

#[test]
fn the_hash_tree_of_a_large_directory_is_made_anew() {
    if skip() {
        return;
    }
    for (features, levels) in [("^has_journal", 3000), ("^has_journal,^metadata_csum", 12_000)] {
        let dir = scratch();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("many")).unwrap();
        for n in 0..levels {
            std::fs::File::create(tree.join(format!("many/a-name-of-some-length-{n}"))).unwrap();
        }
        let image = dir.path().join("x.img");
        let args = ["-t", "ext4", "-b", "1024", "-N", "16384", "-O", features, "-d", tree.to_str().unwrap()];
        mke2fs(&image, &args, "24M");
        // mke2fs makes a linear directory; e2fsck makes a tree of it.
        run("e2fsck", &["-fyD", image.to_str().unwrap()]);
        let before = contents(&std::fs::read(&image).unwrap()).unwrap();
        let block = first_number(&must("debugfs", &["-R", "bmap many 0", image.to_str().unwrap()]));
        let mut bytes = std::fs::read(&image).unwrap();
        bytes[block * 1024 + 24 + 8 + 12..block * 1024 + 900].fill(0x5a);
        let (r, now) = mended(&dir, &bytes);
        assert!(r.told.iter().any(|t| t.ends_with("damaged -> made anew")), "{:?}", r.told);
        assert_eq!(now.paths, before.paths);
        let said = must("debugfs", &["-R", "htree many", image.to_str().unwrap()]);
        assert!(said.contains("Indirect levels: "), "{said}");
    }
}

#[test]
fn what_is_not_repaired_is_refused_by_name_and_left() {
    for (features, word) in
        [("mmp", "mmp"), ("quota", "quota"), ("bigalloc", "bigalloc"), ("inline_data", "inline_data")]
    {
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let Some((_dir, bytes, _)) = damaged(&args, "12M", &["sif pieces links_count 7"]) else { return };
        let r = repair_bytes(&bytes);
        let e = r.report.unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.what().contains(word), "{e}");
        assert!(r.bytes == bytes && r.told.is_empty(), "{word}: it was written");
    }
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let commands = ["sif pieces links_count 7", "unlink deep", "clri <8>"];
    let Some((_dir, bytes, _)) = damaged(EXT4, "12M", &commands) else { return };
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let mut told = Vec::new();
    let options = RepairOptions { dry_run: true, now: NOW };
    let report = repair(&queue, options, &mut |c| told.push(c.to_string())).unwrap();
    assert_eq!(report.outcome, Outcome::Left);
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after);
    assert!(after == bytes, "it was written");
    assert_eq!(told, repair_bytes(&bytes).told);
}

#[test]
fn a_lost_superblock_comes_from_a_copy() {
    let Some((dir, mut bytes, before)) = damaged(&["-t", "ext4", "-b", "1024"], "24M", &[]) else { return };
    bytes[1024..2048].fill(0);
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    assert!(tidegate_ext4::repair::has_copy(&Arc::new(RequestQueue::new(device, QueueLimits::default()))));
    let (r, now) = mended(&dir, &bytes);
    assert!(r.told[0].starts_with("superblock: the first: "), "{:?}", r.told);
    assert_eq!(now.paths, before.paths);
}

/// The checksum of a node of extents tells its owner: an earlier inode does not take the node.
#[test]
fn a_node_of_extents_stays_with_the_inode_that_its_checksum_names() {
    let Some((dir, _, _)) = damaged(EXT4, "12M", &[]) else { return };
    let (image, file) = (dir.path().join("x.img"), dir.path().join("other"));
    let other = std::fs::File::create_new(&file).unwrap();
    for n in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&other, &[n as u8 + 101; 900], n * 7_000).unwrap();
    }
    must(
        "debugfs",
        &["-w", "-R", &format!("write {} other", file.to_str().unwrap()), image.to_str().unwrap()],
    );
    let before = contents(&std::fs::read(&image).unwrap()).unwrap();
    let node = |name: &str| {
        let said = must("debugfs", &["-R", &format!("stat {name}"), image.to_str().unwrap()]);
        let node = said.split("(ETB0):").nth(1).unwrap_or_else(|| panic!("{name}: no tree: {said}"));
        let number = said.split("Inode: ").nth(1).unwrap();
        (first_number(number), first_number(&node.replace(',', " ")))
    };
    let ((pieces, _), (other, theirs)) = (node("pieces"), node("other"));
    assert!(pieces < other, "the owner comes behind");
    // The first index entry of `pieces` leads to the other's node.
    let lead = format!("sif pieces block[4] {theirs}");
    must("debugfs", &["-w", "-R", &lead, image.to_str().unwrap()]);
    let (r, now) = mended(&dir, &std::fs::read(&image).unwrap());
    assert!(r.told.iter().any(|t| t.contains("holds extents of another inode")), "{:?}", r.told);
    assert_eq!(kept(&before, &now), before.files.values().sum::<usize>() - 1, "{:?}", r.told);
}

#[test]
fn a_long_symbolic_link_whose_count_of_blocks_is_wrong_keeps_its_target() {
    let target = |dir: &TempDir, bytes: &[u8]| {
        std::fs::write(dir.path().join("x.img"), bytes).unwrap();
        must("debugfs", &["-R", "cat long", dir.path().join("x.img").to_str().unwrap()])
    };
    for args in [&["-t", "ext2", "-b", "1024"][..], &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"]] {
        let Some((dir, bytes, before)) = damaged(args, "8M", &["sif long blocks 0"]) else { return };
        let (r, now) = mended(&dir, &bytes);
        assert_eq!(now.paths, before.paths);
        assert!(target(&dir, &r.bytes).starts_with(&"t".repeat(300)), "{:?}", r.told);
    }
}

/// Offsets of fields of the superblock.
const ORPHAN_FILE: usize = 1024 + 0x280;

#[test]
fn an_orphan_file_needs_a_journal_and_an_inode() {
    let with = ["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum"];
    let without = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum"];
    for ino in [0, 2, 8, 100_000] {
        let Some((dir, mut bytes, before)) = damaged(&with, "8M", &[]) else { return };
        bytes[ORPHAN_FILE..ORPHAN_FILE + 4].copy_from_slice(&u32::to_le_bytes(ino));
        no_orphan_file(&dir, &bytes, &before);
    }
    let Some((dir, bytes, before)) = damaged(&without, "8M", &["feature orphan_file"]) else { return };
    no_orphan_file(&dir, &bytes, &before);
    let Some((dir, bytes, before)) = damaged(&with, "8M", &["feature -has_journal"]) else { return };
    no_orphan_file(&dir, &bytes, &before);
}

/// Both checks call the volume damaged, and a repair removes the feature.
fn no_orphan_file(dir: &TempDir, bytes: &[u8], before: &Contents) {
    let found = check_bytes(bytes).unwrap();
    assert!(found.problems.iter().any(|p| p.rule == "sb-orphan-file"), "{:?}", found.problems);
    std::fs::write(dir.path().join("x.img"), bytes).unwrap();
    let (clean, said) = judge(&dir.path().join("x.img"));
    assert!(!clean, "{said}");
    let (r, now) = mended(dir, bytes);
    assert!(r.told.iter().any(|t| t.contains("orphan_file") && t.contains("off")), "{:?}", r.told);
    // The file itself may get a name in lost+found.
    let all = before.paths.keys().all(|p| now.paths.contains_key(p));
    assert!(all && kept(before, &now) == before.files.values().sum::<usize>(), "{:?}", r.told);
}

/// Without 64bit the high half of an attribute block's number does not count. The attributes stay when it is cleared.
#[test]
fn attributes_outlive_a_stray_high_half_of_their_block() {
    let args = ["-t", "ext4", "-b", "1024", "-g", "2048", "-I", "128", "-O", "^64bit,^metadata_csum"];
    let value = "v".repeat(200);
    let set = ["write /etc/hostname named", &format!("ea_set named user.key {value}")];
    let Some((dir, bytes, _)) = damaged(&args, "12M", &set) else { return };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    assert!(judge(&image).0);
    let said = must("debugfs", &["-R", "imap named", image.to_str().unwrap()]);
    // "located at block B, offset 0xO"
    let number = |mark: &str, radix| {
        let rest = said.split(mark).nth(1).unwrap();
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        usize::from_str_radix(&rest[..end], radix).unwrap()
    };
    let at = number("at block ", 10) * 1024 + number("offset 0x", 16);
    let mut hurt = bytes.clone();
    hurt[at + 118] = 1;
    std::fs::write(&image, &hurt).unwrap();
    assert!(!judge(&image).0, "e2fsck takes it");
    assert_eq!(
        check_bytes(&hurt).unwrap().problems.iter().map(|p| p.rule).collect::<Vec<_>>(),
        ["inode-unused"]
    );
    let (r, _) = mended(&dir, &hurt);
    assert!(r.told.iter().any(|t| t.contains("i_file_acl_high 1")), "{:?}", r.told);
    let v = open_bytes(&r.bytes).unwrap();
    let named = v.resolve(&Cred::ROOT, b"/named", false).unwrap();
    assert_eq!(v.getxattr(&Cred::ROOT, &named, b"user.key").unwrap(), value.as_bytes());
}
