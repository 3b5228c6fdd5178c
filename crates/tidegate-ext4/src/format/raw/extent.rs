//! The extent tree.

use super::read_at;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// The most levels of index above the leaves.
pub const MAX_DEPTH: u16 = 5;
/// The longest written extent in blocks; a larger number in `ee_len` says that the extent is unwritten.
pub const INIT_MAX_LEN: u16 = 1 << 15;

/// `struct ext4_extent_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// `struct ext4_extent`: blocks of the file that lie in one piece.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// `struct ext4_extent_idx`: a block of the tree one level down.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// `struct ext4_extent_tail`, behind the room for entries in a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawExtentTail {
    pub et_checksum: U32,
}

/// Bytes of the header and of each entry.
pub const EXTENT_ENTRY: usize = 12;
const _: () = assert!(size_of::<RawExtentHeader>() == EXTENT_ENTRY);
const _: () = assert!(size_of::<RawExtent>() == EXTENT_ENTRY);
const _: () = assert!(size_of::<RawExtentIndex>() == EXTENT_ENTRY);

impl RawExtentTail {
    /// The byte offset of a node's tail, by the node's header. In a damaged node it lies behind the end.
    pub(crate) fn offset(node: &[u8]) -> usize {
        let header = read_at::<RawExtentHeader>(node, 0);
        EXTENT_ENTRY * (1 + header.map_or(0, |h| usize::from(h.eh_max.get())))
    }

    /// The bytes that a node's checksum covers, and the checksum; none where the node has no room for a tail.
    pub(crate) fn of(node: &[u8]) -> Option<(&[u8], u32)> {
        let end = RawExtentTail::offset(node);
        read_at::<RawExtentTail>(node, end).map(|tail| (&node[..end], tail.et_checksum.get()))
    }
}

/// The first file block of entry `n` of a node, an extent or an index entry.
pub(crate) fn entry_block(node: &[u8], n: usize) -> Option<u64> {
    read_at::<U32>(node, EXTENT_ENTRY * (n + 1)).map(|block| block.get().into())
}

impl RawExtent {
    /// First block.
    pub fn start(&self) -> u64 {
        u64::from(self.ee_start_lo.get()) | u64::from(self.ee_start_hi.get()) << 32
    }

    /// Length in blocks, and whether it was never written.
    pub fn len(&self) -> (u32, bool) {
        let len = self.ee_len.get();
        if len <= INIT_MAX_LEN { (len.into(), false) } else { (u32::from(len - INIT_MAX_LEN), true) }
    }
}

impl RawExtentIndex {
    /// The block one level down.
    pub fn leaf(&self) -> u64 {
        u64::from(self.ei_leaf_lo.get()) | u64::from(self.ei_leaf_hi.get()) << 32
    }
}
