//! The NAT: where each node is, and which node ids are free.
//!
//! Entries come from the journal, which overrides the table, or from the table's current copy; changed
//! ones stay in memory until a checkpoint puts them into the journal or into the other copy.
//!
//! No operation reads the device with `nat_tree_lock` held: an entry that is missing is read without it, and looked
//! for again. Only the checkpoint does, with operations frozen, for a block that it changes and memory lacks.
//!
//! Locks owned: `nm_i->build_lock` 395, `nm_i->nat_tree_lock` 400. Callers: everything that reads or makes a node.
//!
//! | module | holds |
//! |---|---|
//! | `free`, `scan` | free node ids; how far the search for them is |
//! | `ahead`, `flush` | blocks read before a checkpoint changes them; the changes that it writes |

mod ahead;
mod flush;
mod free;
mod scan;

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::tables::journal;
use crate::tables::meta::Meta;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use tidegate_block::PageBuf;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

static NAT_TREE_LOCK: LockClass = LockClass::new("nm_i->nat_tree_lock", 400);

/// Ids that many operations at once may take before one of them looks for more.
const SHORT: usize = 64;
/// Clean entries kept in memory.
const MAX_CLEAN: usize = 65_536;
const PER_BLOCK: u32 = NAT_ENTRY_PER_BLOCK as u32;

/// Where a node is and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatEntry {
    pub ino: u32,
    pub addr: BlockAddr,
    /// Counts the uses of the node id.
    pub version: u8,
}

impl From<RawNatEntry> for NatEntry {
    fn from(r: RawNatEntry) -> Self {
        // "Not placed yet" is a state of memory only; on the volume it is an address no node can have.
        let addr = match BlockAddr(r.block_addr.get()) {
            BlockAddr::NEW => BlockAddr::COMPRESS,
            addr => addr,
        };
        NatEntry { ino: r.ino.get(), addr, version: r.version }
    }
}

impl From<NatEntry> for RawNatEntry {
    fn from(e: NatEntry) -> Self {
        // A node that was never written has no place that another mount could use.
        let addr = if e.addr == BlockAddr::NEW { 0 } else { e.addr.0 };
        RawNatEntry { version: e.version, ino: e.ino.into(), block_addr: addr.into() }
    }
}

/// For each NAT block: all its ids in use, or none. Kept only while the volume's own are valid.
pub(crate) struct NatBits {
    pub full: Vec<u8>,
    pub empty: Vec<u8>,
}

impl NatBits {
    /// Blocks that they take at the end of a checkpoint pack, behind their key.
    pub(crate) fn blocks(&self) -> usize {
        (8 + self.full.len() + self.empty.len()).div_ceil(BLOCK_SIZE)
    }
}

/// Figures that others read without the lock.
#[derive(Default)]
struct NrDirty {
    /// Entries that changed since the checkpoint.
    dirty: AtomicU32,
    /// Ids that wait for the next one to be free.
    freed: AtomicU32,
    /// Few free ids are listed.
    short: AtomicBool,
}

pub(crate) struct NatState {
    counts: Arc<NrDirty>,
    /// Moves of nodes so far.
    moves: u64,
    entries: HashMap<u32, NatEntry>,
    dirty: BTreeSet<u32>,
    /// The entries of the checkpoint's journal.
    pub(crate) journal: BTreeMap<u32, NatEntry>,
    pub(crate) bitmap: Vec<u8>,
    pub(crate) bits: Option<NatBits>,
    /// Free ids and their versions, in the order they will be used.
    free: VecDeque<(u32, u8)>,
    /// Freed since the last checkpoint, which still uses them, with their next versions.
    freed: BTreeMap<u32, u8>,
    next_scan: u32,
    /// A whole round found no more: there are none but those that are listed, or freed and waiting.
    all_listed: bool,
    /// Counts flushes: a block read without the lock may be outdated by one.
    flushes: u64,
}

/// The node address table in memory.
pub(crate) struct Nat {
    state: Mutex<NatState>,
    scan: scan::Scan,
    counts: Arc<NrDirty>,
    nat_blkaddr: u32,
    max_nid: u32,
}

