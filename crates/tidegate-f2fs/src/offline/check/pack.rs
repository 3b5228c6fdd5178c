//! The superblock and the checkpoint pack: copies, orphans, summaries of the logs, journals.

use super::device::Reader;
use super::report::Findings;
use super::rules;
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// Summaries of one segment.
pub(super) type Summaries = Box<[RawSummary; ENTRIES_IN_SUM]>;

/// One of the six logs.
#[derive(Clone, Copy)]
pub(super) struct Log {
    /// 0–2 hot, warm, cold data; 3–5 hot, warm, cold nodes.
    pub(super) kind: u8,
    /// The segment that the log writes.
    pub(super) segno: u32,
    /// The next block that the log writes there.
    pub(super) next: u32,
    /// The log appends (LFS) rather than filling gaps (SSR).
    pub(super) appends: bool,
}

/// The content of the pack in use besides its head.
pub(super) struct Pack {
    pub(super) logs: Vec<Log>,
    /// Summaries of the logs' segments; none where the pack does not hold them.
    pub(super) summaries: HashMap<u32, Option<Summaries>>,
    pub(super) nat_journal: Vec<RawNatJournalEntry>,
    pub(super) sit_journal: HashMap<u32, RawSitEntry>,
    pub(super) orphans: Vec<u32>,
}

/// Reads both superblock copies and takes the first valid one.
pub(super) fn superblock(dev: &Reader<'_>, found: &mut Findings) -> Result<Superblock> {
    let size = dev.blocks();
    let read = |n: u32| if size >= 2 { dev.read(n, 1).map(|b| b.to_vec()) } else { Ok(vec![0; BLOCK_SIZE]) };
    let blocks = [read(0)?, read(1)?];
    let copies = blocks.each_ref().map(|b| Superblock::parse(b, size));
    for (n, copy) in copies.iter().enumerate() {
        if let Err(e) = copy {
            found.add(rules::SB_COPY, || format!("superblock copy {n} (block {n}): {e}"));
        }
    }
    let [first, second] = &blocks;
    if copies.iter().all(|c| c.is_ok()) && first[SUPER_OFFSET..] != second[SUPER_OFFSET..] {
        let at = (SUPER_OFFSET..BLOCK_SIZE).find(|&i| first[i] != second[i]).unwrap_or(0);
        found.add(rules::SB_COPY, || {
            format!("superblock copies (blocks 0 and 1) differ from byte {} on", at - SUPER_OFFSET)
        });
    }
    let [first, second] = copies;
    first.or_else(|e| second.map_err(|_| e))
}

/// Loads the newer checkpoint. A broken older checkpoint is only noted, as is one that a power cut left
/// unfinished.
pub(super) fn checkpoint(dev: &Reader<'_>, sb: &Superblock, found: &mut Findings) -> Result<Checkpoint> {
    let mut read = |addr: u32| dev.read(addr, 1).map(|b| b.to_vec());
    let cp = Checkpoint::load(sb, &mut read)?;
    if let Some(what) = &cp.passed_over {
        found.add(rules::CP_NEWEST, || format!("{what}; it is the newest, what it wrote is lost"));
    } else if let Err(bad) = Checkpoint::load_pack(sb, 1 - cp.pack, &mut read) {
        found.notes.push(format!("the other checkpoint cannot be used: {}", bad.error));
    }
    if cp.flags.intersects(CpFlags::FSCK | CpFlags::ERROR) {
        found.notes.push("the checkpoint is flagged as in need of repair".into());
    }
    Ok(cp)
}

impl Pack {
    /// Reads the pack that `cp` heads.
    pub(super) fn load(
        dev: &Reader<'_>,
        sb: &Superblock,
        cp: &Checkpoint,
        found: &mut Findings,
    ) -> Result<Pack> {
        let total = cp.raw.cp_pack_total_block_count.get();
        let mut bytes = Vec::with_capacity(total as usize * BLOCK_SIZE);
        dev.scan(cp.start..cp.start + total, |_, b| bytes.extend_from_slice(b))?;
        let blocks = bytes.as_chunks::<BLOCK_SIZE>().0;
        let mut pack = Pack {
            logs: logs(cp),
            summaries: HashMap::default(),
            nat_journal: Vec::new(),
            sit_journal: HashMap::default(),
            orphans: Vec::new(),
        };
        if cp.flags.contains(CpFlags::ORPHAN_PRESENT) {
            pack.load_orphans(sb, cp, blocks, found);
        }
        if cp.flags.contains(CpFlags::COMPACT_SUM) {
            pack.load_compact(sb, cp, blocks, found);
        } else {
            pack.load_normal(sb, cp, blocks, found);
        }
        pack.load_node_summaries(cp, blocks, found);
        Ok(pack)
    }

