//! A pass over an inode's dirty pages: the runs that it takes, one after the other.

use super::write::Taking;
use crate::inode::{ei, own};
use crate::volume::conversion::Here;
use crate::volume::options::NomapFirst;
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{PAGE_SIZE, PageBuf, Plug};
use tidegate_rt::MutexGuard;
use tidegate_vfs::mapping::{Tag, Taken};
use tidegate_vfs::{Inode, Result, WritebackControl};

const PAGE: u64 = PAGE_SIZE as u64;

impl Ext4 {
    /// Writes an inode's dirty pages out; does not wait for them.
    pub(crate) fn write_data(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        if self.logs_data(inode) {
            return self.log_pages(inode, wbc);
        }
        if let Some(queue) = self.conversions_of(inode)
            && self.switches.nomap_first() != NomapFirst::Pipelined
            && self.blocks.journal().is_some()
        {
            return self.write_as_linux(inode, wbc, queue);
        }
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        if wbc.sync_all {
            inode.mapping.tag_towrite(wbc.start, wbc.end);
        }
        let joined = self.joins(inode);
        let mut plug = Plug::marking(&self.blocks.queue, wbc.to_write_flags());
        if wbc.more_follow {
            plug = plug.behind(&self.plug, &joined);
        }
        let here = wbc.fsync.map(|_| Here::new());
        let r = self.write_runs(inode, wbc, tag, &mut plug, here.as_ref());
        // With the lock, no other pass gives places meanwhile.
        if let Some(_order) = own(inode).order.try_lock()
            && inode.mapping.nr_dirty() == 0
        {
            own(inode).ahead.store(false, Relaxed);
        }
        if let Some(here) = here {
            plug.send_here();
            self.convert(here.close());
        }
        r
    }

    /// Gives runs of dirty pages places and sends them, until there are no more.
    fn write_runs(
        &self,
        inode: &Arc<Inode>,
        wbc: &mut WritebackControl,
        tag: Tag,
        plug: &mut Plug<'_>,
        here: Option<&Arc<Here>>,
    ) -> Result<()> {
        let (mut at, mut filled, mut first) = (wbc.start, 0, Ok(()));
        while wbc.nr_to_write > 0 {
            let order = self.order_of(inode, plug);
            let Some(next) = inode.mapping.first_dirty(at, wbc.end, tag) else { break };
            let gap = self.left_out(inode, filled, next);
            let (taken, size) = match gap {
                Some(page) => inode.take_dirty(page, next, Tag::Dirty, PageBuf::MAX_PAGES),
                None => inode.take_dirty(at, wbc.end, tag, PageBuf::MAX_PAGES),
            };
            match taken {
                Taken::None if gap.is_none() => break,
                // A write still makes the file longer, and no thread that waits for this pass waits for that.
                Taken::None if gap.is_some_and(|page| inode.mapping.is_dirty(page)) => break,
                // The file was cut meanwhile.
                Taken::None => filled = next,
                // No thread waits for this pass, and the next one finds the page on the device.
                Taken::Busy(_) if gap.is_some() && !wbc.sync_all => break,
                Taken::Busy(i) if wbc.sync_all => {
                    drop(order);
                    plug.send(); // the page that this thread waits for may be in it
                    // Another pass may wait for pages of this one.
                    self.mark_arrived(here, plug);
                    inode.mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    let end = run.index + run.pages as u64;
                    if gap.is_some() {
                        filled = end;
                    } else {
                        at = end;
                    }
                    if wbc.written > 0 {
                        // For a large file, the thread marks runs while others are sent.
                        self.mark_arrived(here, plug);
                    }
                    let taking = Taking { size, order: Some(order), here };
                    if let Err(e) = self.write_or_log(inode, &run, plug, taking) {
                        first = first.and(Err(e));
                        break;
                    }
                    wbc.written += run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                }
            }
        }
        first
    }

    /// Locks the order in which a file's pages are taken. The thread that has the lock may wait for a commit, and the
    /// commit for pages in this plug, so they are sent before the wait.
    fn order_of<'a>(&self, inode: &'a Inode, plug: &mut Plug<'_>) -> MutexGuard<'a, ()> {
        let order = &own(inode).order;
        order.try_lock().unwrap_or_else(|| {
            plug.send();
            order.lock()
        })
    }

    /// The first dirty page, from page `from` on, that has to be sent before page `next`: with that page, the file gets
    /// longer in the table, also by the bytes of pages before it. A pass would leave out a page that is on its way and
    /// got more bytes meanwhile, or one that is not in its range. The caller holds the file's order.
    fn left_out(&self, inode: &Inode, from: u64, next: u64) -> Option<u64> {
        let covered = ei(inode).disk_size / PAGE;
        if covered >= next {
            return None;
        }
        let sent = own(inode).sent.lock().end_of_all() / PAGE;
        inode.mapping.first_dirty(covered.max(sent).max(from), next, Tag::Dirty)
    }

    /// Marks runs that have arrived, if any have. Bios in the plug are sent first: a mark may wait for the
    /// journal.
    fn mark_arrived(&self, here: Option<&Arc<Here>>, plug: &mut Plug<'_>) {
        let arrived = here.map(|h| h.close()).unwrap_or_default();
        if !arrived.is_empty() {
            plug.send();
            self.convert(arrived);
        }
    }
}
