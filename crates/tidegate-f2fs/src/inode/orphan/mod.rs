//! Inodes that have lost their last name and are still open. The checkpoint pack lists them, so that the next
//! mount frees them. The pack has room for a limited number: a thread that may add an orphan acquires a place
//! first.

use crate::format::raw::*;
use crate::volume::sbi::F2fs;
use std::collections::BTreeSet;
use tidegate_block::PageBuf;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromZeros, IntoBytes};

/// Blocks of a pack that hold no orphans: head and tail, and a summary for each log.
const OTHER_BLOCKS: usize = 2 + NR_CURSEG_TYPE;

/// Most orphans that a pack with `payload` blocks of bitmaps has room for.
pub(crate) fn max_orphans(payload: u32) -> usize {
    (BLOCKS_PER_SEG as usize).saturating_sub(OTHER_BLOCKS + payload as usize) * ORPHANS_PER_BLOCK
}

/// The numbers of all orphans.
pub(crate) struct Orphans {
    inos: BTreeSet<u32>,
    /// Places acquired by threads that have not added an orphan yet.
    acquired: usize,
    max: usize,
}

impl Orphans {
    pub(crate) fn new(inos: BTreeSet<u32>, max: usize) -> Orphans {
        Orphans { inos, acquired: 0, max }
    }

    pub(crate) fn insert(&mut self, ino: u32) {
        self.inos.insert(ino);
    }

    pub(crate) fn remove(&mut self, ino: &u32) {
        self.inos.remove(ino);
    }

    pub(crate) fn contains(&self, ino: u32) -> bool {
        self.inos.contains(&ino)
    }

    pub(crate) fn len(&self) -> usize {
        self.inos.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &u32> {
        self.inos.iter()
    }
}

/// A place for one more orphan. It is given back when dropped, which is after the orphan was added.
pub(crate) struct OrphanPlace<'a>(&'a F2fs);

impl Drop for OrphanPlace<'_> {
    fn drop(&mut self) {
        self.0.orphans.lock().acquired -= 1;
    }
}

impl F2fs {
    /// Acquires a place for an inode that may become an orphan, before anything is changed for it. Takes
    /// `ino_lock`.
    ///
    /// # Errors
    /// `NoSpace` when the checkpoint pack has room for no more.
    pub(crate) fn acquire_orphan_inode(&self) -> Result<OrphanPlace<'_>> {
        let mut o = self.orphans.lock();
        if o.inos.len() + o.acquired >= o.max {
            return Err(Error::new(ErrorKind::NoSpace, "too many files without a name are open"));
        }
        o.acquired += 1;
        Ok(OrphanPlace(self))
    }

    /// The orphan blocks of the checkpoint pack.
    pub(crate) fn pack_orphans(&self) -> Vec<PageBuf> {
        let inos: Vec<u32> = self.orphans.lock().iter().copied().collect();
        let count = inos.len().div_ceil(ORPHANS_PER_BLOCK);
        inos.chunks(ORPHANS_PER_BLOCK)
            .enumerate()
            .map(|(i, part)| {
                let mut b = RawOrphanBlock::new_zeroed();
                b.ino.iter_mut().zip(part).for_each(|(to, n)| *to = (*n).into());
                b.blk_addr = (i as u16 + 1).into();
                b.blk_count = (count as u16).into();
                b.entry_count = (part.len() as u32).into();
                PageBuf::from_slice(b.as_bytes())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
