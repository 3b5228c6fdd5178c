//! File data: reads of pages, reservations of space for pages.

use crate::file::extent::ExtentCache;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::fi;
use crate::node::dnode::{Dnode, Found};
use crate::volume::sbi::F2fs;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{Bio, BioData, BioFlags, PageBuf};
use tidegate_vfs::fs::WriteEnd;
use tidegate_vfs::{Error, ErrorKind, Inode, PageRun, Result, SeekTarget};

/// Neighbouring pages of one sort: on neighbouring blocks, or without blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// First block; `NULL` for a hole, `NEW` for reserved pages.
    pub blk: BlockAddr,
    pub pages: u64,
}

impl F2fs {
    /// The place of page `index`, and how many of the next `max` pages go on in one piece. Looks into the
    /// extent cache, then into the nodes.
    pub(crate) fn map_pages(&self, inode: &Inode, index: u64, max: u64) -> Result<Mapped> {
        if let Some((blk, len)) = fi(inode).map.lock().lookup(index) {
            return Ok(Mapped { blk, pages: (len as u64).min(max) });
        }
        let d = match self.find_dnode(inode, index)? {
            Found::Hole(n) => return Ok(Mapped { blk: BlockAddr::NULL, pages: n.min(max) }),
            Found::At(d) => d,
        };
        let addrs = self.addresses(inode, &d, max.min(usize::MAX as u64) as usize)?;
        let first = addrs[0];
        let goes_on = |i: usize| {
            if first.is_data() {
                Some(addrs[i].0) == first.0.checked_add(i as u32)
            } else {
                addrs[i] == first
            }
        };
        let pages = (1..addrs.len()).take_while(|i| goes_on(*i)).count() as u64 + 1;
        self.check_data_addr(first, inode.ino.0)?;
        if first.is_data() {
            self.check_data_addr(first.plus(pages as u32 - 1), inode.ino.0)?;
        }
        Ok(Mapped { blk: first, pages })
    }

    /// Reads pages from the volume, a device read for each piece; holes are zeros.
    pub(crate) fn read_data(&self, inode: &Inode, index: u64, pages: usize) -> Result<Vec<PageRun>> {
        if fi(inode).has_inline(inline::DATA) {
            return Ok(vec![self.read_inline(inode, index)?]);
        }
        self.refuse_encoded(inode)?;
        let mut out = Vec::new();
        let mut at = index;
        let end = index + pages as u64;
        while at < end {
            let moves = self.gc.moves(inode.ino);
            let m = self.map_pages(inode, at, (end - at).min(PageBuf::MAX_PAGES as u64))?;
            let n = m.pages as usize;
            // Cleaning may have moved pages since they were found missing: the new blocks of these pages are
            // not written yet.
            inode.mapping.wait_writeback(at, at + m.pages);
            let buf = if m.blk.is_data() {
                let bio = Bio::read(m.blk.sector(), vec![PageBuf::stale(n)], BioFlags::SYNC);
                match self.queue.submit_wait(bio) {
                    Ok(BioData::Read(mut v)) if v.len() == 1 => v.remove(0),
                    Ok(_) => return Err(ErrorKind::Io.into()),
                    Err(e) => {
                        let e = Error::device_at(e, "reading", m.blk.place());
                        return Err(e.in_inode(inode.ino));
                    }
                }
            } else {
                PageBuf::zeroed(n)
            };
            if self.gc.moves(inode.ino) != moves {
                continue; // cleaning moved the page; another file's bytes may be there now
            }
            out.push(PageRun { buf: Arc::new(buf), first: 0, pages: n });
            at += m.pages;
        }
        Ok(out)
    }

