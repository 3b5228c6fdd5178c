//! The extent tree: from a file's block down to the extent that holds it.
//!
//! Each node is checked whole before it is used: its magic and depth, that its entries are in order, inside the range
//! that its parent gives it, and lead into the volume. As the depth falls with each level, no tree can be endless.

use super::{Mapped, Place};
use crate::format::crc::crc32c;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{Error, Result};
use zerocopy::FromBytes;

/// The first block past what extents can name.
const END: u64 = 1 << 32;

/// Where a node is, for messages.
#[derive(Clone, Copy)]
enum At {
    Root,
    Block(BlockAddr),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Root => f.write_str("the root of its extent tree"),
            At::Block(b) => write!(f, "extent block {b}"),
        }
    }
}

/// A node's answer about one block of the file.
enum Step {
    Found(Mapped),
    Down(BlockAddr, Range<u64>),
}

impl Ext4 {
    /// The place of block `at`, and the blocks that go on behind it in one piece as far as the node knows.
    pub(super) fn map_extent(&self, inode: &Ext4Inode, at: FileBlock) -> Result<Mapped> {
        if at.0 >= END {
            return Ok(Mapped::hole(u64::MAX - at.0));
        }
        let mut header = self.header(inode, At::Root, &inode.block, None)?;
        let mut step = self.look(inode, At::Root, &inode.block, header, 0..END, at.0)?;
        loop {
            let (addr, range) = match step {
                Step::Found(m) => return Ok(m),
                Step::Down(addr, range) => (addr, range),
            };
            let place = At::Block(addr);
            let block: Block = self.blocks.read(addr).map_err(|e| e.in_inode(inode.ino))?;
            header = self.header(inode, place, &block, Some(header.eh_depth.get() - 1))?;
            if !block.is_verified() {
                self.check_extent_csum(inode, place, &block, header)?;
                self.blocks.set_verified(addr, &block);
            }
            step = self.look(inode, place, &block, header, range, at.0)?;
        }
    }

    /// The header of a node, checked; `depth` is what its parent makes it, `None` for the root.
    fn header(&self, inode: &Ext4Inode, at: At, node: &[u8], depth: Option<u16>) -> Result<RawExtentHeader> {
        let ino = inode.ino;
        let h = RawExtentHeader::read_from_prefix(node)
            .map_err(|_| Error::corrupt(format!("{at}: too short")).in_inode(ino))?
            .0;
        let (entries, max, own) = (h.eh_entries.get(), h.eh_max.get(), h.eh_depth.get());
        rule(h.eh_magic.get() == EXTENT_MAGIC, format_args!("inode {ino}: {at}: no extent header"))?;
        rule(
            own <= MAX_DEPTH && depth.is_none_or(|d| d == own),
            format_args!("inode {ino}: {at}: a depth of {own}"),
        )?;
        let room = node.len() / EXTENT_ENTRY - 1;
        rule(max > 0 && usize::from(max) <= room, format_args!("inode {ino}: {at}: room for {max} entries"))?;
        rule(
            entries <= max && (entries > 0 || own == 0),
            format_args!("inode {ino}: {at}: {entries} entries of {max}"),
        )?;
        Ok(h)
    }

    fn check_extent_csum(&self, inode: &Ext4Inode, at: At, node: &[u8], h: RawExtentHeader) -> Result<()> {
        if !self.sb.has_csum() {
            return Ok(());
        }
        let end = EXTENT_ENTRY * (1 + usize::from(h.eh_max.get()));
        let tail = node.get(end..end + 4).is_some();
        let crc = crc32c(inode.csum_seed, &node[..end]);
        rule(
            tail && le32(node, end) == crc,
            format_args!("inode {}: {at}: the checksum does not match", inode.ino),
        )
    }

    /// Finds block `at` in a node whose entries have to lie in `range`.
    fn look(
        &self,
        inode: &Ext4Inode,
        place: At,
        node: &[u8],
        h: RawExtentHeader,
        range: Range<u64>,
        at: u64,
    ) -> Result<Step> {
        let bad = |what: String| Error::corrupt(format!("{place}: {what}")).in_inode(inode.ino);
        let entries = &node[EXTENT_ENTRY..EXTENT_ENTRY * (1 + usize::from(h.eh_entries.get()))];
        if h.eh_depth.get() > 0 {
            let all = <[RawExtentIndex]>::ref_from_bytes(entries).map_err(|_| bad("entries".into()))?;
            return self.look_in_index(all, range, at, &bad);
        }
        let all = <[RawExtent]>::ref_from_bytes(entries).map_err(|_| bad("entries".into()))?;
        self.look_in_leaf(all, range, at, &bad).map(Step::Found)
    }

    fn look_in_index(
        &self,
        all: &[RawExtentIndex],
        range: Range<u64>,
        at: u64,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<Step> {
        let mut next = range.start;
        let mut found = None;
        for (n, e) in all.iter().enumerate() {
            let first = u64::from(e.ei_block.get());
            if first < next || first >= range.end {
                return Err(bad(format!("index entry {n} for block {first} is out of order")));
            }
            if !self.sb.holds(BlockAddr(e.leaf()), 1) {
                return Err(bad(format!(
                    "index entry {n} leads to block {}, outside of the volume",
                    e.leaf()
                )));
            }
            next = first + 1;
            if first <= at {
                found = Some(n);
            }
        }
        let start = |n: usize| all.get(n).map_or(range.end, |e| e.ei_block.get().into());
        let Some(n) = found else {
            return Ok(Step::Found(Mapped::hole(start(0) - at)));
        };
        Ok(Step::Down(BlockAddr(all[n].leaf()), start(n)..start(n + 1)))
    }

    fn look_in_leaf(
        &self,
        all: &[RawExtent],
        range: Range<u64>,
        at: u64,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<Mapped> {
        // The end of the extent before, and the findings.
        let (mut next, mut found, mut behind) = (range.start, None, range.end);
        for (n, e) in all.iter().enumerate() {
            let (first, (len, unwritten)) = (u64::from(e.ee_block.get()), e.len());
            let end = first + u64::from(len);
            if first < next || len == 0 || end > range.end {
                return Err(bad(format!("extent {n} of {len} blocks from block {first} is out of order")));
            }
            let start = BlockAddr(e.start());
            if !self.sb.holds(start, len.into()) {
                return Err(bad(format!("extent {n} leads to block {start}, outside of the volume")));
            }
            if (first..end).contains(&at) {
                let place = if unwritten { Place::Unwritten(start) } else { Place::Data(start) };
                found = Some(Mapped { place, blocks: len.into() }.part(at - first, u64::MAX));
            } else if first > at {
                behind = behind.min(first);
            }
            next = end;
        }
        Ok(found.unwrap_or_else(|| Mapped::hole(behind - at)))
    }
}
