//! Breaks each rule once; the check must report it.

use super::volume::{ALL_FEATURES, Editor, Volume};
use crate::format::raw::*;
use crate::offline::check::rules::{self, *};

/// Whether fsck.f2fs reports the damage, too.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stock {
    Objects,
    Silent,
}
use Stock::*;

pub(crate) type Damage = (&'static str, Stock, fn(&mut Editor<'_>));

fn ino(e: &Editor<'_>, name: &str) -> u32 {
    e.vol.dentry(name).ino
}

/// The byte offset of a file's inode.
fn at(e: &Editor<'_>, name: &str) -> usize {
    e.vol.node(ino(e, name))
}

const A: &str = "name-of-file-0001";
const B: &str = "name-of-file-0002";
const BLOCKS: usize = 24;
const LINKS: usize = 12;
const SIZE: usize = 16;

pub(crate) const CHECKPOINT: &[Damage] = &[
    (SB_COPY, Silent, |e| e.flip(4096 + SUPER_OFFSET + 110)),
    (CP_BLOCKS, Objects, |e| e.checkpoint(|r| r.valid_block_count.set(r.valid_block_count.get() + 1))),
    (CP_NODES, Objects, |e| e.checkpoint(|r| r.valid_node_count.set(r.valid_node_count.get() + 1))),
    (CP_INODES, Objects, |e| e.checkpoint(|r| r.valid_inode_count.set(r.valid_inode_count.get() - 1))),
    (CP_FREE_SEGS, Objects, |e| e.checkpoint(|r| r.free_segment_count.set(r.free_segment_count.get() - 1))),
    (CP_JOURNAL, Silent, |e| e.put16(e.vol.journal(0), 39)),
    (CP_ORPHAN, Silent, |e| e.orphans(&[], 2000)),
    (ORPHAN_LINKED, Silent, |e| e.orphans(&[ino(e, A)], 1)),
    (CP_PACK, Silent, |e| {
        let total = e.vol.cp.raw.cp_pack_total_block_count.get();
        e.put((e.vol.cp.start + total - 3) as usize * 4096 + 4091, &[0]);
    }),
    (CP_CURSEG, Objects, |e| {
        let (segno, next) = (e.vol.cp.raw.cur_data_segno[1].get(), e.vol.cp.raw.cur_data_blkoff[1].get());
        let map = e.vol.sit_entry(segno) + 2 + next as usize / 8;
        e.put(map, &[0xff]);
    }),
    (CP_CURSEG_TYPE, Silent, |e| {
        let log = (0..3).find(|&i| e.vol.cp.raw.cur_data_blkoff[i].get() > 0).unwrap();
        let sit = e.vol.sit_entry(e.vol.cp.raw.cur_data_segno[log].get());
        e.put(sit + 1, &[e.vol.bytes[sit + 1] ^ 4]);
    }),
    (NAT_BITS, Silent, |e| e.flip(nat_bits(e) + 8)),
    (NAT_BITS_KEY, Silent, |e| e.flip(nat_bits(e))),
    (CHAIN, Silent, |e| {
        let at = e.vol.cp.chain_start(&e.vol.sb).0 as usize * 4096 + FOOTER_OFFSET;
        let version = e.vol.cp.node_version();
        // The node and its inode get number 1, written after the checkpoint.
        e.put32(at, 1);
        e.put32(at + 4, 1);
        e.put(at + 12, &version.to_le_bytes());
    }),
];

fn nat_bits(e: &Editor<'_>) -> usize {
    assert!(e.vol.cp.flags.contains(CpFlags::NAT_BITS));
    let blocks = (8 + e.vol.sb.nat_blocks / 4).div_ceil(4096);
    (e.vol.cp.start + 512 - blocks) as usize * 4096
}

