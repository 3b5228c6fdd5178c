//! Groups: their descriptors, the blocks of their tables, and their bitmaps against the blocks in use.

use super::{Checker, rules};
use crate::format::crc::crc32c;
use crate::format::gate::{GroupDesc, Superblock};
use crate::format::raw::*;
use crate::format::units::GroupNo;
use crate::offline::node::Kind;
use std::mem::offset_of;
use tidegate_vfs::Result;

const BG_FLAGS: usize = offset_of!(RawGroupDesc, bg_flags);
const BG_ITABLE_UNUSED: usize = offset_of!(RawGroupDesc, bg_itable_unused_lo);

impl Checker<'_> {
    /// Loads all descriptors, and claims the blocks of the format's own tables.
    pub(super) fn load_groups(&mut self) -> Result<()> {
        self.groups.clear();
        let (size, per) = (self.sb.desc_size as usize, self.sb.descs_per_block());
        for g in 0..self.sb.groups {
            let block = self.sb.desc_block(u64::from(g / per)).0;
            let bytes = self.block(block)?;
            let at = (g % per) as usize * size;
            let flags = GroupFlags::from_bits_retain(le16(&bytes, at + BG_FLAGS));
            let uninit = flags.intersects(GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT);
            let marked = uninit || le16(&bytes, at + BG_ITABLE_UNUSED) != 0;
            self.found.require(!marked || self.sb.has_group_csum(), rules::GROUP_DESC, || {
                format!("group {g}: marked as uninitialised, which no feature allows")
            });
            match GroupDesc::parse(&self.sb, GroupNo(g), &bytes[at..at + size]) {
                Ok(desc) => self.groups.push(Some(desc)),
                Err(e) if e.kind() == tidegate_vfs::ErrorKind::Corrupt => self.groups.push(None),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Claims superblocks, descriptors, bitmaps and inode tables.
    pub(super) fn claim_metadata(&mut self) {
        if self.sb.block_size == 1024 {
            // The block before the first group belongs to no table.
            self.used.set(0);
        }
        for g in 0..self.sb.groups {
            let start = self.sb.group_start(GroupNo(g)).0;
            let copies = self.sb.copies_in(GroupNo(g));
            self.claim_meta(g, start, copies);
            let Some(desc) = self.groups[g as usize].clone() else {
                self.found.add(rules::GROUP_DESC, || format!("group {g}: its descriptor is damaged"));
                continue;
            };
            let end = start + u64::from(self.sb.blocks_per_group);
            let inside = [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]
                .iter()
                .all(|table| (start..end).contains(&table.0));
            self.found.require(
                inside || self.sb.incompat.contains(Incompat::FLEX_BG),
                rules::GROUP_DESC,
                || format!("group {g}: tables of it lie in other groups, and flex_bg is off"),
            );
            self.claim_meta(g, desc.block_bitmap.0, 1);
            self.claim_meta(g, desc.inode_bitmap.0, 1);
            self.claim_meta(g, desc.inode_table.0, self.sb.itable_blocks());
        }
        if self.sb.incompat.contains(Incompat::MMP) {
            let block = self.sb.raw.s_mmp_block.get();
            self.claim_meta(0, block, 1);
        }
    }

    fn claim_meta(&mut self, g: u32, start: u64, len: u64) {
        for block in start..start.saturating_add(len).min(self.sb.blocks) {
            self.meta.set(block);
            let fresh = self.claim(block);
            self.found.require(fresh, rules::GROUP_OVERLAP, || {
                format!("group {g}: block {block} of its tables belongs to another table, too")
            });
        }
    }

    /// Checks bitmaps and counters of all groups, then the volume's counters.
    pub(super) fn check_groups(&mut self) -> Result<()> {
        let (mut blocks, mut inodes) = (0, 0);
        for g in 0..self.sb.groups {
            let Some(desc) = self.groups[g as usize].clone() else { continue };
            blocks += self.check_block_bitmap(&desc)?;
            inodes += self.check_inode_bitmap(&desc)?;
        }
        if self.recovered {
            return Ok(());
        }
        let has = self.sb.free_blocks();
        self.found.require(has == blocks, rules::SB_FREE_BLOCKS, || {
            format!("the superblock counts {has} free blocks, and {blocks} are free")
        });
        let has = u64::from(self.sb.raw.s_free_inodes_count.get());
        self.found.require(has == inodes, rules::SB_FREE_INODES, || {
            format!("the superblock counts {has} free inodes, and {inodes} are free")
        });
        Ok(())
    }

    fn check_block_bitmap(&mut self, desc: &GroupDesc) -> Result<u64> {
        let g = desc.group;
        let start = self.sb.group_start(g).0;
        let len = (self.sb.blocks - start).min(self.sb.blocks_per_group.into());
        let all = start..start + len;
        let free = len - self.used.count(all.clone());
        let has = u64::from(desc.free_blocks);
        self.found.require(has == free, rules::GROUP_FREE_BLOCKS, || {
            format!("group {g} counts {has} free blocks, and {free} are free")
        });
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let both = self.used.words(all.clone()).zip(self.meta.words(all));
            let others = both.map(|((at, used, _), (_, meta, _))| (at, used & !meta));
            let other = others.filter(|o| o.1 != 0).map(|(at, o)| at + u64::from(o.trailing_zeros())).next();
            self.found.require(other.is_none(), rules::BLOCK_BITMAP, || {
                format!("group {g} has no block bitmap yet, and block {} is in use", other.unwrap_or(0))
            });
            return Ok(free);
        }
        let bytes = self.block(desc.block_bitmap.0)?;
        let covered = self.sb.blocks_per_group as usize / 8;
        self.check_bitmap_csum(desc, &bytes[..covered], desc.block_bitmap_csum, "block");
        let wrong: Vec<u64> = self.used.differences(all, &bytes).collect();
        if let Some(first) = wrong.first() {
            let state = if self.used.get(*first) { "in use" } else { "free" };
            self.found.add(rules::BLOCK_BITMAP, || {
                format!("group {g}: {} bits are wrong; block {first} is {state}", wrong.len())
            });
        }
        self.check_padding(g, &bytes, len, "block");
        Ok(free)
    }

    fn check_padding(&mut self, g: GroupNo, bytes: &[u8], from: u64, which: &str) {
        let padded = (from..bytes.len() as u64 * 8).all(|n| bit(bytes, n));
        self.found.require(padded, rules::BITMAP_PADDING, || {
            format!("group {g}: bits of the {which} bitmap behind the last {which} are clear")
        });
    }

    fn check_inode_bitmap(&mut self, desc: &GroupDesc) -> Result<u64> {
        let g = desc.group;
        let count = u64::from(self.sb.inodes_per_group);
        let first = u64::from(g.0) * count + 1;
        let all = first..first + count;
        let free = count - self.used_inodes.count(all.clone());
        let has = u64::from(desc.free_inodes);
        self.found.require(has == free, rules::GROUP_FREE_INODES, || {
            format!("group {g} counts {has} free inodes, and {free} are free")
        });
        let (dirs, has) = (self.dirs_of_group[g.0 as usize], desc.used_dirs);
        self.found.require(has == dirs, rules::GROUP_DIRS, || {
            format!("group {g} counts {has} directories, and has {dirs}")
        });
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(free);
        }
        let bytes = self.block(desc.inode_bitmap.0)?;
        self.check_bitmap_csum(desc, &bytes[..count as usize / 8], desc.inode_bitmap_csum, "inode");
        let wrong = self.used_inodes.differences(all, &bytes).next();
        if let Some(ino) = wrong {
            let state = if self.used_inodes.get(ino) { "in use" } else { "free" };
            self.found.add(rules::INODE_BITMAP, || format!("group {g}: inode {ino} is {state}"));
        }
        self.check_padding(g, &bytes, count, "inode");
        Ok(free)
    }

    fn check_bitmap_csum(&mut self, desc: &GroupDesc, bytes: &[u8], stored: u32, which: &str) {
        if !self.sb.has_csum() {
            return;
        }
        let sum = crc32c(self.sb.csum_seed, bytes);
        let sum = if self.sb.incompat.contains(Incompat::BIT64) { sum } else { sum & 0xFFFF };
        self.found.require(sum == stored, rules::BITMAP_CHECKSUM, || {
            format!("group {}: the {which} bitmap's checksum is {stored:#x}, not {sum:#x}", desc.group)
        });
    }

    /// Checks the copies of the superblock, which matter when the first is lost; differences are notes.
    pub(super) fn check_copies(&mut self) -> Result<()> {
        for g in 1..self.sb.groups {
            if !self.sb.has_super(GroupNo(g)) {
                continue;
            }
            let bytes = self.block(self.sb.group_start(GroupNo(g)).0)?;
            let size = self.sb.blocks * u64::from(self.sb.block_size);
            let same = Superblock::parse(&bytes[..SUPER_SIZE], size)
                .is_ok_and(|c| c.blocks == self.sb.blocks && c.raw.s_uuid == self.sb.raw.s_uuid);
            if !same {
                self.found.notes.push(format!("the copy of the superblock in group {g} is of no use"));
            }
        }
        Ok(())
    }

    pub(super) fn dirs_in_group(&mut self, ino: u32) {
        self.dirs_of_group[((ino - 1) / self.sb.inodes_per_group) as usize] += 1;
    }

    pub(super) fn count(&mut self, kind: Option<Kind>, hidden: bool) {
        match kind {
            _ if hidden => {}
            Some(Kind::File) => self.files += 1,
            Some(Kind::Dir) => self.directories += 1,
            _ => self.others += 1,
        }
    }
}

fn bit(bytes: &[u8], n: u64) -> bool {
    bytes[(n / 8) as usize] >> (n % 8) & 1 != 0
}
