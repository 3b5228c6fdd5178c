//! The summaries in a checkpoint pack: read when a volume is opened, packed for the next checkpoint.

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::segment::curseg::Curseg;
use crate::segment::log::Log;
use crate::segment::zones::ZoneMap;
use crate::tables::journal;
use crate::tables::meta::Meta;
use crate::tables::nat::NatEntry;
use std::collections::BTreeMap;
use tidegate_block::PageBuf;
use tidegate_vfs::{Error, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The content of a pack's summaries.
pub(crate) struct PackSummaries {
    pub nat_journal: BTreeMap<u32, NatEntry>,
    pub sit_journal: BTreeMap<u32, RawSitEntry>,
    pub sums: [Box<RawSummaryBlock>; NR_CURSEG_TYPE],
}

fn empty(log: Log) -> Box<RawSummaryBlock> {
    let mut b = Box::new(RawSummaryBlock::new_zeroed());
    b.entry_type = if log.is_node() { SUM_TYPE_NODE } else { SUM_TYPE_DATA };
    b
}

fn summary_block(bytes: &[u8]) -> Result<Box<RawSummaryBlock>> {
    RawSummaryBlock::read_from_bytes(bytes).map(Box::new).map_err(|_| Error::corrupt("summary block"))
}

/// Reads the summaries of checkpoint `cp`. A node log in one of `zones` that has lost its content gets none.
///
/// # Errors
/// `Corrupt` for journals out of range, those of the device.
pub(crate) fn load(
    sb: &Superblock,
    cp: &Checkpoint,
    meta: &Meta,
    zones: Option<&ZoneMap>,
) -> Result<PackSummaries> {
    let mut sums = Log::ALL.map(empty);
    let start = cp.start + cp.raw.cp_pack_start_sum.get();
    // The position counts back from the tail: node summaries are last, data summaries before them.
    let tail = cp.start + cp.raw.cp_pack_total_block_count.get() - 1;
    let (nat_bytes, sit_bytes) = if cp.flags.contains(CpFlags::COMPACT_SUM) {
        load_compact(cp, meta, start, &mut sums)?
    } else {
        let first = if cp.has_node_summaries() { tail - 6 } else { tail - 3 };
        for (i, sum) in sums.iter_mut().enumerate().take(NR_CURSEG_DATA_TYPE) {
            *sum = summary_block(meta.read(first + i as u32)?.bytes())?;
        }
        (sums[0].journal.to_vec(), sums[2].journal.to_vec())
    };
    for log in Log::NODES {
        let i = log as usize;
        if cp.has_node_summaries() {
            sums[i] = summary_block(meta.read(tail - 3 + (i as u32 - 3))?.bytes())?;
        } else if !zones.is_some_and(|z| z.is_lost(cp.raw.cur_node_segno[i - 3].get())) {
            rebuild_node_summary(sb, cp, meta, log, &mut sums[i])?;
        }
    }
    let nat_journal = journal::parse::<RawNatJournalEntry>(&nat_bytes, sb.max_nid)?;
    let sit_journal = journal::parse::<RawSitJournalEntry>(&sit_bytes, sb.main_segments)?;
    Ok(PackSummaries {
        nat_journal: nat_journal.into_iter().map(|e| (e.nid.get(), e.ne.into())).collect(),
        sit_journal: sit_journal.into_iter().map(|e| (e.segno.get(), e.se)).collect(),
        sums,
    })
}

/// Rebuilds a node summary. If the pack has none, the SSA has the entries of the time when the log came to
/// the segment. Nodes written since then name themselves to a reader that needs their owner.
fn rebuild_node_summary(
    sb: &Superblock,
    cp: &Checkpoint,
    meta: &Meta,
    log: Log,
    sum: &mut Box<RawSummaryBlock>,
) -> Result<()> {
    let i = log as usize - 3;
    let (segno, next) = (cp.raw.cur_node_segno[i].get(), cp.raw.cur_node_blkoff[i].get() as u32);
    if cp.raw.alloc_type[log as usize] != 0 {
        *sum = summary_block(meta.read(sb.ssa_blkaddr + segno)?.bytes())?;
        sum.entry_type = SUM_TYPE_NODE;
    }
    let first = sb.main_blkaddr + segno * BLOCKS_PER_SEG;
    for at in 0..next {
        if let Some(nid) = meta.node_id_at(first + at)? {
            sum.entries[at as usize] = RawSummary { nid: nid.into(), ..Default::default() };
        }
    }
    Ok(())
}

type Journals = (Vec<u8>, Vec<u8>);

/// Compact form: both journals, then the data logs' summary blocks without their footers, one behind the
/// other.
fn load_compact(
    cp: &Checkpoint,
    meta: &Meta,
    start: u32,
    sums: &mut [Box<RawSummaryBlock>],
) -> Result<Journals> {
    let mut addr = start;
    let mut page = meta.read(addr)?;
    let nat = page.bytes()[..SUM_JOURNAL_SIZE].to_vec();
    let sit = page.bytes()[SUM_JOURNAL_SIZE..2 * SUM_JOURNAL_SIZE].to_vec();
    let mut at = 2 * SUM_JOURNAL_SIZE;
    for log in [Log::HotData, Log::WarmData, Log::ColdData] {
        let i = log as usize;
        let ssr = cp.raw.alloc_type[i] != 0;
        let n = if ssr { ENTRIES_IN_SUM } else { cp.raw.cur_data_blkoff[i].get() as usize };
        for entry in &mut sums[i].entries[..n] {
            if at + SUMMARY_SIZE > BLOCK_SIZE - SUM_FOOTER_SIZE {
                addr += 1;
                page = meta.read(addr)?;
                at = 0;
            }
            *entry = RawSummary::read_from_prefix(&page.bytes()[at..]).map(|r| r.0).unwrap_or_default();
            at += SUMMARY_SIZE;
        }
    }
    Ok((nat, sit))
}

/// Number of blocks that the data logs' summaries take in compact form; with 3 or more the normal form is
/// used.
pub(crate) fn compact_blocks(logs: &[&Curseg]) -> usize {
    let n: usize = logs.iter().map(|c| c.summaries()).sum();
    let first = (BLOCK_SIZE - 2 * SUM_JOURNAL_SIZE - SUM_FOOTER_SIZE) / SUMMARY_SIZE;
    let each = (BLOCK_SIZE - SUM_FOOTER_SIZE) / SUMMARY_SIZE;
    1 + n.saturating_sub(first).div_ceil(each)
}

/// The data logs' summaries and both journals in compact form.
pub(crate) fn pack_compact(logs: &[&Curseg], nat: &[u8], sit: &[u8]) -> Vec<PageBuf> {
    let mut pages = vec![PageBuf::zeroed(1)];
    pages[0][..SUM_JOURNAL_SIZE].copy_from_slice(nat);
    pages[0][SUM_JOURNAL_SIZE..2 * SUM_JOURNAL_SIZE].copy_from_slice(sit);
    let mut at = 2 * SUM_JOURNAL_SIZE;
    for entry in logs.iter().flat_map(|c| &c.sum.entries[..c.summaries()]) {
        if at + SUMMARY_SIZE > BLOCK_SIZE - SUM_FOOTER_SIZE {
            pages.push(PageBuf::zeroed(1));
            at = 0;
        }
        let last = pages.len() - 1;
        pages[last][at..at + SUMMARY_SIZE].copy_from_slice(entry.as_bytes());
        at += SUMMARY_SIZE;
    }
    pages
}

/// A log's summary in normal form, with its journal.
pub(crate) fn pack_normal(c: &Curseg, journal: &[u8]) -> PageBuf {
    let mut page = PageBuf::from_slice(c.sum.as_bytes());
    let at = ENTRIES_IN_SUM * SUMMARY_SIZE;
    page[at..at + SUM_JOURNAL_SIZE].copy_from_slice(journal);
    page
}
