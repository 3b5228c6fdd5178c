//! The gate of extent nodes: each node is checked as a whole before any of it is used, both for lookups and
//! for changes. A lookup in a node that was checked before looks only at the node's first and last entry.
//!
//! A node must have the right checksum, the magic number and the depth that its parent requires. Its entries
//! must be in order, inside the range that the parent gives it, and lead into the volume. As the depth falls
//! with each level, no tree can be endless.

use crate::format::crc::crc32c;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::Ext4Inode;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_jbd2::Verified;
use tidegate_vfs::{At, Error, Result};
use zerocopy::FromBytes;

/// The first block past what extents can name.
pub(super) const END: u64 = 1 << 32;

/// The way to a node: its address, and what its parent says of it.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// The node's block; none for the root.
    pub at: Option<BlockAddr>,
    /// Levels below the node; `None` for the root, which has the depth itself.
    depth: Option<u16>,
    /// The blocks of the file that the node's entries may map.
    pub range: Range<u64>,
}

impl Way {
    /// The way to the root.
    pub const ROOT: Way = Way { at: None, depth: None, range: 0..END };

    /// The way to a node that is below another and has `depth` levels below itself.
    pub fn down(addr: BlockAddr, depth: u16, range: Range<u64>) -> Way {
        Way { at: Some(addr), depth: Some(depth.saturating_sub(1)), range }
    }

    /// An error of the node, with its place.
    fn bad(&self, inode: &Ext4Inode, e: Error) -> Error {
        let place = self.at.map_or(At::The("the root of its extent tree"), |b| At::Part("extent block", b.0));
        e.at(place).in_inode(inode.ino)
    }
}

/// The entries of a node that was checked.
pub(super) enum View<'a> {
    Index(&'a [RawExtentIndex]),
    Leaf(&'a [RawExtent]),
}

impl View<'_> {
    /// Whether entries that are in order lie within a range.
    fn lies_in(&self, range: &Range<u64>) -> bool {
        let ends = match self {
            View::Index(all) => all
                .first()
                .zip(all.last())
                .map(|(first, last)| (u64::from(first.ei_block.get()), u64::from(last.ei_block.get()) + 1)),
            View::Leaf(all) => all.first().zip(all.last()).map(|(first, last)| {
                (u64::from(first.ee_block.get()), u64::from(last.ee_block.get()) + u64::from(last.len().0))
            }),
        };
        ends.is_none_or(|(start, end)| range.start <= start && end <= range.end)
    }
}

/// The entries of a node that are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// All.
    All,
    /// The first and the last, if the node was checked since it was read.
    Ends,
}

impl Ext4 {
    /// Calls `f` with a node after it was checked.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn open_node<T>(
        &self,
        inode: &Ext4Inode,
        way: &Way,
        f: impl FnOnce(RawExtentHeader, View<'_>) -> T,
    ) -> Result<T> {
        self.check_node(inode, way, Check::All, f)
    }

