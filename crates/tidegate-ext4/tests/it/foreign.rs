//! Maps that lead to blocks which are not the file's: another file's, or the volume's own tables. No such
//! block is freed, and everything else goes on.

use crate::changed::open_to_write;
use crate::rig::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::temp::TempDir;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const BLOCK: usize = 1024;
const PUNCH: u32 = 3;

fn debugfs(image: &Path, commands: &[&str]) -> String {
    let file = image.with_extension("commands");
    std::fs::write(&file, commands.join("\n")).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()])
}

/// The first number behind some words that debugfs prints.
fn number(image: &Path, command: &str, words: &str) -> u64 {
    first_number(&must("debugfs", &["-R", command, image.to_str().unwrap()]), words)
}

/// The block of a file, by debugfs.
fn bmap(image: &Path, name: &str, block: u64) -> u64 {
    let said = bytes_of("debugfs", &["-R", &format!("bmap /{name} {block}"), image.to_str().unwrap()]);
    String::from_utf8(said).unwrap().trim().parse().unwrap()
}

/// The first number behind some words that dumpe2fs prints.
fn told(image: &Path, words: &str) -> u64 {
    first_number(&must("dumpe2fs", &[image.to_str().unwrap()]), words)
}

fn first_number(said: &str, words: &str) -> u64 {
    let rest = said.split(words).nth(1).unwrap_or_else(|| panic!("{words}: {said}"));
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok());
    numbers.next().unwrap()
}

fn write(v: &Arc<Vfs>, name: &str, pieces: u64) -> File {
    let inode = v.create(ROOT, &v.root().unwrap(), name.as_bytes(), 0o644).unwrap();
    let f = v.open(ROOT, &inode, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    for n in 0..pieces {
        f.write_at(n * 8192, &[n as u8 + 1; BLOCK]).unwrap();
    }
    f.fsync(false).unwrap();
    f
}

fn open_file(v: &Arc<Vfs>, name: &str) -> File {
    open_as(v, name, OpenFlags::READ | OpenFlags::WRITE)
}

fn open_as(v: &Arc<Vfs>, name: &str, flags: OpenFlags) -> File {
    let inode = v.lookup(&v.root().unwrap(), name.as_bytes()).unwrap();
    v.open(ROOT, &inode, flags).unwrap()
}

fn is_whole(v: &Arc<Vfs>, name: &str, pieces: u64) -> bool {
    let (f, mut bytes) = (open_as(v, name, OpenFlags::READ), [0; BLOCK]);
    (0..pieces).all(|n| f.read_at(n * 8192, &mut bytes).is_ok() && bytes == [n as u8 + 1; BLOCK])
}

/// A volume with two files whose maps have blocks of their own.
fn volume(args: &[&str]) -> Option<(TempDir, std::path::PathBuf)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &[&["-b", "1024", "-J", "size=1"], args].concat(), "16M");
    let v = open_to_write(&image);
    drop((write(&v, "bad", 60), write(&v, "good", 60)));
    v.unmount().unwrap();
    Some((dir, image))
}

/// Puts bytes into a block of the image.
fn put(image: &Path, block: u64, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    file.write_all_at(bytes, block * BLOCK as u64 + at).unwrap();
}

/// The file "bad" is neither truncated nor freed, with an error, and nothing else is changed.
fn frees_nothing(what: &str, image: &Path) {
    let v = open_to_write(image);
    let free = v.fs().statfs().blocks_free;
    let f = open_file(&v, "bad");
    let refused = |r: Result<()>| {
        let e = r.expect_err(what);
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{what}: {e}");
    };
    refused((0..60).try_for_each(|n| f.read_at(n * 8192, &mut [0; BLOCK]).map(drop)));
    refused(f.truncate(0));
    refused(f.fallocate(FallocateFlags::from_bits(PUNCH).unwrap(), 0, 1 << 20));
    assert_eq!(v.fs().statfs().blocks_free, free, "{what}");
    drop(f);
    // The name is removed, and the inode stays for e2fsck.
    v.unlink(ROOT, &v.root().unwrap(), b"bad").unwrap();
    assert_eq!((v.fs().statfs().blocks_free, v.fs().read_only()), (free, None), "{what}");
    // No other file gets its blocks.
    v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap();
    drop(write(&v, "new", 200));
    assert!(is_whole(&v, "good", 60) && is_whole(&v, "new", 200), "{what}");
    v.unmount().unwrap();
    drop(v);
    let said = mended_by_e2fsck(image);
    must_be_clean(image);
    let v = open(image).unwrap();
    assert!(is_whole(&v, "good", 60) && is_whole(&v, "new", 200), "{what}: {said}");
    v.unmount().unwrap();
}

