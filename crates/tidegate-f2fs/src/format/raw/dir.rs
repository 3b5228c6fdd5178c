//! Directory entries and the hash that places them.

use super::BLOCK_SIZE;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entries in a dentry block.
pub const NR_DENTRY_IN_BLOCK: usize = 214;
/// Bytes of a dentry block's bitmap.
pub const SIZE_OF_DENTRY_BITMAP: usize = 27;
/// Unused bytes behind the bitmap.
pub const SIZE_OF_RESERVED: usize = 3;
/// Bytes of a name slot; longer names take several slots and as many entries.
pub const F2FS_SLOT_LEN: usize = 8;
/// Longest name in bytes.
pub const F2FS_NAME_LEN: usize = 255;
/// Size of [`RawDirEntry`].
pub const SIZE_OF_DIR_ENTRY: usize = 11;
/// Most levels of hash buckets.
pub const MAX_DIR_HASH_DEPTH: u32 = 63;

/// `struct f2fs_dir_entry`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDirEntry {
    pub hash_code: U32,
    pub ino: U32,
    pub name_len: U16,
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirEntry>() == SIZE_OF_DIR_ENTRY);
const _: () = assert!(
    SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED + NR_DENTRY_IN_BLOCK * (SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN)
        == BLOCK_SIZE
);

/// `file_type` values.
pub mod file_type {
    /// Unknown.
    pub const UNKNOWN: u8 = 0;
    /// Regular file.
    pub const REG_FILE: u8 = 1;
    /// Directory.
    pub const DIR: u8 = 2;
    /// Character device.
    pub const CHRDEV: u8 = 3;
    /// Block device.
    pub const BLKDEV: u8 = 4;
    /// Named pipe.
    pub const FIFO: u8 = 5;
    /// Socket.
    pub const SOCK: u8 = 6;
    /// Symbolic link.
    pub const SYMLINK: u8 = 7;
}

/// Buckets of a level: doubles with each level, up to 2^30.
pub fn dir_buckets(level: u32, dir_level: u32) -> u32 {
    if level + dir_level < MAX_DIR_HASH_DEPTH / 2 {
        1 << (level + dir_level)
    } else {
        1 << (MAX_DIR_HASH_DEPTH / 2 - 1)
    }
}

/// Blocks of each bucket of a level.
pub fn bucket_blocks(level: u32) -> u32 {
    if level < MAX_DIR_HASH_DEPTH / 2 { 2 } else { 4 }
}

/// First block, in blocks of the directory file, of bucket `idx` of `level`.
pub fn dir_block_index(level: u32, dir_level: u32, idx: u32) -> u64 {
    let blocks = |level, buckets: u32| u64::from(buckets) * u64::from(bucket_blocks(level));
    let before: u64 = (0..level).map(|l| blocks(l, dir_buckets(l, dir_level))).sum();
    before + blocks(level, idx)
}

/// The hash of a name: half-MD4's initial state through TEA, 16 bytes of the name at a time. 0 for "." and "..".
pub fn dentry_hash(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    let mut state = [0x6745_2301u32, 0xefcd_ab89];
    let mut rest = name;
    loop {
        tea(&mut state, &hash_words(rest));
        if rest.len() <= 16 {
            return state[0];
        }
        rest = &rest[16..];
    }
}

/// Up to 16 bytes of `name` as four words, padded with its remaining length.
fn hash_words(name: &[u8]) -> [u32; 4] {
    let len = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let pad = (len | len << 8) | (len | len << 8) << 16;
    let mut words = [pad; 4];
    for (w, part) in words.iter_mut().zip(name[..name.len().min(16)].chunks(4)) {
        *w = part.iter().fold(pad, |v, &b| (v << 8).wrapping_add(b.into()));
    }
    words
}

fn tea(state: &mut [u32; 2], key: &[u32; 4]) {
    let (mut b0, mut b1, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        b0 = b0.wrapping_add(
            (b1 << 4).wrapping_add(key[0]) ^ b1.wrapping_add(sum) ^ (b1 >> 5).wrapping_add(key[1]),
        );
        b1 = b1.wrapping_add(
            (b0 << 4).wrapping_add(key[2]) ^ b0.wrapping_add(sum) ^ (b0 >> 5).wrapping_add(key[3]),
        );
    }
    state[0] = state[0].wrapping_add(b0);
    state[1] = state[1].wrapping_add(b1);
}

/// The level and the bucket in it of block `index` of a directory; `None` past the deepest level.
pub fn dir_bucket_of(index: u64, dir_level: u32) -> Option<(u32, u32)> {
    let mut first = 0;
    for level in 0..MAX_DIR_HASH_DEPTH {
        let blocks = u64::from(bucket_blocks(level));
        let end = first + u64::from(dir_buckets(level, dir_level)) * blocks;
        if index < end {
            return u32::try_from((index - first) / blocks).ok().map(|bucket| (level, bucket));
        }
        first = end;
    }
    None
}