pub(crate) const MAPS: &[Damage] = &[
    (NAT_NONE, Objects, |e| e.put32(e.vol.nat_entry(0) + 5, e.vol.sb.main_blkaddr)),
    (NAT_RESERVED, Objects, |e| e.put32(e.vol.nat_entry(1) + 5, 0)),
    (NAT_RESERVED, Objects, |e| e.put32(e.vol.nat_entry(2) + 5, e.vol.sb.main_blkaddr)),
    (NAT_RESERVED, Silent, |e| e.put32(e.vol.nat_entry(2) + 1, 9)),
    (NAT_ADDRESS, Objects, |e| e.put32(e.vol.nat_entry(ino(e, A)) + 5, 7)),
    (NAT_MISSING, Objects, |e| e.put32(e.vol.nat_entry(ino(e, A)) + 5, 0)),
    (NAT_INO, Objects, |e| e.put32(e.vol.nat_entry(ino(e, A)) + 1, ino(e, B))),
    (NAT_SHARED, Objects, |e| {
        e.put32(e.vol.nat_entry(ino(e, A)) + 5, (e.vol.node(ino(e, B)) / 4096) as u32);
    }),
    (NAT_UNREACHED, Objects, |e| {
        let d = e.vol.dentry(A);
        let mut map = e.vol.bytes[d.base..d.base + 27].to_vec();
        (d.slot..d.slot + A.len().div_ceil(8)).for_each(|slot| set_bit_le(&mut map, slot, false));
        e.put(d.base, &map);
    }),
    (SIT_MAP, Objects, |e| e.flip(e.vol.sit_entry(e.vol.segno(e.vol.addr(ino(e, "mid"), 0))) + 12)),
    (SIT_ENTRY, Objects, |e| e.flip(e.vol.sit_entry(e.vol.segno(e.vol.addr(ino(e, "mid"), 0))))),
    (SIT_TYPE, Silent, |e| {
        let sit = e.vol.sit_entry(e.vol.segno(e.vol.addr(ino(e, "mid"), 0)));
        e.put(sit + 1, &[(e.vol.bytes[sit + 1] & 3) | 4 << 2]);
    }),
    (SUM_OWNER, Objects, |e| {
        let (ssa, n) = ssa(e);
        e.flip(ssa + 7 * n);
    }),
    (SUM_TYPE, Silent, |e| {
        let (ssa, _) = ssa(e);
        e.put(ssa + 4091, &[1]);
    }),
];

/// The summary block of a full data segment, and a slot of it that belongs to a file.
fn ssa(e: &Editor<'_>) -> (usize, usize) {
    let logs: Vec<u32> = e.vol.cp.raw.cur_data_segno.iter().map(|s| s.get()).collect();
    let addrs = ["mid", "other"].into_iter().flat_map(|n| (0..768).map(move |i| (n, i)));
    let addr =
        addrs.map(|(n, i)| e.vol.addr(ino(e, n), i)).find(|a| !logs.contains(&e.vol.segno(*a))).unwrap();
    let segno = e.vol.segno(addr);
    ((e.vol.sb.ssa_blkaddr + segno) as usize * 4096, ((addr - e.vol.sb.main_blkaddr) % 512) as usize)
}

/// Sets the casefold flag of the inode at byte `inode`.
fn casefold(e: &mut Editor<'_>, inode: usize) {
    let flags = std::mem::offset_of!(RawInode, i_flags);
    e.put32(inode + flags, e.vol.u32(inode + flags) | 0x4000_0000);
}

