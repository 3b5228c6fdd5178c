//! The block map of ext2 and ext3: 12 block numbers in the inode, and blocks full of numbers, up to three
//! levels deep.

use super::{Mapped, Place};
use crate::format::block_map::{DIRECT, level_of};
use crate::format::gate::rule;
use crate::format::raw::le32;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::volume::sbi::Ext4;
use tidegate_vfs::Result;

impl Ext4 {
    /// The place of block `at`, and the blocks that continue it in one piece, as far as one block of numbers
    /// knows, at most `max`.
    pub(super) fn map_indirect(&self, inode: &Ext4Inode, at: FileBlock, max: u64) -> Result<Mapped> {
        if at.0 < DIRECT {
            return self.run(inode, &inode.block[..DIRECT as usize * 4], at.0 as usize, max);
        }
        let per_block = u64::from(self.sb.block_size) / 4;
        let Some((level, rest)) = level_of(at.0, per_block) else {
            return Ok(Mapped::hole(u64::MAX - at.0));
        };
        let slot = (DIRECT as u32 + level - 1) as usize;
        self.descend(inode, le32(&inode.block, 4 * slot), rest, level, max)
    }

    /// Goes down `level` levels from block `top`. The block wanted is `rest` blocks into the span of `top`.
    fn descend(&self, inode: &Ext4Inode, top: u32, rest: u64, level: u32, max: u64) -> Result<Mapped> {
        let per_block = u64::from(self.sb.block_size) / 4;
        let (mut addr, mut rest) = (top, rest);
        for level in (1..=level).rev() {
            if addr == 0 {
                return Ok(Mapped::hole(per_block.pow(level) - rest));
            }
            let block = self.blocks.read(self.checked(inode, addr)?).map_err(|e| e.in_inode(inode.ino))?;
            let below = per_block.pow(level - 1);
            let slot = (rest / below) as usize;
            if level == 1 {
                return self.run(inode, &block, slot, max);
            }
            addr = le32(&block, 4 * slot);
            rest %= below;
        }
        Ok(Mapped::hole(1))
    }

    /// A number of the map as a block that a file may have.
    pub(super) fn checked(&self, inode: &Ext4Inode, addr: u32) -> Result<BlockAddr> {
        let addr = BlockAddr(addr.into());
        self.refuse_outside(inode, addr, 1)?;
        self.refuse_tables(inode.ino, addr, 1)?;
        Ok(addr)
    }

    fn refuse_outside(&self, inode: &Ext4Inode, first: BlockAddr, n: u64) -> Result<()> {
        rule(self.sb.holds(first, n), "its map leads there, outside of the volume")
            .map_err(|e| e.at(first.place()).in_inode(inode.ino))
    }

    /// The numbers from `slot` on that continue in one piece.
    fn run(&self, inode: &Ext4Inode, numbers: &[u8], slot: usize, max: u64) -> Result<Mapped> {
        let number = |n: usize| le32(numbers, 4 * n);
        let first = number(slot);
        let last = (numbers.len() / 4).min(slot.saturating_add(max.clamp(1, 1 << 20) as usize));
        let goes_on = |n: &usize| match first {
            0 => number(*n) == 0,
            first => u64::from(number(*n)) == u64::from(first) + (n - slot) as u64,
        };
        let blocks = (slot..last).take_while(goes_on).count() as u64;
        if first == 0 {
            return Ok(Mapped::hole(blocks));
        }
        let start = BlockAddr(first.into());
        self.refuse_outside(inode, start, blocks)?;
        self.refuse_tables(inode.ino, start, blocks)?;
        Ok(Mapped { place: Place::Data(start), blocks })
    }
}
