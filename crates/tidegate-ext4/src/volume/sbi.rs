//! The volume in memory.

use crate::alloc::{Counts, Damaged, Freed, GroupLocks, Preallocations, Space, Tables};
use crate::format::gate::Superblock;
use crate::inode::orphan::Orphans;
use crate::map::Behind;
use crate::volume::announce::Announced;
use crate::volume::blocks::Blocks;
use crate::volume::conversion::Conversions;
use crate::volume::options::Switches;
use crate::volume::ordered::Ordered;
use crate::volume::stats::Stats;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use tidegate_block::SharedPlug;
use tidegate_rt::{Mutex, Timespec};
use tidegate_vfs::planted::Planted;
use tidegate_vfs::{Error, ReadOnly};

/// An ext2, ext3 or ext4 volume. Shared by threads: nothing in it changes but caches.
pub struct Ext4 {
    pub(crate) sb: Superblock,
    pub(crate) blocks: Blocks,
    /// Why it is not changed; empty if it is.
    pub(crate) read_only: Option<ReadOnly>,
    /// The sums of all groups, once somebody has asked.
    pub(crate) counts: OnceLock<Counts>,
    /// Where its own tables are, once somebody has asked.
    pub(crate) tables: OnceLock<Tables>,
    /// The blocks of the journal, where it is in this volume.
    pub(crate) journal_blocks: Vec<Range<u64>>,
    /// Free blocks and inodes, if the volume is changed.
    pub(crate) space: Option<Space>,
    /// Blocks that a commit frees.
    pub(crate) freed: Freed,
    /// Blocks that are kept for files which grow.
    pub(crate) preallocations: Preallocations,
    /// Bios of passes over several inodes.
    pub(crate) plug: Arc<SharedPlug>,
    /// Data that commits wait for.
    pub(crate) ordered: Arc<Ordered>,
    /// The marker of written blocks, if the volume is changed and not filled.
    pub(crate) conversions: Option<Conversions>,
    /// Groups that nothing is taken from.
    pub(crate) damaged: Damaged,
    /// Inodes whose table has a smaller size than they.
    pub(crate) behind: Behind,
    /// Inodes without a name.
    pub(crate) orphans: Orphans,
    /// Held while an inode leaves a block of attributes that it shared.
    pub(crate) shared_xattrs: Mutex<()>,
    /// Locks on groups.
    pub(crate) group_locks: GroupLocks,
    /// Features that it got since it was opened.
    pub(crate) announced: Announced,
    /// Tells apart uses of one inode number.
    pub(crate) next_generation: AtomicU32,
    /// Counts of what was written.
    pub(crate) stats: Stats,
    /// Its switches.
    pub(crate) switches: Switches,
    /// The volume is being filled for the first time ([`Ext4Options::filling`](crate::Ext4Options::filling)).
    pub(crate) filling: bool,
    /// The bug that is planted, for tests.
    pub(crate) planted: Planted,
    /// The time that the volume's own fields get, if it is not the clock's.
    pub(crate) fixed_time: Option<Timespec>,
    /// Why changes ended, if they did.
    pub(crate) failure: OnceLock<Error>,
}
