//! Fields that follow from everything else: link counts, bitmaps, counters, the superblock.

use super::Repair;
use super::disk::Stage;
use crate::format::crc::crc32c;
use crate::format::gate::Journal;
use crate::format::gate::group::desc_csum;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::offline::bits::Bits;
use crate::offline::node::Kind;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// A directory with more links counts as having one (`EXT4_LINK_MAX`).
const MANY_LINKS: u32 = 65_000;

/// Free blocks and inodes of all groups.
#[derive(Default)]
pub(super) struct Counts {
    blocks: u64,
    inodes: u64,
}

impl Repair<'_, '_> {
    /// Sets link counts by the names found.
    pub(super) fn mend_links(&mut self) -> Result<()> {
        for ino in 1..=self.sb.raw.s_inodes_count.get() {
            let s = self.state(ino);
            if s.special
                || s.kind.is_none()
                || !self.used_inodes.get(ino.into())
                || self.orphans.contains(&ino)
            {
                continue;
            }
            let dir = s.kind == Some(Kind::Dir);
            let links = if dir { s.subdirs + 2 } else { s.names };
            // There was no room for a name: the inode must not count as free.
            if links == 0 {
                continue;
            }
            let nlink = self.sb.ro_compat.contains(RoCompat::DIR_NLINK);
            if s.links == links || dir && nlink && s.links == 1 && links > MANY_LINKS {
                continue;
            }
            let to = if dir && links > MANY_LINKS && nlink { 1 } else { links.min(MANY_LINKS) };
            self.tell("inode", ino, format!("{} links", s.links), to);
            let mut n = self.node(ino)?;
            n.raw.i_links_count = (to as u16).into();
            self.store(&mut n)?;
        }
        Ok(())
    }

    /// Repairs bitmaps and descriptors.
    pub(super) fn mend_groups(&mut self) -> Result<Counts> {
        (1..self.sb.first_ino).for_each(|ino| {
            self.used_inodes.set(ino.into());
        });
        self.place_bitmaps()?;
        let mut counts = Counts::default();
        for g in 0..self.sb.groups {
            let mut raw = self.raw_desc(g);
            let uninit = self.sb.has_group_csum();
            let free_blocks = self.mend_block_bitmap(g, &mut raw, uninit)?;
            let free_inodes = self.mend_inode_bitmap(g, &mut raw, uninit)?;
            counts.blocks += u64::from(free_blocks);
            counts.inodes += u64::from(free_inodes);
            self.put_desc(g, &raw)?;
        }
        Ok(counts)
    }

    /// Finds places for bitmaps whose places are lost.
    fn place_bitmaps(&mut self) -> Result<()> {
        for g in 0..self.sb.groups {
            for inodes in [false, true] {
                let desc = &self.descs[g as usize].desc;
                let lost = if inodes { desc.inode_bitmap } else { desc.block_bitmap }.0 == 0;
                if !lost {
                    continue;
                }
                let block = self.alloc_bitmap(g)?;
                self.meta.set(block);
                let desc = &mut self.descs[g as usize].desc;
                let which = if inodes { &mut desc.inode_bitmap } else { &mut desc.block_bitmap };
                *which = BlockAddr(block);
            }
        }
        Ok(())
    }

    fn raw_desc(&self, g: u32) -> RawGroupDesc {
        let mut raw = RawGroupDesc::default();
        let bytes = &self.descs[g as usize].bytes;
        let n = bytes.len().min(DESC_SIZE_64);
        raw.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
        let desc = &self.descs[g as usize].desc;
        let low = |b: BlockAddr| (b.0 as u32).into();
        let high = |b: BlockAddr| ((b.0 >> 32) as u32).into();
        (raw.bg_block_bitmap_lo, raw.bg_inode_bitmap_lo) = (low(desc.block_bitmap), low(desc.inode_bitmap));
        if self.sb.incompat.contains(Incompat::BIT64) {
            (raw.bg_block_bitmap_hi, raw.bg_inode_bitmap_hi) =
                (high(desc.block_bitmap), high(desc.inode_bitmap));
        }
        if self.sb.has_group_csum() {
            raw.bg_flags = self.descs[g as usize].desc.flags.bits().into();
        } else {
            let marks = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
            raw.bg_flags = (GroupFlags::from_bits_retain(raw.bg_flags.get()) - marks).bits().into();
            (raw.bg_itable_unused_lo, raw.bg_itable_unused_hi) = (0.into(), 0.into());
        }
        raw
    }

