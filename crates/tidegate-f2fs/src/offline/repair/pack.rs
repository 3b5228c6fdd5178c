//! The start of a repair: superblock, checkpoint, logs, journals, orphans.

use super::disk::Disk;
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_block::RequestQueue;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;
use tidegate_vfs::offline::Change;
use zerocopy::FromBytes;

/// Summaries of one segment.
pub(super) type Summaries = Box<[RawSummary; ENTRIES_IN_SUM]>;

/// One of the six logs.
#[derive(Clone, Copy)]
pub(super) struct Log {
    /// The segment that the log writes.
    pub(super) segno: u32,
    /// The next block that the log writes there.
    pub(super) next: u32,
    /// The log appends (LFS) rather than filling gaps (SSR).
    pub(super) appends: bool,
}

/// The pack in use, without its impossible entries.
pub(super) struct Pack {
    pub(super) logs: [Log; NR_CURSEG_TYPE],
    /// Summaries of the logs' segments; whether the pack holds them.
    pub(super) summaries: HashMap<u32, (Summaries, bool)>,
    pub(super) nat_journal: BTreeMap<u32, RawNatEntry>,
    pub(super) sit_journal: BTreeMap<u32, RawSitEntry>,
    pub(super) orphans: BTreeSet<u32>,
    /// Entries that were left out.
    pub(super) changes: Vec<Change>,
}

/// Both superblock blocks, and the first copy that is valid.
///
/// # Errors
/// The first copy's fault when neither is valid.
pub(super) fn superblock(queue: &RequestQueue) -> Result<(Superblock, usize)> {
    let disk = Disk::new(queue);
    let copy = |n: u32| Superblock::parse(&disk.read(n, 1)?, disk.blocks());
    copy(0).map(|sb| (sb, 0)).or_else(|e| copy(1).map(|sb| (sb, 1)).map_err(|_| e))
}

/// The newer checkpoint.
///
/// # Errors
/// `Corrupt` when there is none.
pub(super) fn checkpoint(disk: &Disk<'_>, sb: &Superblock) -> Result<Checkpoint> {
    Checkpoint::load(sb, |addr| disk.read(addr, 1).map(|b| b.to_vec()))
}

impl Pack {
    /// Reads the pack that `cp` heads.
    pub(super) fn load(disk: &Disk<'_>, sb: &Superblock, cp: &Checkpoint) -> Result<Pack> {
        let total = cp.raw.cp_pack_total_block_count.get();
        let mut bytes = Vec::with_capacity(total as usize * BLOCK_SIZE);
        disk.scan(cp.start, total, |_, b| {
            bytes.extend_from_slice(b);
            Ok(())
        })?;
        let mut pack = Pack {
            logs: logs(cp),
            summaries: HashMap::default(),
            nat_journal: BTreeMap::new(),
            sit_journal: BTreeMap::new(),
            orphans: BTreeSet::new(),
            changes: Vec::new(),
        };
        for log in pack.logs {
            pack.summaries.insert(log.segno, (empty(), false));
        }
        let blocks = bytes.as_chunks::<BLOCK_SIZE>().0;
        if cp.flags.contains(CpFlags::ORPHAN_PRESENT) {
            pack.load_orphans(sb, cp, blocks);
        }
        if cp.flags.contains(CpFlags::COMPACT_SUM) {
            pack.load_compact(sb, cp, blocks);
        } else {
            pack.load_normal(sb, cp, blocks);
        }
        if cp.has_node_summaries() {
            let first = blocks.len().saturating_sub(4);
            for n in 0..3 {
                pack.load_summary(cp, 3 + n, first + n, blocks);
            }
        }
        Ok(pack)
    }

    fn left_out(&mut self, place: String, from: String) {
        self.changes.push(Change { what: "checkpoint", place, from, to: "left out".into() });
    }

    fn load_orphans(&mut self, sb: &Superblock, cp: &Checkpoint, blocks: &[[u8; BLOCK_SIZE]]) {
        let (first, end) = (1 + sb.cp_payload as usize, cp.raw.cp_pack_start_sum.get() as usize);
        for block in blocks.get(first..end).unwrap_or_default() {
            let Ok(raw) = RawOrphanBlock::read_from_bytes(block) else { continue };
            let count = raw.entry_count.get() as usize;
            if count > ORPHANS_PER_BLOCK {
                self.left_out("an orphan block".into(), format!("{count} entries"));
                continue;
            }
            for ino in raw.ino[..count].iter().map(|i| i.get()) {
                if ino > sb.root_ino && ino < sb.max_nid {
                    self.orphans.insert(ino);
                } else {
                    self.left_out("orphans".into(), format!("inode {ino}"));
                }
            }
        }
    }

