//! Lookup in the extent tree: from a file's block to the extent that holds it.

use super::node::{END, View, Way};
use super::{Mapped, Place};
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::Result;

/// A node's answer for one block of the file.
enum Step {
    Found(Mapped),
    Down(Way),
}

impl Ext4 {
    /// The place of block `at`, and the blocks that continue it in one piece as far as the node knows.
    pub(super) fn map_extent(&self, inode: &Ext4Inode, at: FileBlock) -> Result<Mapped> {
        if at.0 >= END {
            return Ok(Mapped::hole(u64::MAX - at.0));
        }
        let mut way = Way::ROOT;
        loop {
            let step = self.look_in_node(inode, &way, |head, view| match view {
                View::Index(all) => look_in_index(all, head.eh_depth.get(), &way.range, at.0),
                View::Leaf(all) => Step::Found(look_in_leaf(all, &way.range, at.0)),
            })?;
            match step {
                Step::Down(next) => way = next,
                Step::Found(m) => {
                    if let Place::Data(start) | Place::Unwritten(start) = m.place {
                        rule(self.sb.holds(start, m.blocks), "it lies outside of the volume")
                            .map_err(|e| e.at(start.place()).in_inode(inode.ino))?;
                        self.refuse_tables(inode.ino, start, m.blocks)?;
                    }
                    return Ok(m);
                }
            }
        }
    }
}

fn look_in_index(all: &[RawExtentIndex], depth: u16, range: &Range<u64>, at: u64) -> Step {
    let behind = all.partition_point(|e| u64::from(e.ei_block.get()) <= at);
    let end = all.get(behind).map_or(range.end, |e| e.ei_block.get().into());
    match behind.checked_sub(1).and_then(|n| all.get(n)) {
        Some(e) => Step::Down(Way::down(BlockAddr(e.leaf()), depth, e.ei_block.get().into()..end)),
        None => Step::Found(Mapped::hole(end.saturating_sub(at).max(1))),
    }
}

fn look_in_leaf(all: &[RawExtent], range: &Range<u64>, at: u64) -> Mapped {
    let behind = all.partition_point(|e| u64::from(e.ee_block.get()) <= at);
    if let Some(e) = behind.checked_sub(1).and_then(|n| all.get(n)) {
        let (start, (len, unwritten)) = (BlockAddr(e.start()), e.len());
        let skip = at.checked_sub(e.ee_block.get().into());
        if let Some(skip) = skip.filter(|skip| *skip < len.into()) {
            let place = if unwritten { Place::Unwritten(start) } else { Place::Data(start) };
            return Mapped { place, blocks: len.into() }.part(skip, u64::MAX);
        }
    }
    let end = all.get(behind).map_or(range.end, |e| e.ee_block.get().into());
    Mapped::hole(end.saturating_sub(at).max(1))
}
