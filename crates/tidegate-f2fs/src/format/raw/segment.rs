//! Segment information (SIT), summaries (SSA) and the journals in summary blocks.

use super::{BLOCK_SIZE, node::RawNatEntry};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct f2fs_sit_entry`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSitEntry {
    /// Valid blocks in the low 10 bits; above them the log that wrote the segment.
    pub vblocks: U16,
    /// A bit for each block, most significant first.
    pub valid_map: [u8; 64],
    pub mtime: U64,
}

/// Number of the low bits of `vblocks` that hold the count.
pub const SIT_VBLOCKS_SHIFT: u32 = 10;
/// Entries in a SIT block.
pub const SIT_ENTRY_PER_BLOCK: usize = 55;
const _: () = assert!(size_of::<RawSitEntry>() * SIT_ENTRY_PER_BLOCK <= BLOCK_SIZE);

/// `struct f2fs_summary`: the owner of a block.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSummary {
    pub nid: U32,
    pub version: u8,
    pub ofs_in_node: U16,
}

/// Summaries in a summary block.
pub const ENTRIES_IN_SUM: usize = 512;
/// Bytes of a summary.
pub const SUMMARY_SIZE: usize = 7;
/// Bytes of a journal, its count included.
pub const SUM_JOURNAL_SIZE: usize = 507;
/// Bytes of the summary footer.
pub const SUM_FOOTER_SIZE: usize = 5;
/// NAT entries in a journal.
pub const NAT_JOURNAL_ENTRIES: usize = 38;
/// SIT entries in a journal.
pub const SIT_JOURNAL_ENTRIES: usize = 6;

/// `struct f2fs_summary_block`.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSummaryBlock {
    pub entries: [RawSummary; ENTRIES_IN_SUM],
    /// `n_nats`/`n_sits` (2 bytes), then the entries.
    pub journal: [u8; SUM_JOURNAL_SIZE],
    /// 0 data, 1 node.
    pub entry_type: u8,
    pub check_sum: U32,
}
const _: () = assert!(size_of::<RawSummaryBlock>() == BLOCK_SIZE);

impl RawSummaryBlock {
    /// A block as a segment's summary.
    pub fn of(block: &[u8; BLOCK_SIZE]) -> &Self {
        zerocopy::transmute_ref!(block)
    }

    /// A block as a segment's summary, to be changed.
    pub fn of_mut(block: &mut [u8; BLOCK_SIZE]) -> &mut Self {
        zerocopy::transmute_mut!(block)
    }
}

/// `entry_type` of a data segment's summary.
pub const SUM_TYPE_DATA: u8 = 0;
/// `entry_type` of a node segment's summary.
pub const SUM_TYPE_NODE: u8 = 1;

/// A NAT entry in the journal of the hot-data summary.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawNatJournalEntry {
    pub nid: U32,
    pub ne: RawNatEntry,
}

/// A SIT entry in the journal of the cold-data summary.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSitJournalEntry {
    pub segno: U32,
    pub se: RawSitEntry,
}
const _: () = assert!(2 + size_of::<RawNatJournalEntry>() * NAT_JOURNAL_ENTRIES <= SUM_JOURNAL_SIZE);
const _: () = assert!(2 + size_of::<RawSitJournalEntry>() * SIT_JOURNAL_ENTRIES <= SUM_JOURNAL_SIZE);

/// Logs kept in the checkpoint: three for data, three for nodes.
pub const NR_CURSEG_TYPE: usize = 6;
/// Number of data logs among them.
pub const NR_CURSEG_DATA_TYPE: usize = 3;
