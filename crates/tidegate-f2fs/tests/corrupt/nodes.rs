//! Inodes and the other nodes.

use crate::cases::{Case, Field, block_cases, field_cases, fields};
use crate::fuzz_body::{clean, mount};
use crate::runner::run_all;
use std::mem::offset_of;
use tidegate_f2fs::raw::*;
use tidegate_vfs::{Cred, ErrorKind};

const INODE: [Field; 17] = fields!(RawInode, 0;
    i_mode 2, i_advise 1, i_inline 1, i_links 4, i_size 8, i_blocks 8, i_current_depth 4, i_xattr_nid 4,
    i_flags 4, i_pino 4, i_namelen 4, i_dir_level 1, i_ext 4, i_atime_nsec 4, i_mtime 8, i_generation 4,
    i_uid 4);

/// Fields of an inode behind its fixed part, and its footer.
const BEHIND: [Field; 12] = [
    ("i_extra_isize", I_ADDR_OFFSET, 2),
    ("i_inline_xattr_size", I_ADDR_OFFSET + 2, 2),
    ("i_addr[0]", I_ADDR_OFFSET + 24, 4),
    ("i_addr[1]", I_ADDR_OFFSET + 28, 4),
    ("i_nid[0]", I_NID_OFFSET, 4),
    ("i_nid[1]", I_NID_OFFSET + 4, 4),
    ("i_nid[2]", I_NID_OFFSET + 8, 4),
    ("i_nid[3]", I_NID_OFFSET + 12, 4),
    ("i_nid[4]", I_NID_OFFSET + 16, 4),
    ("footer.nid", FOOTER_OFFSET, 4),
    ("footer.ino", FOOTER_OFFSET + 4, 4),
    ("footer.flag", FOOTER_OFFSET + 8, 4),
];

/// Each named inode's block, with the numbers that one of its fields might be made to point to.
fn inodes() -> impl Iterator<Item = (&'static str, u32, Vec<u32>)> {
    let s = clean();
    s.inos.iter().map(move |(name, ino)| (*name, s.nodes[ino], vec![*ino, s.nodes[ino], s.inos["holes"]]))
}

#[test]
fn inode_fields() {
    let modes: Vec<u32> = (0..16).map(|kind| kind << 12 | 0o644).collect();
    let inline: Vec<u32> = (0..8).map(|n| 1 << n).chain([0x2f, 0x2e, 0x0f, 0x27]).collect();
    let sizes = [3488, 3489, 4096, u32::MAX];
    let mut cases = Vec::new();
    for (name, block, own) in inodes() {
        cases.extend(field_cases(name, clean(), &[block], &INODE, &own[..1], true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[..1], &modes, true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[3..4], &inline, true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[4..5], &sizes, true));
    }
    run_all(cases);
}

#[test]
fn inode_addresses() {
    let mut cases = Vec::new();
    for (name, block, own) in inodes() {
        cases.extend(field_cases(name, clean(), &[block], &BEHIND, &own, true));
        cases.extend(block_cases(name, clean(), block, I_ADDR_OFFSET + 24..I_NID_OFFSET));
        cases.extend(block_cases(name, clean(), block, 0..BLOCK_SIZE));
    }
    run_all(cases);
}

/// The nodes that are not inodes: they hold addresses, node ids or attributes.
#[test]
fn other_nodes() {
    let s = clean();
    let inos: Vec<u32> =
        s.nodes.keys().copied().filter(|n| s.word(s.nodes[n], FOOTER_OFFSET + 4) == *n).collect();
    let mut cases = Vec::new();
    for (nid, block) in s.nodes.iter().filter(|(n, _)| !inos.contains(n)) {
        let own = [*nid, *block, s.word(*block, FOOTER_OFFSET + 4)];
        let used = (0..1018).find(|n| s.word(*block, n * 4) != 0).unwrap_or(0) * 4;
        let fields =
            [("[0]", 0, 4), ("[used]", used, 4), ("[last]", 1017 * 4, 4), BEHIND[9], BEHIND[10], BEHIND[11]];
        cases.extend(field_cases(&format!("node {nid}"), s, &[*block], &fields, &own, true));
        cases.extend(block_cases(&format!("node {nid}"), s, *block, 0..FOOTER_OFFSET));
        let all: Vec<u8> = nid.to_le_bytes().repeat(1018);
        let patches = vec![(*block as u64 * BLOCK_SIZE as u64, all)];
        cases.push(Case { name: format!("node {nid} all its own"), sample: s, patches, fix: true });
    }
    run_all(cases);
}

/// A lookup does not free an inode that has a name but a link count of 0.
#[test]
fn inodes_without_links() {
    let s = clean();
    for name in ["blocks-0", "inline-dir"] {
        let at = s.nodes[&s.inos[name]] as usize * BLOCK_SIZE + offset_of!(RawInode, i_links);
        let device = s.damaged(&[(at as u64, vec![0; 4])], true);
        for round in 0..2 {
            let v = mount(device.clone()).unwrap();
            let looked = v.resolve(&Cred::ROOT, format!("/{name}").as_bytes(), true);
            let opened = looked.and_then(|i| v.open(&Cred::ROOT, &i, tidegate_vfs::OpenFlags::READ));
            assert_eq!(opened.map(drop).map_err(|e| e.kind()), Err(ErrorKind::Corrupt), "{name}");
            v.create(&Cred::ROOT, &v.root().unwrap(), format!("new-{round}").as_bytes(), 0o644).unwrap();
            v.unmount().unwrap();
        }
    }
}
