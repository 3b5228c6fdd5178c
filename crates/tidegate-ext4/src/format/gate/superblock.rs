//! The superblock, validated.

use super::features::{check_incompat, feature_names, read_only_features};
use super::number;
use crate::format::crc::{START, crc32c};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use tidegate_vfs::{At, Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// The place that the errors of this module name.
const SUPERBLOCK: At = At::The("superblock");

fn rule(holds: bool, what: impl std::fmt::Display) -> Result<()> {
    super::rule(holds, what).map_err(|e| e.at(SUPERBLOCK))
}

/// The place of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// There is no journal.
    None,
    /// In a file, whose inode has this number.
    Inode(u32),
    /// On a device of its own.
    Device,
}

/// A superblock whose geometry is consistent and fits its device.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The bytes it came from.
    pub raw: Box<RawSuperblock>,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Features that only a program that changes the volume must know.
    pub ro_compat: RoCompat,
    /// Features that only allow reading, as text; empty when there are none.
    pub read_only_features: String,
    /// Bytes of a block: 1024, 2048 or 4096.
    pub block_size: u32,
    /// Blocks in a cluster, the unit of allocation; 1 without bigalloc.
    pub cluster_blocks: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// The block that the first group begins with.
    pub first_data_block: BlockAddr,
    /// Blocks in a group.
    pub blocks_per_group: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Groups.
    pub groups: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// The first inode that is not reserved.
    pub first_ino: u32,
    /// Bytes of a group descriptor.
    pub desc_size: u32,
    /// The place of the journal.
    pub journal: Journal,
    /// The start of metadata checksums.
    pub csum_seed: u32,
}

/// The largest `s_log_block_size`: blocks of 64 KiB, which some machines have.
const LOG_BLOCK_SIZE_MAX: u32 = 6;

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

/// e2fsck takes no smaller groups (`EXT2_MIN_BLOCKS_PER_GROUP`). With them, a small file could claim a number of groups that
/// no memory holds.
const LEAST_BLOCKS_PER_GROUP: u32 = 8;

impl Superblock {
    /// Validates the 1024 bytes of a superblock against a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// `Corrupt` for broken rules, `Unsupported` for features that Tidegate does not know.
    pub fn parse(bytes: &[u8], device_bytes: u64) -> Result<Superblock> {
        let raw =
            RawSuperblock::read_from_prefix(bytes).map_err(|_| Error::corrupt("too short").at(SUPERBLOCK))?.0;
        if raw.s_magic.get() != EXT4_MAGIC {
            return Err(Error::new(ErrorKind::InvalidArgument, "no ext4 superblock"));
        }
        let rev = raw.s_rev_level.get();
        if rev > 1 {
            return Err(unsupported(format!("an ext4 volume of revision {rev}")));
        }
        // Revision 0 has no features, whatever lies in their place.
        let word = |w: u32| if rev == 0 { 0 } else { w };
        let incompat = Incompat::from_bits_retain(word(raw.s_feature_incompat.get()));
        let ro_compat = RoCompat::from_bits_retain(word(raw.s_feature_ro_compat.get()));
        check_incompat(incompat)?;
        if ro_compat.contains(RoCompat::METADATA_CSUM) {
            let kind = raw.s_checksum_type;
            if kind != CHECKSUM_CRC32C {
                return Err(unsupported(format!("ext4 checksums of type {kind}")));
            }
            let ok = crc32c(START, &bytes[..SB_CSUM_OFFSET]) == raw.s_checksum.get();
            rule(ok, "the checksum does not match")?;
        }
        let log = raw.s_log_block_size.get();
        rule(log <= LOG_BLOCK_SIZE_MAX, "s_log_block_size")?;
        let block_size = 1024_u32 << log;
        if block_size > 4096 {
            return Err(unsupported(format!("ext4 with blocks of {block_size} bytes (4096 at most)")));
        }
        let seed = match incompat.contains(Incompat::CSUM_SEED) {
            true => raw.s_checksum_seed.get(),
            false => crc32c(START, &raw.s_uuid),
        };
        let is64 = incompat.contains(Incompat::BIT64);
        let high = |lo: u32, hi: u32| u64::from(lo) | if is64 { u64::from(hi) << 32 } else { 0 };
        let sb = Superblock {
            compat: Compat::from_bits_retain(word(raw.s_feature_compat.get())),
            incompat,
            ro_compat,
            read_only_features: read_only_features(incompat, ro_compat),
            block_size,
            cluster_blocks: 1,
            blocks: high(raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get()),
            first_data_block: BlockAddr(raw.s_first_data_block.get().into()),
            blocks_per_group: raw.s_blocks_per_group.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            groups: 0,
            inode_size: if rev == 0 { GOOD_OLD_INODE_SIZE } else { raw.s_inode_size.get() }.into(),
            first_ino: if rev == 0 { GOOD_OLD_FIRST_INO } else { raw.s_first_ino.get() },
            desc_size: if is64 { raw.s_desc_size.get().into() } else { number(DESC_SIZE_32) },
            journal: Journal::None,
            csum_seed: seed,
            raw: Box::new(raw),
        };
        sb.validate()?.check_device(device_bytes)
    }