    /// Refuses data that the volume has in a form which Tidegate cannot decode.
    fn refuse_encoded(&self, inode: &Inode) -> Result<()> {
        let what = if fi(inode).compressed {
            "compressed"
        } else if fi(inode).has_advise(advise::ENCRYPT)
            && inode.file_type != tidegate_vfs::FileType::Directory
        {
            "encrypted"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Unsupported, format!("its data is {what}")).in_inode(inode.ino))
    }

    /// Gives holes among the pages a reservation (`NEW`), so that their write-back cannot fail for want of
    /// space. Stores the reservations together with what `write` does. Takes `cp_rwsem` shared, then
    /// `i_dnode`. A write to pages that all have a place already takes no `cp_rwsem`, so that it does not
    /// wait for a checkpoint.
    ///
    /// # Errors
    /// `NoSpace`, with no new reservation made. `Unsupported` for pages of a pinned file on zones that have
    /// no place which can be written again.
    pub(crate) fn reserve_pages(
        &self,
        inode: &Arc<Inode>,
        index: u64,
        pages: u64,
        write: Option<&WriteEnd>,
    ) -> Result<()> {
        self.check_pinned(inode, index, index + pages)?;
        if let Some(write) = write
            && self.are_reserved(inode, index, index + pages)?
        {
            let grows = write.end > inode.size();
            if !write.apply(&mut inode.attr()) {
                return Ok(());
            }
            if grows {
                fi(inode).fsync.inode_changed();
            }
            self.dirty_inode(inode);
            return Ok(());
        }
        let _op = self.cp_rwsem.read();
        if fi(inode).has_inline(inline::DATA) {
            self.convert_inline(inode)?;
        }
        let map = fi(inode).map.lock();
        let reserved = self.reserve_holes(inode, &map, index, index + pages);
        let write = write.filter(|_| reserved.is_ok());
        let mut attr = {
            let mut a = inode.attr();
            a.blocks += reserved.as_ref().map_or(0, |sectors| *sectors);
            a.clone()
        };
        if let Some(write) = write {
            write.apply(&mut attr);
        }
        // The inode is stored also when space ran out on the way: nodes made for it stay.
        self.store_inode_with(inode, &attr, map.largest)?;
        if let Some(write) = write {
            write.apply(&mut inode.attr());
        }
        reserved.map(drop)
    }

    /// On zones, refuses pages of a pinned file that would get another place when they are written. Linux
    /// gives such a file places in zones that can be written anywhere, all before the file is written
    /// (`fallocate`); so does Tidegate.
    fn check_pinned(&self, inode: &Inode, mut at: u64, end: u64) -> Result<()> {
        let f = fi(inode);
        let Some(zones) = self.sit.zones.as_ref().filter(|_| f.has_inline(inline::PIN_FILE)) else {
            return Ok(());
        };
        while at < end {
            let m = match f.has_inline(inline::DATA) {
                true => Mapped { blk: BlockAddr::NULL, pages: 1 },
                false => self.map_pages(inode, at, end - at)?,
            };
            self.check_data_addr(m.blk, inode.ino.0)?;
            let last =
                m.blk.is_data().then(|| self.sit.place(m.blk.plus(m.pages.saturating_sub(1) as u32)).0);
            if last.is_none_or(|seg| zones.is_sequential(zones.section_of(seg.0))) {
                let what =
                    format!("is pinned, and page {at} has no place on the zones that can be written again");
                return Err(Error::new(ErrorKind::Unsupported, what).in_inode(inode.ino));
            }
            at += m.pages;
        }
        Ok(())
    }

    /// Whether each of the pages `at..end` has a place or a reservation. The caller holds `i_rwsem`, so that
    /// the answer stays true.
    fn are_reserved(&self, inode: &Inode, mut at: u64, end: u64) -> Result<bool> {
        if fi(inode).has_inline(inline::DATA) {
            return Ok(false);
        }
        while at < end {
            let m = self.map_pages(inode, at, end - at)?;
            if m.blk != BlockAddr::NEW && !m.blk.is_data() {
                return Ok(false);
            }
            at += m.pages;
        }
        Ok(true)
    }

    /// Reserves space for the holes in `start..end`, for all or for none. `blocks` of the inode has grown for
    /// nodes that were made on the way; the caller adds the returned number of sectors for the pages.
    pub(crate) fn reserve_holes(
        &self,
        inode: &Inode,
        map: &ExtentCache,
        start: u64,
        end: u64,
    ) -> Result<u64> {
        let mut done = Vec::new();
        let r = self.reserve_each_hole(inode, map, start..end, &mut done);
        if r.is_err() {
            // These pages will not be written, and may lie past the end of the file.
            for (d, holes) in &done {
                if self.unreserve(inode, d, holes).is_err() {
                    // The reservations could not be taken back: the pages stay reserved.
                    inode.attr().blocks += count(holes) * 8;
                }
            }
        }
        r.map(|()| done.iter().map(|(_, holes)| count(holes) * 8).sum())
    }

    /// Reserves space for holes as far as there is room; `done` tells for each node which of its addresses
    /// were reserved.
    fn reserve_each_hole(
        &self,
        inode: &Inode,
        map: &ExtentCache,
        Range { start, end }: Range<u64>,
        done: &mut Vec<(Dnode, Vec<bool>)>,
    ) -> Result<()> {
        let mut at = start;
        while at < end {
            if let Some((_, len)) = map.lookup(at) {
                at += (len as u64).min(end - at);
                continue;
            }
            let d = self.make_dnode(inode, at)?;
            let n = d.room.min((end - at) as usize);
            let is_hole: Vec<bool> =
                self.addresses(inode, &d, n)?.iter().map(|a| *a == BlockAddr::NULL).collect();
            let holes = count(&is_hole);
            if holes > 0 {
                self.book(holes, 0, 0)?;
                self.update_addresses(inode, &d, n, |i, old| if is_hole[i] { BlockAddr::NEW } else { old })
                    .inspect_err(|_| self.unbook(holes, 0, 0))?;
                done.push((d, is_hole));
            }
            at += n as u64;
        }
        Ok(())
    }

    /// Takes reservations back.
    fn unreserve(&self, inode: &Inode, d: &Dnode, reserved: &[bool]) -> Result<()> {
        self.update_addresses(
            inode,
            d,
            reserved.len(),
            |i, old| {
                if reserved[i] { BlockAddr::NULL } else { old }
            },
        )?;
        self.unbook(count(reserved), 0, 0);
        Ok(())
    }

    /// The next page at or after `index` that is data, or a hole.
    pub(crate) fn seek_pages(
        &self,
        inode: &Inode,
        index: u64,
        end: u64,
        target: SeekTarget,
        unwritten: &dyn Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        if fi(inode).has_inline(inline::DATA) {
            return Ok((target == SeekTarget::Data && index < end).then_some(index));
        }
        let mut at = index;
        while at < end {
            let m = self.map_pages(inode, at, end - at)?;
            if m.blk != BlockAddr::NEW {
                let is_data = m.blk.is_data() || m.blk == BlockAddr::COMPRESS;
                if is_data == (target == SeekTarget::Data) {
                    return Ok(Some(at));
                }
                at += m.pages;
                continue;
            }
            // Reserved pages are data or holes each on its own; other pages of a run are alike.
            let found = (at..at + m.pages).find(|i| unwritten(*i) == (target == SeekTarget::Data));
            // A page has its block before its write-back ends. So a page that had no unwritten bytes and is
            // still only reserved afterwards has no data.
            let sure = found.map_or(m.pages, |i| i - at + u64::from(target == SeekTarget::Hole));
            let still = if sure == 0 { m } else { self.map_pages(inode, at, sure)? };
            if sure > 0 && (still.blk != BlockAddr::NEW || still.pages < sure) {
                continue;
            }
            if found.is_some() {
                return Ok(found);
            }
            at += m.pages;
        }
        Ok(None)
    }
}

fn count(which: &[bool]) -> u64 {
    which.iter().filter(|w| **w).count() as u64
}
