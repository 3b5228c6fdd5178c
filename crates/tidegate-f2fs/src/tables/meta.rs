//! The metadata area (checkpoint, SIT, NAT, SSA) through the page cache: pages by block address.
//!
//! A dirty page here is a next copy that nothing points to before a checkpoint does (SIT and NAT alternate),
//! or may change at any time (SSA). So the flusher may write dirty pages whenever it likes.

use crate::format::raw::{BLOCK_SIZE, RawNodeFooter};
use crate::format::units::BlockAddr;
use crate::volume::stats::Counters;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tidegate_block::{Bio, BioData, BioFlags, Errno, PageBuf, Plug, RequestQueue};
use tidegate_rt::{LockClass, Mutex, WaitQueue};
use tidegate_vfs::mapping::{Tag, Taken};
use tidegate_vfs::{At, Bdi, Error, ErrorKind, Inode, PageRun, Result, WritebackControl};

static AHEAD: LockClass = LockClass::new("meta->ahead", 720);

/// Blocks read at once where the neighbours are likely wanted, too.
const READ_AHEAD: u32 = 8;

/// Blocks that are being read, in the order of the request.
pub(crate) struct BlocksAhead(Arc<Ahead>);

struct Ahead {
    state: Mutex<Vec<Option<Result<PageRun>>>>,
    ended: WaitQueue,
}

impl Ahead {
    /// Ends a bio for some of the blocks; `first` is its first block.
    fn end(&self, range: Range<usize>, first: u32, r: std::result::Result<(), Errno>, data: BioData) {
        let buf = match (r, data) {
            (Ok(()), BioData::Read(mut v)) if v.len() == 1 => Ok(Arc::new(v.remove(0))),
            (r, _) => Err(r.err().unwrap_or(Errno::IO)),
        };
        let mut state = self.state.lock();
        for (n, slot) in state[range].iter_mut().enumerate() {
            let block = buf.as_ref().map(|buf| PageRun { buf: buf.clone(), first: n, pages: 1 });
            *slot =
                Some(block.map_err(|e| Error::device_at(*e, "reading metadata", At::Block(first.into()))));
        }
        drop(state);
        self.ended.wake_all();
    }
}

impl BlocksAhead {
    /// The blocks, once all of them are read.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn wait(self) -> Result<Vec<PageRun>> {
        self.0.ended.wait_until(|| self.0.state.lock().iter().all(Option::is_some));
        std::mem::take(&mut *self.0.state.lock()).into_iter().flatten().collect()
    }
}

/// The metadata area in memory; pages by block address.
#[derive(Clone)]
pub(crate) struct Meta {
    pub(crate) inode: Arc<Inode>,
    queue: Arc<RequestQueue>,
    bdi: Arc<Bdi>,
    /// Counts bios.
    pub(crate) stats: Arc<Counters>,
    /// First block past the area.
    end: u32,
    /// Counts changes of blocks.
    changes: Arc<AtomicU64>,
}

impl Meta {
    pub(crate) fn new(
        inode: Arc<Inode>,
        queue: Arc<RequestQueue>,
        bdi: Arc<Bdi>,
        stats: Arc<Counters>,
        end: u32,
    ) -> Self {
        Meta { inode, queue, bdi, stats, end, changes: Arc::default() }
    }

    /// The block at `addr`, from the cache or the device.
    pub(crate) fn read(&self, addr: u32) -> Result<PageRun> {
        if addr >= self.end {
            return Err(Error::corrupt("not in the metadata area").at_block(addr));
        }
        let mapping = &self.inode.mapping;
        // Only missing blocks are read: the device's content may be older than a dirty block. Neighbours of the wanted
        // block do not come into the cache where any block has changed meanwhile: it may have been written and dropped.
        let changes = self.changes.load(SeqCst);
        let n = loop {
            if let Some(run) = mapping.get(addr as u64, 1) {
                return Ok(run);
            }
            if let (false, n) = mapping.residency(addr as u64, u64::from(READ_AHEAD.min(self.end - addr))) {
                break n as usize;
            }
        };
        let buf = self
            .queue
            .read_wait(BlockAddr(addr).sector(), n, BioFlags::META)
            .map_err(|e| Error::device_at(e, "reading metadata", At::Block(addr.into())))?;
        let run = PageRun { buf: Arc::new(buf), first: 0, pages: n };
        let run = match self.changes.load(SeqCst) == changes {
            true => run,
            false => {
                PageRun { buf: Arc::new(PageBuf::from_slice(&run.bytes()[..BLOCK_SIZE])), first: 0, pages: 1 }
            }
        };
        mapping.insert_clean(addr as u64, &run);
        // The page is taken before reclaim may drop it again.
        let page = mapping.get(addr as u64, 1).unwrap_or(PageRun { pages: 1, ..run });
        self.bdi.cached(&self.inode);
        self.bdi.shrink();
        Ok(page)
    }

