//! The number of blocks, groups and inodes of a volume, as `mke2fs` 1.47.0 chooses them for a size.

use super::{Features, JournalSize, MkfsError, MkfsOptions};
use crate::format::crc::{START, crc32c};
use crate::format::gate::Superblock;
use crate::format::raw::*;
use zerocopy::{FromZeros, IntoBytes};

/// Base-2 logarithm of the number of groups whose tables lie together.
const LOG_GROUPS_PER_FLEX: u8 = 4;
/// Fewest free blocks of the last group; a group with fewer is left out.
const LAST_GROUP_FREE: u64 = 50;
/// The descriptors can grow until the volume is this many times as large.
const GROWTH: u64 = 1024;
/// On volumes with more blocks than this, the descriptors do not grow by the resize inode.
const MAX_32: u64 = u32::MAX as u64;
/// Bytes of the fields behind the first 128 of an inode that exist today.
const EXTRA_ISIZE: u16 = 32;
/// `s_default_mount_opts`: user_xattr and acl.
const DEFAULT_MOUNT_OPTS: u32 = 0x4 | 0x8;
/// `s_errors`: go on.
const ERRORS_CONTINUE: u16 = 1;
/// `s_max_mnt_count`: no limit.
const NO_MAX_MNT_COUNT: u16 = u16::MAX;
/// `s_def_hash_version`: half MD4.
const HASH_HALF_MD4: u8 = 1;
/// Fewest inodes of a group: the inodes of a new volume all lie in one.
const LEAST_PER_GROUP: u64 = 16;
/// Blocks of the largest log.
const MAX_JOURNAL_BLOCKS: u64 = 10_240_000;
/// A volume with fewer blocks gets no journal by default.
const SMALLEST_WITH_JOURNAL: u64 = 2048;

/// Files of at least this size need the feature large_file.
const LARGE_FILE: u64 = 1 << 31;

/// The numbers that follow from a volume's size.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    /// The superblock, without its counts and places, which come later.
    pub sb: Superblock,
    /// Blocks of the journal; 0 for none.
    pub journal_blocks: u64,
    /// The user asked for this length.
    pub journal_asked: bool,
}

/// Bytes for each inode, and bytes of a block, of a volume of `bytes` bytes by default.
fn usual(bytes: u64) -> (u64, u32) {
    match bytes {
        0..0x30_0000 => (8192, 1024),
        0x30_0000..0x2000_0000 => (4096, 1024),
        0x2000_0000..0x400_0000_0000 => (16384, 4096),
        0x400_0000_0000..0x1000_0000_0000 => (32768, 4096),
        _ => (65536, 4096),
    }
}

/// Blocks of the journal of a volume of `blocks` blocks by default.
pub(in crate::offline) fn usual_journal(blocks: u64) -> u64 {
    const STEPS: [(u64, u64); 8] = [
        (2048, 0),
        (32_768, 1024),
        (256 << 10, 4096),
        (512 << 10, 8192),
        (4096 << 10, 16_384),
        (8192 << 10, 32_768),
        (16_384 << 10, 65_536),
        (32_768 << 10, 131_072),
    ];
    STEPS.iter().find(|s| blocks < s.0).map_or(262_144, |s| s.1)
}