    fn load_orphans(
        &mut self,
        sb: &Superblock,
        cp: &Checkpoint,
        blocks: &[[u8; BLOCK_SIZE]],
        found: &mut Findings,
    ) {
        let (first, end) = (1 + sb.cp_payload, cp.raw.cp_pack_start_sum.get());
        for (n, at) in (first..end).enumerate() {
            let addr = cp.start + at;
            let Some(block) = blocks.get(at as usize) else { return };
            let Ok(raw) = RawOrphanBlock::read_from_bytes(block) else { return };
            let mut bad = |what: String| {
                found.add(rules::CP_ORPHAN, || format!("orphan block {addr}: {what}"));
            };
            // Linux leaves the checksum as 0.
            let sum = raw.check_sum.get();
            if sum != 0 && sum != f2fs_crc32(&block[..BLOCK_SIZE - 4]) {
                bad("the checksum does not match".into());
            }
            if raw.blk_addr.get() as usize != n + 1 || raw.blk_count.get() as u32 != end - first {
                bad(format!("says it is block {} of {}", raw.blk_addr, raw.blk_count));
            }
            let count = raw.entry_count.get() as usize;
            if count > ORPHANS_PER_BLOCK {
                bad(format!("holds {count} entries, {ORPHANS_PER_BLOCK} fit"));
            }
            let count = if count > ORPHANS_PER_BLOCK { 0 } else { count };
            for ino in raw.ino.iter().take(count).map(|i| i.get()) {
                if ino <= sb.root_ino || ino >= sb.max_nid {
                    bad(format!("there is no inode {ino}"));
                } else {
                    self.orphans.push(ino);
                }
            }
        }
    }

    /// Packed summaries: both journals, then entries of the data logs in 7 bytes each.
    fn load_compact(
        &mut self,
        sb: &Superblock,
        cp: &Checkpoint,
        blocks: &[[u8; BLOCK_SIZE]],
        found: &mut Findings,
    ) {
        let first = cp.raw.cp_pack_start_sum.get() as usize;
        let Some(head) = blocks.get(first) else { return };
        self.load_nat_journal(sb, &head[..SUM_JOURNAL_SIZE], found);
        self.load_sit_journal(sb, &head[SUM_JOURNAL_SIZE..2 * SUM_JOURNAL_SIZE], found);
        let mut places = (first..blocks.len()).flat_map(|block| {
            let from = if block == first { 2 * SUM_JOURNAL_SIZE } else { 0 };
            let last = BLOCK_SIZE - SUM_FOOTER_SIZE - SUMMARY_SIZE;
            (from..=last).step_by(SUMMARY_SIZE).map(move |at| (block, at))
        });
        for log in self.logs.iter().filter(|l| l.kind < 3) {
            let mut sums = Box::new([RawSummary::default(); ENTRIES_IN_SUM]);
            let count = if log.appends { log.next as usize } else { ENTRIES_IN_SUM };
            for sum in sums.iter_mut().take(count) {
                let place = places.next().and_then(|(b, at)| blocks.get(b)?.get(at..));
                match place.and_then(|p| RawSummary::read_from_prefix(p).ok()) {
                    Some((s, _)) => *sum = s,
                    None => return found.add(rules::CP_PACK, || "the pack ends in its summaries".into()),
                }
            }
            self.summaries.insert(log.segno, Some(sums));
        }
    }

    fn load_normal(
        &mut self,
        sb: &Superblock,
        cp: &Checkpoint,
        blocks: &[[u8; BLOCK_SIZE]],
        found: &mut Findings,
    ) {
        let first = cp.raw.cp_pack_start_sum.get();
        for kind in 0..3 {
            let Some(raw) = self.load_summary(cp, first + kind, kind as u8, blocks, found) else { continue };
            match kind {
                0 => self.load_nat_journal(sb, &raw.journal, found),
                2 => self.load_sit_journal(sb, &raw.journal, found),
                _ => {}
            }
        }
    }

    fn load_node_summaries(&mut self, cp: &Checkpoint, blocks: &[[u8; BLOCK_SIZE]], found: &mut Findings) {
        if !cp.has_node_summaries() {
            for log in self.logs.iter().filter(|l| l.kind >= 3) {
                self.summaries.insert(log.segno, None);
            }
            return;
        }
        // The summaries stand right before the tail block.
        let first = (blocks.len() as u32).saturating_sub(4);
        for kind in 0..3 {
            self.load_summary(cp, first + kind, kind as u8 + 3, blocks, found);
        }
    }

