//! Waiting for what is on its way to the device, and making it durable there.

use crate::volume::options::CheckpointData;
use crate::volume::sbi::F2fs;
use tidegate_vfs::Result;

impl F2fs {
    /// Waits for all bios in flight, those of file data included: no checkpoint may refer to a block that is
    /// not there yet. With `checkpoint_data=linux`, waits only for what Linux waits for. For callers that
    /// have operations frozen.
    ///
    /// # Errors
    /// `Io` when a directory's block could not be written: its page is dirty again, and its inode may be
    /// on no list.
    pub(crate) fn drain_writes(&self) -> Result<()> {
        match self.switches.checkpoint_data() {
            CheckpointData::Linux if !self.is_zoned() => self.write_io.wait_cp_data(),
            _ => return self.drain_all(),
        }
        self.lost_metadata().map_or(Ok(()), Err)
    }

    /// Waits for all bios in flight, whatever `checkpoint_data` says. For callers that have operations frozen.
    ///
    /// # Errors
    /// As [`F2fs::drain_writes`].
    pub(crate) fn drain_all(&self) -> Result<()> {
        self.write_io.wait_sent();
        self.queue.drain();
        self.lost_metadata().map_or(Ok(()), Err)
    }

    /// Makes every completed write durable.
    pub(crate) fn flush_device(&self) -> Result<()> {
        self.guard(self.flushes.flush(&self.queue, self.switches.flush_merge()))
    }
}
