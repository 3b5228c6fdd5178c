//! Dentry blocks of a directory. Names go where the hash of the format puts them.

use super::f2fs::{Geometry, Nodes};
use tidegate_f2fs::raw::{NR_DENTRY_IN_BLOCK, bucket_blocks, dentry_hash, dir_block_index, dir_buckets};

/// Bytes of a name slot, and bits of a slot with its entry.
const SLOT_BYTES: usize = 8;
const SLOT_BITS: u64 = (11 + 8) * 8 + 1;
/// The most levels, which is the number of levels with two blocks in a bucket: no directory that fits a
/// volume has more.
const MAX_LEVELS: u32 = 24;

/// A directory to which names are added. No name is removed, so each block is full up to a point.
#[derive(Clone, Debug)]
pub struct Dentries {
    /// The slots used in the inode. Beyond `inline` the directory has blocks.
    slots: u64,
    inline: u64,
    /// Slots used in each block, by level.
    levels: Vec<Vec<u8>>,
}

impl Dentries {
    /// An empty directory.
    pub fn new(g: &Geometry) -> Self {
        // "." and ".." are names too.
        Dentries { slots: 2, inline: g.inline_bytes() * 8 / SLOT_BITS, levels: Vec::new() }
    }

    /// Adds a name.
    pub fn add(&mut self, name: &[u8]) {
        let need = name.len().div_ceil(SLOT_BYTES).max(1);
        if self.levels.is_empty() {
            if self.slots + need as u64 <= self.inline {
                self.slots += need as u64;
                return;
            }
            // The slots that were used in the inode move to the first block.
            self.levels.push(vec![0; Self::blocks_of(0)]);
            self.levels[0][0] = self.slots as u8;
        }
        let hash = dentry_hash(name);
        for level in 0..MAX_LEVELS {
            if self.levels.len() <= level as usize {
                self.levels.push(vec![0; Self::blocks_of(level)]);
            }
            let per_bucket = bucket_blocks(level) as usize;
            let at = (hash % dir_buckets(level, 0)) as usize * per_bucket;
            let bucket = &mut self.levels[level as usize][at..at + per_bucket];
            if let Some(used) = bucket.iter_mut().find(|u| **u as usize + need <= NR_DENTRY_IN_BLOCK) {
                *used += need as u8;
                return;
            }
        }
    }

    fn blocks_of(level: u32) -> usize {
        dir_buckets(level, 0) as usize * bucket_blocks(level) as usize
    }

    /// The blocks of the directory, including its inode and other nodes.
    pub fn blocks(&self, g: &Geometry) -> u64 {
        let mut nodes = Nodes::default();
        let mut blocks = 1;
        for (level, used) in self.levels.iter().enumerate() {
            let first = dir_block_index(level as u32, 0, 0);
            for (i, _) in used.iter().enumerate().filter(|(_, used)| **used > 0) {
                let page = first + i as u64;
                blocks += 1 + nodes.add(g, page, page + 1);
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_f2fs::raw::Features;

    #[test]
    fn small_directories_lie_in_their_inode() {
        let g = Geometry::new(Features::empty());
        let mut d = Dentries::new(&g);
        for i in 0..180 {
            d.add(format!("n{i}").as_bytes());
        }
        assert_eq!(d.blocks(&g), 1);
        d.add(b"one more");
        assert_eq!(d.blocks(&g), 2);
        for i in 0..32 {
            d.add(format!("m{i}").as_bytes());
        }
        assert_eq!(d.blocks(&g), 3);
    }

    #[test]
    fn large_ones_are_filled_well() {
        let g = Geometry::new(Features::empty());
        let mut d = Dentries::new(&g);
        for i in 0..100_000 {
            d.add(format!("file-{i:08}").as_bytes());
        }
        let least = 200_000 / 214;
        let n = d.blocks(&g);
        assert!((least..least * 3 / 2).contains(&n), "{n} blocks, {least} at least");
    }
}
