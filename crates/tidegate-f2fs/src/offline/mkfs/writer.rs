//! Synchronous I/O with errors that name the block.

use super::MkfsError;
use crate::format::raw::BLOCK_SIZE;
use crate::format::units::BlockAddr;
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, Errno, Op, PageBuf, RequestQueue, Sector, Segment, Zone};

/// Most bytes of a range in one bio.
const RANGE: u64 = 1 << 30;

/// The device as mkfs uses it.
pub(super) struct Writer<'a>(pub &'a RequestQueue);

impl Writer<'_> {
    /// Reads one block.
    pub fn read(&self, block: BlockAddr) -> Result<PageBuf, MkfsError> {
        self.0.read_wait(block.sector(), 1, BioFlags::META).map_err(|e| failed("read", block, e))
    }

    /// Writes one or more blocks.
    pub fn write(&self, block: BlockAddr, data: PageBuf) -> Result<(), MkfsError> {
        let pages = data.pages();
        let segment = Segment::pages(Arc::new(data), 0, pages);
        let bio = Bio::write(block.sector(), vec![segment], BioFlags::SYNC | BioFlags::META);
        self.0.submit_wait(bio).map(drop).map_err(|e| failed("write", block, e))
    }

    /// Makes `blocks` blocks read as zeros; on a file they become holes.
    pub fn zero(&self, first: BlockAddr, blocks: u64) -> Result<(), MkfsError> {
        ranges(first, blocks).try_for_each(|(at, bytes)| {
            let bio = Bio::write_zeroes(Sector::from_bytes(at), bytes);
            self.0.submit_wait(bio).map(drop).map_err(|e| failed("zeroing", block_at(at), e))
        })
    }

    /// Discards `blocks` blocks. A device that supports no discards is no error.
    pub fn discard(&self, first: BlockAddr, blocks: u64) -> Result<(), MkfsError> {
        for (at, bytes) in ranges(first, blocks) {
            match self.0.submit_wait(Bio::discard(Sector::from_bytes(at), bytes)) {
                Ok(_) => {}
                Err(Errno::OPNOTSUPP) => break,
                Err(e) => return Err(failed("discard", block_at(at), e)),
            }
        }
        Ok(())
    }

    /// Resets a zone.
    pub fn reset(&self, zone: &Zone) -> Result<(), MkfsError> {
        let bio = Bio::range(Op::ZoneReset, Sector::from_bytes(zone.start), zone.len, BioFlags::SYNC);
        self.0.submit_wait(bio).map(drop).map_err(|e| failed("reset", block_at(zone.start), e))
    }

    /// Makes what was written durable.
    pub fn flush(&self) -> Result<(), MkfsError> {
        self.0.flush().map_err(|e| failed("flush", BlockAddr(0), e))
    }
}

/// Offset and length in bytes of the pieces of a range of blocks.
fn ranges(first: BlockAddr, blocks: u64) -> impl Iterator<Item = (u64, u64)> {
    let start = first.0 as u64 * BLOCK_SIZE as u64;
    let end = start + blocks * BLOCK_SIZE as u64;
    (start..end).step_by(RANGE as usize).map(move |at| (at, RANGE.min(end - at)))
}

fn block_at(bytes: u64) -> BlockAddr {
    BlockAddr((bytes / BLOCK_SIZE as u64) as u32)
}

fn failed(what: &'static str, block: BlockAddr, source: Errno) -> MkfsError {
    MkfsError::Io { what, block, source }
}
