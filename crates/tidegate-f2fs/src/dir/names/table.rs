//! A table of name hashes and their levels: 4 bytes for each name, exact but for 6 bits of the hash.

use crate::format::raw::{MAX_DIR_HASH_DEPTH, NR_DENTRY_IN_BLOCK, bucket_blocks, dir_buckets};

/// Bits of a tag that hold the level; the other bits are the hash's.
const LEVEL: u32 = 63;
/// A place without a name. No level is 63.
const EMPTY: u32 = u32::MAX;
const _: () = assert!(MAX_DIR_HASH_DEPTH <= LEVEL);
/// Places that a fresh table has.
const FIRST: usize = 1024;
/// Most places that a search for one hash looks at. Names whose hashes were made to lie together would make
/// each step a walk through all of them.
const LONGEST: usize = 512;

/// The hashes of a directory's names, with the level of each, in open addressing with linear probing.
#[derive(Debug)]
pub(super) struct Table {
    tags: Vec<u32>,
    names: usize,
    /// Slots in use at each level.
    slots: [u64; MAX_DIR_HASH_DEPTH as usize],
}

/// The table has no room, or searches in it would be slow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Table {
    pub(super) fn new() -> Table {
        Table { tags: vec![EMPTY; FIRST], names: 0, slots: [0; MAX_DIR_HASH_DEPTH as usize] }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.tags.len() * size_of::<u32>()
    }

    /// Bytes of memory after one more name.
    pub(super) fn bytes_to_add(&self) -> usize {
        if self.must_grow() { self.bytes() / 2 * 3 } else { self.bytes() }
    }

    fn must_grow(&self) -> bool {
        self.names + 1 > self.tags.len() / 4 * 3
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag & !LEVEL) * self.tags.len() as u64) >> 32) as usize
    }

    /// Places from `home` on, wrapping around.
    fn from(&self, home: usize) -> impl Iterator<Item = usize> + use<> {
        let n = self.tags.len();
        (0..n.min(LONGEST)).map(move |i| (home + i) % n)
    }

    /// The levels at which a name with `hash` may be, one bit for each.
    pub(super) fn levels(&self, hash: u32) -> u64 {
        let tags = self.from(self.home(hash)).map(|i| self.tags[i]).take_while(|&t| t != EMPTY);
        tags.filter(|t| t & !LEVEL == hash & !LEVEL).fold(0, |levels, t| levels | 1 << (t & LEVEL))
    }

    /// Adds a name of `slots` slots.
    pub(super) fn insert(&mut self, hash: u32, level: u32, slots: usize) -> Result<(), Full> {
        if self.must_grow() {
            let larger = vec![EMPTY; self.tags.len() / 2 * 3];
            let old = std::mem::replace(&mut self.tags, larger);
            old.into_iter().filter(|&t| t != EMPTY).try_for_each(|t| self.place(t))?;
        }
        self.place(hash & !LEVEL | level)?;
        self.names += 1;
        self.slots[level as usize] += slots as u64;
        Ok(())
    }

    fn place(&mut self, tag: u32) -> Result<(), Full> {
        let at = self.from(self.home(tag)).find(|&i| self.tags[i] == EMPTY).ok_or(Full)?;
        self.tags[at] = tag;
        Ok(())
    }

    /// Takes a name out; false if it was not there.
    pub(super) fn remove(&mut self, hash: u32, level: u32, slots: usize) -> bool {
        let tag = hash & !LEVEL | level;
        let found =
            self.from(self.home(tag)).take_while(|&i| self.tags[i] != EMPTY).find(|&i| self.tags[i] == tag);
        let Some(mut hole) = found else { return false };
        let n = self.tags.len();
        let distance = |from: usize, to: usize| (to + n - from) % n;
        // Every tag must be reachable from its home without an empty place between, so the tags behind the
        // hole move up.
        let mut at = (hole + 1) % n;
        while self.tags[at] != EMPTY {
            if distance(self.home(self.tags[at]), at) >= distance(hole, at) {
                self.tags[hole] = self.tags[at];
                hole = at;
            }
            at = (at + 1) % n;
        }
        self.tags[hole] = EMPTY;
        self.names -= 1;
        let used = &mut self.slots[level as usize];
        *used = used.saturating_sub(slots as u64);
        true
    }

    /// Whether less than 7 of 8 slots of a level are in use: in a fuller one, most buckets have no room.
    pub(super) fn has_room(&self, level: u32, dir_level: u32) -> bool {
        let blocks = u64::from(dir_buckets(level, dir_level)) * u64::from(bucket_blocks(level));
        self.slots[level as usize] < blocks * NR_DENTRY_IN_BLOCK as u64 / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_with_neighbouring_hashes_end_it() {
        let mut t = Table::new();
        let full = (0..100_000u32).map(|i| t.insert(i, 3, 1)).find(Result::is_err);
        assert_eq!(full, Some(Err(Full)));
    }

    proptest! {
        /// Compares the table with a list of its names. The test uses few hashes, so that they collide.
        #[test]
        fn it_has_what_was_put_in(
            ops in prop::collection::vec((any::<bool>(), 0..200u32, 0..5u32), 1..500),
            spread in prop::sample::select(vec![64u32, 0x0123_4567, 21_474_836]),
        ) {
            let mut t = Table::new();
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (add, h, level) in ops {
                let hash = h.wrapping_mul(spread);
                let key = (hash & !LEVEL, level);
                if add {
                    t.insert(hash, level, 2).unwrap();
                    model.push(key);
                } else {
                    let at = model.iter().position(|k| *k == key);
                    prop_assert_eq!(t.remove(hash, level, 2), at.is_some());
                    at.map(|at| model.swap_remove(at));
                }
                let want = model.iter().filter(|k| k.0 == key.0).fold(0, |l, k| l | 1u64 << k.1);
                prop_assert_eq!(t.levels(hash), want);
            }
            for &(hash, level) in &model {
                prop_assert!(t.levels(hash) >> level & 1 == 1);
            }
            prop_assert_eq!(t.names, model.len());
            let used: u64 = t.slots.iter().sum();
            prop_assert_eq!(used, 2 * model.len() as u64);
        }
    }
}
