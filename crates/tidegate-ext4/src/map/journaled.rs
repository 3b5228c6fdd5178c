//! Data that goes through the journal: of all files with `data=journal`, and of files with the flag for it
//! (`chattr +j`).
//!
//! A write ends when its pages are in a transaction, with their places and the file's new size: nothing is
//! delayed, and a power cut leaves writes in their order. The journal writes the blocks to their places
//! later, and until then reads find them in its cache. A freed block is revoked, as another file may write to
//! it without the journal.

use super::Place;
use super::change::Fill;
use super::groups::OF_A_RUN;
use super::write::{Taking, cut};
use crate::format::raw::InodeFlags;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::{Ext4Inode, ei, own};
use crate::volume::handle::{Handle, HandleType};
use crate::volume::options::DataMode;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{PAGE_SIZE, PageBuf, Plug};
use tidegate_jbd2::FsBlock;
use tidegate_vfs::mapping::{DirtyRun, Tag, Taken};
use tidegate_vfs::{Error, ErrorKind, FileType, Inode, Result, WritebackControl};

const PAGE: u64 = PAGE_SIZE as u64;
/// Most blocks of data that one handle puts into its transaction.
const DATA_AT_ONCE: u64 = 256;
/// Most blocks of data that one handle frees and revokes.
const REVOKES_AT_ONCE: u64 = 2048;

impl Ext4 {
    /// Whether the data of an inode goes through the journal, by its flags on the volume.
    pub(super) fn logs_data_of(&self, inode: &Ext4Inode) -> bool {
        self.blocks.journal().is_some()
            && (self.switches.data() == DataMode::Journal || inode.is(InodeFlags::JOURNAL_DATA))
    }

    /// Whether a file's data goes through the journal.
    pub(crate) fn logs_data(&self, inode: &Inode) -> bool {
        inode.file_type == FileType::Regular
            && self.blocks.journal().is_some()
            && self.logs_data_of(&ei(inode))
    }

    /// Most blocks of a file in one piece that one change may free: each group of these takes a bitmap and a
    /// descriptor.
    pub(crate) fn freed_at_once(&self, inode: &Inode) -> u64 {
        match (self.blocks.journal(), self.revoked_at_once(inode)) {
            (None, _) => u64::MAX,
            (Some(_), 0) => OF_A_RUN * u64::from(self.sb.blocks_per_group),
            (Some(_), most) => most.min(OF_A_RUN * u64::from(self.sb.blocks_per_group)),
        }
    }

    /// Most blocks of a file that one change revokes one by one: blocks of logged data, and of a directory.
    pub(crate) fn revoked_at_once(&self, inode: &Inode) -> u64 {
        let revoked = self.logs_data(inode) || inode.file_type != FileType::Regular;
        if revoked && self.blocks.journal().is_some() { REVOKES_AT_ONCE } else { 0 }
    }

