//! The place of the log: its blocks, as runs of a device's blocks.

use crate::io;
use crate::units::{FsBlock, LogBlock};
use std::sync::Arc;
use tidegate_block::{BioFlags, RequestQueue};
use tidegate_vfs::{At, Error, Result};

/// Blocks that follow each other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block.
    pub first: FsBlock,
    /// Number of blocks.
    pub len: u32,
}

/// Blocks of the smallest log that has room for a transaction: superblock, descriptor, block, record.
const MIN_BLOCKS: u32 = 4;

/// The blocks of a journal, in a file of the volume or on a device of its own.
pub struct Log {
    queue: Arc<RequestQueue>,
    block_size: u32,
    /// Each run with its first log block; in order, without gaps.
    runs: Vec<(LogBlock, Run)>,
    len: u32,
}

impl Log {
    /// A log whose blocks of `block_size` bytes are those of `runs`, in this order, on the device of `queue`.
    /// The first block is the journal's superblock.
    ///
    /// # Errors
    /// `Corrupt` when a run is not all on the device, two have a block in common, or the log is too short or
    /// long; `Unsupported` for a block size that is not a power of two from 1024 to 65536.
    pub fn new(
        queue: Arc<RequestQueue>,
        block_size: u32,
        runs: impl IntoIterator<Item = Run>,
    ) -> Result<Log> {
        if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
            let what = format!("blocks of {block_size} bytes");
            return Err(Error::new(tidegate_vfs::ErrorKind::Unsupported, what).at(At::The("journal")));
        }
        let blocks = queue.device().size() / u64::from(block_size);
        let (mut placed, mut len) = (Vec::new(), 0u32);
        for run in runs.into_iter().filter(|r| r.len > 0) {
            let end = run.first.0.checked_add(u64::from(run.len));
            if end.is_none_or(|end| end > blocks) {
                let Run { first, len: n } = run;
                let what = format!("lies in {n} blocks at {first}, past {blocks}");
                return Err(Error::corrupt(what).at(LogBlock(len).place()));
            }
            placed.push((LogBlock(len), run));
            len = len
                .checked_add(run.len)
                .ok_or_else(|| Error::corrupt("more than 2^32 blocks").at(At::The("journal")))?;
        }
        check_overlap(&placed)?;
        if len < MIN_BLOCKS {
            let what = format!("a log of {len} blocks has no room for a transaction");
            return Err(Error::corrupt(what).at(At::The("journal")));
        }
        Ok(Log { queue, block_size, runs: placed, len })
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Number of blocks, the superblock included.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Always false: a log has a superblock.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The queue of the log's device.
    pub fn queue(&self) -> &Arc<RequestQueue> {
        &self.queue
    }

    /// The place of log block `at`, and how many blocks from there on follow each other on the device; at
    /// most `max`.
    pub(crate) fn place(&self, at: LogBlock, max: u32) -> Result<(FsBlock, u32)> {
        let after = self.runs.partition_point(|(first, _)| *first <= at);
        let found = after.checked_sub(1).and_then(|n| self.runs.get(n)).and_then(|(first, run)| {
            let skip = at.0 - first.0;
            let left = run.len.checked_sub(skip).filter(|&n| n > 0)?;
            Some((FsBlock(run.first.0 + u64::from(skip)), left.min(max)))
        });
        found.ok_or_else(|| Error::corrupt(format!("the log has {} blocks", self.len)).at(at.place()))
    }

    /// Reads as many blocks from `at` on as `to` holds.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the log's end.
    pub(crate) fn read(&self, at: LogBlock, to: &mut [u8]) -> Result<()> {
        let size = self.block_size as usize;
        let (mut at, mut to) = (at, to);
        while !to.is_empty() {
            let (first, n) = self.place(at, (to.len() / size) as u32)?;
            let (now, rest) = to.split_at_mut(n as usize * size);
            let byte = first.0 * u64::from(self.block_size);
            let read = io::read(&self.queue, byte, now);
            read.map_err(|e| Error::device_at(e, "reading journal,", at.place()))?;
            (at, to) = (LogBlock(at.0 + n), rest);
        }
        Ok(())
    }

    /// Block `at`.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the log's end.
    pub(crate) fn read_block(&self, at: LogBlock) -> Result<Vec<u8>> {
        let mut block = vec![0; self.block_size as usize];
        self.read(at, &mut block)?;
        Ok(block)
    }

    /// Writes one block or a part of it, and waits for the write.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the log's end.
    pub(crate) fn write(&self, at: LogBlock, bytes: &[u8], flags: BioFlags) -> Result<()> {
        let (first, _) = self.place(at, 1)?;
        let byte = first.0 * u64::from(self.block_size);
        let bio = io::write_bio(byte, bytes, flags | BioFlags::META | BioFlags::SYNC);
        let wrote = self.queue.submit_wait(bio).map(drop);
        wrote.map_err(|e| Error::device_at(e, "writing journal,", at.place()))
    }
}

/// Refuses a log that has a block of the device twice: such a log could have any length.
fn check_overlap(placed: &[(LogBlock, Run)]) -> Result<()> {
    let mut sorted: Vec<&(LogBlock, Run)> = placed.iter().collect();
    sorted.sort_unstable_by_key(|(_, run)| run.first);
    for pair in sorted.windows(2) {
        let ((at, before), (next, run)) = (pair[0], pair[1]);
        if before.first.0 + u64::from(before.len) > run.first.0 {
            let what = format!("lies in the blocks of log block {at}");
            return Err(Error::corrupt(what).at(next.place()));
        }
    }
    Ok(())
}

/// Reads a log forward, several blocks at once.
pub(crate) struct Window<'a> {
    log: &'a Log,
    first: u32,
    bytes: Vec<u8>,
}

/// Bytes read at once.
const WINDOW: u32 = 128 << 10;

impl<'a> Window<'a> {
    pub fn new(log: &'a Log) -> Self {
        Window { log, first: 0, bytes: Vec::new() }
    }

    /// Block `at`.
    ///
    /// # Errors
    /// The device's; `Corrupt` past the log's end.
    pub fn get(&mut self, at: LogBlock) -> Result<&[u8]> {
        let size = self.log.block_size as usize;
        let held = at.0.checked_sub(self.first).map(|n| n as usize).filter(|n| n * size < self.bytes.len());
        let skip = match held {
            Some(n) => n,
            None => {
                let (_, n) = self.log.place(at, (WINDOW / self.log.block_size).max(1))?;
                // An unreadable block is no error if it was not asked for.
                self.fill(at, n).or_else(|e| if n > 1 { self.fill(at, 1) } else { Err(e) })?;
                0
            }
        };
        Ok(&self.bytes[skip * size..][..size])
    }

    /// Reads `n` blocks, which are one piece of the device. After an error, the window has no bytes.
    fn fill(&mut self, at: LogBlock, n: u32) -> Result<()> {
        self.bytes.resize((n * self.log.block_size) as usize, 0);
        self.first = at.0;
        self.log.read(at, &mut self.bytes).inspect_err(|_| self.bytes.clear())
    }
}
