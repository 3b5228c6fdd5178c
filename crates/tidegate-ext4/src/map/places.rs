//! The blocks of dirty pages that have a place, need one, or are holes that nothing was written to.

use super::Place;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::own;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{Inode, Result};

/// The blocks of a range that can be sent.
pub(super) struct Placed {
    /// First block of the file, first block of the volume, number of blocks; in the file's order. Between the pieces lie
    /// holes that nothing was written to.
    pub pieces: Vec<(u64, BlockAddr, u64)>,
    /// The block behind those that can be sent.
    pub until: u64,
    /// Some of the blocks read as zeros until they are marked.
    pub unwritten: bool,
}

/// The block at which a look for places ends before the end of its range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The first that has a promise, or reads as zeros until it is marked.
    Unmarked,
    /// The first that has a promise.
    Unplaced,
    /// None: the pages are taken, and a block that was promised since then belongs to a later pass.
    Never,
}

impl Ext4 {
    /// The places of the blocks of a range, up to the first at which the look stops.
    ///
    /// # Errors
    /// As [`Ext4::map_blocks`].
    pub(super) fn places(&self, inode: &Inode, blocks: &Range<u64>, stop: Stop) -> Result<Placed> {
        let mut placed = Placed { pieces: Vec::new(), until: blocks.end, unwritten: false };
        let mut at = blocks.start;
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            let behind = at + m.blocks;
            let ends = match m.place {
                Place::Hole if stop != Stop::Never => self.next_promised(inode, at..behind).map(|p| p.start),
                Place::Unwritten(_) if stop == Stop::Unmarked => Some(at),
                _ => None,
            };
            if let Some(until) = ends {
                placed.until = until;
                break;
            }
            placed.unwritten |= matches!(m.place, Place::Unwritten(_));
            if let Place::Data(addr) | Place::Unwritten(addr) = m.place {
                placed.pieces.push((at, addr, m.blocks));
            }
            at = behind;
        }
        Ok(placed)
    }

    /// The first promised part of a range of blocks. Blocks of a dirty page that have neither a place nor a promise are
    /// holes that nothing was written to.
    pub(super) fn next_promised(&self, inode: &Inode, blocks: Range<u64>) -> Option<Range<u64>> {
        own(inode).delayed.lock().first_in(blocks, 1).pop()
    }
}
