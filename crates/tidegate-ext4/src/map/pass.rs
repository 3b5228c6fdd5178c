//! A pass over an inode's dirty pages: the runs that it takes, one after the other.

use crate::volume::conversion::Here;
use crate::volume::options::NomapFirst;
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use tidegate_block::{PageBuf, Plug};
use tidegate_vfs::mapping::{Tag, Taken};
use tidegate_vfs::{Inode, Result, WritebackControl};

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
        if wbc.fsync.is_none() {
            return self.write_runs(inode, wbc, tag, &mut plug, None);
        }
        let here = Here::new();
        let r = self.write_runs(inode, wbc, tag, &mut plug, Some(&here));
        plug.send_here();
        self.convert(here.close());
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
        let (mut at, mut first) = (wbc.start, Ok(()));
        while wbc.nr_to_write > 0 {
            match inode.mapping.take_dirty(at, wbc.end, tag, PageBuf::MAX_PAGES) {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => {
                    plug.send(); // the page that this thread waits for may be in it
                    // Another pass may wait for pages of this one.
                    self.mark_arrived(here, plug);
                    inode.mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    at = run.index + run.pages as u64;
                    if wbc.written > 0 {
                        // For a large file, the thread marks runs while others are sent.
                        self.mark_arrived(here, plug);
                    }
                    if let Err(e) = self.write_or_log(inode, &run, plug, here) {
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
