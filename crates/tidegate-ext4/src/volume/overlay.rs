//! Blocks that the journal holds and the volume does not: read in place of the volume's blocks, and never
//! written there.

use crate::format::gate::{Journal, Superblock, rule};
use crate::format::raw::InodeFlags;
use crate::format::units::{BlockAddr, FileBlock};
use crate::map::Place;
use crate::volume::sbi::Ext4;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tidegate_jbd2::{FsBlock, Log, Replay, Run, recover};
use tidegate_vfs::{Error, FileType, Result, Unseen};

/// Pieces that a journal may lie in; a map that repeats itself has any number.
const PIECES: usize = 1 << 20;

/// The journal's blocks of the volume.
pub(crate) struct Overlay {
    replay: Replay,
    /// Which those are.
    blocks: BTreeSet<u64>,
}

impl Overlay {
    /// Whether any block in `range` is in the journal.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        self.blocks.range(range).next().is_some()
    }

    /// Puts what the journal holds of the blocks from `first` on into `bytes`, which has blocks of
    /// `block_size` bytes.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub(crate) fn patch(&self, first: u64, block_size: usize, bytes: &mut [u8]) -> Result<()> {
        let n = (bytes.len() / block_size) as u64;
        for block in self.blocks.range(first..first + n) {
            let at = (block - first) as usize * block_size;
            self.replay.read(FsBlock(*block), &mut bytes[at..at + block_size])?;
        }
        Ok(())
    }

    /// The part of the promises that is lost, if there is one.
    pub(crate) fn left_out(&self) -> Option<Unseen> {
        if let Some(tid) = self.replay.failed_commit() {
            return Some(Unseen::Transaction(tid.0));
        }
        self.replay.has_fast_commits().then_some(Unseen::FastCommits)
    }

    /// An error that the journal tells of, if any: an errno.
    pub(crate) fn errno(&self) -> i32 {
        self.replay.errno()
    }
}

impl Ext4 {
    /// Recovers the volume in memory: the content of its journal, if that is not empty.
    ///
    /// # Errors
    /// `Corrupt` where the journal is; those of the device.
    pub(crate) fn recover_in_memory(&self) -> Result<Option<Overlay>> {
        let Journal::Inode(ino) = self.sb.journal else { return Ok(None) };
        let log = self.journal_log(ino).map_err(|e| e.of("the journal"))?;
        let replay = recover(Arc::new(log), self.sb.blocks)?;
        if replay.is_clean() {
            return Ok(None);
        }
        let blocks = replay.blocks().map(|b| b.0).collect();
        Ok(Some(Overlay { replay, blocks }))
    }

    /// The journal's log.
    pub(super) fn journal_log(&self, ino: u32) -> Result<Log> {
        Log::new(self.blocks.queue.clone(), self.sb.block_size, self.journal_runs(ino)?)
    }

    /// The blocks of the journal, which no file may have. None of one that cannot be found: the volume is not changed.
    pub(super) fn find_journal_blocks(&self) -> Vec<Range<u64>> {
        let Journal::Inode(ino) = self.sb.journal else { return Vec::new() };
        let runs = self.journal_runs(ino).unwrap_or_default();
        runs.iter().map(|run| run.first.0..run.first.0 + u64::from(run.len)).collect()
    }

    /// Where the journal lies.
    fn journal_runs(&self, ino: u32) -> Result<Vec<Run>> {
        self.find_journal_runs(ino).map_err(|e| e.in_inode(ino))
    }

    fn find_journal_runs(&self, ino: u32) -> Result<Vec<Run>> {
        let (attr, inode) = self.load_system_inode(ino)?;
        let is_file = attr.file_type == FileType::Regular && !inode.is(InodeFlags::INLINE_DATA);
        rule(is_file, "it is no file with blocks")?;
        let blocks = attr.size / u64::from(self.sb.block_size);
        rule(blocks <= self.sb.blocks, format_args!("{blocks} blocks, the volume has {}", self.sb.blocks))?;
        let (mut at, mut runs) = (0, Vec::<Run>::new());
        while at < blocks {
            let m = self.map_blocks(&inode, FileBlock(at), (blocks - at).min(u32::MAX.into()))?;
            let Place::Data(BlockAddr(first)) = m.place else {
                return Err(Error::corrupt("it is missing").at(FileBlock(at).place()));
            };
            let len = u32::try_from(m.blocks).unwrap_or(u32::MAX);
            at += u64::from(len);
            if let Some(before) = runs.last_mut()
                && before.first.0 + u64::from(before.len) == first
                && let Some(both) = before.len.checked_add(len)
            {
                before.len = both;
                continue;
            }
            rule(runs.len() < PIECES, format_args!("more than {PIECES} pieces"))?;
            runs.push(Run { first: FsBlock(first), len });
        }
        Ok(runs)
    }
}

/// The bytes of the superblock as the journal has them, if it does.
///
/// # Errors
/// Those of reading the journal.
pub(crate) fn logged_superblock(overlay: &Overlay, sb: &Superblock) -> Result<Option<Vec<u8>>> {
    let bs = sb.block_size as usize;
    let at = crate::format::raw::SUPER_OFFSET;
    let (block, skip) = ((at / bs) as u64, at % bs);
    if !overlay.touches(block..block + 1) {
        return Ok(None);
    }
    let mut bytes = vec![0; bs];
    overlay.patch(block, bs, &mut bytes)?;
    Ok(Some(bytes.split_off(skip)))
}
