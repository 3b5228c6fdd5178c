//! The NAT: where each node is, and which node ids are free.
//!
//! Entries come from the journal, which overrides the table, or from the table's current copy; changed
//! ones stay in memory until a checkpoint puts them into the journal or into the other copy.

mod journal;

use crate::gate::{Checkpoint, Superblock};
use crate::meta::Meta;
use crate::raw::*;
use crate::units::{BlockAddr, Nid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tidegate_block::PageBuf;
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) use journal::parse_journal;

static NAT_TREE_LOCK: LockClass = LockClass::new("nm_i->nat_tree_lock", 400);

/// Clean entries kept in memory.
const MAX_CLEAN: usize = 65_536;
/// NAT blocks looked at for free ids before giving up on this round.
const SCAN_BLOCKS: u32 = 8;
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

/// How many entries are dirty, and how many ids wait to be free: for who looks without the lock.
#[derive(Default)]
struct NrDirty {
    dirty: AtomicU32,
    freed: AtomicU32,
}

pub(crate) struct NatState {
    counts: Arc<NrDirty>,
    /// Moves of nodes so far.
    moves: u64,
    entries: HashMap<u32, NatEntry>,
    dirty: BTreeSet<u32>,
    /// What the checkpoint's journal holds.
    pub(crate) journal: BTreeMap<u32, NatEntry>,
    pub(crate) bitmap: Vec<u8>,
    pub(crate) bits: Option<NatBits>,
    free: VecDeque<u32>,
    /// Freed since the last checkpoint, which still uses them.
    freed: BTreeSet<u32>,
    next_scan: u32,
    /// Counts flushes: a block read without the lock may be outdated by one.
    flushes: u64,
}

/// See the module.
pub(crate) struct Nat {
    state: Mutex<NatState>,
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
        let counts = Arc::<NrDirty>::default();
        let state = NatState {
            counts: counts.clone(),
            moves: 0,
            entries: HashMap::default(),
            dirty: BTreeSet::new(),
            journal,
            bitmap: cp.nat_bitmap.clone(),
            bits,
            free: VecDeque::new(),
            freed: BTreeSet::new(),
            next_scan: cp.raw.next_free_nid.get() / PER_BLOCK,
            flushes: 0,
        };
        let state = Mutex::new(&NAT_TREE_LOCK, state);
        Nat { state, counts, nat_blkaddr: sb.nat_blkaddr, max_nid: sb.max_nid }
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

    /// Takes a free node id for `ino` (`None`: an inode, its own). It has no place yet.
    ///
    /// # Errors
    /// `NoSpace` when every id is in use.
    pub(crate) fn alloc(&self, meta: &Meta, ino: Option<u32>) -> Result<Nid> {
        let mut s = self.state.lock();
        if s.free.is_empty() {
            self.scan(&mut s, meta)?;
        }
        let nid =
            s.free.pop_front().ok_or_else(|| Error::new(ErrorKind::NoSpace, "every node id is in use"))?;
        let version = self.entry(&s, meta, Nid(nid))?.version;
        s.set(nid, NatEntry { ino: ino.unwrap_or(nid), addr: BlockAddr::NEW, version });
        Ok(Nid(nid))
    }

    /// Fills the list of free ids from the next NAT blocks, going round once.
    fn scan(&self, s: &mut NatState, meta: &Meta) -> Result<()> {
        let blocks = self.max_nid / PER_BLOCK;
        let known = s.known_blocks();
        let mut seen = 0;
        while seen < blocks && (s.free.is_empty() || seen % SCAN_BLOCKS != 0) {
            let block = s.next_scan % blocks;
            s.next_scan = (block + 1) % blocks;
            seen += 1;
            if s.bits.as_ref().is_some_and(|b| test_bit_le(&b.full, block as usize))
                && !known.contains(&block)
            {
                continue;
            }
            let bytes = meta.read(self.block_addr(s, block))?;
            let first = block * PER_BLOCK;
            for i in 0..PER_BLOCK {
                let nid = first + i;
                let e = s.known(nid).unwrap_or_else(|| entry_in(bytes.bytes(), i));
                if nid > 3 && e.addr == BlockAddr::NULL && !s.freed.contains(&nid) {
                    s.free.push_back(nid);
                }
            }
        }
        Ok(())
    }

    /// Takes the free id `nid` for the inode of that number. It has no place yet.
    ///
    /// # Errors
    /// `Corrupt` when it is in use.
    pub(crate) fn claim(&self, meta: &Meta, nid: Nid) -> Result<()> {
        let mut s = self.state.lock();
        let e = self.entry(&s, meta, nid)?;
        if e.addr != BlockAddr::NULL {
            return Err(Error::corrupt(format!("node id {nid} is in use and free at once")));
        }
        s.free.retain(|n| *n != nid.0);
        s.set(nid.0, NatEntry { ino: nid.0, addr: BlockAddr::NEW, version: e.version });
        Ok(())
    }