/// The geometry of a volume on a device of `bytes` bytes.
///
/// # Errors
/// The options make no volume of this size.
pub(super) fn geometry(bytes: u64, options: &MkfsOptions) -> Result<Geometry, MkfsError> {
    options.check()?;
    let (usual_ratio, usual_block) = usual(bytes);
    let block_size = options.block_size.unwrap_or(usual_block).max(options.inode_size);
    let bs = u64::from(block_size);
    // The size is cut to whole pages, as the kernel caches them.
    let blocks = bytes / 4096 * (4096 / bs);
    let mut features = options.features;
    if blocks > MAX_32 {
        if !features.incompat.contains(Incompat::BIT64) {
            return Err(MkfsError::TooLarge { blocks });
        }
        features.compat.remove(Compat::RESIZE_INODE);
    }
    if options.journal == JournalSize::Fit && blocks < SMALLEST_WITH_JOURNAL {
        features.compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
    }
    let inodes = inodes(bytes, blocks * bs, usual_ratio, block_size, options)?;
    let journal_blocks = journal_blocks(&features, blocks, bs, options);
    let resizes = features.compat.contains(Compat::RESIZE_INODE);
    if resizes && resize_inode_bytes(bs) >= LARGE_FILE || journal_blocks * bs >= LARGE_FILE {
        features.ro_compat.insert(RoCompat::LARGE_FILE);
    }
    let shape = Shape::new(bytes, blocks, inodes, block_size, &features, options)?;
    let raw = shape.superblock(block_size, &features, options);
    let sb = Superblock::parse(raw.as_bytes(), u64::MAX).map_err(MkfsError::Refused)?;
    Ok(Geometry { sb, journal_blocks, journal_asked: options.journal != JournalSize::Fit })
}

/// The size of the resize inode: everything that its map, with one doubly indirect block, can lead to.
pub(super) fn resize_inode_bytes(bs: u64) -> u64 {
    let per_block = bs / 4;
    (12 + per_block + per_block * per_block) * bs
}

fn journal_blocks(features: &Features, blocks: u64, bs: u64, options: &MkfsOptions) -> u64 {
    match options.journal {
        _ if !features.compat.contains(Compat::HAS_JOURNAL) => 0,
        JournalSize::Fit => usual_journal(blocks),
        JournalSize::Bytes(n) => n / bs,
    }
}

/// Refuses a journal that does not fit in `free` free blocks.
pub(super) fn check_journal(blocks: u64, free: u64) -> Result<(), MkfsError> {
    let (least, most) = (u64::from(tidegate_jbd2::format::raw::MIN_JOURNAL_BLOCKS), free / 2);
    let most = most.min(MAX_JOURNAL_BLOCKS);
    if (least..=most).contains(&blocks) { Ok(()) } else { Err(MkfsError::BadJournal { blocks, least, most }) }
}

fn inodes(
    bytes: u64,
    usable: u64,
    usual: u64,
    block_size: u32,
    options: &MkfsOptions,
) -> Result<u64, MkfsError> {
    let ratio = options.inode_ratio.unwrap_or(usual.max(block_size.into()));
    let n = options.inodes.unwrap_or((usable / ratio).min(MAX_32));
    if usable == 0 {
        return Err(MkfsError::TooSmall { bytes });
    }
    Ok(n.max(u64::from(GOOD_OLD_FIRST_INO) + 1))
}

/// The groups and their content.
struct Shape {
    blocks: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    groups: u64,
    inodes_per_group: u64,
    desc_size: u64,
    reserved_gdt: u64,
    /// Blocks for the superuser.
    reserved: u64,
}

impl Shape {
    fn new(
        bytes: u64,
        blocks: u64,
        inodes: u64,
        block_size: u32,
        features: &Features,
        options: &MkfsOptions,
    ) -> Result<Shape, MkfsError> {
        let bs = u64::from(block_size);
        let desc_size =
            if features.incompat.contains(Incompat::BIT64) { DESC_SIZE_64 } else { DESC_SIZE_32 } as u64;
        let asked = (options.reserved_percent * blocks as f64 / 100.0) as u64;
        let mut s = Shape {
            blocks,
            first_data_block: u64::from(block_size == 1024),
            blocks_per_group: bs * 8,
            groups: 0,
            inodes_per_group: inodes,
            desc_size,
            reserved_gdt: 0,
            reserved: asked,
        };
        loop {
            if s.blocks <= s.first_data_block {
                return Err(MkfsError::TooSmall { bytes });
            }
            s.groups = (s.blocks - s.first_data_block).div_ceil(s.blocks_per_group);
            let wanted = inodes.div_ceil(s.groups);
            if wanted > bs * 8 {
                if s.blocks_per_group < 256 {
                    return Err(MkfsError::BadInodes(inodes));
                }
                s.blocks_per_group -= 8;
                s.blocks = blocks;
                continue;
            }
            s.fill_tables(wanted, bs, options);
            s.reserve_descriptors(bs, features);
            let overhead = s.overhead(bs, features, options);
            if overhead > s.blocks_per_group {
                return Err(MkfsError::BadInodes(inodes));
            }
            let last = (s.blocks - s.first_data_block) % s.blocks_per_group;
            if s.groups == 1 && last != 0 && last < overhead {
                return Err(MkfsError::TooSmall { bytes });
            }
            if last == 0 || last >= overhead + LAST_GROUP_FREE {
                return Ok(s);
            }
            s.blocks -= last;
            s.reserved = (u128::from(asked) * u128::from(s.blocks) / u128::from(blocks)) as u64;
        }
    }

