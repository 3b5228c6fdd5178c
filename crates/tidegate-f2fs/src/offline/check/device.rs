//! Reads of the volume: blocks through a small cache that reads ahead, and whole areas.

use crate::format::raw::BLOCK_SIZE;
use std::ops::Deref;
use std::rc::Rc;
use tidegate_block::{BioFlags, PageBuf, RequestQueue, Sector};
use tidegate_rt::hash::HashMap;
use tidegate_vfs::{Error, Result};

/// Blocks read at once when one of them is wanted.
const WINDOW: u32 = 32;
/// Windows kept: 32 MiB.
const WINDOWS: usize = 256;

/// A block in memory.
#[derive(Clone)]
pub(super) struct Block {
    window: Rc<PageBuf>,
    at: usize,
}

impl Deref for Block {
    type Target = [u8; BLOCK_SIZE];
    fn deref(&self) -> &Self::Target {
        // The window is a whole number of blocks and `at` one of them.
        self.window[self.at..].first_chunk().unwrap_or(&[0; BLOCK_SIZE])
    }
}

struct Slot {
    number: u32,
    buf: Rc<PageBuf>,
    used: bool,
}

/// The device, read in windows that are kept by second chance.
pub(super) struct Reader<'q> {
    queue: &'q RequestQueue,
    blocks: u64,
    slots: Vec<Slot>,
    index: HashMap<u32, usize>,
    hand: usize,
    /// The slot of the last hit: most reads go to the same window as the read before.
    last: usize,
}

impl<'q> Reader<'q> {
    pub(super) fn new(queue: &'q RequestQueue) -> Self {
        let blocks = queue.device().size() / BLOCK_SIZE as u64;
        Reader { queue, blocks, slots: Vec::new(), index: HashMap::default(), hand: 0, last: 0 }
    }

    /// Blocks of the device.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Block `addr`.
    pub(super) fn block(&mut self, addr: u32) -> Result<Block> {
        let number = addr / WINDOW;
        let slot = match self.slots.get(self.last) {
            Some(s) if s.number == number => self.last,
            _ => self.find(number)?,
        };
        self.last = slot;
        let slot = &mut self.slots[slot];
        slot.used = true;
        let at = (addr % WINDOW) as usize * BLOCK_SIZE;
        if at >= slot.buf.len() {
            return Err(Error::corrupt("behind the end of the image").at_block(addr));
        }
        Ok(Block { window: slot.buf.clone(), at })
    }

    fn find(&mut self, number: u32) -> Result<usize> {
        if let Some(&slot) = self.index.get(&number) {
            return Ok(slot);
        }
        let first = number * WINDOW;
        let count = self.blocks.saturating_sub(first as u64).min(WINDOW as u64) as u32;
        if count == 0 {
            return Err(Error::corrupt("behind the end of the image").at_block(first));
        }
        let fresh = Slot { number, buf: Rc::new(self.read(first, count)?), used: true };
        let at = if self.slots.len() < WINDOWS {
            self.slots.push(fresh);
            self.slots.len() - 1
        } else {
            let at = self.victim();
            self.index.remove(&self.slots[at].number);
            self.slots[at] = fresh;
            at
        };
        self.index.insert(number, at);
        Ok(at)
    }

    fn victim(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.used) {
                return self.hand;
            }
        }
    }

    /// Reads `count` blocks (at most 256) from `first` on, past the cache.
    pub(super) fn read(&self, first: u32, count: u32) -> Result<PageBuf> {
        let sector = Sector(first as u64 * 8);
        self.queue
            .read_wait(sector, count as usize, BioFlags::META)
            .map_err(|e| Error::device(e, format!("reading {count} blocks at block {first}")))
    }

    /// Calls `f` with each block of `addrs`: its index in the list and its content. Runs of adjacent blocks
    /// are read in pieces of up to 1 MiB.
    pub(super) fn scan(
        &self,
        addrs: impl Iterator<Item = u32>,
        mut f: impl FnMut(usize, &[u8; BLOCK_SIZE]),
    ) -> Result<()> {
        let mut addrs = addrs.peekable();
        let mut done = 0;
        while let Some(first) = addrs.next() {
            let mut n = 1;
            while n < PageBuf::MAX_PAGES as u32 && addrs.next_if_eq(&(first + n)).is_some() {
                n += 1;
            }
            for block in self.read(first, n)?.as_chunks::<BLOCK_SIZE>().0 {
                f(done, block);
                done += 1;
            }
        }
        Ok(())
    }
}
