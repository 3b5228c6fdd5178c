//! The volume's blocks: metadata through the page cache, by pages of the device; data past it.

use crate::format::units::BlockAddr;
use crate::volume::buffers::Buffers;
use crate::volume::overlay::Overlay;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use tidegate_block::{BioFlags, PAGE_SIZE, PageBuf, RequestQueue, SECTOR_SIZE, Sector};
use tidegate_jbd2::{FsBlock, Journal, Verified};
use tidegate_vfs::{Bdi, Error, ErrorKind, Ino, Inode, PageRun, Result};

/// Pages read at once where the neighbours are likely wanted, too.
const READ_AHEAD: u64 = 8;
/// Shards of the mapping: the number of threads that can look at unrelated blocks at once.
const SHARDS: usize = 16;
const PAGE: u64 = PAGE_SIZE as u64;

/// A block in memory, which keeps its page there.
#[derive(Clone)]
pub(crate) enum Block {
    /// Part of a page.
    Page {
        /// The page.
        page: PageRun,
        /// First byte in the page.
        at: usize,
        /// Bytes.
        len: usize,
    },
    /// A block of the journal's cache.
    Logged(tidegate_jbd2::Block),
}

impl Block {
    /// Whether it already passed a check. This is known only for blocks of the journal's cache.
    pub(crate) fn is_verified(&self, check: Verified) -> bool {
        matches!(self, Block::Logged(block) if block.is_verified(check))
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Block::Page { page, at, len } => &page.bytes()[*at..at + len],
            Block::Logged(block) => block,
        }
    }
}

/// The way blocks of metadata change, if they may.
enum Changes {
    None,
    /// They change in memory, until a sync.
    Buffers(Buffers),
    /// They change in transactions.
    Journal(Journal),
}

/// The way to the volume's blocks.
pub(crate) struct Blocks {
    pub(crate) queue: Arc<RequestQueue>,
    bdi: Arc<Bdi>,
    /// Pages of the device that hold metadata.
    inode: Arc<Inode>,
    block_size: u64,
    /// The journal's blocks.
    pub(crate) overlay: Option<Overlay>,
    changes: Changes,
}

impl Blocks {
    /// Blocks of `block_size` bytes behind `queue`, their pages accounted to `bdi`.
    pub(crate) fn new(queue: Arc<RequestQueue>, bdi: Arc<Bdi>, block_size: u32) -> Self {
        let inode = Arc::new(Inode::internal(Ino(0), bdi.clone(), SHARDS));
        Blocks { queue, bdi, inode, block_size: block_size.into(), overlay: None, changes: Changes::None }
    }

    /// Keeps blocks that change from now on: in `journal` if there is one.
    pub(crate) fn allow_changes(&mut self, journal: Option<Journal>) {
        self.changes = journal.map_or_else(|| Changes::Buffers(Buffers::new()), Changes::Journal);
    }

