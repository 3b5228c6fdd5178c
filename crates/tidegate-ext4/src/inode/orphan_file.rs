//! The orphan file (`orphan_file`): blocks of inode numbers, where Linux notes inodes without a name, so that
//! processors do not contend for the list. The next mount frees the inodes that a crash left in the file.
//! Tidegate adds none: its own orphans go onto the list.
//!
//! A block has numbers of 32 bits, 0 for none, and a tail with a magic number and the checksum of the block's
//! number and its content (`ext4_orphan_block_tail` of the format's documentation).

use super::Ext4Inode;
use crate::format::crc::crc32c;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::map::Place;
use crate::volume::handle::{Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::collections::HashSet;
use tidegate_vfs::{At, Error, Result};

/// The largest orphan file that Linux accepts, in bytes.
const MOST: u64 = 8 << 20;
/// The file, as the place of an error.
const ORPHAN_FILE: At = At::The("orphan file");

/// The place of an orphan's number: a block of the file, and the byte in it.
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    block: BlockAddr,
    at: usize,
    /// The seed of the checksums of the file's blocks.
    seed: u32,
}

impl Noted {
    /// The block of the file that has the number.
    pub(super) fn block(self) -> BlockAddr {
        self.block
    }
}

fn checksum(seed: u32, block: BlockAddr, bytes: &[u8]) -> u32 {
    crc32c(crc32c(seed, &block.0.to_le_bytes()), bytes)
}

impl Ext4 {
    /// The inodes in the orphan file, if the superblock says that there are any; none of them may be
    /// `listed`, too.
    ///
    /// # Errors
    /// `Corrupt` for an impossible file or inode; those of the device.
    pub(super) fn noted_orphans(&self, listed: &[u32]) -> Result<Vec<(u32, Noted)>> {
        if !self.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            return Ok(Vec::new());
        }
        let ino = self.sb.raw.s_orphan_file_inum.get();
        let (attr, file) = self.load_any(ino).map_err(|e| e.at(ORPHAN_FILE))?;
        rule(attr.size <= MOST, format_args!("it has {} bytes", attr.size)).map_err(|e| e.at(ORPHAN_FILE))?;
        let (mut found, mut seen) = (Vec::new(), HashSet::from_iter(listed.iter().copied()));
        for n in 0..self.blocks_of(attr.size) {
            self.noted_in(&file, FileBlock(n), &mut seen, &mut found)?;
        }
        Ok(found)
    }

    fn noted_in(
        &self,
        file: &Ext4Inode,
        n: FileBlock,
        seen: &mut HashSet<u32>,
        found: &mut Vec<(u32, Noted)>,
    ) -> Result<()> {
        let Place::Data(block) = self.map_blocks(file, n, 1)?.place else {
            return Err(Error::corrupt("it is missing").at(n.place()).at(ORPHAN_FILE));
        };
        let bytes = self.blocks.read(block).map_err(|e| e.at(ORPHAN_FILE))?;
        let crc = checksum(file.csum_seed, block, &bytes[..RawOrphanTail::offset(&bytes)]);
        let whole = |tail: RawOrphanTail| {
            let sealed = !self.sb.has_csum() || tail.ob_checksum.get() == crc;
            tail.ob_magic.get() == ORPHAN_MAGIC && sealed
        };
        rule(RawOrphanTail::of(&bytes).is_some_and(whole), "the checksum does not match")
            .map_err(|e| e.at(block.place()).at(ORPHAN_FILE))?;
        for (at, ino) in RawOrphanTail::numbers(&bytes) {
            let can_be = ino >= self.sb.first_ino && ino <= self.sb.raw.s_inodes_count.get();
            rule(can_be && seen.insert(ino), "the orphan file has it twice, or cannot have it")
                .map_err(|e| e.in_inode(ino))?;
            found.push((ino, Noted { block, at, seed: file.csum_seed }));
        }
        Ok(())
    }

    /// Takes an inode out of the orphan file.
    pub(super) fn remove_noted(&self, handle: &mut Handle<'_>, noted: Noted) -> Result<()> {
        handle.write(noted.block, |bytes| {
            bytes[noted.at..noted.at + 4].fill(0);
            let end = RawOrphanTail::offset(bytes);
            let crc = checksum(noted.seed, noted.block, &bytes[..end]);
            if self.sb.has_csum()
                && let Some(tail) = at_mut::<RawOrphanTail>(bytes, end)
            {
                tail.ob_checksum = crc.into();
            }
        })
    }

    /// Clears the superblock's note that the orphan file has inodes.
    pub(super) fn forget_noted(&self) -> Result<()> {
        if !self.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            return Ok(());
        }
        self.op(HandleType::Misc, |handle| {
            self.change_super_in(handle, |raw| {
                let left =
                    RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()) - RoCompat::ORPHAN_PRESENT;
                raw.s_feature_ro_compat.set(left.bits());
            })
        })
    }
}
