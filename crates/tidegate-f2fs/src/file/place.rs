//! Places for dirty pages: a run of pages gets one extent, whatever nodes hold its addresses.

use crate::file::extent::ExtentCache;
use crate::file::write::Placement;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::{NodeId, fi};
use crate::node::dnode::{Dnode, Found};
use crate::segment::curseg::Allocated;
use crate::segment::log::LogId;
use crate::segment::policy::Reserve;
use crate::volume::options::AllocMode;
use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::{sim, trace::SpanPoint};
use tidegate_vfs::{FileType, Inode, Result};
use zerocopy::FromBytes;

static GET_DNODE: SpanPoint<3> = SpanPoint::new("f2fs_get_dnode_of_data", ["ino", "index", "pages"]);
static ALLOCATE: SpanPoint<3> = SpanPoint::new("f2fs_allocate_data_block", ["ino", "pages", "log"]);
static UPDATE: SpanPoint<3> = SpanPoint::new("f2fs_update_data_blkaddr", ["ino", "index", "extents"]);

/// Neighbouring pages and their place.
pub(crate) struct Placed {
    /// `None` for pages that have no place any more: cut off or punched meanwhile.
    pub blk: Option<BlockAddr>,
    /// The log whose bio the pages join: the log that gave the place, or was to give one.
    pub log: LogId,
    /// The first page's old place.
    pub old: BlockAddr,
    /// `blk` is a new place.
    pub moved: bool,
    pub pages: usize,
}

/// Pages whose addresses are in one node.
struct Part {
    d: Dnode,
    olds: Vec<BlockAddr>,
}

impl F2fs {
    /// Places the first of `pages` pages from `index` on, and makes the block map say so. Pages that get new
    /// places get them from their log in one step, so that no other pages come between. Blocks that were
    /// allocated but not used are left in `unused`, for the caller to fill. Takes `i_dnode`.
    ///
    /// # Errors
    /// `NoSpace` with nothing placed; `Corrupt`.
    pub(crate) fn place_pages(
        &self,
        inode: &Inode,
        index: u64,
        pages: usize,
        how: Placement,
        log: LogId,
        unused: &mut Vec<Allocated>,
    ) -> Result<Vec<Placed>> {
        let mut map = fi(inode).map.lock();
        let (parts, hole) = self.parts_of(inode, index, pages)?;
        let Some(first) = parts.first() else {
            return Ok(vec![Placed { blk: None, log, old: BlockAddr::NULL, moved: false, pages: hole }]);
        };
        let old = first.olds[0];
        let n = self.stay_in_place(inode, &first.olds, how);
        if n > 0 {
            self.stats.in_place.fetch_add(n as u64, Relaxed);
            return Ok(vec![Placed { blk: Some(old), log, old, moved: false, pages: n }]);
        }
        let ino = inode.nid();
        if inode.file_type == FileType::Regular && parts.iter().all(|p| p.d.nid != ino) {
            // The inode's node is made dirty in memory here, as it would be if its own addresses changed:
            // otherwise the note of the extent could fail because the node is not in memory.
            self.modify_node(ino, |_| ())?;
        }
        sim::place();
        let mut got = self.allocate_for(inode, &parts, how, log)?;
        if let (Some(last), Placement::ByPolicy { .. }) = (got.last(), how) {
            self.affinity.placed(
                last.log.kind,
                &fi(inode).writer,
                last.log.stream,
                last.start.plus(last.blocks),
            );
        }
        if how == Placement::Move {
            self.gc.moving(inode.ino);
        }
        let span = UPDATE.enter([inode.ino.0, index, got.len() as u64]);
        let (moved, r) = self.move_addresses(inode, &parts, &got);
        if r.is_err() {
            self.give_back(&mut got, moved, unused)?;
            if moved == 0 {
                r?; // else the next pages meet the error again
            }
        }
        self.guard(self.note_extents(inode, &mut map, index, &got))?;
        drop(span);
        fi(inode).fsync.placed(got.iter().map(|a| a.blocks as usize).sum());
        let mut olds = parts.iter().flat_map(|p| p.olds.iter().copied());
        let mut placed = Vec::with_capacity(got.len());
        for a in got.iter().filter(|a| a.blocks > 0) {
            let pages = a.blocks as usize;
            let old = olds.next().unwrap_or(BlockAddr::NULL);
            olds.by_ref().take(pages - 1).for_each(drop);
            placed.push(Placed { blk: Some(a.start), log: a.log, old, moved: true, pages });
        }
        Ok(placed)
    }

