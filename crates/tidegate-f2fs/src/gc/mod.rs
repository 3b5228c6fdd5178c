//! Cleaning: valid blocks are moved out of mostly stale segments, so that logs find free segments.
//!
//! A booking reserves space; the place is found later, when a log asks for a segment. Where free segments are
//! short, the thread that needs some frees segments with no lock held ([`F2fs::make_room`]). A thread of the
//! volume frees segments while the volume is idle. Data goes through the page cache to the cold log. Nodes
//! are only marked dirty, since the checkpoint that has to follow writes them elsewhere. A cleaned segment is
//! free after that checkpoint.
//!
//! Locks owned: `sbi->gc_lock` 18, `dcc->cmd_lock` 525 (the list that `segment` discards from), `gc_th->state` 610.
//! Callers: the VFS's glue and fsync ask for room.
//!
//! | module | holds |
//! |---|---|
//! | `state` | victims, the thread, inodes that were moved, segments to be discarded |
//! | `victim` | the choice of the next section |
//! | `data`, `node` | moving what is valid in a segment |
//! | `thread` | cleaning and discarding while the volume is idle |

mod data;
mod node;
pub(crate) mod state;
mod thread;
mod victim;

use crate::file::write_io::{Grown, Sender};
use crate::format::raw::*;
use crate::format::units::SegNo;
use crate::segment::policy::KEPT_BY_DATA;
use crate::volume::sbi::F2fs;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::trace::SpanPoint;
use tidegate_vfs::{At, Error, ErrorKind, Result};
use victim::{Policy, Prospects, Victims};
use zerocopy::FromBytes;

static GC: SpanPoint<1> = SpanPoint::new("f2fs_gc", ["free"]);

/// Segments freed beyond the need, so that not every writer cleans.
const AHEAD: u32 = 2;
/// Most checkpoints made for one caller.
const ROUNDS: u32 = 64;
/// This many checkpoints in a row that gain nothing end the attempt.
const BARREN_ROUNDS: u32 = 3;
/// Calls after which segments that could not be cleaned are tried again.
const RETRY_SKIPPED: u32 = 64;
/// After this many sections whose blocks found no room, the round ends: other sections will hardly fare
/// better.
const MOST_REFUSED: usize = 8;

/// Sections held for cleaning; released when dropped.
struct Held<'a> {
    fs: &'a F2fs,
    sections: Vec<Range<u32>>,
    /// The sections among them whose blocks found no room.
    refused: Vec<Range<u32>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.sections.iter().chain(&self.refused).for_each(|s| self.fs.sit.release(s));
    }
}

impl F2fs {
    fn count_dir_pages(&self) {
        let pages = self.dirty_dirs.lock().values().map(|d| d.mapping.nr_dirty()).sum();
        self.gc.dir_pages.store(pages, Relaxed);
    }

    /// Whether free segments are short. Takes `inode_lock[DIR_INODE]`.
    fn is_short(&self, ahead: u32) -> bool {
        let free = self.sit.free_segments().free;
        if self.is_zoned() {
            self.count_dir_pages();
            return free <= self.gc_threshold() + ahead * self.sit.segments_of_section();
        }
        let dirty = 2 * (self.bdi.dirty_bytes() / BLOCK_SIZE as u64) / BLOCKS_PER_SEG as u64;
        if free as u64 > dirty + (self.sb.main_segments / 20 + KEPT_BY_DATA + ahead + 8) as u64 {
            return false; // enough for any number of dirty pages
        }
        self.count_dir_pages();
        free <= self.gc_threshold() + ahead
    }

    /// Keeps enough segments free for dirty pages. Called between operations, with no lock held.
    pub(crate) fn balance_segments(&self) -> Result<()> {
        let segments = self.sit.free_segments();
        let (free, after) = (segments.free, segments.after());
        // A checkpoint now and then is cheaper than filling holes.
        let cheaper = after - free > self.sb.main_segments / 50 + 1 && free <= self.ssr_threshold();
        if cheaper && self.write_io.failed_pages.is_empty() && self.why_read_only().is_none() {
            self.checkpoint_for_room()?;
        }
        self.make_room()
    }

