//! The orphan file: blocks full of inode numbers.

use super::read_at;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ob_magic`.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

/// `struct ext4_orphan_block_tail`, at the end of each block of the orphan file. Before it are inode numbers,
/// 0 for an unused place.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawOrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}
const _: () = assert!(size_of::<RawOrphanTail>() == 8);

impl RawOrphanTail {
    /// The byte offset of a block's tail.
    pub(crate) fn offset(block: &[u8]) -> usize {
        block.len() - size_of::<RawOrphanTail>()
    }

    /// The tail of a block.
    pub(crate) fn of(block: &[u8]) -> Option<RawOrphanTail> {
        read_at(block, RawOrphanTail::offset(block))
    }

    /// The inode numbers of a block, each with its byte offset.
    pub(crate) fn numbers(block: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
        let places = (0..RawOrphanTail::offset(block)).step_by(size_of::<U32>());
        places.filter_map(|at| Some((at, read_at::<U32>(block, at)?.get()))).filter(|(_, ino)| *ino != 0)
    }
}