    /// The nodes with the addresses of pages from `index` on, as long as the pages have a reservation or a
    /// place. When the first page has neither, the number of pages that have neither.
    fn parts_of(&self, inode: &Inode, index: u64, pages: usize) -> Result<(Vec<Part>, usize)> {
        let _span = GET_DNODE.enter([inode.ino.0, index, pages as u64]);
        let mut parts = Vec::new();
        let mut at = 0;
        while at < pages {
            let d = match self.find_dnode(inode, index + at as u64)? {
                Found::Hole(n) if at == 0 => return Ok((parts, pages.min(n as usize))),
                Found::Hole(_) => break,
                Found::At(d) => d,
            };
            let mut olds = self.addresses(inode, &d, pages - at)?;
            let looked = olds.len();
            let n = olds.iter().take_while(|a| **a != BlockAddr::NULL).count();
            if n == 0 && at == 0 {
                return Ok((parts, olds.iter().take_while(|a| **a == BlockAddr::NULL).count()));
            }
            olds.truncate(n);
            for a in &olds {
                self.check_data_addr(*a, inode.ino.0)?;
            }
            if n > 0 {
                parts.push(Part { d, olds });
            }
            if n < looked {
                break;
            }
            at += n;
        }
        Ok((parts, 0))
    }

    /// Allocates blocks for the pages of `parts`, or for as many of the first as there is room for.
    fn allocate_for(
        &self,
        inode: &Inode,
        parts: &[Part],
        how: Placement,
        log: LogId,
    ) -> Result<Vec<Allocated>> {
        let whom = match how {
            Placement::Move => Reserve::Cleaning,
            // A checkpoint must be able to write these pages.
            _ if inode.is_dir() || how == Placement::Rescue => Reserve::Checkpoint,
            _ => Reserve::Data,
        };
        let pages: usize = parts.iter().map(|p| p.olds.len()).sum();
        let _span = ALLOCATE.enter([inode.ino.0, pages as u64, log.kind as u64]);
        let nids: Vec<Nid> = parts.iter().map(|p| p.d.nid).collect();
        let versions = self.nat.versions(&self.meta, &nids)?;
        let owners: Vec<RawSummary> = parts
            .iter()
            .zip(versions)
            .flat_map(|(p, version)| {
                let of = move |i: usize| RawSummary {
                    nid: p.d.nid.0.into(),
                    version,
                    ofs_in_node: ((p.d.slot + i) as u16).into(),
                };
                (0..p.olds.len()).map(of)
            })
            .collect();
        self.allocate_extents(log, whom, owners.len() as u32, |i| owners[i as usize])
    }

    /// Points the first pages of `parts` to the allocated blocks and frees their old blocks. Returns the
    /// number of pages, also after an error on the way.
    fn move_addresses(&self, inode: &Inode, parts: &[Part], got: &[Allocated]) -> (usize, Result<()>) {
        let news: Vec<BlockAddr> = got.iter().flat_map(|a| (0..a.blocks).map(|i| a.start.plus(i))).collect();
        let (mut freed, mut r) = (Vec::new(), Ok(()));
        let mut rest = &news[..];
        for p in parts {
            let (here, after) = rest.split_at(p.olds.len().min(rest.len()));
            if here.is_empty() {
                break;
            }
            if let Err(e) = self.update_addresses(inode, &p.d, here.len(), |i, _| here[i]) {
                r = Err(e);
                break;
            }
            freed.extend(p.olds[..here.len()].iter().copied().filter(|a| a.is_data()));
            rest = after;
        }
        (news.len() - rest.len(), r.and(self.guard(self.sit.invalidate(&freed))))
    }

    /// Frees what was allocated past the first `pages` blocks: nothing points there.
    fn give_back(&self, got: &mut Vec<Allocated>, pages: usize, unused: &mut Vec<Allocated>) -> Result<()> {
        let (mut freed, mut left) = (Vec::new(), pages as u32);
        for a in got.iter_mut() {
            let used = a.blocks.min(left);
            let (start, blocks) = (a.start.plus(used), a.blocks - used);
            freed.extend((0..blocks).map(|i| start.plus(i)));
            unused.push(Allocated { start, blocks, ..*a });
            (a.blocks, left) = (used, left - used);
        }
        got.retain(|a| a.blocks > 0);
        self.guard(self.sit.invalidate(&freed))
    }

