//! Free node ids: a search reads the NAT round and round, one batch of blocks ahead of need.

use super::scan::{Batch, MOST};
use super::*;
use tidegate_rt::device_wait;

impl Nat {
    /// Takes a free node id for `ino` (`None`: for an inode, whose number it becomes). The node has no place
    /// yet. Waits for the device when ids are used up faster than the search finds them.
    ///
    /// # Errors
    /// `NoSpace` when every id is in use.
    pub(crate) fn alloc(&self, meta: &Meta, ino: Option<u32>) -> Result<Nid> {
        loop {
            let mut s = self.state.lock();
            if let Some((nid, version)) = s.free.pop_front() {
                s.set(nid, NatEntry { ino: ino.unwrap_or(nid), addr: BlockAddr::NEW, version });
                return Ok(Nid(nid));
            }
            drop(s);
            let _leave =
                device_wait::permit("ids are used up faster than operations look for more before they begin");
            if !self.build_free_nids(meta)? {
                return Err(Error::new(ErrorKind::NoSpace, "every node id is in use"));
            }
        }
    }

    /// Refills the list of free ids. Called before an operation that may take ids, with no lock held: a
    /// thread that waits for the device here delays no checkpoint and no other thread.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn refill(&self, meta: &Meta) -> Result<()> {
        if self.counts.short.load(Relaxed) { self.build_free_nids(meta).map(drop) } else { Ok(()) }
    }

    /// Adds free ids from the next NAT blocks to the list, going round the table once; true if there are any.
    /// Takes `build_lock`.
    fn build_free_nids(&self, meta: &Meta) -> Result<bool> {
        let mut ahead = self.scan.0.lock();
        let s = self.state.lock();
        // Another thread was quicker, or a checkpoint gave ids back.
        if !s.is_short() {
            return Ok(!s.free.is_empty());
        }
        drop(s);
        let blocks = self.max_nid / PER_BLOCK;
        // The number of blocks passed on this round, and whether a block was passed over because of a
        // checkpoint.
        let (mut seen, mut moved) = (0, false);
        while seen < blocks || std::mem::take(&mut moved) {
            seen %= blocks;
            // One flush moves a changed block to the other copy; a second flush may move it back.
            let fresh = |flushes: u64, s: &NatState| s.flushes - flushes <= 1;
            let (batch, is_ahead) = match ahead.batch.take().filter(|b| fresh(b.flushes, &self.state.lock()))
            {
                Some(batch) => (batch, true),
                None => (self.next_batch(meta, ahead.size, &mut seen), false),
            };
            let bytes = match batch.bytes.wait() {
                // The block may be readable later; otherwise the thread whose round meets it gets the error.
                Err(_) if is_ahead => continue,
                r => r?,
            };
            let mut s = self.state.lock();
            for ((block, addr), bytes) in batch.blocks.iter().zip(bytes) {
                if fresh(batch.flushes, &s) && self.block_addr(&s, *block) == *addr {
                    s.take_free(*block, bytes.bytes());
                    // The checkpoint that changes the block needs it again.
                    meta.keep(*addr, &bytes);
                } else {
                    moved = true;
                }
            }
            s.count();
            if s.free.len() < SHORT {
                continue;
            }
            drop(s);
            ahead.size = (ahead.size * 2).min(MOST);
            ahead.batch = Some(self.next_batch(meta, ahead.size, &mut 0));
            return Ok(true);
        }
        let mut s = self.state.lock();
        s.all_listed = true;
        s.count();
        Ok(!s.free.is_empty())
    }

    /// Starts to read the next `size` blocks that may have free ids; adds the blocks passed on the way to
    /// `seen`.
    fn next_batch(&self, meta: &Meta, size: usize, seen: &mut u32) -> Batch {
        let count = self.max_nid / PER_BLOCK;
        let mut s = self.state.lock();
        let known = s.known_blocks();
        let mut blocks = Vec::new();
        let mut passed = 0;
        while passed < count && blocks.len() < size {
            let block = s.next_scan % count;
            s.next_scan = (block + 1) % count;
            passed += 1;
            let full = |b: &NatBits| test_bit_le(&b.full, block as usize);
            if known.contains(&block) || !s.bits.as_ref().is_some_and(full) {
                blocks.push((block, self.block_addr(&s, block)));
            }
        }
        *seen += passed;
        let flushes = s.flushes;
        drop(s);
        let addrs: Vec<u32> = blocks.iter().map(|b| b.1).collect();
        Batch { flushes, blocks, bytes: meta.read_ahead(&addrs) }
    }
}

impl NatState {
    /// Lists the free ids of a block that are not listed yet.
    fn take_free(&mut self, block: u32, bytes: &[u8]) {
        let range = block * PER_BLOCK..(block + 1) * PER_BLOCK;
        let listed: HashSet<u32> = self.free.iter().map(|f| f.0).filter(|n| range.contains(n)).collect();
        for i in 0..PER_BLOCK {
            let nid = block * PER_BLOCK + i;
            let e = self.known(nid).unwrap_or_else(|| entry_in(bytes, i));
            if nid > 3
                && e.addr == BlockAddr::NULL
                && !self.freed.contains_key(&nid)
                && !listed.contains(&nid)
            {
                self.free.push_back((nid, e.version));
            }
        }
    }
}
