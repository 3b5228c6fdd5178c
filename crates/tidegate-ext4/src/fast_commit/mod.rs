//! Fast commits: the fsyncs after the journal's last transaction, as changes of inodes and names.
//!
//! This module makes these changes in memory, in their order, on top of the journal's transactions. The
//! changed blocks lie over the volume, as the transactions' blocks do. It writes nothing. A volume that is to
//! be changed puts the blocks into its log as one transaction ([`tidegate_jbd2::Replay::settle`]), so that a
//! power cut leaves either the fast commits or all of their changes.
//!
//! Fast commits name the blocks of data and the inodes. Blocks of maps and of directories are allocated anew,
//! out of the blocks that no fast commit names.
//!
//! Callers: opening, check and repair. Locks owned: none.
//!
//! | module | holds |
//! |---|---|
//! | `changes` | the inodes and blocks that the changes concern |
//! | `inodes` | changes of an inode's fields |
//! | `names` | changes of names |
//! | `ranges` | changes of a file's blocks |
//! | `settle` | bitmaps and counts at the end |

mod changes;
mod inodes;
mod names;
mod ranges;
mod settle;

use crate::format::gate::Superblock;
use crate::format::raw::SUPER_SIZE;
use crate::inode::Ranges;
use crate::volume::handle::{Handle, HandleType};
use crate::volume::overlay::Overlay;
use crate::volume::sbi::Ext4;
use changes::Changes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_jbd2::Replay;
use tidegate_jbd2::format::fc::{FcInode, FcTag};
use tidegate_vfs::{Bdi, Error, MemoryLimits, Result};

/// Bytes of metadata that are kept while changes are made.
const CACHE: u64 = 16 << 20;

/// The blocks that a journal holds for the volume behind `queue`: those of its transactions, and those that
/// its fast commits change. A volume with features that keep it from being changed goes without the latter,
/// and the overlay says so.
///
/// # Errors
/// `Corrupt` for impossible fast commits, with the inode, and for damage that they run into; those of the
/// device.
pub(crate) fn lay_over(queue: &Arc<RequestQueue>, sb: &Superblock, replay: Replay) -> Result<Overlay> {
    let overlay = Overlay::new(replay);
    if !overlay.replay().has_fast_commits() {
        return Ok(overlay);
    }
    let sb = match overlay.superblock(sb)? {
        Some(bytes) => Superblock::parse(&bytes[..SUPER_SIZE], queue.device().size())?,
        None => sb.clone(),
    };
    if !sb.read_only_features.is_empty() {
        return Ok(overlay);
    }
    make_changes(queue, sb, overlay).map_err(|e| e.of("the journal's fast commits"))
}

fn make_changes(queue: &Arc<RequestQueue>, sb: Superblock, overlay: Overlay) -> Result<Overlay> {
    let tags = overlay.replay().fast_commits().collect::<Result<Vec<_>>>()?;
    let bdi = Bdi::new(MemoryLimits { cache: CACHE, ..MemoryLimits::default() });
    let mut fs = Ext4::in_memory(queue.clone(), bdi.clone(), sb, overlay)?;
    let mut changes = Changes {
        fs: &fs,
        bdi,
        handle: Handle::new(&fs.blocks, HandleType::Misc)?,
        inodes: BTreeMap::new(),
        ahead: Ranges::default(),
        gone: Ranges::default(),
        owned: BTreeMap::new(),
        recount: BTreeSet::new(),
    };
    changes.take_ahead(&tags)?;
    (0..tags.len()).try_for_each(|n| changes.make(&tags[n], &tags[n + 1..]))?;
    changes.settle()?;
    drop(changes);
    let changed = fs.blocks.changed();
    let mut overlay = fs.blocks.overlay.take().ok_or_else(|| Error::corrupt("no journal"))?;
    overlay.add(changed);
    Ok(overlay)
}

impl Changes<'_> {
    /// Makes the change of a tag; the `later` tags follow it. Linux leaves tags of inodes that are gone, or were made
    /// without a name and whose own tag comes later: the former change nothing.
    fn make(&mut self, tag: &FcTag, later: &[FcTag]) -> Result<()> {
        let there = match tag {
            FcTag::AddRange { inode, .. } | FcTag::DelRange { inode, .. } => self.is_there(*inode, later)?,
            FcTag::Link(name) => self.is_there(name.inode, later)? && self.is_there(name.parent, later)?,
            FcTag::Unlink(name) => self.is_there(name.parent, later)?,
            FcTag::Creat(_) | FcTag::Inode { .. } => true,
        };
        if !there {
            return Ok(());
        }
        match tag {
            FcTag::AddRange { inode, extent } => self.add_range(*inode, extent),
            FcTag::DelRange { inode, block, len } => self.del_range(*inode, *block, *len),
            FcTag::Creat(name) => self.creat(name),
            FcTag::Link(name) => self.link(name),
            FcTag::Unlink(name) => self.unlink(name),
            FcTag::Inode { inode, raw } => self.put_inode(*inode, raw),
        }
    }

    /// Whether an inode is in use; one that a later tag puts there is put there now.
    fn is_there(&mut self, ino: FcInode, later: &[FcTag]) -> Result<bool> {
        let n = self.number(ino)?;
        if self.inodes.contains_key(&n) || self.fs.is_inode_used(n)? {
            return Ok(true);
        }
        let own = later.iter().find_map(|tag| match tag {
            FcTag::Inode { inode, raw } if inode.0 == n => Some(raw),
            _ => None,
        });
        own.map_or(Ok(false), |raw| self.put_inode(ino, raw).map(|()| true))
    }
}
