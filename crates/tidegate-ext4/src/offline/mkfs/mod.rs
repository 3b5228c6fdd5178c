//! Makes an empty volume, with the geometry and the bytes that `mke2fs -t ext4` of e2fsprogs 1.47.0 gives it.
//!
//! This module chooses the geometry for a size, places tables, first directories, journal and orphan file,
//! and writes them. It puts no files on the volume, and makes no features that [`Features::names`] leaves
//! out.
//!
//! A volume is valid only when its superblock is there. So [`UNFINISHED`] first replaces the old content at
//! its place, everything else is made durable, and the superblock is written last: an interrupted attempt
//! leaves no volume.
//!
//! | module | holds |
//! |---|---|
//! | `options`, `features` | [`MkfsOptions`], [`Features`], and their checks |
//! | `error` | [`MkfsError`] |
//! | `geometry` | the number of blocks, groups and inodes |
//! | `used`, `place`, `plan` | blocks in use; the places of tables; the places of everything |
//! | `groups`, `inodes`, `journal` | what is written |
//! | `writer` | how it is written |

mod error;
mod features;
mod geometry;
mod groups;
mod inodes;
pub(in crate::offline) mod journal;
mod options;
mod place;
mod plan;
mod used;
mod writer;

pub use error::MkfsError;
pub use features::Features;
pub use options::{JournalSize, MkfsOptions};

use crate::alloc::kept_for_splits;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
pub(in crate::offline) use geometry::usual_journal;
use geometry::{Geometry, JOURNAL_INO, geometry, seal};
use groups::{Groups, desc_copies};
use inodes::Inodes;
use plan::Plan;
use tidegate_block::{BioFlags, RequestQueue};
use tidegate_rt::clock;
use writer::Writer;
use zerocopy::IntoBytes;

/// The first bytes of a volume that is not complete.
pub const UNFINISHED: &[u8] = b"tidegate mkfs: not complete\n";
/// `s_jnl_backup_type`: the superblock has a copy of the journal inode's map.
const JNL_BACKUP_BLOCKS: u8 = 1;
/// Bytes at the beginning of a device in which other formats have their marks.
const MARKS: u64 = 128 << 10;
/// Bytes at the end of a device in which other formats have their marks.
const END: u64 = 64 << 10;

/// The new volume in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsReport {
    /// Identity of the volume, given or drawn.
    pub uuid: [u8; 16],
    /// The volume's space.
    pub room: Room,
}

/// The space of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that only the superuser may take.
    pub reserved_blocks: u64,
    /// Blocks that df does not report as available: the reserved blocks, and the blocks kept for splits of
    /// extents.
    pub kept_blocks: u64,
    /// Free inodes.
    pub free_inodes: u32,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// Bytes of an inode.
    pub inode_size: u32,
}

/// The space that a volume of `bytes` bytes would have.
///
/// # Errors
/// The options make no volume of this size.
pub fn room(bytes: u64, options: &MkfsOptions) -> Result<Room, MkfsError> {
    let geometry = geometry(bytes, options)?;
    let plan = Plan::new(&geometry, bytes)?;
    Ok(room_of(&geometry, &plan))
}

fn room_of(geometry: &Geometry, plan: &Plan<'_>) -> Room {
    let sb = &geometry.sb;
    Room {
        block_size: sb.block_size,
        blocks: sb.blocks,
        free_blocks: plan.free_blocks(),
        reserved_blocks: sb.reserved_blocks(),
        kept_blocks: sb.reserved_blocks() + kept_for_splits(sb),
        free_inodes: sb.raw.s_inodes_count.get() - plan.inodes(),
        journal_blocks: geometry.journal_blocks,
        inode_size: sb.inode_size,
    }
}