    /// Cleans and writes checkpoints until free segments are not short, or nothing is left to clean. Does
    /// nothing where that gained nothing before and little has changed since. The caller holds no lock; takes
    /// `gc_lock`, and inodes' `i_rwsem` shared below it.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.make_room_for(false)
    }

    /// Makes room for a thread that was refused blocks: cleaning is tried in any case.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub(crate) fn make_room_now(&self) -> Result<()> {
        self.make_room_for(true)
    }

    fn make_room_for(&self, refused: bool) -> Result<()> {
        if self.why_read_only().is_some() {
            return Ok(());
        }
        if !self.is_short(0) {
            // Free sections may be enough for cleaning to stop, and yet fewer than a checkpoint of all dirty
            // pages takes.
            return if refused && self.is_zoned() { self.checkpoint_for_room() } else { Ok(()) };
        }
        // Sections that a checkpoint freed count once they are reset.
        self.reset_zones();
        let mut victims = self.gc.lock.lock();
        if !self.is_short(0) {
            return Ok(());
        }
        if self.close_streams_for_cleaning()? {
            // The segments of the closed streams can be cleaned now.
            victims.futile = None;
        }
        if !refused && victims.is_futile(&self.prospects()) {
            return Ok(());
        }
        let _span = GC.enter([self.sit.free_segments().free as u64]);
        self.stats.gc_foreground.fetch_add(1, Relaxed);
        victims.begin(RETRY_SKIPPED);
        victims.futile = None;
        let mut barren = 0;
        for _ in 0..ROUNDS {
            if !self.is_short(AHEAD) {
                break;
            }
            let before = self.margin();
            // With many nodes dirty, a checkpoint comes first: it may be enough.
            let max = if self.checkpoint_need() > 2 { 0 } else { u32::MAX };
            let held = self.clean_round(
                &mut victims,
                Policy::Greedy,
                self.gc_threshold() + AHEAD * self.sit.segments_of_section(),
                max,
            )?;
            self.checkpoint_for_room()?;
            victims.judge(&self.sit, &held.sections)?;
            let moved = !held.sections.is_empty() || max == 0;
            drop(held);
            barren = if self.margin() > before { 0 } else { barren + 1 };
            if barren == BARREN_ROUNDS || barren > 0 && !moved {
                victims.futile = Some(self.prospects());
                break;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint to make room; zones that it frees are reset at once.
    fn checkpoint_for_room(&self) -> Result<()> {
        self.checkpoint(false)?;
        self.reset_zones();
        Ok(())
    }

    /// Closes extra streams when cleaning is the first to be short of segments; true if a stream had a
    /// segment.
    fn close_streams_for_cleaning(&self) -> Result<bool> {
        let _op = self.cp_rwsem.read();
        self.close_streams_if_short()
    }

    /// Cleans one section and writes a checkpoint: the section with the fewest valid blocks (`sync`), or a
    /// section whose blocks promise not to change once moved. False when none is worth it. The caller holds
    /// no lock; takes `gc_lock`.
    ///
    /// # Errors
    /// `ReadOnly`, those of the checkpoint.
    pub fn garbage_collect(&self, sync: bool) -> Result<bool> {
        self.check_writable()?;
        let policy = if sync { Policy::Greedy } else { Policy::CostBenefit };
        let mut victims = self.gc.lock.lock();
        victims.begin(RETRY_SKIPPED);
        let held = self.clean_round(&mut victims, policy, u32::MAX, 1)?;
        if held.sections.is_empty() {
            return Ok(false);
        }
        self.stats.gc_background.fetch_add(1, Relaxed);
        self.checkpoint_for_room()?;
        victims.judge(&self.sit, &held.sections)?;
        Ok(true)
    }

    /// Free segments above those at which cleaning begins.
    fn margin(&self) -> i64 {
        i64::from(self.sit.free_segments().free) - i64::from(self.gc_threshold())
    }

    fn prospects(&self) -> Prospects {
        let segments = self.sit.free_segments();
        let (free, after) = (segments.free, segments.after());
        let used = u64::from(self.sb.main_segments - free) * BLOCKS_PER_SEG as u64;
        Prospects {
            free,
            after,
            stale: used.saturating_sub(self.counts.lock().valid_blocks),
            dirty: self.dirty_for_checkpoint(),
            tight: free <= self.checkpoint_need() + 1,
        }
    }

    /// Cleans up to `max` victims; fewer when a checkpoint will leave more than `enough` segments free, or
    /// when a checkpoint is needed before more can be moved. Logs fill no holes in the cleaned sections until
    /// the result is dropped.
    fn clean_round<'a>(
        &'a self,
        victims: &mut Victims,
        policy: Policy,
        enough: u32,
        max: u32,
    ) -> Result<Held<'a>> {
        let mut held = Held { fs: self, sections: Vec::new(), refused: Vec::new() };
        let mut coming = 0;
        for _ in 0..max {
            let after = self.sit.free_segments().after();
            if after + coming > enough {
                break;
            }
            let Some(section) = victims.pick(&self.sit, policy)? else { break };
            match self.clean_section(section.clone()) {
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    held.refused.push(section);
                    if self.checkpoint_need() > 2 || held.refused.len() > MOST_REFUSED {
                        break;
                    }
                    // Nodes may find room where data does not: a checkpoint writes them.
                    continue;
                }
                // On zones, a checkpoint frees a section of nodes only as a whole.
                r if self.is_zoned() => coming += r.map_or(0, |n| n.min(1) * self.sit.segments_of_section()),
                r => coming += r.unwrap_or(0),
            }
            held.sections.push(section);
        }
        self.write_io.submit(Grown::All(Sender::Queue));
        Ok(held)
    }

    /// The most nodes that a move of a section's valid blocks makes dirty.
    fn nodes_to_move(&self, section: Range<u32>) -> Result<u64> {
        let mut nids = BTreeSet::new();
        self.each_segment(section, |_, sum, valid| {
            nids.extend(valid.iter().map(|i| sum.entries[*i].nid.get()));
            Ok(())
        })?;
        let dirty = |nid: &&u32| self.node_inode.mapping.is_dirty(u64::from(**nid));
        Ok((nids.len() - nids.iter().filter(dirty).count()) as u64)
    }

    /// Moves the valid blocks of a section. Returns the number of its segments that hold nodes, which the
    /// next checkpoint moves.
    ///
    /// # Errors
    /// `NoSpace` when a checkpoint must come first; `Corrupt` and those of the device, about this
    /// section.
    fn clean_section(&self, section: Range<u32>) -> Result<u32> {
        if self.is_zoned() && self.checkpoint_comes_first(self.nodes_to_move(section.clone())?) {
            return Err(Error::new(ErrorKind::NoSpace, "a checkpoint must write nodes first"));
        }
        let mut nodes = 0;
        self.each_segment(section, |segno, sum, valid| {
            if sum.entry_type == SUM_TYPE_NODE {
                self.move_nodes(segno, sum, valid)?;
                nodes += 1;
            } else {
                self.move_data(segno, sum, valid)?;
            }
            self.stats.gc_segments.fetch_add(1, Relaxed);
            Ok(())
        })?;
        Ok(nodes)
    }

    /// Calls `f` for each segment of a section that has valid blocks, with the segment's summary and these
    /// blocks.
    ///
    /// # Errors
    /// `Corrupt` where SIT and SSA disagree; those of the device and of `f`.
    fn each_segment(
        &self,
        section: Range<u32>,
        mut f: impl FnMut(SegNo, &RawSummaryBlock, &[usize]) -> Result<()>,
    ) -> Result<()> {
        for segno in section.map(SegNo) {
            let entry = self.sit.get(segno)?;
            if entry.valid == 0 {
                continue;
            }
            let page = self.meta.read(self.sb.ssa_blkaddr + segno.0)?;
            let sum =
                RawSummaryBlock::ref_from_bytes(page.bytes()).map_err(|_| Error::corrupt("SSA block"))?;
            if (sum.entry_type == SUM_TYPE_NODE) != entry.holds_nodes() {
                let what = "SIT and SSA disagree whether it holds nodes";
                return Err(Error::corrupt(what).at(At::Part("segment", segno.0.into())));
            }
            let valid: Vec<usize> =
                (0..BLOCKS_PER_SEG as usize).filter(|i| test_bit_msb(&entry.map, *i)).collect();
            f(segno, sum, &valid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
