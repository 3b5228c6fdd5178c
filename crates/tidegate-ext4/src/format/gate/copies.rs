//! The groups that begin with copies of the superblock and of the descriptors, and the number of blocks that
//! the copies take.

use super::Superblock;
use crate::format::raw::{Compat, Incompat, RoCompat};
use crate::format::units::GroupNo;

impl Superblock {
    /// Whether a group begins with a copy of the superblock and the descriptors.
    pub fn has_super(&self, group: GroupNo) -> bool {
        let g = group.0;
        if g == 0 {
            return true;
        }
        if self.compat.contains(Compat::SPARSE_SUPER2) {
            return self.raw.s_backup_bgs.iter().any(|b| b.get() == g);
        }
        let is_power = |base: u32| {
            let mut n = g;
            while n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        !self.ro_compat.contains(RoCompat::SPARSE_SUPER) || g == 1 || [3, 5, 7].into_iter().any(is_power)
    }

    /// Blocks that copies of the superblock and of the descriptors take at the beginning of a group, with the
    /// blocks reserved for growth of the descriptors.
    pub fn copies_in(&self, group: GroupNo) -> u64 {
        let meta_bg = self.incompat.contains(Incompat::META_BG);
        let first_meta = u64::from(self.raw.s_first_meta_bg.get());
        let own = u64::from(self.has_super(group));
        let per_meta = self.descs_per_block();
        let in_meta = meta_bg && u64::from(group.0 / per_meta) >= first_meta;
        if in_meta {
            // The first, the second and the last group of each meta group.
            let place = group.0 % per_meta;
            return own + u64::from(place < 2 || place == per_meta - 1);
        }
        let descs = if meta_bg { first_meta } else { self.desc_blocks() };
        own * (1 + descs + u64::from(self.raw.s_reserved_gdt_blocks.get()))
    }

    /// Blocks that copies take in all groups together. Only the superblock bounds the number of groups.
    pub fn all_copies(&self) -> u64 {
        let groups = u64::from(self.groups);
        let per_meta = u64::from(self.descs_per_block());
        let first = u64::from(self.raw.s_first_meta_bg.get()) * per_meta;
        let meta = if self.incompat.contains(Incompat::META_BG) { groups.min(first) } else { groups };
        // Groups differ only in their copy of the superblock, and from `meta` on in their place in the meta
        // group.
        let supers = self.supers_below(meta);
        let each = if meta > 0 { self.copies_in(GroupNo(0)) } else { 0 };
        let places = |n: u64| (0..n).filter(|p| *p < 2 || *p == per_meta - 1).map(|_| 1).sum::<u64>();
        let (whole, rest) = ((groups - meta) / per_meta, (groups - meta) % per_meta);
        supers * each + self.supers_below(groups) - supers + whole * places(per_meta) + places(rest)
    }

    /// The number of the first `n` groups that have a copy of the superblock.
    fn supers_below(&self, n: u64) -> u64 {
        let has = |g: u64| g < n && u32::try_from(g).is_ok_and(|g| self.has_super(GroupNo(g)));
        if self.compat.contains(Compat::SPARSE_SUPER2) {
            let [a, b] = self.raw.s_backup_bgs.map(|b| u64::from(b.get()));
            let some = [0, a, b];
            return (0..3).filter(|i| has(some[*i]) && !some[..*i].contains(&some[*i])).map(|_| 1).sum();
        }
        if !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return n;
        }
        let powers = |base| std::iter::successors(Some(base), move |p| Some(p * base)).take_while(|p| *p < n);
        n.min(2) + [3_u64, 5, 7].into_iter().flat_map(powers).map(|_| 1).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::gate::Journal;
    use crate::format::raw::RawSuperblock;
    use crate::format::units::BlockAddr;
    use tidegate_rt::rng::Rng;
    use zerocopy::FromZeros;

    /// A superblock of `groups` groups; its other fields do not matter here.
    fn of(
        groups: u32,
        desc_size: u32,
        compat: Compat,
        incompat: Incompat,
        ro_compat: RoCompat,
    ) -> Superblock {
        Superblock {
            raw: Box::new(RawSuperblock::new_zeroed()),
            compat,
            incompat,
            ro_compat,
            read_only_features: String::new(),
            block_size: 1024,
            cluster_blocks: 1,
            blocks: u64::from(groups) * 8192,
            first_data_block: BlockAddr(1),
            blocks_per_group: 8192,
            inodes_per_group: 128,
            groups,
            inode_size: 256,
            first_ino: 11,
            desc_size,
            journal: Journal::None,
            csum_seed: 0,
        }
    }

    #[test]
    fn all_copies_are_those_of_each_group() {
        let mut rng = Rng::new(4);
        for n in 0..4000 {
            let bit = |rng: &mut Rng| rng.below(2) == 0;
            let compat = if bit(&mut rng) { Compat::SPARSE_SUPER2 } else { Compat::empty() };
            let incompat = if bit(&mut rng) { Incompat::META_BG } else { Incompat::empty() };
            let ro_compat = if bit(&mut rng) { RoCompat::SPARSE_SUPER } else { RoCompat::empty() };
            let below = |rng: &mut Rng, n| u32::try_from(rng.below(n)).unwrap();
            let mut sb = of(1 + below(&mut rng, 900), 32 << rng.below(6), compat, incompat, ro_compat);
            sb.raw.s_first_meta_bg = below(&mut rng, sb.desc_blocks() + 1).into();
            sb.raw.s_reserved_gdt_blocks = u16::try_from(rng.below(200)).unwrap().into();
            sb.raw.s_backup_bgs = [(); 2].map(|()| (below(&mut rng, 950) * below(&mut rng, 2)).into());
            let each: u64 = (0..sb.groups).map(|g| sb.copies_in(GroupNo(g))).sum();
            assert_eq!(sb.all_copies(), each, "{n}: {compat:?} {incompat:?} {ro_compat:?} {}", sb.groups);
        }
    }
}
