//! The places of everything on a new volume: tables, first directories, journal.

use super::MkfsError;
use super::geometry::{Geometry, check_journal};
use super::inodes::{Extent, IN_INODE};
use super::place::{Space, Tables, place_tables};
use crate::format::gate::Superblock;
use crate::format::raw::{Compat, INIT_MAX_LEN};
use crate::format::units::GroupNo;
use tidegate_vfs::Error;

/// Bytes of lost+found, so that e2fsck can add many names without a new block.
const LOST_FOUND: u64 = 16 << 10;
/// Most blocks of lost+found.
const LOST_FOUND_BLOCKS: u64 = 12;
/// Blocks of the volume for each block of the orphan file, and the file's limits.
const BLOCKS_PER_ORPHANS: u64 = 4096;
const ORPHAN_BLOCKS: (u64, u64) = (32, 512);

/// A file of a new volume.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Its blocks.
    pub blocks: u64,
    /// The places of the blocks.
    pub extents: Vec<Extent>,
    /// The block of its map, if the inode has no room for it.
    pub index: Option<u64>,
}

/// The places of everything.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    pub space: Space<'a>,
    pub tables: Vec<Tables>,
    /// The root directory's block.
    pub root: Extent,
    /// The blocks of lost+found.
    pub lost_found: Vec<Extent>,
    /// The block that maps the blocks reserved for descriptors; 0 for none.
    pub resize_map: u64,
    pub journal: Option<File>,
    pub orphan_file: Option<File>,
    /// Blocks of tables, and of the journal.
    pub overhead: u64,
}

impl<'a> Plan<'a> {
    /// Finds a place for everything on a device of `bytes` bytes.
    ///
    /// # Errors
    /// The volume does not fit, or the journal does not.
    pub fn new(geometry: &'a Geometry, bytes: u64) -> Result<Plan<'a>, MkfsError> {
        let sb = &geometry.sb;
        let full = || MkfsError::TooSmall { bytes };
        let mut space = Space::new(sb);
        let tables = place_tables(&mut space, bytes)?;
        let mut overhead = sb.first_data_block.0 + space.used.total();
        let first = sb.first_data_block.0;
        let root = space.take_one(first).ok_or_else(full)?;
        let mut lost_found = Vec::new();
        let mut goal = first;
        for _ in 0..lost_found_blocks(sb) {
            let block = space.take_one(goal).ok_or_else(full)?;
            push(&mut lost_found, block..block + 1);
            goal = block + 1;
        }
        let mut resize_map = 0;
        if sb.compat.contains(Compat::RESIZE_INODE) {
            let behind = tables[0].block_bitmap + 1 + sb.itable_blocks();
            resize_map = space.take_one(behind).ok_or_else(full)?;
        }
        let mut journal = None;
        if geometry.journal_asked && sb.compat.contains(Compat::HAS_JOURNAL) {
            check_journal(geometry.journal_blocks, sb.blocks - first - space.used.total())?;
        }
        if geometry.journal_blocks > 0 {
            let goal = middle(&space);
            let file = take_file(&mut space, goal, geometry.journal_blocks).ok_or_else(full)?;
            overhead += file.blocks;
            journal = Some(file);
        }
        let mut orphan_file = None;
        if sb.compat.contains(Compat::ORPHAN_FILE) {
            let (least, most) = ORPHAN_BLOCKS;
            let blocks = (sb.blocks / BLOCKS_PER_ORPHANS).clamp(least, most);
            orphan_file = Some(take_file(&mut space, first, blocks).ok_or_else(full)?);
        }
        let root = root..root + 1;
        Ok(Plan { space, tables, root, lost_found, resize_map, journal, orphan_file, overhead })
    }

    /// Inodes in use: the reserved ones, lost+found, and the orphan file's.
    pub fn inodes(&self) -> u32 {
        self.space.sb.first_ino + u32::from(self.orphan_file.is_some())
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        let sb = self.space.sb;
        sb.blocks - sb.first_data_block.0 - self.space.used.total()
    }

    /// Refuses a [`File`] that is impossible: the gate would refuse it when the volume is opened.
    pub fn check(&self) -> Result<(), MkfsError> {
        let files = self.journal.iter().chain(&self.orphan_file);
        let most = (self.space.sb.block_size as usize - 12) / 12;
        for f in files {
            if f.extents.len() > most {
                let e = Error::corrupt("the journal lies in too many pieces");
                return Err(MkfsError::Refused(e));
            }
        }
        Ok(())
    }
}

fn lost_found_blocks(sb: &Superblock) -> u64 {
    (LOST_FOUND / u64::from(sb.block_size)).clamp(2, LOST_FOUND_BLOCKS)
}

/// Adds blocks to a file's extents.
fn push(extents: &mut Vec<Extent>, blocks: Extent) {
    match extents.last_mut() {
        Some(last) if last.end == blocks.start && blocks.end - last.start <= INIT_MAX_LEN.into() => {
            last.end = blocks.end;
        }
        _ => extents.push(blocks),
    }
}

/// Takes `blocks` blocks behind `goal`, in as many runs as it needs.
fn take_file(space: &mut Space<'_>, goal: u64, blocks: u64) -> Option<File> {
    let (mut extents, mut index) = (Vec::<Extent>::new(), None);
    let (mut at, mut left) = (goal, blocks);
    while left > 0 {
        let free = space.first_free(at, 1)?;
        let n = (free.end - free.start).min(left).min(INIT_MAX_LEN.into());
        let run = free.start..free.start + n;
        space.take(run.clone());
        at = run.end;
        extents.push(run);
        left -= n;
        // The inode is full: this extent and later ones go to a block of their own.
        if extents.len() == IN_INODE + 1 {
            index = Some(space.take_one(extents[0].start - 1)?);
        }
    }
    Some(File { blocks, extents, index })
}

/// The start of the journal: in the middle of the volume, in the least full of a few groups there.
fn middle(space: &Space<'_>) -> u64 {
    let sb = space.sb;
    // As in mke2fs: half of the count of blocks, not the block that is that far from the first.
    let mut group = space.group_of((sb.blocks - sb.first_data_block.0) / 2) as u32;
    let free = |g: u32| {
        let own = space.blocks_of(g);
        own.end - own.start - space.used.within(own.clone()).map(|r| r.end - r.start).sum::<u64>()
    };
    let log = sb.raw.s_log_groups_per_flex;
    let flex = 1_u32 << log;
    let start = if log > 0 && group > flex {
        group &= !(flex - 1);
        while group < sb.groups && free(group) == 0 {
            group += 1;
        }
        if group == sb.groups {
            group = 0;
        }
        group
    } else {
        group.saturating_sub(1)
    };
    let end = (group + 1).min(sb.groups - 1);
    let best = (start..=end).reduce(|best, g| if free(g) > free(best) { g } else { best });
    sb.group_start(GroupNo(best.unwrap_or(0))).0
}
