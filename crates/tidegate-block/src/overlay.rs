//! A copy-on-write device in memory: many cheap variants of one content.
//!
//! The content is a table that names, for each block of the device, a block in a shared [`Blocks`]; written
//! blocks stay in the overlay. A new variant costs a copy of the table.

use crate::bytes::{self, Bytes, pieces};
use crate::{Device, DeviceInfo, Errno, PAGE_SIZE, Request};
use std::sync::Arc;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{LockClass, RwLock};

static CLASS: LockClass = LockClass::new("overlay", 991);

/// The default number of bytes in a block.
const BLOCK: usize = PAGE_SIZE;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Blocks that never change, by number. Number 0 is a block of zeros. A collection can continue another one.
pub struct Blocks {
    before: Option<Arc<Blocks>>,
    first: u32,
    bytes: Vec<u8>,
    /// Bytes of a block.
    size: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks::of_size(BLOCK)
    }
}

impl Blocks {
    /// An empty collection of blocks of `size` bytes, a power of two up to a page.
    pub fn of_size(size: usize) -> Self {
        debug_assert!(size.is_power_of_two() && size <= BLOCK);
        Blocks { before: None, first: 0, bytes: Vec::new(), size }
    }

    /// An empty collection that continues `before`.
    pub fn after(before: Arc<Blocks>) -> Self {
        Blocks { first: before.end(), size: before.size, before: Some(before), bytes: Vec::new() }
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.size
    }

    fn end(&self) -> u32 {
        self.first + (self.bytes.len() / self.size) as u32
    }

    /// Adds the blocks in `bytes`, a whole number of blocks. Returns the number of the first.
    pub fn push(&mut self, bytes: &[u8]) -> u32 {
        debug_assert!(bytes.len().is_multiple_of(self.size));
        let at = self.end() + 1;
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// Block `n`.
    ///
    /// # Panics
    /// When there is none.
    pub fn get(&self, n: u32) -> &[u8] {
        if n == 0 {
            return &ZEROS[..self.size];
        }
        match &self.before {
            Some(b) if n <= self.first => b.get(n),
            _ => &self.bytes[(n - self.first - 1) as usize * self.size..][..self.size],
        }
    }
}

/// A copy-on-write device in memory, over bytes that it shares with others.
pub struct Overlay {
    blocks: Arc<Blocks>,
    table: Vec<u32>,
    written: RwLock<HashMap<u32, Box<[u8]>>>,
}

impl Overlay {
    /// A device with as many blocks as `table` has entries.
    pub fn new(blocks: Arc<Blocks>, table: Vec<u32>) -> Self {
        Overlay { blocks, table, written: RwLock::new(&CLASS, HashMap::default()) }
    }

    /// Calls `f` with block `n` of the device.
    pub fn with_block<T>(&self, n: u32, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.written.read().get(&n) {
            Some(b) => f(b),
            None => f(self.blocks.get(self.table[n as usize])),
        }
    }

    /// Blocks of the device.
    pub fn len(&self) -> u32 {
        self.table.len() as u32
    }

    /// Whether the device has no blocks.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn change(&self, block: u32, at: usize, from: &[u8]) {
        let mut written = self.written.write();
        let b = written.entry(block).or_insert_with(|| self.blocks.get(self.table[block as usize]).into());
        b[at..at + from.len()].copy_from_slice(from);
    }
}

impl Bytes for Overlay {
    fn size(&self) -> u64 {
        (self.table.len() * self.blocks.size) as u64
    }
    fn read_at(&self, pos: u64, to: &mut [u8]) {
        for (block, at, part) in pieces(pos, to.len() as u64, self.blocks.size) {
            self.with_block(block as u32, |b| {
                let to = &mut to[part];
                to.copy_from_slice(&b[at..at + to.len()]);
            });
        }
    }
    fn write_at(&self, pos: u64, from: &[u8]) {
        for (block, at, part) in pieces(pos, from.len() as u64, self.blocks.size) {
            self.change(block as u32, at, &from[part]);
        }
    }
    fn zero(&self, pos: u64, len: u64) {
        for (block, at, part) in pieces(pos, len, self.blocks.size) {
            self.change(block as u32, at, &ZEROS[..part.len()]);
        }
    }
}

impl Device for Overlay {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo {
            name: "overlay",
            size: Bytes::size(self),
            read_only: false,
            backend: "memory",
            zones: None,
        }
    }

    fn is_quick(&self, _: &Request) -> bool {
        true
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        bytes::execute(self, rq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bio, BioFlags, QueueLimits, RequestQueue, Sector};

    #[test]
    fn variants_share_blocks_and_keep_their_changes() {
        let mut first = Blocks::default();
        let one = first.push(&[1; BLOCK]);
        let mut more = Blocks::after(Arc::new(first));
        let two = more.push(&[2; BLOCK]);
        let blocks = Arc::new(more);
        let a = Arc::new(Overlay::new(blocks.clone(), vec![0, one, two]));
        let b = Overlay::new(blocks, vec![two, one, 0]);
        a.write_at(BLOCK as u64 - 2, &[9; 4]);
        let queue = RequestQueue::new(a.clone(), QueueLimits::default());
        let read = queue.read_wait(Sector(0), 3, BioFlags::empty()).unwrap();
        assert_eq!(read[BLOCK - 3..BLOCK + 3], [0, 9, 9, 9, 9, 1]);
        assert_eq!(read[2 * BLOCK..], [2; BLOCK]);
        queue.submit_wait(Bio::discard(Sector(8), 2 * BLOCK as u64)).unwrap();
        a.with_block(1, |b| assert_eq!(b, ZEROS));
        b.with_block(1, |b| assert_eq!(b, [1; BLOCK]));
        assert!(queue.read_wait(Sector(16), 2, BioFlags::empty()).is_err());
    }
}
