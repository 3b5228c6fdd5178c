//! Writes nodes out: by log, a run of blocks at a time.

use crate::durable::since_cp::Since;
use crate::file::write_io::{Bios, FullBios, Pages, Placed};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::node::{flag_of, is_dnode, nid_of, ofs_of};
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::{BioFlags, PageBuf, Segment};
use tidegate_rt::{MutexGuard, trace::SpanPoint};
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{Error, Result, WritebackControl};

static SYNC_NODE_PAGES: SpanPoint<0> = SpanPoint::new("f2fs_sync_node_pages", []);
static FSYNC_NODE_PAGES: SpanPoint<2> = SpanPoint::new("f2fs_fsync_node_pages", ["ino", "nodes"]);

/// Nodes looked at in one round; as many as a segment holds.
const BATCH: usize = 512;

/// The outcome of a batch of nodes.
enum Batch {
    /// The batch was written, and there may be more nodes.
    Written,
    /// Nodes were written up to this node, which is on its way.
    Busy(u64),
    /// No node was left.
    End,
}

impl F2fs {
    /// Writes dirty nodes out; does not wait for them. Takes `cp_rwsem` shared and `node_write` for one batch
    /// at a time, and waits for the device with both released.
    pub(crate) fn write_nodes(&self, wbc: &mut WritebackControl) -> Result<()> {
        let _span = SYNC_NODE_PAGES.enter([]);
        let mut at = wbc.start;
        loop {
            match self.write_nodes_beside(wbc, &mut at)? {
                Batch::Written => {}
                Batch::Busy(index) => self.node_inode.mapping.wait_writeback(index, index + 1),
                Batch::End => return Ok(()),
            }
        }
    }

    /// Writes the next batch, beside operations.
    fn write_nodes_beside(&self, wbc: &mut WritebackControl, at: &mut u64) -> Result<Batch> {
        let mut full = self.write_io.full_bios();
        let _op = self.cp_rwsem.read();
        self.write_node_batch(wbc, at, &mut full)
    }

    /// Writes all dirty nodes for a thread that holds `cp_rwsem` exclusive. Takes `node_write`.
    fn write_nodes_frozen(&self, wbc: &mut WritebackControl) -> Result<()> {
        let _span = SYNC_NODE_PAGES.enter([]);
        let mut at = wbc.start;
        loop {
            // The bios are sent before the wait: the node that is on its way may be in one.
            let batch = {
                let mut full = self.write_io.full_bios();
                self.write_node_batch(wbc, &mut at, &mut full)?
            };
            match batch {
                Batch::Written => {}
                Batch::Busy(index) => self.node_inode.mapping.wait_writeback(index, index + 1),
                Batch::End => return Ok(()),
            }
        }
    }

    /// Writes the next dirty nodes from `at` on. Stops at a node that is on its way if the caller waits for
    /// all nodes. Takes `node_write`; for a thread that holds `cp_rwsem`.
    fn write_node_batch(
        &self,
        wbc: &mut WritebackControl,
        at: &mut u64,
        full: &mut FullBios<'_>,
    ) -> Result<Batch> {
        let _writer = self.node_write.lock();
        let mapping = &self.node_inode.mapping;
        let flags = wbc.to_write_flags();
        if wbc.nr_to_write == 0 {
            return Ok(Batch::End);
        }
        let most = BATCH.min(wbc.nr_to_write.min(BATCH as u64) as usize);
        let found: Vec<u64> = mapping.dirty_indices(*at, wbc.end).take(most).collect();
        let Some(last) = found.last() else { return Ok(Batch::End) };
        *at = last + 1;
        let mut busy = None;
        let mut by_log = Log::NODES.map(|log| (log, Vec::new()));
        for index in found {
            if wbc.sync_all && mapping.is_writeback(index) {
                (busy, *at) = (Some(index), index);
                break;
            }
            if let Some(run) = mapping.get(index, 1) {
                let log = node_log(run.bytes());
                let nids = by_log.iter_mut().filter(|l| l.0 == log);
                nids.for_each(|l| l.1.push(Nid(index as u32)));
            }
        }
        for (log, nids) in by_log {
            let mut rest = &nids[..];
            while !rest.is_empty() {
                let n = self.write_node_run(log, rest, None, flags, full)?;
                rest = &rest[n..];
                wbc.written += n as u64;
                wbc.nr_to_write = wbc.nr_to_write.saturating_sub(n as u64);
            }
        }
        Ok(busy.map_or(Batch::Written, Batch::Busy))
    }

