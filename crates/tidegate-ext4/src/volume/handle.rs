//! What a change of metadata goes through: blocks that change together.
//!
//! A volume without a journal changes its blocks in memory, and a sync writes them in no particular order, as Linux does
//! there; e2fsck mends what a power cut leaves. Each place that changes a block has a handle, so that a journal's can
//! take its place.

use crate::format::units::BlockAddr;
use crate::volume::blocks::Blocks;
use tidegate_vfs::Result;

/// A set of changes.
pub(crate) struct Handle<'a> {
    blocks: &'a Blocks,
}

impl<'a> Handle<'a> {
    pub(super) fn new(blocks: &'a Blocks) -> Self {
        Handle { blocks }
    }

    /// Lets `f` change a block. `f` may be called with bytes that are not kept if this fails.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn write(&mut self, at: BlockAddr, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        self.blocks.modify(at, &mut f)
    }

    /// The same for a block that is new: it is not read, and `f` gets zeros.
    ///
    /// # Errors
    /// None without a journal.
    pub(crate) fn create(&mut self, at: BlockAddr, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        self.blocks.create(at, &mut f);
        Ok(())
    }

    /// Says that a block of metadata is free: its changes are dropped.
    ///
    /// # Errors
    /// None without a journal.
    pub(crate) fn forget(&mut self, at: BlockAddr) -> Result<()> {
        self.blocks.forget(at);
        Ok(())
    }
}
