//! Passes that give pages places and write them.
//!
//! A write promises space (`promise`) and leaves dirty pages: delayed allocation. A pass takes runs of dirty
//! pages, fills their holes with extents as long as the run, and sends each extent in bios of its own. The
//! end of a run's last bio ends its write-back. A file with an extent tree gets its places first, and they
//! are marked written when the data is there (`convert`). A block map has no such mark: the transaction that
//! gives pages places commits when the pages are on the device. The size in the table covers only data on the
//! device. A volume without a journal promises no such order.

use super::Place;
use super::change::Fill;
use super::places::{Placed, Stop};
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::ei;
use crate::volume::conversion::{Here, Turn, Written};
use crate::volume::handle::{self, Handle, HandleType};
use crate::volume::options::DataMode;
use crate::volume::ordered;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use tidegate_block::{Bio, BioFlags, Errno, PAGE_SIZE, Plug, Sector, Segment};
use tidegate_rt::MutexGuard;
use tidegate_vfs::mapping::DirtyRun;
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

const PAGE: u64 = PAGE_SIZE as u64;
/// Most bytes of a bio that does not begin at a multiple of a page: a larger one cannot bypass the host's
/// cache.
const ODD_BIO: u64 = 64 << 10;

/// A run of pages on its way. Each of its bios holds it, and the last bio to end ends its write-back.
struct OnWay {
    inode: Arc<Inode>,
    index: u64,
    pages: usize,
    /// The blocks of those pages that are sent, in order.
    blocks: Vec<Range<u64>>,
    failed: AtomicBool,
    then: Then,
}

/// The work at the end of a run that is on the device.
pub(super) enum Then {
    /// Nothing.
    End,
    /// The commit that gave the run its places. It waits for the run, and fails if the run fails.
    Commit(ordered::OnWay),
    /// The run's blocks are marked written, and its write-back ends only after that.
    Convert(Turn),
}

/// A pass that has taken pages.
pub(super) struct Taking<'a> {
    /// The pages hold all bytes of the file before this one.
    pub size: u64,
    /// The file's `ei->i_order_lock`, until the last of the pages has a place and a turn.
    pub order: Option<MutexGuard<'a, ()>>,
    /// The runs that arrive while the pass is at work, if its thread waits for it.
    pub here: Option<&'a Arc<Here>>,
}

impl OnWay {
    /// Notes that a bio of the run has ended, or that all are sent.
    fn end(self: Arc<Self>, r: std::result::Result<(), Errno>) {
        if let Err(e) = r {
            self.inode.mapping.record_errno(e);
            self.failed.store(true, Release);
        }
        if let Some(way) = Arc::into_inner(self) {
            way.ended();
        }
    }

    fn ended(self) {
        let OnWay { inode, index, pages, blocks, failed, then } = self;
        let failed = failed.into_inner();
        match then {
            Then::Convert(turn) if !failed => return Written { inode, index, pages, blocks, turn }.arrived(),
            Then::Commit(ordered) if !failed => ordered.arrived(),
            // No run waits for this one's turn once its pages are dirty again.
            then => drop(then),
        }
        inode.end_writeback(index, pages, failed.then_some(ErrorKind::Io));
    }
}

impl Ext4 {
    /// The callback for bios of an inode that join the plug of a pass over many.
    pub(super) fn joins(&self, inode: &Inode) -> impl Fn(u64) {
        move |load| {
            inode.mapping.gathered().store(load, SeqCst);
            inode.mapping.joined();
            self.ordered.joined();
        }
    }

    /// Writes a run of pages, or puts it into transactions, whichever the file's flag says by now. A change
    /// of the flag finds no pages dirty or on their way, but passes that have begun go on.
    pub(super) fn write_or_log(
        &self,
        inode: &Arc<Inode>,
        run: &DirtyRun,
        plug: &mut Plug<'_>,
        taking: Taking<'_>,
    ) -> Result<()> {
        if self.logs_data(inode) {
            drop(taking.order);
            plug.send(); // a commit may wait for pages in it
            return self.log_run(inode, run, taking.size);
        }
        self.write_run(inode, run, plug, taking)
    }

