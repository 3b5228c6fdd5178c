//! The largest extent that an inode remembers: after a repair, its blocks are where it says, or there is
//! none.

use crate::agree::rig::*;
use crate::common::volume::{FEATURES, Image, template};
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice};
use tidegate_f2fs::gate::Superblock;
use tidegate_f2fs::open::load_checkpoint;
use tidegate_f2fs::raw::*;
use tidegate_vfs::*;

const EXT: usize = std::mem::offset_of!(RawInode, i_ext);
const NAME: usize = std::mem::offset_of!(RawInode, i_name);
const BLOCKS: u64 = 40;

/// Files `a` and `b` of consecutive blocks, `holes` of every other one, `inline`, `large` with direct nodes; a
/// directory and a link with blocks of their own.
fn scene(features: &'static str) -> (Arc<MemoryDevice>, Superblock, Tree) {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    for (name, step) in [("a", 1), ("b", 1), ("holes", 2)] {
        let f = v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
        for n in (0..BLOCKS).step_by(step) {
            f.write_at(n * 4096, &[name.as_bytes()[0] + n as u8; 4096]).unwrap();
        }
        f.fsync(false).unwrap();
    }
    let f = v.open_path(ROOT, b"inline", RW | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, b"inline").unwrap();
    drop(f);
    let top = v.root().unwrap();
    let dir = v.mkdir(ROOT, &top, b"dir", 0o755).unwrap();
    for n in 0..400 {
        v.create(ROOT, &dir, format!("name-{n:05}-that-is-not-short").as_bytes(), 0o644).unwrap();
    }
    v.symlink(ROOT, &top, b"link", &[b'x'; 3900]).unwrap();
    let f = v.open_path(ROOT, b"large", RW | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, &[5; 1300 * 4096]).unwrap();
    drop((f, top, dir));
    v.sync().unwrap();
    let tree = walk(&v).unwrap();
    v.unmount().unwrap();
    let device = Image::of(&device).device();
    let sb = superblock(&device);
    (device, sb, tree)
}

/// The blocks of file `name`'s inode, as the NAT's block or its journal says.
fn inodes(device: &Arc<MemoryDevice>, sb: &Superblock, name: &str) -> Vec<u32> {
    let dynamic: Arc<dyn Device> = device.clone();
    let cp = load_checkpoint(&queue(&dynamic), sb).unwrap();
    let mut addrs = std::collections::BTreeMap::new();
    for n in 0..3u32 {
        let second = test_bit_msb(&cp.nat_bitmap, n as usize);
        let at = sb.nat_blkaddr + n + if second { BLOCKS_PER_SEG } else { 0 };
        let b = block(device, at);
        for i in 0..NAT_ENTRY_PER_BLOCK {
            addrs.insert(n * NAT_ENTRY_PER_BLOCK as u32 + i as u32, get32(&b, i * 9 + 5));
        }
    }
    // A journal has a count, then entries of number, version, inode, address.
    let sums = block(device, cp.start + cp.raw.cp_pack_start_sum.get());
    let at = if cp.flags.contains(CpFlags::COMPACT_SUM) { 0 } else { 512 * 7 };
    for i in 0..usize::from(u16::from_le_bytes([sums[at], sums[at + 1]])) {
        let e = at + 2 + i * 13;
        addrs.insert(get32(&sums, e), get32(&sums, e + 9));
    }
    let named = |(nid, at): &(u32, u32)| {
        let b = block(device, *at);
        *at >= sb.main_blkaddr
            && get32(&b, FOOTER_OFFSET) == *nid
            && &b[NAME..NAME + name.len()] == name.as_bytes()
            && b[NAME + name.len()] == 0
    };
    let found: Vec<u32> = addrs.into_iter().filter(named).map(|e| e.1).collect();
    assert_eq!(found.len(), 1, "inodes of {name}");
    found
}

/// An inode's extent, if its block map does not have it.
fn wrong(b: &[u8]) -> Option<String> {
    let [first, at, len] = [0, 4, 8].map(|n| get32(b, EXT + n));
    let is_inline = b[3] & inline::DATA != 0;
    let addr = |n: u32| (n < 800 && !is_inline).then(|| get32(b, addrs_at(b) + 4 * n as usize));
    let right = (0..len).all(|n| first.checked_add(n).and_then(addr) == at.checked_add(n));
    (!right).then(|| format!("first block {first}, address {at}, length {len}"))
}

type Damage = (&'static str, &'static str, fn(&mut [u8]));