impl Nat {
    pub(crate) fn new(
        sb: &Superblock,
        cp: &Checkpoint,
        journal: BTreeMap<u32, NatEntry>,
        bits: Option<NatBits>,
    ) -> Self {
        // None is listed yet: the first operation looks for some before it takes locks.
        let counts = Arc::new(NrDirty { short: true.into(), ..NrDirty::default() });
        let state = NatState {
            counts: counts.clone(),
            moves: 0,
            entries: HashMap::default(),
            dirty: BTreeSet::new(),
            journal,
            bitmap: cp.nat_bitmap.clone(),
            bits,
            free: VecDeque::new(),
            freed: BTreeMap::new(),
            next_scan: cp.raw.next_free_nid.get() / PER_BLOCK,
            all_listed: false,
            flushes: 0,
        };
        let state = Mutex::new(&NAT_TREE_LOCK, state);
        Nat { state, scan: scan::Scan::default(), counts, nat_blkaddr: sb.nat_blkaddr, max_nid: sb.max_nid }
    }

    /// The address of the current copy of NAT block `block`. Copies interleave segment by segment.
    fn block_addr(&self, s: &NatState, block: u32) -> u32 {
        let base = self.nat_blkaddr + (block << 1) - (block & (BLOCKS_PER_SEG - 1));
        if test_bit_msb(&s.bitmap, block as usize) { base + BLOCKS_PER_SEG } else { base }
    }

    /// The entry of `nid`.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn lookup(&self, meta: &Meta, nid: Nid) -> Result<NatEntry> {
        loop {
            let (addr, flushes) = {
                let s = self.state.lock();
                if let Some(e) = s.known(nid.0) {
                    return Ok(e);
                }
                (self.block_addr(&s, nid.0 / PER_BLOCK), s.flushes)
            };
            let block = meta.read(addr)?;
            let entry = entry_in(block.bytes(), nid.0 % PER_BLOCK);
            let mut s = self.state.lock();
            if let Some(e) = s.known(nid.0) {
                return Ok(e);
            }
            if s.flushes == flushes {
                s.keep_clean(nid.0, entry);
                return Ok(entry);
            }
        }
    }

    /// Takes the free id `nid` for the inode of that number. It has no place yet.
    ///
    /// # Errors
    /// `Corrupt` when it is in use.
    pub(crate) fn claim(&self, meta: &Meta, nid: Nid) -> Result<()> {
        self.with_entries(meta, &[nid], |s, e| {
            if e[0].addr != BlockAddr::NULL {
                return Err(Error::corrupt("its number is in use and free at once").at(nid.place()));
            }
            s.free.retain(|n| n.0 != nid.0);
            s.set(nid.0, NatEntry { ino: nid.0, addr: BlockAddr::NEW, version: e[0].version });
            Ok(())
        })?
    }

    /// Frees a node if `may`, which is asked with the NAT locked: where it was. The id may be used again
    /// after the next checkpoint.
    pub(crate) fn free_if(
        &self,
        meta: &Meta,
        nid: Nid,
        may: impl FnOnce() -> bool,
    ) -> Result<Option<BlockAddr>> {
        self.with_entries(meta, &[nid], |s, old| {
            if !may() {
                return None;
            }
            let version = old[0].version.wrapping_add(1);
            s.set(nid.0, NatEntry { ino: 0, addr: BlockAddr::NULL, version });
            s.freed.insert(nid.0, version);
            s.count();
            Some(old[0].addr)
        })
    }

    /// Moves nodes to new places: the old ones, in the same order; `None` for a node that was freed
    /// meanwhile, which stays so.
    ///
    /// # Errors
    /// Those of reading the NAT; nothing was moved then.
    pub(crate) fn relocate(&self, meta: &Meta, moves: &[(Nid, BlockAddr)]) -> Result<Vec<Option<BlockAddr>>> {
        let nids: Vec<Nid> = moves.iter().map(|m| m.0).collect();
        self.with_entries(meta, &nids, |s, olds| {
            s.moves += 1;
            let mut change = |(nid, addr): &(Nid, BlockAddr), e: NatEntry| {
                let used = e.addr != BlockAddr::NULL;
                used.then(|| {
                    s.set(nid.0, NatEntry { addr: *addr, ..e });
                    e.addr
                })
            };
            moves.iter().zip(olds).map(|(m, e)| change(m, e)).collect()
        })
    }

    /// Runs `f` on the state and the entries of `nids`, in their order. Entries that memory has not are read before,
    /// without the lock.
    fn with_entries<R>(
        &self,
        meta: &Meta,
        nids: &[Nid],
        f: impl FnOnce(&mut NatState, Vec<NatEntry>) -> R,
    ) -> Result<R> {
        loop {
            let mut s = self.state.lock();
            let Some(missing) = nids.iter().find(|n| s.known(n.0).is_none()).copied() else {
                let entries = nids.iter().filter_map(|n| s.known(n.0)).collect();
                return Ok(f(&mut s, entries));
            };
            drop(s);
            self.lookup(meta, missing)?;
        }
    }

    /// How often nodes have moved.
    pub(crate) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// Runs `f` if the node is still at `addr`, with the NAT locked, so that it stays there; and if no node has
    /// moved since [`Nat::moves`] was `moves`, where that matters.
    pub(crate) fn if_at<R>(
        &self,
        meta: &Meta,
        (nid, addr): (Nid, BlockAddr),
        moves: Option<u64>,
        f: impl FnOnce() -> R,
    ) -> Result<Option<R>> {
        self.with_entries(meta, &[nid], |s, e| {
            let stayed = moves.is_none_or(|m| m == s.moves);
            (stayed && e[0].addr == addr).then(f)
        })
    }

    /// Versions of node ids, for summaries.
    pub(crate) fn versions(&self, meta: &Meta, nids: &[Nid]) -> Result<Vec<u8>> {
        self.with_entries(meta, nids, |_, e| e.iter().map(|e| e.version).collect())
    }

    /// Whether the node is where the last checkpoint has it.
    pub(crate) fn is_checkpointed(&self, nid: Nid) -> bool {
        !self.state.lock().dirty.contains(&nid.0)
    }

    /// Whether a checkpoint would have something to write.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.state.lock().dirty.is_empty()
    }

    /// Node ids whose nodes were made, written or freed since the last checkpoint, and those of them that
    /// are free from the next one on.
    pub(crate) fn nr_dirty(&self) -> (u32, u32) {
        (self.counts.dirty.load(Relaxed), self.counts.freed.load(Relaxed))
    }

    /// An id at or behind which a free one is likely, for the checkpoint.
    pub(crate) fn next_free_nid(&self) -> u32 {
        let s = self.state.lock();
        let nid = s.free.front().map_or(s.next_scan * PER_BLOCK, |f| f.0);
        nid.clamp(4, self.max_nid - 1)
    }

    /// Runs `f` on the state, for the checkpoint pack and `info`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&NatState) -> R) -> R {
        f(&self.state.lock())
    }
}