    /// Remembers extents from page `index` on; the largest also in the inode.
    fn note_extents(
        &self,
        inode: &Inode,
        map: &mut ExtentCache,
        index: u64,
        got: &[Allocated],
    ) -> Result<()> {
        let mut at = index;
        for a in got {
            let goes_on = at > 0 && map.lookup(at - 1).is_some_and(|(blk, _)| blk.plus(1) == a.start);
            self.stats.fragments.fetch_add(!goes_on as u64, Relaxed);
            map.insert(at, a.start, a.blocks);
            at += a.blocks as u64;
        }
        if inode.file_type != FileType::Regular {
            return Ok(());
        }
        let largest = map.largest;
        self.modify_node(inode.nid(), |p| set_extent(p, largest))
    }

    /// The number of first pages of a run that stay where they are, as long as this is one piece.
    fn stay_in_place(&self, inode: &Inode, olds: &[BlockAddr], how: Placement) -> usize {
        let Some(first) = olds.first().filter(|old| self.stays_in_place(inode, **old, how)) else { return 0 };
        let stays = |i: &usize| olds[*i].0 == first.0 + *i as u32 && !self.is_written_in_order(olds[*i]);
        (0..olds.len()).take_while(stays).count()
    }

    /// Whether a block is on a zone that must be written in order.
    fn is_written_in_order(&self, blk: BlockAddr) -> bool {
        let zones = self.sit.zones.as_ref();
        zones.is_some_and(|z| z.is_sequential(z.section_of(self.sit.place(blk).0.0)))
    }

    /// The in-place-update policy: files only, and only for fsync or where a new place is hard to find. The
    /// blocks of a pinned file stay in either case, as a user relies on their places. On zones, only blocks
    /// of pinned files stay, and only where the device allows it.
    fn stays_in_place(&self, inode: &Inode, old: BlockAddr, how: Placement) -> bool {
        let Placement::ByPolicy { in_place } = how else { return false };
        if !old.is_data() || inode.file_type != FileType::Regular {
            return false;
        }
        let pinned = fi(inode).has_inline(inline::PIN_FILE);
        if self.is_zoned() {
            return pinned && !self.is_written_in_order(old);
        }
        if !fi(inode).fsync.may_stay_in_place() {
            return false;
        }
        if pinned {
            return true;
        }
        if self.switches.mode() == AllocMode::Lfs {
            return false;
        }
        in_place || self.sit.free_segments().free <= self.ssr_threshold()
    }

    /// The number of pieces that a file's data lies in.
    ///
    /// # Errors
    /// The errors of reading the file's nodes.
    pub fn fragments_of(&self, inode: &Inode) -> Result<u64> {
        let (mut at, mut pieces, mut next) = (0, 0, BlockAddr::NULL);
        let end = inode.size().div_ceil(BLOCK_SIZE as u64);
        while at < end && !fi(inode).has_inline(inline::DATA) {
            let m = self.map_pages(inode, at, end - at)?;
            if m.blk.is_data() {
                pieces += (m.blk != next) as u64;
                next = m.blk.plus(m.pages as u32);
            }
            at += m.pages;
        }
        Ok(pieces)
    }
}

/// Sets the inode block's largest extent.
fn set_extent(page: &mut [u8], e: crate::file::extent::Extent) {
    if let Ok((raw, _)) = RawInode::mut_from_prefix(page) {
        raw.i_ext = e.to_raw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::units::SegNo;
    use crate::testing::new_volume_on_zones;
    use tidegate_vfs::{Cred, OpenFlags};

    /// The zones of the main area that can be written anywhere end in the middle of a run.
    #[test]
    fn a_pinned_run_stays_up_to_the_zones_that_are_written_in_order() {
        let (open, _) = new_volume_on_zones(12);
        let fs = &open.fs;
        let how = OpenFlags::WRITE | OpenFlags::CREATE;
        let f = open.vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
        let inode = f.inode();
        let first = fs.sit.zones.as_ref().unwrap().first();
        assert!(first > 0);
        let end = fs.sit.segment_start(SegNo(first * fs.sb.segs_per_sec));
        let run: Vec<BlockAddr> = (0..8).map(|i| BlockAddr(end.0 - 3 + i)).collect();
        let how = Placement::ByPolicy { in_place: true };
        assert_eq!(fs.stay_in_place(inode, &run, how), 0);
        fi(inode).set_inline(inline::PIN_FILE, true);
        assert_eq!(fs.stay_in_place(inode, &run, how), 3);
        assert_eq!(fs.stay_in_place(inode, &run[3..], how), 0);
    }
}
