//! Flex groups: neighbouring groups whose bitmaps and inode tables lie together (flex_bg). Directories are placed by the
//! sums of a flex group.
//!
//! A volume without flex_bg has flex groups of one group.

use crate::format::gate::{GroupDesc, Superblock};
use crate::format::units::GroupNo;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// The sums of a flex group. They may be a moment old: they choose places, and nothing relies on them.
#[derive(Default)]
struct Flex {
    inodes: AtomicI64,
    blocks: AtomicI64,
    directories: AtomicI64,
    /// No earlier group of it has a free inode.
    first_free: AtomicU32,
}

/// Free inodes, free blocks and directories of a flex group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlexSums {
    pub inodes: u64,
    pub blocks: u64,
    pub directories: u64,
}

/// All flex groups of a volume.
pub(crate) struct FlexGroups {
    groups: u32,
    log_size: u32,
    all: Box<[Flex]>,
}

impl FlexGroups {
    /// Flex groups that have nothing yet.
    pub(super) fn new(sb: &Superblock) -> Self {
        let log_size = sb.log_groups_per_flex();
        let number = (u64::from(sb.groups)).div_ceil(1 << log_size);
        let first = |n: u64| Flex { first_free: AtomicU32::new((n << log_size) as u32), ..Flex::default() };
        FlexGroups { groups: sb.groups, log_size, all: (0..number).map(first).collect() }
    }

    /// Adds what a group has.
    pub(super) fn add(&self, desc: &GroupDesc) {
        self.change(desc.group, i64::from(desc.free_inodes), i64::from(desc.used_dirs));
        self.of(desc.group).blocks.fetch_add(desc.free_blocks.into(), Relaxed);
    }

    /// The number of flex groups.
    pub(super) fn number(&self) -> u32 {
        self.all.len() as u32
    }

    /// The number of groups in each flex group but the last.
    pub(super) fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// The flex group of a group.
    pub(super) fn number_of(&self, group: GroupNo) -> u32 {
        group.0 >> self.log_size
    }

    /// The sums of a flex group.
    pub(super) fn sums(&self, flex: u32) -> FlexSums {
        let f = &self.all[flex as usize];
        let read = |n: &AtomicI64| n.load(Relaxed).max(0) as u64;
        FlexSums { inodes: read(&f.inodes), blocks: read(&f.blocks), directories: read(&f.directories) }
    }

    /// The first group of a flex group.
    pub(super) fn first(&self, flex: u32) -> u32 {
        flex << self.log_size
    }

    /// The groups of a flex group from the first on that may have a free inode.
    pub(super) fn groups_with_inodes(&self, flex: u32) -> Range<u32> {
        let end = self.first(flex).saturating_add(self.size()).min(self.groups);
        self.all[flex as usize].first_free.load(Relaxed)..end
    }

    /// Whether a group is the first of its flex group that may have a free inode.
    pub(super) fn is_first(&self, group: GroupNo) -> bool {
        self.of(group).first_free.load(Relaxed) == group.0
    }

    /// Notes that the first group that might have a free inode has none. The caller holds its lock: an inode that is freed
    /// later lowers the note again.
    pub(super) fn pass(&self, group: GroupNo) {
        let first = &self.of(group).first_free;
        let _ = first.compare_exchange(group.0, group.0 + 1, Relaxed, Relaxed);
    }

    /// Notes a change of the number of free inodes and of directories of a group. The caller holds its lock.
    pub(super) fn change(&self, group: GroupNo, inodes: i64, directories: i64) {
        let f = self.of(group);
        f.inodes.fetch_add(inodes, Relaxed);
        f.directories.fetch_add(directories, Relaxed);
        if inodes > 0 {
            f.first_free.fetch_min(group.0, Relaxed);
        }
    }

    /// Notes a change of the number of free blocks of a group.
    pub(super) fn change_blocks(&self, group: GroupNo, blocks: i64) {
        self.of(group).blocks.fetch_add(blocks, Relaxed);
    }

    fn of(&self, group: GroupNo) -> &Flex {
        &self.all[self.number_of(group) as usize]
    }
}
