//! The SIT: which blocks of each segment are valid.
//!
//! Each segment has two maps: its valid blocks now, and the blocks that the last checkpoint or an fsync since
//! may lead to. A block may be written only if it is free in both maps, or recovery after a crash would find
//! another file's bytes. SIT blocks are read when first needed. Clean ones are dropped again when there are
//! many, so a large volume costs little memory.
//!
//! Lock owned: `sit_i->sentry_lock` 510. Callers: logs, which take blocks; everything that frees one; cleaning.
//!
//! | module | holds |
//! |---|---|
//! | `state` | segments in memory: how many are free, which are out of bounds |
//! | `free`, `holes`, `room` | segments that a log may go to: free ones, ones with holes, ones empty from their start |
//! | `stale` | where a search for stale blocks need not look |
//! | `sections`, `zones` | sections as zones: counts, and which are to be reset or finished |
//! | `flush` | the changes that a checkpoint writes |

mod flush;
mod free;
mod holes;
mod room;
mod sections;
mod stale;
mod state;
mod zones;

pub(crate) use sections::Sections;
use stale::Stale;

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, SegNo};
use crate::segment::log::{LOG_SLOTS, Log};
use crate::segment::zones::ZoneMap;
use crate::tables::meta::Meta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_block::PageBuf;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{Condvar, LockClass, Mutex, Nanos, clock};
use tidegate_vfs::planted::{Planted, PlantedBug};
use tidegate_vfs::{At, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

static SENTRY_LOCK: LockClass = LockClass::new("sit_i->sentry_lock", 510);

const PER_BLOCK: u32 = SIT_ENTRY_PER_BLOCK as u32;
/// SIT blocks kept in memory (about 9 KiB each).
const MAX_BLOCKS: usize = 1024;

/// A segment.
#[derive(Clone)]
pub(crate) struct SegEntry {
    /// Valid blocks.
    pub valid: u16,
    /// The log that wrote the segment.
    pub log: Log,
    /// The valid blocks now, most significant bit first.
    pub map: [u8; 64],
    /// Blocks that were valid in the last checkpoint or at any time since.
    pub ckpt_map: [u8; 64],
    /// Time of the last change, in seconds of the volume's life.
    pub mtime: u64,
}

impl SegEntry {
    /// Whether a log of nodes wrote the segment.
    pub(crate) fn holds_nodes(&self) -> bool {
        self.log.is_node()
    }

    fn parse(raw: &RawSitEntry, segno: u32) -> Result<SegEntry> {
        let (v, map) = (raw.vblocks.get(), raw.valid_map);
        let (valid, number) = (v & ((1 << SIT_VBLOCKS_SHIFT) - 1), v >> SIT_VBLOCKS_SHIFT);
        let counted: u32 = map.iter().map(|b| b.count_ones()).sum();
        let log = Log::from_number(number).filter(|_| u32::from(valid) == counted);
        let log = log.ok_or_else(|| {
            let what = format!("claims {valid} valid blocks of log {number}, its map has {counted}");
            Error::corrupt(what).at(At::Part("segment", segno.into())).at(At::The("SIT"))
        })?;
        Ok(SegEntry { valid, log, map, ckpt_map: map, mtime: raw.mtime.get() })
    }

    fn to_raw(&self) -> RawSitEntry {
        RawSitEntry {
            vblocks: (self.valid | (self.log as u16) << SIT_VBLOCKS_SHIFT).into(),
            valid_map: self.map,
            mtime: self.mtime.into(),
        }
    }

    /// Blocks that may be written.
    fn writable(&self) -> u32 {
        self.map.iter().zip(&self.ckpt_map).map(|(a, b)| (!(a | b)).count_ones()).sum()
    }

    /// The first run of blocks from `from` on that may be written: its first block and its length.
    fn writable_run(&self, from: usize) -> Option<(usize, usize)> {
        let busy = |i: usize| test_bit_msb(&self.map, i) || test_bit_msb(&self.ckpt_map, i);
        let end = BLOCKS_PER_SEG as usize;
        (from..end).find(|i| !busy(*i)).map(|a| (a, (a..end).take_while(|i| !busy(*i)).count()))
    }
}

/// Segments that can be written. On zones, policies count only the segments of wholly free sections.
#[derive(Clone, Copy)]
pub(crate) struct FreeSegments {
    /// Wholly free segments that no log is in; segments freed since the last checkpoint are not among them.
    pub free: u32,
    /// Segments that became empty since the last checkpoint.
    pub prefree: u32,
}

impl FreeSegments {
    /// Segments that are free after the next checkpoint.
    pub(crate) fn after(self) -> u32 {
        self.free + self.prefree
    }

    fn packed(self) -> u64 {
        u64::from(self.free) | u64::from(self.prefree) << 32
    }

    fn unpacked(n: u64) -> Self {
        FreeSegments { free: n as u32, prefree: (n >> 32) as u32 }
    }
}

pub(crate) struct SitState {
    blocks: HashMap<u32, Vec<SegEntry>>,
    /// Segments that changed since the last checkpoint.
    dirty: BTreeSet<u32>,
    pub(crate) journal: BTreeMap<u32, RawSitEntry>,
    pub(crate) bitmap: Vec<u8>,
    /// Changed by [`SitState::count`].
    free: FreeSegments,
    /// The sections of a volume on zones.
    sections: Option<Sections>,
    /// The count of free segments, for a reader without the lock.
    seen: Arc<AtomicU64>,
    /// The segment that each log is in, by slot; [`SegNo::NONE`] for a closed stream.
    current: [u32; LOG_SLOTS],
    /// The segment of each log; for a closed stream its last segment.
    last: [u32; LOG_SLOTS],
    /// The segments that logs are in, a bit each.
    in_log: Vec<u64>,
    /// Segments that no log may enter for a moment: they are being discarded.
    pub(crate) busy: BTreeSet<u32>,
    /// Segments whose holes no log may fill: they are being cleaned.
    pub(crate) cleaning: BTreeSet<u32>,
    pub(crate) stale: Stale,
    /// Segments whose holes no log fills before the next checkpoint: the owners of their blocks cannot be
    /// read.
    unreadable: BTreeSet<u32>,
    /// Segments that no log may go to, a bit each, least significant first.
    excluded: Option<Vec<u8>>,
    elapsed: u64,
    mounted: Option<Nanos>,
}

/// The segment information table in memory.
pub(crate) struct Sit {
    pub(crate) state: Mutex<SitState>,
    seen: Arc<AtomicU64>,
    /// Notified when segments come back from being discarded.
    pub(crate) released: Condvar,
    meta: MetaRef,
    sit_blkaddr: u32,
    sit_blocks: u32,
    main_blkaddr: u32,
    pub(crate) main_segments: u32,
    pub(crate) segs_per_sec: u32,
    /// The zones of a volume on zones.
    pub(crate) zones: Option<Arc<ZoneMap>>,
    pub(crate) planted: Planted,
}

type MetaRef = Arc<dyn Fn(u32) -> Result<tidegate_vfs::PageRun> + Send + Sync>;

impl Sit {
    /// `read` gives blocks of the metadata area. With `fixed_clock`, modification times do not advance.
    pub(crate) fn new(
        sb: &Superblock,
        cp: &Checkpoint,
        journal: BTreeMap<u32, RawSitEntry>,
        read: MetaRef,
        fixed_clock: bool,
        zones: Option<ZoneMap>,
    ) -> Self {
        let r = &cp.raw;
        let mut current = [SegNo::NONE.0; LOG_SLOTS];
        let named = r.cur_data_segno[..NR_CURSEG_DATA_TYPE].iter().chain(&r.cur_node_segno[..3]);
        current.iter_mut().zip(named).for_each(|(c, n)| *c = n.get());
        let mut in_log = vec![0; (sb.main_segments as usize).div_ceil(64)];
        current[..NR_CURSEG_TYPE].iter().for_each(|n| set_in_log(&mut in_log, *n, true));
        let zones = zones.map(Arc::new);
        let free = FreeSegments { free: r.free_segment_count.get(), prefree: 0 };
        let seen = Arc::new(AtomicU64::new(free.packed()));
        let state = SitState {
            blocks: HashMap::default(),
            dirty: BTreeSet::new(),
            journal,
            bitmap: cp.sit_bitmap.clone(),
            free,
            sections: zones.clone().map(|map| Sections::new(map, &current)),
            seen: seen.clone(),
            current,
            last: current,
            in_log,
            busy: BTreeSet::new(),
            cleaning: BTreeSet::new(),
            stale: Stale::new(sb.main_segments, sb.segs_per_sec),
            unreadable: BTreeSet::new(),
            excluded: None,
            elapsed: r.elapsed_time.get(),
            mounted: (!fixed_clock).then(clock::now),
        };
        Sit {
            state: Mutex::new(&SENTRY_LOCK, state),
            seen,
            released: Condvar::new(),
            meta: read,
            sit_blkaddr: sb.sit_blkaddr,
            sit_blocks: sb.sit_blocks,
            main_blkaddr: sb.main_blkaddr,
            main_segments: sb.main_segments,
            segs_per_sec: sb.segs_per_sec,
            zones,
            planted: Planted::default(),
        }
    }

    fn block_addr(&self, s: &SitState, block: u32) -> u32 {
        self.sit_blkaddr + block + if test_bit_msb(&s.bitmap, block as usize) { self.sit_blocks } else { 0 }
    }

    /// Splits an address of the main area into segment and block in it.
    pub(crate) fn place(&self, addr: BlockAddr) -> (SegNo, usize) {
        let n = addr.0 - self.main_blkaddr;
        (SegNo(n >> LOG_BLOCKS_PER_SEG), (n & (BLOCKS_PER_SEG - 1)) as usize)
    }

    /// The first block of a segment.
    pub(crate) fn segment_start(&self, seg: SegNo) -> BlockAddr {
        BlockAddr(self.main_blkaddr + (seg.0 << LOG_BLOCKS_PER_SEG))
    }

    /// The entry of `segno`, read if it is not in memory.
    pub(crate) fn entry<'a>(&self, s: &'a mut SitState, segno: u32) -> Result<&'a mut SegEntry> {
        let block = segno / PER_BLOCK;
        if !s.blocks.contains_key(&block) {
            let loaded = self.load(s, block)?;
            if s.blocks.len() >= MAX_BLOCKS {
                let dirty: BTreeSet<u32> = s.dirty.iter().map(|n| n / PER_BLOCK).collect();
                s.blocks.retain(|b, _| dirty.contains(b));
            }
            s.blocks.insert(block, loaded);
        }
        s.blocks
            .get_mut(&block)
            .and_then(|b| b.get_mut((segno % PER_BLOCK) as usize))
            .ok_or_else(|| Error::corrupt("is out of range").at(At::Part("segment", segno.into())))
    }

    fn load(&self, s: &SitState, block: u32) -> Result<Vec<SegEntry>> {
        let page = (self.meta)(self.block_addr(s, block))?;
        let first = block * PER_BLOCK;
        let n = PER_BLOCK.min(self.main_segments.saturating_sub(first));
        (0..n)
            .map(|i| match s.journal.get(&(first + i)) {
                Some(raw) => SegEntry::parse(raw, first + i),
                None => {
                    let at = i as usize * size_of::<RawSitEntry>();
                    let raw = RawSitEntry::ref_from_prefix(&page.bytes()[at..])
                        .map_err(|_| Error::corrupt("SIT block"))?;
                    SegEntry::parse(raw.0, first + i)
                }
            })
            .collect()
    }

    /// A copy of a segment's entry.
    pub(crate) fn get(&self, seg: SegNo) -> Result<SegEntry> {
        self.entry(&mut self.state.lock(), seg.0).cloned()
    }

    /// Marks `n` blocks from `addr`, of one segment, as written by log `log`.
    ///
    /// # Errors
    /// `Corrupt` when a block is valid already.
    pub(crate) fn allocated(&self, addr: BlockAddr, n: u32, log: Log) -> Result<()> {
        let (seg, offset) = self.place(addr);
        let mut s = self.state.lock();
        let now = s.mtime();
        let e = self.entry(&mut s, seg.0)?;
        for i in offset..offset + n as usize {
            if test_bit_msb(&e.map, i) {
                return Err(Error::corrupt("is in use and free at once").at_block(addr.0).at(At::The("SIT")));
            }
            set_bit_msb(&mut e.map, i, true);
            // Roll-forward may lead here before the next checkpoint, even if the block is freed again by
            // then.
            set_bit_msb(&mut e.ckpt_map, i, true);
        }
        e.valid += n as u16;
        e.log = log;
        e.mtime = now;
        s.stale.changed(seg.0, 0);
        s.dirty.insert(seg.0);
        Ok(())
    }

    /// Whether a block is in use.
    pub(crate) fn is_valid(&self, blk: BlockAddr) -> Result<bool> {
        let (seg, i) = self.place(blk);
        Ok(test_bit_msb(&self.entry(&mut self.state.lock(), seg.0)?.map, i))
    }

    /// Whether a block is in a segment of nodes that is not empty.
    pub(crate) fn holds_nodes(&self, blk: BlockAddr) -> Result<bool> {
        let mut s = self.state.lock();
        let e = self.entry(&mut s, self.place(blk).0.0)?;
        Ok(e.valid > 0 && e.holds_nodes())
    }

    /// Frees blocks, runs of neighbours in one step. They may be written again after the next checkpoint.
    ///
    /// # Errors
    /// `Corrupt` when a block is free already.
    pub(crate) fn invalidate(&self, blocks: &[BlockAddr]) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let mut s = self.state.lock();
        let now = s.mtime();
        let mut at = 0;
        while at < blocks.len() {
            let (seg, _) = self.place(blocks[at]);
            let n = blocks[at..].iter().take_while(|b| self.place(**b).0 == seg).count();
            let e = self.entry(&mut s, seg.0)?;
            for b in &blocks[at..at + n] {
                let i = self.place(*b).1;
                if !test_bit_msb(&e.map, i) {
                    return Err(Error::corrupt("is freed but not in use").at_block(*b).at(At::The("SIT")));
                }
                set_bit_msb(&mut e.map, i, false);
                e.valid -= 1;
            }
            e.mtime = now;
            let empty = e.valid == 0;
            s.stale.changed(seg.0, n as u64);
            s.dirty.insert(seg.0);
            if empty && !s.is_current(seg.0) {
                self.emptied(&mut s, seg.0)?;
            }
            at += n;
        }
        Ok(())
    }

    /// Whether a checkpoint would have something to write.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.state.lock().dirty.is_empty()
    }

    /// Free segments. Takes no lock.
    pub(crate) fn free_segments(&self) -> FreeSegments {
        FreeSegments::unpacked(self.seen.load(SeqCst))
    }

    /// Notes that a segment without a log has no valid block any more: the next checkpoint frees it.
    fn emptied(&self, s: &mut SitState, segno: u32) -> Result<()> {
        if self.planted.is(PlantedBug::EarlyReuse) {
            s.count(segno, |n| n.free += 1);
            self.entry(s, segno)?.ckpt_map = [0; 64];
        } else {
            s.count(segno, |n| n.prefree += 1);
        }
        Ok(())
    }

    /// Seconds of the volume's life.
    pub(crate) fn elapsed(&self) -> u64 {
        self.state.lock().mtime()
    }

    /// Runs `f` on the state, for the checkpoint pack and `info`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&SitState) -> R) -> R {
        f(&self.state.lock())
    }
}

impl SitState {
    fn mtime(&self) -> u64 {
        self.elapsed + self.mounted.map_or(0, |m| clock::now().since(m).0 / 1_000_000_000)
    }
}

/// Notes whether a log works on a segment.
fn set_in_log(in_log: &mut [u64], segno: u32, is: bool) {
    if let Some(word) = in_log.get_mut(segno as usize / 64) {
        let bit = 1 << (segno % 64);
        *word = if is { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests;
