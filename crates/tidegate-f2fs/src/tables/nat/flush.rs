//! Changes of the NAT that a checkpoint writes, and the ids that it frees.

use super::*;

impl Nat {
    /// Puts every change into the journal if it has room (and `tables_only` is not set), otherwise into the
    /// other copies of the table's blocks. Called by the checkpoint, with operations frozen.
    pub(crate) fn flush(&self, meta: &Meta, tables_only: bool) -> Result<()> {
        let mut s = self.state.lock();
        let dirty = std::mem::take(&mut s.dirty);
        s.count();
        let mut all = s.journal.clone();
        all.extend(dirty.iter().filter_map(|n| Some((*n, *s.entries.get(n)?))));
        s.flushes += 1;
        if all.len() <= NAT_JOURNAL_ENTRIES && !tables_only {
            s.journal = all;
        } else {
            let mut at = all.iter().peekable();
            while let Some((nid, _)) = at.peek() {
                let block = **nid / PER_BLOCK;
                let mut set = Vec::new();
                while let Some((n, e)) = at.next_if(|(n, _)| **n / PER_BLOCK == block) {
                    set.push((n % PER_BLOCK, *e));
                }
                self.flush_block(&mut s, meta, block, &set)?;
            }
            s.journal.clear();
        }
        if s.entries.len() > MAX_CLEAN {
            s.entries.retain(|_, e| e.addr == BlockAddr::NEW);
        }
        Ok(())
    }

    fn flush_block(&self, s: &mut NatState, meta: &Meta, block: u32, set: &[(u32, NatEntry)]) -> Result<()> {
        let mut page = PageBuf::from_slice(meta.read(self.block_addr(s, block))?.bytes());
        for (i, e) in set {
            let raw = RawNatEntry::from(*e);
            let at = *i as usize * size_of::<RawNatEntry>();
            page[at..at + size_of::<RawNatEntry>()].copy_from_slice(raw.as_bytes());
        }
        if let Some(bits) = &mut s.bits {
            let used = (0..PER_BLOCK)
                .filter(|i| (block == 0 && *i == 0) || entry_in(&page, *i).addr != BlockAddr::NULL)
                .count();
            set_bit_le(&mut bits.full, block as usize, used == NAT_ENTRY_PER_BLOCK);
            set_bit_le(&mut bits.empty, block as usize, used == 0);
        }
        let now = test_bit_msb(&s.bitmap, block as usize);
        set_bit_msb(&mut s.bitmap, block as usize, !now);
        meta.write(self.block_addr(s, block), page);
        Ok(())
    }

    /// Called after the checkpoint: ids freed before it become free.
    pub(crate) fn checkpointed(&self) {
        let mut s = self.state.lock();
        let freed = std::mem::take(&mut s.freed);
        s.free.extend(freed);
        s.count();
    }
}
