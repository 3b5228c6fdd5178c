//! What is given out: the groups, their descriptors, what is free. As far as reading needs it.
//!
//! It owns no lock. Inodes are found through [`Ext4::group`], and capacity is told by [`Ext4::statfs_now`].

use crate::format::gate::{GroupDesc, Journal, Superblock};
use crate::format::raw::{Incompat, NAME_LEN};
use crate::format::units::GroupNo;
use crate::volume::sbi::Ext4;
use tidegate_vfs::{Result, StatFs};

/// What a walk over all group descriptors adds up.
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
    /// The descriptor of a group.
    ///
    /// # Errors
    /// `Corrupt`; those of reading it.
    pub(crate) fn group(&self, group: GroupNo) -> Result<GroupDesc> {
        let sb = &self.sb;
        let per_block = sb.descs_per_block();
        let addr = sb.desc_block((group.0 / per_block).into());
        if !sb.holds(addr, 1) {
            let what = format!("group {group}: its descriptor lies outside of the volume");
            return Err(tidegate_vfs::Error::corrupt(what));
        }
        let block = self.blocks.read(addr)?;
        let (at, len) = ((group.0 % per_block * sb.desc_size) as usize, sb.desc_size as usize);
        GroupDesc::parse(sb, group, &block[at..at + len])
    }

    /// Adds up what is free. Reads all group descriptors the first time.
    ///
    /// # Errors
    /// Those of reading them.
    pub(crate) fn counts(&self) -> Result<Counts> {
        if let Some(c) = self.counts.get() {
            return Ok(*c);
        }
        let mut all = Counts::default();
        for n in 0..self.sb.groups {
            let g = self.group(GroupNo(n))?;
            all.free_blocks += u64::from(g.free_blocks) * u64::from(self.sb.cluster_blocks);
            all.free_inodes += u64::from(g.free_inodes);
            all.directories += u64::from(g.used_dirs);
        }
        Ok(*self.counts.get_or_init(|| all))
    }

    /// Capacity and use, as statfs(2) of Linux has it: blocks without those of the format's own tables.
    pub(crate) fn statfs_now(&self) -> StatFs {
        let (sb, raw) = (&self.sb, &self.sb.raw);
        // Where the descriptors cannot be read, the superblock knows roughly.
        let counts = self.counts().unwrap_or(Counts {
            free_blocks: sb.free_blocks(),
            free_inodes: raw.s_free_inodes_count.get().into(),
            directories: 0,
        });
        let reserved = sb.reserved_blocks() + kept_for_splits(sb);
        let mut id = [0; 8];
        id.copy_from_slice(&raw.s_uuid[..8]);
        let mut half = [0; 8];
        half.copy_from_slice(&raw.s_uuid[8..]);
        StatFs {
            block_size: sb.block_size,
            blocks: sb.blocks.saturating_sub(self.overhead()),
            blocks_free: counts.free_blocks,
            blocks_available: counts.free_blocks.saturating_sub(reserved),
            files: raw.s_inodes_count.get().into(),
            files_free: counts.free_inodes,
            name_max: NAME_LEN as u32,
            fsid: u64::from_le_bytes(id) ^ u64::from_le_bytes(half),
        }
    }

    /// Blocks of the format's own tables and of the journal: what the superblock says, or what the geometry makes of
    /// it.
    fn overhead(&self) -> u64 {
        let sb = &self.sb;
        let said = u64::from(sb.raw.s_overhead_clusters.get()) * u64::from(sb.cluster_blocks);
        if said != 0 && said < sb.blocks {
            return said;
        }
        let meta_bg = sb.incompat.contains(Incompat::META_BG);
        let descs = match meta_bg {
            true => u64::from(sb.raw.s_first_meta_bg.get()),
            false => sb.desc_blocks(),
        };
        let in_group = |n: u32| {
            let group = GroupNo(n);
            let tables = 2 + sb.itable_blocks();
            let mut copies = 0;
            if sb.has_super(group) {
                copies = 1 + descs + u64::from(sb.raw.s_reserved_gdt_blocks.get());
            }
            let per_meta = sb.descs_per_block();
            let place = n % per_meta;
            if meta_bg && u64::from(n / per_meta) >= descs && (place < 2 || place == per_meta - 1) {
                copies = copies.min(1) + 1;
            }
            copies + tables
        };
        let journal = match sb.journal {
            Journal::Inode(ino) => {
                self.load_system_inode(ino).map_or(0, |(a, _)| a.size / u64::from(sb.block_size))
            }
            _ => 0,
        };
        let own: u64 = (0..sb.groups).map(in_group).sum();
        sb.first_data_block.0 + own + journal
    }
}

/// Blocks that Linux keeps back, so that splitting extents never runs out of room: one in fifty, 4096 clusters at most.
fn kept_for_splits(sb: &Superblock) -> u64 {
    let clusters = (sb.blocks / u64::from(sb.cluster_blocks) / 50).min(4096);
    if sb.incompat.contains(Incompat::EXTENTS) { clusters * u64::from(sb.cluster_blocks) } else { 0 }
}
