//! The superblock, the checkpoint packs, the tables.

use crate::cases::{Field, block_cases, field_cases, fields, orphaned, whole_blocks};
use crate::fuzz_body::{Sample, clean, mount};
use crate::runner::run_all;
use std::mem::offset_of;
use tidegate_block::{Device, MemoryDevice};
use tidegate_f2fs::raw::*;
use tidegate_vfs::ErrorKind;

#[test]
fn superblock() {
    let fields = fields!(RawSuperblock, SUPER_OFFSET;
        magic 4, major_ver 2, log_sectorsize 4, log_sectors_per_block 4, log_blocksize 4,
        log_blocks_per_seg 4, segs_per_sec 4, secs_per_zone 4, checksum_offset 4, block_count 8,
        section_count 4, segment_count 4, segment_count_ckpt 4, segment_count_sit 4, segment_count_nat 4,
        segment_count_ssa 4, segment_count_main 4, segment0_blkaddr 4, cp_blkaddr 4, sit_blkaddr 4,
        nat_blkaddr 4, ssa_blkaddr 4, main_blkaddr 4, root_ino 4, node_ino 4, meta_ino 4,
        extension_count 4, cp_payload 4, feature 4, devs 1, hot_ext_count 1, qf_ino 4);
    let mut cases = field_cases("superblock", clean(), &[0, 1], &fields, &[2, 3], true);
    cases.extend(field_cases("superblock 0", clean(), &[0], &fields[..4], &[], false));
    cases.extend(whole_blocks("superblock 0", clean(), &[0]));
    run_all(cases);
}

const CHECKPOINT: [Field; 18] = fields!(RawCheckpoint, 0;
    checkpoint_ver 8, user_block_count 8, valid_block_count 8, rsvd_segment_count 4,
    overprov_segment_count 4, free_segment_count 4, cur_node_segno 4, cur_node_blkoff 2, cur_data_segno 4,
    cur_data_blkoff 2, ckpt_flags 4, cp_pack_total_block_count 4, cp_pack_start_sum 4, valid_node_count 4,
    valid_inode_count 4, next_free_nid 4, sit_ver_bitmap_bytesize 4, nat_ver_bitmap_bytesize 4);

/// Heads and tails of those packs that are whole.
fn heads(s: &Sample) -> Vec<u32> {
    let packs = [s.cp.start, s.sb.cp_blkaddr * 2 + BLOCKS_PER_SEG - s.cp.start];
    let total = offset_of!(RawCheckpoint, cp_pack_total_block_count);
    let ends = |p: u32| [p, p + s.word(p, total).clamp(2, BLOCKS_PER_SEG) - 1];
    packs.into_iter().flat_map(ends).collect()
}

#[test]
fn checkpoint_heads() {
    let mut cases = Vec::new();
    for (what, s) in [("checkpoint", clean()), ("orphaned checkpoint", orphaned())] {
        let heads = heads(s);
        cases.extend(field_cases(what, s, &heads, &CHECKPOINT, &[0x100, 0x4ff], true));
        // Each flag is changed by itself.
        let flags = [("ckpt_flags", offset_of!(RawCheckpoint, ckpt_flags), 4)];
        let bits: Vec<u32> = (0..16).map(|n| s.cp.flags.bits() ^ 1 << n).collect();
        cases.extend(field_cases(what, s, &heads[..2], &flags, &bits, true));
        cases.extend(field_cases(what, s, &heads[..2], &CHECKPOINT[..4], &[], false));
        cases.extend(field_cases(&format!("{what} tail"), s, &heads[1..2], &CHECKPOINT[..1], &[], true));
        let alloc_type = offset_of!(RawCheckpoint, alloc_type);
        let offset = offset_of!(RawCheckpoint, checksum_offset);
        cases.extend(field_cases(what, s, &heads, &[("checksum_offset", offset, 4)], &[192, 4088], true));
        cases.extend(block_cases(what, s, s.cp.start, alloc_type..CP_CHKSUM_OFFSET));
    }
    run_all(cases);
}

/// The whole pack behind its head: orphans, summaries, nat_bits.
#[test]
fn checkpoint_packs() {
    let mut cases = Vec::new();
    for (what, s) in [("pack", clean()), ("orphaned pack", orphaned())] {
        let end = s.cp.start + BLOCKS_PER_SEG;
        cases.extend(whole_blocks(what, s, &s.used(s.cp.start..end)));
        let sums = s.cp.start + s.cp.raw.cp_pack_start_sum.get();
        // The damage is to the counts and first entries of the journals, in both forms.
        for at in [0, SUM_JOURNAL_SIZE, ENTRIES_IN_SUM * SUMMARY_SIZE] {
            let fields = [("n", at, 2), ("id", at + 2, 4), ("ino", at + 7, 4), ("addr", at + 11, 4)];
            for block in sums..sums + 3 {
                let what = format!("{what} journal {at} of {block}");
                cases.extend(field_cases(&what, s, &[block], &fields, &[6, 38, 39], true));
            }
        }
    }
    let orphan = orphaned().cp.start + 1;
    let own: Vec<u32> = orphaned().inos.values().copied().chain([1, 2]).collect();
    let fields = fields!(RawOrphanBlock, 0; ino 4, entry_count 4, blk_addr 2, blk_count 2);
    cases.extend(field_cases("orphans", orphaned(), &[orphan], &fields, &own, true));
    run_all(cases);
}

#[test]
fn tables() {
    let s = clean();
    let mut cases = whole_blocks("sit", s, &s.used(s.sb.sit_blkaddr..s.sb.nat_blkaddr));
    cases.extend(whole_blocks("nat", s, &s.used(s.sb.nat_blkaddr..s.sb.ssa_blkaddr)));
    cases.extend(whole_blocks("ssa", s, &s.used(s.sb.ssa_blkaddr..s.sb.main_blkaddr)));
    let main = s.sb.main_blkaddr;
    for nat in s.used(s.sb.nat_blkaddr..s.sb.ssa_blkaddr) {
        for nid in [3, 4, 5, 8] {
            let at = nid * 9;
            let fields = [("version", at, 1), ("ino", at + 1, 4), ("addr", at + 5, 4)];
            let what = format!("nat block {nat} nid {nid}");
            cases.extend(field_cases(&what, s, &[nat], &fields, &[3, 4, main, s.nodes[&3]], true));
        }
    }
    run_all(cases);
}

/// An orphan block is not trusted if it lists the root, numbers that are no inode, or directories with names.
#[test]
fn orphans_that_can_be_none() {
    let s = orphaned();
    let block = (s.cp.start + 1 + s.sb.cp_payload) as u64 * BLOCK_SIZE as u64;
    let sum = block + offset_of!(RawOrphanBlock, check_sum) as u64;
    for ino in [0, 1, 3, s.sb.max_nid, u32::MAX, s.inos["inline-dir"], s.inos["block-dir"]] {
        let device = s.damaged(&[(block, ino.to_le_bytes().to_vec()), (sum, vec![0; 4])], true);
        let before = device.copy();
        let opened = mount(device.clone());
        assert_eq!(opened.map(drop).map_err(|e| e.kind()), Err(ErrorKind::Corrupt), "inode {ino}");
        let read = |d: &MemoryDevice| {
            let mut all = vec![0; d.size() as usize];
            d.read_at(0, &mut all);
            all
        };
        assert!(read(&device) == read(&before), "inode {ino}");
    }
    mount(s.device()).unwrap().unmount().unwrap();
}
