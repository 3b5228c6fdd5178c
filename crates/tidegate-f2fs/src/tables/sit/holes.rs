//! The search for a segment with holes, for slack-space writing.

use super::{Sit, SitState};
use crate::format::raw::BLOCKS_PER_SEG;
use crate::format::units::SegNo;
use crate::segment::log::LogId;
use tidegate_vfs::Result;

/// Segments that one hold of the lock looks at for room.
const VICTIM_SCAN: u32 = 4096;

impl Sit {
    /// Blocks freed since the volume was opened.
    pub(crate) fn blocks_freed(&self) -> u64 {
        self.state.lock().stale.blocks
    }

    /// For slack-space writing, finds a segment with much room among those written by logs of the same kind
    /// (data or nodes). Keeps other logs away from it until [`Sit::take_victim`] or [`Sit::release_victim`].
    /// `None` when no segment of the volume has room.
    pub(crate) fn hold_victim(&self, log: LogId) -> Result<Option<SegNo>> {
        let nodes = log.kind.is_node();
        let sections = self.main_segments.div_ceil(self.segs_per_sec);
        let stretch = VICTIM_SCAN.div_ceil(self.segs_per_sec);
        let (mut at, openings) = {
            let s = self.state.lock();
            if s.stale.none_after[usize::from(nodes)] == Some(s.stale.openings) {
                return Ok(None);
            }
            (s.stale.hint, s.stale.openings)
        };
        let mut seen = 0;
        while seen < sections {
            let mut s = self.state.lock();
            let found = self.most_room(&mut s, nodes, at, stretch.min(sections - seen))?;
            seen += stretch;
            at = (at + stretch) % sections;
            s.stale.hint = at;
            if let Some(segno) = found {
                s.busy.insert(segno);
                return Ok(Some(SegNo(segno)));
            }
        }
        self.state.lock().stale.none_after[usize::from(nodes)] = Some(openings);
        Ok(None)
    }

    /// The segment with the most room for a log of this kind in the `n` sections from `from` on, wrapping
    /// around the volume.
    fn most_room(&self, s: &mut SitState, nodes: bool, from: u32, n: u32) -> Result<Option<u32>> {
        let sections = self.main_segments.div_ceil(self.segs_per_sec);
        let mut best: Option<(u32, u32)> = None;
        let mut i = 0;
        while i < n {
            let section = (from + i) % sections;
            let settled = s.stale.settled_from(section);
            i += settled.max(1);
            if settled > 0 {
                continue;
            }
            let (mut valid, mut all, mut in_reach) = (0, 0, true);
            for segno in self.section_of(section * self.segs_per_sec) {
                let out_of_reach = s.is_taken(segno) || s.unreadable.contains(&segno);
                in_reach &= !out_of_reach;
                let e = self.entry(s, segno)?;
                (valid, all) = (valid + u32::from(e.valid), all + BLOCKS_PER_SEG);
                let room = e.writable();
                let suits = e.holds_nodes() == nodes && e.valid > 0 && !out_of_reach;
                if suits && room > best.map_or(0, |b| b.0) {
                    best = Some((room, segno));
                }
            }
            if in_reach && (valid == 0 || valid == all) {
                s.stale.settle(section);
            }
        }
        Ok(best.map(|b| b.1))
    }
}
