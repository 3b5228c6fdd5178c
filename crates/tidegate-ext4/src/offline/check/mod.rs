//! A read-only consistency check of a volume, written from the format.
//!
//! The check shares only the raw structures, the gate and the recovery of journals with the engine, so that a
//! mistake in the engine does not hide itself. Blocks in the journal are read in place of the volume's. Each
//! block is claimed once and each map walked once, so damage cannot make the check loop. It does not look at
//! the content of quota files and of the multi-mount block. It refuses volumes with bigalloc, shared_blocks,
//! inline_data or ea_inode, and names the feature.
//!
//! | module | holds |
//! |---|---|
//! | `rules` | every rule: name and sentence |
//! | `report` | the problems found so far |
//! | `durable` | the journal, lists of orphans |
//! | `groups` | descriptors, bitmaps, counters |
//! | `inode` | an inode by itself |
//! | `tree` | extents, and blocks of numbers |
//! | `xattr` | extended attributes |
//! | `dir` | directories, names and links |
//! | `htree` | their hash trees |

mod dir;
pub(in crate::offline) mod durable;
mod groups;
mod htree;
mod inode;
mod report;
mod rules;
mod tree;
mod xattr;

pub use tidegate_vfs::offline::{CheckOptions, CheckReport, Problem, Progress};

use crate::format::gate::{GroupDesc, Journal, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::bits::Bits;
use crate::offline::device::Reader;
use crate::offline::node::Kind;
use crate::volume::open::load_superblock;
use report::Findings;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_vfs::{Error, ErrorKind, Result};

/// Notes on an inode in use.
#[derive(Clone, Copy, Default)]
struct InodeState {
    kind: Option<Kind>,
    /// The inode is for the format's own use.
    special: bool,
    /// The walk of its map found no problem.
    sound: bool,
    links: u32,
    /// Number of entries that name it, "." and ".." not counted.
    names: u32,
    subdirs: u32,
    parent: u32,
    dotdot: u32,
}

/// A check under way.
struct Checker<'q> {
    dev: Reader<'q>,
    sb: Superblock,
    groups: Vec<Option<GroupDesc>>,
    found: Findings,
    /// Blocks with an owner.
    used: Bits,
    /// Blocks of the format's own tables.
    meta: Bits,
    blocks: u64,
    used_inodes: Bits,
    /// The states of each group, as far as its inodes are in use.
    states: Vec<Vec<InodeState>>,
    dirs_of_group: Vec<u32>,
    orphans: HashSet<u32>,
    /// Blocks of attributes: the number of users in the block, and the number found.
    shared_attributes: BTreeMap<u64, (u32, u32)>,
    /// Directories whose hash trees are damaged.
    bad_trees: BTreeSet<u32>,
    /// The current inode has the attribute of encryption, or may have it.
    context: bool,
    recovered: bool,
    files: u64,
    directories: u64,
    others: u64,
    nodes: u64,
    progress: Option<Progress>,
    /// Blocks that could not be read, with the errors.
    unread: BTreeMap<u64, Error>,
    journal_unread: Option<Error>,
}

/// Most unreadable blocks before the device counts as broken.
const MOST_UNREAD: usize = 1000;

/// A completed check.
pub(in crate::offline) struct Checked {
    pub(in crate::offline) report: CheckReport,
    /// Directories whose hash trees are damaged.
    pub(in crate::offline) trees: BTreeSet<u32>,
    /// The first block that could not be read.
    pub(in crate::offline) unread: Option<Error>,
}

/// Checks the volume behind `queue`, together with its journal. Nothing is written.
///
/// # Errors
/// When the superblock cannot be used, when the check does not know a feature, and when the device fails for
/// the superblock or for more than a thousand blocks. All other damage is in the report.
pub fn check(queue: &Arc<RequestQueue>, options: CheckOptions) -> Result<CheckReport> {
    Ok(whole(queue, options)?.report)
}

/// A check with all of its findings.
pub(in crate::offline) fn whole(queue: &Arc<RequestQueue>, options: CheckOptions) -> Result<Checked> {
    by(queue, load_superblock(queue)?, options)
}

/// As [`whole`], with a superblock that need not be the one on the volume.
pub(in crate::offline) fn by(
    queue: &Arc<RequestQueue>,
    sb: Superblock,
    options: CheckOptions,
) -> Result<Checked> {
    refuse(&sb)?;
    let mut c = Checker::new(queue, sb, options);
    c.load_groups()?;
    c.load_journal(queue)?;
    c.check_state();
    c.check_copies()?;
    c.load_orphans()?;
    c.claim_metadata();
    c.check_resize_inode()?;
    c.check_inodes()?;
    c.check_refcounts();
    c.check_dirs()?;
    c.check_links();
    c.mark_reserved();
    c.check_groups()?;
    Ok(c.report())
}

