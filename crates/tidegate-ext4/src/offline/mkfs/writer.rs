//! Synchronous I/O in the volume's blocks, with errors that name the block.

use super::MkfsError;
use crate::format::units::BlockAddr;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, Errno, PAGE_SIZE, PageBuf, RequestQueue, Sector, Segment};

/// Most bytes of a range in one bio.
const RANGE: u64 = 1 << 30;
/// Most bytes of a write.
const WRITE: usize = PageBuf::MAX_PAGES * PAGE_SIZE;

/// The device as mkfs uses it.
pub(super) struct Writer<'a> {
    pub queue: &'a RequestQueue,
    pub block_size: u64,
    /// Bytes written so far.
    pub written: Cell<u64>,
    /// The address and the bytes of blocks that were given but not written yet: neighbours are written
    /// together.
    gathered: RefCell<(u64, Vec<u8>)>,
}

impl<'a> Writer<'a> {
    pub fn new(queue: &'a RequestQueue, block_size: u64) -> Self {
        Writer { queue, block_size, written: Cell::new(0), gathered: RefCell::default() }
    }

    /// Writes blocks from `block` on, at the latest with the next flush.
    pub fn write(&self, block: BlockAddr, bytes: &[u8]) -> Result<(), MkfsError> {
        let at = block.0 * self.block_size;
        let goes_on = {
            let (start, before) = &*self.gathered.borrow();
            start + before.len() as u64 == at && before.len() + bytes.len() <= WRITE
        };
        if !goes_on {
            self.send()?;
            self.gathered.borrow_mut().0 = at;
        }
        self.gathered.borrow_mut().1.extend_from_slice(bytes);
        Ok(())
    }

    fn send(&self) -> Result<(), MkfsError> {
        let (at, bytes) = self.gathered.take();
        self.write_pieces(at, &bytes, BioFlags::SYNC | BioFlags::META)
    }

    /// Writes whole sectors from byte `at` of the device on, after everything that was given before.
    pub fn write_at(&self, at: u64, bytes: &[u8], flags: BioFlags) -> Result<(), MkfsError> {
        self.send()?;
        self.write_pieces(at, bytes, flags)
    }

    fn write_pieces(&self, at: u64, bytes: &[u8], flags: BioFlags) -> Result<(), MkfsError> {
        self.written.update(|n| n + bytes.len() as u64);
        for (n, piece) in bytes.chunks(WRITE).enumerate() {
            let at = at + (n * WRITE) as u64;
            let segment =
                Segment { buf: Arc::new(PageBuf::from_slice(piece)), offset: 0, len: piece.len() as u32 };
            let bio = Bio::write(Sector::from_bytes(at), vec![segment], flags);
            self.queue.submit_wait(bio).map_err(|e| self.failed("write", at, e))?;
        }
        Ok(())
    }

    /// Makes `blocks` blocks read as zeros; on a file they become holes.
    pub fn zero(&self, first: BlockAddr, blocks: u64) -> Result<(), MkfsError> {
        self.send()?;
        self.ranges(first, blocks).try_for_each(|(at, bytes)| {
            let bio = Bio::write_zeroes(Sector::from_bytes(at), bytes);
            self.queue.submit_wait(bio).map(drop).map_err(|e| self.failed("zeroing", at, e))
        })
    }

    /// Discards `blocks` blocks. A device that supports no discards is no error.
    pub fn discard(&self, first: BlockAddr, blocks: u64) -> Result<(), MkfsError> {
        self.send()?;
        for (at, bytes) in self.ranges(first, blocks) {
            match self.queue.submit_wait(Bio::discard(Sector::from_bytes(at), bytes)) {
                Ok(_) => {}
                Err(Errno::OPNOTSUPP) => break,
                Err(e) => return Err(self.failed("discard", at, e)),
            }
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub fn flush(&self) -> Result<(), MkfsError> {
        self.send()?;
        self.queue.flush().map_err(|e| self.failed("flush", 0, e))
    }

    /// Offset and length in bytes of the pieces of a range of blocks.
    fn ranges(&self, first: BlockAddr, blocks: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let start = first.0 * self.block_size;
        let end = start + blocks * self.block_size;
        (start..end).step_by(RANGE as usize).map(move |at| (at, RANGE.min(end - at)))
    }

    fn failed(&self, what: &'static str, at: u64, source: Errno) -> MkfsError {
        MkfsError::Io { what, block: BlockAddr(at / self.block_size), source }
    }
}
