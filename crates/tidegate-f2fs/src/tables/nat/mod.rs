//! The NAT: the place of each node, and the free node ids.
//!
//! Entries come from the journal, which overrides the table, or from the table's current copy. Changed
//! entries stay in memory until a checkpoint puts them into the journal or into the other copy.
//!
//! No operation reads the device with `nat_tree_lock` held: a missing entry is read without the lock, and
//! then looked up again. Only the checkpoint reads with the lock held, with operations frozen, for a block
//! that it changes and that memory does not have.
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

/// Ids that concurrent operations may take before one of them searches for more.
const SHORT: usize = 64;
/// Clean entries kept in memory.
const MAX_CLEAN: usize = 65_536;
const PER_BLOCK: u32 = NAT_ENTRY_PER_BLOCK as u32;

/// The place of a node and its inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NatEntry {
    pub ino: u32,
    pub addr: BlockAddr,
    /// Counts the uses of the node id.
    pub version: u8,
}

impl From<RawNatEntry> for NatEntry {
    fn from(r: RawNatEntry) -> Self {
        // "Not placed yet" exists only in memory; on the volume it is an address that no node can have.
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

/// For each NAT block: whether all its ids are in use, or none. Kept only while the volume's nat_bits are
/// valid.
pub(crate) struct NatBits {
    pub full: Vec<u8>,
    pub empty: Vec<u8>,
}

impl NatBits {
    /// Blocks that nat_bits take at the end of a checkpoint pack, key included.
    pub(crate) fn blocks(&self) -> usize {
        (8 + self.full.len() + self.empty.len()).div_ceil(BLOCK_SIZE)
    }
}

/// Figures that other threads read without the lock.
#[derive(Default)]
struct NrDirty {
    /// Entries changed since the last checkpoint.
    dirty: AtomicU32,
    /// Ids that the next checkpoint makes free.
    freed: AtomicU32,
    /// The list of free ids is short.
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
    /// Free ids and their versions, in the order of use.
    free: VecDeque<(u32, u8)>,
    /// Ids freed since the last checkpoint, which still uses them, with their next versions.
    freed: BTreeMap<u32, u8>,
    next_scan: u32,
    /// A whole round found no more: all free ids are listed, or freed and waiting for a checkpoint.
    all_listed: bool,
    /// Counts flushes: a flush may outdate a block that was read without the lock.
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
        // No id is listed yet: the first operation searches for some before it takes locks.
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

    /// Takes the free id `nid` for the inode of that number. The node has no place yet.
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

    /// Frees a node if `may` is true, which is called with the NAT locked; returns the node's old place. The
    /// id may be used again after the next checkpoint.
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

    /// Moves nodes to new places. Returns their old places in the same order; `None` for a node that was
    /// freed meanwhile, which stays free.
    ///
    /// # Errors
    /// Those of reading the NAT; no node was moved then.
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

    /// Runs `f` on the state and the entries of `nids`, in their order. Missing entries are read before,
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

    /// The number of moves of nodes so far.
    pub(crate) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// Runs `f` if the node is still at `addr`, with the NAT locked, so that the node stays there. If `moves`
    /// is given, no node may have moved since [`Nat::moves`] returned that number.
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

    /// The number of node ids whose nodes were made, written or freed since the last checkpoint, and how many
    /// of them the next checkpoint makes free.
    pub(crate) fn nr_dirty(&self) -> (u32, u32) {
        (self.counts.dirty.load(Relaxed), self.counts.freed.load(Relaxed))
    }

    /// An id at or behind which a free id is likely, for the checkpoint.
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
    /// The journal's bytes for the hot-data summary.
    pub(crate) fn journal_bytes(&self) -> [u8; SUM_JOURNAL_SIZE] {
        let raw = |(nid, e): (&u32, &NatEntry)| RawNatJournalEntry { nid: (*nid).into(), ne: (*e).into() };
        journal::bytes_of(self.journal.iter().map(raw))
    }

    /// Whether a search for more free ids is due.
    pub(super) fn is_short(&self) -> bool {
        self.free.len() < SHORT && !self.all_listed
    }

    fn known(&self, nid: u32) -> Option<NatEntry> {
        self.entries.get(&nid).or_else(|| self.journal.get(&nid)).copied()
    }

    /// Remembers an entry of the volume. When there are too many, the other clean entries are forgotten.
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

    /// Blocks of the table with newer entries in memory or in the journal, where nat_bits tell which blocks
    /// are full.
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