impl NatState {
    /// The journal as it goes into the hot-data summary.
    pub(crate) fn journal_bytes(&self) -> [u8; SUM_JOURNAL_SIZE] {
        let raw = |(nid, e): (&u32, &NatEntry)| RawNatJournalEntry { nid: (*nid).into(), ne: (*e).into() };
        journal::bytes_of(self.journal.iter().map(raw))
    }

    /// Whether to look for more.
    pub(super) fn is_short(&self) -> bool {
        self.free.len() < SHORT && !self.all_listed
    }

    fn known(&self, nid: u32) -> Option<NatEntry> {
        self.entries.get(&nid).or_else(|| self.journal.get(&nid)).copied()
    }

    /// Remembers what the volume says. When there is much of that, the rest of it is forgotten.
    fn keep_clean(&mut self, nid: u32, e: NatEntry) {
        if self.entries.len() >= MAX_CLEAN + self.dirty.len() {
            let dirty = &self.dirty;
            self.entries.retain(|n, e| e.addr == BlockAddr::NEW || dirty.contains(n));
        }
        self.entries.insert(nid, e);
    }

    fn count(&self) {
        self.counts.dirty.store(self.dirty.len() as u32, Relaxed);
        self.counts.freed.store(self.freed.len() as u32, Relaxed);
        self.counts.short.store(self.is_short(), Relaxed);
    }

    fn set(&mut self, nid: u32, e: NatEntry) {
        self.entries.insert(nid, e);
        self.dirty.insert(nid);
        self.count();
    }

    /// Blocks of the table with entries that are newer in memory or in the journal, where nat_bits say
    /// which are full.
    fn known_blocks(&self) -> HashSet<u32> {
        if self.bits.is_none() {
            return HashSet::default();
        }
        self.entries.keys().chain(self.journal.keys()).map(|n| n / PER_BLOCK).collect()
    }
}

fn entry_in(block: &[u8], i: u32) -> NatEntry {
    let at = i as usize * size_of::<RawNatEntry>();
    RawNatEntry::read_from_prefix(&block[at..]).map_or(NatEntry::default(), |r| r.0.into())
}

#[cfg(test)]
mod tests;