    /// Gives a run of pages places and sends it, in parts if one transaction has no room for all. Pages that
    /// cannot be sent stay dirty.
    fn write_run(
        &self,
        inode: &Arc<Inode>,
        run: &DirtyRun,
        plug: &mut Plug<'_>,
        mut taking: Taking<'_>,
    ) -> Result<()> {
        let (mut from, end) = (run.index, run.index + run.pages as u64);
        while from < end {
            match self.write_part(inode, run, from..end, plug, &mut taking) {
                Ok(pages) => from += pages,
                Err(e) => {
                    let kind = if e.kind() == ErrorKind::NoSpace { e.kind() } else { ErrorKind::Io };
                    inode.end_writeback(from, (end - from) as usize, Some(kind));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Sends the first of some pages of a run, at least one; returns their number.
    fn write_part(
        &self,
        inode: &Arc<Inode>,
        run: &DirtyRun,
        pages: Range<u64>,
        plug: &mut Plug<'_>,
        taking: &mut Taking<'_>,
    ) -> Result<u64> {
        let all = pages.end - pages.start;
        let Some(end) = self.end_of_run(inode, &pages, taking.size) else {
            inode.mapping.end_writeback(pages.start, all as usize, None);
            return Ok(all);
        };
        let blocks = self.file_blocks(&(pages.start * PAGE..end));
        // The pages in the plug are sent before the wait for a commit, which may wait for them.
        let (placed, mut then) = match self.conversions_of(inode) {
            Some(queue) => self.set_aside(inode, &blocks, (end, taking.size), queue, plug)?,
            None => self.place(inode, &blocks, end, plug)?,
        };
        if let Then::Convert(turn) = &mut then {
            turn.here = taking.here.cloned();
        }
        if placed.until >= blocks.end {
            taking.order = None;
        }
        debug_assert!(!handle::is_held(), "pages are sent while a commit waits for this thread");
        self.send_pages(inode, run, pages, (blocks, placed), then, plug)
    }

    /// Sends the first of some pages of a run, as many as can be sent with all of their blocks;
    /// returns their number.
    ///
    /// # Errors
    /// `Io` when not even one page does: a page keeps its place until it is written.
    pub(super) fn send_pages(
        &self,
        inode: &Arc<Inode>,
        run: &DirtyRun,
        pages: Range<u64>,
        (blocks, placed): (Range<u64>, Placed),
        mut then: Then,
        plug: &mut Plug<'_>,
    ) -> Result<u64> {
        let (all, per_page) = (pages.end - pages.start, self.blocks.per_page());
        let Placed { mut pieces, until: done, .. } = placed;
        let sent = if done >= blocks.end { all } else { (done - blocks.start) / per_page };
        if sent == 0 {
            return Err(Error::new(ErrorKind::Io, "pages lost their place while they were written"));
        }
        let until = if sent < all { blocks.start + sent * per_page } else { done };
        pieces.retain(|p| p.0 < until);
        if let Some(last) = pieces.last_mut() {
            last.2 = last.2.min(until - last.0);
        }
        if let Then::Convert(turn) = &mut then {
            turn.shorten((pages.start + sent) * PAGE);
        }
        let way = Arc::new(OnWay {
            inode: inode.clone(),
            index: pages.start,
            pages: sent as usize,
            blocks: joined(&pieces),
            failed: AtomicBool::new(false),
            then,
        });
        self.send(run, pieces, way, plug);
        Ok(sent)
    }

    /// Gives blocks places with data, as far as there is room; the commit waits for the data.
    fn place(
        &self,
        inode: &Arc<Inode>,
        blocks: &Range<u64>,
        end: u64,
        plug: &mut Plug<'_>,
    ) -> Result<(Placed, Then)> {
        let (mut placed, mut then) = (self.places(inode, blocks, Stop::Unmarked)?, Then::End);
        let done = placed.until;
        let longer =
            || ei(inode).disk_size < inode.size() && ei(inode).disk_size < self.size_with(inode, end);
        if done < blocks.end || longer() {
            plug.send();
            match self
                .op(HandleType::WritePage, |handle| self.give_places(handle, inode, done..blocks.end, end))
            {
                Ok((covered, way)) => {
                    then = way.map_or(Then::End, Then::Commit);
                    placed = self.places(inode, &(blocks.start..covered), Stop::Never)?;
                }
                // Pages that have a place can be sent.
                Err(e) if e.kind() == ErrorKind::NoSpace && done >= blocks.start + self.blocks.per_page() => {
                }
                Err(e) => return Err(e),
            }
        }
        Ok((placed, then))
    }

    /// Sends the pages of a run that lie in the given pieces.
    fn send(&self, run: &DirtyRun, pieces: Vec<(u64, BlockAddr, u64)>, way: Arc<OnWay>, plug: &mut Plug<'_>) {
        let bs = u64::from(self.sb.block_size);
        self.stats.data_fragments.fetch_add(pieces.len() as u64, Relaxed);
        for (first, addr, n) in pieces {
            self.stats.data_blocks.fetch_add(n, Relaxed);
            let (mut at, to) = (first * bs, (first + n) * bs);
            while at < to {
                let sector = self.blocks.sector(addr).bytes() + (at - first * bs);
                let odd =
                    !sector.is_multiple_of(PAGE) || !at.is_multiple_of(PAGE) || !to.is_multiple_of(PAGE);
                let len = if odd { (to - at).min(ODD_BIO) } else { to - at };
                let segments = cut(&run.segments, at - run.index * PAGE, len);
                let way = way.clone();
                self.stats.data_bios.fetch_add(1, Relaxed);
                let bio = Bio::write(Sector::from_bytes(sector), segments, BioFlags::empty());
                plug.add(bio.on_end(move |r, _| way.end(r)));
                at += len;
            }
        }
        way.end(Ok(()));
    }

    /// Gives the blocks of a range places with data, as [`Ext4::fill_promised`] does, and sets the file's
    /// size to the end of its data. Returns the block behind those that have one, and what the commit waits for.
    ///
    /// # Errors
    /// As [`Ext4::fill_promised`].
    fn give_places(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        blocks: Range<u64>,
        end: u64,
    ) -> Result<(u64, Option<ordered::OnWay>)> {
        let covered = self.fill_promised(handle, inode, blocks.clone(), Fill::Data)?;
        let marked = self.mark_written(handle, inode, blocks.start..covered, &mut std::iter::empty())?;
        let per_page = self.blocks.per_page();
        let covered = if marked < covered { marked / per_page * per_page } else { covered };
        let whole = covered >= blocks.end;
        let to = if whole { self.size_with(inode, end) } else { covered * u64::from(self.sb.block_size) };
        self.raise_disk_size(handle, inode, to)?;
        let ordered = self.switches.data() == DataMode::Ordered;
        Ok((covered, handle.tid().filter(|_| ordered).map(|tid| self.ordered.begin(tid))))
    }

    /// Fills the promised holes of a range, whole pages of them, as many as there is room for; returns the
    /// first block behind those that need no place any more.
    ///
    /// # Errors
    /// `NoSpace` when not even the first page has a place; those of the map.
    pub(super) fn fill_promised(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        blocks: Range<u64>,
        fill: Fill,
    ) -> Result<u64> {
        let (mut at, mut filled) = (blocks.start, Vec::<Range<u64>>::new());
        let _placing = self.space()?.placing();
        let per_page = self.blocks.per_page();
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            let hole = at..at + m.blocks;
            let promised = match m.place {
                Place::Hole => self.next_promised(inode, hole.clone()),
                _ => None,
            };
            let Some(part) = promised else {
                at = hole.end;
                continue;
            };
            at = part.start;
            let page_begins = filled.last().is_some_and(|f| (f.end - 1) / per_page < at / per_page);
            if page_begins && handle.is_low() {
                break;
            }
            at = match self.fill_holes(handle, inode, part.clone(), fill) {
                Err(e) if e.kind() == ErrorKind::NoSpace => at,
                r => r?,
            };
            filled.push(part.start..at);
            if at < part.end {
                break;
            }
        }
        // A page that has no place as a whole keeps none for its parts: nothing would be written there.
        let covered = if at < blocks.end { (at / per_page * per_page).max(blocks.start) } else { at };
        for part in filled {
            if part.end > covered {
                self.free_range(handle, inode, part.start.max(covered)..part.end)?;
            }
            // The promises for these blocks are used up now.
            self.forget_promises(inode, part.start..part.end.min(covered).max(part.start))?;
        }
        if covered < blocks.end && (covered == blocks.start || !self.begins_page(covered)) {
            return Err(ErrorKind::NoSpace.into());
        }
        Ok(covered)
    }

    /// Whether a page of a file begins with this block.
    pub(super) fn begins_page(&self, block: u64) -> bool {
        block.is_multiple_of(self.blocks.per_page())
    }
}

/// The blocks of the file in pieces that are in the file's order.
fn joined(pieces: &[(u64, BlockAddr, u64)]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for (first, _, n) in pieces {
        match all.last_mut().filter(|last| last.end == *first) {
            Some(last) => last.end += n,
            None => all.push(*first..first + n),
        }
    }
    all
}

/// The part of segments that begins `skip` bytes in and is `len` bytes long.
pub(super) fn cut(segments: &[Segment], skip: u64, len: u64) -> Vec<Segment> {
    let (mut skip, mut len, mut out) = (skip as u32, len as u32, Vec::new());
    for s in segments {
        if skip >= s.len {
            skip -= s.len;
            continue;
        }
        let n = (s.len - skip).min(len);
        if n == 0 {
            break;
        }
        out.push(Segment { buf: s.buf.clone(), offset: s.offset + skip, len: n });
        (skip, len) = (0, len - n);
    }
    out
}
