//! The volume's blocks: read through a small cache, changed in memory, written in order.

use crate::format::raw::*;
use crate::offline::device::Reader;
use crate::volume::overlay::Overlay;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_block::{Bio, BioFlags, PageBuf, RequestQueue, Sector, Segment};
use tidegate_vfs::{Error, ErrorKind, Result};

/// Most bytes of changes that are kept in memory.
const MOST: usize = 512 << 20;
/// Most blocks that get copies of other blocks' bytes.
const MOST_COPIES: usize = 4 << 20;

/// The stage at which a changed block is written. A volume on which only some stages were written can be
/// repaired to an equal result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Nothing on the volume names it yet.
    Fresh,
    /// Inodes, directories, maps.
    InPlace,
    /// Inodes, directories and maps in blocks that had two owners, written after the other owner's inode and
    /// map have given the block up.
    Shared,
    /// Bitmaps and descriptors, which follow from the earlier stages.
    Tables,
    /// The block that marks the volume as in need of repair.
    Last,
    /// Copies of the superblock and of descriptors, written after the first superblock: as long as that is
    /// the old one, they must not disagree with it. Until then it marks the volume as in need of repair.
    Copies,
}

/// The device and its changes.
pub(super) struct Disk<'q> {
    queue: &'q Arc<RequestQueue>,
    reader: Reader<'q>,
    block_size: u64,
    changed: BTreeMap<u64, (Stage, Vec<u8>)>,
    /// New blocks and the blocks whose bytes they get.
    copies: BTreeMap<u64, u64>,
    /// Runs of blocks that become zeros.
    zeroes: Vec<(u64, u64)>,
}

impl<'q> Disk<'q> {
    pub(super) fn new(queue: &'q Arc<RequestQueue>, block_size: u32) -> Self {
        let reader = Reader::new(queue, block_size);
        let (changed, copies, zeroes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Disk { queue, reader, block_size: block_size.into(), changed, copies, zeroes }
    }

    /// Reads blocks of the journal in place of the volume's: for a dry run.
    pub(super) fn lay_over(&mut self, overlay: Overlay) {
        self.reader.lay_over(overlay);
    }

    /// Removes the journal's overlay and returns it.
    pub(super) fn lift(&mut self) -> Option<Overlay> {
        self.reader.lift()
    }

    /// Block `at` with all changes.
    ///
    /// # Errors
    /// Those of the device; `Corrupt` behind its end.
    pub(super) fn block(&mut self, at: u64) -> Result<Vec<u8>> {
        if let Some((_, bytes)) = self.changed.get(&at) {
            return Ok(bytes.clone());
        }
        self.reader.block(self.copies.get(&at).copied().unwrap_or(at))
    }

    /// Changes block `at`; does nothing if it has these bytes already.
    ///
    /// # Errors
    /// Those of reading it; `FileTooBig` for more changes than are kept.
    pub(super) fn put(&mut self, at: u64, stage: Stage, bytes: Vec<u8>) -> Result<()> {
        if let Some(changed) = self.changed.get_mut(&at) {
            changed.1 = bytes;
            return Ok(());
        }
        let fresh = stage == Stage::Fresh || self.copies.contains_key(&at);
        // A block that cannot be read may still be writable.
        if !fresh && self.reader.block(at).is_ok_and(|b| *b == bytes) {
            return Ok(());
        }
        if (self.changed.len() + 1) * bytes.len() > MOST {
            let what = format!("more than {} MiB would have to be changed", MOST >> 20);
            return Err(Error::new(ErrorKind::FileTooBig, what));
        }
        let stage = if fresh { Stage::Fresh } else { stage };
        self.changed.insert(at, (stage, bytes));
        Ok(())
    }

    /// Gives the new block `to` the bytes that `from` has on the device.
    ///
    /// # Errors
    /// `FileTooBig` for more copies than are kept in mind.
    pub(super) fn copy(&mut self, from: u64, to: u64) -> Result<()> {
        if self.copies.len() >= MOST_COPIES {
            let what = format!("more than {MOST_COPIES} blocks would have to be copied: nothing was changed");
            return Err(Error::new(ErrorKind::FileTooBig, what));
        }
        self.copies.insert(to, from);
        Ok(())
    }

    /// Drops the new content of a block.
    pub(super) fn forget(&mut self, at: u64) {
        self.changed.remove(&at);
        self.copies.remove(&at);
    }

    /// Fills new blocks with zeros.
    pub(super) fn zero(&mut self, first: u64, blocks: u64) {
        self.zeroes.push((first, blocks));
    }

    /// Writes changes of these blocks after those of all other inodes, directories and maps.
    pub(super) fn put_off(&mut self, shared: &BTreeSet<u64>) {
        for (at, (stage, _)) in &mut self.changed {
            if *stage == Stage::InPlace && shared.contains(at) {
                *stage = Stage::Shared;
            }
        }
    }

    /// Writes all changes, and `last` as the superblock at the end. `now` is the present superblock.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn commit(&mut self, now: &RawSuperblock, last: &RawSuperblock) -> Result<()> {
        use zerocopy::IntoBytes;
        // A block that cannot be read shows before anything is written.
        for from in self.copies.values() {
            self.reader.block(*from)?;
        }
        let nothing = self.changed.is_empty() && self.copies.is_empty();
        if !nothing || last.as_bytes() != now.as_bytes() {
            self.write_superblock(&under_way(now))?;
        }
        for (first, blocks) in std::mem::take(&mut self.zeroes) {
            let at = Sector::from_bytes(first * self.block_size);
            let done = self.queue.submit_wait(Bio::write_zeroes(at, blocks * self.block_size));
            done.map_err(|e| Error::device(e, format!("zeroing block {first}")))?;
        }
        for (to, from) in std::mem::take(&mut self.copies) {
            if !self.changed.contains_key(&to) {
                let bytes = self.reader.block(from)?;
                self.write(to * self.block_size, &bytes, BioFlags::empty())?;
            }
        }
        for stage in [Stage::Fresh, Stage::InPlace, Stage::Shared, Stage::Tables, Stage::Last] {
            self.write_stage(stage)?;
        }
        if !self.changed.values().any(|c| c.0 == Stage::Copies) {
            return self.write_superblock(last);
        }
        self.write_superblock(&under_way(last))?;
        // The volume is sound without its copies: a copy that cannot be written is no error.
        let copied = self.write_stage(Stage::Copies);
        self.write_superblock(last)?;
        copied
    }

