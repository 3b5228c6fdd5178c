//! An inode in the form of its table.

use crate::format::crc::crc32c;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Most blocks of a file mapped by extents: the last block number means none.
pub(in crate::offline) const MAX_FILE_BLOCKS: u64 = (1 << 32) - 1;

/// Whether a time of deletion is an inode number, as in lists of orphans. Where the volume's own times are
/// that low, its clock is wrong, and the answer is no.
pub(in crate::offline) fn is_listed(sb: &Superblock, dtime: u32) -> bool {
    let (raw, inodes) = (&sb.raw, sb.raw.s_inodes_count.get());
    let low = [raw.s_wtime, raw.s_mtime, raw.s_mkfs_time].iter().any(|t| (1..inodes).contains(&t.get()));
    !low && (1..inodes).contains(&dtime)
}

/// Types of files, by their numbers in directory entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::offline) enum Kind {
    File = 1,
    Dir,
    Char,
    Block,
    Fifo,
    Socket,
    Link,
}

impl Kind {
    pub(in crate::offline) fn of_mode(mode: u16) -> Option<Kind> {
        Some(match mode >> 12 {
            0o1 => Kind::Fifo,
            0o2 => Kind::Char,
            0o4 => Kind::Dir,
            0o6 => Kind::Block,
            0o10 => Kind::File,
            0o12 => Kind::Link,
            0o14 => Kind::Socket,
            _ => return None,
        })
    }
}

/// An inode in the form of its table.
#[derive(Clone)]
pub(in crate::offline) struct Node {
    pub(in crate::offline) ino: u32,
    pub(in crate::offline) raw: RawInode,
    /// All bytes of it.
    pub(in crate::offline) bytes: Vec<u8>,
    /// The seed of the checksums of its blocks.
    pub(in crate::offline) seed: u32,
    /// Block numbers have 64 bits: the high half of `i_file_acl` counts.
    wide: bool,
}

impl Node {
    /// Inode `ino` from its bytes in the table.
    pub(in crate::offline) fn parse(sb: &Superblock, ino: u32, bytes: &[u8]) -> Node {
        let mut raw = RawInode::new_zeroed();
        let n = bytes.len().min(size_of::<RawInode>());
        raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
        let seed = crc32c(sb.csum_seed, &ino.to_le_bytes());
        let seed = crc32c(seed, raw.i_generation.as_bytes());
        let wide = sb.incompat.contains(Incompat::BIT64);
        Node { ino, raw, bytes: bytes.to_vec(), seed, wide }
    }

    /// The stored checksum and the correct one.
    pub(in crate::offline) fn checksums(&self) -> (u32, u32) {
        let mut bytes = self.bytes.clone();
        bytes[CSUM_LO_OFFSET..CSUM_LO_OFFSET + 2].fill(0);
        let has_high = bytes.len() > INODE_BASE && self.raw.i_extra_isize.get() >= 4;
        if has_high {
            bytes[CSUM_HI_OFFSET..CSUM_HI_OFFSET + 2].fill(0);
        }
        let sum = crc32c(self.seed, &bytes);
        let high = if has_high { self.raw.i_checksum_hi.get() } else { (sum >> 16) as u16 };
        (u32::from(self.raw.i_checksum_lo.get()) | u32::from(high) << 16, sum)
    }

    pub(in crate::offline) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw.i_flags.get())
    }
    pub(in crate::offline) fn has(&self, flag: InodeFlags) -> bool {
        self.flags().contains(flag)
    }
    pub(in crate::offline) fn size(&self) -> u64 {
        u64::from(self.raw.i_size_lo.get()) | u64::from(self.raw.i_size_high.get()) << 32
    }
    pub(in crate::offline) fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.raw.i_mode.get())
    }
    /// Word `n` of `i_block`.
    pub(in crate::offline) fn word(&self, n: usize) -> u32 {
        le32(&self.raw.i_block, n * 4)
    }
    pub(in crate::offline) fn acl_block(&self) -> u64 {
        let high = if self.wide { u64::from(self.raw.i_file_acl_high.get()) << 32 } else { 0 };
        high | u64::from(self.raw.i_file_acl_lo.get())
    }
    /// Whether the high half of `i_file_acl`, which does not count, is set.
    pub(in crate::offline) fn has_stray_acl_high(&self) -> bool {
        !self.wide && self.raw.i_file_acl_high.get() != 0
    }
    /// Whether `i_block` holds the target of a symbolic link.
    pub(in crate::offline) fn is_short_link(&self) -> bool {
        self.kind() == Some(Kind::Link) && !self.has(InodeFlags::EXTENTS) && self.size() < I_BLOCK_SIZE as u64
    }
    /// Offsets of the extra fields of times that are so late that they must be wrong.
    pub(in crate::offline) fn late_times(&self) -> Vec<usize> {
        // Offsets of the seconds and of the extra field of change, modification, access and creation.
        let all = [(12, 132), (16, 136), (8, 140), (144, 148)];
        let extra = usize::from(self.raw.i_extra_isize.get());
        let bytes = self.raw.as_bytes();
        let late = |(secs, at): &(usize, usize)| {
            at + 4 <= (INODE_BASE + extra).min(self.bytes.len())
                && le32(bytes, *secs) >> 31 == 1
                && le32(bytes, *at) & 3 == 3
        };
        all.iter().filter(|t| late(t)).map(|t| t.1).collect()
    }
    /// Whether a reserved inode that is not used is empty, as far as other programs check.
    pub(in crate::offline) fn is_empty(&self) -> bool {
        let blocks = self.raw.i_blocks_lo.get() == 0 && self.raw.i_blocks_high.get() == 0;
        blocks && self.size() == 0 && self.acl_block() == 0 && self.flags().is_empty()
    }
    /// Whether `i_block` leads to blocks.
    pub(in crate::offline) fn is_mapped(&self) -> bool {
        match self.kind() {
            Some(Kind::File | Kind::Dir) => true,
            Some(Kind::Link) => !self.is_short_link(),
            Some(_) => false,
            // The inode of bad blocks has no type.
            None => self.ino < GOOD_OLD_FIRST_INO,
        }
    }
}

/// The header of an extent tree's node.
pub(in crate::offline) fn header(bytes: &[u8]) -> Option<RawExtentHeader> {
    RawExtentHeader::read_from_prefix(bytes).ok().map(|(h, _)| h)
}
