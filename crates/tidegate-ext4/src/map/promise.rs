//! Promises of space for blocks that have no place yet. A page may have several blocks, and only those that were written
//! to get one.

use super::Place;
use crate::format::raw::RawExtentHeader;
use crate::format::units::FileBlock;
use crate::inode::{Ext4Inode, ei, keep_what_fits, own};
use crate::volume::handle::HandleType;
use crate::volume::sbi::Ext4;
use std::ops::Range;
use std::sync::Arc;
use tidegate_vfs::fs::WriteEnd;
use tidegate_vfs::{ErrorKind, Inode, Result};
use zerocopy::FromBytes;

/// How often a promise is tried again while passes go on.
const TRIES: u32 = 16;

impl Ext4 {
    /// Promises space for the holes that a write goes to, and changes the attributes as the write does. Bytes that only
    /// become zero need no space: their blocks have a place, or a promise, or are holes and stay so.
    pub(crate) fn promise_range(
        &self,
        inode: &Arc<Inode>,
        bytes: Range<u64>,
        write: Option<&WriteEnd>,
    ) -> Result<()> {
        let Some(write) = write else { return self.check_writable() };
        // Blocks promised behind the file's end would never be used.
        let bytes = bytes.start..bytes.end.min(write.end.max(inode.size()));
        let promised = self.promise_anyhow(inode, self.file_blocks(&bytes))?;
        let extra = ei(inode).extra;
        let before = {
            let mut a = inode.attr();
            let before = (a.size, a.mtime, a.ctime);
            write.apply(&mut a);
            // Short inodes keep whole seconds.
            keep_what_fits(&mut a, extra);
            if before == (a.size, a.mtime, a.ctime) {
                return Ok(());
            }
            before
        };
        let stored = self.op(HandleType::Inode, |handle| self.store_attr(handle, inode));
        if stored.is_err() {
            {
                let mut a = inode.attr();
                (a.size, a.mtime, a.ctime) = before;
            }
            promised.into_iter().try_for_each(|blocks| self.forget_promises(inode, blocks))?;
        }
        stored
    }

    /// Promises space as [`Ext4::promise_holes`] does, and tries again where passes were giving blocks places: for that
    /// time, these count twice.
    fn promise_anyhow(&self, inode: &Inode, blocks: Range<u64>) -> Result<Vec<Range<u64>>> {
        let space = self.space()?;
        for _ in 0..TRIES {
            let seen = space.placings_ended();
            match self.promise_holes(inode, blocks.clone()) {
                Err(e) if e.kind() == ErrorKind::NoSpace && space.wait_placed(seen) => {}
                r => return r,
            }
        }
        self.promise_holes(inode, blocks)
    }

    /// Promises space for all holes of a range of blocks, or for none; returns the holes that had no promise.
    /// Takes `ei->i_data_sem` shared, so that no pass fills a hole meanwhile.
    fn promise_holes(&self, inode: &Inode, blocks: Range<u64>) -> Result<Vec<Range<u64>>> {
        let data = own(inode).read();
        let (mut at, mut holes) = (blocks.start, Vec::new());
        while at < blocks.end {
            let m = self.map_blocks(&data, FileBlock(at), blocks.end - at)?;
            if m.place == Place::Hole {
                holes.push(at..at + m.blocks);
            }
            at += m.blocks;
        }
        let mut delayed = own(inode).delayed.lock();
        let new: Vec<_> = holes.into_iter().flat_map(|hole| delayed.missing(hole)).collect();
        let (space, fits) = (self.space()?, |parts: usize| fits_in_inode(&data, parts));
        delayed.add_all(&new, fits, |wanted| space.promise(wanted, self.kept_back()))?;
        Ok(new)
    }

    /// Takes back the promises for a range of blocks.
    pub(crate) fn forget_promises(&self, inode: &Inode, blocks: Range<u64>) -> Result<()> {
        let gone = own(inode).delayed.lock().remove(blocks);
        self.space()?.release(gone);
        Ok(())
    }
}

/// Whether a file's inode has room for so many more extents.
fn fits_in_inode(inode: &Ext4Inode, more: usize) -> bool {
    let root = RawExtentHeader::read_from_prefix(&inode.block).map(|(root, _)| root);
    root.is_ok_and(|root| {
        let (entries, most) = (usize::from(root.eh_entries.get()), usize::from(root.eh_max.get()));
        // The nodes below a root that has some take their share of the data.
        root.eh_depth.get() > 0 || entries + more <= most
    })
}
