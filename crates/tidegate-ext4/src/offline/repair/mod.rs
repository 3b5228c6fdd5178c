//! Repair: it corrects the faults that a check finds, and keeps everything that can be kept.
//!
//! First the journal is replayed. Then each round checks the volume, goes over all inodes and directories and
//! corrects impossible values, and writes the changes. Changes are gathered in memory. Their order of writing
//! ensures that an interrupted repair leaves a volume that another repair brings to an equal result: new
//! content goes to blocks that nothing on the volume names, and one block that refers to it takes it into
//! use. Memory is bounded by bitmaps, notes on inodes, one directory, and the changes.
//!
//! | module | holds |
//! |---|---|
//! | `flow` | the journal first, then rounds of check and repair |
//! | `disk` | blocks with their changes, and the order in which they are written |
//! | `superblock`, `agree`, `groups` | superblock and descriptors, and their copies |
//! | `journal` | replay, and a new journal where it is lost |
//! | `orphans` | files without a name |
//! | `inode`, `fields`, `special` | single inodes, and the format's own inodes |
//! | `map`, `build` | maps of files: read as far as they make sense, and rebuilt |
//! | `sealed` | nodes of maps whose checksum tells their inode |
//! | `claim` | blocks with two owners |
//! | `xattr` | extended attributes |
//! | `dir`, `entries`, `names`, `hashed` | directories, their blocks, their names, and their rebuilding |
//! | `lost` | inodes that nothing leads to |
//! | `alloc` | new blocks and inodes |
//! | `finish` | link counts, bitmaps, counters, the superblock |

mod agree;
mod alloc;
mod build;
mod claim;
mod dir;
mod disk;
mod entries;
mod fields;
mod finish;
mod flow;
mod groups;
mod hashed;
mod inode;
mod journal;
mod lost;
mod map;
mod names;
mod orphans;
mod sealed;
mod special;
mod superblock;
mod xattr;

pub use flow::repair;
pub use superblock::has_copy;
pub use tidegate_vfs::offline::{Change, OnChange, Outcome, RepairOptions, RepairReport};

use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::offline::bits::Bits;
use crate::offline::node::{Kind, Node};
use disk::Disk;
use groups::Desc;
use hashed::NewEntry;
use map::Run;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_vfs::{ErrorKind, Result};

/// Notes on an inode in use.
#[derive(Clone, Copy, Default)]
struct State {
    kind: Option<Kind>,
    /// The inode is for the format's own use.
    special: bool,
    /// Something of the inode was wrong: in doubt, another inode keeps a shared block.
    mended: bool,
    links: u32,
    /// Number of entries that name it, "." and ".." not counted.
    names: u32,
    subdirs: u32,
    parent: u32,
    /// The inode is a directory that the walk has reached.
    reached: bool,
}

