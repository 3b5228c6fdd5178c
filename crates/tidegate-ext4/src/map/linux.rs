//! Passes as in Linux, which hold a handle while they send pages (`nomap_first=off|on`).
//!
//! ```text
//! off        handle [ A A A B ] handle [ A B ] ...      A pages that have a place
//! on         A A A   handle [ B ] handle [ A B ] ...    B an extent that is placed, or is marked when it is there
//! pipelined  A A A B A B ...   handles for B's places end before anything is sent
//! ```
//!
//! A commit waits for a handle that waits for a congested device. Bios of a pass over many inodes share a
//! plug. A thread that waits for the journal sends the plug, as the plug holds credits that are kept for the
//! bios' end. One thing differs from Linux: the wait for a page that is on its way holds no handle, since the
//! page may wait for the commit.

use super::change::Fill;
use super::places::Stop;
use super::write::Then;
use crate::volume::conversion::Queue;
use crate::volume::handle::{Handle, HandleType};
use crate::volume::options::NomapFirst;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf, Plug};
use tidegate_vfs::mapping::{DirtyRun, Tag, Taken};
use tidegate_vfs::{ErrorKind, Inode, Result, WritebackControl};

const PAGE: u64 = PAGE_SIZE as u64;

/// A pass over an inode's dirty pages.
struct Pass<'a> {
    fs: &'a Ext4,
    inode: &'a Arc<Inode>,
    queue: &'a Arc<Queue>,
    wbc: &'a mut WritebackControl,
    plug: Plug<'a>,
    tag: Tag,
    /// The next page to look at.
    at: u64,
    /// A run that was taken, and its first page that is not sent yet.
    taken: Option<(DirtyRun, u64)>,
}

/// The end of a pass's step.
enum Step {
    /// The next page needs a place, or a mark when it is written.
    Needs,
    /// The next page is on its way.
    Busy(u64),
    /// The file of the taken run goes through the journal by now.
    Logs,
    /// No page is left.
    Done,
}

impl Ext4 {
    /// Writes an inode's dirty pages out as Linux does; does not wait for them.
    ///
    /// # Errors
    /// The first; pages that were not sent are dirty again.
    pub(super) fn write_as_linux(
        &self,
        inode: &Arc<Inode>,
        wbc: &mut WritebackControl,
        queue: &Arc<Queue>,
    ) -> Result<()> {
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let joined = self.joins(inode);
        let (at, mut plug) = (wbc.start, Plug::marking(&self.blocks.queue, wbc.to_write_flags()));
        if wbc.more_follow {
            // The volume's plug acts as the flusher's own plug, in which Linux has the bios of the
            // flusher's inodes.
            plug = plug.behind(&self.plug, &joined);
        }
        let mut pass = Pass { fs: self, inode, queue, wbc, plug, tag, at, taken: None };
        let r = pass.run(self.switches.nomap_first() == NomapFirst::On);
        if let Err(e) = &r {
            pass.give_back(e.kind());
        }
        r
    }
}