    fn load_summary(
        &mut self,
        cp: &Checkpoint,
        at: u32,
        kind: u8,
        blocks: &[[u8; BLOCK_SIZE]],
        found: &mut Findings,
    ) -> Option<RawSummaryBlock> {
        let log = *self.logs.iter().find(|l| l.kind == kind)?;
        let raw = RawSummaryBlock::read_from_bytes(blocks.get(at as usize)?).ok()?;
        let want = if kind < 3 { SUM_TYPE_DATA } else { SUM_TYPE_NODE };
        if raw.entry_type != want {
            found.add(rules::CP_PACK, || {
                let has = raw.entry_type;
                format!("summary of log {kind} (block {}): type {has} instead of {want}", cp.start + at)
            });
        }
        self.summaries.insert(log.segno, Some(Box::new(raw.entries)));
        Some(raw)
    }

    fn load_nat_journal(&mut self, sb: &Superblock, bytes: &[u8], found: &mut Findings) {
        const STEP: usize = size_of::<RawNatJournalEntry>();
        let count = journal_count(bytes, NAT_JOURNAL_ENTRIES, "NAT", found);
        for entry in bytes[2..].chunks_exact(STEP).take(count) {
            let Ok(entry) = RawNatJournalEntry::read_from_bytes(entry) else { continue };
            let nid = entry.nid.get();
            let twice = self.nat_journal.iter().any(|e| e.nid.get() == nid);
            if nid == 0 || nid >= sb.max_nid || twice {
                let what = if twice { "is in it twice" } else { "does not exist" };
                found.add(rules::CP_JOURNAL, || format!("NAT journal: node {nid} {what}"));
            } else {
                self.nat_journal.push(entry);
            }
        }
    }

    fn load_sit_journal(&mut self, sb: &Superblock, bytes: &[u8], found: &mut Findings) {
        const STEP: usize = size_of::<RawSitJournalEntry>();
        let count = journal_count(bytes, SIT_JOURNAL_ENTRIES, "SIT", found);
        for entry in bytes[2..].chunks_exact(STEP).take(count) {
            let Ok(entry) = RawSitJournalEntry::read_from_bytes(entry) else { continue };
            let segno = entry.segno.get();
            if segno >= sb.main_segments {
                found.add(rules::CP_JOURNAL, || format!("SIT journal: there is no segment {segno}"));
            } else if self.sit_journal.insert(segno, entry.se).is_some() {
                found.add(rules::CP_JOURNAL, || format!("SIT journal: segment {segno} is in it twice"));
            }
        }
    }
}

/// The number of entries that a journal says it holds, cut to the number that fits.
fn journal_count(bytes: &[u8], most: usize, name: &str, found: &mut Findings) -> usize {
    let count = le16(bytes, 0) as usize;
    if count > most {
        found.add(rules::CP_JOURNAL, || format!("{name} journal: {count} entries, {most} fit"));
    }
    count.min(most)
}

fn logs(cp: &Checkpoint) -> Vec<Log> {
    let r = &cp.raw;
    let log = |i: usize| {
        let (segno, next) = if i < 3 {
            (r.cur_data_segno[i], r.cur_data_blkoff[i])
        } else {
            (r.cur_node_segno[i - 3], r.cur_node_blkoff[i - 3])
        };
        Log { kind: i as u8, segno: segno.get(), next: next.get() as u32, appends: r.alloc_type[i] == 0 }
    };
    (0..NR_CURSEG_TYPE).map(log).collect()
}

/// nat_bits as they lie at the end of the pack's segment.
pub(super) struct NatBits {
    /// Version and checksum of the checkpoint that the nat_bits belong to.
    pub(super) key: u64,
    /// NAT blocks without a free entry.
    pub(super) full: Vec<u8>,
    /// NAT blocks without a used entry.
    pub(super) empty: Vec<u8>,
}

/// The nat_bits of the pack that `cp` heads, if its flags say that there are any.
pub(super) fn nat_bits(dev: &Reader<'_>, sb: &Superblock, cp: &Checkpoint) -> Result<Option<NatBits>> {
    let bytes = sb.nat_blocks as usize / 8;
    let blocks = (8 + 2 * bytes).div_ceil(BLOCK_SIZE) as u32;
    let used = cp.raw.cp_pack_total_block_count.get();
    if !cp.flags.contains(CpFlags::NAT_BITS) || used + blocks > BLOCKS_PER_SEG {
        return Ok(None);
    }
    let first = cp.start + BLOCKS_PER_SEG - blocks;
    let mut all = Vec::with_capacity(blocks as usize * BLOCK_SIZE);
    dev.scan(first..first + blocks, |_, b| all.extend_from_slice(b))?;
    let key = le64(&all, 0);
    let cut = |from: usize| all.get(from..from + bytes).map(<[u8]>::to_vec).unwrap_or_default();
    Ok(Some(NatBits { key, full: cut(8), empty: cut(8 + bytes) }))
}