pub(crate) const NODES: &[Damage] = &[
    (NODE_FOOTER, Objects, |e| e.flip(at(e, A) + FOOTER_OFFSET)),
    (NODE_OFFSET, Silent, |e| e.flip(at(e, A) + FOOTER_OFFSET + 9)),
    (NODE_NID, Objects, |e| e.put32(at(e, "mid") + I_NID_OFFSET, u32::MAX - 5)),
    (NODE_SHARED, Objects, |e| e.put32(at(e, "mid") + I_NID_OFFSET, 3)),
    (INODE_MODE, Objects, |e| e.put16(at(e, A), 0o644)),
    (INODE_INLINE, Silent, |e| e.put(at(e, "est") + 3, &[inline::DATA])),
    (INODE_RESERVED, Objects, |e| e.put32(at(e, A) + I_ADDR_OFFSET, 5)),
    (INODE_CASEFOLD, Objects, |e| casefold(e, at(e, A))),
    (INODE_COMPRESSED, Silent, |e| e.put32(at(e, A) + std::mem::offset_of!(RawInode, i_flags), 4)),
    (INODE_SIZE, Silent, |e| e.put32(at(e, "many") + SIZE, 4096)),
    (LINK_TARGET, Silent, |e| e.add32(at(e, "symlink") + SIZE, 1)),
    (INODE_BLOCKS, Objects, |e| e.add32(at(e, A) + BLOCKS, 1)),
    (INODE_EXTENT, Objects, |e| {
        let (inode, addr) = (at(e, "mid"), e.vol.addr(ino(e, "mid"), 0));
        e.put32(inode + 348, 0);
        e.put32(inode + 352, addr + 1);
        e.put32(inode + 356, 8);
    }),
    (INODE_NAMELEN, Objects, |e| e.put32(at(e, A) + 88, 256)),
    (LINK_COUNT, Objects, |e| e.put32(at(e, A) + LINKS, 2)),
    (LINK_COUNT, Objects, |e| e.put32(at(e, "linked") + LINKS, 3)),
    (LINK_COUNT, Objects, |e| e.put32(at(e, "deep") + LINKS, 7)),
    (DATA_ADDRESS, Objects, |e| e.put32(at(e, "mid") + I_ADDR_OFFSET + 40, 9)),
    (DATA_SHARED, Objects, |e| {
        e.put32(at(e, "mid") + I_ADDR_OFFSET + 40, e.vol.addr(ino(e, "mid"), 11));
    }),
    (XATTR, Silent, |e| {
        let inode = at(e, A);
        e.put(inode + 3, &[e.vol.bytes[inode + 3] | inline::XATTR]);
        e.put32(inode + I_NID_OFFSET - 200, F2FS_XATTR_MAGIC);
        e.put(inode + I_NID_OFFSET - 200 + 24, &[1, 200, 200, 0]);
    }),
];

pub(crate) const DIRECTORIES: &[Damage] = &[
    (DENTRY_HASH, Silent, |e| e.flip(e.vol.dentry(A).entry)),
    (DENTRY_INO, Objects, |e| e.put32(e.vol.dentry(A).entry + 4, u32::MAX - 3)),
    (DENTRY_NAME, Objects, |e| e.put16(e.vol.dentry(A).entry + 8, 0)),
    (DENTRY_NAME, Silent, |e| e.put(e.vol.dentry(A).name + 2, b"/")),
    (DENTRY_TYPE, Objects, |e| e.put(e.vol.dentry(A).entry + 10, &[file_type::FIFO])),
    (DENTRY_BITMAP, Silent, |e| {
        let d = e.vol.dentry(A);
        let mut map = e.vol.bytes[d.base..d.base + 27].to_vec();
        set_bit_le(&mut map, d.slot + 1, false);
        e.put(d.base, &map);
    }),
    (DENTRY_BUCKET, Silent, |e| {
        let mut names = super::volume::many_names().map(|n| e.vol.dentry(&n));
        let d = names.find(|d| d.index >= 2).unwrap();
        e.put32(d.entry, e.vol.u32(d.entry) ^ 1);
    }),
    (DENTRY_DUPLICATE, Silent, |e| {
        let (a, b) = (e.vol.dentry(A), e.vol.dentry(B));
        e.put(b.name, A.as_bytes());
        e.put32(b.entry, e.vol.u32(a.entry));
    }),
    (DIR_DOTS, Objects, |e| e.put32(e.vol.addr(ino(e, "many"), 0) as usize * 4096 + 30 + 4, 3)),
    (DIR_PARENT, Objects, |e| e.put32(at(e, "est") + 84, 3)),
    (DIR_DEPTH, Silent, |e| e.put32(at(e, "many") + 72, 1)),
    (DIR_LINKED_TWICE, Objects, |e| {
        let d = e.vol.dentry(A);
        e.put32(d.entry + 4, ino(e, "deep"));
        e.put(d.entry + 10, &[file_type::DIR]);
    }),
];

/// One of the many small files.
const SOME_FILE: u32 = 200;

/// Bytes of extra attributes of the inode at byte `inode`.
fn extra(e: &Editor<'_>, inode: usize) -> usize {
    e.vol.u32(inode + I_ADDR_OFFSET) as usize & 0xffff
}

/// The byte offset of the first inode with `size` bytes of content.
fn file_of(e: &Editor<'_>, size: u32) -> usize {
    let mut inodes = (4..e.vol.sb.max_nid).map(|nid| (nid, e.vol.node(nid))).filter(|n| n.1 != 0);
    let is =
        |(nid, at): &(u32, usize)| e.vol.u32(at + FOOTER_OFFSET + 4) == *nid && e.vol.u32(at + SIZE) == size;
    inodes.find(is).unwrap().1
}

