//! Changes of the block map of ext2 and ext3: numbers are set and cleared, and blocks of numbers are added
//! and freed.
//!
//! The caller holds `ei->i_data_sem` exclusive. Numbers have 32 bits, so such files are not changed on
//! volumes with more blocks.

use super::groups::Groups;
use super::leaf::Piece;
use crate::format::block_map::{DIRECT, LEVELS, level_of};
use crate::format::raw::le32;
use crate::format::units::BlockAddr;
use crate::inode::Ext4Inode;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use tidegate_vfs::{ErrorKind, Result};

/// Most blocks that one change frees.
const AT_ONCE: u64 = 64;

/// The block map of an inode while it changes.
pub(super) struct Numbers<'a, 'h> {
    pub fs: &'a Ext4,
    pub handle: &'a mut Handle<'h>,
    pub own: &'a mut Ext4Inode,
    /// Blocks of numbers that were added, less those that were freed.
    pub nodes: i64,
    /// A goal for new blocks of numbers.
    pub goal: BlockAddr,
    /// Nobody was promised room for new blocks of numbers: they leave what others were promised.
    pub claims: bool,
}

fn put(bytes: &mut [u8], slot: usize, number: u32) {
    bytes[4 * slot..4 * slot + 4].copy_from_slice(&number.to_le_bytes());
}

impl Numbers<'_, '_> {
    fn per_block(&self) -> u64 {
        u64::from(self.fs.sb.block_size) / 4
    }

    /// Adds blocks where the file has none.
    ///
    /// # Errors
    /// `NoSpace` when a block of numbers is needed and no block is free; the file gets none of the blocks
    /// then. `FileTooBig` for a block that no number leads to.
    pub(super) fn insert(&mut self, piece: Piece) -> Result<()> {
        let end = piece.start.0 + piece.len;
        if end > u32::MAX.into() {
            return Err(ErrorKind::FileTooBig.into());
        }
        let mut done = 0;
        while done < piece.len {
            let (at, first) = (piece.block + done, (piece.start.0 + done) as u32);
            if at < DIRECT {
                put(&mut self.own.block, at as usize, first);
                done += 1;
                continue;
            }
            let (level, rest) = level_of(at, self.per_block()).ok_or(ErrorKind::FileTooBig)?;
            let leaf = match self.leaf(level, rest) {
                Ok(leaf) => leaf,
                // The caller frees the blocks, so none of them may stay in the map.
                Err(e) => {
                    self.remove(piece.block..piece.block + done)?;
                    return Err(e);
                }
            };
            let slot = rest % self.per_block();
            let n = (piece.len - done).min(self.per_block() - slot);
            self.handle.write(leaf, |b| {
                (0..n).for_each(|i| put(b, (slot + i) as usize, first + i as u32));
            })?;
            done += n;
        }
        Ok(())
    }

    /// The lowest block of numbers on the way; missing ones are made.
    fn leaf(&mut self, level: u32, rest: u64) -> Result<BlockAddr> {
        let top = (DIRECT as u32 + level - 1) as usize;
        let mut number = le32(&self.own.block, 4 * top);
        if number == 0 {
            number = self.new_block()?;
            put(&mut self.own.block, top, number);
        }
        let (mut addr, mut rest) = (self.checked(number)?, rest);
        for level in (2..=level).rev() {
            let below = self.per_block().pow(level - 1);
            let slot = (rest / below) as usize;
            let mut next = le32(&self.fs.blocks.read(addr)?, 4 * slot);
            if next == 0 {
                next = self.new_block()?;
                self.handle.write(addr, |b| put(b, slot, next))?;
            }
            (addr, rest) = (self.checked(next)?, rest % below);
        }
        Ok(addr)
    }

    fn checked(&self, number: u32) -> Result<BlockAddr> {
        self.fs.checked(self.own, number)
    }

    fn new_block(&mut self) -> Result<u32> {
        let addr = match self.claims {
            true => self.fs.take_block(self.handle, self.goal)?,
            false => self.fs.take_promised(self.handle, self.goal, 1)?.0,
        };
        let Ok(number) = u32::try_from(addr.0) else {
            self.fs.free_blocks(self.handle, addr, 1)?;
            return Err(ErrorKind::FileTooBig.into());
        };
        self.handle.create(addr, |_| ())?;
        self.nodes += 1;
        Ok(number)
    }

    fn free_block(&mut self, addr: BlockAddr) -> Result<()> {
        self.handle.forget(addr)?;
        self.nodes -= 1;
        self.fs.free_blocks(self.handle, addr, 1)
    }

