//! The volume's blocks: read through a small cache, changed in memory, written by the commit.

use super::map::Place;
use crate::format::raw::BLOCK_SIZE;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, PageBuf, RequestQueue, Sector, Segment};
use tidegate_rt::hash::HashMap;
use tidegate_vfs::{Error, Result};

/// Blocks read at once when one of them is wanted.
const WINDOW: u32 = 32;
/// Windows kept: 16 MiB.
const WINDOWS: usize = 128;

/// A block in memory.
pub(super) type Block = Box<[u8; BLOCK_SIZE]>;

/// A changed block of the main area.
pub(super) struct Changed {
    pub(super) block: Block,
    /// The block that refers to this one, and so changes when this one moves.
    pub(super) place: Place,
    /// The block's address is new: nothing on the volume refers to it yet.
    pub(super) fresh: bool,
}

/// The device and its changes.
pub(super) struct Disk<'q> {
    queue: &'q RequestQueue,
    blocks: u64,
    windows: HashMap<u32, PageBuf>,
    order: VecDeque<u32>,
    pub(super) changed: BTreeMap<u32, Changed>,
}

impl<'q> Disk<'q> {
    pub(super) fn new(queue: &'q RequestQueue) -> Self {
        let blocks = queue.device().size() / BLOCK_SIZE as u64;
        Disk { queue, blocks, windows: HashMap::default(), order: VecDeque::new(), changed: BTreeMap::new() }
    }

    /// The way to the device.
    pub(super) fn queue(&self) -> &'q RequestQueue {
        self.queue
    }

    /// Drops the cache: later reads go to the device.
    pub(super) fn forget(&mut self) {
        self.windows.clear();
        self.order.clear();
    }

    /// Blocks of the device.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Block `addr` with all changes.
    ///
    /// # Errors
    /// Those of the device; `Corrupt` behind its end.
    pub(super) fn block(&mut self, addr: u32) -> Result<Block> {
        if let Some(c) = self.changed.get(&addr) {
            return Ok(c.block.clone());
        }
        let number = addr / WINDOW;
        if !self.windows.contains_key(&number) {
            let first = number * WINDOW;
            let count = self.blocks.saturating_sub(first as u64).min(WINDOW as u64) as u32;
            let window = self.read(first, count)?;
            if self.order.len() >= WINDOWS
                && let Some(old) = self.order.pop_front()
            {
                self.windows.remove(&old);
            }
            self.windows.insert(number, window);
            self.order.push_back(number);
        }
        let at = (addr % WINDOW) as usize * BLOCK_SIZE;
        let bytes = self.windows.get(&number).and_then(|w| w.get(at..)?.first_chunk());
        bytes.map(|b| Box::new(*b)).ok_or_else(|| behind(addr))
    }

    /// `count` blocks from `first` on, past the cache and the changes.
    ///
    /// # Errors
    /// Those of the device; `Corrupt` behind its end.
    pub(super) fn read(&self, first: u32, count: u32) -> Result<PageBuf> {
        if count == 0 || first as u64 + count as u64 > self.blocks {
            return Err(behind(first));
        }
        self.queue
            .read_wait(Sector(first as u64 * 8), count as usize, BioFlags::META)
            .map_err(|e| Error::device(e, format!("reading {count} blocks at block {first}")))
    }

    /// Calls `f` with each of `count` blocks from `first` on, with its address.
    ///
    /// # Errors
    /// Those of reading and of `f`.
    pub(super) fn scan(
        &self,
        first: u32,
        count: u32,
        mut f: impl FnMut(u32, &[u8; BLOCK_SIZE]) -> Result<()>,
    ) -> Result<()> {
        let (mut at, end) = (first, first + count);
        while at < end {
            let n = (end - at).min(PageBuf::MAX_PAGES as u32);
            for block in self.read(at, n)?.as_chunks::<BLOCK_SIZE>().0 {
                f(at, block)?;
                at += 1;
            }
        }
        Ok(())
    }

    /// Changes block `addr`, which `place` refers to.
    pub(super) fn put(&mut self, addr: u32, place: Place, block: Block) {
        let fresh = self.changed.get(&addr).is_some_and(|c| c.fresh);
        self.changed.insert(addr, Changed { block, place, fresh });
    }

    /// Writes `block` to the device now.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn write(&mut self, addr: u32, block: &[u8], flags: BioFlags) -> Result<()> {
        if let Some(w) = self.windows.get_mut(&(addr / WINDOW)) {
            let at = (addr % WINDOW) as usize * BLOCK_SIZE;
            w[at..at + BLOCK_SIZE].copy_from_slice(block);
        }
        let segments = vec![Segment::pages(Arc::new(PageBuf::from_slice(block)), 0, 1)];
        let bio = Bio::write(Sector(addr as u64 * 8), segments, flags | BioFlags::SYNC | BioFlags::META);
        let done = self.queue.submit_wait(bio);
        done.map(drop).map_err(|e| Error::device(e, format!("writing block {addr}")))
    }
}

fn behind(addr: u32) -> Error {
    Error::corrupt("behind the end of the image").at_block(addr)
}