    /// Rounds the number of inodes up, so that each group's inode table fills its blocks.
    fn fill_tables(&mut self, wanted: u64, bs: u64, options: &MkfsOptions) {
        let size = u64::from(options.inode_size);
        let mut wanted = wanted;
        loop {
            let per_group = ((wanted * size).div_ceil(bs) * bs / size).max(LEAST_PER_GROUP) & !7;
            if per_group * self.groups <= MAX_32 {
                self.inodes_per_group = per_group;
                return;
            }
            wanted -= 1;
        }
    }

    fn itable_blocks(&self, bs: u64, options: &MkfsOptions) -> u64 {
        (self.inodes_per_group * u64::from(options.inode_size)).div_ceil(bs)
    }

    fn desc_blocks(&self, bs: u64) -> u64 {
        self.groups.div_ceil(bs / self.desc_size)
    }

    /// Reserves blocks behind the descriptors for their growth.
    fn reserve_descriptors(&mut self, bs: u64, features: &Features) {
        if !features.compat.contains(Compat::RESIZE_INODE) {
            self.reserved_gdt = 0;
            return;
        }
        let most = self.blocks.saturating_mul(GROWTH).min(MAX_32);
        let groups = (most - self.first_data_block).div_ceil(self.blocks_per_group);
        let descs = groups.div_ceil(bs / self.desc_size);
        self.reserved_gdt = descs.saturating_sub(self.desc_blocks(bs)).min(bs / 4);
    }

    /// Blocks of tables in the last group.
    fn overhead(&self, bs: u64, features: &Features, options: &MkfsOptions) -> u64 {
        let own = 2 + self.itable_blocks(bs, options);
        let sparse = features.ro_compat.contains(RoCompat::SPARSE_SUPER);
        if !has_super(self.groups - 1, sparse) {
            return own;
        }
        own + 1 + self.desc_blocks(bs) + self.reserved_gdt
    }

