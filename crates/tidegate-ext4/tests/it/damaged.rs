//! Damaged volumes: whatever their bytes say, a read ends, with an error or without.

use crate::rig::*;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_vfs::{
    Bdi, Cred, ErrorKind, FileType, Inode, MemoryLimits, MountOptions, OpenFlags, Result, Vfs,
};

/// The number of damaged images of each kind: `usual`, or `TIDEGATE_DAMAGED`.
pub fn images(usual: u64) -> u64 {
    std::env::var("TIDEGATE_DAMAGED").map_or(usual, |n| n.parse().expect("TIDEGATE_DAMAGED is a number"))
}

/// Most names that a walk visits; a damaged volume may have directories below themselves.
const NAMES: usize = 400;
/// Most bytes read of a file.
const BYTES: u64 = 256 << 10;
/// Bytes of a piece: damage goes only to pieces in use.
pub const PIECE: usize = 512;

/// A small tree with something of each kind.
pub fn small_tree(at: &Path) {
    let sub = at.join("directory");
    std::fs::create_dir(&sub).unwrap();
    for n in 0..120 {
        std::fs::write(sub.join(format!("name-{n}-{}", "y".repeat(n % 70))), vec![n as u8; n * 3]).unwrap();
    }
    let file = std::fs::File::create_new(at.join("pieces")).unwrap();
    for n in 0..60 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[n as u8 + 1; 700], n * 9_000).unwrap();
    }
    std::os::unix::fs::symlink("t".repeat(20), at.join("short")).unwrap();
    std::os::unix::fs::symlink("t".repeat(300), at.join("long")).unwrap();
    for n in 0..12 {
        let set = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(sub.join("name-7-yyyyyyy"), format!("user.a{n}"), &[n; 40], set).unwrap();
    }
}

/// Reads everything, up to the bounds. An error ends only the file or directory that it is about.
fn read_all(v: &Arc<Vfs>) -> Result<usize> {
    let mut pending = vec![v.root()?];
    let mut seen = 0;
    while let Some(inode) = pending.pop() {
        seen += 1;
        if seen > NAMES {
            break;
        }
        let _ = read_one(v, &inode);
        if !inode.is_dir() {
            continue;
        }
        let mut names = Vec::new();
        let _ = v.readdir(&inode, 0, &mut |e| {
            names.push(e.name);
            names.len() < NAMES
        });
        names.retain(|n| n != b"." && n != b"..");
        pending.extend(names.iter().filter_map(|n| v.lookup(&inode, n).ok()));
        let _ = v.lookup(&inode, b"missing");
    }
    v.statfs();
    Ok(seen)
}

