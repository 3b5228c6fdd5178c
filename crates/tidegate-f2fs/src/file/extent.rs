//! The part of a file's block map that is known without its nodes.

use crate::format::raw::RawExtent;
use crate::format::units::BlockAddr;
use std::collections::BTreeMap;

/// Extents remembered for each file.
const MAX_EXTENTS: usize = 128;

/// Neighbouring pages on neighbouring blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First page of the file.
    pub fofs: u64,
    /// First block.
    pub blk: BlockAddr,
    /// Blocks.
    pub len: u32,
}

impl Extent {
    fn end(&self) -> u64 {
        self.fofs + self.len as u64
    }

    /// The extent in the form of an inode block.
    pub(crate) fn to_raw(self) -> RawExtent {
        RawExtent { fofs: (self.fofs as u32).into(), blk: self.blk.0.into(), len: self.len.into() }
    }
}

/// A cache of extents, and the largest one seen, which the inode keeps on the volume.
#[derive(Default)]
pub(crate) struct ExtentCache {
    map: BTreeMap<u64, Extent>,
    pub largest: Extent,
}

impl ExtentCache {
    /// Starts with what the inode on the volume says.
    pub(crate) fn new(largest: Extent) -> Self {
        let map = if largest.len > 0 { BTreeMap::from([(largest.fofs, largest)]) } else { BTreeMap::new() };
        ExtentCache { map, largest }
    }

    /// The block of page `index`, and the number of blocks that follow it in one piece.
    pub(crate) fn lookup(&self, index: u64) -> Option<(BlockAddr, u32)> {
        let (_, e) = self.map.range(..=index).next_back()?;
        let off = index - e.fofs;
        (off < e.len as u64).then(|| (e.blk.plus(off as u32), e.len - off as u32))
    }

    /// Notes that pages `fofs..fofs + len` lie from `blk` on; replaces what was known of these pages.
    pub(crate) fn insert(&mut self, fofs: u64, blk: BlockAddr, len: u32) {
        self.invalidate(fofs, len as u64);
        let mut e = Extent { fofs, blk, len };
        if let Some((_, p)) = self.map.range(..fofs).next_back()
            && p.end() == fofs
            && p.blk.plus(p.len) == blk
        {
            e = Extent { fofs: p.fofs, blk: p.blk, len: p.len + len };
            self.map.remove(&e.fofs);
        }
        if let Some(n) = self.map.get(&e.end()).copied()
            && e.blk.plus(e.len) == n.blk
        {
            self.map.remove(&n.fofs);
            e.len += n.len;
        }
        if self.map.len() >= MAX_EXTENTS {
            self.map.clear();
        }
        self.map.insert(e.fofs, e);
        if e.len > self.largest.len {
            self.largest = e;
        }
    }

    /// Forgets pages `fofs..fofs + len`.
    pub(crate) fn invalidate(&mut self, fofs: u64, len: u64) {
        let end = fofs.saturating_add(len);
        if self.largest.len > 0 && self.largest.fofs < end && fofs < self.largest.end() {
            self.largest = Extent::default();
        }
        let hit: Vec<Extent> =
            self.map.range(..end).rev().take_while(|(_, e)| e.end() > fofs).map(|(_, e)| *e).collect();
        for e in hit {
            self.map.remove(&e.fofs);
            if e.fofs < fofs {
                self.map.insert(e.fofs, Extent { len: (fofs - e.fofs) as u32, ..e });
            }
            if e.end() > end {
                let cut = (end - e.fofs) as u32;
                let tail = Extent { fofs: end, blk: e.blk.plus(cut), len: e.len - cut };
                self.map.insert(end, tail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_holes_split() {
        let mut c = ExtentCache::default();
        c.insert(10, BlockAddr(100), 5);
        c.insert(20, BlockAddr(110), 5);
        c.insert(15, BlockAddr(105), 5);
        assert_eq!(c.lookup(12), Some((BlockAddr(102), 13)));
        assert_eq!(c.largest, Extent { fofs: 10, blk: BlockAddr(100), len: 15 });
        c.invalidate(14, 2);
        assert_eq!(c.lookup(13), Some((BlockAddr(103), 1)));
        assert_eq!(c.lookup(14), None);
        assert_eq!(c.lookup(16), Some((BlockAddr(106), 9)));
        assert_eq!(c.largest.len, 0);
    }
}
