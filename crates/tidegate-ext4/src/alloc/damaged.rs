//! Groups whose bitmap is damaged or cannot be read: nothing is taken from them, and their free blocks are
//! not promised. Also blocks of inode tables that cannot be read: their inodes are not used.

use crate::format::gate::GroupDesc;
use crate::format::units::BlockAddr;
use crate::volume::sbi::Ext4;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidegate_rt::trace::EventPoint;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{Error, ErrorKind};

static GROUP_CORRUPT: EventPoint<3> = EventPoint::new("ext4_group_corrupt", ["group", "inodes", "errno"]);

static DAMAGED: LockClass = LockClass::new("ext4->damaged", 521);

/// A bitmap of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bitmap {
    Blocks,
    Inodes,
}

/// Failed reads of a bitmap after which nothing more is freed in its group: each may cost the device's
/// time-out.
const ASKED: u32 = 3;

/// A group that is passed over.
struct Passed {
    why: Error,
    /// The number of times that its bitmap could not be used.
    asked: u32,
}

/// Damaged bitmaps found since the volume was opened.
pub(crate) struct Damaged {
    /// Whether there are any.
    any: AtomicBool,
    found: Mutex<BTreeMap<(Bitmap, u32), Passed>>,
    /// Whether blocks of inode tables could not be read.
    any_unread: AtomicBool,
    /// These blocks, with the number of free inodes in each that are not used.
    unread: Mutex<BTreeMap<BlockAddr, (Error, u32)>>,
    /// Whether the volume has faults for e2fsck. A block that could not be read once is no such fault.
    faults: AtomicBool,
    /// Whether the superblock records the faults.
    told: AtomicBool,
}

impl Damaged {
    pub(crate) fn new() -> Self {
        Damaged {
            any: AtomicBool::new(false),
            found: Mutex::new(&DAMAGED, BTreeMap::new()),
            any_unread: AtomicBool::new(false),
            unread: Mutex::new(&DAMAGED, BTreeMap::new()),
            faults: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// Whether e2fsck must check the volume: a bitmap was found damaged, or something could not be freed.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults.load(Relaxed)
    }

    /// Whether e2fsck must check the volume, and the superblock does not record that yet.
    pub(crate) fn is_untold(&self) -> bool {
        self.faults.load(Relaxed) && !self.told.load(Relaxed)
    }

    /// Notes that the superblock records the faults.
    pub(crate) fn set_told(&self) {
        self.told.store(true, Relaxed);
    }
}

/// Whether an error of reading a bitmap makes only its group unusable.
pub(super) fn costs_group(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

impl Ext4 {
    /// The damage of a group's bitmap, if it is known.
    pub(super) fn damage_of(&self, bitmap: Bitmap, group: &GroupDesc) -> Option<Error> {
        if !self.damaged.any.load(Relaxed) {
            return None;
        }
        self.damaged.found.lock().get(&(bitmap, group.group.0)).map(|p| p.why.clone())
    }

    /// Whether nothing more is freed in a group. A bitmap that could not be read is read again a few times.
    pub(super) fn frees_nothing(&self, bitmap: Bitmap, group: &GroupDesc) -> bool {
        let left = |p: &Passed| p.why.kind() != ErrorKind::Io || p.asked >= ASKED;
        self.damaged.any.load(Relaxed)
            && self.damaged.found.lock().get(&(bitmap, group.group.0)).is_some_and(left)
    }

    /// Notes that a group's bitmap was read: if it could not be read before, the group's blocks or inodes are
    /// used again.
    pub(super) fn was_read(&self, bitmap: Bitmap, group: &GroupDesc) {
        if !self.damaged.any.load(Relaxed) {
            return;
        }
        let passed = self.damaged.found.lock().remove(&(bitmap, group.group.0)).is_some();
        let Ok(space) = self.space() else { return };
        if passed {
            let free = self.free_of(bitmap, group);
            space.change(|f| match bitmap {
                Bitmap::Blocks => f.give_blocks_again(free),
                Bitmap::Inodes => f.give_inodes_again(free),
            });
        }
    }

    /// The number of free blocks or inodes of a group, by its descriptor; for inodes without those in
    /// unreadable blocks of the table.
    fn free_of(&self, bitmap: Bitmap, group: &GroupDesc) -> u64 {
        if bitmap == Bitmap::Blocks {
            return group.free_blocks.into();
        }
        let table = group.inode_table..group.inode_table.plus(self.sb.itable_blocks());
        let unread: u32 = self.damaged.unread.lock().range(table).map(|u| u.1.1).sum();
        group.free_inodes.saturating_sub(unread).into()
    }

    /// The error of reading a block of an inode table, if it could not be read.
    pub(super) fn unread_table(&self, block: BlockAddr) -> Option<Error> {
        if !self.damaged.any_unread.load(Relaxed) {
            return None;
        }
        self.damaged.unread.lock().get(&block).map(|u| u.0.clone())
    }

    /// Passes over the inodes of a block of an inode table from now on. Its `free` inodes are taken out of
    /// the count.
    pub(super) fn pass_over_table(&self, block: BlockAddr, free: u32, why: &Error) {
        self.damaged.any_unread.store(true, Relaxed);
        let new = self.damaged.unread.lock().insert(block, (why.clone(), free)).is_none();
        let Ok(space) = self.space() else { return };
        if new {
            space.change(|f| f.pass_inodes(free.into(), true));
        }
    }

    /// Notes that unused blocks or inodes stay marked as in use, as the bitmap of their group cannot be
    /// trusted.
    pub(super) fn leave_in_use(&self) {
        self.damaged.faults.store(true, Relaxed);
    }

    /// Passes over a group from now on, and takes its free blocks or inodes out of the counts. The volume
    /// itself goes on counting them where the bitmap could not be read, as nothing is wrong with the volume
    /// then.
    pub(super) fn pass_over(&self, bitmap: Bitmap, group: &GroupDesc, why: &Error) {
        self.damaged.any.store(true, Relaxed);
        if bitmap == Bitmap::Blocks {
            // A search names the damage.
            self.longest_free.forget(group.group);
        }
        let is_unread = why.kind() == ErrorKind::Io;
        let (is_new, is_worse) = {
            let mut found = self.damaged.found.lock();
            let new = || Passed { why: why.clone(), asked: 0 };
            let passed = found.entry((bitmap, group.group.0)).or_insert_with(new);
            passed.asked += 1;
            let is_worse = passed.why.kind() == ErrorKind::Io && !is_unread;
            if is_worse {
                passed.why = why.clone();
            }
            (passed.asked == 1, is_worse)
        };
        let Ok(space) = self.space() else { return };
        if !is_new && !is_worse {
            return;
        }
        let errno = why.errno().map_or(0, |e| e.raw_os_error() as u64);
        GROUP_CORRUPT.record([group.group.0.into(), (bitmap == Bitmap::Inodes).into(), errno]);
        if !is_unread {
            self.damaged.faults.store(true, Relaxed);
        }
        let free = self.free_of(bitmap, group);
        space.change(|f| match bitmap {
            Bitmap::Blocks => {
                // The block could be read this time, and is damaged.
                f.give_blocks_again(if is_worse { free } else { 0 });
                f.pass_blocks(free, is_unread);
            }
            Bitmap::Inodes => {
                f.give_inodes_again(if is_worse { free } else { 0 });
                f.pass_inodes(free, is_unread);
            }
        });
    }
}
