//! In a partly damaged volume, the rest can be read.

use crate::rig::{Rig, block, cannot_mount, is_ext4};
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

const BLOCK: usize = 4096;
/// The places of a name's length and of the name in an inode's block.
const NAMELEN: usize = 88;
const NAME: usize = 92;

/// Overwrites the inode of "d/`name`".
fn damage(image: &Path, name: &str) {
    let mut bytes = std::fs::read(image).unwrap();
    if is_ext4() {
        let at = place_in_ext4(image, &format!("/d/{name}"));
        bytes[at..at + 128].fill(0xa5);
    } else {
        damage_f2fs(&mut bytes, name);
    }
    std::fs::write(image, bytes).unwrap();
}

/// The place where debugfs finds an inode: "… located at block 37, offset 0x0200".
fn place_in_ext4(image: &Path, path: &str) -> usize {
    let program = tidegate_testing::oracle::require("debugfs").unwrap();
    let out = Command::new(program).args(["-R", &format!("imap {path}")]).arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let (at, offset) =
        said.split_once("located at block ").and_then(|s| s.1.split_once(", offset 0x")).unwrap();
    at.parse::<usize>().unwrap() * block() as usize + usize::from_str_radix(offset.trim(), 16).unwrap()
}

/// Overwrites the inode of F2FS whose own name is `name`.
fn damage_f2fs(bytes: &mut [u8], name: &str) {
    let mut found = 0;
    for block in bytes.chunks_exact_mut(BLOCK) {
        let len = name.len() as u32;
        if block[NAMELEN..NAME] == len.to_le_bytes() && block[NAME..].starts_with(name.as_bytes()) {
            block.fill(0xa5);
            found += 1;
        }
    }
    assert!(found > 0);
}

fn names(dir: &Path) -> HashSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_damaged_inode_hides_no_other() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let dir = rig.dir.join("d");
    std::fs::create_dir(&dir).unwrap();
    let want: HashSet<String> = (0..200).map(|i| format!("name-{i}")).collect();
    want.iter().for_each(|n| std::fs::write(dir.join(n), n).unwrap());
    assert!(rig.unmount());
    damage(&rig.image, "name-77");
    for words in ["", "transport=dev"] {
        rig.mount(words).unwrap();
        assert_eq!(names(&dir), want, "{words}");
        // `ls -l` asks for the attributes of each file.
        let out = Command::new("ls").arg("-l").arg(&dir).output().unwrap();
        let listed = String::from_utf8_lossy(&out.stdout).lines().filter(|l| l.contains("name-")).count();
        assert_eq!(listed, want.len(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(std::fs::read(dir.join("name-77")).is_err());
        assert_eq!(std::fs::read(dir.join("name-78")).unwrap(), b"name-78");
        assert!(rig.unmount(), "{words}");
    }
}

/// Overwrites the block of a directory that holds the entry `name`, and others.
fn damage_entries(image: &Path, name: &str) {
    let mut bytes = std::fs::read(image).unwrap();
    let count = |block: &[u8], of: &[u8]| block.windows(of.len()).filter(|w| *w == of).count();
    let holds = |b: &&mut [u8]| count(b, b"name-") > 1 && count(b, name.as_bytes()) > 0;
    let found: Vec<&mut [u8]> = bytes.chunks_exact_mut(block() as usize).filter(holds).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|b| b.fill(0xa5));
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn names_before_a_fault_are_listed() {
    if cannot_mount() {
        return;
    }
    let mut rig = Rig::new(256, "");
    let dir = rig.dir.join("d");
    std::fs::create_dir(&dir).unwrap();
    // Long names fill several blocks, and are yet so few that the fault is met in the first step of a listing.
    let name = |i| format!("name-{i:03}-{}", "x".repeat(200));
    (0..30).for_each(|i| drop(std::fs::File::create(dir.join(name(i))).unwrap()));
    let listed = || -> (Vec<String>, usize) {
        let (mut all, mut failed) = (Vec::new(), 0);
        for e in std::fs::read_dir(&dir).unwrap() {
            match e {
                Ok(e) => all.push(e.file_name().into_string().unwrap()),
                Err(_) => failed += 1,
            }
        }
        (all, failed)
    };
    let (before, failed) = listed();
    assert_eq!((before.len(), failed), (30, 0));
    assert!(rig.unmount());
    damage_entries(&rig.image, &before[29]);
    rig.mount("ro").unwrap();
    let (after, failed) = listed();
    assert!(failed > 0 && !after.is_empty() && before.starts_with(&after), "{} names", after.len());
}
