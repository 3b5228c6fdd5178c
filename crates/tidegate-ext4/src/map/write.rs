//! Promises for pages that have no place yet, and passes that give them places and write them.
//!
//! A write promises space and leaves dirty pages (delayed allocation). A pass takes runs of them, fills their holes with
//! extents as long as the run, and sends each extent in bios of its own; the end of the last bio of a run ends its
//! write-back. Blocks that were only promised and unwritten blocks become written before their data is on the way: a
//! volume without a journal does not say more than that.

use super::Place;
use crate::format::raw::InodeFlags;
use crate::format::units::FileBlock;
use crate::inode::{ei, own};
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use tidegate_block::{Bio, BioFlags, Errno, PAGE_SIZE, PageBuf, Plug, Segment};
use tidegate_rt::Timespec;
use tidegate_vfs::fs::WriteEnd;
use tidegate_vfs::mapping::{DirtyRun, Tag, Taken};
use tidegate_vfs::{ErrorKind, Inode, Result, WritebackControl};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of a bio that does not begin at a multiple of a page: larger ones cannot go around the host's cache.
const ODD_BIO: u64 = 64 << 10;

/// A run of pages on the way: who has the last bio ends its write-back.
struct OnWay {
    inode: Arc<Inode>,
    index: u64,
    pages: usize,
    left: AtomicUsize,
    failed: AtomicUsize,
}

impl OnWay {
    fn end(&self, r: std::result::Result<(), Errno>) {
        if let Err(e) = r {
            self.inode.mapping.record_errno(e);
            self.failed.store(1, std::sync::atomic::Ordering::Release);
        }
        if self.left.fetch_sub(1, AcqRel) == 1 {
            let failed = self.failed.load(std::sync::atomic::Ordering::Acquire) != 0;
            self.inode.mapping.end_writeback(self.index, self.pages, failed.then_some(ErrorKind::Io));
        }
    }
}