/// The leaf below the root of the file "bad".
fn leaf_of_bad(image: &Path) -> u64 {
    number(image, "stat /bad", "(ETB0):")
}

/// Makes entry 30 of that leaf lead elsewhere.
fn lead_to(image: &Path, block: u64) {
    put(image, leaf_of_bad(image), 12 + 30 * 12 + 8, &(block as u32).to_le_bytes());
}

/// Blocks of the volume's own tables, one of each kind.
fn tables(image: &Path) -> Vec<(&'static str, u64)> {
    let mut found = vec![
        ("an inode table", told(image, "Inode table at ") + 3),
        ("a block bitmap", told(image, "Block bitmap at ")),
        ("an inode bitmap", told(image, "Inode bitmap at ")),
        ("descriptors", told(image, "Group descriptors at ")),
        ("a copy of the superblock", told(image, "Backup superblock at ")),
        ("room for descriptors", told(image, "Reserved GDT blocks at ") + 2),
    ];
    if must("dumpe2fs", &["-h", image.to_str().unwrap()]).contains("Journal inode") {
        let said = must("debugfs", &["-R", "bmap <8> 100", image.to_str().unwrap()]);
        found.push(("the journal", said.lines().find_map(|l| l.trim().parse().ok()).unwrap()));
    }
    found
}

#[test]
fn a_leaf_whose_checksum_is_wrong_frees_nothing() {
    let Some((_dir, image)) = volume(&["-t", "ext4"]) else { return };
    lead_to(&image, bmap(&image, "good", 0));
    frees_nothing("a leaf", &image);
}

#[test]
fn extents_in_the_volumes_tables_free_nothing() {
    let Some((dir, image)) = volume(&["-t", "ext4", "-O", "^metadata_csum"]) else { return };
    for (what, block) in tables(&image) {
        let copy = dir.path().join("copy.img");
        std::fs::copy(&image, &copy).unwrap();
        lead_to(&copy, block);
        frees_nothing(what, &copy);
    }
}

#[test]
fn numbers_in_the_volumes_tables_free_nothing() {
    let Some((dir, image)) = volume(&["-t", "ext3"]) else { return };
    for (what, block) in tables(&image) {
        // The wrong number is in the inode, or in a block of numbers, or leads to such a block.
        for place in ["8", "80", "IND"] {
            let copy = dir.path().join("copy.img");
            std::fs::copy(&image, &copy).unwrap();
            match place {
                "80" => {
                    put(&copy, number(&copy, "stat /bad", "(IND):"), 4 * 68, &(block as u32).to_le_bytes())
                }
                _ => drop(debugfs(&copy, &[&format!("sif bad block[{place}] {block}")])),
            }
            frees_nothing(&format!("{what}, block {place}"), &copy);
        }
    }
}

/// A node that leads to itself, and a node with blocks outside its parent's range.
#[test]
fn a_tree_without_end_frees_nothing() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-O", "^metadata_csum"]) else { return };
    let (leaf, node) = (leaf_of_bad(&image) as u32, bmap(&image, "bad", 0) as u32);
    let entry = |first: u32, addr: u32| [first.to_le_bytes(), addr.to_le_bytes(), [0; 4]].concat();
    let header = |entries: u8, max: u8, depth: u8| vec![0x0a, 0xf3, entries, 0, max, 0, depth, 0, 0, 0, 0, 0];
    put(&image, node.into(), 0, &[header(2, 84, 1), entry(0, node), entry(1000, leaf)].concat());
    // The root has one entry of four, two levels above the leaves.
    let node = node.to_string();
    let words = ["0x1f30a", "0x20004", "0", "0", &node, "0"];
    let set = words.iter().enumerate().map(|(n, word)| format!("sif bad block[{n}] {word}"));
    debugfs(&image, &set.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>());
    frees_nothing("a tree", &image);
}