    /// Frees a node: where it was. The id may be used again after the next checkpoint.
    pub(crate) fn free(&self, meta: &Meta, nid: Nid) -> Result<BlockAddr> {
        let mut s = self.state.lock();
        let old = self.entry(&s, meta, nid)?;
        s.set(nid.0, NatEntry { ino: 0, addr: BlockAddr::NULL, version: old.version.wrapping_add(1) });
        s.freed.insert(nid.0);
        s.count();
        Ok(old.addr)
    }

    /// Moves nodes to new places: the old ones, in the same order; `None` for a node that was freed
    /// meanwhile, which stays so.
    ///
    /// # Errors
    /// Those of reading the NAT; nothing was moved then.
    pub(crate) fn relocate(&self, meta: &Meta, moves: &[(Nid, BlockAddr)]) -> Result<Vec<Option<BlockAddr>>> {
        let mut s = self.state.lock();
        let olds = moves.iter().map(|(nid, _)| self.entry(&s, meta, *nid)).collect::<Result<Vec<_>>>()?;
        s.moves += 1;
        Ok(moves
            .iter()
            .zip(olds)
            .map(|((nid, addr), e)| {
                let used = e.addr != BlockAddr::NULL;
                used.then(|| {
                    s.set(nid.0, NatEntry { addr: *addr, ..e });
                    e.addr
                })
            })
            .collect())
    }

    /// The entry of `nid` with the NAT locked. A node in memory may outlive what is cached of its entry.
    fn entry(&self, s: &NatState, meta: &Meta, nid: Nid) -> Result<NatEntry> {
        match s.known(nid.0) {
            Some(e) => Ok(e),
            None => {
                let block = meta.read(self.block_addr(s, nid.0 / PER_BLOCK))?;
                Ok(entry_in(block.bytes(), nid.0 % PER_BLOCK))
            }
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
        let s = self.state.lock();
        let stayed = moves.is_none_or(|m| m == s.moves);
        Ok((stayed && self.entry(&s, meta, nid)?.addr == addr).then(f))
    }

    /// Versions of node ids, for summaries.
    pub(crate) fn versions(&self, meta: &Meta, nids: &[Nid]) -> Result<Vec<u8>> {
        let s = self.state.lock();
        nids.iter().map(|n| Ok(self.entry(&s, meta, *n)?.version)).collect()
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
        let nid = s.free.front().copied().unwrap_or(s.next_scan * PER_BLOCK);
        nid.clamp(4, self.max_nid - 1)
    }

    /// Puts every change into the journal if it has room (and `tables_only` is not wanted), else into
    /// the tables' other copies. Called by the checkpoint, with operations frozen.
    pub(crate) fn flush(&self, meta: &Meta, tables_only: bool) -> Result<()> {
        let mut s = self.state.lock();
        let dirty = std::mem::take(&mut s.dirty);
        s.count();
        let mut all = s.journal.clone();
        all.extend(dirty.iter().filter_map(|n| Some((*n, *s.entries.get(n)?))));
        s.flushes += 1;
        if all.len() <= NAT_JOURNAL_ENTRIES && !tables_only {
            s.journal = all;
        } else {
            let mut at = all.iter().peekable();
            while let Some((nid, _)) = at.peek() {
                let block = **nid / PER_BLOCK;
                let mut set = Vec::new();
                while let Some((n, e)) = at.next_if(|(n, _)| **n / PER_BLOCK == block) {
                    set.push((n % PER_BLOCK, *e));
                }
                self.flush_block(&mut s, meta, block, &set)?;
            }
            s.journal.clear();
        }
        if s.entries.len() > MAX_CLEAN {
            s.entries.retain(|_, e| e.addr == BlockAddr::NEW);
        }
        Ok(())
    }

    fn flush_block(&self, s: &mut NatState, meta: &Meta, block: u32, set: &[(u32, NatEntry)]) -> Result<()> {
        let mut page = PageBuf::from_slice(meta.read(self.block_addr(s, block))?.bytes());
        for (i, e) in set {
            let raw = RawNatEntry::from(*e);
            let at = *i as usize * size_of::<RawNatEntry>();
            page[at..at + size_of::<RawNatEntry>()].copy_from_slice(raw.as_bytes());
        }
        if let Some(bits) = &mut s.bits {
            let used = (0..PER_BLOCK)
                .filter(|i| (block == 0 && *i == 0) || entry_in(&page, *i).addr != BlockAddr::NULL)
                .count();
            set_bit_le(&mut bits.full, block as usize, used == NAT_ENTRY_PER_BLOCK);
            set_bit_le(&mut bits.empty, block as usize, used == 0);
        }
        let now = test_bit_msb(&s.bitmap, block as usize);
        set_bit_msb(&mut s.bitmap, block as usize, !now);
        meta.write(self.block_addr(s, block), page);
        Ok(())
    }

    /// After the checkpoint: freed ids are free.
    pub(crate) fn checkpointed(&self) {
        let mut s = self.state.lock();
        let freed = std::mem::take(&mut s.freed);
        s.count();
        s.free.extend(freed);
    }

    /// Runs `f` on the state, for the checkpoint pack and `info`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&NatState) -> R) -> R {
        f(&self.state.lock())
    }
}

impl NatState {
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
