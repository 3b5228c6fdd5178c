//! The volume in memory.

use crate::alloc::{
    Counts, Damaged, FlexGroups, Freed, GroupLocks, LongestFree, Preallocations, Space, Tables,
};
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

/// An ext2, ext3 or ext4 volume, shared by threads.
pub struct Ext4 {
    pub(crate) sb: Superblock,
    pub(crate) blocks: Blocks,
    /// The reason why the volume is not changed; empty if it is.
    pub(crate) read_only: Option<ReadOnly>,
    /// The sums of all groups, and of each flex group, computed when they are first needed.
    pub(crate) counts: OnceLock<(Counts, FlexGroups)>,
    /// The places of the volume's own tables, computed when they are first needed.
    pub(crate) tables: OnceLock<Tables>,
    /// The blocks of the journal, if it is on this volume.
    pub(crate) journal_blocks: Vec<Range<u64>>,
    /// Free blocks and inodes, if the volume is changed.
    pub(crate) space: Option<Space>,
    /// Blocks that a commit frees.
    pub(crate) freed: Freed,
    /// Blocks that are kept for files which grow.
    pub(crate) preallocations: Preallocations,
    /// The longest free runs.
    pub(crate) longest_free: LongestFree,
    /// Bios of passes over several inodes.
    pub(crate) plug: Arc<SharedPlug>,
    /// Data that commits wait for.
    pub(crate) ordered: Arc<Ordered>,
    /// The thread that marks blocks written, if the volume is changed and not being filled.
    pub(crate) conversions: Option<Conversions>,
    /// Groups from which nothing is taken.
    pub(crate) damaged: Damaged,
    /// Inodes whose size in the table is smaller than in memory.
    pub(crate) behind: Behind,
    /// Inodes without a name.
    pub(crate) orphans: Orphans,
    /// Held while an inode leaves a block of attributes that it shared.
    pub(crate) shared_xattrs: Mutex<()>,
    /// The number of groups of a flex group that directories are dealt out to.
    pub(crate) groups_for_directories: usize,
    /// Locks on groups.
    pub(crate) group_locks: GroupLocks,
    /// Features that the volume got since it was opened.
    pub(crate) announced: Announced,
    /// Tells uses of one inode number apart.
    pub(crate) next_generation: AtomicU32,
    /// Counts of what was written.
    pub(crate) stats: Stats,
    /// Its switches.
    pub(crate) switches: Switches,
    /// The volume is being filled for the first time ([`Ext4Options::filling`](crate::Ext4Options::filling)).
    pub(crate) filling: bool,
    /// The planted bug, for tests.
    pub(crate) planted: Planted,
    /// The time for the volume's own fields, if it is not the clock's.
    pub(crate) fixed_time: Option<Timespec>,
    /// The reason why changes were stopped, if they were.
    pub(crate) failure: OnceLock<Error>,
}