/// An inode whose attributes would lie in a table is refused as a whole.
#[test]
fn attributes_in_the_volumes_tables_are_refused() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-O", "^metadata_csum"]) else { return };
    debugfs(&image, &[&format!("sif bad file_acl {}", told(&image, "Inode table at ") + 3)]);
    let v = open_to_write(&image);
    let (root, free) = (v.root().unwrap(), v.fs().statfs().blocks_free);
    assert_eq!(v.lookup(&root, b"bad").map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(v.unlink(ROOT, &root, b"bad").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!((v.fs().statfs().blocks_free, v.fs().read_only()), (free, None));
    drop(root);
    v.unmount().unwrap();
}

/// Values that overlap are read, as on Linux. The inode has no room for each value separately, so nothing is
/// changed.
#[test]
fn values_of_attributes_that_lie_in_each_other_are_not_changed() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-b", "4096", "-I", "1024", "-O", "^metadata_csum"], "16M");
    let v = open_to_write(&image);
    let f = write(&v, "f", 1);
    let name = |n: u8| [b"user.", &[b'a' + n][..]].concat();
    for n in 0..6 {
        v.setxattr(ROOT, f.inode(), &name(n), Some(&[n; 16]), XattrFlags::empty()).unwrap();
    }
    drop(f);
    v.unmount().unwrap();
    drop(v);
    let (block, offset) = (
        number(&image, "imap /f", "at block "),
        must("debugfs", &["-R", "imap /f", image.to_str().unwrap()]),
    );
    let offset = offset.split("offset 0x").nth(1).unwrap().split_whitespace().next().unwrap();
    // The entries lie behind the fields and the magic number; each has 20 bytes.
    let first = block * 4096 + u64::from_str_radix(offset, 16).unwrap() + 128 + 32 + 4;
    let bytes = std::fs::read(&image).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    for n in 0..6 {
        let at = first + 20 * n;
        assert_eq!(bytes[at as usize..][..2], [1, 1], "an entry");
        file.write_all_at(&460_u16.to_le_bytes(), at + 2).unwrap();
        file.write_all_at(&400_u32.to_le_bytes(), at + 8).unwrap();
    }
    let v = open_to_write(&image);
    let f = v.lookup(&v.root().unwrap(), b"f").unwrap();
    assert_eq!(v.getxattr(ROOT, &f, &name(5)).unwrap().len(), 400);
    let refused = |r: Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::Corrupt);
    refused(v.setxattr(ROOT, &f, &name(0), None, XattrFlags::empty()));
    refused(v.setxattr(ROOT, &f, &name(1), Some(b"short"), XattrFlags::empty()));
    refused(v.setxattr(ROOT, &f, b"user.new", Some(&[7; 300]), XattrFlags::empty()));
    assert_eq!((v.listxattr(ROOT, &f).unwrap().len(), v.fs().read_only()), (6, None));
    drop(f);
    v.unmount().unwrap();
    drop(v);
    // A value whose padding goes beyond the end is not read.
    file.write_all_at(&458_u16.to_le_bytes(), first + 2).unwrap();
    file.write_all_at(&402_u32.to_le_bytes(), first + 8).unwrap();
    let v = open_to_write(&image);
    let f = v.lookup(&v.root().unwrap(), b"f").unwrap();
    assert_eq!(v.getxattr(ROOT, &f, &name(5)).unwrap_err().kind(), ErrorKind::Corrupt);
    v.unlink(ROOT, &v.root().unwrap(), b"f").unwrap();
    drop(f);
    assert_eq!(v.fs().read_only(), None);
    v.unmount().unwrap();
}

/// If two tables share a block, a write of one destroys the other.
#[test]
fn tables_that_lie_in_each_other_are_not_changed() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-O", "^metadata_csum"]) else { return };
    debugfs(&image, &[&format!("set_bg 1 inode_table {}", told(&image, "Inode table at ") + 3)]);
    let before = std::fs::read(&image).unwrap();
    let queue = RequestQueue::new(Arc::new(MemoryDevice::from_bytes(&before)), QueueLimits::default());
    let fs = Ext4::open(Arc::new(queue), Bdi::new(MemoryLimits::default()), Ext4Options::default()).unwrap();
    let why = fs.read_only().expect("two tables have blocks").to_string();
    assert!(why.contains("tables of its groups lie in each other") && why.contains("e2fsck"), "{why}");
    let v = open(&image).unwrap();
    assert!(is_whole(&v, "bad", 60));
    v.unmount().unwrap();
}
