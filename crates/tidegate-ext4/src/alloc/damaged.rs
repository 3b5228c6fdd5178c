//! Groups whose bitmap is damaged: nothing is taken from them, and blocks that they call free are promised to
//! nobody. And blocks of inode tables that cannot be read, whose inodes nobody gets.

use crate::format::gate::GroupDesc;
use crate::format::units::BlockAddr;
use crate::volume::sbi::Ext4;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::Error;

static DAMAGED: LockClass = LockClass::new("ext4->damaged", 521);

/// A bitmap of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bitmap {
    Blocks,
    Inodes,
}

/// Damage of bitmaps that was met since the volume was opened.
pub(crate) struct Damaged {
    /// Whether there are any.
    any: AtomicBool,
    found: Mutex<BTreeMap<(Bitmap, u32), Error>>,
    /// Whether blocks of inode tables could not be read.
    any_unread: AtomicBool,
    unread: Mutex<BTreeMap<BlockAddr, Error>>,
}

impl Damaged {
    pub(crate) fn new() -> Self {
        Damaged {
            any: AtomicBool::new(false),
            found: Mutex::new(&DAMAGED, BTreeMap::new()),
            any_unread: AtomicBool::new(false),
            unread: Mutex::new(&DAMAGED, BTreeMap::new()),
        }
    }

    /// Whether a bitmap was found damaged.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }
}

impl Ext4 {
    /// The damage of a group's bitmap, if it is known.
    pub(super) fn damage_of(&self, bitmap: Bitmap, group: &GroupDesc) -> Option<Error> {
        if !self.damaged.any() {
            return None;
        }
        self.damaged.found.lock().get(&(bitmap, group.group.0)).cloned()
    }

    /// The error that a block of an inode table gave, if it could not be read.
    pub(super) fn unread_table(&self, block: BlockAddr) -> Option<Error> {
        if !self.damaged.any_unread.load(Relaxed) {
            return None;
        }
        self.damaged.unread.lock().get(&block).cloned()
    }

    /// Passes over the inodes of a block of an inode table from now on.
    pub(super) fn pass_over_table(&self, block: BlockAddr, why: &Error) {
        self.damaged.any_unread.store(true, Relaxed);
        self.damaged.unread.lock().insert(block, why.clone());
    }

    /// Passes over a group from now on, and takes what it says is free out of the counts.
    pub(super) fn pass_over(&self, bitmap: Bitmap, group: &GroupDesc, why: &Error) {
        self.damaged.any.store(true, Relaxed);
        let new = self.damaged.found.lock().insert((bitmap, group.group.0), why.clone()).is_none();
        let Ok(space) = self.space() else { return };
        if new {
            space.change(|free| match bitmap {
                Bitmap::Blocks => free.blocks = free.blocks.saturating_sub(group.free_blocks.into()),
                Bitmap::Inodes => free.inodes = free.inodes.saturating_sub(group.free_inodes.into()),
            });
        }
    }
}
