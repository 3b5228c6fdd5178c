//! Blocks of one file on F2FS.

use tidegate_f2fs::raw::Features;

const PAGE: u64 = 4096;
/// Addresses in an inode, and its 4-byte words that are reserved for attributes.
const INODE_ADDRS: u64 = 923;
const INLINE_XATTR_WORDS: u64 = 50;
const EXTRA_WORDS: u64 = 9;
/// Addresses in a direct node, nodes in an indirect one.
const PER_NODE: u64 = 1018;
/// Bytes of inline attributes: the area without its header and its end.
const INLINE_XATTR_BYTES: usize = 200 - 24 - 4;
/// The part of an inode that is left for addresses.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    addrs: u64,
}

impl Geometry {
    /// The geometry of a volume with `features`.
    pub fn new(features: Features) -> Self {
        let extra = if features.contains(Features::EXTRA_ATTR) { EXTRA_WORDS } else { 0 };
        Geometry { addrs: INODE_ADDRS - INLINE_XATTR_WORDS - extra }
    }

    /// Bytes that an inode can hold itself.
    pub(super) fn inline_bytes(&self) -> u64 {
        (self.addrs - 1) * 4
    }

    /// The blocks of a file, including its inode, with data in `ranges` (offset and length in bytes,
    /// ascending).
    pub fn file(&self, size: u64, ranges: &[(u64, u64)]) -> u64 {
        if size <= self.inline_bytes() {
            return 1;
        }
        let mut seen = Nodes::default();
        let mut next = 0;
        let mut blocks = 1;
        for &(at, len) in ranges.iter().filter(|r| r.1 > 0) {
            let (first, end) = ((at / PAGE).max(next), (at + len).div_ceil(PAGE));
            if first < end {
                blocks += end - first;
                blocks += seen.add(self, first, end);
                next = end;
            }
        }
        blocks
    }

    /// Blocks for `bytes` of attributes outside the inode.
    pub fn xattr(&self, bytes: usize) -> u64 {
        (bytes > INLINE_XATTR_BYTES) as u64
    }
}

/// Nodes of a file that are counted already.
#[derive(Default)]
pub(super) struct Nodes {
    direct: Option<u64>,
    indirect: Option<u64>,
    double: bool,
}

impl Nodes {
    /// Nodes that pages `first..end` need beyond those counted.
    pub(super) fn add(&mut self, g: &Geometry, first: u64, end: u64) -> u64 {
        let addrs = g.addrs;
        if end <= addrs {
            return 0;
        }
        let from = first.saturating_sub(addrs) / PER_NODE;
        let to = (end - addrs - 1) / PER_NODE;
        let mut n = fresh(&mut self.direct, from, to);
        // The first two direct nodes hang off the inode, the others off indirect ones.
        if to >= 2 {
            let (from, to) = (from.saturating_sub(2) / PER_NODE, (to - 2) / PER_NODE);
            n += fresh(&mut self.indirect, from, to);
            if to >= 2 && !self.double {
                self.double = true;
                n += 1;
            }
        }
        n
    }
}

/// How many of `from..=to` lie behind the last counted one.
fn fresh(last: &mut Option<u64>, from: u64, to: u64) -> u64 {
    let from = last.map_or(from, |l| from.max(l + 1));
    *last = Some(last.map_or(to, |l| l.max(to)));
    (to + 1).saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry { addrs: 873 };

    fn dense(pages: u64) -> u64 {
        G.file(pages * PAGE, &[(0, pages * PAGE)]) - pages
    }

    #[test]
    fn nodes_of_dense_files() {
        assert_eq!(G.file(0, &[]), 1);
        assert_eq!(G.file(3488, &[(0, 3488)]), 1);
        assert_eq!(G.file(3489, &[(0, 3489)]), 2);
        assert_eq!(dense(873), 1);
        assert_eq!(dense(874), 2);
        assert_eq!(dense(873 + 2 * 1018), 3);
        // A third direct node needs an indirect node.
        assert_eq!(dense(873 + 2 * 1018 + 1), 5);
        assert_eq!(dense(873 + 2 * 1018 + 1018 * 1018), 1 + 2 + 1 + 1018);
        assert_eq!(dense(873 + 2 * 1018 + 2 * 1018 * 1018), 1 + 2 + 2 + 2 * 1018);
        // A third indirect node needs the double indirect node.
        assert_eq!(dense(874 + 2 * 1018 + 2 * 1018 * 1018), 1 + 2 + 3 + 1 + 2 * 1018 + 1);
    }

    #[test]
    fn holes_cost_nothing() {
        let t = 1u64 << 40;
        assert_eq!(G.file(3 * t, &[]), 1);
        // Inode, direct, indirect and double indirect node, and the page.
        assert_eq!(G.file(3 * t + 1, &[(3 * t, 1)]), 5);
        // Two pages of one direct node.
        assert_eq!(G.file(1 << 30, &[(4_000_000, 1), (4_100_000, 1)]), 1 + 2 + 1);
        // Pieces in one page.
        assert_eq!(G.file(1 << 20, &[(0, 512), (1024, 512)]), 2);
    }
}