    /// Packed summaries: both journals, then entries of the data logs in 7 bytes each.
    fn load_compact(&mut self, sb: &Superblock, cp: &Checkpoint, blocks: &[[u8; BLOCK_SIZE]]) {
        let first = cp.raw.cp_pack_start_sum.get() as usize;
        let Some(head) = blocks.get(first) else { return };
        self.load_nat_journal(sb, &head[..SUM_JOURNAL_SIZE]);
        self.load_sit_journal(sb, &head[SUM_JOURNAL_SIZE..2 * SUM_JOURNAL_SIZE]);
        let (mut block, mut at) = (first, 2 * SUM_JOURNAL_SIZE);
        for log in self.logs.into_iter().take(NR_CURSEG_DATA_TYPE) {
            let mut sums = empty();
            let n = if log.appends { log.next as usize } else { ENTRIES_IN_SUM };
            for sum in &mut sums[..n] {
                if at + SUMMARY_SIZE > BLOCK_SIZE - SUM_FOOTER_SIZE {
                    (block, at) = (block + 1, 0);
                }
                let entry = blocks.get(block).and_then(|b| RawSummary::read_from_prefix(&b[at..]).ok());
                *sum = entry.map(|e| e.0).unwrap_or_default();
                at += SUMMARY_SIZE;
            }
            self.summaries.insert(log.segno, (sums, true));
        }
    }

    fn load_normal(&mut self, sb: &Superblock, cp: &Checkpoint, blocks: &[[u8; BLOCK_SIZE]]) {
        let first = cp.raw.cp_pack_start_sum.get() as usize;
        for kind in 0..NR_CURSEG_DATA_TYPE {
            let Some(raw) = self.load_summary(cp, kind, first + kind, blocks) else { continue };
            match kind {
                0 => self.load_nat_journal(sb, &raw.journal),
                2 => self.load_sit_journal(sb, &raw.journal),
                _ => {}
            }
        }
    }

    fn load_summary(
        &mut self,
        cp: &Checkpoint,
        kind: usize,
        at: usize,
        blocks: &[[u8; BLOCK_SIZE]],
    ) -> Option<RawSummaryBlock> {
        let raw = RawSummaryBlock::read_from_bytes(blocks.get(at)?).ok()?;
        let want = if kind < NR_CURSEG_DATA_TYPE { SUM_TYPE_DATA } else { SUM_TYPE_NODE };
        if raw.entry_type != want {
            self.changes.push(Change {
                what: "checkpoint",
                place: format!("summary of log {kind} (block {})", cp.start + at as u32),
                from: format!("type {}", raw.entry_type),
                to: format!("type {want}"),
            });
        }
        self.summaries.insert(self.logs[kind].segno, (Box::new(raw.entries), true));
        Some(raw)
    }

    fn load_nat_journal(&mut self, sb: &Superblock, bytes: &[u8]) {
        let count = self.journal_count(bytes, NAT_JOURNAL_ENTRIES, "NAT");
        for entry in bytes[2..].chunks_exact(size_of::<RawNatJournalEntry>()).take(count) {
            let Ok(entry) = RawNatJournalEntry::read_from_bytes(entry) else { continue };
            let nid = entry.nid.get();
            if nid == 0 || nid >= sb.max_nid || self.nat_journal.contains_key(&nid) {
                self.left_out("NAT journal".into(), format!("node {nid}"));
            } else {
                self.nat_journal.insert(nid, entry.ne);
            }
        }
    }

    fn load_sit_journal(&mut self, sb: &Superblock, bytes: &[u8]) {
        let count = self.journal_count(bytes, SIT_JOURNAL_ENTRIES, "SIT");
        for entry in bytes[2..].chunks_exact(size_of::<RawSitJournalEntry>()).take(count) {
            let Ok(entry) = RawSitJournalEntry::read_from_bytes(entry) else { continue };
            let segno = entry.segno.get();
            if segno >= sb.main_segments || self.sit_journal.contains_key(&segno) {
                self.left_out("SIT journal".into(), format!("segment {segno}"));
            } else {
                self.sit_journal.insert(segno, entry.se);
            }
        }
    }

    /// The number of entries of a journal. An impossible count does not tell how many entries are real: then
    /// the entries up to the first zero entry count.
    fn journal_count(&mut self, bytes: &[u8], most: usize, name: &str) -> usize {
        let count = usize::from(le16(bytes, 0));
        if count > most {
            let size = (bytes.len() - 2) / most;
            let real = |e: &[u8]| e.iter().any(|b| *b != 0);
            let found = bytes[2..].chunks_exact(size).take(most).take_while(|e| real(e)).count();
            self.changes.push(Change {
                what: "checkpoint",
                place: format!("{name} journal"),
                from: format!("{count} entries"),
                to: format!("{found} entries"),
            });
            return found;
        }
        count
    }
}

/// Summaries of a segment without owned blocks.
pub(super) fn empty() -> Summaries {
    Box::new([RawSummary::default(); ENTRIES_IN_SUM])
}

fn logs(cp: &Checkpoint) -> [Log; NR_CURSEG_TYPE] {
    let r = &cp.raw;
    std::array::from_fn(|i| {
        let (segno, next) = if i < 3 {
            (r.cur_data_segno[i], r.cur_data_blkoff[i])
        } else {
            (r.cur_node_segno[i - 3], r.cur_node_blkoff[i - 3])
        };
        Log { segno: segno.get(), next: next.get() as u32, appends: r.alloc_type[i] == 0 }
    })
}
