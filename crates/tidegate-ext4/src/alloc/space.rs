//! Counts of free blocks and inodes, and promises of space for pages that have no place yet.

use crate::volume::sbi::Ext4;
use std::cell::Cell;
use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_rt::{Condvar, LockClass, Mutex, WaitQueue, thread};
use tidegate_vfs::{Error, ErrorKind, ReadOnly, Result};

thread::local!(static PLACED_HERE: Cell<u64> = const { Cell::new(0) });

static SPACE: LockClass = LockClass::new("ext4->space", 522);

/// Data blocks for each map block that promised data of files with extents may need. Pieces of a nearly full volume are
/// small, and a map grows by a few blocks for its levels.
pub(crate) const DATA_PER_MAP: u64 = 4;
/// Data blocks for each map block in a volume that is filled for the first time: its pieces are as large as
/// the files.
pub(crate) const DATA_PER_MAP_NEW: u64 = 1024;
const LEVELS: u64 = 8;

/// Space that is promised. Of a block map it is known which blocks of numbers lead to the data; an extent tree depends on
/// the pieces that will be found, and gets a share ([`DATA_PER_MAP`]) for its leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    /// Blocks of data of files with extents.
    pub extents: u64,
    /// Blocks of data of files with block maps.
    pub mapped: u64,
    /// Blocks of numbers on the way to those, and a node for each file whose extents may no longer fit in the inode.
    pub nodes: u64,
}

impl Promise {
    /// The blocks of data.
    pub(crate) fn data(self) -> u64 {
        self.extents + self.mapped
    }
}

impl AddAssign for Promise {
    fn add_assign(&mut self, more: Promise) {
        self.extents += more.extents;
        self.mapped += more.mapped;
        self.nodes += more.nodes;
    }
}

impl SubAssign for Promise {
    fn sub_assign(&mut self, less: Promise) {
        debug_assert!(self.extents >= less.extents && self.mapped >= less.mapped && self.nodes >= less.nodes);
        self.extents = self.extents.saturating_sub(less.extents);
        self.mapped = self.mapped.saturating_sub(less.mapped);
        self.nodes = self.nodes.saturating_sub(less.nodes);
    }
}

/// Free blocks and inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Free {
    /// Free blocks, the promised ones included.
    pub blocks: u64,
    /// The space that is promised.
    pub promised: Promise,
    /// Blocks that threads without a promise search for, and may be taking just now.
    pub claimed: u64,
    /// Inodes.
    pub inodes: u64,
    /// Number of directories.
    pub directories: u64,
    /// Promised blocks of files with extents for each map block that is kept.
    pub data_per_map: u64,
    /// Further free blocks and inodes that are not used, as the structures that describe them cannot be read:
    /// the volume counts them.
    pub unread: (u64, u64),
}

impl Free {
    /// The blocks that are kept for promised data: the data blocks and their map blocks.
    fn kept(&self, promised: Promise) -> u64 {
        let data = promised.data();
        data + match self.data_per_map {
            // Where that is not enough, the volume is made again, larger.
            DATA_PER_MAP_NEW => data / DATA_PER_MAP_NEW,
            _ if promised.extents == 0 => promised.nodes,
            n => promised.nodes + promised.extents.div_ceil(n) + LEVELS,
        }
    }
}

impl Free {
    /// Takes free blocks out of the count; the volume goes on counting them if `is_unread`.
    pub(super) fn pass_blocks(&mut self, blocks: u64, is_unread: bool) {
        let passed = blocks.min(self.blocks);
        self.blocks -= passed;
        self.unread.0 += if is_unread { passed } else { 0 };
    }

    /// Takes free inodes out of the count; the volume goes on counting them if `is_unread`.
    pub(super) fn pass_inodes(&mut self, inodes: u64, is_unread: bool) {
        let passed = inodes.min(self.inodes);
        self.inodes -= passed;
        self.unread.1 += if is_unread { passed } else { 0 };
    }

    /// Counts blocks again that were passed over unread.
    pub(super) fn give_blocks_again(&mut self, blocks: u64) {
        let again = blocks.min(self.unread.0);
        (self.blocks, self.unread.0) = (self.blocks + again, self.unread.0 - again);
    }

    /// Counts inodes again that were passed over unread.
    pub(super) fn give_inodes_again(&mut self, inodes: u64) {
        let again = inodes.min(self.unread.1);
        (self.inodes, self.unread.1) = (self.inodes + again, self.unread.1 - again);
    }

    /// Blocks that are neither promised for data nor kept for its map.
    pub(crate) fn unpromised(&self) -> u64 {
        self.blocks.saturating_sub(self.kept(self.promised))
    }
}