    /// Calls `f` with a node as [`Ext4::open_node`] does, for a lookup. `f` must cope with entries in any order, and
    /// with places outside of the volume: a hostile volume may use a block as a node that was found good as something
    /// else.
    ///
    /// # Errors
    /// As [`Ext4::open_node`].
    pub(super) fn look_in_node<T>(
        &self,
        inode: &Ext4Inode,
        way: &Way,
        f: impl FnOnce(RawExtentHeader, View<'_>) -> T,
    ) -> Result<T> {
        self.check_node(inode, way, Check::Ends, f)
    }

    fn check_node<T>(
        &self,
        inode: &Ext4Inode,
        way: &Way,
        check: Check,
        f: impl FnOnce(RawExtentHeader, View<'_>) -> T,
    ) -> Result<T> {
        let bad = |e: Error| way.bad(inode, e);
        let block: Option<Block> = match way.at {
            None => None,
            Some(addr) => {
                rule(self.sb.holds(addr, 1), "it lies outside of the volume").map_err(bad)?;
                self.refuse_tables(inode.ino, addr, 1)?;
                Some(self.blocks.read(addr).map_err(|e| e.in_inode(inode.ino))?)
            }
        };
        let bytes: &[u8] = block.as_deref().unwrap_or(&inode.block);
        let head = self.header(way, bytes).map_err(bad)?;
        let is_known = block.as_ref().is_some_and(|b| b.is_verified(Verified::Checksum));
        if block.is_some() && !is_known {
            self.check_extent_csum(inode, bytes).map_err(bad)?;
        }
        let entries = &bytes[EXTENT_ENTRY..EXTENT_ENTRY * (1 + usize::from(head.eh_entries.get()))];
        let no_entries = |_| bad(Error::corrupt("entries"));
        let view = match head.eh_depth.get() {
            0 => View::Leaf(<[RawExtent]>::ref_from_bytes(entries).map_err(|_| no_entries(()))?),
            _ => View::Index(<[RawExtentIndex]>::ref_from_bytes(entries).map_err(|_| no_entries(()))?),
        };
        if !is_known || check == Check::All || !view.lies_in(&way.range) {
            let checked = match view {
                View::Index(all) => self.check_index(all, &way.range),
                View::Leaf(all) => self.check_leaf(all, &way.range),
            };
            checked.map_err(|what| bad(Error::corrupt(what)))?;
        }
        if let (Some(addr), Some(block)) = (way.at, block.as_ref().filter(|_| !is_known)) {
            self.blocks.set_verified(addr, block, Verified::Checksum);
        }
        Ok(f(head, view))
    }

    /// The header of a node, checked.
    fn header(&self, way: &Way, node: &[u8]) -> Result<RawExtentHeader> {
        let h = RawExtentHeader::read_from_prefix(node).map_err(|_| Error::corrupt("too short"))?.0;
        let (entries, max, own) = (h.eh_entries.get(), h.eh_max.get(), h.eh_depth.get());
        rule(h.eh_magic.get() == EXTENT_MAGIC, "no extent header")?;
        rule(own <= MAX_DEPTH && way.depth.is_none_or(|d| d == own), format_args!("a depth of {own}"))?;
        let room = node.len() / EXTENT_ENTRY - 1;
        rule(max > 0 && usize::from(max) <= room, format_args!("room for {max} entries"))?;
        rule(entries <= max && (entries > 0 || own == 0), format_args!("{entries} entries of {max}"))?;
        Ok(h)
    }

    fn check_extent_csum(&self, inode: &Ext4Inode, node: &[u8]) -> Result<()> {
        if !self.sb.has_csum() {
            return Ok(());
        }
        let tail = RawExtentTail::of(node);
        let sealed = tail.is_some_and(|(bytes, sum)| crc32c(inode.csum_seed, bytes) == sum);
        rule(sealed, "the checksum does not match")
    }

    fn check_index(&self, all: &[RawExtentIndex], range: &Range<u64>) -> std::result::Result<(), String> {
        let mut next = range.start;
        for (n, e) in all.iter().enumerate() {
            let first = u64::from(e.ei_block.get());
            if first < next || first >= range.end {
                return Err(format!("index entry {n} for block {first} is out of order"));
            }
            if !self.sb.holds(BlockAddr(e.leaf()), 1) {
                return Err(format!("index entry {n} leads to block {}, outside of the volume", e.leaf()));
            }
            next = first + 1;
        }
        Ok(())
    }

    fn check_leaf(&self, all: &[RawExtent], range: &Range<u64>) -> std::result::Result<(), String> {
        // The end of the extent before.
        let mut next = range.start;
        for (n, e) in all.iter().enumerate() {
            let (first, (len, _)) = (u64::from(e.ee_block.get()), e.len());
            let end = first + u64::from(len);
            if first < next || len == 0 || end > range.end {
                return Err(format!("extent {n} of {len} blocks from block {first} is out of order"));
            }
            let start = BlockAddr(e.start());
            if !self.sb.holds(start, len.into()) {
                return Err(format!("extent {n} leads to block {start}, outside of the volume"));
            }
            next = end;
        }
        Ok(())
    }
}