fn set(b: &mut [u8], extent: [u32; 3]) {
    extent.into_iter().enumerate().for_each(|(n, v)| put32(b, EXT + 4 * n, v));
}

fn add(b: &mut [u8], at: usize, n: u32) {
    let was = get32(b, at);
    put32(b, at, was.wrapping_add(n));
}

const DAMAGES: &[Damage] = &[
    ("none", "a", |_| ()),
    ("one longer", "a", |b| add(b, EXT + 8, 1)),
    ("longer than the volume", "a", |b| put32(b, EXT + 8, 0x7fff_ffff)),
    ("the largest length", "a", |b| put32(b, EXT + 8, u32::MAX)),
    ("one block on", "a", |b| add(b, EXT + 4, 1)),
    ("in the metadata", "a", |b| put32(b, EXT + 4, 600)),
    ("behind the volume", "a", |b| put32(b, EXT + 4, 0x0fff_ffff)),
    ("one block on in the file", "a", |b| add(b, EXT, 1)),
    ("the largest block of the file", "a", |b| put32(b, EXT, u32::MAX)),
    ("over holes", "holes", |b| {
        let at = get32(b, addrs_at(b));
        set(b, [0, at, 20]);
    }),
    ("of an inline file", "inline", |b| set(b, [0, 5000, 3])),
    ("of a directory, in the metadata", "dir", |b| set(b, [0, 600, 3])),
    ("of a directory, of another's blocks", "dir", |b| set(b, [0, 4700, 3])),
    ("of a link, in the metadata", "link", |b| set(b, [0, 600, 1])),
    ("of a link, too long", "link", |b| {
        let at = get32(b, addrs_at(b));
        set(b, [0, at, 7]);
    }),
    ("over a direct node that is another's", "large", |b| put32(b, I_NID_OFFSET, 4)),
    ("over a direct node that is none", "large", |b| put32(b, I_NID_OFFSET, 0)),
    ("over direct nodes that changed places", "large", |b| {
        let (x, y) = (get32(b, I_NID_OFFSET), get32(b, I_NID_OFFSET + 4));
        put32(b, I_NID_OFFSET, y);
        put32(b, I_NID_OFFSET + 4, x);
    }),
    // A repair that changes the block map must change the extent, too.
    ("an address in its middle outside the volume", "a", |b| put32(b, addrs_at(b) + 40, 0x0fff_0000)),
    ("an address in its middle in the metadata", "a", |b| put32(b, addrs_at(b) + 40, 600)),
    ("its first address gone", "a", |b| put32(b, addrs_at(b), 0)),
    ("an address in its middle new", "a", |b| put32(b, addrs_at(b) + 40, u32::MAX)),
];

fn all(features: &'static str) {
    if crate::agree::skip() {
        return;
    }
    let (base, sb, before) = scene(features);
    let mut bad = Vec::new();
    assert!(inodes(&base, &sb, "a").iter().all(|n| get32(&block(&base, *n), EXT + 8) >= 30), "no extent");
    for (name, file, damage) in DAMAGES {
        let device = copy(&base);
        for n in inodes(&device, &sb, file) {
            let mut b = block(&device, n);
            damage(&mut b);
            sign(&sb, &mut b);
            set_block(&device, n, &b);
        }
        let repaired = copy(&device);
        if let Err(e) = run_repair(repaired.clone()) {
            println!("{name}: refused: {e}");
            continue;
        }
        for other in ["a", "b", "holes", "inline", "dir", "link"] {
            for n in inodes(&repaired, &sb, other) {
                let found = wrong(&block(&repaired, n));
                bad.extend(found.map(|e| format!("{name}: after the repair, {other} has {e}")));
            }
        }
        match repair_and_follow(&device) {
            Ok(End::Good(_, tree)) => {
                let same = |(path, text): &(&String, &String)| {
                    before.get(*path) == Some(*text)
                        || name.contains("address") && path.ends_with("/a")
                        || name.contains("direct node") && path.ends_with("/large")
                };
                let differ: Vec<_> = tree.iter().filter(|e| !same(e)).collect();
                if !differ.is_empty() {
                    bad.push(format!("{name}: other content: {differ:?}"));
                }
            }
            Ok(End::Refused(e)) => println!("{name}: refused: {e}"),
            Err(e) => bad.push(format!("{name}: {e}")),
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn an_extent_agrees_with_the_blocks_after_a_repair() {
    all("");
}

#[test]
fn an_extent_agrees_with_the_blocks_after_a_repair_with_features() {
    all(FEATURES);
}