    /// Repairs a group's block bitmap; returns the number of free blocks.
    fn mend_block_bitmap(&mut self, g: u32, raw: &mut RawGroupDesc, uninit: bool) -> Result<u32> {
        let start = self.sb.group_start(GroupNo(g)).0;
        let len = (self.sb.blocks - start).min(self.sb.blocks_per_group.into());
        let (bytes, free) = self.bitmap(&self.used, start, len);
        let flags = GroupFlags::from_bits_retain(raw.bg_flags.get());
        let other = (start..start + len).any(|b| self.used.get(b) && !self.meta.get(b));
        self.told_count(g, "free blocks", self.descs[g as usize].desc.free_blocks, free);
        (raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi) = halves(free);
        if uninit && flags.contains(GroupFlags::BLOCK_UNINIT) && !other {
            return Ok(free);
        }
        raw.bg_flags = (flags - GroupFlags::BLOCK_UNINIT).bits().into();
        let covered = self.sb.blocks_per_group as usize / 8;
        let block = self.descs[g as usize].desc.block_bitmap.0;
        let sum = self.mend_bitmap(g, "block", block, bytes, covered)?;
        if let Some((lo, hi)) = sum {
            (raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi) = (lo.into(), hi.into());
        }
        Ok(free)
    }

    /// Repairs a group's inode bitmap; returns the number of free inodes.
    fn mend_inode_bitmap(&mut self, g: u32, raw: &mut RawGroupDesc, uninit: bool) -> Result<u32> {
        let per = self.sb.inodes_per_group;
        let first = u64::from(g) * u64::from(per) + 1;
        let (bytes, free) = self.bitmap(&self.used_inodes, first, per.into());
        let last = (0..per).rev().find(|n| self.used_inodes.get(first + u64::from(*n))).map_or(0, |n| n + 1);
        let desc = &self.descs[g as usize];
        let (trusted, stored, unused) = (desc.trusted, desc.desc.free_inodes, desc.desc.itable_unused);
        let (block, dirs) = (desc.desc.inode_bitmap.0, desc.desc.used_dirs);
        let is_dir = |s: &&super::State| s.kind == Some(Kind::Dir);
        let found = self.states[g as usize].iter().filter(is_dir).count() as u32;
        self.told_count(g, "free inodes", stored, free);
        self.told_count(g, "directories", dirs, found);
        (raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi) = halves(free);
        (raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi) = halves(found);
        let flags = GroupFlags::from_bits_retain(raw.bg_flags.get());
        if uninit {
            let now = if trusted { unused.min(per - last) } else { per - last };
            (raw.bg_itable_unused_lo, raw.bg_itable_unused_hi) = halves(now);
            if flags.contains(GroupFlags::INODE_UNINIT) && last == 0 {
                return Ok(free);
            }
        }
        raw.bg_flags = (flags - GroupFlags::INODE_UNINIT).bits().into();
        let sum = self.mend_bitmap(g, "inode", block, bytes, per as usize / 8)?;
        if let Some((lo, hi)) = sum {
            (raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi) = (lo.into(), hi.into());
        }
        Ok(free)
    }

    fn told_count(&mut self, g: u32, what: &str, from: u32, to: u32) {
        if from != to {
            self.tell("group", format!("{g}, {what}"), from, to);
        }
    }