    /// The journal, if changes go through one.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        match &self.changes {
            Changes::Journal(journal) => Some(journal),
            _ => None,
        }
    }

    /// Blocks of data that a handle may put into a transaction, besides the blocks that it needs to place
    /// them.
    pub(crate) fn most_data(&self) -> u64 {
        self.journal().map_or(0, |j| u64::from(j.most_credits() / 4))
    }

    /// Notes that a block, as it was read, passed a check.
    pub(crate) fn set_verified(&self, addr: BlockAddr, block: &Block, check: Verified) {
        if let (Changes::Journal(journal), Block::Logged(block)) = (&self.changes, block) {
            journal.cache().set_verified(FsBlock(addr.0), block, check);
        }
    }

    fn buffers(&self) -> Option<&Buffers> {
        match &self.changes {
            Changes::Buffers(buffers) => Some(buffers),
            _ => None,
        }
    }

    /// Lets `f` change a block in memory.
    ///
    /// # Errors
    /// Those of reading it; `ReadOnly` where nothing may change.
    pub(super) fn modify(&self, addr: BlockAddr, f: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let Some(buffers) = self.buffers() else { return Err(ErrorKind::ReadOnly.into()) };
        buffers.modify(addr, &|| self.read_one(addr), &mut |page| f(&mut page[..self.block_size as usize]))
    }

    /// Puts a new block of zeros in memory, changed by `f`.
    pub(super) fn create(&self, addr: BlockAddr, f: &mut dyn FnMut(&mut [u8])) {
        if let Some(buffers) = self.buffers() {
            buffers.create(addr, &mut |page| f(&mut page[..self.block_size as usize]));
        }
    }

    /// Drops a block that is free now.
    pub(super) fn forget(&self, addr: BlockAddr) {
        if let Some(buffers) = self.buffers() {
            buffers.forget(addr);
        }
    }

    /// Writes every changed block and waits for it.
    ///
    /// # Errors
    /// Those of the device; blocks that were not written stay changed.
    pub(crate) fn write_out(&self) -> Result<()> {
        match self.buffers() {
            Some(buffers) => buffers.write_out(&self.queue, self.block_size as usize),
            None => Ok(()),
        }
    }

    /// The blocks that changed in memory, by number; each lies at the start of its page.
    pub(crate) fn changed(&self) -> BTreeMap<u64, Arc<PageBuf>> {
        self.buffers().map(Buffers::changed).unwrap_or_default()
    }

    /// Writes changed blocks if there are many. Called before a change, so that the memory for them is
    /// bounded.
    ///
    /// # Errors
    /// As [`Blocks::write_out`].
    pub(super) fn make_room(&self) -> Result<()> {
        if self.buffers().is_some_and(Buffers::are_many) { self.write_out() } else { Ok(()) }
    }

    /// Bios and blocks of metadata that a volume without a journal wrote.
    pub(super) fn sent(&self) -> (u64, u64) {
        self.buffers().map_or((0, 0), Buffers::sent)
    }

    fn read_one(&self, addr: BlockAddr) -> Result<PageBuf> {
        let read = self.read_bytes(addr.0 * self.block_size, 1, BioFlags::META);
        read.map_err(|e| e.of_at("reading", addr.place()))
    }

    /// The first sector of a block.
    pub(crate) fn sector(&self, addr: BlockAddr) -> Sector {
        Sector(addr.0 * self.block_size / SECTOR_SIZE)
    }

    /// Blocks in a page.
    pub(crate) fn per_page(&self) -> u64 {
        PAGE / self.block_size
    }

    /// The block at `addr`, from the cache or the device. The caller knows that the volume has it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn read(&self, addr: BlockAddr) -> Result<Block> {
        if let Changes::Journal(journal) = &self.changes {
            return journal.get(FsBlock(addr.0)).map(Block::Logged);
        }
        if let Some(buffers) = self.buffers() {
            let buf = buffers.get(addr, &|| self.read_one(addr))?;
            return Ok(Block::Page {
                page: PageRun { buf, first: 0, pages: 1 },
                at: 0,
                len: self.block_size as usize,
            });
        }
        let byte = addr.0 * self.block_size;
        let page = self.page(byte / PAGE).map_err(|e| e.of_at("reading", addr.place()))?;
        Ok(Block::Page { page, at: (byte % PAGE) as usize, len: self.block_size as usize })
    }

    fn page(&self, index: u64) -> Result<PageRun> {
        let mapping = &self.inode.mapping;
        let whole = self.queue.device().size() / PAGE;
        let n = loop {
            if let Some(run) = mapping.get(index, 1) {
                return Ok(run);
            }
            if index >= whole {
                break 1;
            }
            if let (false, n) = mapping.residency(index, READ_AHEAD.min(whole - index)) {
                break n as usize;
            }
        };
        let buf = self.read_bytes(index * PAGE, n, BioFlags::META)?;
        let run = PageRun { buf: Arc::new(buf), first: 0, pages: n };
        mapping.insert_clean(index, &run);
        // The page is taken before reclaim may drop it again.
        let page = mapping.get(index, 1).unwrap_or(PageRun { pages: 1, ..run });
        self.bdi.cached(&self.inode);
        self.bdi.shrink();
        Ok(page)
    }

    /// Reads `pages` pages from byte `at` of the device on, where a block begins, with the journal's blocks
    /// applied. Bytes behind the device's last whole sector are zeros: the length of a device need not be a
    /// multiple of a page.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn read_bytes(&self, at: u64, pages: usize, flags: BioFlags) -> Result<PageBuf> {
        let of = |e| Error::device(e, format!("at byte {at}"));
        let end = self.queue.device().size() / SECTOR_SIZE * SECTOR_SIZE;
        let mut buf = if at + pages as u64 * PAGE <= end || pages > 1 || end < PAGE || at >= end {
            self.queue.read_wait(Sector::from_bytes(at), pages, flags).map_err(of)?
        } else {
            // The end of the device's last page is wanted.
            let last = self.queue.read_wait(Sector::from_bytes(end - PAGE), 1, flags).map_err(of)?;
            PageBuf::from_slice(&last[(PAGE - (end - at)) as usize..])
        };
        if let Some(overlay) = &self.overlay {
            overlay.patch(at / self.block_size, self.block_size as usize, &mut buf)?;
        }
        Ok(buf)
    }

    /// Whether the device, and not the journal, has the current content of the `n` blocks from `addr` on.
    pub(crate) fn are_in_place(&self, addr: BlockAddr, n: u64) -> bool {
        self.overlay.as_ref().is_none_or(|o| !o.touches(addr.0..addr.0 + n))
    }
}
