//! Blocks found in use, against the SIT and the checkpoint's counters.

use super::pack::Log;
use super::usage::{HAS_DATA, HAS_NODES};
use super::{Checker, rules};
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// The log types: three for data, then three for nodes.
const TYPES: [&str; NR_CURSEG_TYPE] =
    ["hot data", "warm data", "cold data", "hot nodes", "warm nodes", "cold nodes"];

/// The address of the current copy of SIT block `n`; the copies are the halves of the area.
fn sit_block(sb: &Superblock, cp: &Checkpoint, n: u32) -> u32 {
    let second = test_bit_msb(&cp.sit_bitmap, n as usize);
    sb.sit_blkaddr + n + if second { sb.sit_blocks } else { 0 }
}

impl Checker<'_> {
    /// Compares every segment with its SIT entry, then the counters.
    pub(super) fn check_sit(&mut self) -> Result<()> {
        const PER_BLOCK: u32 = SIT_ENTRY_PER_BLOCK as u32;
        let segments = self.sb.main_segments;
        let blocks = segments.div_ceil(PER_BLOCK);
        let addrs: Vec<u32> = (0..blocks).map(|n| sit_block(&self.sb, &self.cp, n)).collect();
        let mut free = 0;
        // The SIT is read in pieces, since the comparison borrows the whole checker.
        for (part, addrs) in addrs.chunks(256).enumerate() {
            let mut entries = Vec::with_capacity(addrs.len() * SIT_ENTRY_PER_BLOCK);
            self.dev.scan(addrs.iter().copied(), |_, block| {
                let all = block.chunks_exact(size_of::<RawSitEntry>());
                entries.extend(all.filter_map(|e| RawSitEntry::read_from_bytes(e).ok()));
            })?;
            let first = part as u32 * 256 * PER_BLOCK;
            for (segno, entry) in (first..segments).zip(entries) {
                let entry = self.pack.sit_journal.get(&segno).cloned().unwrap_or(entry);
                free += u32::from(self.check_segment(segno, &entry));
            }
        }
        self.check_counters(free);
        Ok(())
    }

    /// Whether the segment is free.
    fn check_segment(&mut self, segno: u32, entry: &RawSitEntry) -> bool {
        let vblocks = entry.vblocks.get();
        let (count, kind) = ((vblocks & ((1 << SIT_VBLOCKS_SHIFT) - 1)) as u32, vblocks >> SIT_VBLOCKS_SHIFT);
        let log = self.pack.logs.iter().find(|l| l.segno == segno).copied();
        let marked: u32 = entry.valid_map.iter().map(|b| b.count_ones()).sum();
        let first = self.sb.main_blkaddr + segno * BLOCKS_PER_SEG;
        if marked != count || kind as usize >= NR_CURSEG_TYPE {
            self.found.add(rules::SIT_ENTRY, || {
                format!("segment {segno} (block {first}): type {kind}, count {count}, {marked} bits set")
            });
        }
        if marked > 0 || self.usage.kinds[segno as usize] != 0 {
            self.check_map(segno, first, entry);
            self.check_kind(segno, first, kind);
        }
        if let Some(log) = log {
            self.check_log(log, first, entry, count, kind);
        }
        self.check_zone(segno, first, entry);
        count == 0 && log.is_none() && self.zones.as_ref().is_none_or(|z| z.usable(segno) > 0)
    }

    /// Checks that blocks in use were written: in a zone that is written in order, they lie in front of the
    /// write pointer.
    fn check_zone(&mut self, segno: u32, first: u32, entry: &RawSitEntry) {
        let Some(end) = self.zones.as_ref().and_then(|z| z.written_in(segno)) else { return };
        if let Some(n) = (end..BLOCKS_PER_SEG).find(|n| test_bit_msb(&entry.valid_map, *n as usize)) {
            self.found.add(rules::SIT_MAP, || {
                format!("segment {segno}: block {} is marked, behind its zone's write pointer", first + n)
            });
        }
    }

    fn check_map(&mut self, segno: u32, first: u32, entry: &RawSitEntry) {
        let seen = self.usage.seen.piece(segno as usize);
        let mut lost = (0, 0); // number of blocks, and the first block
        let mut unmarked = (0, 0);
        for n in 0..BLOCKS_PER_SEG {
            let used = seen.is_some_and(|s| s[n as usize / 64] >> (n % 64) & 1 != 0);
            let wrong = match (test_bit_msb(&entry.valid_map, n as usize), used) {
                (true, false) => &mut lost,
                (false, true) => &mut unmarked,
                _ => continue,
            };
            if wrong.0 == 0 {
                wrong.1 = first + n;
            }
            wrong.0 += 1;
        }
        for ((blocks, at), what) in [(lost, "marked, but nobody's"), (unmarked, "in use, but not marked")] {
            if blocks > 0 {
                self.found.add(rules::SIT_MAP, || {
                    format!("segment {segno}: {blocks} blocks are {what}, the first at {at}")
                });
            }
        }
    }

    fn check_kind(&mut self, segno: u32, first: u32, kind: u16) {
        let holds = self.usage.kinds[segno as usize] & (HAS_NODES | HAS_DATA);
        let wrong = if kind < 3 { HAS_NODES } else { HAS_DATA };
        if holds & wrong != 0 {
            self.found.add(rules::SIT_TYPE, || {
                let holds = ["", "nodes", "data", "nodes and data"][holds as usize];
                let kind = TYPES.get(kind as usize).unwrap_or(&"unknown");
                format!("segment {segno} (block {first}) is of type {kind} and holds {holds}")
            });
        }
    }

    fn check_log(&mut self, log: Log, first: u32, entry: &RawSitEntry, count: u32, kind: u16) {
        // A volume that mkfs packed read-only has one log for data and one for nodes.
        if self.sb.features.contains(Features::RO) && !matches!(log.kind, 0 | 3) {
            return;
        }
        let name = TYPES[log.kind as usize];
        let end = if log.appends { BLOCKS_PER_SEG } else { log.next + 1 };
        if let Some(n) = (log.next..end).find(|&n| test_bit_msb(&entry.valid_map, n as usize)) {
            self.found.add(rules::CP_CURSEG, || {
                format!(
                    "log of {name}: writes block {} next, but block {} is in use",
                    first + log.next,
                    first + n
                )
            });
        }
        if count > 0 && kind != log.kind as u16 {
            self.found.add(rules::CP_CURSEG_TYPE, || {
                format!("log of {name}: its segment {} (block {first}) is of type {kind}", log.segno)
            });
        }
    }

    fn check_counters(&mut self, free: u32) {
        let (r, u) = (&self.cp.raw, &self.usage);
        let counters = [
            (rules::CP_BLOCKS, "valid_block_count", r.valid_block_count.get(), u.blocks + u.reserved),
            (rules::CP_NODES, "valid_node_count", r.valid_node_count.get() as u64, u.nodes),
            (rules::CP_INODES, "valid_inode_count", r.valid_inode_count.get() as u64, u.inodes),
            (rules::CP_FREE_SEGS, "free_segment_count", r.free_segment_count.get() as u64, free as u64),
        ];
        let start = self.cp.start;
        for (rule, name, stored, counted) in counters.into_iter().filter(|c| c.2 != c.3) {
            self.found
                .add(rule, || format!("checkpoint at block {start}: {name} is {stored}, counted {counted}"));
        }
    }
}