    fn write_stage(&self, stage: Stage) -> Result<()> {
        for (at, (_, bytes)) in self.changed.iter().filter(|(_, c)| c.0 == stage) {
            self.write(at * self.block_size, bytes, BioFlags::empty())?;
        }
        self.queue.flush().map_err(|e| Error::device(e, "flushing"))
    }

    /// Writes the superblock, durably.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn write_superblock(&self, raw: &RawSuperblock) -> Result<()> {
        use zerocopy::IntoBytes;
        self.write(SUPER_OFFSET as u64, raw.as_bytes(), BioFlags::PREFLUSH | BioFlags::FUA)
    }

    /// Writes one block now, durably.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn write_block(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write(at * self.block_size, bytes, BioFlags::PREFLUSH | BioFlags::FUA)
    }

    fn write(&self, at: u64, bytes: &[u8], flags: BioFlags) -> Result<()> {
        let buf = Arc::new(PageBuf::from_slice(bytes));
        let segment = Segment { buf, offset: 0, len: bytes.len() as u32 };
        let flags = flags | BioFlags::SYNC | BioFlags::META;
        let done = self.queue.submit_wait(Bio::write(Sector::from_bytes(at), vec![segment], flags));
        done.map(drop).map_err(|e| Error::device(e, format!("writing at byte {at}")))
    }
}

/// A superblock whose state says that there are errors.
fn under_way(raw: &RawSuperblock) -> RawSuperblock {
    let mut raw = raw.clone();
    let state = State::from_bits_retain(raw.s_state.get()).difference(State::VALID) | State::ERROR;
    raw.s_state = state.bits().into();
    super::superblock::seal(&mut raw);
    raw
}
