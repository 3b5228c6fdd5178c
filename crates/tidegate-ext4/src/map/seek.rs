//! Searches for data and for holes. Data that waits in memory counts.

use super::Place;
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::ei;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{Inode, Result, SeekTarget};

impl Ext4 {
    /// The first block in a range of bytes that is data, or a hole; returns its first byte.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn seek_blocks(
        &self,
        inode: &Inode,
        bytes: Range<u64>,
        target: SeekTarget,
    ) -> Result<Option<u64>> {
        if ei(inode).is(InodeFlags::INLINE_DATA) {
            return Ok((target == SeekTarget::Data && !bytes.is_empty()).then_some(bytes.start));
        }
        let bs = u64::from(self.sb.block_size);
        let (mut at, end) = (bytes.start / bs, bytes.end.div_ceil(bs));
        let mut waits = None;
        while at < end {
            // These looks come before the one at the map: a block that has a promise or is on its way now has a
            // place in the map when it has none of them any more.
            let promised = self.next_promised(inode, at..end).unwrap_or(end..end);
            let next = waits.filter(|n| *n >= at).unwrap_or_else(|| self.next_waiting(inode, at, end));
            waits = Some(next);
            let m = self.map_shared(inode, FileBlock(at), end - at)?;
            let behind = at + m.blocks;
            let per_page = self.blocks.per_page();
            let data = match m.place {
                Place::Data(_) => at..behind,
                Place::Unwritten(_) => next..(next / per_page + 1) * per_page,
                Place::Hole => promised,
            };
            let found = match target {
                SeekTarget::Data => (data.start < behind).then_some(data.start),
                SeekTarget::Hole => (data.start > at).then_some(at),
            };
            if let Some(n) = found {
                return Ok(Some((n * bs).clamp(bytes.start, bytes.end)));
            }
            at = if target == SeekTarget::Data { behind } else { behind.min(data.end) };
        }
        Ok(None)
    }

    /// The first block from `at` on whose page is not on the volume yet; `end` if there is none. A block that
    /// reads as zeros until then counts as data with the whole of its page.
    fn next_waiting(&self, inode: &Inode, at: u64, end: u64) -> u64 {
        let per_page = self.blocks.per_page();
        let next = inode.mapping.next_unwritten(at / per_page, end.div_ceil(per_page));
        next.map_or(end, |p| (p * per_page).max(at))
    }
}
