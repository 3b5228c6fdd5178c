//! Writes failed pages to other places.

use crate::file::write::{DataPass, Placement};
use crate::file::write_io::Sender;
use crate::format::units::BlockAddr;
use crate::inode::fi;
use crate::node::dnode::Found;
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::BioFlags;
use tidegate_vfs::mapping::{Tag, Taken};
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

/// Places that a checkpoint tries for a page before it gives up.
const TRIES: u32 = 4;

impl F2fs {
    /// Writes failed pages, and the nodes that name their places, to other places until all are written. For
    /// the checkpoint, with operations frozen.
    ///
    /// # Errors
    /// `Io` when a page cannot be written anywhere; those of writing nodes.
    pub(crate) fn rewrite_failed_pages(&self) -> Result<()> {
        let failed = &self.write_io.failed_pages;
        if failed.is_empty() {
            return Ok(());
        }
        for again in 0..=TRIES {
            // No page may be under write-back here, and no node in flight, whatever the checkpoint leaves so.
            self.drain_all()?;
            if failed.is_empty() {
                return Ok(());
            }
            if again == TRIES {
                break;
            }
            if again > 0 {
                // More than one block may be bad.
                self.close_streams()?;
                for log in Log::DATA {
                    let _ = self.leave_segment(log);
                }
                self.finish_zones(true);
            }
            for (inode, pages) in failed.all() {
                for index in pages {
                    self.rewrite_failed_page(&inode, index)?;
                }
            }
            self.sync_nodes()?;
        }
        match failed.all().first() {
            None => Ok(()),
            Some((inode, pages)) => {
                let page = pages.first().copied().unwrap_or_default();
                let what = format!("page {page} cannot be written anywhere");
                Err(inode.mapping.last_error(what).in_inode(inode.ino))
            }
        }
    }

    fn rewrite_failed_page(&self, inode: &Arc<Inode>, index: u64) -> Result<()> {
        let m = &inode.mapping;
        let run = match m.take_dirty(index, index + 1, Tag::Dirty, 1) {
            Taken::Run(run) => Some(run),
            _ if m.has(index) => m.take_cached(index, 1),
            // A thread that is about to cut the page off has dropped it from memory: its bytes are not
            // needed.
            _ => return self.take_place_away(inode, index),
        };
        let busy = || Error::new(ErrorKind::Busy, "a page under write-back in a checkpoint");
        let mut pass = DataPass::new(Placement::Rescue, BioFlags::SYNC);
        let r = self.place_and_send(inode, run.ok_or_else(busy)?, None, &mut pass);
        self.end_pass(&mut pass, Sender::Caller);
        r
    }

    /// Leaves a page with its reservation, so that it reads as zeros.
    fn take_place_away(&self, inode: &Inode, index: u64) -> Result<()> {
        let mut map = fi(inode).map.lock();
        self.write_io.failed_pages.settle(inode.ino.0, index..index + 1);
        let Found::At(d) = self.find_dnode(inode, index)? else { return Ok(()) };
        let old = self.addresses(inode, &d, 1)?[0];
        if !old.is_data() {
            return Ok(());
        }
        map.invalidate(index, 1);
        self.update_addresses(inode, &d, 1, |_, _| BlockAddr::NEW)?;
        self.guard(self.sit.invalidate(&[old]))?;
        let attr = inode.attr().clone();
        self.store_inode_with(inode, &attr, map.largest)
    }
}