    fn validate(mut self) -> Result<Superblock> {
        self.check_clusters()?;
        let bs = self.block_size;
        rule(self.inode_size.is_power_of_two() && (128..=bs).contains(&self.inode_size), "s_inode_size")?;
        rule(self.first_ino >= GOOD_OLD_FIRST_INO, "s_first_ino")?;
        let sizes = number(DESC_SIZE_32)..=number(DESC_SIZE_MAX);
        rule(self.desc_size.is_power_of_two() && sizes.contains(&self.desc_size), "s_desc_size")?;
        rule(
            !self.incompat.contains(Incompat::BIT64) || self.desc_size >= number(DESC_SIZE_64),
            "s_desc_size is too small for 64bit",
        )?;
        let per_block = bs / self.inode_size;
        rule(
            (per_block..=bs * 8).contains(&self.inodes_per_group)
                && self.inodes_per_group.is_multiple_of(per_block),
            "s_inodes_per_group",
        )?;
        let first = self.first_data_block.0;
        let expected = u64::from(bs == 1024 && self.cluster_blocks == 1);
        rule(first == expected, "s_first_data_block")?;
        rule(self.blocks > first, "s_blocks_count")?;
        let groups = (self.blocks - first).div_ceil(self.blocks_per_group.into());
        self.groups = u32::try_from(groups).map_err(|_| Error::corrupt("s_blocks_count").at(SUPERBLOCK))?;
        rule(
            groups * u64::from(self.inodes_per_group) == u64::from(self.raw.s_inodes_count.get()),
            "s_inodes_count is not s_inodes_per_group in each group",
        )?;
        rule(self.first_ino <= self.raw.s_inodes_count.get(), "s_first_ino")?;
        rule(
            u64::from(self.raw.s_first_meta_bg.get()) <= self.desc_blocks()
                || !self.incompat.contains(Incompat::META_BG),
            "s_first_meta_bg",
        )?;
        rule(u32::from(self.raw.s_reserved_gdt_blocks.get()) <= bs / 4, "s_reserved_gdt_blocks")?;
        self.find_journal()?;
        Ok(self)
    }

    fn check_clusters(&mut self) -> Result<()> {
        let (bs, bigalloc) = (self.block_size, self.ro_compat.contains(RoCompat::BIGALLOC));
        let (log, log_block) = (self.raw.s_log_cluster_size.get(), self.raw.s_log_block_size.get());
        if bigalloc {
            rule((log_block..=20).contains(&log), "s_log_cluster_size")?;
            self.cluster_blocks = 1 << (log - log_block);
        }
        let clusters = self.raw.s_clusters_per_group.get();
        rule(!bigalloc || (1..=bs * 8).contains(&clusters), "s_clusters_per_group")?;
        let blocks = self.blocks_per_group;
        rule(
            blocks >= LEAST_BLOCKS_PER_GROUP
                && if bigalloc {
                    u64::from(blocks) == u64::from(clusters) * u64::from(self.cluster_blocks)
                } else {
                    blocks <= bs * 8
                },
            "s_blocks_per_group",
        )
    }

    fn find_journal(&mut self) -> Result<()> {
        if !self.compat.contains(Compat::HAS_JOURNAL) {
            return rule(!self.incompat.contains(Incompat::RECOVER), "needs_recovery without a journal");
        }
        self.journal = match (self.raw.s_journal_inum.get(), self.raw.s_journal_dev.get()) {
            (0, 0) => Journal::None,
            (0, _) => Journal::Device,
            (ino, _) => Journal::Inode(ino),
        };
        rule(self.journal != Journal::None, "has_journal, and s_journal_inum is 0")
    }