/// Makes an empty volume on the whole of `queue`'s device. The device's old content is lost.
///
/// # Errors
/// An option or size that makes no volume: nothing was written. A device error: the device holds no volume.
pub fn mkfs(queue: &RequestQueue, options: &MkfsOptions) -> Result<MkfsReport, MkfsError> {
    let device = queue.device();
    let uuid = options.uuid.unwrap_or_else(random_uuid);
    let options = &MkfsOptions { uuid: Some(uuid), ..options.clone() };
    let geometry = geometry(device.size(), options)?;
    let plan = Plan::new(&geometry, device.size())?;
    plan.check()?;
    if device.read_only() {
        return Err(MkfsError::ReadOnly(device.name().into()));
    }
    let sb = &geometry.sb;
    let writer = Writer::new(queue, sb.block_size.into());
    let zeroed = !options.lazy_itable_init || !sb.has_group_csum();
    clear(&writer, &plan, options, zeroed)?;
    fill(&writer, &geometry, &plan, options, zeroed)?;
    writer.flush()?;
    finish(&writer, &plan, options)?;
    Ok(MkfsReport { uuid, room: room_of(&geometry, &plan) })
}

/// Removes the old volume, and leaves zeros where the new volume reads before it writes.
fn clear(w: &Writer<'_>, plan: &Plan<'_>, options: &MkfsOptions, zeroed: bool) -> Result<(), MkfsError> {
    let sb = plan.space.sb;
    let mut first = vec![0; front(sb)];
    first[..UNFINISHED.len()].copy_from_slice(UNFINISHED);
    w.write_at(0, &first, BioFlags::SYNC | BioFlags::META)?;
    w.flush()?;
    let behind = (first.len() / sb.block_size as usize) as u64;
    if options.discard {
        w.discard(BlockAddr(behind), sb.blocks - behind)?;
    }
    // Other formats have their marks near the beginning.
    let marks = MARKS / u64::from(sb.block_size);
    w.zero(BlockAddr(behind), marks.min(sb.blocks) - behind)?;
    let end = END / u64::from(sb.block_size);
    if sb.blocks > 2 * end {
        w.zero(BlockAddr(sb.blocks - end), end)?;
    }
    for (_, table) in (0..sb.groups).zip(&plan.tables).filter(|(g, _)| zeroed || *g == 0) {
        w.zero(BlockAddr(table.inode_table), sb.itable_blocks())?;
    }
    for file in plan.journal.iter().chain(&plan.orphan_file) {
        for e in &file.extents {
            w.zero(BlockAddr(e.start), e.end - e.start)?;
        }
    }
    Ok(())
}

/// Number of bytes that are written last: the superblock with its block.
fn front(sb: &Superblock) -> usize {
    (sb.block_size as usize).max(SUPER_OFFSET + SUPER_SIZE)
}

/// Writes everything but the superblock in use.
fn fill(
    w: &Writer<'_>,
    geometry: &Geometry,
    plan: &Plan<'_>,
    options: &MkfsOptions,
    zeroed: bool,
) -> Result<(), MkfsError> {
    let sb = plan.space.sb;
    let groups = Groups { space: &plan.space, tables: &plan.tables, inodes: plan.inodes(), zeroed };
    for (g, tables) in (0..sb.groups).zip(&plan.tables) {
        if groups.has_block_bitmap(g) {
            w.write(BlockAddr(tables.block_bitmap), &groups.block_bitmap(g))?;
        }
        if groups.has_inode_bitmap(g) {
            w.write(BlockAddr(tables.inode_bitmap), &groups.inode_bitmap(g))?;
        }
    }
    fill_first_files(w, geometry, plan, options)?;
    let descriptors = groups.descriptors();
    if sb.incompat.contains(Incompat::META_BG) {
        for (n, block) in descriptors.chunks(sb.block_size as usize).enumerate() {
            for at in desc_copies(sb, n as u64) {
                w.write(BlockAddr(at), block)?;
            }
        }
    } else {
        desc_copies(sb, 0).into_iter().try_for_each(|at| w.write(BlockAddr(at), &descriptors))?;
    }
    for g in (1..sb.groups).map(GroupNo).filter(|g| sb.has_super(*g)) {
        let mut block = vec![0; sb.block_size as usize];
        let mut copy = superblock(plan, options);
        copy.s_block_group_nr = (g.0 as u16).into();
        copy.s_state = 0.into();
        seal(&mut copy);
        block[..SUPER_SIZE].copy_from_slice(copy.as_bytes());
        w.write(sb.group_start(g), &block)?;
    }
    Ok(())
}

