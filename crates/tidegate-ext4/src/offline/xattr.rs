//! Extended attributes in their areas, as check and repair read them.

use crate::format::crc::crc32c;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use std::ops::Range;

/// An attribute in its area.
pub(in crate::offline) struct Stored<'a> {
    pub(in crate::offline) index: u8,
    pub(in crate::offline) name: &'a [u8],
    pub(in crate::offline) value: &'a [u8],
    /// The bytes of the area that the value takes: a multiple of [`XATTR_ROUND`].
    pub(in crate::offline) place: Range<usize>,
    pub(in crate::offline) hash: u32,
    /// Whether the hash is right; an attribute in an inode may have none.
    pub(in crate::offline) hash_is_right: bool,
    /// The byte at which the next entry begins.
    pub(in crate::offline) next: usize,
}

impl<'a> Stored<'a> {
    /// The entry at byte `at` of an area, which is a block's or an inode's; `None` where it does not fit.
    pub(in crate::offline) fn at(area: &'a [u8], at: usize, in_block: bool) -> Option<Self> {
        let e: RawXattrEntry = read_at(area, at)?;
        let name_end = at + XATTR_ENTRY + usize::from(e.e_name_len);
        let name = area.get(at + XATTR_ENTRY..name_end)?;
        let (offset, size) = (usize::from(e.e_value_offs.get()), e.e_value_size.get() as usize);
        let place = offset..offset.checked_add(size.checked_next_multiple_of(XATTR_ROUND)?)?;
        let padded = area.get(place.clone())?;
        if in_block && e.e_name_index == 0
            || e.e_value_inum.get() != 0
            || (size > 0 && !offset.is_multiple_of(XATTR_ROUND))
        {
            return None;
        }
        let stored = e.e_hash.get();
        let has_none = !in_block && stored == 0;
        Some(Stored {
            index: e.e_name_index,
            name,
            value: &padded[..size],
            place,
            hash: stored,
            hash_is_right: has_none
                || [true, false].iter().any(|signed| hash(name, padded, *signed) == stored),
            next: name_end.next_multiple_of(XATTR_ROUND),
        })
    }

    /// Whether it is an inode's encryption context.
    pub(in crate::offline) fn is_context(&self) -> bool {
        self.index == INDEX_ENCRYPTION && self.name == b"c"
    }
}

/// The header of a block of attributes, if it is one.
pub(in crate::offline) fn header(block: &[u8]) -> Option<RawXattrHeader> {
    let head: RawXattrHeader = read_at(block, 0)?;
    (head.h_magic.get() == XATTR_MAGIC && head.h_blocks.get() == 1).then_some(head)
}

/// The correct `h_checksum` of the block at `addr`.
pub(in crate::offline) fn checksum(sb: &Superblock, addr: u64, block: &[u8]) -> u32 {
    let mut whole = block.to_vec();
    if let Some(head) = at_mut::<RawXattrHeader>(&mut whole, 0) {
        head.h_checksum = 0.into();
    }
    crc32c(crc32c(sb.csum_seed, &addr.to_le_bytes()), &whole)
}

/// The hash of an entry: of its name, then of the words of its value. On some machines the bytes of a name
/// count as signed.
pub(in crate::offline) fn hash(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let byte = |b: u8| if signed { i32::from(b as i8) as u32 } else { b.into() };
    let of_name = name.iter().fold(0u32, |h, &b| h.rotate_left(5) ^ byte(b));
    let words = value.as_chunks::<4>().0;
    words.iter().fold(of_name, |h, w| h.rotate_left(16) ^ u32::from_le_bytes(*w))
}
