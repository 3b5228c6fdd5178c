//! The log's superblock while the journal is in use.

use crate::format::Superblock;
use crate::log::Log;
use crate::units::{LogBlock, Tid};
use tidegate_block::BioFlags;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// The log's first block, and its superblock's state of the log.
pub(crate) struct FirstBlock {
    pub sb: Superblock,
    pub(super) block: Vec<u8>,
}

impl FirstBlock {
    /// Writes the start of the log, durably.
    pub fn write(&mut self, log: &Log, sequence: Tid, start: Option<LogBlock>) -> Result<()> {
        let raw = self.sb.bytes(sequence, start);
        self.block[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        log.write(LogBlock(0), &self.block, BioFlags::PREFLUSH | BioFlags::FUA)?;
        (self.sb.sequence, self.sb.start) = (sequence, start);
        Ok(())
    }
}