pub(crate) const WITH_FEATURES: &[Damage] = &[
    (INODE_CHECKSUM, Objects, |e| e.flip(e.vol.node(SOME_FILE) + 32)),
    (INODE_EXTRA, Silent, |e| e.put16(e.vol.node(SOME_FILE) + I_ADDR_OFFSET, 0xfff0)),
    (INODE_EXTRA, Objects, |e| e.put16(e.vol.node(SOME_FILE) + I_ADDR_OFFSET + 2, 904)),
    (SB_COPY, Silent, |e| e.flip(SUPER_OFFSET + 300)),
    (INODE_RESERVED, Objects, |e| {
        let inode = e.vol.node(SOME_FILE);
        e.put32(inode + I_ADDR_OFFSET + extra(e, inode), 5);
    }),
    // The file is small, and its inode is full of addresses: the end of the addresses must not change.
    (INODE_XATTR_SIZE, Objects, |e| e.put16(e.vol.node(SOME_FILE) + I_ADDR_OFFSET + 2, 0)),
    (INODE_XATTR_SIZE, Objects, |e| e.put16(file_of(e, 3 << 20) + I_ADDR_OFFSET + 2, 0)),
    // The content there is no xattr list: the inode has no xattrs.
    (INODE_XATTR_SIZE, Objects, |e| {
        let inode = e.vol.node(SOME_FILE);
        e.put16(inode + I_ADDR_OFFSET + 2, 0);
        e.put32(inode + I_NID_OFFSET - 200, 77);
    }),
    (INODE_CASEFOLD, Objects, |e| casefold(e, e.vol.node(SOME_FILE))),
];

/// Damage that leaves only a checkpoint without content to fall back on, so that only the check can be tested
/// with it.
const PACKS: &[Damage] = &[(CP_NEWEST, Silent, |e| e.checkpoint(|r| r.user_block_count.set(0)))];

/// Volumes for the check alone.
const CASEFOLDED: &[Damage] = &[(INODE_CASEFOLD, Objects, |e| casefold(e, at(e, A)))];

fn try_all(v: &Volume, table: &[Damage]) {
    for (rule, stock, damage) in table {
        let edits = v.edit(damage);
        let report = v.check(&edits);
        let found: Vec<_> = report.problems.iter().map(|p| (p.rule, &p.text)).collect();
        assert!(found.iter().any(|(r, _)| r == rule), "{rule} not among {found:#?}");
        assert!(found.len() < 150, "{rule}: too much ado: {} problems", found.len());
        if *stock == Objects {
            assert!(v.fsck_objects(&edits), "{rule}: fsck.f2fs finds nothing, we find {found:#?}");
        }
    }
}

#[test]
fn damage_to_the_checkpoint() {
    let Some(v) = Volume::build("") else { return };
    assert!(!v.fsck_objects(&[]));
    try_all(&v, CHECKPOINT);
    try_all(&v, PACKS);
}

#[test]
fn damage_to_nat_sit_ssa() {
    let Some(v) = Volume::build("") else { return };
    try_all(&v, MAPS);
}

#[test]
fn damage_to_nodes() {
    let Some(v) = Volume::build("") else { return };
    try_all(&v, NODES);
}

#[test]
fn damage_to_directories() {
    let Some(v) = Volume::build("") else { return };
    try_all(&v, DIRECTORIES);
}

#[test]
fn damage_where_features_matter() {
    let Some(v) = Volume::build(ALL_FEATURES) else { return };
    try_all(&v, WITH_FEATURES);
}

#[test]
fn damage_where_case_may_be_ignored() {
    let Some(v) = Volume::build("casefold") else { return };
    try_all(&v, CASEFOLDED);
}

#[test]
fn every_rule_is_tried() {
    let tables = [CHECKPOINT, PACKS, MAPS, NODES, DIRECTORIES, WITH_FEATURES].concat();
    let untried: Vec<_> = rules::ALL.iter().filter(|(n, _)| !tables.iter().any(|t| t.0 == *n)).collect();
    assert!(untried.is_empty(), "{untried:?}");
    let mut names: Vec<_> = rules::ALL.iter().map(|r| r.0).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rules::ALL.len());
}