fn read_one(v: &Arc<Vfs>, inode: &Arc<Inode>) -> Result<()> {
    for name in v.listxattr(&Cred::ROOT, inode)? {
        let _ = v.getxattr(&Cred::ROOT, inode, &name);
    }
    match inode.file_type {
        FileType::Symlink => drop(v.readlink(inode)?),
        FileType::Regular => {
            let f = v.open(&Cred::ROOT, inode, OpenFlags::READ)?;
            let _ = f.seek(0, tidegate_vfs::SeekTarget::Hole);
            let mut buf = vec![0; 64 << 10];
            let ends = [0, f.size().saturating_sub(BYTES / 2)];
            for start in ends {
                let (mut at, end) = (start, (start + BYTES / 2).min(f.size()));
                while at < end {
                    match f.read_at(at, &mut buf)? {
                        0 => break,
                        n => at += n as u64,
                    }
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn open_bytes(bytes: &[u8]) -> Result<Arc<Vfs>> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default())?;
    Vfs::mount(fs, bdi, MountOptions::default())
}

/// Changes some bytes in pieces in use; numbers that are near others, small or huge are the likeliest to get
/// far.
pub fn damage(bytes: &mut [u8], used: &[usize], rng: &mut Rng) {
    for _ in 0..1 + rng.below(6) {
        let piece = used[rng.below(used.len() as u64) as usize] * PIECE;
        let at = piece + rng.below(PIECE as u64 / 4) as usize * 4;
        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let new = match rng.below(6) {
            0 => word ^ 1 << rng.below(32),
            1 => word.wrapping_add(1),
            2 => word.wrapping_sub(1),
            3 => rng.below(64) as u32,
            4 => u32::MAX >> rng.below(24),
            _ => rng.below(1 << 32) as u32,
        };
        bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

fn survive(name: &str, args: &[&str]) {
    survive_with(name, args, |_| ());
}

/// Damages and judges a volume that `prepare` has changed.
fn survive_with(name: &str, args: &[&str], prepare: fn(&Path)) {
    if skip() {
        return;
    }
    let dir = scratch();
    let (image, tree) = (dir.path().join("a.img"), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    small_tree(&tree);
    mke2fs(&image, &[args, &["-d", tree.to_str().unwrap()]].concat(), "4M");
    prepare(&image);
    let whole = std::fs::read(&image).unwrap();
    let v = open_bytes(&whole).unwrap();
    let all = read_all(&v).unwrap();
    assert!(all > 120, "{name}: {all} names");
    v.unmount().unwrap();
    // Damage to data of files and to the journal's zeros is useless: most of the used pieces are metadata
    // here.
    let used: Vec<usize> = (0..whole.len() / PIECE)
        .filter(|n| whole[n * PIECE..(n + 1) * PIECE].iter().any(|b| *b != 0))
        .collect();
    let first = asked_seed();
    let (seeds, mut refused) = (first.map_or(0..images(125), |s| s..s + 1), 0);
    for seed in seeds {
        println!("{name}: TIDEGATE_SEED={seed}");
        let mut bytes = whole.clone();
        damage(&mut bytes, &used, &mut Rng::new(seed));
        match open_bytes(&bytes) {
            Ok(v) => {
                let _ = read_all(&v);
                v.unmount().unwrap();
            }
            Err(e) => {
                let told = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
                assert!(told.contains(&e.kind()) && !e.to_string().is_empty(), "{e}");
                refused += 1;
            }
        }
    }
    println!("{name}: {refused} are refused as a whole");
}

#[test]
fn damaged_volumes_with_checksums_are_survived() {
    survive("csum", &["-t", "ext4", "-b", "1024", "-I", "256"]);
}

#[test]
fn damaged_volumes_without_checksums_are_survived() {
    survive("no-csum", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"]);
}

#[test]
fn damaged_volumes_of_ext2_are_survived() {
    survive("ext2", &["-t", "ext2", "-b", "1024", "-O", "dir_index"]);
}

#[test]
fn damaged_volumes_with_inline_data_are_survived() {
    let features = "^metadata_csum,^has_journal,inline_data,ea_inode";
    survive("inline", &["-t", "ext4", "-b", "4096", "-I", "512", "-O", features]);
}

/// Puts the first blocks of a volume, which are metadata, into its journal, too, from which they are read.
fn move_to_journal(image: &Path) {
    const BLOCKS: std::ops::Range<usize> = 1..340;
    let bytes = std::fs::read(image).unwrap();
    let (file, commands) = (image.with_extension("blocks"), image.with_extension("commands"));
    std::fs::write(&file, &bytes[BLOCKS.start * 1024..BLOCKS.end * 1024]).unwrap();
    let write = format!("jw -b {}-{} {}", BLOCKS.start, BLOCKS.end - 1, file.to_str().unwrap());
    std::fs::write(&commands, ["jo", &write, "jc"].join("\n")).unwrap();
    must("debugfs", &["-w", "-f", commands.to_str().unwrap(), image.to_str().unwrap()]);
}

#[test]
fn damaged_volumes_with_a_full_journal_are_survived() {
    survive_with("journal", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], move_to_journal);
}

/// The byte offsets of the block bitmaps of an image's groups, by dumpe2fs.
fn block_bitmaps(image: &Path) -> Vec<u64> {
    let said = must("dumpe2fs", &[image.to_str().unwrap()]);
    let number = |line: &str, what: &str| -> Option<u64> {
        let digits = line.split(what).nth(1)?.trim();
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let size = said.lines().find_map(|l| number(l, "Block size:")).unwrap();
    said.lines().filter_map(|l| number(l, "Block bitmap at ")).map(|block| block * size).collect()
}

fn flip(image: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 8], at).unwrap();
}

/// Groups with a damaged bitmap are passed over. If no other group has room, operations that need a block
/// fail, and all others go on.
#[test]
fn damaged_bitmaps_cost_their_groups_alone() {
    if skip() {
        return;
    }
    const LEN: usize = 300 << 10;
    let dir = scratch();
    let root = |v: &Arc<Vfs>| v.root().unwrap();
    let write = |v: &Arc<Vfs>, name: &[u8], at: u64| {
        let inode = v.lookup(&root(v), name).or_else(|_| v.create(&Cred::ROOT, &root(v), name, 0o644))?;
        let f = v.open(&Cred::ROOT, &inode, OpenFlags::WRITE)?;
        f.write_at(at, &[7; LEN])?;
        f.fsync(false)
    };
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let image = dir.path().join("a.img");
        mke2fs(&image, kind, "32M");
        let bitmaps = block_bitmaps(&image);
        assert_eq!(bitmaps.len(), 4);
        let v = crate::changed::open_to_write(&image);
        write(&v, b"old", 0).unwrap();
        write(&v, b"new", 0).unwrap();
        // A group that was never used has no bitmap.
        let whole = v.create(&Cred::ROOT, &root(&v), b"whole", 0o644).unwrap();
        let f = v.open(&Cred::ROOT, &whole, OpenFlags::WRITE).unwrap();
        f.write_at(0, &vec![7; (18 << 20) - 2 * LEN]).unwrap();
        f.fsync(false).unwrap();
        v.unlink(&Cred::ROOT, &root(&v), b"whole").unwrap();
        drop((f, whole));
        v.unmount().unwrap();
        drop(v);
        bitmaps[..3].iter().for_each(|at| flip(&image, *at));
        let copy = dir.path().join("copy.img");
        std::fs::copy(&image, &copy).unwrap();
        let v = crate::changed::open_to_write(&copy);
        write(&v, b"more", 0).unwrap();
        v.unmount().unwrap();
        drop(v);
        assert_eq!(std::fs::read(&copy).unwrap()[1024 + 0x3a] & 2, 2, "no error is noted");
        flip(&image, bitmaps[3]);
        let v = crate::changed::open_to_write(&image);
        let e = v.mkdir(&Cred::ROOT, &root(&v), b"none", 0o755).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        assert!(e.what().contains("run e2fsck"), "{e}");
        assert_eq!(write(&v, b"new", 1 << 20).unwrap_err().kind(), ErrorKind::NoSpace);
        // Blocks that cannot be allocated are not promised.
        let new = v.lookup(&root(&v), b"new").unwrap();
        let f = v.open(&Cred::ROOT, &new, OpenFlags::WRITE).unwrap();
        assert_eq!(f.write_at(2 << 20, &[7; LEN]).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(v.fs().statfs().blocks_available, 0);
        drop(f);
        assert_eq!(v.fs().read_only(), None);
        write(&v, b"old", 0).unwrap();
        let new = v.lookup(&root(&v), b"new").unwrap();
        v.link(&Cred::ROOT, &new, &root(&v), b"again").unwrap();
        v.sync().unwrap();
        v.unmount().unwrap();
        drop((v, new));
        let v = open(&image).unwrap();
        let mut bytes = vec![0; LEN];
        for name in [&b"old"[..], b"again"] {
            let inode = v.lookup(&root(&v), name).unwrap();
            v.open(&Cred::ROOT, &inode, OpenFlags::READ).unwrap().read_at(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|b| *b == 7));
        }
    }
}

/// Files are truncated and removed even if their blocks cannot be freed, as on Linux. The blocks stay in use
/// until e2fsck checks the volume, whose state asks for that.
#[test]
fn what_cannot_be_freed_stays_in_use() {
    if skip() {
        return;
    }
    const LEN: usize = 300 << 10;
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4"], "32M");
    let bitmaps = block_bitmaps(&image);
    let v = crate::changed::open_to_write(&image);
    let root = v.root().unwrap();
    for name in [b"file", b"gone"] {
        let inode = v.create(&Cred::ROOT, &root, name, 0o644).unwrap();
        let f = v.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
        f.write_at(0, &[7; LEN]).unwrap();
        f.fsync(false).unwrap();
    }
    v.unmount().unwrap();
    drop((v, root));
    bitmaps.iter().for_each(|at| flip(&image, *at));
    let v = crate::changed::open_to_write(&image);
    let root = v.root().unwrap();
    let file = v.lookup(&root, b"file").unwrap();
    let f = v.open(&Cred::ROOT, &file, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    f.truncate(0).unwrap();
    assert_eq!((file.size(), v.fs().read_only()), (0, None));
    v.unlink(&Cred::ROOT, &root, b"gone").unwrap();
    assert_eq!(v.lookup(&root, b"gone").unwrap_err().kind(), ErrorKind::NotFound);
    v.unmount().unwrap();
    drop((v, root, file, f));
    let v = open_bytes(&std::fs::read(&image).unwrap()).unwrap();
    let why = v.fs().read_only().expect("bitmaps are damaged").to_string();
    assert!(why.contains("e2fsck"), "{why}");
    assert_eq!(v.lookup(&v.root().unwrap(), b"file").unwrap().size(), 0);
    v.unmount().unwrap();
    // Inodes, names and link counts are intact.
    let said = mended_by_e2fsck(&image);
    assert!(said.contains("Block bitmap differences") && !said.contains("Inode "), "{said}");
    must_be_clean(&image);
}

/// A block with a name that cannot be is not taken for a good one by what a search has seen of it.
#[test]
fn a_damaged_name_is_told_each_time() {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    mke2fs(&image, &["-t", "ext4", "-O", "^metadata_csum"], "32M");
    let v = crate::changed::open_to_write(&image);
    for name in [&b"before"[..], b"dam-aged"] {
        v.create(&Cred::ROOT, &v.root().unwrap(), name, 0o644).unwrap();
    }
    v.unmount().unwrap();
    drop(v);
    let mut bytes = std::fs::read(&image).unwrap();
    while let Some(at) = bytes.windows(8).position(|w| w == b"dam-aged") {
        bytes[at + 3] = b'/';
    }
    std::fs::write(&image, bytes).unwrap();
    let v = crate::changed::open_to_write(&image);
    let root = v.root().unwrap();
    for _ in 0..3 {
        assert!(v.lookup(&root, b"before").is_ok());
        assert_eq!(v.lookup(&root, b"missing").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(v.create(&Cred::ROOT, &root, b"new", 0o644).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    v.unmount().unwrap();
}