/// Refuses features whose volumes the check does not understand as a whole.
pub(in crate::offline) fn refuse(sb: &Superblock) -> Result<()> {
    let named = [
        ("bigalloc", sb.ro_compat.contains(RoCompat::BIGALLOC)),
        ("shared_blocks", sb.ro_compat.contains(RoCompat::SHARED_BLOCKS)),
        ("inline_data", sb.incompat.contains(Incompat::INLINE_DATA)),
        ("ea_inode", sb.incompat.contains(Incompat::EA_INODE)),
    ];
    match named.iter().find(|n| n.1) {
        None => Ok(()),
        Some((name, _)) => {
            let what = format!("ext4 volumes with {name} are not checked yet: use e2fsck");
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    }
}

/// Whether a superblock claims no features.
pub(in crate::offline) fn superblock_names_nothing(raw: &RawSuperblock) -> bool {
    let words = [&raw.s_feature_compat, &raw.s_feature_incompat, &raw.s_feature_ro_compat];
    words.iter().all(|word| word.get() == 0)
}

impl<'q> Checker<'q> {
    fn new(queue: &'q RequestQueue, sb: Superblock, options: CheckOptions) -> Self {
        let inodes = u64::from(sb.raw.s_inodes_count.get()) + 1;
        Checker {
            dev: Reader::new(queue, sb.block_size),
            groups: Vec::new(),
            found: Findings::new(options.max_problems),
            used: Bits::new(sb.blocks),
            meta: Bits::new(sb.blocks),
            blocks: 0,
            used_inodes: Bits::new(inodes),
            states: vec![Vec::new(); sb.groups as usize],
            dirs_of_group: vec![0; sb.groups as usize],
            orphans: HashSet::new(),
            shared_attributes: BTreeMap::new(),
            bad_trees: BTreeSet::new(),
            context: false,
            recovered: false,
            files: 0,
            directories: 0,
            others: 0,
            nodes: 0,
            progress: options.progress,
            unread: BTreeMap::new(),
            journal_unread: None,
            sb,
        }
    }

    fn check_state(&mut self) {
        let flex = self.sb.raw.s_log_groups_per_flex;
        self.found.require(flex <= 31, rules::SB_FLEX, || format!("s_log_groups_per_flex is {flex}"));
        let none = self.sb.raw.s_rev_level.get() > 0 || superblock_names_nothing(&self.sb.raw);
        self.found.require(none, rules::SB_REVISION, || "it names features, and is of revision 0".into());
        let (journal, raw) = (self.sb.journal, &self.sb.raw);
        let named = raw.s_journal_dev.get() != 0 || raw.s_journal_uuid != [0; 16];
        let names_none = match journal {
            Journal::None => raw.s_journal_inum.get() == 0 && !named,
            Journal::Inode(_) => !named,
            Journal::Device => true,
        };
        self.found
            .require(names_none, rules::JOURNAL, || "the superblock names one that is not in use".into());
        let orphans = raw.s_orphan_file_inum.get();
        let named = orphans == 0 || self.sb.compat.contains(Compat::ORPHAN_FILE);
        self.found.require(named, rules::ORPHAN_FILE, || {
            format!("the superblock names inode {orphans}, and has not the feature")
        });
        let file = self.sb.names_orphan_file() && journal != Journal::None;
        let sound = file || !self.sb.compat.contains(Compat::ORPHAN_FILE);
        self.found.require(sound, rules::SB_ORPHAN_FILE, || {
            format!("the feature is on, the journal is {journal:?}, and the file is inode {orphans}")
        });
        let resizes = self.sb.compat.contains(Compat::RESIZE_INODE);
        let meta_bg = self.sb.incompat.contains(Incompat::META_BG);
        self.found.require(!(resizes && meta_bg), rules::SB_FEATURES, || {
            "meta_bg and resize_inode exclude each other".into()
        });
        let kept = raw.s_reserved_gdt_blocks.get();
        self.found.require(resizes || kept == 0, rules::SB_FEATURES, || {
            format!("s_reserved_gdt_blocks is {kept}, and resize_inode is off")
        });
        let room = u32::from(raw.s_inode_size.get()).saturating_sub(INODE_BASE as u32);
        let extra = u32::from(raw.s_min_extra_isize.get().max(raw.s_want_extra_isize.get()));
        self.found.require(extra <= room, rules::SB_FEATURES, || {
            format!("inodes are to have {extra} bytes of extra fields, and have room for {room}")
        });
        let quotas = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        let counted = self.sb.ro_compat.contains(RoCompat::QUOTA);
        self.found.require(counted || quotas == [0; 3], rules::SB_FEATURES, || {
            format!("quota files are inodes {quotas:?}, and quota is off")
        });
        let (cluster, per) = (raw.s_log_cluster_size.get(), raw.s_clusters_per_group.get());
        let same = cluster == raw.s_log_block_size.get() && per == self.sb.blocks_per_group;
        self.found.require(same, rules::SB_CLUSTERS, || {
            format!("s_log_cluster_size is {cluster}, s_clusters_per_group {per}")
        });
        if self.sb.ro_compat.contains(RoCompat::QUOTA) {
            self.found
                .notes
                .push("the usage that quota files record is not looked at: use e2fsck for it".into());
        }
        let kept = self.sb.reserved_blocks();
        self.found.require(kept <= self.sb.blocks / 2, rules::SB_RESERVED, || {
            format!("{kept} of {} blocks are kept", self.sb.blocks)
        });
        let state = State::from_bits_retain(self.sb.raw.s_state.get());
        let clean = state.contains(State::VALID) || self.recovered;
        self.found.require(clean && !state.contains(State::ERROR), rules::SB_STATE, || {
            format!("s_state is {:#x}", state.bits())
        });
    }

    /// Gives `block` an owner; true if it had none.
    fn claim(&mut self, block: u64) -> bool {
        let fresh = self.used.set(block);
        self.blocks += u64::from(fresh);
        fresh
    }

    fn on_volume(&self, block: u64, n: u64) -> bool {
        self.sb.holds(BlockAddr(block), n)
    }

    /// Group of an inode, and its place there.
    fn place(&self, ino: u32) -> (usize, usize) {
        let (index, per) = (ino.wrapping_sub(1), self.sb.inodes_per_group);
        ((index / per) as usize, (index % per) as usize)
    }

    fn state(&self, ino: u32) -> InodeState {
        let (group, slot) = self.place(ino);
        self.states.get(group).and_then(|g| g.get(slot)).copied().unwrap_or_default()
    }

    fn set_state(&mut self, ino: u32, state: InodeState) {
        let (group, slot) = self.place(ino);
        let Some(states) = self.states.get_mut(group) else { return };
        if states.len() <= slot {
            states.resize(slot + 1, InodeState::default());
        }
        states[slot] = state;
        self.nodes += 1;
    }

    fn change_state(&mut self, ino: u32, change: impl FnOnce(&mut InodeState)) {
        let (group, slot) = self.place(ino);
        if let Some(state) = self.states.get_mut(group).and_then(|g| g.get_mut(slot)) {
            change(state);
        }
    }

    /// Marks reserved inodes as taken, in use or not.
    fn mark_reserved(&mut self) {
        for ino in 1..self.sb.first_ino {
            self.used_inodes.set(ino.into());
        }
    }

    fn tell_progress(&mut self, group: u32) {
        let all = u64::from(self.sb.groups);
        if let Some(f) = &mut self.progress {
            f(u64::from(group) + 1, all);
        }
    }

    /// The bytes of `block`; zeros where it cannot be read, which is reported as a problem.
    ///
    /// # Errors
    /// Those of the device when too many blocks cannot be read; `Corrupt` behind its end.
    fn block(&mut self, block: u64) -> Result<Vec<u8>> {
        if !self.unread.contains_key(&block) {
            match self.dev.block(block) {
                Err(e) if e.kind() == ErrorKind::Io && self.unread.len() < MOST_UNREAD => {
                    self.unread.insert(block, e);
                }
                read => return read,
            }
        }
        Ok(vec![0; self.sb.block_size as usize])
    }

    fn report(mut self) -> Checked {
        self.found.add_first(rules::UNREAD, self.unread.values().map(Error::to_string));
        let unread = self.unread.into_values().next().or(self.journal_unread);
        let report = CheckReport {
            problems: self.found.problems,
            total_problems: self.found.total,
            notes: self.found.notes,
            files: self.files,
            directories: self.directories,
            others: self.others,
            nodes: self.nodes,
            blocks: self.blocks,
            orphans: self.orphans.len() as u64,
            unclean: self.recovered,
            rules: rules::ALL,
        };
        Checked { report, trees: self.bad_trees, unread }
    }
}
