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
use crate::format::raw::{RawInode, SUPER_SIZE, le32};
use crate::inode::Ranges;
use crate::volume::handle::{Handle, HandleType};
use crate::volume::overlay::Overlay;
use crate::volume::sbi::Ext4;
use changes::Changes;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_jbd2::Replay;
use tidegate_jbd2::format::fc::{FcInode, FcTag};
use tidegate_vfs::{Bdi, Error, Inode, MemoryLimits, Result};

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
    let own = OwnTags::of(&tags);
    (0..tags.len()).try_for_each(|n| changes.make(&own, n))?;
    changes.settle()?;
    drop(changes);
    let changed = fs.blocks.changed();
    let mut overlay = fs.blocks.overlay.take().ok_or_else(|| Error::corrupt("no journal"))?;
    overlay.add(changed);
    Ok(overlay)
}

impl Changes<'_> {
    /// Makes the change of tag number `at`. Linux leaves tags of inodes that are gone, and of their names; these change
    /// nothing.
    fn make(&mut self, own: &OwnTags<'_>, at: usize) -> Result<()> {
        let (tag, later) = (&own.tags[at], (own, at));
        let there = match tag {
            FcTag::AddRange { inode, .. } | FcTag::DelRange { inode, .. } => self.is_there(*inode, later)?,
            FcTag::Link(name) => self.is_used(name.parent)? && self.is_there(name.inode, later)?,
            FcTag::Unlink(name) => self.is_used(name.parent)?,
            FcTag::Creat(name) if !self.is_used(name.parent)? => return self.creat_nowhere(name),
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

    fn is_used(&self, ino: FcInode) -> Result<bool> {
        let n = self.number(ino)?;
        Ok(self.inodes.contains_key(&n) || self.fs.is_inode_used(n)?)
    }

    /// Whether an inode is in use. One that was made without a name has a tag of its own only behind its names and ranges:
    /// it is put there now, also in place of an inode that has just lost its last name.
    fn is_there(&mut self, ino: FcInode, (own, at): (&OwnTags<'_>, usize)) -> Result<bool> {
        let used = self.is_used(ino)?;
        let Some(raw) = own.nameless(ino, at) else { return Ok(used) };
        let is_another = |inode: &Arc<Inode>| {
            inode.nlink() == 0 && inode.attr().generation != le32(raw, offset_of!(RawInode, i_generation))
        };
        if !used || self.inodes.get(&ino.0).is_some_and(is_another) {
            self.put_inode(ino, raw)?;
        }
        Ok(true)
    }
}

/// The tags of inodes themselves, and of the names that they are made with.
struct OwnTags<'a> {
    tags: &'a [FcTag],
    /// Their numbers in order, by inode.
    of: BTreeMap<u32, Vec<usize>>,
}

impl OwnTags<'_> {
    fn of(tags: &[FcTag]) -> OwnTags<'_> {
        let mut of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (n, tag) in tags.iter().enumerate() {
            match tag {
                FcTag::Inode { inode, .. } => of.entry(inode.0).or_default().push(n),
                FcTag::Creat(name) => of.entry(name.inode.0).or_default().push(n),
                _ => {}
            }
        }
        OwnTags { tags, of }
    }

    /// The next tag of an inode itself behind tag `at`, if no tag makes a name for it then: tags before that belong to it,
    /// and not to another inode that had its number and is gone.
    fn nameless(&self, ino: FcInode, at: usize) -> Option<&[u8]> {
        let all = self.of.get(&ino.0)?;
        let mut later = all[all.partition_point(|n| *n <= at)..].iter().map(|n| &self.tags[*n]);
        match (later.next()?, later.next()) {
            (FcTag::Inode { .. }, Some(FcTag::Creat(_))) => None,
            (FcTag::Inode { raw, .. }, _) => Some(raw),
            _ => None,
        }
    }
}
