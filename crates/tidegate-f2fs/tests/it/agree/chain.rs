//! Chains of fsynced nodes behind a good checkpoint that cannot be followed, or that name impossible nodes. A
//! repair takes what can be taken, and ends the chain.

use crate::agree::rig::{
    End, ROOT, RW, block, copy, get32, mount, put32, queue, repair_and_follow, set_block, sign, superblock,
};
use crate::common::volume::{FEATURES, Image, template};
use crate::common::watch::within;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, MemoryDevice};
use tidegate_f2fs::open::load_checkpoint;
use tidegate_f2fs::raw::*;
use tidegate_vfs::*;

const NID: usize = FOOTER_OFFSET;
const FLAG: usize = FOOTER_OFFSET + 8;
const INO: usize = FOOTER_OFFSET + 4;
const STAMP: std::ops::Range<usize> = FOOTER_OFFSET + 12..FOOTER_OFFSET + 20;
const NEXT: usize = FOOTER_OFFSET + 20;
/// Offset of the inode's checksum; without checksums, a word of the extent there.
const CHECKSUM: usize = I_CHKSUM_OFFSET;

/// A volume that lost power after fsyncs, and the place of its chain.
struct Crashed {
    device: Arc<MemoryDevice>,
    chain: Vec<u32>,
}

fn put(v: &Arc<Vfs>, path: &str) -> File {
    let f = v.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, &[path.as_bytes()[1]; 9000]).unwrap();
    f
}

/// The first block of the chain, and the stamp that its nodes carry.
fn start(device: &Arc<MemoryDevice>) -> (u32, Vec<u8>) {
    let sb = superblock(device);
    let dynamic: Arc<dyn Device> = device.clone();
    let cp = load_checkpoint(&queue(&dynamic), &sb).unwrap();
    let (seg, off) = (cp.raw.cur_node_segno[1].get(), cp.raw.cur_node_blkoff[1].get());
    let crc = if cp.flags.contains(CpFlags::CRC_RECOVERY) { u64::from(cp.crc) } else { 0 };
    let stamp = cp.version() & 0xffff_ffff | crc << 32;
    (sb.main_blkaddr + seg * BLOCKS_PER_SEG + u32::from(off), stamp.to_le_bytes().to_vec())
}

/// Files that were fsynced after a checkpoint: a direct node and an inode each.
fn crashed(features: &'static str) -> Crashed {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    // The first fsync after mounting is a checkpoint.
    put(&v, "/old").fsync(false).unwrap();
    for path in ["/a", "/old", "/b"] {
        let f = put(&v, path);
        f.write_at(4096 * 1000, b"far").unwrap();
        f.fsync(false).unwrap();
    }
    let cut = Image::of(&device).device();
    v.unmount().unwrap();
    let (mut next, stamp) = start(&cut);
    let mut chain = Vec::new();
    while block(&cut, next)[STAMP] == stamp[..] {
        chain.push(next);
        next = get32(&block(&cut, next), NEXT);
    }
    let numbers = |n: &u32| (get32(&block(&cut, *n), NID), get32(&block(&cut, *n), INO));
    let numbers: Vec<_> = chain.iter().map(numbers).collect();
    assert!(chain.len() == 6 && numbers[3].0 == numbers[3].1, "{numbers:?}");
    Crashed { device: cut, chain }
}

/// A volume that was unmounted, then mounted by another system, and lost power after an old file was fsynced
/// four times: its checkpoint is of a clean unmount.
fn crashed_clean(features: &'static str) -> Crashed {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    let ino = put(&v, "/old").inode().ino.0 as u32;
    v.unmount().unwrap();
    let cut = Image::of(&device).device();
    let (first, stamp) = start(&cut);
    let is_old = |n: &u32| get32(&block(&cut, *n), NID) == ino && get32(&block(&cut, *n), INO) == ino;
    let sb = superblock(&cut);
    let old = (sb.main_blkaddr..sb.main_blkaddr + sb.main_segments * BLOCKS_PER_SEG).rfind(is_old).unwrap();
    let chain: Vec<u32> = (first..first + 4).collect();
    for n in &chain {
        let mut b = block(&cut, old);
        b[STAMP].copy_from_slice(&stamp);
        b[FLAG] |= FSYNC_BIT_MASK as u8;
        put32(&mut b, NEXT, n + 1);
        sign(&sb, &mut b);
        set_block(&cut, *n, &b);
    }
    Crashed { device: cut, chain }
}

