//! Facts about a volume, for `tidegate info`.

use crate::format::gate::Journal;
use crate::format::gate::superblock::text;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::defaults::default_options;
use crate::volume::sbi::Ext4;
use tidegate_vfs::Result;

/// A volume's superblock and groups in plain values.
#[derive(Clone, Debug, Default)]
pub struct VolumeInfo {
    /// UUID as it is stored.
    pub uuid: [u8; 16],
    /// Name.
    pub label: String,
    /// `ext2`, `ext3` or `ext4`, by its features.
    pub kind: &'static str,
    /// The plain names of its features.
    pub features: Vec<String>,
    /// Features that keep it from being changed, with their bits; empty when there are none.
    pub read_only_features: String,
    /// Options that apply where the user gives none, by tune2fs's names.
    pub default_options: Vec<String>,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster.
    pub cluster_size: u64,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks reserved for the superuser.
    pub reserved_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Where the volume was last mounted.
    pub last_mounted: String,
    /// The words of `s_state`: `clean`, `not clean`, with `errors` if any are recorded.
    pub state: String,
    /// Number of recorded errors.
    pub errors: u32,
    /// The hash of names in new directories.
    pub hash: &'static str,
    /// Blocks in a group.
    pub blocks_per_group: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// The groups.
    pub groups: Vec<GroupInfo>,
    /// Its journal.
    pub journal: JournalInfo,
}

/// Facts about a group.
#[derive(Clone, Debug, Default)]
pub struct GroupInfo {
    /// First block.
    pub start: u64,
    /// Block bitmap, inode bitmap, and the inode table's first block.
    pub tables: [u64; 3],
    /// Free blocks, or clusters.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub directories: u32,
    /// The group begins with a copy of the superblock.
    pub has_super: bool,
    /// Its flags, by name.
    pub flags: Vec<String>,
}

/// Facts about a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalInfo {
    /// There is no journal.
    #[default]
    None,
    /// The journal is on a device of its own.
    Device,
    /// The journal is in a file.
    Inode {
        /// The file's inode.
        ino: u32,
        /// Its bytes.
        bytes: u64,
        /// The journal holds changes that the volume does not have.
        needs_recovery: bool,
    },
}

const HASHES: [&str; 7] =
    ["legacy", "half_md4", "tea", "legacy unsigned", "half_md4 unsigned", "tea unsigned", "siphash"];

impl Ext4 {
    /// Superblock and groups. Reads all group descriptors.
    ///
    /// # Errors
    /// Those of reading the descriptors.
    pub fn info(&self) -> Result<VolumeInfo> {
        let (sb, r) = (&self.sb, &self.sb.raw);
        let counts = self.counts()?;
        let state = State::from_bits_retain(r.s_state.get());
        let mut words = vec![if state.contains(State::VALID) { "clean" } else { "not clean" }];
        words.extend(state.contains(State::ERROR).then_some("with errors"));
        words.extend(sb.incompat.contains(Incompat::RECOVER).then_some("needs recovery"));
        let groups = (0..sb.groups).map(|n| self.group_info(GroupNo(n))).collect::<Result<_>>()?;
        Ok(VolumeInfo {
            uuid: r.s_uuid,
            label: sb.label(),
            kind: self.kind(),
            features: sb.feature_names(),
            read_only_features: sb.read_only_features.clone(),
            default_options: default_options(sb),
            block_size: sb.block_size,
            cluster_size: u64::from(sb.block_size) * u64::from(sb.cluster_blocks),
            inode_size: sb.inode_size,
            blocks: sb.blocks,
            free_blocks: counts.free_blocks,
            reserved_blocks: sb.reserved_blocks(),
            inodes: r.s_inodes_count.get(),
            free_inodes: counts.free_inodes,
            directories: counts.directories,
            last_mounted: text(&r.s_last_mounted),
            state: words.join(", "),
            errors: r.s_error_count.get(),
            hash: HASHES.get(usize::from(r.s_def_hash_version)).copied().unwrap_or("unknown"),
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: sb.inodes_per_group,
            groups,
            journal: self.journal_info(),
        })
    }

    /// The name that goes with the features: ext2, ext3 or ext4.
    fn kind(&self) -> &'static str {
        let sb = &self.sb;
        let of_ext4 = Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG;
        let old = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
        if sb.incompat.intersects(of_ext4) || !(sb.ro_compat - old).is_empty() {
            "ext4"
        } else if sb.compat.contains(Compat::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }

    fn group_info(&self, group: GroupNo) -> Result<GroupInfo> {
        let d = self.group(group)?;
        let number = |b: BlockAddr| b.0;
        Ok(GroupInfo {
            start: self.sb.group_start(group).0,
            tables: [d.block_bitmap, d.inode_bitmap, d.inode_table].map(number),
            free_blocks: d.free_blocks,
            free_inodes: d.free_inodes,
            directories: d.used_dirs,
            has_super: self.sb.has_super(group),
            flags: d.flags.iter_names().map(|f| f.0.to_lowercase()).collect(),
        })
    }

    fn journal_info(&self) -> JournalInfo {
        match self.sb.journal {
            Journal::None => JournalInfo::None,
            Journal::Device => JournalInfo::Device,
            Journal::Inode(ino) => JournalInfo::Inode {
                ino,
                bytes: self.load_system_inode(ino).map_or(0, |(a, _)| a.size),
                needs_recovery: self.sb.incompat.contains(Incompat::RECOVER),
            },
        }
    }
}