/// One round of repair.
struct Repair<'q, 'c> {
    disk: Disk<'q>,
    sb: Superblock,
    /// The superblock as it lies on the volume.
    before: Box<RawSuperblock>,
    descs: Vec<Desc>,
    /// Blocks with an owner.
    used: Bits,
    /// Blocks of the format's own tables.
    meta: Bits,
    /// Blocks that anything on the volume names. Nothing is written to these blocks, so that a repair that is
    /// interrupted and run again finds the same content.
    seen: Bits,
    /// Blocks with more than one owner.
    shared: BTreeSet<u64>,
    /// Number of claims of blocks that had an owner.
    claims: u64,
    /// Number of blocks of maps that were read.
    walked: u64,
    /// The current inode has the attribute of encryption, or may have it.
    context: bool,
    used_inodes: Bits,
    /// The states of each group, as far as its inodes are in use.
    states: Vec<Vec<State>>,
    /// The inodes of the orphan list and of the orphan file.
    orphans: BTreeSet<u32>,
    /// Blocks of attributes with their users.
    attributes: BTreeMap<u64, u32>,
    /// Blocks of maps.
    map_blocks: Bits,
    /// Nodes of extent trees that have the checksum of their inode; none before they are needed.
    sealed_nodes: Option<Bits>,
    /// Inodes whose maps are rebuilt, with their blocks.
    rebuild: BTreeMap<u32, Vec<Run>>,
    /// Directories that are rebuilt, with their new entries.
    remake: BTreeMap<u32, Vec<NewEntry>>,
    /// Directories whose hash trees a check found damaged.
    bad_trees: BTreeSet<u32>,
    lost_found: Option<u32>,
    /// No block is free any more.
    full: bool,
    /// Groups in which a name of an inode was found that should never have been used.
    doubted: BTreeSet<u32>,
    /// Start of the next search for a free block.
    next_block: u64,
    /// The resize inode's block of numbers, if it is right.
    resize_top: Option<u64>,
    journal_lost: bool,
    /// The journal's inode by the superblock's copy, if the one in the table is damaged.
    journal_inode: Option<Node>,
    /// The journal's first block and its length in blocks, if the first block is rewritten.
    journal_head: Option<(u64, u32)>,
    /// Groups whose descriptors on the volume are not trusted, and the reason.
    from_copies: Vec<(u32, &'static str)>,
    options: RepairOptions,
    on_change: OnChange<'c>,
    changes: u64,
    notes: Vec<String>,
}

impl Repair<'_, '_> {
    /// Repairs everything and writes the changes.
    fn run(&mut self) -> Result<()> {
        for (g, why) in std::mem::take(&mut self.from_copies) {
            self.tell("group", format!("descriptor {g}"), why, "made anew");
        }
        self.mend_features()?;
        self.mend_orphan_file();
        self.claim_metadata();
        self.load_orphans()?;
        self.mend_inodes()?;
        self.mend_shared()?;
        self.mend_resize_inode()?;
        self.mend_journal()?;
        self.mend_root()?;
        self.mend_tree(ROOT_INO, ROOT_INO)?;
        let adopted = self.adopt_lost();
        self.or_left(adopted, "what nothing leads to")?;
        self.remake_dirs()?;
        self.mend_links()?;
        self.mend_refcounts()?;
        self.end_orphans()?;
        let counts = self.mend_groups()?;
        let sb = self.final_superblock(&counts)?;
        self.mend_copies(&sb)?;
        self.mend_desc_copies()?;
        if self.options.dry_run {
            return Ok(());
        }
        self.disk.put_off(&self.shared);
        self.disk.commit(&self.before, &sb)
    }

    fn tell(&mut self, what: &'static str, place: impl ToString, from: impl ToString, to: impl ToString) {
        self.changes += 1;
        let (place, from, to) = (place.to_string(), from.to_string(), to.to_string());
        (self.on_change)(&Change { what, place, from, to });
    }

    /// Leaves out changes for which there is no space, so that the rest is repaired.
    ///
    /// # Errors
    /// All except `NoSpace`.
    fn or_left(&mut self, done: Result<()>, what: &str) -> Result<()> {
        match done {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.notes.push(format!("{what} is left as it is: no block is free"));
                Ok(())
            }
            done => done,
        }
    }

    /// Group of an inode, and its place there.
    fn place(&self, ino: u32) -> (usize, usize) {
        let (index, per) = (ino.wrapping_sub(1), self.sb.inodes_per_group);
        ((index / per) as usize, (index % per) as usize)
    }

    fn state(&self, ino: u32) -> State {
        let (group, slot) = self.place(ino);
        self.states.get(group).and_then(|g| g.get(slot)).copied().unwrap_or_default()
    }

    /// The notes on `ino`, to be changed.
    fn state_mut(&mut self, ino: u32) -> &mut State {
        let (group, slot) = self.place(ino);
        let states = &mut self.states[group];
        if states.len() <= slot {
            states.resize(slot + 1, State::default());
        }
        &mut states[slot]
    }

    fn is_inode(&self, ino: u32) -> bool {
        (1..=self.sb.raw.s_inodes_count.get()).contains(&ino)
    }

    /// Gives `block` an owner; true if it had none.
    fn claim(&mut self, block: u64) -> bool {
        self.seen.set(block);
        self.used.set(block)
    }
}
