//! Reads the blocks of the table that a checkpoint will change, before the checkpoint freezes operations.

use super::*;
use tidegate_rt::trace::SpanPoint;

static RA_META_PAGES: SpanPoint<1> = SpanPoint::timed("f2fs_ra_meta_pages", ["blocks"]);

/// Most blocks read at once, of 4096 bytes each.
const AT_ONCE: usize = 512;

impl Nat {
    /// Reads into memory the blocks that [`Nat::flush`] would change now and that memory does not have: with
    /// operations frozen they would be read one by one. A block that cannot be read is left to the flush,
    /// which reports the error. The caller holds `cp_global_sem`, so that no other checkpoint writes the
    /// blocks meanwhile; takes `nat_tree_lock`.
    pub(crate) fn read_ahead(&self, meta: &Meta) {
        let mut addrs = self.with(|s| {
            if s.dirty.len() + s.journal.len() <= NAT_JOURNAL_ENTRIES {
                return Vec::new();
            }
            let blocks: BTreeSet<u32> =
                s.dirty.iter().chain(s.journal.keys()).map(|n| n / PER_BLOCK).collect();
            blocks.into_iter().map(|b| self.block_addr(s, b)).collect()
        });
        addrs.sort_unstable();
        for some in addrs.chunks(AT_ONCE) {
            let _span = RA_META_PAGES.enter([some.len() as u64]);
            let Ok(blocks) = meta.read_ahead(some).wait() else { return };
            for (addr, block) in some.iter().zip(&blocks) {
                meta.keep(*addr, block);
                // The block is looked up so that reclaim passes over it once.
                let _ = meta.inode.mapping.get(u64::from(*addr), 1);
            }
        }
    }
}
