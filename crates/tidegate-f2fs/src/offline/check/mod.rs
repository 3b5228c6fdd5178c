//! A read-only consistency check of a volume, written from the format.
//!
//! The check shares only the raw structures and the gate with the engine, so that a mistake in the engine
//! does not hide itself. It reads the last checkpoint, and ignores changes that an unclean volume would roll
//! forward. It visits every node and block once, so damage cannot make it loop.
//!
//! | module | holds |
//! |---|---|
//! | `rules` | every rule: name and sentence |
//! | `report`, `place` | the problems found so far; the inode that one is about |
//! | `device` | reading with a small cache |
//! | `pack` | superblock, checkpoint, orphans, summaries, journals |
//! | `nat` | the NAT and nat_bits |
//! | `walk` | from the root to every inode; names and links |
//! | `node`, `inode` | a node and its footer; an inode by itself |
//! | `tree` | a file's nodes and block addresses |
//! | `dir` | directory entries |
//! | `xattr` | extended attributes |
//! | `usage` | owners of blocks, summaries |
//! | `sit` | the SIT, the logs, the counters |

mod chain;
mod device;
mod dir;
mod inode;
mod nat;
mod node;
mod pack;
mod place;
mod report;
mod rules;
mod sit;
#[cfg(test)]
pub(crate) mod tests;
mod tree;
mod usage;
mod walk;
mod xattr;

pub use tidegate_vfs::offline::{CheckOptions, CheckReport, Problem, Progress};

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::CpFlags;
use crate::offline::bits::Bits;
use crate::segment::zones::ZoneMap;
use crate::volume::devices::{TELLING, check_devices};
use device::Reader;
use nat::NatTable;
use pack::Pack;
use report::Findings;
use tidegate_block::RequestQueue;
use tidegate_rt::hash::HashMap;
use tidegate_vfs::Result;
use usage::Usage;
use walk::{Links, Pending};

/// A check under way.
struct Checker<'q> {
    dev: Reader<'q>,
    sb: Superblock,
    cp: Checkpoint,
    pack: Pack,
    nat: NatTable,
    /// Nodes that the walk has reached.
    reached: Bits,
    usage: Usage,
    /// The zones of a volume on zones.
    zones: Option<ZoneMap>,
    found: Findings,
    pending: Vec<Pending>,
    links: HashMap<u32, Links>,
    files: u64,
    directories: u64,
    others: u64,
    orphans: u64,
    progress: Option<Progress>,
}

/// Checks the volume behind `queue` in the state of its last checkpoint. Nothing is written.
///
/// # Errors
/// When no superblock or no checkpoint can be loaded, when a feature is not known, when a device is not the
/// volume's, and when the device fails. All other damage is in the report.
pub fn check(queue: &RequestQueue, options: CheckOptions) -> Result<CheckReport> {
    let mut c = Checker::load(queue, options)?;
    let dead = c.zones.as_ref().and_then(|z| z.why_dead(&c.sb));
    // A block that cannot be read may well be in a dead zone.
    c.run().map_err(|e| match &dead {
        Some(why) if e.errno().is_some() => e.of(why.clone()),
        _ => e,
    })?;
    c.found.notes.extend(dead.map(|why| format!("{why}: the volume opens read-only")));
    c.note_lost();
    Ok(c.report())
}

impl<'q> Checker<'q> {
    fn load(queue: &'q RequestQueue, options: CheckOptions) -> Result<Self> {
        let dev = Reader::new(queue);
        let mut found = Findings::new(options.max_problems);
        let sb = pack::superblock(&dev, &mut found)?;
        let cp = pack::checkpoint(&dev, &sb, &mut found)?;
        let pack = Pack::load(&dev, &sb, &cp, &mut found)?;
        let journal = |nid| pack.nat_journal.iter().rev().find(|e| e.nid.get() == nid).map(|e| e.ne);
        check_devices(queue, &sb, &cp, journal, TELLING)?;
        let nat = NatTable::load(&dev, &sb, &cp)?;
        let mut c = Checker {
            reached: Bits::new(sb.max_nid as u64),
            usage: Usage::new(&sb),
            zones: ZoneMap::load(queue, &sb)?,
            dev,
            sb,
            cp,
            pack,
            nat,
            found,
            pending: Vec::new(),
            links: HashMap::default(),
            files: 0,
            directories: 0,
            others: 0,
            orphans: 0,
            progress: options.progress,
        };
        // nat_bits describe the NAT blocks alone, without the journal.
        c.check_nat_bits()?;
        c.nat.apply(&c.pack);
        Ok(c)
    }

    fn run(&mut self) -> Result<()> {
        self.check_nat();
        self.walk()?;
        self.check_nat_reached();
        self.check_sit()?;
        self.check_chain()
    }

    /// Reports how much of the volume is in zones that have lost their content: a check reads no file's data.
    fn note_lost(&mut self) {
        let Some(zones) = &self.zones else { return };
        let lost = (0..self.sb.main_segments).filter(|s| zones.is_lost(*s));
        let blocks: u64 = lost.map(|s| u64::from(self.usage.seen.count(s))).sum();
        if blocks > 0 {
            self.found
                .notes
                .push(format!("{blocks} blocks in use are in zones that have lost their content"));
        }
    }

    fn report(self) -> CheckReport {
        CheckReport {
            problems: self.found.problems,
            total_problems: self.found.total,
            notes: self.found.notes,
            files: self.files,
            directories: self.directories,
            others: self.others,
            nodes: self.usage.nodes,
            blocks: self.usage.blocks,
            orphans: self.orphans,
            unclean: !self.cp.flags.contains(CpFlags::UMOUNT),
            rules: rules::ALL,
        }
    }
}
