//! The content of directories and inodes: entries and attributes.

use crate::cases::{Case, block_cases, field_cases};
use crate::fuzz_body::clean;
use crate::runner::run_all;
use std::mem::offset_of;
use tidegate_f2fs::raw::*;

/// Bitmap, entry fields and names where `slots` entries begin at `base` of `block`.
fn dentry_cases(
    what: &str,
    block: u32,
    base: usize,
    map: usize,
    slots: usize,
    gap: usize,
    own: &[u32],
) -> Vec<Case> {
    let s = clean();
    let entries = base + map + gap;
    let names = entries + slots * SIZE_OF_DIR_ENTRY;
    let mut cases = block_cases(what, s, block, base..base + map);
    cases.extend(block_cases(what, s, block, entries..names));
    cases.extend(block_cases(what, s, block, names..names + 64));
    for slot in [0, 1, 2, 5, slots - 1] {
        let at = entries + slot * SIZE_OF_DIR_ENTRY;
        let fields = [("hash", at, 4), ("ino", at + 4, 4), ("name_len", at + 8, 2), ("type", at + 10, 1)];
        let what = format!("{what} slot {slot}");
        cases.extend(field_cases(&what, s, &[block], &fields, own, true));
    }
    for (way, byte) in [("slash", b'/'), ("nul", 0), ("dot", b'.')] {
        let at = block as u64 * BLOCK_SIZE as u64 + (names + 16) as u64;
        cases.push(Case {
            name: format!("{what} name {way}"),
            sample: s,
            patches: vec![(at, vec![byte; 8])],
            fix: true,
        });
    }
    cases
}

#[test]
fn directories() {
    let s = clean();
    let mut cases = Vec::new();
    for dir in ["block-dir", "root"] {
        let inode = s.nodes[&s.inos[dir]];
        let own = [s.inos[dir], s.inos["holes"], 255, 256, 3];
        for n in 0..4 {
            let block = s.word(inode, I_ADDR_OFFSET + 24 + n * 4);
            if block >= s.sb.main_blkaddr && block < u32::MAX - 2 {
                let what = format!("{dir} dentries");
                cases.extend(dentry_cases(
                    &what,
                    block,
                    0,
                    SIZE_OF_DENTRY_BITMAP,
                    NR_DENTRY_IN_BLOCK,
                    3,
                    &own,
                ));
            }
        }
    }
    for dir in ["inline-dir", "root"] {
        // The area holds as many entries as fit behind the extra attributes and before the inline attributes.
        let bytes = (DEF_ADDRS_PER_INODE - 6 - DEFAULT_INLINE_XATTR_ADDRS - DEF_INLINE_RESERVED_SIZE) * 4;
        let slots = bytes * 8 / ((SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * 8 + 1);
        let map = slots.div_ceil(8);
        let gap = bytes - map - slots * (SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN);
        let own = [s.inos[dir], s.inos["holes"], 255, 256, 3];
        let base = I_ADDR_OFFSET + 24 + 4;
        cases.extend(dentry_cases(dir, s.nodes[&s.inos[dir]], base, map, slots, gap, &own));
    }
    run_all(cases);
}

/// The areas that hold attributes: in the inode, and in an xattr node.
#[test]
fn attributes() {
    let s = clean();
    let inode = s.nodes[&s.inos["attrs"]];
    let node = s.nodes[&s.word(inode, offset_of!(RawInode, i_xattr_nid))];
    let mut cases = Vec::new();
    for (what, block, at) in
        [("inline", inode, I_NID_OFFSET - DEFAULT_INLINE_XATTR_ADDRS * 4), ("node", node, 0)]
    {
        let fields = [
            ("magic", at, 4),
            ("refcount", at + 4, 4),
            ("index", at + 24, 1),
            ("name_len", at + 25, 1),
            ("value_size", at + 26, 2),
            ("name", at + 28, 4),
            ("further", at + 50, 2),
            ("further", at + 96, 4),
        ];
        let what = format!("attributes in the {what}");
        cases.extend(field_cases(&what, s, &[block], &fields, &[200, 4000], true));
        cases.extend(block_cases(&what, s, block, at..at + 200));
    }
    run_all(cases);
}
