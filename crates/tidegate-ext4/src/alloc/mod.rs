//! Allocation: groups and their descriptors, free blocks and inodes.
//!
//! Locks owned: `ext4->group` 405 keeps two changes of one group's bitmaps apart, and is held while a bitmap
//! is read; `ext4->damaged` 521; `ext4->space` 522 has the counts; `ext4->freed` 523; `ext4->pa_lock` 524. Callers: maps,
//! directories and inodes allocate and free.
//!
//! | module | holds |
//! |---|---|
//! | `group` | reads and changes of a group's descriptor |
//! | `bitmap` | bitmaps, those that were never written included |
//! | `blocks` | allocation of runs of blocks near a goal, and freeing them |
//! | `claim` | allocation of given blocks and inodes |
//! | `damaged` | groups from which nothing is taken, as their bitmap is damaged or cannot be read |
//! | `freed` | blocks that a commit frees |
//! | `flex` | flex groups and their sums |
//! | `orlov` | the group for a new inode, and goals for its blocks |
//! | `longest` | the longest free run of each group, as far as it is known |
//! | `inodes` | allocation of inodes near their directory, and freeing them |
//! | `preallocation` | blocks kept for files that grow |
//! | `space` | counts, and space that is promised |
//! | `tables` | blocks of the volume's own tables |
//! | `trim` | discards of free blocks |

mod bitmap;
mod blocks;
mod claim;
mod damaged;
mod flex;
mod freed;
mod group;
mod inodes;
mod longest;
mod orlov;
mod preallocation;
mod space;
mod tables;
mod trim;

pub(crate) use damaged::Damaged;
pub(crate) use flex::FlexGroups;
pub(crate) use freed::Freed;
pub(crate) use group::GroupLocks;
pub(crate) use longest::LongestFree;
pub(crate) use preallocation::{Grower, Preallocations};
pub(crate) use space::{DATA_PER_MAP, DATA_PER_MAP_NEW, Free, Promise, Space};
pub(crate) use tables::Tables;

use crate::format::gate::{GroupDesc, Journal, Superblock};
use crate::format::raw::{Incompat, NAME_LEN};
use crate::format::units::GroupNo;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use tidegate_vfs::{Result, StatFs};

/// The sums of a walk over all group descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Free blocks.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Directories.
    pub directories: u64,
}

impl Ext4 {
    /// The group of an inode, and its place in the group's table.
    pub(crate) fn inode_group(&self, ino: u32) -> (GroupNo, u32) {
        let n = ino - 1;
        (GroupNo(n / self.sb.inodes_per_group), n % self.sb.inodes_per_group)
    }

    /// The descriptor of a group.
    ///
    /// # Errors
    /// `Corrupt`; those of reading it.
    pub(crate) fn group(&self, group: GroupNo) -> Result<GroupDesc> {
        let sb = &self.sb;
        let block = self.desc_block(group)?;
        let (at, len) = ((group.0 % sb.descs_per_block() * sb.desc_size) as usize, sb.desc_size as usize);
        GroupDesc::parse(sb, group, &block[at..at + len])
    }

    /// The block with the descriptor of a group.
    fn desc_block(&self, group: GroupNo) -> Result<Block> {
        let addr = self.sb.desc_block((group.0 / self.sb.descs_per_block()).into());
        if !self.sb.holds(addr, 1) {
            let what = "its descriptor lies outside of the volume";
            return Err(tidegate_vfs::Error::corrupt(what).at(group.place()));
        }
        self.blocks.read(addr)
    }

    /// The sums of all groups. Reads all group descriptors the first time.
    ///
    /// # Errors
    /// Those of reading them.
    pub(crate) fn counts(&self) -> Result<Counts> {
        self.summed().map(|(counts, _)| *counts)
    }

    /// The flex groups. Reads all group descriptors the first time.
    ///
    /// # Errors
    /// Those of reading them.
    pub(super) fn flex_groups(&self) -> Result<&FlexGroups> {
        self.summed().map(|(_, flex)| flex)
    }

    fn summed(&self) -> Result<&(Counts, FlexGroups)> {
        if let Some(known) = self.counts.get() {
            return Ok(known);
        }
        let (mut all, flex) = (Counts::default(), FlexGroups::new(&self.sb));
        self.each_group(&mut |g| {
            let g = g?;
            flex.add(&g);
            all.free_blocks += u64::from(g.free_blocks) * u64::from(self.sb.cluster_blocks);
            all.free_inodes += u64::from(g.free_inodes);
            all.directories += u64::from(g.used_dirs);
            Ok(())
        })?;
        Ok(self.counts.get_or_init(|| (all, flex)))
    }

