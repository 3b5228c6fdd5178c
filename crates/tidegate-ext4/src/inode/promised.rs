//! Blocks of a file that are promised and have no place yet, and the space that is kept for them.

use super::ranges::Ranges;
use crate::alloc::Promise;
use crate::format::block_map::spans;
use std::ops::{Deref, Range};
use tidegate_vfs::Result;

/// The promised blocks of a file.
#[derive(Debug, Default)]
pub(crate) struct Promised {
    blocks: Ranges,
    /// The number of `blocks`.
    count: u64,
    /// The numbers in a block of numbers. `None` for a file with extents.
    per_block: Option<u64>,
    /// A node is promised, too, as long as any block is: the file's extents may no longer fit in the inode.
    node: bool,
}

impl Deref for Promised {
    type Target = Ranges;
    fn deref(&self) -> &Ranges {
        &self.blocks
    }
}

impl Promised {
    /// None, for a file with extents, or with a block map and so many numbers in each block of it.
    pub(crate) fn none(per_block: Option<u64>) -> Promised {
        Promised { blocks: Ranges::default(), count: 0, per_block, node: false }
    }

    /// The number of promised blocks.
    pub(crate) fn total(&self) -> u64 {
        self.count
    }

    /// Adds parts that are not promised, if `take` can take the space for them, or none. `fits` tells whether the inode has
    /// room for so many more extents as there are promised parts then.
    pub(crate) fn add_all(
        &mut self,
        parts: &[Range<u64>],
        fits: impl Fn(usize) -> bool,
        take: impl FnOnce(Promise) -> Result<()>,
    ) -> Result<()> {
        let (node, mut space) = (self.node, Promise::default());
        for part in parts {
            space += self.add(part.clone(), &fits);
        }
        take(space).inspect_err(|_| {
            for part in parts {
                self.remove(part.clone());
            }
            self.node = node;
        })
    }

    /// Adds blocks that are not promised; returns the space for them.
    fn add(&mut self, part: Range<u64>, fits: impl FnOnce(usize) -> bool) -> Promise {
        let mut space = self.space(&part);
        self.count += self.blocks.add(part);
        if self.per_block.is_none() && !self.node && !fits(self.blocks.parts()) {
            self.node = true;
            space.nodes += 1;
        }
        space
    }

    /// Removes a range; returns the space that its promised blocks had.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Promise {
        let mut space = Promise::default();
        for part in self.blocks.first_in(range, usize::MAX) {
            self.count -= self.blocks.remove(part.clone());
            space += self.space(&part);
        }
        if self.node && self.blocks.parts() == 0 {
            self.node = false;
            space.nodes += 1;
        }
        space
    }

    /// The space that blocks need in addition to the promised ones, to which they do not belong. Each block of numbers
    /// that leads to promised blocks counts once, though the file may have it already: a hole punched beside them may
    /// free it.
    fn space(&self, part: &Range<u64>) -> Promise {
        let data = part.end - part.start;
        match self.per_block {
            None => Promise { extents: data, ..Promise::default() },
            Some(n) => {
                let nodes = spans(n).into_iter().map(|(first, span)| self.untouched(part, first, span)).sum();
                Promise { mapped: data, nodes, ..Promise::default() }
            }
        }
    }

    /// The number of spans from block `first` on that the part touches and no promised block does.
    fn untouched(&self, part: &Range<u64>, first: u64, span: u64) -> u64 {
        let start = part.start.max(first);
        if start >= part.end {
            return 0;
        }
        let (low, high) = ((start - first) / span, (part.end - 1 - first) / span);
        // Only the first and the last may have promised blocks: those between lie in the part.
        let before = self.blocks.touches(first + low * span..start);
        let behind = self.blocks.touches(part.end..first + (high + 1) * span);
        let shared = match low == high {
            true => u64::from(before || behind),
            false => u64::from(before) + u64::from(behind),
        };
        high - low + 1 - shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block_map::{DIRECT, LEVELS, level_of};
    use std::collections::BTreeSet;

    /// The blocks of numbers on the way to a block, by level below the inode and position.
    fn way(at: u64, n: u64) -> Vec<(u32, u32, u64)> {
        if at < DIRECT {
            return Vec::new();
        }
        let (level, rest) = level_of(at, n).unwrap();
        (1..=LEVELS.min(level)).map(|distance| (level, distance, rest / n.pow(distance))).collect()
    }

    #[test]
    fn a_block_of_numbers_counts_while_blocks_below_it_are_promised() {
        const N: u64 = 4;
        let (mut promised, mut set, mut kept) =
            (Promised::none(Some(N)), BTreeSet::new(), Promise::default());
        let mut random = 1_u64;
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len) = ((random >> 33) % 96, random >> 45 & 31);
            let range = start..(start + len).min(DIRECT + N + N * N + N * N * N);
            if random >> 52 & 1 == 0 {
                set.extend(range.clone());
                for part in promised.missing(range) {
                    kept += promised.add(part, |_| false);
                }
            } else {
                set.retain(|at| !range.contains(at));
                kept -= promised.remove(range);
            }
            let ways: BTreeSet<_> = set.iter().flat_map(|at| way(*at, N)).collect();
            let wanted = Promise { extents: 0, mapped: set.len() as u64, nodes: ways.len() as u64 };
            assert_eq!(kept, wanted, "{set:?}");
        }
    }

    #[test]
    fn a_node_is_promised_where_extents_no_longer_fit() {
        let mut promised = Promised::none(None);
        let fits = |parts| parts <= 2;
        let space = |extents, nodes| Promise { extents, nodes, ..Promise::default() };
        assert_eq!(promised.add(0..4, fits), space(4, 0));
        assert_eq!(promised.add(4..5, fits), space(1, 0));
        assert_eq!(promised.add(9..10, fits), space(1, 0));
        assert_eq!(promised.add(20..21, fits), space(1, 1));
        assert_eq!(promised.add(30..31, fits), space(1, 0));
        assert_eq!(promised.remove(0..25), space(7, 0));
        assert_eq!(promised.remove(0..100), space(1, 1));
        assert_eq!(promised.remove(0..100), space(0, 0));
    }

    /// Space that was refused is not given back later.
    #[test]
    fn a_promise_that_is_refused_leaves_nothing() {
        let mut promised = Promised::none(None);
        let space = |extents, nodes| Promise { extents, nodes, ..Promise::default() };
        assert_eq!(promised.add(0..1, |_| true), space(1, 0));
        let refused = promised.add_all(
            &[5..6, 8..9],
            |_| false,
            |wanted| {
                assert_eq!(wanted, space(2, 1));
                Err(tidegate_vfs::ErrorKind::NoSpace.into())
            },
        );
        assert!(refused.is_err());
        assert_eq!(promised.remove(0..100), space(1, 0));
    }
}