/// The counts of a volume that is changed.
pub(crate) struct Space {
    free: Mutex<Free>,
    /// Notified when a claim is given back.
    unclaimed: Condvar,
    /// How often a thread has begun, and ended, to give promised blocks places.
    placings: (AtomicU64, AtomicU64),
    /// Woken when one has ended.
    placed: WaitQueue,
}

/// A thread that gives promised blocks places: until the end, such blocks are taken and still promised.
pub(crate) struct Placing<'a>(&'a Space);

impl Drop for Placing<'_> {
    fn drop(&mut self) {
        PLACED_HERE.set(PLACED_HERE.get() + 1);
        self.0.placings.1.fetch_add(1, SeqCst);
        self.0.placed.wake_all();
    }
}

impl Space {
    pub(crate) fn new(free: Free) -> Self {
        Space {
            free: Mutex::new(&SPACE, free),
            unclaimed: Condvar::new(),
            placings: Default::default(),
            placed: WaitQueue::new(),
        }
    }

    /// Begins to give promised blocks places.
    pub(crate) fn placing(&self) -> Placing<'_> {
        self.placings.0.fetch_add(1, SeqCst);
        Placing(self)
    }

    /// How often a thread has ended to give promised blocks places.
    pub(crate) fn placings_ended(&self) -> u64 {
        self.placings.1.load(SeqCst)
    }

    /// How often the calling thread has ended to give promised blocks places, on any volume.
    pub(crate) fn placings_ended_here() -> u64 {
        PLACED_HERE.get()
    }

    /// Waits for the end of one that goes on; true if one has ended since `seen`. The caller has no handle, and holds no
    /// lock that the owner of a handle takes.
    pub(crate) fn wait_placed(&self, seen: u64) -> bool {
        let is_over = || self.placings_ended() != seen;
        if !is_over() && self.placings.0.load(SeqCst) == seen {
            return false;
        }
        self.placed.wait_until(is_over);
        true
    }

    /// The counts now.
    pub(crate) fn now(&self) -> Free {
        *self.free.lock()
    }

    pub(super) fn change(&self, f: impl FnOnce(&mut Free)) {
        f(&mut self.free.lock());
    }

    /// Promises space, and leaves `reserved` blocks. Waits for claims that are in the way: a claim may take fewer blocks
    /// than it holds.
    ///
    /// # Errors
    /// `NoSpace`; nothing is promised then.
    pub(crate) fn promise(&self, more: Promise, reserved: u64) -> Result<()> {
        let mut free = self.free.lock();
        loop {
            let mut all = free.promised;
            all += more;
            let wanted = free.kept(all) + reserved;
            if more == Promise::default() || wanted + free.claimed <= free.blocks {
                free.promised = all;
                return Ok(());
            }
            if wanted > free.blocks || free.claimed == 0 {
                return Err(ErrorKind::NoSpace.into());
            }
            self.unclaimed.wait(&mut free);
        }
    }

    /// Claims as many of `want` blocks as are not promised, before the search for them: other threads that
    /// search meanwhile must not count on the same blocks. Linux does the same in `ext4_claim_free_clusters`.
    /// Waits where other threads have claimed everything: they take less, or the space is gone soon. No
    /// thread waits here with a claim of its own, nor with a group's lock.
    ///
    /// # Errors
    /// `NoSpace` when all the rest is promised.
    pub(super) fn claim(&self, want: u32, kept_back: u64) -> Result<u32> {
        let mut free = self.free.lock();
        loop {
            let room = free.unpromised().saturating_sub(kept_back);
            let left = room.saturating_sub(free.claimed);
            let claimed = u32::try_from(left).map_or(want, |left| want.min(left));
            if claimed > 0 {
                free.claimed += u64::from(claimed);
                return Ok(claimed);
            }
            if room == 0 || free.claimed == 0 {
                return Err(ErrorKind::NoSpace.into());
            }
            self.unclaimed.wait(&mut free);
        }
    }

    /// Gives a claim back after its blocks were taken or not found.
    pub(super) fn unclaim(&self, claimed: u32) {
        let mut free = self.free.lock();
        debug_assert!(free.claimed >= claimed.into());
        free.claimed = free.claimed.saturating_sub(claimed.into());
        self.unclaimed.notify_all();
    }

    /// Takes a promise back.
    pub(crate) fn release(&self, promise: Promise) {
        self.free.lock().promised -= promise;
    }
}

impl Ext4 {
    /// The counts of a volume that is changed.
    ///
    /// # Errors
    /// `ReadOnly` for one that is not.
    pub(crate) fn space(&self) -> Result<&Space> {
        let refused = || Error::read_only(self.read_only.as_ref().unwrap_or(&ReadOnly::Asked));
        self.space.as_ref().ok_or_else(refused)
    }
}
