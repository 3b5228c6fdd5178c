//! Volumes made to mislead: each gets its error at once and in bounded memory.

use crate::rig::*;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::temp::TempDir;
use tidegate_vfs::{Bdi, FileSystem, MemoryLimits, ReadOnly, VolumeOps};

/// A volume of 4 MiB or more, and a directory for further files.
fn volume(args: &[&str], size: &str) -> Option<(TempDir, std::path::PathBuf)> {
    if skip() {
        return None;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, args, size);
    Some((dir, image))
}

/// Runs commands of debugfs on an image.
fn debugfs(image: &Path, commands: &[&str]) {
    let file = image.with_extension("commands");
    std::fs::write(&file, commands.join("\n")).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
}

fn refused(image: &Path, why: &str) {
    let before = std::fs::read(image).unwrap();
    let e = open(image).map(drop).unwrap_err().to_string();
    assert!(e.contains(why), "{e}");
    assert!(std::fs::read(image).unwrap() == before, "it was written");
}

/// The log is counted in the blocks of the old superblock: another block size in the log's superblock would
/// change every number.
#[test]
fn a_journal_does_not_change_the_size_of_blocks() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], "16M") else {
        return;
    };
    let mut block = std::fs::read(&image).unwrap()[..4096].to_vec();
    // First data block, size of blocks and of clusters, blocks and clusters of a group.
    for (at, n) in [(20, 1_u32), (24, 0), (28, 0), (32, 8192), (36, 8192)] {
        block[1024 + at..][..4].copy_from_slice(&n.to_le_bytes());
    }
    let file = image.with_extension("block");
    std::fs::write(&file, block).unwrap();
    debugfs(&image, &["jo", &format!("jw -b 0 {}", file.to_str().unwrap()), "jc"]);
    refused(&image, "in the journal: superblock: blocks of 1024 bytes, and of 4096");
}

#[test]
fn a_journal_is_a_file_with_blocks() {
    for (command, why) in [
        ("set_inode_field <8> flags 0x10080000", "inode 8: it is no file with blocks"),
        ("set_inode_field <8> mode 0040700", "inode 8: it is no file with blocks"),
        ("set_inode_field <8> size 0x10000000", "inode 8: 262144 blocks, the volume has 16384"),
    ] {
        let Some((_dir, image)) = volume(&["-t", "ext4", "-b", "1024"], "16M") else { return };
        debugfs(&image, &["feature needs_recovery", command]);
        refused(&image, why);
    }
}

/// Numbers that lead to the same blocks again and again would make a log of any length from a few blocks.
#[test]
fn a_journal_has_no_block_twice() {
    let Some((_dir, image)) = volume(&["-t", "ext3", "-b", "1024"], "16M") else { return };
    debugfs(
        &image,
        &["feature needs_recovery", "set_inode_field <8> block[5] 200", "set_inode_field <8> block[9] 200"],
    );
    refused(&image, "lies in the blocks of log block");
}

/// A map may lead to one block again and again; a listing of a directory with more blocks than the volume
/// would take hours.
#[test]
fn a_directory_is_no_larger_than_the_volume() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-b", "1024"], "16M") else { return };
    debugfs(&image, &["mkdir d", "set_inode_field d size 0x7ffffc00"]);
    let v = open(&image).unwrap();
    let e = v.lookup(&v.root().unwrap(), b"d").map(drop).unwrap_err().to_string();
    assert!(e.contains("a directory of 2097151 blocks, the volume has 16384"), "{e}");
    v.unmount().unwrap();
}

/// Encrypted bytes are not a file's content, wherever they lie.
#[test]
fn encrypted_content_in_an_inode_is_refused() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-O", "encrypt,inline_data"], "16M") else { return };
    let file = image.with_extension("file");
    std::fs::write(&file, "short").unwrap();
    debugfs(&image, &[&format!("write {} f", file.to_str().unwrap()), "set_inode_field f flags 0x10000800"]);
    let v = open(&image).unwrap();
    let inode = v.lookup(&v.root().unwrap(), b"f").unwrap();
    let e = v.fs().read_pages(&inode, 0, 1).map(drop).unwrap_err().to_string();
    assert!(e.contains("its data is encrypted"), "{e}");
    v.unmount().unwrap();
}

/// An open without recovery does not write to the journal, even if the device could be written.
#[test]
fn without_recovery_nothing_is_written() {
    let Some((_dir, image)) = volume(&["-t", "ext4", "-b", "4096"], "16M") else { return };
    let bytes = std::fs::read(&image).unwrap();
    std::fs::write(image.with_extension("block"), &bytes[4096..8192]).unwrap();
    let block = image.with_extension("block");
    debugfs(&image, &["jo", &format!("jw -b 3000 {}", block.to_str().unwrap()), "jc"]);
    let bytes = std::fs::read(&image).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
    let (_, read) = open_with(&image, Ext4Options::default()).unwrap();
    assert_eq!(read.recovered(), 0, "a journal does not know of files");
    let options = Ext4Options { norecovery: true, ..Default::default() };
    let fs = Ext4::open(queue, Bdi::new(MemoryLimits::default()), options).unwrap();
    assert_eq!(fs.read_only(), Some(ReadOnly::State("what its journal holds is not looked at (norecovery)")));
    fs.unmount().unwrap();
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after);
    assert!(after == bytes, "it was written");
}
