//! Writing file data out: an extent is allocated for each run of dirty pages.

use crate::curseg::Log;
use crate::dnode::{Dnode, Found};
use crate::gc::For;
use crate::inode::fi;
use crate::options::AllocMode;
use crate::raw::*;
use crate::sbi::F2fs;
use crate::units::BlockAddr;
use crate::write_io::Pages;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{BioFlags, PAGE_SIZE, PageBuf, Segment};
use tidegate_vfs::mapping::{DirtyRun, Tag, Taken};
use tidegate_vfs::{ErrorKind, FileType, Inode, Result, WritebackControl};

/// fsync of at most this many dirty pages writes them where they are (`min_fsync_blocks`).
const MIN_FSYNC_BLOCKS: u64 = 8;
/// Times that room is made for a pass that gets no further.
const ROOM_TRIES: u32 = 4;

/// Where pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// To the log of the file's temperature, or where they are.
    ByPolicy { in_place: bool },
    /// To the cold log, away from where they are: cleaning.
    Move,
}

impl F2fs {
    /// Writes an inode's dirty pages out; does not wait for them. No lock held by the caller.
    ///
    /// # Errors
    /// `NoSpace` when no segment has room even after cleaning; the pages stay dirty.
    pub(crate) fn write_data(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let mut tries = ROOM_TRIES;
        loop {
            let before = wbc.written;
            let op = self.cp_rwsem.read();
            let r = self.write_data_locked(inode, wbc);
            drop(op);
            match r {
                Err(e) if e.kind() == ErrorKind::NoSpace && tries > 0 => {
                    tries = if wbc.written > before { ROOM_TRIES } else { tries - 1 };
                    self.make_room()?;
                    if wbc.sync_all {
                        inode.mapping.tag_towrite(wbc.start, wbc.end);
                    }
                }
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    inode.mapping.record_error(ErrorKind::NoSpace);
                    return Err(e);
                }
                r => return r,
            }
        }
    }

    /// The same for who holds `cp_rwsem`: an operation, or the checkpoint itself.
    pub(crate) fn write_data_locked(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        let max = self.queue.limits().max_segments.min(PageBuf::MAX_PAGES);
        // Few pages for fsync: where they are, no node has to be written for them.
        let in_place = wbc.fsync.is_some_and(|d| d || inode.mapping.nr_dirty() <= MIN_FSYNC_BLOCKS);
        let mut at = wbc.start;
        while wbc.nr_to_write > 0 {
            match inode.mapping.take_dirty(at, wbc.end, tag, max) {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => {
                    inode.mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    at = run.index + run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                    let how = Placement::ByPolicy { in_place };
                    self.write_run(inode, run, wbc.sync_all, how, &mut wbc.written)?;
                }
            }
        }
        if inode.is_dir() && inode.mapping.nr_dirty() == 0 {
            self.dirty_dirs.lock().remove(&inode.ino.0);
        }
        Ok(())
    }

    /// Places a run of pages and submits it; adds what was placed to `placed`. On an error the rest is
    /// dirty again.
    pub(crate) fn write_run(
        &self,
        inode: &Arc<Inode>,
        run: DirtyRun,
        sync: bool,
        how: Placement,
        placed: &mut u64,
    ) -> Result<()> {
        let DirtyRun { index, pages, segments } = run;
        let mut segments = Segments { list: segments.into(), bytes_used: 0 };
        let mut done = 0;
        let flags = if sync { BioFlags::SYNC } else { BioFlags::BACKGROUND };
        let log = if how == Placement::Move { Log::ColdData } else { self.data_log(inode) };
        while done < pages {
            let at = index + done as u64;
            match self.place_run(inode, at, pages - done, how) {
                Ok((place, n)) => {
                    let part = segments.take(n);
                    if let Some((blk, moved)) = place {
                        let pages = Pages { inode: inode.clone(), index: at, pages: n, moved };
                        self.write_io.add(&self.stats, log, blk, part, Some(pages), flags);
                        self.stats.placed(how == Placement::Move, n as u64);
                    } else {
                        // Cut off or punched meanwhile: nothing to write.
                        inode.mapping.end_writeback(at, n, None);
                    }
                    done += n;
                    *placed += n as u64;
                }
                // Room can be made.
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    inode.mapping.redirty(at, pages - done);
                    return Err(e);
                }
                Err(e) => {
                    inode.mapping.end_writeback(at, pages - done, Some(e.kind()));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Decides where pages from `index` on go and makes the block map say so: the first block, whether
    /// that is a new place, and how many pages go there in one piece. `None` for pages that have no
    /// place any more.
    fn place_run(
        &self,
        inode: &Inode,
        index: u64,
        pages: usize,
        how: Placement,
    ) -> Result<(Option<(BlockAddr, bool)>, usize)> {
        let mut map = fi(inode).map.lock();
        let d = match self.find_dnode(inode, index)? {
            Found::At(d) => d,
            Found::Hole(n) => return Ok((None, pages.min(n as usize))),
        };
        let olds = self.addresses(inode, &d, pages)?;
        if olds[0] == BlockAddr::NULL {
            return Ok((None, olds.iter().take_while(|a| **a == BlockAddr::NULL).count()));
        }
        let n = olds.iter().take_while(|a| **a != BlockAddr::NULL).count();
        for a in &olds[..n] {
            self.check_data_addr(*a, inode.ino.0)?;
        }
        if self.stays_in_place(inode, olds[0], how) {
            let n = (0..n).take_while(|i| olds[*i].0 == olds[0].0 + *i as u32).count();
            self.stats.in_place.fetch_add(n as u64, Relaxed);
            return Ok((Some((olds[0], false)), n));
        }
        let (start, n) = self.allocate_for(inode, &d, n, how)?;
        if how == Placement::Move {
            self.gc.moving(inode.ino);
        }
        self.update_addresses(inode, &d, n, |i, _| start.plus(i as u32))?;
        let freed: Vec<BlockAddr> = olds[..n].iter().copied().filter(|a| a.is_data()).collect();
        self.guard(self.sit.invalidate(&freed))?;
        map.insert(index, start, n as u32);
        if inode.file_type == FileType::Regular {
            let largest = map.largest;
            self.modify_node(crate::units::Nid(inode.ino.0 as u32), |p| set_extent(p, largest))?;
        }
        Ok((Some((start, true)), n))
    }

    fn allocate_for(&self, inode: &Inode, d: &Dnode, n: usize, how: Placement) -> Result<(BlockAddr, usize)> {
        let version = self.nat.versions(&self.meta, &[d.nid])?[0];
        let (log, whom) = match how {
            Placement::Move => (Log::ColdData, For::Cleaning),
            // A checkpoint has to write them.
            _ if inode.is_dir() => (self.data_log(inode), For::Checkpoint),
            _ => (self.data_log(inode), For::Data),
        };
        let a = self.allocate_for_whom(log, whom, n as u32, |i| RawSummary {
            nid: d.nid.0.into(),
            version,
            ofs_in_node: ((d.slot as u32 + i) as u16).into(),
        })?;
        Ok((a.start, a.blocks as usize))
    }

    /// The in-place-update policy: files only, and only for fsync or where a new place is hard to find.
    fn stays_in_place(&self, inode: &Inode, old: BlockAddr, how: Placement) -> bool {
        let Placement::ByPolicy { in_place } = how else { return false };
        if !old.is_data() || inode.file_type != FileType::Regular || self.switches.mode() == AllocMode::Lfs {
            return false;
        }
        in_place || self.sit.free_segments().0 <= self.ssr_threshold()
    }
}

/// Sets the inode block's largest extent.
fn set_extent(page: &mut [u8], e: crate::extent::Extent) {
    let at = std::mem::offset_of!(RawInode, i_ext);
    page[at..at + 4].copy_from_slice(&(e.fofs as u32).to_le_bytes());
    page[at + 4..at + 8].copy_from_slice(&e.blk.0.to_le_bytes());
    page[at + 8..at + 12].copy_from_slice(&e.len.to_le_bytes());
}

/// The memory of a run, handed out from its front.
struct Segments {
    list: std::collections::VecDeque<Segment>,
    bytes_used: u32,
}

impl Segments {
    /// The next `pages` pages.
    fn take(&mut self, pages: usize) -> Vec<Segment> {
        let mut want = (pages * PAGE_SIZE) as u32;
        let mut out = Vec::new();
        while want > 0 {
            let Some(s) = self.list.front() else { break };
            let n = want.min(s.len - self.bytes_used);
            out.push(Segment { buf: s.buf.clone(), offset: s.offset + self.bytes_used, len: n });
            self.bytes_used += n;
            want -= n;
            if self.bytes_used == s.len {
                self.list.pop_front();
                self.bytes_used = 0;
            }
        }
        out
    }
}
