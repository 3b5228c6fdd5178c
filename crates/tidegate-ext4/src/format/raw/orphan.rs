//! The orphan file: blocks full of inode numbers.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ob_magic`.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

/// `struct ext4_orphan_block_tail`: at the end of each block of the orphan file; before it are inode numbers,
/// 0 where there is none.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the names are the format's
pub struct RawOrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}
const _: () = assert!(size_of::<RawOrphanTail>() == 8);
