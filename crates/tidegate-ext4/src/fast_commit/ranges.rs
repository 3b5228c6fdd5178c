//! Changes of a file's blocks.

use super::changes::Changes;
use crate::format::gate::rule;
use crate::format::raw::{InodeFlags, RawExtent};
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{ei, own};
use crate::map::{Piece, Place};
use std::ops::Range;
use std::sync::Arc;
use tidegate_jbd2::format::fc::{FcInode, FcTag};
use tidegate_jbd2::format::raw::EXTENT_SIZE;
use tidegate_vfs::{Error, ErrorKind, FileType, Result};
use zerocopy::FromBytes;

/// The number of blocks that a file may have.
const MOST: u64 = 1 << 32;

impl Changes<'_> {
    /// Marks all blocks that tags give to files as in use.
    pub(super) fn take_ahead(&mut self, tags: &[FcTag]) -> Result<()> {
        for tag in tags {
            let FcTag::AddRange { inode, extent } = tag else { continue };
            let p = self.piece(*inode, extent)?;
            let range = p.start.0..p.start.0 + p.len;
            for new in self.fs.set_blocks(&mut self.handle, range, true)?.iter() {
                self.ahead.add(new);
            }
        }
        Ok(())
    }

    /// The extent of a tag, if a file may have its blocks.
    fn piece(&self, ino: FcInode, extent: &[u8; EXTENT_SIZE]) -> Result<Piece> {
        let n = self.number(ino)?;
        let named = |e: tidegate_vfs::Error| e.in_inode(n);
        let raw = RawExtent::read_from_bytes(extent)
            .map_err(|_| named(tidegate_vfs::Error::corrupt("its extent is too short")))?;
        let (len, unwritten) = raw.len();
        let (block, start) = (u64::from(raw.ee_block.get()), BlockAddr(raw.start()));
        let inside = len > 0 && block + u64::from(len) < MOST;
        rule(inside, format_args!("an extent of {len} blocks from {block} on")).map_err(named)?;
        rule(self.fs.sb.holds(start, len.into()), "its extent lies outside of the volume")
            .map_err(|e| named(e.at(start.place())))?;
        self.fs.refuse_tables(n, start, len.into())?;
        Ok(Piece { block, len: len.into(), start, unwritten })
    }

    pub(super) fn add_range(&mut self, ino: FcInode, extent: &[u8; EXTENT_SIZE]) -> Result<()> {
        let piece = self.piece(ino, extent)?;
        self.replace(ino, piece.block..piece.block + piece.len, Some(piece))?;
        let owned = self.owned.entry(ino.0).or_default();
        owned.add(piece.start.0..piece.start.0 + piece.len);
        Ok(())
    }

    pub(super) fn del_range(&mut self, ino: FcInode, block: u32, len: u32) -> Result<()> {
        let start = u64::from(block);
        self.replace(ino, start..(start + u64::from(len)).min(MOST), None)
    }

    fn replace(&mut self, ino: FcInode, range: Range<u64>, piece: Option<Piece>) -> Result<()> {
        let inode = self.inode(ino)?;
        rule(matches!(inode.file_type, FileType::Regular | FileType::Symlink), "it is no file with blocks")
            .map_err(|e| e.in_inode(inode.ino))?;
        let mut now = Arc::unwrap_or_clone(ei(&inode));
        let short = !crate::dir::names::has_map(&now, &inode.attr());
        rule(!short, "it is a link that has no blocks").map_err(|e| e.in_inode(inode.ino))?;
        if let Some(p) = piece {
            let there = if p.unwritten { Place::Unwritten(p.start) } else { Place::Data(p.start) };
            let m = self.fs.map_blocks(&now, FileBlock(p.block), p.len)?;
            if m.place == there && m.blocks >= p.len {
                return Ok(());
            }
        }
        let mut attr = inode.attr().clone();
        if !now.is(InodeFlags::EXTENTS) {
            // A block map has no mark for unwritten blocks, and ends earlier.
            let fits = piece.is_none_or(|p| !p.unwritten);
            rule(fits, "it gets blocks that its map cannot hold").map_err(|e| e.in_inode(inode.ino))?;
        }
        let gone = self.fs.remap(&mut self.handle, &mut now, &mut attr, range, piece);
        let gone = gone.map_err(|e| match e.kind() {
            ErrorKind::FileTooBig => Error::corrupt("it gets blocks that no map has").in_inode(inode.ino),
            _ => e,
        })?;
        *own(&inode).write() = Arc::new(now);
        *inode.attr() = attr;
        self.lose(ino.0, &gone);
        self.fs.store_inode(&mut self.handle, &inode)
    }

    /// Notes that a file has lost pieces.
    pub(super) fn lose(&mut self, n: u32, gone: &[Piece]) {
        for p in gone {
            let range = p.start.0..p.start.0 + p.len;
            if let Some(owned) = self.owned.get_mut(&n) {
                owned.remove(range.clone());
            }
            self.gone.add(range);
        }
    }
}
