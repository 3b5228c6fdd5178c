//! The place of a volume's journal.

use crate::format::gate::{Journal, rule};
use crate::format::raw::InodeFlags;
use crate::format::units::{BlockAddr, FileBlock};
use crate::map::Place;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_jbd2::{FsBlock, Log, Run};
use tidegate_vfs::{Error, FileType, Result};

/// Most pieces of a journal; a map that repeats itself could have any number.
const PIECES: usize = 1 << 20;

impl Ext4 {
    /// The journal's log.
    pub(super) fn journal_log(&self, ino: u32) -> Result<Log> {
        Log::new(self.blocks.queue.clone(), self.sb.block_size, self.journal_runs(ino)?)
    }

    /// The blocks of the journal, which no file may have. Empty if the journal cannot be found: the volume is
    /// not changed then.
    pub(super) fn find_journal_blocks(&self) -> Vec<Range<u64>> {
        let Journal::Inode(ino) = self.sb.journal else { return Vec::new() };
        let runs = self.journal_runs(ino).unwrap_or_default();
        runs.iter().map(|run| run.first.0..run.first.0 + u64::from(run.len)).collect()
    }

    /// The pieces of the volume in which the journal lies.
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