    /// Takes the blocks of a range out of the map and returns them. They are neither freed nor forgotten.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn remove(&mut self, range: Range<u64>) -> Result<Vec<Piece>> {
        self.fs.judge_numbers(self.own, &range, LEVELS)?;
        let mut gone = Vec::new();
        for at in range.start.min(DIRECT)..range.end.min(DIRECT) {
            let number = le32(&self.own.block, 4 * at as usize);
            if number != 0 {
                note(&mut gone, at, self.checked(number)?);
                put(&mut self.own.block, at as usize, 0);
            }
        }
        let mut base = DIRECT;
        for level in 1..=LEVELS {
            let span = self.per_block().pow(level);
            let top = (DIRECT as u32 + level - 1) as usize;
            let number = le32(&self.own.block, 4 * top);
            let touches = range.start < base + span && range.end > base;
            if number != 0 && touches {
                let addr = self.checked(number)?;
                if self.remove_below(addr, level, base, &range, &mut gone)? {
                    self.free_block(addr)?;
                    put(&mut self.own.block, top, 0);
                }
            }
            base += span;
        }
        Ok(gone)
    }

    /// Removes a range below a block of numbers that begins with block `base` of the file; true if nothing is
    /// left in that block.
    fn remove_below(
        &mut self,
        addr: BlockAddr,
        level: u32,
        base: u64,
        range: &Range<u64>,
        gone: &mut Vec<Piece>,
    ) -> Result<bool> {
        let mut bytes = self.fs.blocks.read(addr)?.to_vec();
        let below = self.per_block().pow(level - 1);
        let mut changed = false;
        for slot in 0..self.per_block() as usize {
            let (first, number) = (base + slot as u64 * below, le32(&bytes, 4 * slot));
            if number == 0 || first >= range.end || first + below <= range.start {
                continue;
            }
            let child = self.checked(number)?;
            let goes = if level == 1 {
                note(gone, first, child);
                true
            } else if self.remove_below(child, level - 1, first, range, gone)? {
                self.free_block(child)?;
                true
            } else {
                false
            };
            if goes {
                put(&mut bytes, slot, 0);
                changed = true;
            }
        }
        let empty = bytes.iter().all(|b| *b == 0);
        if changed && !empty {
            self.handle.write(addr, |b| b.copy_from_slice(&bytes))?;
        }
        Ok(empty)
    }

    /// The first of the last blocks, as many as one change may free.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn tail(&self) -> Result<u64> {
        let per_block = self.per_block();
        for level in (1..=LEVELS).rev() {
            let mut number = le32(&self.own.block, 4 * (DIRECT as usize + level as usize - 1));
            if number == 0 {
                continue;
            }
            let mut at = DIRECT + (1..level).map(|l| per_block.pow(l)).sum::<u64>();
            for level in (1..=level).rev() {
                let block = self.fs.blocks.read(self.checked(number)?)?;
                let last = (0..per_block).rev().find(|s| le32(&block, 4 * *s as usize) != 0);
                // An empty block of numbers is freed by the step that reaches it.
                let Some(slot) = last else { break };
                if level == 1 {
                    let mut groups = Groups::new(self.fs);
                    let least = slot.saturating_sub(AT_ONCE - 1);
                    let fits = |s: &u64| match le32(&block, 4 * *s as usize) {
                        0 => true,
                        number => groups.take_last(BlockAddr(number.into()), 1) == 1,
                    };
                    return Ok(at + (least..=slot).rev().take_while(fits).last().unwrap_or(slot));
                }
                at += slot * per_block.pow(level - 1);
                number = le32(&block, 4 * slot as usize);
            }
            return Ok(at);
        }
        Ok(0)
    }
}

impl Ext4 {
    /// Checks all blocks of numbers that a range of the file's blocks touches, up to a level of them, and the
    /// places of those blocks, before any is freed.
    fn judge_numbers(&self, own: &Ext4Inode, range: &Range<u64>, levels: u32) -> Result<()> {
        let direct = range.start.min(DIRECT)..range.end.min(DIRECT);
        for number in direct.map(|at| le32(&own.block, 4 * at as usize)).filter(|n| *n != 0) {
            self.checked(own, number)?;
        }
        let (per_block, mut base) = (u64::from(self.sb.block_size) / 4, DIRECT);
        for level in 1..=levels {
            let number = le32(&own.block, 4 * (DIRECT as usize + level as usize - 1));
            self.judge_below(own, number, level, base, range)?;
            base += per_block.pow(level);
        }
        Ok(())
    }

    /// Checks everything below a number that maps the file's blocks from `base` on, with `level` levels
    /// below it.
    fn judge_below(
        &self,
        own: &Ext4Inode,
        number: u32,
        level: u32,
        base: u64,
        range: &Range<u64>,
    ) -> Result<()> {
        let per_block = u64::from(self.sb.block_size) / 4;
        if number == 0 || base >= range.end || base + per_block.pow(level) <= range.start {
            return Ok(());
        }
        let addr = self.checked(own, number)?;
        if level == 0 {
            return Ok(());
        }
        let block = self.blocks.read(addr)?;
        let below = per_block.pow(level - 1);
        (0..per_block).try_for_each(|slot| {
            let number = le32(&block, 4 * slot as usize);
            self.judge_below(own, number, level - 1, base + slot * below, range)
        })
    }

    /// Checks the part of a map that covers a range of the file's blocks, without the third level of numbers.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(super) fn judge_lower_numbers(&self, own: &Ext4Inode, range: &Range<u64>) -> Result<()> {
        self.judge_numbers(own, range, LEVELS - 1)
    }
}

/// Notes that a block was removed, as part of the piece before if it continues that piece.
fn note(gone: &mut Vec<Piece>, block: u64, start: BlockAddr) {
    match gone.last_mut() {
        Some(p) if p.block + p.len == block && p.start.plus(p.len) == start => p.len += 1,
        _ => gone.push(Piece { block, len: 1, start, unwritten: false }),
    }
}