impl Ext4 {
    fn file_blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        let bs = u64::from(self.sb.block_size);
        bytes.start / bs..bytes.end.div_ceil(bs)
    }

    /// Promises space for the holes of a range, and does what a write does to the attributes.
    pub(crate) fn promise_range(
        &self,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
        write: Option<&WriteEnd>,
    ) -> Result<()> {
        let end = write.map_or(bytes.end, |w| w.end.max(inode.size())).max(bytes.end);
        // Whole pages are written, as far as the file goes.
        let bytes = bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE).min(end.max(bytes.end));
        let blocks = self.file_blocks(&bytes);
        let mut at = blocks.start;
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            if m.place == Place::Hole {
                self.promise_hole(inode, at..at + m.blocks)?;
            }
            at += m.blocks;
        }
        if let Some(write) = write {
            write.apply(&mut inode.attr());
            return self.op(|handle| self.store_inode(handle, inode));
        }
        Ok(())
    }

    fn promise_hole(&self, inode: &Inode, hole: Range<u64>) -> Result<()> {
        let mut delayed = own(inode).delayed.lock();
        let new = hole.end - hole.start - delayed.count(hole.clone());
        self.space()?.promise(new, self.sb.reserved_blocks())?;
        delayed.add(hole);
        Ok(())
    }

    /// Takes promises for a range of blocks back.
    pub(crate) fn forget_promises(&self, inode: &Inode, blocks: Range<u64>) -> Result<()> {
        let gone = own(inode).delayed.lock().remove(blocks);
        self.space()?.release(gone);
        Ok(())
    }

    /// Writes an inode's dirty pages out; does not wait for them.
    pub(crate) fn write_data(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let (mut at, mut first) = (wbc.start, Ok(()));
        let mut plug = Plug::new(&self.blocks.queue);
        while wbc.nr_to_write > 0 {
            match inode.mapping.take_dirty(at, wbc.end, tag, PageBuf::MAX_PAGES) {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => {
                    plug.send(); // what we wait for may be in it
                    inode.mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    at = run.index + run.pages as u64;
                    let (index, pages) = (run.index, run.pages);
                    match self.write_run(inode, run, &mut plug) {
                        Ok(()) => {
                            wbc.written += pages as u64;
                            wbc.nr_to_write = wbc.nr_to_write.saturating_sub(pages as u64);
                        }
                        Err(e) => {
                            let kind = if e.kind() == ErrorKind::NoSpace { e.kind() } else { ErrorKind::Io };
                            inode.mapping.end_writeback(index, pages, Some(kind));
                            first = first.and(Err(e));
                            break;
                        }
                    }
                }
            }
        }
        first
    }

    /// Gives a run of pages places and sends it.
    fn write_run(&self, inode: &Arc<Inode>, run: DirtyRun, plug: &mut Plug<'_>) -> Result<()> {
        let (start, end) = (run.index * PAGE, (run.index + run.pages as u64) * PAGE);
        // Past its end a file gets no blocks.
        let end = end.min(inode.size());
        if start >= end {
            inode.mapping.end_writeback(run.index, run.pages, None);
            return Ok(());
        }
        let blocks = self.file_blocks(&(start..end));
        let pieces = self.give_places(inode, blocks)?;
        let way = Arc::new(OnWay {
            inode: inode.clone(),
            index: run.index,
            pages: run.pages,
            left: AtomicUsize::new(1),
            failed: AtomicUsize::new(0),
        });
        let bs = u64::from(self.sb.block_size);
        for (first, addr, n) in pieces {
            let (mut at, to) = (first * bs, (first + n) * bs);
            while at < to {
                let sector = self.blocks.sector(addr).bytes() + (at - first * bs);
                let odd =
                    !sector.is_multiple_of(PAGE) || !at.is_multiple_of(PAGE) || !to.is_multiple_of(PAGE);
                let len = if odd { (to - at).min(ODD_BIO) } else { to - at };
                let segments = cut(&run.segments, at - start, len);
                let way_on = way.clone();
                way.left.fetch_add(1, AcqRel);
                let flags = BioFlags::empty();
                let bio = Bio::write(tidegate_block::Sector::from_bytes(sector), segments, flags);
                plug.add(bio.on_end(move |r, _| way_on.end(r)));
                at += len;
            }
        }
        way.end(Ok(()));
        Ok(())
    }

    /// Gives every block of a range a place with data: first block of the file, of the volume, and how many.
    fn give_places(
        &self,
        inode: &Inode,
        blocks: Range<u64>,
    ) -> Result<Vec<(u64, crate::format::units::BlockAddr, u64)>> {
        loop {
            let (mut at, mut pieces, mut ready) = (blocks.start, Vec::new(), true);
            while at < blocks.end {
                let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
                match m.place {
                    Place::Data(addr) => pieces.push((at, addr, m.blocks)),
                    Place::Unwritten(_) => {
                        let range = at..at + m.blocks;
                        self.op(|handle| self.mark_written(handle, inode, range.clone()))?;
                        ready = false;
                    }
                    Place::Hole => {
                        let range = at..at + m.blocks;
                        // Promised or not: what was promised is taken now.
                        self.forget_promises(inode, range.clone())?;
                        self.op(|handle| self.fill_holes(handle, inode, range.clone(), false))?;
                        ready = false;
                    }
                }
                at += m.blocks;
            }
            if ready {
                return Ok(pieces);
            }
        }
    }

    /// Cuts a file to `size`, or only sets it.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64, now: Timespec) -> Result<()> {
        self.op(|handle| {
            let before = inode.size();
            {
                let mut a = inode.attr();
                (a.size, a.mtime, a.ctime) = (size, now, now);
            }
            if size < before || ei(inode).is(InodeFlags::EXTENTS) {
                let from = self.blocks_of(size);
                self.forget_promises(inode, from..u64::MAX)?;
                return self.free_range(handle, inode, from..u64::MAX);
            }
            self.store_inode(handle, inode)
        })
    }

    /// Frees the blocks of a range of whole pages.
    pub(crate) fn punch(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = self.file_blocks(&bytes);
        self.op(|handle| {
            self.forget_promises(inode, blocks.clone())?;
            self.free_range(handle, inode, blocks.clone())
        })
    }

    /// Gives the holes of a range blocks that read as zeros.
    pub(crate) fn preallocate_range(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        let blocks = self.file_blocks(&bytes);
        let mut at = blocks.start;
        while at < blocks.end {
            let m = self.map_shared(inode, FileBlock(at), blocks.end - at)?;
            let range = at..at + m.blocks;
            // Pages that wait for a place get theirs when they are written.
            if m.place == Place::Hole && !own(inode).delayed.lock().holds(range.clone()) {
                let promised = own(inode).delayed.lock().count(range.clone());
                if promised == 0 {
                    self.op(|handle| self.fill_holes(handle, inode, range.clone(), true))?;
                } else {
                    for block in range {
                        if own(inode).delayed.lock().count(block..block + 1) == 0 {
                            self.op(|handle| self.fill_holes(handle, inode, block..block + 1, true))?;
                        }
                    }
                }
            }
            at += m.blocks;
        }
        Ok(())
    }
}

/// The part of segments that begins `skip` bytes in and is `len` bytes long.
fn cut(segments: &[Segment], skip: u64, len: u64) -> Vec<Segment> {
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
