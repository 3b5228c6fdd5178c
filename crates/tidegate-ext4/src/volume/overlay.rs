//! Blocks that the journal holds and the volume does not: read in place of the volume's blocks, and never
//! written there.

use crate::format::gate::Superblock;
use crate::format::raw::{SUPER_OFFSET, SUPER_SIZE};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{PageBuf, RequestQueue};
use tidegate_jbd2::{Changed, FsBlock, Replay};
use tidegate_vfs::{Result, Unseen};

/// The journal's blocks of the volume.
pub(crate) struct Overlay {
    replay: Replay,
    /// The blocks that fast commits change.
    changed: Changed,
    /// The numbers of both kinds of blocks.
    blocks: BTreeSet<u64>,
    /// Whether fast commits are applied, if there are any.
    applied: bool,
}

impl Overlay {
    /// The blocks that the transactions hold.
    pub(crate) fn new(replay: Replay) -> Self {
        let blocks = replay.blocks().map(|b| b.0).collect();
        Overlay { replay, changed: Changed::new(), blocks, applied: false }
    }

    /// Adds the blocks that fast commits change.
    pub(crate) fn add(&mut self, changed: BTreeMap<u64, Arc<PageBuf>>) {
        self.blocks.extend(changed.keys());
        self.changed = changed.into_iter().map(|(at, page)| (FsBlock(at), page)).collect();
        self.applied = true;
    }

    /// The content of the log.
    pub(crate) fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Whether there are fast commits that are not applied.
    pub(crate) fn lacks_fast_commits(&self) -> bool {
        self.replay.has_fast_commits() && !self.applied
    }

    /// Puts the blocks that fast commits change into the log, durably; true if there were any. Then the log
    /// must be recovered again.
    ///
    /// # Errors
    /// As [`Replay::settle`].
    pub(crate) fn settle(&self, queue: &RequestQueue) -> Result<bool> {
        if self.applied {
            self.replay.settle(queue, &self.changed)?;
        }
        Ok(self.applied)
    }

    /// Copies its content of `block` to `to`, which has the size of a block; true if it has any.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub(crate) fn read(&self, block: u64, to: &mut [u8]) -> Result<bool> {
        match self.changed.get(&FsBlock(block)) {
            Some(page) => {
                to.copy_from_slice(&page[..to.len()]);
                Ok(true)
            }
            None => self.replay.read(FsBlock(block), to),
        }
    }

    /// The bytes of the superblock, if it is among the blocks.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub(crate) fn superblock(&self, sb: &Superblock) -> Result<Option<Vec<u8>>> {
        let (bs, at) = (sb.block_size as usize, SUPER_OFFSET);
        let (block, skip) = ((at / bs) as u64, at % bs);
        let mut bytes = vec![0; bs];
        Ok(self.read(block, &mut bytes)?.then(|| bytes[skip..skip + SUPER_SIZE].to_vec()))
    }

    /// Whether any block in `range` is in the journal.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        self.blocks.range(range).next().is_some()
    }

    /// Copies the journal's content of the blocks from `first` on into `bytes`, which has blocks of
    /// `block_size` bytes.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub(crate) fn patch(&self, first: u64, block_size: usize, bytes: &mut [u8]) -> Result<()> {
        let n = (bytes.len() / block_size) as u64;
        for block in self.blocks.range(first..first + n) {
            let at = (block - first) as usize * block_size;
            self.read(*block, &mut bytes[at..at + block_size])?;
        }
        Ok(())
    }

    /// The part of the promised changes that is lost, if there is one.
    pub(crate) fn left_out(&self) -> Option<Unseen> {
        if let Some(tid) = self.replay.failed_commit() {
            return Some(Unseen::Transaction(tid.0));
        }
        self.lacks_fast_commits().then_some(Unseen::FastCommits)
    }

    /// The errno that the journal records, if any.
    pub(crate) fn errno(&self) -> i32 {
        self.replay.errno()
    }
}