    /// Starts to read blocks that memory does not have, neighbours in one bio. They do not enter the cache by
    /// themselves: they could replace a block that was written and dropped meanwhile by its old content.
    pub(crate) fn read_ahead(&self, addrs: &[u32]) -> BlocksAhead {
        let ahead =
            Arc::new(Ahead { state: Mutex::new(&AHEAD, vec![None; addrs.len()]), ended: WaitQueue::new() });
        let mut at = 0;
        while at < addrs.len() {
            if let Some(run) = self.inode.mapping.get(u64::from(addrs[at]), 1) {
                ahead.state.lock()[at] = Some(Ok(run));
                at += 1;
                continue;
            }
            let (_, missing) = self.inode.mapping.residency(u64::from(addrs[at]), (addrs.len() - at) as u64);
            let follows = |n: &usize| addrs[at + n] == addrs[at] + *n as u32;
            let n = (1..addrs.len() - at).take_while(follows).count() + 1;
            let n = n.min(missing.max(1) as usize).min(PageBuf::MAX_PAGES);
            let (ahead, first, range) = (ahead.clone(), addrs[at], at..at + n);
            let bufs = vec![PageBuf::stale(n)];
            let bio = Bio::read(BlockAddr(first).sector(), bufs, BioFlags::META | BioFlags::RAHEAD);
            self.queue.submit(bio.on_end(move |r, data| ahead.end(range, first, r, data)));
            at += n;
        }
        BlocksAhead(ahead)
    }

    /// Caches a block that was read ahead. The caller knows that the block was not written since.
    pub(crate) fn keep(&self, addr: u32, block: &PageRun) {
        self.inode.mapping.insert_clean(u64::from(addr), block);
        self.bdi.cached(&self.inode);
    }

    /// The id in the footer of the node block at `addr`, outside the area; `None` if there is none.
    pub(crate) fn node_id_at(&self, addr: u32) -> Result<Option<u32>> {
        let page = self
            .queue
            .read_wait(BlockAddr(addr).sector(), 1, BioFlags::META)
            .map_err(|e| Error::device_at(e, "reading node", At::Block(addr.into())))?;
        let nid = RawNodeFooter::of(&page).nid.get();
        Ok((nid != 0).then_some(nid))
    }

    /// Replaces the block at `addr`; the next write-back writes it.
    pub(crate) fn write(&self, addr: u32, block: PageBuf) {
        let run = PageRun { buf: Arc::new(block), first: 0, pages: 1 };
        self.inode.mapping.insert_dirty(addr as u64, &run);
        // A reader that came before this finds the count changed, and a later one the block in memory, or written.
        self.changes.fetch_add(1, SeqCst);
        self.bdi.mark_dirty(&self.inode);
    }

    /// Changes the block at `addr`; the next write-back writes it.
    pub(crate) fn modify(&self, addr: u32, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        while self.inode.mapping.modify(addr as u64, &mut f).is_none() {
            self.read(addr)?;
        }
        self.changes.fetch_add(1, SeqCst);
        self.bdi.mark_dirty(&self.inode);
        Ok(())
    }

    /// Writes dirty pages out, neighbours in one bio; does not wait for them.
    pub(crate) fn writepages(&self, wbc: &mut WritebackControl) {
        let mapping = &self.inode.mapping;
        let max = PageBuf::MAX_PAGES;
        let mut plug = Plug::new(&self.queue);
        let mut at = wbc.start;
        while wbc.nr_to_write > 0 {
            match mapping.take_dirty(at, wbc.end, Tag::Dirty, max) {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => {
                    plug.send(); // the page that this thread waits for may be in it
                    mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    at = run.index + run.pages as u64;
                    wbc.written += run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                    self.stats.meta_bio(run.index as u32, run.pages as u64);
                    let inode = self.inode.clone();
                    let (index, pages) = (run.index, run.pages);
                    // The bio is synchronous also when the flusher sends it: the next checkpoint waits for it
                    // with operations frozen. Linux does the same (`f2fs_do_write_meta_page`).
                    let flags = BioFlags::META | BioFlags::SYNC;
                    let bio = Bio::write(BlockAddr(index as u32).sector(), run.segments, flags);
                    plug.add(bio.on_end(move |r, _| {
                        r.inspect_err(|e| inode.mapping.record_errno(*e)).ok();
                        inode.mapping.end_writeback(index, pages, r.err().map(|_| ErrorKind::Io));
                    }));
                }
            }
        }
    }

    /// Writes all dirty pages and waits for them.
    ///
    /// # Errors
    /// `Io` when a block could not be written; the block stays dirty.
    pub(crate) fn sync(&self) -> Result<()> {
        let before = self.inode.mapping.errseq();
        self.writepages(&mut WritebackControl::sync());
        self.inode.mapping.wait_writeback(0, u64::MAX);
        if self.inode.mapping.errseq() != before {
            return Err(self.inode.mapping.last_error("writing the metadata area"));
        }
        Ok(())
    }
}
