//! Changes of the SIT that a checkpoint writes, and the segments that it frees.

use super::*;

impl Sit {
    /// Puts every change into the journal if it has room, otherwise into the other copies of the table's
    /// blocks. Called by the checkpoint, with operations frozen.
    pub(crate) fn flush(&self, meta: &Meta) -> Result<()> {
        let mut s = self.state.lock();
        let mut all: BTreeSet<u32> = s.dirty.clone();
        all.extend(s.journal.keys());
        if all.len() <= SIT_JOURNAL_ENTRIES {
            for segno in all {
                let raw = self.entry(&mut s, segno)?.to_raw();
                s.journal.insert(segno, raw);
            }
            return Ok(());
        }
        let blocks: BTreeSet<u32> = all.iter().map(|n| n / PER_BLOCK).collect();
        for block in blocks {
            self.entry(&mut s, block * PER_BLOCK)?;
            let mut page = PageBuf::zeroed(1);
            for (i, e) in s.blocks.get(&block).into_iter().flatten().enumerate() {
                let at = i * size_of::<RawSitEntry>();
                page[at..at + size_of::<RawSitEntry>()].copy_from_slice(e.to_raw().as_bytes());
            }
            let now = test_bit_msb(&s.bitmap, block as usize);
            set_bit_msb(&mut s.bitmap, block as usize, !now);
            meta.write(self.block_addr(&s, block), page);
        }
        s.journal.clear();
        Ok(())
    }

    /// Called after the checkpoint: its maps become the current ones, and emptied segments become free.
    /// Returns these segments.
    pub(crate) fn checkpointed(&self) -> Result<Vec<SegNo>> {
        let mut s = self.state.lock();
        let mut freed = Vec::new();
        for segno in std::mem::take(&mut s.dirty) {
            let e = self.entry(&mut s, segno)?;
            e.ckpt_map = e.map;
            let empty = e.valid == 0;
            if empty && !s.is_current(segno) {
                freed.push(SegNo(segno));
            }
        }
        s.free.free += std::mem::take(&mut s.free.prefree);
        if let Some(sections) = &mut s.sections {
            sections.checkpointed();
        }
        s.publish();
        s.excluded = None;
        s.unreadable.clear();
        s.stale.opened();
        Ok(freed)
    }
}
