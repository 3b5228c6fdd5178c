//! The two checkpoint packs: head, payload, summaries, tail, and nat_bits at the end of the segment.

use super::tree::NewDir;
use super::{Layout, MkfsOptions, tables};
use crate::format::raw::{
    BLOCK_SIZE, BLOCKS_PER_SEG, CP_CHKSUM_OFFSET, CpFlags, NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE,
    RawCheckpoint, RawSitEntry, RawSitJournalEntry, RawSummary, RawSummaryBlock, SIT_VBLOCKS_SHIFT,
    SUM_JOURNAL_SIZE, SUM_TYPE_NODE, SUMMARY_SIZE, checkpoint_crc, set_bit_msb,
};
use crate::format::units::{BlockAddr, SegNo};
use tidegate_block::PageBuf;
use zerocopy::{FromZeros, IntoBytes};

/// Index of hot data: it is the first log; hot nodes are the first log of nodes.
const HOT_DATA: usize = 0;
const HOT_NODE: usize = NR_CURSEG_DATA_TYPE;
/// Blocks of a pack beside the payload: head, packed data summaries, three node summaries, tail.
const PACK_BLOCKS: u32 = 6;
/// Segment of a log that does not exist.
const NO_SEGMENT: u32 = u32::MAX;

/// The content of the volume before the first mount.
pub(super) struct FirstCheckpoint<'a> {
    pub layout: &'a Layout,
    pub dirs: &'a [NewDir],
    pub options: &'a MkfsOptions,
    /// Version of the first pack.
    pub version: u64,
}

impl FirstCheckpoint<'_> {
    /// Every block of both packs that is not zero, with its address.
    pub fn blocks(&self) -> Vec<(BlockAddr, PageBuf)> {
        let l = self.layout;
        let (first, second) = (l.segment0, l.segment0.plus(BLOCKS_PER_SEG));
        let summaries = first.plus(1 + l.cp_payload);
        let tail = PACK_BLOCKS + l.cp_payload - 1;
        let (head, crc) = self.head(self.version);
        let bits = tables::nat_bits(l, self.version, crc);
        // Version 0 makes the second pack the older one.
        let (old_head, _) = self.head(0);
        vec![
            (second, old_head.clone()),
            (second.plus(tail), old_head),
            (summaries, self.data_summaries()),
            (summaries.plus(1), self.node_summary(self.dirs)),
            (summaries.plus(2), self.node_summary(&[])),
            (summaries.plus(3), self.node_summary(&[])),
            (first.plus(BLOCKS_PER_SEG - bits.pages() as u32), bits),
            (first, head.clone()),
            (first.plus(tail), head),
        ]
    }

    /// The head and its CRC. The head also serves as the tail.
    fn head(&self, version: u64) -> (PageBuf, u32) {
        let mut block = PageBuf::zeroed(1);
        let cp = self.checkpoint(version);
        block[..size_of::<RawCheckpoint>()].copy_from_slice(cp.as_bytes());
        let crc = checkpoint_crc(&block, CP_CHKSUM_OFFSET);
        block[CP_CHKSUM_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        (block, crc)
    }

    fn checkpoint(&self, version: u64) -> RawCheckpoint {
        let (l, dirs) = (self.layout, self.dirs.len() as u32);
        let mut cp = RawCheckpoint::new_zeroed();
        cp.checkpoint_ver = version.into();
        cp.user_block_count = l.user_block_count.into();
        cp.valid_block_count = (2 * dirs as u64).into();
        cp.rsvd_segment_count = l.reserved_segments.into();
        cp.overprov_segment_count = l.overprovision_segments.into();
        cp.free_segment_count = l.free_segments.into();
        (cp.cur_data_segno, cp.cur_node_segno) = ([NO_SEGMENT.into(); 8], [NO_SEGMENT.into(); 8]);
        for i in 0..NR_CURSEG_DATA_TYPE {
            cp.cur_data_segno[i] = l.logs[i].0.into();
            cp.cur_node_segno[i] = l.logs[HOT_NODE + i].0.into();
        }
        (cp.cur_data_blkoff[0], cp.cur_node_blkoff[0]) = ((dirs as u16).into(), (dirs as u16).into());
        cp.ckpt_flags = self.flags().bits().into();
        cp.cp_pack_total_block_count = (PACK_BLOCKS + l.cp_payload).into();
        cp.cp_pack_start_sum = (1 + l.cp_payload).into();
        (cp.valid_node_count, cp.valid_inode_count) = (dirs.into(), dirs.into());
        cp.next_free_nid = self.dirs.last().map_or(0, |d| d.nid.0 + 1).into();
        cp.sit_ver_bitmap_bytesize = l.sit_bitmap_bytes.into();
        cp.nat_ver_bitmap_bytesize = l.nat_bitmap_bytes.into();
        cp.checksum_offset = (CP_CHKSUM_OFFSET as u32).into();
        cp
    }

    fn flags(&self) -> CpFlags {
        let flags = CpFlags::UMOUNT | CpFlags::COMPACT_SUM | CpFlags::NAT_BITS;
        if self.options.discard { flags | CpFlags::TRIMMED } else { flags }
    }

    /// The packed summaries of the data logs: an empty NAT journal, the SIT journal, an entry for each
    /// block of hot data.
    fn data_summaries(&self) -> PageBuf {
        let mut block = PageBuf::zeroed(1);
        let (sit, entries) = (SUM_JOURNAL_SIZE, 2 * SUM_JOURNAL_SIZE);
        block[sit..sit + 2].copy_from_slice(&(NR_CURSEG_TYPE as u16).to_le_bytes());
        let slots = block[sit + 2..entries].chunks_exact_mut(size_of::<RawSitJournalEntry>());
        for (slot, kind) in slots.zip(self.journal_order()) {
            slot.copy_from_slice(self.sit_entry(kind).as_bytes());
        }
        for (slot, dir) in block[entries..].chunks_exact_mut(SUMMARY_SIZE).zip(self.dirs) {
            slot.copy_from_slice(summary(dir).as_bytes());
        }
        block
    }

    /// The logs as the journal lists them, nodes first.
    fn journal_order(&self) -> impl Iterator<Item = usize> {
        (HOT_NODE..NR_CURSEG_TYPE).chain(0..HOT_NODE)
    }

    /// The SIT entry of the segment of log `kind`.
    fn sit_entry(&self, kind: usize) -> RawSitJournalEntry {
        let mut se = RawSitEntry::new_zeroed();
        let valid = if matches!(kind, HOT_DATA | HOT_NODE) { self.dirs.len() } else { 0 };
        se.vblocks = ((kind as u16) << SIT_VBLOCKS_SHIFT | valid as u16).into();
        (0..valid).for_each(|n| set_bit_msb(&mut se.valid_map, n, true));
        let SegNo(segno) = self.layout.logs[kind];
        RawSitJournalEntry { segno: segno.into(), se }
    }

    /// The summary block of a node log that holds the inodes of `dirs`.
    fn node_summary(&self, dirs: &[NewDir]) -> PageBuf {
        let mut sum = RawSummaryBlock::new_zeroed();
        sum.entries.iter_mut().zip(dirs).for_each(|(entry, dir)| *entry = summary(dir));
        sum.entry_type = SUM_TYPE_NODE;
        debug_assert_eq!(size_of_val(&sum), BLOCK_SIZE);
        PageBuf::from_slice(sum.as_bytes())
    }
}

/// The owner of a directory's first block, and of its inode.
fn summary(dir: &NewDir) -> RawSummary {
    RawSummary { nid: dir.nid.0.into(), version: 0, ofs_in_node: 0.into() }
}