/// Writes the first inodes, directories, and the first blocks of the journal and the orphan file.
fn fill_first_files(
    w: &Writer<'_>,
    geometry: &Geometry,
    plan: &Plan<'_>,
    options: &MkfsOptions,
) -> Result<(), MkfsError> {
    let sb = plan.space.sb;
    let make = Inodes { sb, options };
    w.write(BlockAddr(plan.tables[0].inode_table), &make.table(plan))?;
    let lost_found = sb.first_ino;
    let root = [(ROOT_INO, "."), (ROOT_INO, ".."), (lost_found, "lost+found")];
    w.write(BlockAddr(plan.root.start), &make.dir_block(ROOT_INO, &root))?;
    for (n, block) in plan.lost_found.iter().cloned().flatten().enumerate() {
        let own = [(lost_found, "."), (ROOT_INO, "..")];
        let entries: &[_] = if n == 0 { &own } else { &[(0, "")] };
        w.write(BlockAddr(block), &make.dir_block(lost_found, entries))?;
    }
    if plan.resize_map != 0 {
        journal::write_resize_map(w, plan)?;
    }
    let mut indexed = vec![(JOURNAL_INO, &plan.journal)];
    indexed.push((lost_found + 1, &plan.orphan_file));
    for (ino, file) in indexed {
        if let Some(file) = file
            && let Some(at) = file.index
        {
            w.write(BlockAddr(at), &make.extent_block(ino, &file.extents))?;
        }
    }
    if let Some(file) = &plan.journal {
        let first = journal::superblock(sb, geometry.journal_blocks);
        w.write(BlockAddr(file.extents[0].start), &first)?;
    }
    if let Some(file) = &plan.orphan_file {
        for block in file.extents.iter().cloned().flatten() {
            w.write(BlockAddr(block), &journal::orphan_block(sb, make.seed(lost_found + 1), block))?;
        }
    }
    Ok(())
}

/// The superblock with its counts and places.
fn superblock(plan: &Plan<'_>, options: &MkfsOptions) -> RawSuperblock {
    let sb = plan.space.sb;
    let mut raw = (*sb.raw).clone();
    let free = plan.free_blocks();
    (raw.s_free_blocks_count_lo, raw.s_free_blocks_count_hi) =
        ((free as u32).into(), ((free >> 32) as u32).into());
    raw.s_free_inodes_count = (sb.raw.s_inodes_count.get() - plan.inodes()).into();
    raw.s_overhead_clusters = (plan.overhead as u32).into();
    if plan.orphan_file.is_some() {
        raw.s_orphan_file_inum = (sb.first_ino + 1).into();
    }
    if plan.journal.is_some() {
        let table = Inodes { sb, options }.table(plan);
        let at = (JOURNAL_INO as usize - 1) * sb.inode_size as usize;
        if let Some(journal) = read_at::<RawInode>(&table, at) {
            let words = journal.i_block.chunks_exact(4);
            for (to, from) in raw.s_jnl_blocks.iter_mut().zip(words) {
                *to = le32(from, 0).into();
            }
            raw.s_jnl_blocks[15] = journal.i_size_high;
            raw.s_jnl_blocks[16] = journal.i_size_lo;
        }
        raw.s_jnl_backup_type = JNL_BACKUP_BLOCKS;
    }
    raw
}

/// Writes the superblock in use, after everything else.
fn finish(w: &Writer<'_>, plan: &Plan<'_>, options: &MkfsOptions) -> Result<(), MkfsError> {
    let mut raw = superblock(plan, options);
    raw.s_kbytes_written = w.written.get().div_ceil(1024).into();
    seal(&mut raw);
    let mut first = vec![0; front(plan.space.sb)];
    first[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE].copy_from_slice(raw.as_bytes());
    w.write_at(0, &first, BioFlags::SYNC | BioFlags::META)?;
    w.flush()
}

/// A version-4 UUID.
fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&clock::entropy().to_le_bytes());
    uuid[8..].copy_from_slice(&clock::entropy().to_le_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
