//! Repair: the faults that a check finds are mended, and everything that can be kept is.
//!
//! First the engine brings the volume to the state that was promised (orphans, roll-forward). Then each round
//! checks, walks all from the root with the means to change what cannot be, and writes one new checkpoint
//! that holds every change; a power cut leaves the volume as it was or as it should be. Memory is bounded by
//! bitmaps over the main area, the NAT, one directory, and the changes.
//!
//! | module | holds |
//! |---|---|
//! | `flow`, `round` | engine first, then rounds of check and repair; one round |
//! | `disk` | blocks with their changes |
//! | `pack`, `map` | what it starts from: superblock, checkpoint, NAT, SIT |
//! | `claim` | who owns which block; summaries |
//! | `footer`, `nodes`, `inode`, `areas`, `tree` | finding nodes, inodes, their layout, and what hangs on them |
//! | `dir`, `dots` | directories and their entries |
//! | `lost` | what nothing leads to |
//! | `alloc`, `insert`, `waiting`, `fresh` | new blocks, new entries, those that wait, lost_found |
//! | `zones` | their places on zones |
//! | `commit`, `finish` | writing it |

mod alloc;
mod areas;
mod claim;
mod commit;
mod dir;
mod disk;
mod dots;
mod finish;
mod flow;
mod footer;
mod fresh;
mod inode;
mod insert;
mod lost;
mod map;
mod nodes;
mod pack;
mod round;
#[cfg(test)]
mod tests;
mod tree;
mod waiting;
mod zones;

pub use flow::repair;
pub use tidegate_vfs::offline::{Change, OnChange, Outcome, RepairOptions, RepairReport};

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::areas::Areas;
use crate::offline::bits::Bits;
use claim::{Ssa, Usage};
use dir::Insert;
use disk::Disk;
use map::NatTable;
use pack::{Log, Summaries};
use std::collections::BTreeSet;
use tidegate_block::RequestQueue;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_vfs::{Error, Result};
use zones::Zones;

/// One round of repair.
struct Repair<'q, 'c> {
    disk: Disk<'q>,
    sb: Superblock,
    cp: Checkpoint,
    /// The SIT as the last checkpoint has it.
    sit: Vec<RawSitEntry>,
    nat: NatTable,
    /// Blocks that the NAT has nodes in.
    nat_addrs: Bits,
    /// Blocks that the last checkpoint or the chain behind it refers to, as far as they were come upon. The
    /// SIT, which should know the former, may be damaged. Nothing is written there, so that a repair that is
    /// cut off and run again finds what it found.
    referred: Bits,
    /// A chain of fsynced nodes that is not recovered, and may be once the summaries are mended: these wait
    /// until the new checkpoint has ended it.
    keeps_ssa: bool,
    logs: [Log; NR_CURSEG_TYPE],
    /// Summaries of the segments that logs work on; whether they were in the pack.
    summaries: HashMap<u32, (Summaries, bool)>,
    ssa: Ssa,
    usage: Usage,
    /// Of a device with zones.
    zones: Option<Zones>,
    orphans: BTreeSet<u32>,
    /// Nodes that the NAT has lost: block and version. None while not looked for.
    lost: Option<HashMap<u32, (u32, u64)>>,
    /// Nodes come upon; of these, inodes and directories.
    reached: Bits,
    is_inode: Bits,
    is_dir: Bits,
    /// Link counts and names found, of what has more or less than one.
    links: HashMap<u32, (u32, u32)>,
    /// Directories to mend, with their parents.
    stack: Vec<(u32, u32)>,
    inserts: Vec<Insert>,
    /// Directories without a first block, with their parents.
    no_first_block: Vec<(u32, u32)>,
    lost_found: Option<u32>,
    /// How inodes are laid out here.
    usual: Areas,
    options: RepairOptions,
    on_change: OnChange<'c>,
    changes: u64,
    notes: Vec<String>,
}

impl<'q, 'c> Repair<'q, 'c> {
    fn change(&mut self, what: &'static str, place: String, from: String, to: String) {
        self.tell(Change { what, place, from, to });
    }

    fn tell(&mut self, c: Change) {
        self.changes += 1;
        (self.on_change)(&c);
    }

    pub(super) fn inode_change(&mut self, ino: u32, field: &str, from: String, to: String) {
        self.change("inode", format!("inode {ino} {field}"), from, to);
    }
}