    /// A bitmap of `len` bits from bit `first` of `of` on, padded with ones, and its number of clear bits.
    fn bitmap(&self, of: &Bits, first: u64, len: u64) -> (Vec<u8>, u32) {
        let mut bytes = vec![0xFF; self.sb.block_size as usize];
        let mut free = 0;
        for n in (0..len).filter(|n| !of.get(first + n)) {
            bytes[(n / 8) as usize] &= !(1 << (n % 8));
            free += 1;
        }
        (bytes, free)
    }

    /// Writes a bitmap if it differs; its checksum in halves, if it has one.
    fn mend_bitmap(
        &mut self,
        g: u32,
        which: &str,
        block: u64,
        bytes: Vec<u8>,
        covered: usize,
    ) -> Result<Option<(u16, u16)>> {
        // A bitmap that cannot be read is rewritten.
        let before = self.disk.block(block).unwrap_or_default();
        if before.is_empty() {
            self.tell("bitmap", format!("group {g}, {which}s"), "it cannot be read", "made anew");
        } else if before != bytes {
            let wrong: u32 = before.iter().zip(&bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
            self.tell("bitmap", format!("group {g}, {which}s"), format!("{wrong} bits are wrong"), "right");
        }
        let sum = crc32c(self.sb.csum_seed, &bytes[..covered]);
        self.disk.put(block, Stage::Tables, bytes)?;
        let hi = if self.sb.incompat.contains(Incompat::BIT64) { (sum >> 16) as u16 } else { 0 };
        Ok(self.sb.has_csum().then_some((sum as u16, hi)))
    }

    fn put_desc(&mut self, g: u32, raw: &RawGroupDesc) -> Result<()> {
        let (size, per) = (self.sb.desc_size as usize, self.sb.descs_per_block());
        let mut bytes = self.descs[g as usize].bytes.clone();
        let n = size.min(DESC_SIZE_64);
        bytes[..n].copy_from_slice(&raw.as_bytes()[..n]);
        if self.sb.has_group_csum() {
            let sum = desc_csum(&self.sb, GroupNo(g), &bytes);
            bytes[DESC_CSUM_OFFSET..DESC_CSUM_OFFSET + 2].copy_from_slice(&sum.to_le_bytes());
        }
        let block = self.sb.desc_block(u64::from(g / per)).0;
        let at = (g % per) as usize * size;
        // If the block cannot be read, all of it is rewritten.
        let mut all = self.disk.block(block).unwrap_or_else(|_| vec![0; self.sb.block_size as usize]);
        if all[at..at + size] == bytes {
            return Ok(());
        }
        self.tell("group", g, "descriptor", "as counted");
        all[at..at + size].copy_from_slice(&bytes);
        self.disk.put(block, Stage::Tables, all)
    }

    /// The new superblock of the volume.
    pub(super) fn final_superblock(&mut self, counts: &Counts) -> Result<RawSuperblock> {
        let mut raw = (*self.sb.raw).clone();
        let has = self.sb.free_blocks();
        if has != counts.blocks {
            self.tell("superblock", "free blocks", has, counts.blocks);
        }
        let has = u64::from(raw.s_free_inodes_count.get());
        if has != counts.inodes {
            self.tell("superblock", "free inodes", has, counts.inodes);
        }
        raw.s_free_blocks_count_lo = (counts.blocks as u32).into();
        if self.sb.incompat.contains(Incompat::BIT64) {
            raw.s_free_blocks_count_hi = ((counts.blocks >> 32) as u32).into();
        }
        raw.s_free_inodes_count = (counts.inodes as u32).into();
        if raw.s_log_groups_per_flex > 31 {
            self.tell("superblock", "s_log_groups_per_flex", raw.s_log_groups_per_flex, 0);
            raw.s_log_groups_per_flex = 0;
        }
        let unused = match self.sb.journal {
            Journal::None => raw.s_journal_inum.get() != 0 || names_device(&raw),
            Journal::Inode(_) => names_device(&raw),
            Journal::Device => false,
        };
        if unused {
            self.tell("superblock", "journal", "names one that is not in use", "does not");
            if self.sb.journal == Journal::None {
                raw.s_journal_inum = 0.into();
            }
            raw.s_journal_dev = 0.into();
            raw.s_journal_uuid.fill(0);
        }
        let orphans = raw.s_orphan_file_inum.get();
        if orphans != 0 && !self.sb.compat.contains(Compat::ORPHAN_FILE) {
            self.tell("superblock", "orphan file", format!("inode {orphans}, without the feature"), "none");
            raw.s_orphan_file_inum = 0.into();
        }
        let room = u32::from(raw.s_inode_size.get()).saturating_sub(INODE_BASE as u32);
        let extra = u32::from(raw.s_min_extra_isize.get().max(raw.s_want_extra_isize.get()));
        if extra > room {
            let to = (size_of::<RawInode>() - INODE_BASE).min(room as usize) as u16;
            self.tell("superblock", "extra fields of inodes", format!("{extra} bytes in {room}"), to);
            (raw.s_min_extra_isize, raw.s_want_extra_isize) = (to.into(), to.into());
        }
        let quotas = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        if quotas != [0; 3] && !self.sb.ro_compat.contains(RoCompat::QUOTA) {
            self.tell("superblock", "quota files", format!("inodes {quotas:?}, without the feature"), "none");
            (raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum) = Default::default();
        }
        let (size, per) = (raw.s_log_cluster_size.get(), raw.s_clusters_per_group.get());
        if size != raw.s_log_block_size.get() || per != self.sb.blocks_per_group {
            self.tell("superblock", "clusters", format!("size {size}, {per} in a group"), "blocks");
            raw.s_log_cluster_size = raw.s_log_block_size;
            raw.s_clusters_per_group = raw.s_blocks_per_group;
        }
        let kept = self.sb.reserved_blocks();
        if kept > self.sb.blocks / 2 {
            let to = self.sb.blocks / 20;
            self.tell("superblock", "blocks kept for the superuser", kept, to);
            raw.s_r_blocks_count_lo = (to as u32).into();
            if self.sb.incompat.contains(Incompat::BIT64) {
                raw.s_r_blocks_count_hi = ((to >> 32) as u32).into();
            }
        }
        raw.s_last_orphan = 0.into();
        if raw.s_rev_level.get() > 0 {
            let ro = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()) - RoCompat::ORPHAN_PRESENT;
            raw.s_feature_ro_compat = ro.bits().into();
            let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get()) - Incompat::RECOVER;
            raw.s_feature_incompat = incompat.bits().into();
        }
        let state = State::from_bits_retain(raw.s_state.get());
        let wrong = State::ERROR | State::ORPHAN | State::FC_REPLAY;
        let good = state.difference(wrong) | State::VALID;
        if good != state {
            self.tell("superblock", "s_state", format!("{:#x}", state.bits()), format!("{:#x}", good.bits()));
            raw.s_state = good.bits().into();
            forget_errors(&mut raw);
        }
        super::superblock::seal(&mut raw);
        Ok(raw)
    }
}

fn halves<T: From<u16>>(n: u32) -> (T, T) {
    ((n as u16).into(), ((n >> 16) as u16).into())
}

/// Whether the superblock names a journal on a device of its own.
fn names_device(raw: &RawSuperblock) -> bool {
    raw.s_journal_dev.get() != 0 || raw.s_journal_uuid != [0; 16]
}

/// Clears the superblock's notes of earlier errors.
fn forget_errors(raw: &mut RawSuperblock) {
    raw.s_error_count = 0.into();
    (raw.s_first_error_time, raw.s_last_error_time) = (0.into(), 0.into());
    (raw.s_first_error_ino, raw.s_last_error_ino) = (0.into(), 0.into());
    (raw.s_first_error_line, raw.s_last_error_line) = (0.into(), 0.into());
    (raw.s_first_error_block, raw.s_last_error_block) = (0.into(), 0.into());
    raw.s_first_error_func.fill(0);
    raw.s_last_error_func.fill(0);
    (raw.s_first_error_time_hi, raw.s_last_error_time_hi) = (0, 0);
    (raw.s_first_error_errcode, raw.s_last_error_errcode) = (0, 0);
}
