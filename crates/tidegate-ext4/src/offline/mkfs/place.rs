//! The places of each group's bitmaps and inode table, as in `mke2fs` 1.47.0.
//!
//! Without flex_bg each group has its own tables, as early in the group as they fit. With flex_bg the tables
//! of sixteen groups lie together in the first of them: all block bitmaps, then all inode bitmaps, then all
//! inode tables, around the blocks in use there.

use super::MkfsError;
use super::used::Used;
use crate::format::gate::Superblock;
use crate::format::units::GroupNo;
use std::ops::Range;

/// The tables of a group, by their first blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tables {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// Blocks in use, and the groups whose bitmaps must be written.
#[derive(Clone, Debug)]
pub(super) struct Space<'a> {
    pub sb: &'a Superblock,
    pub used: Used,
    /// For each group, whether its block bitmap does not follow from the geometry.
    pub written: Vec<bool>,
}

impl<'a> Space<'a> {
    /// The space of a new volume: the copies of superblock and descriptors are in use.
    pub fn new(sb: &'a Superblock) -> Self {
        let mut space = Space { sb, used: Used::default(), written: vec![false; sb.groups as usize] };
        for g in 0..sb.groups {
            let start = sb.group_start(GroupNo(g)).0;
            if !sb.incompat.contains(crate::format::raw::Incompat::META_BG) {
                space.used.mark(start..start + sb.copies_in(GroupNo(g)));
                continue;
            }
            space.used.mark(start..start + u64::from(sb.has_super(GroupNo(g))));
        }
        if sb.incompat.contains(crate::format::raw::Incompat::META_BG) {
            for n in 0..sb.desc_blocks() {
                for at in super::groups::desc_copies(sb, n) {
                    space.used.mark(at..at + 1);
                }
            }
        }
        // The last group's bitmap says where the volume ends.
        if let Some(last) = space.written.last_mut() {
            *last = true;
        }
        space
    }

    pub fn group_of(&self, block: u64) -> usize {
        ((block - self.sb.first_data_block.0) / u64::from(self.sb.blocks_per_group)) as usize
    }

    /// Blocks of a group.
    pub fn blocks_of(&self, group: u32) -> Range<u64> {
        let start = self.sb.group_start(GroupNo(group)).0;
        start..(start + u64::from(self.sb.blocks_per_group)).min(self.sb.blocks)
    }

    /// Takes blocks whose use does not follow from the geometry.
    pub fn take(&mut self, range: Range<u64>) {
        self.used.mark(range.clone());
        for g in self.group_of(range.start)..=self.group_of(range.end - 1) {
            self.written[g] = true;
        }
    }

    /// The first run of at least `least` free blocks behind `goal`, or from the volume's beginning if there
    /// is none.
    pub fn first_free(&self, goal: u64, least: u64) -> Option<Range<u64>> {
        let first = self.sb.first_data_block.0;
        self.used
            .first_free(goal..self.sb.blocks, least)
            .or_else(|| self.used.first_free(first..goal.max(first), least))
    }

    /// Takes one free block behind `goal`.
    pub fn take_one(&mut self, goal: u64) -> Option<u64> {
        let at = self.first_free(goal, 1)?.start;
        self.take(at..at + 1);
        Some(at)
    }
}

/// Places the tables of all groups.
///
/// # Errors
/// They do not fit, in `bytes` bytes.
pub(super) fn place_tables(space: &mut Space<'_>, bytes: u64) -> Result<Vec<Tables>, MkfsError> {
    let mut all: Vec<Tables> = Vec::with_capacity(space.sb.groups as usize);
    for group in 0..space.sb.groups {
        let before = all.last().copied();
        let tables = place(space, group, before).ok_or(MkfsError::TooSmall { bytes })?;
        all.push(tables);
    }
    Ok(all)
}

fn place(space: &mut Space<'_>, group: u32, before: Option<Tables>) -> Option<Tables> {
    let itable = space.sb.itable_blocks();
    let log = space.sb.raw.s_log_groups_per_flex;
    if log == 0 {
        let own = space.blocks_of(group);
        let mut put = |n: u64| {
            let at = space.used.first_free(own.clone(), n)?.start;
            space.used.mark(at..at + n);
            Some(at)
        };
        return Some(Tables { block_bitmap: put(1)?, inode_bitmap: put(1)?, inode_table: put(itable)? });
    }
    let size = 1 << log;
    let before = before.filter(|_| !group.is_multiple_of(size));
    let last = (group | (size - 1)).min(space.sb.groups - 1);
    let flex = Flex {
        blocks: space.blocks_of(group & !(size - 1)).start..space.blocks_of(last).end,
        own: space.blocks_of(group).start,
        left: (last - group + 1).into(),
    };
    // The first group leaves room for the tables of its kind; a group that is alone leaves room for groups
    // that may be added.
    let room = u64::from(if last.is_multiple_of(size) { size } else { last - group + 1 });
    let block_bitmap = flex.put(space, before.map(|b| b.block_bitmap + 1), 1)?;
    let next = before.map_or(block_bitmap + room, |b| b.inode_bitmap + 1);
    let inode_bitmap = flex.put(space, Some(next), 1)?;
    let next = before.map_or(inode_bitmap + room, |b| b.inode_table + itable);
    let inode_table = flex.put(space, Some(next), itable)?;
    Some(Tables { block_bitmap, inode_bitmap, inode_table })
}

/// Groups whose tables lie together.
struct Flex {
    blocks: Range<u64>,
    /// The start of the group whose tables are placed.
    own: u64,
    /// Number of groups that have no tables yet, this one included.
    left: u64,
}

impl Flex {
    /// Takes `n` blocks: at `next` if they are free, else at the beginning of a gap that is long enough for
    /// all groups that are left, or else of one that is long enough for this group.
    fn put(&self, space: &mut Space<'_>, next: Option<u64>, n: u64) -> Option<u64> {
        let most = u64::from(space.sb.blocks_per_group) / 4;
        let free = |next: &u64| *next + n <= space.sb.blocks && space.used.is_free(*next..*next + n);
        let all = (self.left * n).min(most);
        let gap = |n| space.used.first_free(self.blocks.clone(), n).map(|g| g.start);
        let goal = next.filter(free).or_else(|| gap(all)).or_else(|| gap(n)).unwrap_or(self.blocks.start);
        let found = space.used.first_free(goal..self.blocks.end, n);
        let at = found.or_else(|| space.used.first_free(self.own..self.blocks.end, n))?.start;
        space.take(at..at + n);
        Some(at)
    }
}