    /// Calls `f` with the descriptor of each group, or with the error of a block of descriptors, until `f`
    /// fails.
    fn each_group(&self, f: &mut dyn FnMut(Result<GroupDesc>) -> Result<()>) -> Result<()> {
        let per_block = self.sb.descs_per_block();
        for first in (0..self.sb.groups).step_by(per_block as usize) {
            let block = match self.desc_block(GroupNo(first)) {
                Ok(block) => block,
                Err(e) => {
                    f(Err(e))?;
                    continue;
                }
            };
            let descs = block.chunks_exact(self.sb.desc_size as usize);
            for (n, bytes) in (first..self.sb.groups).zip(descs) {
                f(GroupDesc::parse(&self.sb, GroupNo(n), bytes))?;
            }
        }
        Ok(())
    }

    /// Capacity and use, as in Linux's statfs(2): blocks without those of the format's own tables.
    pub(crate) fn statfs_now(&self) -> StatFs {
        let (sb, raw) = (&self.sb, &self.sb.raw);
        let now = |s: &Space| {
            let f = s.now();
            let free_blocks = f.blocks.saturating_sub(f.promised.data());
            let counts = Counts { free_blocks, free_inodes: f.inodes, directories: f.directories };
            (counts, f.unpromised())
        };
        // Where the descriptors cannot be read, the superblock's counts are roughly right.
        let (counts, unpromised) = self.space.as_ref().map(now).unwrap_or_else(|| {
            let counts = self.counts().unwrap_or(Counts {
                free_blocks: sb.free_blocks(),
                free_inodes: raw.s_free_inodes_count.get().into(),
                directories: 0,
            });
            (counts, counts.free_blocks)
        });
        let mut id = [0; 8];
        id.copy_from_slice(&raw.s_uuid[..8]);
        let mut half = [0; 8];
        half.copy_from_slice(&raw.s_uuid[8..]);
        StatFs {
            block_size: sb.block_size,
            blocks: sb.blocks.saturating_sub(self.overhead()),
            blocks_free: counts.free_blocks,
            blocks_available: unpromised.saturating_sub(self.kept_back()),
            files: raw.s_inodes_count.get().into(),
            files_free: counts.free_inodes,
            name_max: NAME_LEN as u32,
            fsid: u64::from_le_bytes(id) ^ u64::from_le_bytes(half),
        }
    }

    /// Blocks that data does not get: the blocks reserved for the superuser, and those kept for splits of
    /// extents. A program that fills a new volume counts as superuser.
    pub(crate) fn kept_back(&self) -> u64 {
        if self.filling { 0 } else { self.sb.reserved_blocks() + self.kept_from_metadata() }
    }

    /// Blocks that directories and attributes do not get either: those kept for splits of extents. A volume
    /// that is being filled keeps none, as each of its files comes as a whole.
    pub(crate) fn kept_from_metadata(&self) -> u64 {
        if self.filling { 0 } else { kept_for_splits(&self.sb) }
    }

    /// Blocks of the format's own tables and of the journal, by the superblock or by the geometry.
    fn overhead(&self) -> u64 {
        let sb = &self.sb;
        let said = u64::from(sb.raw.s_overhead_clusters.get()) * u64::from(sb.cluster_blocks);
        if said != 0 && said < sb.blocks {
            return said;
        }
        let journal = match sb.journal {
            Journal::Inode(ino) => {
                self.load_system_inode(ino).map_or(0, |(a, _)| a.size / u64::from(sb.block_size))
            }
            _ => 0,
        };
        let own = sb.all_copies() + u64::from(sb.groups) * (2 + sb.itable_blocks());
        sb.first_data_block.0 + own + journal
    }
}

/// Blocks that Linux keeps back so that a split of an extent never runs out of space: one in fifty, at most
/// 4096 clusters.
pub(crate) fn kept_for_splits(sb: &Superblock) -> u64 {
    let clusters = (sb.blocks / u64::from(sb.cluster_blocks) / 50).min(4096);
    if sb.incompat.contains(Incompat::EXTENTS) { clusters * u64::from(sb.cluster_blocks) } else { 0 }
}