    fn check_device(self, device_bytes: u64) -> Result<Superblock> {
        let needs = u128::from(self.blocks) * u128::from(self.block_size);
        if needs > u128::from(device_bytes) {
            let what = format!(
                "the image is cut short: the volume needs {needs} bytes, the image has {device_bytes}"
            );
            return Err(Error::corrupt(what));
        }
        Ok(self)
    }

    /// Whether metadata has crc32c checksums.
    pub fn has_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors have checksums of either kind, and so tables may be uninitialised.
    pub fn has_group_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }

    /// The power of two of groups whose tables lie together; 0 for a volume without flex_bg.
    pub fn log_groups_per_flex(&self) -> u32 {
        match self.incompat.contains(Incompat::FLEX_BG) {
            true => Some(self.raw.s_log_groups_per_flex.into()).filter(|log| *log < 32).unwrap_or(0),
            false => 0,
        }
    }

    /// Group descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size / self.desc_size
    }

    /// Blocks full of group descriptors.
    pub fn desc_blocks(&self) -> u64 {
        u64::from(self.groups.div_ceil(self.descs_per_block()))
    }

    /// Blocks of a group's inode table.
    pub fn itable_blocks(&self) -> u64 {
        u64::from(self.inodes_per_group) * u64::from(self.inode_size) / u64::from(self.block_size)
    }

    /// The first block of a group.
    pub fn group_start(&self, group: GroupNo) -> BlockAddr {
        self.first_data_block.plus(u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Whether `n` blocks from `block` on lie on the volume, behind the superblock.
    pub fn holds(&self, block: BlockAddr, n: u64) -> bool {
        block.0 > self.first_data_block.0 && block.0.checked_add(n).is_some_and(|end| end <= self.blocks)
    }

    /// Whether the number of the orphan file's inode is possible.
    pub fn names_orphan_file(&self) -> bool {
        (self.first_ino..=self.raw.s_inodes_count.get()).contains(&self.raw.s_orphan_file_inum.get())
    }

    /// Whether an inode has no name and is for the format's own use.
    pub(crate) fn is_special(&self, ino: u32) -> bool {
        let raw = &self.raw;
        let orphans = self.compat.contains(Compat::ORPHAN_FILE) && raw.s_orphan_file_inum.get() == ino;
        let quota = self.ro_compat.contains(RoCompat::QUOTA) && raw.s_prj_quota_inum.get() == ino;
        let journal = self.journal == Journal::Inode(ino);
        ino != ROOT_INO && (ino < self.first_ino || orphans || quota || journal)
    }

    /// The block with group descriptors number `n`.
    pub fn desc_block(&self, n: u64) -> BlockAddr {
        let meta_bg = self.incompat.contains(Incompat::META_BG);
        // The block of the superblock, whatever lies before it.
        let super_block = u64::from(number(SUPER_OFFSET)) / u64::from(self.block_size);
        if !meta_bg || n < self.raw.s_first_meta_bg.get().into() {
            return BlockAddr(super_block + 1 + n);
        }
        let group = u32::try_from(n * u64::from(self.descs_per_block())).unwrap_or(u32::MAX);
        let group = GroupNo(group);
        // The first group of 1 KiB blocks in clusters begins before the superblock.
        let before = u64::from(n == 0 && self.block_size == 1024 && self.first_data_block.0 == 0);
        self.group_start(group).plus(u64::from(self.has_super(group)) + before)
    }

    fn high(&self, lo: u32, hi: u32) -> u64 {
        u64::from(lo) | if self.incompat.contains(Incompat::BIT64) { u64::from(hi) << 32 } else { 0 }
    }

    /// Blocks that only the superuser may take.
    pub fn reserved_blocks(&self) -> u64 {
        let r = &self.raw;
        self.high(r.s_r_blocks_count_lo.get(), r.s_r_blocks_count_hi.get()).min(self.blocks)
    }

    /// Free blocks as the superblock last counted them.
    pub fn free_blocks(&self) -> u64 {
        let r = &self.raw;
        let free = self.high(r.s_free_blocks_count_lo.get(), r.s_free_blocks_count_hi.get());
        free.saturating_mul(self.cluster_blocks.into()).min(self.blocks)
    }

    /// The volume's name.
    pub fn label(&self) -> String {
        text(&self.raw.s_volume_name)
    }

    /// The plain names of all features.
    pub fn feature_names(&self) -> Vec<String> {
        feature_names(self.compat, self.incompat, self.ro_compat)
    }
}

/// Text that ends with the field or a zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
