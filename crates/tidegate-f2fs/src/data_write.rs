//! Writing file data out: an extent is allocated for each run of dirty pages.

use crate::dnode::{Dnode, Found};
use crate::inode::fi;
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

impl F2fs {
    /// Writes an inode's dirty pages out; does not wait for them. No lock held by the caller.
    ///
    /// # Errors
    /// `NoSpace` when no segment has room even after a checkpoint; the pages stay dirty.
    pub(crate) fn write_data(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let mut retried = false;
        loop {
            let op = self.cp_rwsem.read();
            let r = self.write_data_locked(inode, wbc);
            drop(op);
            match r {
                Err(e) if e.kind() == ErrorKind::NoSpace && !retried => {
                    // Blocks freed since the last checkpoint become usable with the next.
                    retried = true;
                    self.checkpoint(false)?;
                    if wbc.sync_all {
                        inode.mapping.tag_towrite(wbc.start, wbc.end);
                    }
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
                    wbc.written += run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                    self.write_run(inode, run, wbc.sync_all, in_place)?;
                }
            }
        }
        if inode.is_dir() && inode.mapping.nr_dirty() == 0 {
            self.dirty_dirs.lock().remove(&inode.ino.0);
        }
        Ok(())
    }

    /// Places a run of pages and submits it. On an error what was not placed is dirty again.
    fn write_run(&self, inode: &Arc<Inode>, run: DirtyRun, sync: bool, in_place: bool) -> Result<()> {
        let DirtyRun { index, pages, segments } = run;
        let mut segments = Segments { list: segments.into(), bytes_used: 0 };
        let mut done = 0;
        let flags = if sync { BioFlags::SYNC } else { BioFlags::BACKGROUND };
        while done < pages {
            let at = index + done as u64;
            match self.place_run(inode, at, pages - done, in_place) {
                Ok((placed, n)) => {
                    let part = segments.take(n);
                    if let Some((blk, moved)) = placed {
                        let pages = Pages { inode: inode.clone(), index: at, pages: n, moved };
                        self.write_io.add(&self.stats, self.data_log(inode), blk, part, Some(pages), flags);
                    } else {
                        // Cut off or punched meanwhile: nothing to write.
                        inode.mapping.end_writeback(at, n, None);
                    }
                    done += n;
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
        in_place: bool,
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
        if self.stays_in_place(inode, olds[0], in_place) {
            let n = (0..n).take_while(|i| olds[*i].0 == olds[0].0 + *i as u32).count();
            self.stats.in_place.fetch_add(n as u64, Relaxed);
            return Ok((Some((olds[0], false)), n));
        }
        let (start, n) = self.allocate_for(inode, &d, n)?;
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

    fn allocate_for(&self, inode: &Inode, d: &Dnode, n: usize) -> Result<(BlockAddr, usize)> {
        let version = self.nat.versions(&self.meta, &[d.nid])?[0];
        let a = self.allocate(self.data_log(inode), n as u32, |i| RawSummary {
            nid: d.nid.0.into(),
            version,
            ofs_in_node: ((d.slot as u32 + i) as u16).into(),
        })?;
        Ok((a.start, a.blocks as usize))
    }

    /// The in-place-update policy: files only, and only for fsync or where a new place is hard to find.
    fn stays_in_place(&self, inode: &Inode, old: BlockAddr, wanted: bool) -> bool {
        if !old.is_data() || inode.file_type != FileType::Regular {
            return false;
        }
        wanted || self.sit.free_segments().0 <= self.ssr_threshold()
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
