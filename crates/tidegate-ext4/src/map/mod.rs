//! The places of a file's blocks, and reads of them.
//!
//! Lock owned: `ext4->behind` 585. A map is looked up with the inode's `ei->i_data_sem` 205 shared and
//! changed with it exclusive. Callers: the VFS's glue and directories; long symbolic links and the values of
//! attributes are read through the map, too.
//!
//! | module | holds |
//! |---|---|
//! | `extent` | the extent tree |
//! | `indirect` | the block map of ext2 and ext3 |
//! | `node` | nodes of extent trees, checked |
//! | `read` | reads of a file's pages, at once or ahead |
//! | `change` | changes of a file's blocks |
//! | `leaf` | the extents in a leaf of the tree, joined and cut |
//! | `tree`, `numbers` | changes of the extent tree and of the block map |
//! | `groups` | the groups that one change frees blocks in |
//! | `promise` | space for blocks that have no place yet |
//! | `places` | the blocks of dirty pages that have a place, and those that need one |
//! | `seek` | searches for data and holes |
//! | `pass` | a pass, and the runs that it takes one after the other |
//! | `write` | passes that give pages places and write them |
//! | `convert` | extents that are marked written when their data is there |
//! | `linux` | passes that hold a handle while they send, as Linux makes them |
//! | `journaled` | data that goes through the journal |
//! | `size` | the size that the table has |
//! | `truncate` | truncation, holes, blocks ahead |
//! | `shift` | ranges that are taken out and put in |
//! | `inline` | content that lies in the inode |

mod change;
mod convert;
mod extent;
mod groups;
mod indirect;
pub(crate) mod inline;
mod journaled;
mod leaf;
mod linux;
mod node;
mod numbers;
mod pass;
mod places;
mod promise;
mod read;
mod replace;
mod seek;
mod shift;
mod size;
mod tree;
mod truncate;
mod write;

pub(crate) use leaf::Piece;
pub(crate) use size::Behind;
pub(crate) use tree::EMPTY_ROOT;

use crate::format::raw::InodeFlags;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{Ext4Inode, ei, own};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{Inode, Result};

/// The place of a file's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// No block: reads as zeros.
    Hole,
    /// A block that the file has but that was never written: reads as zeros.
    Unwritten(BlockAddr),
    /// A block with data.
    Data(BlockAddr),
}

/// Neighbouring blocks of a file of one sort: on neighbouring blocks of the volume, or without blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The place of the first block.
    pub place: Place,
    /// Number of blocks, at least 1.
    pub blocks: u64,
}

impl Mapped {
    fn hole(blocks: u64) -> Self {
        Mapped { place: Place::Hole, blocks }
    }

    /// The part from block `skip` on, at most `max` blocks.
    fn part(self, skip: u64, max: u64) -> Self {
        let place = match self.place {
            Place::Hole => Place::Hole,
            Place::Unwritten(a) => Place::Unwritten(a.plus(skip)),
            Place::Data(a) => Place::Data(a.plus(skip)),
        };
        Mapped { place, blocks: (self.blocks - skip).min(max) }
    }

    /// Whether `next` continues it in one piece.
    fn goes_on(&self, next: &Mapped) -> bool {
        match (self.place, next.place) {
            (Place::Hole, Place::Hole) => true,
            (Place::Data(a), Place::Data(b)) | (Place::Unwritten(a), Place::Unwritten(b)) => {
                a.plus(self.blocks) == b
            }
            _ => false,
        }
    }
}

impl Ext4 {
    /// The place of block `at` of a file, and how many of the next `max` blocks continue in one piece. The
    /// lookup reads at most as many blocks of the tree as its depth.
    ///
    /// # Errors
    /// `Corrupt`; those of reading.
    pub(crate) fn map_blocks(&self, inode: &Ext4Inode, at: FileBlock, max: u64) -> Result<Mapped> {
        let mapped = match inode.is(InodeFlags::EXTENTS) {
            true => self.map_extent(inode, at),
            false => self.map_indirect(inode, at, max),
        }?;
        Ok(mapped.part(0, max.max(1)))
    }

    /// The place of a block, as by [`Ext4::map_blocks`], for an inode in memory whose map may be changing.
    /// Takes `ei->i_data_sem` shared.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn map_shared(&self, inode: &Inode, at: FileBlock, max: u64) -> Result<Mapped> {
        let data = own(inode).read();
        self.map_blocks(&data, at, max)
    }

    /// Blocks that hold `bytes` bytes.
    pub(crate) fn blocks_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.sb.block_size.into())
    }

    /// The blocks that a range of bytes touches.
    fn file_blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / u64::from(self.sb.block_size)..self.blocks_of(bytes.end)
    }

    /// Whether the byte at `pos` lies in a block with data of its own.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn is_data_at(&self, inode: &Inode, pos: u64) -> Result<bool> {
        let block = FileBlock(pos / u64::from(self.sb.block_size));
        Ok(!ei(inode).is(InodeFlags::INLINE_DATA)
            && matches!(self.map_shared(inode, block, 1)?.place, Place::Data(_)))
    }

    /// The number of pieces that a file's blocks lie in.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(crate) fn count_fragments(&self, inode: &Inode) -> Result<u64> {
        if ei(inode).is(InodeFlags::INLINE_DATA) {
            return Ok(0);
        }
        let (mut at, end) = (0, self.blocks_of(inode.size()));
        let (mut before, mut pieces) = (None::<Mapped>, 0);
        while at < end {
            let m = self.map_shared(inode, FileBlock(at), end - at)?;
            let new = !before.is_some_and(|b| b.goes_on(&m));
            pieces += u64::from(m.place != Place::Hole && new);
            at += m.blocks;
            before = Some(m);
        }
        Ok(pieces)
    }
}
