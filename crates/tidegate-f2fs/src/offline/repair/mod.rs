//! Repair: it corrects the faults that a check finds, and keeps everything that can be kept.
//!
//! First the engine brings the volume to the state that was promised (orphans, roll-forward). Then each round
//! checks the volume, walks everything from the root and corrects impossible values, and writes one new
//! checkpoint that holds every change. A power cut leaves the volume as it was or as it should be. Memory is
//! bounded by bitmaps over the main area, the NAT, one directory, and the changes.
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
    /// Addresses of nodes, as the NAT has them.
    nat_addrs: Bits,
    /// Blocks that the last checkpoint or the chain behind it refers to, as far as the walk found them. The
    /// SIT should have the checkpoint's blocks, but may be damaged. Nothing is written to these blocks, so
    /// that a repair that is interrupted and run again finds the same content.
    referred: Bits,
    /// There is a chain of fsynced nodes that was not recovered, and that could be recovered once the
    /// summaries are corrected: the summaries are not written until the new checkpoint has ended the chain.
    keeps_ssa: bool,
    logs: [Log; NR_CURSEG_TYPE],
    /// Summaries of the logs' segments; whether the pack held them.
    summaries: HashMap<u32, (Summaries, bool)>,
    ssa: Ssa,
    usage: Usage,
    /// The zones of a device with zones.
    zones: Option<Zones>,
    orphans: BTreeSet<u32>,
    /// Nodes that the NAT has lost: block and version. None before the search.
    lost: Option<HashMap<u32, (u32, u64)>>,
    /// Nodes that the walk reached, and the inodes and directories among them.
    reached: Bits,
    is_inode: Bits,
    is_dir: Bits,
    /// Link counts and names found, for inodes where either is not one.
    links: HashMap<u32, (u32, u32)>,
    /// Directories to repair, with their parents.
    stack: Vec<(u32, u32)>,
    inserts: Vec<Insert>,
    /// Directories without a first block, with their parents.
    no_first_block: Vec<(u32, u32)>,
    lost_found: Option<u32>,
    /// Directories for inodes without a name that have no room.
    full_lost_founds: u32,
    /// The usual layout of the volume's inodes.
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