    /// Writes dirty nodes of a regular file for fsync: `ino` last, with the marks that recovery looks
    /// for. For a thread that holds `cp_rwsem` and `node_write`.
    pub(crate) fn write_fsync_nodes(
        &self,
        _: &MutexGuard<'_, ()>,
        ino: Nid,
        nids: &[Nid],
        full: &mut FullBios<'_>,
    ) -> Result<()> {
        let _span = FSYNC_NODE_PAGES.enter([ino.0.into(), nids.len() as u64]);
        // The inode's node is dirty after this in any case, so that it is taken and marked.
        self.modify_node(ino, |_| ())?;
        let mut rest = nids;
        while !rest.is_empty() {
            let n = self.write_node_run(Log::WarmNode, rest, Some(ino), BioFlags::SYNC, full)?;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// Writes the first nodes of `nids` to one run of blocks; returns their number. `fsynced` is the inode
    /// that gets the fsync mark. For callers that hold `node_write`.
    fn write_node_run(
        &self,
        log: Log,
        nids: &[Nid],
        fsynced: Option<Nid>,
        flags: BioFlags,
        full: &mut FullBios<'_>,
    ) -> Result<usize> {
        let versions = self.nat.versions(&self.meta, nids)?;
        let a = self.allocate(log, nids.len() as u32, |i| RawSummary {
            nid: nids[i as usize].0.into(),
            version: versions[i as usize],
            ofs_in_node: 0.into(),
        })?;
        let n = a.blocks as usize;
        let mut taken: Vec<Option<Segment>> = Vec::with_capacity(n);
        let version = self.ckpt.lock().node_version;
        let mut inos = Vec::new();
        for (i, nid) in nids[..n].iter().enumerate() {
            let next = if i + 1 < n { a.start.plus(i as u32 + 1) } else { a.next };
            let marks = if fsynced == Some(*nid) { self.fsync_marks(*nid) } else { 0 };
            let page = self.node_inode.mapping.take_page_with(nid.0 as u64, |p| {
                if ofs_of(p) == 0 {
                    inos.push(nid.0);
                }
                self.sign_node(p, marks, version, next);
            });
            taken.push(page.map(|p| Segment::pages(p.buf, p.first, 1)));
        }
        match fsynced {
            Some(ino) => {
                let last = inos.iter().copied().filter(|i| *i == ino.0);
                self.since_cp.inodes_written(last, true);
            }
            None => self.since_cp.inodes_written(inos.into_iter(), false),
        }
        let moves: Vec<(Nid, BlockAddr)> =
            (0..n).filter(|i| taken[*i].is_some()).map(|i| (nids[i], a.start.plus(i as u32))).collect();
        let give_up = |e: Error| {
            for (nid, _) in &moves {
                self.node_inode.mapping.end_writeback(nid.0 as u64, 1, Some(e.kind()));
            }
            e
        };
        let olds = self.guard(self.nat.relocate(&self.meta, &moves)).map_err(give_up)?;
        let mut freed: Vec<BlockAddr> = olds.iter().flatten().copied().filter(|b| b.is_data()).collect();
        // A node may be freed after it was found and before it was taken: its new block stays unused.
        freed.extend((0..n).filter(|i| taken[*i].is_none()).map(|i| a.start.plus(i as u32)));
        freed.extend(moves.iter().zip(&olds).filter(|(_, old)| old.is_none()).map(|(m, _)| m.1));
        freed.sort_unstable();
        self.guard(self.sit.invalidate(&freed)).map_err(give_up)?;
        let mut olds = olds.into_iter().map(|old| old.unwrap_or(BlockAddr::NULL));
        for (i, seg) in taken.into_iter().enumerate() {
            let blk = a.start.plus(i as u32);
            let (seg, pages) = match seg {
                Some(seg) => {
                    let (inode, index) = (self.node_inode.clone(), nids[i].0 as u64);
                    let old = olds.next().unwrap_or(BlockAddr::NULL);
                    (seg, Some(Pages { inode, index, pages: 1, old, moved: false, cleaned: false }))
                }
                // Recovery follows the chain from block to block: no block of it may be left out.
                None if log == Log::WarmNode => {
                    let next = if i + 1 < n { blk.plus(1) } else { a.next };
                    (self.filler(version, next), None)
                }
                None => {
                    self.write_io.fill(log.into(), blk, 1, full);
                    continue;
                }
            };
            let placed = Placed { blk, segments: vec![seg], pages, then: None };
            self.write_io.add(log.into(), placed, flags, Bios::Grown(full));
        }
        Ok(n)
    }

    /// The marks of an inode written by fsync. If no checkpoint has the inode, recovery also adds its name.
    fn fsync_marks(&self, ino: Nid) -> u32 {
        let since = self.since_cp.of(ino.0);
        let named = since.contains(Since::NEW) && !since.contains(Since::FSYNCED);
        if named && !self.planted.is(PlantedBug::WrongDentryMark) {
            FSYNC_BIT_MASK | DENT_BIT_MASK
        } else {
            FSYNC_BIT_MASK
        }
    }

    /// Sets a node's place in the log and its fsync marks, then the checksum of an inode, which covers them.
    fn sign_node(&self, page: &mut [u8], marks: u32, version: u64, next: BlockAddr) {
        let flag = flag_of(page) & !(FSYNC_BIT_MASK | DENT_BIT_MASK) | marks;
        set_footer(page, flag, version, next);
        if ofs_of(page) == 0 {
            crate::inode::checksum::set_checksum(&self.sb, page);
        }
    }

    /// A block that is no node and only leads on to `next`.
    fn filler(&self, version: u64, next: BlockAddr) -> Segment {
        let mut page = PageBuf::zeroed(1);
        set_footer(&mut page, COLD_BIT_MASK, version, next);
        Segment::pages(Arc::new(page), 0, 1)
    }

    /// Writes every dirty node and waits. For callers that hold `cp_rwsem` exclusive.
    ///
    /// # Errors
    /// `Io` when a node could not be written.
    pub(crate) fn sync_nodes(&self) -> Result<()> {
        let before = self.node_inode.mapping.errseq();
        while self.node_inode.mapping.nr_dirty() > 0 {
            self.write_nodes_frozen(&mut WritebackControl::sync())?;
            if self.node_inode.mapping.errseq() != before {
                break;
            }
        }
        self.node_inode.mapping.wait_writeback(0, u64::MAX);
        if self.node_inode.mapping.errseq() != before {
            let why = self.lost_metadata();
            return Err(why.unwrap_or_else(|| self.node_inode.mapping.last_error("writing nodes")));
        }
        Ok(())
    }
}

fn set_footer(page: &mut [u8], flag: u32, version: u64, next: BlockAddr) {
    if let Some(footer) = RawNodeFooter::of_mut(page) {
        footer.flag = flag.into();
        footer.cp_ver = version.into();
        footer.next_blkaddr = next.0.into();
    }
}

/// The log of a node: indirect nodes are cold, other nodes warm, other nodes of directories hot.
fn node_log(page: &[u8]) -> Log {
    debug_assert!(nid_of(page).0 != 0);
    if !is_dnode(ofs_of(page)) {
        Log::ColdNode
    } else if flag_of(page) & COLD_BIT_MASK != 0 {
        Log::WarmNode
    } else {
        Log::HotNode
    }
}
