//! Discards of free blocks, run by run. A run that is being discarded is kept from every thread that
//! allocates blocks.

use super::bitmap::{clear_run, fill, first_clear};
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{Bio, Errno};
use tidegate_vfs::{Error, ErrorKind, Result};

impl Ext4 {
    /// Discards the free blocks in a range of bytes, in pieces of at least `minimum` bytes; returns the bytes
    /// discarded. Blocks that a commit has yet to free are left alone.
    ///
    /// # Errors
    /// `Unsupported` where the device takes none; `InvalidArgument` for a range that begins behind the end;
    /// `ReadOnly`; those of the device.
    pub(crate) fn trim_free(&self, bytes: Range<u64>, minimum: u64) -> Result<u64> {
        self.check_writable()?;
        let bs = u64::from(self.sb.block_size);
        let range =
            bytes.start.div_ceil(bs).max(self.sb.first_data_block.0)..(bytes.end / bs).min(self.sb.blocks);
        if bytes.start / bs >= self.sb.blocks {
            let what = format!("byte {} is behind the volume's end", bytes.start);
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let mut trimmed = 0;
        let mut at = range.start;
        while at < range.end {
            let group = self.group_of(BlockAddr(at));
            let Some(run) = self.hold_free(group, at, range.end, minimum.div_ceil(bs).max(1))? else {
                at = self.sb.group_start(group).0 + u64::from(self.blocks_in(group));
                continue;
            };
            let (first, len) = (run.start, (run.end - run.start) * bs);
            let sent = self.blocks.queue.submit_wait(Bio::discard(self.blocks.sector(BlockAddr(first)), len));
            self.freed.release(group, first);
            sent.map_err(refused)?;
            self.stats.discarded_bytes.fetch_add(len, Relaxed);
            trimmed += len;
            at = run.end;
        }
        Ok(trimmed)
    }

    /// Keeps from other threads the first long enough free run of a group, from block `from` on and before
    /// `end`.
    fn hold_free(&self, group: GroupNo, from: u64, end: u64, minimum: u64) -> Result<Option<Range<u64>>> {
        let start = self.sb.group_start(group).0;
        let last = (end - start).min(self.blocks_in(group).into()) as u32;
        let _lock = self.group_locks.lock(group);
        let mut map = self.block_bitmap(&self.group(group)?)?;
        for (bit, len) in self.freed.of(group, self.blocks.journal()) {
            fill(&mut map, bit..bit + len, true);
        }
        let mut at = (from - start) as u32;
        while let Some(bit) = first_clear(&map, at..last) {
            let len = clear_run(&map, bit, last, u32::MAX);
            if u64::from(len) >= minimum {
                let first = start + u64::from(bit);
                self.freed.hold(group, bit, len, first);
                return Ok(Some(first..first + u64::from(len)));
            }
            at = bit + len;
        }
        Ok(None)
    }
}

fn refused(e: Errno) -> Error {
    if e == Errno::OPNOTSUPP {
        return Error::new(ErrorKind::Unsupported, "the device takes no discards");
    }
    Error::device(e, "discarding")
}