type Damage = (&'static str, fn(&mut Vec<(u32, usize, u32)>, &[u32]));

/// Words to set: block of the chain, offset in it, value. Even blocks are direct nodes, odd blocks are
/// inodes.
const DAMAGES: &[Damage] = &[
    ("none", |_, _| ()),
    ("loop to the start", |w, c| w.push((c[3], NEXT, c[0]))),
    ("the first follows itself", |w, c| w.push((c[0], NEXT, c[0]))),
    ("the last leads to the middle", |w, c| w.push((c[c.len() - 1], NEXT, c[1]))),
    ("inode number 0", |w, c| number(w, c, 0)),
    ("inode number 1", |w, c| number(w, c, 1)),
    ("inode number 2", |w, c| number(w, c, 2)),
    ("inode number 3", |w, c| number(w, c, 3)),
    ("direct node with number 0", |w, c| w.push((c[2], NID, 0))),
    ("direct node with number 1", |w, c| w.push((c[2], NID, 1))),
    ("direct node with number 2", |w, c| w.push((c[2], NID, 2))),
    ("direct node with the root's number", |w, c| w.push((c[2], NID, 3))),
    ("direct node with a number too large", |w, c| w.push((c[2], NID, u32::MAX))),
    ("direct node of inode 0", |w, c| w.push((c[2], INO, 0))),
    ("direct node of inode 2", |w, c| w.push((c[2], INO, 2))),
    ("another word where an inode's checksum may be", |w, c| w.push((c[3], CHECKSUM, 0))),
    ("inode that is no node of itself", |w, c| w.push((c[3], NID, 2))),
];

fn number(words: &mut Vec<(u32, usize, u32)>, chain: &[u32], ino: u32) {
    words.extend([(chain[2], INO, ino), (chain[3], INO, ino), (chain[3], NID, ino)]);
}

fn all(crashed: &Crashed, names: &[&str]) {
    let mut bad = Vec::new();
    let sb = superblock(&crashed.device);
    for (name, damage) in DAMAGES {
        let device = copy(&crashed.device);
        let mut words = Vec::new();
        damage(&mut words, &crashed.chain);
        for (n, at, value) in words {
            let mut b = block(&device, n);
            put32(&mut b, at, value);
            if at != CHECKSUM {
                sign(&sb, &mut b);
            }
            set_block(&device, n, &b);
        }
        match within(Duration::from_secs(30), name, move || repair_and_follow(&device)) {
            Ok(End::Good(_, tree)) => {
                let missing: Vec<_> = names.iter().filter(|n| !tree.contains_key(**n)).collect();
                if *name == "none" && !missing.is_empty() {
                    bad.push(format!("{name}: {missing:?} are not there: {tree:?}"));
                }
            }
            Ok(End::Refused(e)) => println!("{name}: refused: {e}"),
            Err(e) => bad.push(format!("{name}: {e}")),
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn a_chain_that_cannot_be_followed_is_ended_by_a_repair() {
    if !crate::agree::skip() {
        all(&crashed(""), &["/old", "/a", "/b"]);
    }
}

#[test]
fn a_chain_that_cannot_be_followed_is_ended_by_a_repair_with_features() {
    if !crate::agree::skip() {
        all(&crashed(FEATURES), &["/old", "/a", "/b"]);
    }
}

#[test]
fn a_chain_behind_a_clean_checkpoint_is_looked_at_too() {
    if !crate::agree::skip() {
        all(&crashed_clean(""), &["/old"]);
    }
}

#[test]
fn a_chain_behind_a_clean_checkpoint_is_looked_at_too_with_features() {
    if !crate::agree::skip() {
        all(&crashed_clean(FEATURES), &["/old"]);
    }
}
