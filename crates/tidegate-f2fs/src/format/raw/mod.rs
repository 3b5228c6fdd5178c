//! The structures as they lie on the volume, little-endian, with the names of `f2fs_fs.h`.
//!
//! These structures are plain bytes with names: nothing here is checked. [`crate::format::gate`] turns them
//! into validated values.

pub mod checkpoint;
pub mod dir;
pub mod node;
pub mod segment;
pub mod superblock;
pub mod xattr;

pub use checkpoint::*;
pub use dir::*;
pub use node::*;
pub use segment::*;
pub use superblock::*;
pub(crate) use tidegate_block::le::*;
pub use xattr::*;

/// Bytes in a block. Tidegate supports no other block size.
pub const BLOCK_SIZE: usize = 4096;
/// Blocks in a segment (2 MiB).
pub const BLOCKS_PER_SEG: u32 = 512;
/// log2 of [`BLOCKS_PER_SEG`].
pub const LOG_BLOCKS_PER_SEG: u32 = 9;
/// "F2FS", the superblock's magic and the seed of every checksum.
pub const F2FS_MAGIC: u32 = 0xF2F5_2010;

/// The format's CRC: reflected 0xEDB88320, seeded with the magic, not inverted at the end.
pub fn f2fs_crc32(bytes: &[u8]) -> u32 {
    f2fs_chksum(F2FS_MAGIC, bytes)
}

/// The CRC of `bytes`, continued from `seed`, as inode checksums chain it.
pub fn f2fs_chksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new_with_initial(!seed);
    h.update(bytes);
    !h.finalize()
}

/// Tests bit `n` of a most-significant-bit-first map (SIT valid maps, version bitmaps).
pub fn test_bit_msb(map: &[u8], n: usize) -> bool {
    map[n >> 3] & (0x80 >> (n & 7)) != 0
}

/// Sets or clears bit `n` of a most-significant-bit-first map.
pub fn set_bit_msb(map: &mut [u8], n: usize, on: bool) {
    let bit = 0x80 >> (n & 7);
    if on {
        map[n >> 3] |= bit;
    } else {
        map[n >> 3] &= !bit;
    }
}

/// Tests bit `n` of a least-significant-bit-first map (dentry bitmaps, nat_bits).
pub fn test_bit_le(map: &[u8], n: usize) -> bool {
    map[n >> 3] & (1 << (n & 7)) != 0
}

/// Sets or clears bit `n` of a least-significant-bit-first map.
pub fn set_bit_le(map: &mut [u8], n: usize, on: bool) {
    let bit = 1 << (n & 7);
    if on {
        map[n >> 3] |= bit;
    } else {
        map[n >> 3] &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_chains() {
        let (a, b) = (b"tide", b"gate");
        assert_eq!(f2fs_chksum(f2fs_crc32(a), b), f2fs_crc32(b"tidegate"));
        assert_eq!(f2fs_crc32(&[]), F2FS_MAGIC);
    }
}