impl Pass<'_> {
    fn run(&mut self, mapped_first: bool) -> Result<()> {
        if mapped_first {
            loop {
                match self.send_mapped()? {
                    Step::Busy(page) => self.wait(page),
                    Step::Logs => self.log_taken()?,
                    Step::Needs | Step::Done => break,
                }
            }
            self.plug.send();
        }
        loop {
            let fs = self.fs;
            let step = fs.op_with_later(HandleType::WritePage, |handle| match self.send_mapped()? {
                Step::Needs => self.send_extents(handle).map(|()| Step::Needs),
                step => Ok(step),
            });
            self.plug.send();
            match step? {
                Step::Needs => {}
                Step::Busy(page) => self.wait(page),
                Step::Logs => self.log_taken()?,
                Step::Done => return Ok(()),
            }
        }
    }

    fn wait(&mut self, page: u64) {
        self.plug.send();
        self.inode.mapping.wait_writeback(page, page + 1);
    }

    /// Puts the taken run into transactions; no handle is held.
    fn log_taken(&mut self) -> Result<()> {
        self.plug.send();
        let Some((run, _)) = self.taken.take() else { return Ok(()) };
        self.fs.log_run(self.inode, &run, u64::MAX)?;
        self.wbc.written += run.pages as u64;
        self.wbc.nr_to_write = self.wbc.nr_to_write.saturating_sub(run.pages as u64);
        Ok(())
    }

    /// Makes taken pages that were not sent dirty again; an fsync gets the error.
    fn give_back(&mut self, why: ErrorKind) {
        let Some((run, from)) = self.taken.take() else { return };
        let pages = (run.index + run.pages as u64 - from) as usize;
        let kind = if why == ErrorKind::NoSpace { why } else { ErrorKind::Io };
        self.inode.end_writeback(from, pages, Some(kind));
    }

    /// Sends pages that have a place, until one needs more than that.
    fn send_mapped(&mut self) -> Result<Step> {
        loop {
            let Some((run, from)) = self.taken.take() else {
                if self.wbc.nr_to_write == 0 {
                    return Ok(Step::Done);
                }
                match self.inode.mapping.take_dirty(self.at, self.wbc.end, self.tag, PageBuf::MAX_PAGES) {
                    Taken::None => return Ok(Step::Done),
                    Taken::Busy(page) if self.wbc.sync_all => return Ok(Step::Busy(page)),
                    Taken::Busy(page) => self.at = page + 1,
                    Taken::Run(run) => {
                        self.at = run.index + run.pages as u64;
                        let from = run.index;
                        self.taken = Some((run, from));
                        if self.fs.logs_data(self.inode) {
                            return Ok(Step::Logs);
                        }
                    }
                }
                continue;
            };
            let end = run.index + run.pages as u64;
            let (start, size) = (from * PAGE, self.inode.size());
            if start >= size {
                // A file gets no blocks past its end.
                self.inode.mapping.end_writeback(from, (end - from) as usize, None);
                continue;
            }
            let to = (end * PAGE).min(size);
            self.taken = Some((run, from));
            let blocks = self.fs.file_blocks(&(start..to));
            let done = self.fs.places(self.inode, &blocks, Stop::Unmarked)?.until;
            let pages = if done >= blocks.end {
                end - from
            } else {
                (done - blocks.start) / self.fs.blocks.per_page()
            };
            if pages == 0 {
                return Ok(Step::Needs);
            }
            let blocks = blocks.start..done.min(blocks.start + pages * self.fs.blocks.per_page());
            let then = self.fs.follows(self.inode, false, to.min((from + pages) * PAGE), self.queue);
            self.send(from..from + pages, blocks, then)?;
        }
    }

    /// Gives the rest of the taken run places, as much as there is room for, and sends it.
    fn send_extents(&mut self, handle: &mut Handle<'_>) -> Result<()> {
        let Some((run, from)) = &self.taken else { return Ok(()) };
        let (from, end) = (*from, run.index + run.pages as u64);
        let to = (end * PAGE).min(self.inode.size());
        let blocks = self.fs.file_blocks(&(from * PAGE..to));
        let covered = self.fs.fill_promised(handle, self.inode, blocks.clone(), Fill::Unwritten)?;
        let pages = if covered >= blocks.end {
            end - from
        } else {
            (covered - blocks.start) / self.fs.blocks.per_page()
        };
        let mut then = self.fs.follows(self.inode, true, to.min((from + pages) * PAGE), self.queue);
        if let Then::Convert(turn) = &mut then {
            turn.later = handle.later();
        }
        self.send(from..from + pages, blocks.start..covered, then)
    }

    /// Sends pages of the taken run, all of which have a place.
    fn send(&mut self, pages: Range<u64>, blocks: Range<u64>, then: Then) -> Result<()> {
        let placed = self.fs.places(self.inode, &blocks, Stop::Never)?;
        let Some((run, from)) = self.taken.take() else { return Ok(()) };
        let sent = match self.fs.send_pages(self.inode, &run, pages, (blocks, placed), then, &mut self.plug) {
            Ok(sent) => sent,
            Err(e) => {
                self.taken = Some((run, from));
                return Err(e);
            }
        };
        self.wbc.written += sent;
        self.wbc.nr_to_write = self.wbc.nr_to_write.saturating_sub(sent);
        if from + sent < run.index + run.pages as u64 {
            self.taken = Some((run, from + sent));
        }
        Ok(())
    }
}
