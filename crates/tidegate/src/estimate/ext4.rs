//! Blocks of one file and of one directory on ext4.

use tidegate_ext4::raw::{DIR_TAIL, DIRENT_HEAD, EXTENT_ENTRY, I_BLOCK_SIZE, INODE_BASE};

/// Bytes of the fields that an inode has behind the first 128, and of the mark before attributes.
const EXTRA_FIELDS: usize = 32 + 4;
/// Bytes of an attribute's entry beside its name and value: hash, offset, padding of both, and the end.
const PER_XATTR: usize = 16;
/// Extents in an inode.
const IN_INODE: u64 = (I_BLOCK_SIZE / EXTENT_ENTRY - 1) as u64;
/// Blocks of the longest extent.
const LONGEST: u64 = 1 << 15;

/// Sizes that decide how many blocks something takes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of an inode.
    pub inode_size: usize,
}

impl Geometry {
    /// Blocks of a file with data in `ranges` (offset and length in bytes, ascending).
    pub fn file(&self, ranges: &[(u64, u64)]) -> u64 {
        let (mut blocks, mut extents, mut next) = (0, 0, 0);
        for &(at, len) in ranges.iter().filter(|r| r.1 > 0) {
            let first = (at / self.block_size).max(next);
            let end = (at + len).div_ceil(self.block_size);
            if first < end {
                blocks += end - first;
                extents += if first == next && next > 0 { 0 } else { 1 } + (end - first - 1) / LONGEST;
                next = end;
            }
        }
        blocks + self.nodes(extents)
    }

    /// The blocks of extents for so many extents.
    fn nodes(&self, extents: u64) -> u64 {
        let per_node = self.block_size / EXTENT_ENTRY as u64 - 1;
        let (mut all, mut level) = (0, extents);
        while level > IN_INODE {
            level = level.div_ceil(per_node);
            all += level;
        }
        all
    }

    /// Blocks of a symbolic link to `len` bytes.
    pub fn symlink(&self, len: u64) -> u64 {
        u64::from(len >= I_BLOCK_SIZE as u64)
    }

    /// Blocks for `bytes` of `count` attributes outside of the inode.
    pub fn xattr(&self, bytes: usize, count: usize) -> u64 {
        let room = self.inode_size.saturating_sub(INODE_BASE + EXTRA_FIELDS);
        u64::from(count > 0 && bytes + count * PER_XATTR + 4 > room)
    }

    /// The blocks of a directory. A directory with an index consists of blocks that were split in halves, so it is
    /// about two thirds full, in whole entries.
    pub fn dir(&self, entries: Entries) -> u64 {
        let room = self.block_size - DIR_TAIL as u64;
        if entries.bytes <= room {
            return 1;
        }
        let each = entries.bytes.div_ceil(entries.count);
        let filled = (room / each).max(1) * each;
        let leaves = (entries.bytes * 3).div_ceil(filled * 2);
        let per_node = self.block_size / 8 - 4;
        if leaves <= per_node {
            return leaves + 1;
        }
        leaves + (leaves * 3).div_ceil(per_node * 2) + 1
    }
}

/// Entries of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    bytes: u64,
    count: u64,
}

impl Entries {
    /// The entries that each directory has.
    pub const DOTS: Entries = Entries { bytes: 24, count: 2 };

    /// Adds an entry with this name.
    pub fn add(&mut self, name: &[u8]) {
        self.bytes += (DIRENT_HEAD + name.len()).next_multiple_of(4) as u64;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry { block_size: 1024, inode_size: 256 };

    #[test]
    fn blocks_of_files() {
        assert_eq!(G.file(&[]), 0);
        assert_eq!(G.file(&[(0, 1)]), 1);
        assert_eq!(G.file(&[(0, 1025)]), 2);
        assert_eq!(G.file(&[(0, 512), (512, 100), (1 << 30, 1)]), 2);
        // Five pieces need a block of extents.
        let pieces: Vec<_> = (0..5).map(|n| (n * 10_000, 1)).collect();
        assert_eq!(G.file(&pieces), 6);
        let many: Vec<_> = (0..1000).map(|n| (n * 10_000, 1)).collect();
        assert_eq!(G.file(&many), 1000 + 12 + 1);
    }

    #[test]
    fn blocks_of_links_attributes_and_directories() {
        assert_eq!((G.symlink(59), G.symlink(60)), (0, 1));
        assert_eq!((G.xattr(0, 0), G.xattr(20, 1), G.xattr(90, 1)), (0, 0, 1));
        let of = |bytes, count| G.dir(Entries { bytes, count });
        assert_eq!((G.dir(Entries::DOTS), of(1012, 20), of(1016, 20)), (1, 1, 3));
        // A full block holds three of the longest names, and two on average.
        assert!(of(264 * 40_000, 40_000) >= 20_208);
    }
}