    fn superblock(&self, block_size: u32, features: &Features, options: &MkfsOptions) -> RawSuperblock {
        let mut s = RawSuperblock::new_zeroed();
        let low = |n: u64| (n as u32).into();
        let high = |n: u64| ((n >> 32) as u32).into();
        let log = block_size.trailing_zeros() - 10;
        let bit64 = features.incompat.contains(Incompat::BIT64);
        s.s_inodes_count = low(self.inodes_per_group * self.groups);
        (s.s_blocks_count_lo, s.s_blocks_count_hi) = (low(self.blocks), high(self.blocks));
        (s.s_r_blocks_count_lo, s.s_r_blocks_count_hi) = (low(self.reserved), high(self.reserved));
        s.s_first_data_block = low(self.first_data_block);
        (s.s_log_block_size, s.s_log_cluster_size) = (log.into(), log.into());
        s.s_blocks_per_group = low(self.blocks_per_group);
        s.s_clusters_per_group = low(self.blocks_per_group);
        s.s_inodes_per_group = low(self.inodes_per_group);
        (s.s_max_mnt_count, s.s_errors) = (NO_MAX_MNT_COUNT.into(), ERRORS_CONTINUE.into());
        s.s_magic = EXT4_MAGIC.into();
        s.s_state = State::VALID.bits().into();
        s.s_rev_level = 1.into();
        s.s_first_ino = GOOD_OLD_FIRST_INO.into();
        s.s_inode_size = (options.inode_size as u16).into();
        s.s_feature_compat = features.compat.bits().into();
        s.s_feature_incompat = features.incompat.bits().into();
        s.s_feature_ro_compat = features.ro_compat.bits().into();
        s.s_volume_name[..options.label.len()].copy_from_slice(options.label.as_bytes());
        s.s_reserved_gdt_blocks = (self.reserved_gdt as u16).into();
        s.s_def_hash_version = HASH_HALF_MD4;
        s.s_desc_size = if bit64 { DESC_SIZE_64 as u16 } else { 0 }.into();
        s.s_default_mount_opts = DEFAULT_MOUNT_OPTS.into();
        if options.inode_size > INODE_BASE as u32 {
            (s.s_min_extra_isize, s.s_want_extra_isize) = (EXTRA_ISIZE.into(), EXTRA_ISIZE.into());
        }
        s.s_flags = FLAGS_SIGNED_HASH.into();
        if features.incompat.contains(Incompat::FLEX_BG) {
            s.s_log_groups_per_flex = LOG_GROUPS_PER_FLEX;
        }
        if features.has_csum() {
            s.s_checksum_type = CHECKSUM_CRC32C;
        }
        set_time(&mut s, options.time.secs);
        s.s_uuid = options.uuid.unwrap_or_default();
        let seed = options.hash_seed.unwrap_or_else(|| derived_seed(&s.s_uuid));
        for (to, from) in s.s_hash_seed.iter_mut().zip(seed.chunks_exact(4)) {
            *to = le32(from, 0).into();
        }
        if features.incompat.contains(Incompat::CSUM_SEED) {
            s.s_checksum_seed = crc32c(START, &s.s_uuid).into();
        }
        if features.compat.contains(Compat::HAS_JOURNAL) {
            s.s_journal_inum = JOURNAL_INO.into();
        }
        seal(&mut s);
        s
    }
}

/// The inode of the journal.
pub(super) const JOURNAL_INO: u32 = 8;

fn set_time(s: &mut RawSuperblock, secs: i64) {
    let (low, high) = (secs as u32, (secs >> 32) as u8);
    (s.s_wtime, s.s_wtime_hi) = (low.into(), high);
    (s.s_mkfs_time, s.s_mkfs_time_hi) = (low.into(), high);
    (s.s_lastcheck, s.s_lastcheck_hi) = (low.into(), high);
}

/// Sets a superblock's checksum, if it has one.
pub(super) fn seal(s: &mut RawSuperblock) {
    if s.s_feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0 {
        s.s_checksum = crc32c(START, &s.as_bytes()[..SB_CSUM_OFFSET]).into();
    }
}

/// A value that looks like a UUID, derived from each UUID, so that the UUID determines the volume.
fn derived_seed(uuid: &[u8; 16]) -> [u8; 16] {
    let mut seed = [0; 16];
    for (n, word) in (1_u32..).zip(seed.chunks_exact_mut(4)) {
        word.copy_from_slice(&crc32c(crc32c(START, &n.to_le_bytes()), uuid).to_le_bytes());
    }
    seed
}

fn has_super(group: u64, sparse: bool) -> bool {
    let is_power = |base: u64| {
        std::iter::successors(Some(base), |p| Some(p * base)).take_while(|p| *p <= group).any(|p| p == group)
    };
    !sparse || group <= 1 || [3, 5, 7].into_iter().any(is_power)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_lead_to_what_mke2fs_conf_says() {
        assert_eq!(usual(3 * MIB - 1), (8192, 1024));
        assert_eq!(usual(3 * MIB), (4096, 1024));
        assert_eq!(usual(512 * MIB), (16384, 4096));
        assert_eq!(usual(4 * MIB * MIB - 1), (16384, 4096));
        assert_eq!(usual(4 * MIB * MIB), (32768, 4096));
        assert_eq!(usual(16 * MIB * MIB), (65536, 4096));
    }
}
