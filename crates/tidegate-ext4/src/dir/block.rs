//! A directory's blocks and their checksums: blocks of entries, or nodes of the hash tree.

use super::entry::Rules;
use super::htree::TreeBlock;
use crate::format::crc::crc32c;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::map::Place;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_jbd2::Verified;
use tidegate_vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

impl Ext4 {
    /// The rules for the entries of a directory.
    pub(super) fn dir_rules(&self, dir: &Ext4Inode) -> Rules {
        Rules {
            dir: dir.ino,
            filetype: self.sb.incompat.contains(Incompat::FILETYPE),
            encrypted: dir.is(InodeFlags::ENCRYPT),
            inodes: self.sb.raw.s_inodes_count.get(),
        }
    }

    /// Whether a directory's blocks are ordered by a hash tree.
    pub(super) fn has_tree(&self, dir: &Ext4Inode) -> bool {
        dir.is(InodeFlags::INDEX)
            && self.sb.compat.contains(Compat::DIR_INDEX)
            && !dir.is(InodeFlags::INLINE_DATA)
    }

    /// Reads block `n` of a directory, which lies at `addr`, and checks its checksum.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn dir_block(&self, dir: &Ext4Inode, n: FileBlock, addr: BlockAddr) -> Result<Block> {
        let block = self.blocks.read(addr).map_err(|e| e.in_dir(dir.ino))?;
        if self.sb.has_csum() && !block.is_verified(Verified::Checksum) {
            self.check_dir_csum(dir, n, &block).map_err(|e| e.at(n.place()).in_dir(dir.ino))?;
            self.blocks.set_verified(addr, &block, Verified::Checksum);
        }
        Ok(block)
    }

    /// Calls `f` with each block of a range of a directory, until it returns false. Holes are passed over.
    ///
    /// # Errors
    /// Those of `f`; `Corrupt`; those of the device.
    pub(super) fn each_block(
        &self,
        dir: &Ext4Inode,
        range: Range<u64>,
        f: &mut dyn FnMut(FileBlock, TreeBlock) -> Result<bool>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let m = self.map_blocks(dir, FileBlock(at), range.end - at)?;
            let run = at..at + m.blocks;
            at = run.end;
            let Place::Data(first) = m.place else { continue };
            for n in run.clone() {
                let (n, addr) = (FileBlock(n), first.plus(n - run.start));
                if !f(n, TreeBlock { block: self.dir_block(dir, n, addr)?, addr })? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check_dir_csum(&self, dir: &Ext4Inode, n: FileBlock, block: &[u8]) -> Result<()> {
        if self.has_tree(dir) && (n.0 == 0 || is_dx_node(block)) {
            let at = if n.0 == 0 { root_entries(block) } else { DX_NODE_ENTRIES };
            return rule(
                dx_csum(dir.csum_seed, block, at).is_some_and(|(stored, crc)| stored == crc),
                "the checksum of the hash tree's node does not match",
            );
        }
        let end = block.len() - DIR_TAIL;
        let tail = RawDirTail::read_from_bytes(&block[end..]).map_err(|_| Error::corrupt("too short"))?;
        rule(tail.is_tail(), "there is no checksum at its end")?;
        rule(crc32c(dir.csum_seed, &block[..end]) == tail.det_checksum.get(), "the checksum does not match")
    }
}

/// The offset of the root's entries in the block.
pub(super) fn root_entries(block: &[u8]) -> usize {
    DX_ROOT_INFO + usize::from(block.get(DX_ROOT_INFO + 5).copied().unwrap_or(0))
}

/// Sets the checksum of a node whose entries begin at byte `at`.
pub(super) fn put_dx_csum(seed: u32, block: &mut [u8], at: usize) {
    let (_, limit) = RawDxCountLimit::of(block, at);
    if let Some((_, crc)) = dx_csum(seed, block, at)
        && let Some(tail) = at_mut::<RawDxTail>(block, at + limit * DX_ENTRY)
    {
        tail.dt_checksum = crc.into();
    }
}

/// The stored and the computed checksum of a node whose entries begin at byte `at`; `None` where there is no room.
fn dx_csum(seed: u32, block: &[u8], at: usize) -> Option<(u32, u32)> {
    let (count, limit) = RawDxCountLimit::of(block, at);
    if count == 0 || count > limit {
        return None;
    }
    let tail: RawDxTail = read_at(block, at + limit * DX_ENTRY)?;
    let crc = crc32c(crc32c(seed, &block[..at + count * DX_ENTRY]), tail.dt_reserved.as_bytes());
    Some((tail.dt_checksum.get(), crc32c(crc, &[0; 4])))
}
