//! Repair: the faults that a check finds are mended, and everything that can be kept is.
//!
//! First the engine brings the volume to the state that was promised (orphans, roll-forward). Then each round
//! checks, walks all from the root with the means to change what cannot be, and writes one new checkpoint
//! that holds every change; a power cut leaves the volume as it was or as it should be. Memory is bounded by
//! bitmaps over the main area, the NAT, one directory, and the changes.
//!
//! | module | holds |
//! |---|---|
//! | `flow` | engine first, then rounds of check and repair |
//! | `disk` | blocks with their changes |
//! | `pack`, `map` | what it starts from: superblock, checkpoint, NAT, SIT |
//! | `claim` | who owns which block; summaries |
//! | `nodes`, `inode`, `areas`, `tree` | finding nodes, inodes, their layout, and what hangs on them |
//! | `dir`, `dots` | directories and their entries |
//! | `lost` | what nothing leads to |
//! | `alloc`, `insert`, `fresh` | new blocks, new entries, lost_found |
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
mod fresh;
mod inode;
mod insert;
mod lost;
mod map;
mod nodes;
mod pack;
#[cfg(test)]
mod tests;
mod tree;

pub use flow::repair;
pub use tidegate_vfs::offline::{Change, OnChange, Outcome, RepairOptions, RepairReport};

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::offline::areas::Areas;
use crate::offline::bits::Bits;
use crate::segment::zones::ZoneMap;
use claim::{Ssa, Usage};
use dir::Insert;
use disk::Disk;
use map::NatTable;
use pack::{Log, Pack, Summaries};
use std::collections::BTreeSet;
use tidegate_block::RequestQueue;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_vfs::{Error, ErrorKind, Result};

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
    fn load(queue: &'q RequestQueue, options: RepairOptions, on_change: OnChange<'c>) -> Result<Self> {
        let (sb, _) = pack::superblock(queue)?;
        if ZoneMap::load(queue, &sb)?.is_some_and(|z| z.is_on_device()) {
            let what = "a volume on zones is not mended in place: fsck.f2fs may mend it";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let disk = Disk::new(queue);
        let cp = pack::checkpoint(&disk, &sb)?;
        let pack = Pack::load(&disk, &sb, &cp)?;
        let nat = NatTable::load(&disk, &sb, &cp, &pack)?;
        let sit = map::load_sit(&disk, &sb, &cp, &pack)?;
        let main = sb.main_segments as u64 * BLOCKS_PER_SEG as u64;
        let extra = if sb.features.contains(Features::EXTRA_ATTR) { EXTRA_ISIZE } else { 0 };
        let nids = || Bits::new(sb.max_nid as u64);
        let usage = Usage::new(sb.main_segments);
        let mut r = Repair {
            sit,
            nat,
            nat_addrs: Bits::new(main),
            referred: Bits::new(main),
            keeps_ssa: false,
            logs: pack.logs,
            summaries: pack.summaries,
            ssa: Ssa::default(),
            usage,
            orphans: pack.orphans,
            lost: None,
            reached: nids(),
            is_inode: nids(),
            is_dir: nids(),
            links: HashMap::default(),
            stack: Vec::new(),
            inserts: Vec::new(),
            no_first_block: Vec::new(),
            lost_found: None,
            usual: Areas { extra, words: DEFAULT_INLINE_XATTR_ADDRS },
            options,
            on_change,
            changes: 0,
            notes: Vec::new(),
            disk,
            sb,
            cp,
        };
        let mut from = 0;
        while let Some((nid, e)) = r.nat.next_used(from) {
            from = nid + 1;
            if map::in_main(&r.sb, e.block_addr.get()) {
                r.nat_addrs.set(e.block_addr.get() - r.sb.main_blkaddr);
                r.referred.set(e.block_addr.get() - r.sb.main_blkaddr);
            }
        }
        r.keeps_ssa = r.follow_chain()?;
        for c in pack.changes {
            r.tell(c);
        }
        Ok(r)
    }

    /// Mends everything and writes it. `clear_flags`: nothing was found, so that the flags of an earlier
    /// error go.
    fn run(&mut self, clear_flags: bool) -> Result<()> {
        self.mend_root()?;
        self.mend_dirs()?;
        self.adopt_lost()?;
        self.free_unreached();
        self.mend_links()?;
        self.mend_logs(true)?;
        self.tell_maps();
        self.insert_all()?;
        let hurt = self.cp.flags & finish::HURT;
        if clear_flags && !hurt.is_empty() {
            self.change("checkpoint", "flags".into(), format!("{hurt:?}"), "none".into());
        }
        self.commit(clear_flags)
    }

    /// The root directory, which nothing can stand in for.
    fn mend_root(&mut self) -> Result<()> {
        let root = self.sb.root_ino;
        if let Some((_, block)) = self.find_node(root, root, 0)?
            && let Some(a) = areas::areas(&self.sb, &block)
        {
            self.usual = a;
        }
        let found = self.take_inode(root, file_type::DIR)?;
        let Some(i) = found.filter(|i| i.kind == inode::Kind::Directory) else {
            return Err(Error::corrupt("the root directory's inode is gone: nothing was changed"));
        };
        self.keep(i);
        self.stack.push((root, root));
        Ok(())
    }

    /// Mends the directories on the stack and all below them.
    fn mend_dirs(&mut self) -> Result<()> {
        while let Some((ino, parent)) = self.stack.pop() {
            self.mend_dir(ino, parent)?;
        }
        Ok(())
    }

    /// Notes what the chain of fsynced nodes behind the checkpoint refers to; whether there is one.
    fn follow_chain(&mut self) -> Result<bool> {
        let (mut at, stamp) = (self.cp.chain_start(&self.sb), self.cp.node_stamp());
        let (mut met, mut any) = (HashSet::default(), false);
        while self.sb.in_main(at) && met.insert(at) {
            let block = self.disk.block(at.0)?;
            let footer = RawNodeFooter::of(&block[..]);
            if !stamp.is_on(footer.cp_ver.get()) {
                break;
            }
            any = true;
            // Each word that may be an address: a block too many is kept.
            let words = (0..FOOTER_OFFSET / 4).map(|n| word(&block[..], n));
            for addr in words.chain([at.0]).filter(|a| map::in_main(&self.sb, *a)) {
                self.referred.set(addr - self.sb.main_blkaddr);
            }
            at = BlockAddr(footer.next_blkaddr.get());
        }
        Ok(any)
    }

    fn change(&mut self, what: &'static str, place: String, from: String, to: String) {
        self.tell(Change { what, place, from, to });
    }

    fn tell(&mut self, c: Change) {
        self.changes += 1;
        (self.on_change)(&c);
    }
}