    /// Puts an inode's dirty pages into transactions.
    ///
    /// # Errors
    /// The first error; pages that are in no transaction stay dirty.
    pub(super) fn log_pages(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let mut at = wbc.start;
        while wbc.nr_to_write > 0 {
            let (taken, size) = inode.take_dirty(at, wbc.end, tag, PageBuf::MAX_PAGES);
            match taken {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => inode.mapping.wait_writeback(i, i + 1),
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    at = run.index + run.pages as u64;
                    let mut plug = Plug::marking(&self.blocks.queue, wbc.to_write_flags());
                    self.write_or_log(inode, &run, &mut plug, Taking { size, order: None, here: None })?;
                    wbc.written += run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                }
            }
        }
        Ok(())
    }

    /// Puts a run of pages into as many transactions as it needs. They make the file reach to byte `size` at most.
    pub(super) fn log_run(&self, inode: &Arc<Inode>, run: &DirtyRun, size: u64) -> Result<()> {
        let (mut from, end) = (run.index, run.index + run.pages as u64);
        let mut stuck = false;
        while from < end {
            let logged = match self.log_part(inode, run, from..end, size) {
                // Marks alone may have filled a transaction.
                Ok(0) if stuck => Err(Error::new(ErrorKind::Io, "no transaction has room for a page")),
                logged => logged,
            };
            match logged {
                Ok(pages) => {
                    stuck = pages == 0;
                    inode.mapping.end_writeback(from, pages as usize, None);
                    from += pages;
                }
                Err(e) => {
                    let kind = if e.kind() == ErrorKind::NoSpace { e.kind() } else { ErrorKind::Io };
                    inode.end_writeback(from, (end - from) as usize, Some(kind));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Puts the first of some pages of a run into a transaction; returns their number.
    fn log_part(&self, inode: &Arc<Inode>, run: &DirtyRun, pages: Range<u64>, size: u64) -> Result<u64> {
        let Some(end) = self.end_of_run(inode, &pages, size) else {
            return Ok(pages.end - pages.start);
        };
        let all = self.file_blocks(&(pages.start * PAGE..end));
        let per_page = self.blocks.per_page();
        let most = DATA_AT_ONCE.min(self.blocks.most_data()).max(per_page) / per_page * per_page;
        let blocks = all.start..all.end.min(all.start + most);
        let done = self.op_with_data(HandleType::WritePage, blocks.end - blocks.start, |handle| {
            self.log_blocks(handle, inode, run, blocks.clone(), end)
        })?;
        Ok(if done == all.end { pages.end - pages.start } else { (done - all.start) / per_page })
    }

    /// Gives blocks places and puts their data into the handle's transaction, as many as there is room for,
    /// up to byte `end` of the file; returns the first block that was not reached. Blocks that read as zeros
    /// until then never show anything else.
    fn log_blocks(
        &self,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
        run: &DirtyRun,
        blocks: Range<u64>,
        end: u64,
    ) -> Result<u64> {
        let bs = u64::from(self.sb.block_size);
        handle.keep_for_data((blocks.end - blocks.start) as u32);
        let placed = self.fill_promised(handle, inode, blocks.clone(), Fill::Unwritten)?;
        let marked = self.mark_written(handle, inode, blocks.start..placed, &mut std::iter::empty())?;
        handle.keep_for_data(0);
        let mut at = blocks.start;
        while at < marked {
            let m = self.map_shared(inode, FileBlock(at), marked - at)?;
            match m.place {
                Place::Data(addr) => (0..m.blocks).try_for_each(|n| {
                    self.log_block(handle, run, (at + n) * bs - run.index * PAGE, addr.plus(n))
                })?,
                // Nothing was written to it; it may have got a place ahead of data meanwhile.
                Place::Hole | Place::Unwritten(_) => {}
            }
            at += m.blocks;
        }
        // This comes before the pages are clean: an fsync that finds them clean waits for the commit.
        own(inode).note(handle.tid());
        own(inode).note_needed(handle.tid());
        let whole = marked == blocks.end && marked * bs >= end;
        self.raise_disk_size(handle, inode, if whole { self.size_with(inode, end) } else { marked * bs })?;
        Ok(marked)
    }

    /// Puts the block that begins `skip` bytes into a run into the handle's transaction.
    fn log_block(&self, handle: &mut Handle<'_>, run: &DirtyRun, skip: u64, addr: BlockAddr) -> Result<()> {
        let parts = cut(&run.segments, skip, self.sb.block_size.into());
        self.stats.data_blocks.fetch_add(1, Relaxed);
        handle.log_data(addr, |block| {
            let mut to = 0;
            for s in &parts {
                let (from, len) = (s.offset as usize, s.len as usize);
                block[to..to + len].copy_from_slice(&s.buf[from..from + len]);
                to += len;
            }
        })
    }

    /// Puts the pages that a write left dirty into a transaction, if the file's data goes through the
    /// journal.
    ///
    /// # Errors
    /// As [`Ext4::log_pages`].
    pub(crate) fn log_written(&self, inode: &Arc<Inode>, bytes: Range<u64>) -> Result<()> {
        if !self.logs_data(inode) {
            return Ok(());
        }
        let (start, end) = (bytes.start / PAGE, bytes.end.div_ceil(PAGE));
        let r = self.log_pages(inode, &mut WritebackControl { start, end, ..WritebackControl::sync() });
        self.note_behind(inode);
        r
    }

    /// Data of a file that is in the journal and not in its place on the device yet: the number of blocks
    /// that it covers, and its bytes. This is looked up before the device is read.
    pub(super) fn logged(
        &self,
        inode: &Inode,
        addr: BlockAddr,
        blocks: u64,
    ) -> Vec<(usize, tidegate_jbd2::Block)> {
        match self.blocks.journal().filter(|_| self.logs_data(inode)) {
            None => Vec::new(),
            Some(journal) => (0..blocks)
                .filter_map(|n| Some((n as usize, journal.cache().peek(FsBlock(addr.plus(n).0))?)))
                .collect(),
        }
    }

    /// Applies a change of the flag that sends a file's data through the journal: earlier writes are in their
    /// place first. The caller holds `i_rwsem` exclusive.
    ///
    /// # Errors
    /// Those of writing; the file's data goes the old way then.
    pub(crate) fn settle_logging(&self, inode: &Arc<Inode>) -> Result<()> {
        let wants = InodeFlags::from_bits_retain(inode.attr().flags).contains(InodeFlags::JOURNAL_DATA);
        if wants == ei(inode).is(InodeFlags::JOURNAL_DATA) {
            return Ok(());
        }
        if let Some(journal) = self.blocks.journal()
            && inode.file_type == FileType::Regular
            && self.switches.data() != DataMode::Journal
        {
            self.write_data(inode, &mut WritebackControl::sync())?;
            inode.mapping.wait_writeback(0, u64::MAX);
            if inode.mapping.next_unwritten(0, u64::MAX).is_some() {
                return Err(inode
                    .mapping
                    .last_error("what was written before cannot be")
                    .in_inode(inode.ino));
            }
            if !wants {
                // Recovery would otherwise write the log's old data over data that is written in place from
                // here on.
                journal.commit()?;
                journal.checkpoint()?;
            }
        }
        Arc::make_mut(&mut own(inode).write()).flags.set(InodeFlags::JOURNAL_DATA, wants);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::mkfs::{MkfsOptions, mkfs};
    use crate::volume::options::Ext4Options;
    use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
    use tidegate_vfs::{Bdi, Cred, File, MemoryLimits, MountOptions, OpenFlags, SetAttr, Vfs};

    /// A file whose dirty pages wait for a pass.
    fn dirty(vfs: &Arc<Vfs>) -> File {
        let inode = vfs.create(&Cred::ROOT, &vfs.root().unwrap(), b"f", 0o644).unwrap();
        let file = vfs.open(&Cred::ROOT, &inode, OpenFlags::WRITE).unwrap();
        file.write_at(0, &[1; 20_000]).unwrap();
        file
    }

    /// The flag changes between the start of a pass and the time when it takes pages.
    #[test]
    fn passes_look_at_the_flag_again() {
        let queue =
            Arc::new(RequestQueue::new(Arc::new(MemoryDevice::new(32 << 20)), QueueLimits::default()));
        mkfs(&queue, &MkfsOptions::default()).unwrap();
        let bdi = Bdi::new(MemoryLimits::default());
        let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default()).unwrap();
        let how = MountOptions { no_periodic_writeback: true, ..MountOptions::default() };
        let vfs = Vfs::mount(fs.clone(), bdi, how).unwrap();
        let file = dirty(&vfs);
        let inode = file.inode();
        let in_place = || fs.stats.data_bios.load(Relaxed);
        fs.log_pages(inode, &mut WritebackControl::sync()).unwrap();
        let bios = in_place();
        assert!(bios > 0 && inode.mapping.nr_dirty() == 0, "they go where they belong");
        inode.mapping.wait_writeback(0, u64::MAX);

        file.write_at(0, &[2; 20_000]).unwrap();
        let (Taken::Run(run), size) = inode.take_dirty(0, u64::MAX, Tag::Dirty, PageBuf::MAX_PAGES) else {
            panic!("pages are dirty");
        };
        let flags = inode.attr().flags | InodeFlags::JOURNAL_DATA.bits();
        inode.attr().flags = flags;
        Arc::make_mut(&mut own(inode).write()).flags.insert(InodeFlags::JOURNAL_DATA);
        fs.write_or_log(
            inode,
            &run,
            &mut Plug::new(&fs.blocks.queue),
            Taking { size, order: None, here: None },
        )
        .unwrap();
        assert_eq!((in_place(), inode.mapping.nr_dirty()), (bios, 0), "they are in a transaction");
        vfs.setattr(&Cred::ROOT, inode, &SetAttr::default()).unwrap();
        drop(file);
        vfs.unmount().unwrap();
    }
}
